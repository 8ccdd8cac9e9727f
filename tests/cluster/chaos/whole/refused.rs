//! W13, F26: the Git host no longer takes the cluster's deploy key, while hub and agent are otherwise well. No command does
//! that to one key, so it is done to the hub's records, as a Git host of somebody else's would lose it.

use std::time::Instant;

use serde_json::{Value, json};
use sqlx::SqlitePool;
use sqlx::sqlite::SqliteConnectOptions;

use crate::blocked::git::asks;
use crate::healing::{LIMIT, on_record, settle, since, unchanged, workloads};
use crate::keys::{fingerprints, host};
use crate::support::world::{self, ARGOCD, FLUX, World};
use crate::support::{argocd, eventually, figure, seconds, shown, until};

/// What becomes of the key.
struct Loss {
    what: &'static str,
    sql: &'static str,
    /// Whether the cluster goes on with the same key.
    same: bool,
}

const LOSSES: [Loss; 2] = [
    Loss {
        what: "registration of the deploy key lost",
        sql: "DELETE FROM cluster_key WHERE kind = 'deploy'",
        same: true,
    },
    Loss {
        what: "deploy key revoked",
        sql: "UPDATE cluster_key SET state = 'revoked' WHERE kind = 'deploy'",
        same: false,
    },
];

fn in_records(world: &World, sql: &'static str) {
    let file = world.hub.data().join("hub.db");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let options = SqliteConnectOptions::new().filename(file);
        let records = options.busy_timeout(seconds(10));
        let records = SqlitePool::connect_with(records).await.unwrap();
        sqlx::query(sql).execute(&records).await.unwrap();
        records.close().await;
    });
}

fn complains(world: &World) -> bool {
    if world.engine == ARGOCD {
        let root = world.api.get(&argocd::root()).unwrap();
        return root["status"]["conditions"]
            .as_array()
            .is_some_and(|c| !c.is_empty());
    }
    !world::ready(&world.api.get(&world::git_repository(FLUX)).unwrap())
}

/// The engine's Pods by UID.
fn pods(world: &World) -> Vec<String> {
    let list = format!("/api/v1/namespaces/{}/pods", world.namespace());
    let list = world.api.get(&list).unwrap();
    let all = list["items"].as_array().unwrap().iter();
    let uids = all.map(|pod| pod["metadata"]["uid"].as_str().unwrap().to_owned());
    let mut uids: Vec<String> = uids.collect();
    uids.sort();
    uids
}

/// W13: it is said by its name, the hub is asked to take a key again, and the engine fetches with that without a hand and
/// without a restart.
fn refused_and_registered_again(world: &World, loss: &Loss) {
    settle(world);
    let (known, workloads) = (on_record(world), workloads(world));
    let (keys, pods) = (fingerprints(world, "deploy"), pods(world));
    assert_eq!(keys.len(), 1);
    in_records(world, loss.sql);
    let began = Instant::now();
    // Argo CD takes a question away unseen that comes while it writes down what it saw before.
    until("the engine meets the refusal", seconds(LIMIT), || {
        asks(world);
        complains(world)
    });
    until("it is called KeyRevoked", seconds(2 * LIMIT), || {
        let new = since(world, &known);
        new.iter().any(|heal| heal["class"] == "KeyRevoked")
    });
    let what = world.said(loss.what);
    figure(
        "W13",
        &format!("{what}, engine asked to fetch → called KeyRevoked"),
        "≤ 90 s",
        shown(began.elapsed()),
    );
    // Until then it could not read anything, and what it reads with may be there before anybody sees the key; Argo CD's times have
    // whole seconds.
    let refused_until = linesman::clock::now().replace_nanosecond(0).unwrap();
    let registered = until("the hub has a key again", seconds(600), || {
        !fingerprints(world, "deploy").is_empty()
    });
    let ((), back) = eventually("the engine reads the catalog", seconds(900), || {
        host::reads(world, refused_until)
    });
    figure(
        "W13",
        &format!("{what}, called so → a key registered by the agent"),
        "",
        shown(registered),
    );
    figure(
        "W13",
        &format!("{what}, a key registered again → engine has read the catalog"),
        "≤ 60 s",
        shown(back),
    );
    world.function(seconds(LIMIT));
    assert_eq!(self::pods(world), pods, "Pods were restarted");
    until("one key is left", seconds(LIMIT), || {
        let now = fingerprints(world, "deploy");
        now.len() == 1 && (now == keys) == loss.same
    });
    settle(world);
    until("it is over", seconds(LIMIT), || {
        let new = since(world, &known);
        new.iter().all(|heal| heal["restoredAt"].is_string())
    });
    let new = since(world, &known);
    let named: Vec<&Value> = new.iter().filter(|h| h["class"] == "KeyRevoked").collect();
    let [told] = named[..] else {
        panic!("{new:#?}");
    };
    assert_eq!(told["result"], json!("reported"), "{told:#}");
    unchanged(world, &workloads);
    until("the cluster is healthy", seconds(LIMIT), || {
        world.phase() == "Healthy"
    });
}

#[test]
#[ignore = "takes minutes: make chaos"]
fn a_deploy_key_that_the_git_host_refuses_is_told_and_registered_again() {
    let world = world::adopted();
    for loss in &LOSSES {
        refused_and_registered_again(&world, loss);
    }
}

/// W30: the same with Argo CD, which says so of its own look after three minutes of grace.
#[test]
#[ignore = "takes minutes: make chaos"]
fn a_deploy_key_that_the_git_host_refuses_to_argo_cd_is_told_and_registered_again() {
    let world = world::adopted_argocd();
    for loss in &LOSSES {
        refused_and_registered_again(&world, loss);
    }
}

//! W2, H18: the Git host shows another key than the cluster was told. Nobody offers it a credential; both fingerprints are
//! at the hub; one command makes the cluster trust it and drops the old one.

use std::time::Duration;

use serde_json::{Value, json};

use super::failed_fetches;
use crate::support::world::{self, ARGOCD, CLUSTER, FLUX, World};
use crate::support::{argocd, eventually, figure, seconds, shown, until};

/// W2, H18, with Flux.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_changed_host_key_stops_the_catalog_until_it_is_accepted() {
    changed_and_accepted(&mut world::adopted(), true, ["W2", ""]);
}

/// `waits` for the engine to say so, too. Figures have the row and, before their text, the case.
pub(crate) fn changed_and_accepted(world: &mut World, waits: bool, case: [&str; 2]) {
    world.function(seconds(240));
    let old = githost(world)["keys"][0]["fingerprint"].clone();
    let (pods, failed) = (pods(world), failed_fetches(world));
    world.hub.stop();
    std::fs::remove_file(world.hub.data().join("git_host_key")).unwrap();
    let before = offered_credentials(world);
    world.hub.up();
    let mut new = Value::Null;
    let took = until("the hub shows what the cluster meets", seconds(60), || {
        let host = githost(world);
        let met = &host["clusters"][0];
        new = met["shown"].clone();
        met["mismatch"] == json!(true) && new != old
    });
    let words = mismatch(world).unwrap();
    for fingerprint in [&old, &new] {
        assert!(words.contains(fingerprint.as_str().unwrap()), "{words}");
    }
    let what = "hub is back with another host key → both fingerprints at the hub";
    told(world, case, what, "≤ 30 s", took);
    // Argo CD says so of its own look after three minutes of grace.
    let said = || !waits || refused(world);
    until("the root says so, too", seconds(330), said);
    let failures = failed_fetches(world) - failed;
    assert!(!waits || failures > 0, "no look of the engine failed");
    assert_eq!(
        offered_credentials(world),
        before,
        "a credential was offered to a host with a wrong key"
    );
    accepted(world, &new, waits, case);
    assert_eq!(self::pods(world), pods, "Pods were restarted");
    world.function(seconds(60));
    until("the engine has the new key alone", seconds(30), || {
        let host = githost(world);
        let has = &host["clusters"][0]["trusted"];
        *has == json!([new]) && host["offered"] == json!([])
    });
    forget_clone(world);
    until("the cluster is healthy", seconds(60), || {
        world.phase() == "Healthy"
    });
}

fn accepted(world: &World, new: &Value, waits: bool, case: [&str; 2]) {
    let began = std::time::Instant::now();
    // Argo CD writes whole seconds.
    let moment = linesman::clock::now().replace_nanosecond(0).unwrap();
    let accept = [
        "githost",
        "accept-host-key",
        "builtin",
        "--replace",
        "--yes",
    ];
    let fingerprint = ["--fingerprint", new.as_str().unwrap()];
    world.hub.linesman(&[&accept[..], &fingerprint].concat());
    eventually(
        "the catalog is synced again",
        seconds(240),
        || match mismatch(world) {
            Some(words) => Err(words),
            None => reads(world, moment),
        },
    );
    let when = if world.engine != ARGOCD {
        ""
    } else if waits {
        ", which had said so"
    } else {
        ", which had not said so yet"
    };
    let what = format!("new host key accepted → synced again{when}");
    told(world, case, &what, "≤ 60 s", began.elapsed());
}

fn told(world: &World, [row, case]: [&str; 2], what: &str, bar: &str, took: Duration) {
    let what = world.said(&format!("{case}{what}"));
    figure(row, &what, bar, shown(took));
}

/// Whether the engine itself says that it does not know the host's key.
fn refused(world: &World) -> bool {
    let root = match world.engine {
        ARGOCD => argocd::root(),
        _ => world::git_repository(FLUX),
    };
    let root = world.api.get(&root).unwrap_or_default();
    let said = root["status"]["conditions"].to_string();
    // The second where the known key and the other one are of different kinds.
    let refusals = ["knownhosts: key", "no common algorithm for host key"];
    refusals.iter().any(|refusal| said.contains(refusal))
}

/// Whether the engine has read the catalog's head, later than `since`.
pub(crate) fn reads(world: &World, since: time::OffsetDateTime) -> Result<(), String> {
    if world.engine == ARGOCD {
        world.synced()?;
        let root = world.api.get(&argocd::root()).unwrap_or_default();
        let status = &root["status"];
        let looked = argocd::reconciled(&root).is_some_and(|at| at >= since);
        let clean = status["conditions"].as_array().is_none_or(Vec::is_empty);
        return (looked && clean)
            .then_some(())
            .ok_or_else(|| format!("{} {}", status["reconciledAt"], status["conditions"]));
    }
    let source = world.api.get(&world::git_repository(FLUX));
    source
        .is_some_and(|s| world::ready(&s))
        .then_some(())
        .ok_or_else(|| "the source is not Ready".to_owned())
}

/// The engine's Pods by name and UID.
fn pods(world: &World) -> Vec<String> {
    let list = format!("/api/v1/namespaces/{}/pods", world.namespace());
    let list = world.api.get(&list).unwrap();
    let all = list["items"].as_array().unwrap().iter();
    let mut all: Vec<_> = all
        .map(|p| format!("{} {}", p["metadata"]["name"], p["metadata"]["uid"]))
        .collect();
    all.sort();
    all
}

/// What was cloned before knows the old host key.
pub(super) fn forget_clone(world: &World) {
    let clone = world.directory.join("catalog");
    if clone.exists() {
        std::fs::remove_dir_all(clone).unwrap();
    }
}

fn githost(world: &World) -> Value {
    world.hub.json(&["githost", "show", "builtin"])
}

/// What condition `HostKeyMismatch` says while it is true.
fn mismatch(world: &World) -> Option<String> {
    let view = world.hub.json(&["cluster", "show", CLUSTER]);
    let all = view["conditions"].as_array().cloned().unwrap_or_default();
    let found = all
        .iter()
        .find(|c| c["type"] == json!("HostKeyMismatch") && c["status"] == json!("True"));
    found.map(|c| c["message"].as_str().unwrap_or_default().to_owned())
}

/// How many keys clients have offered to the hub's Git server.
pub(super) fn offered_credentials(world: &World) -> usize {
    let log = std::fs::read_to_string(world.hub.log()).unwrap();
    log.lines()
        .filter(|l| l.contains("SSH key offered"))
        .count()
}

//! W10: the engine's Namespace hangs in its deletion, and nobody is there who would end that.

use std::time::Instant;

use serde_json::{Value, json};

use crate::healing::{LIMIT, on_record, settle, since, unchanged, workloads};
use crate::line::agent_pids;
use crate::support::api::{deployment, path_of};
use crate::support::argocd::{CONTROLLER, application};
use crate::support::world::{self, ARGOCD, FLUX, World};
use crate::support::{figure, seconds, shown, until};

/// What keeps sync objects until the engine has pruned what they brought.
fn finalizer(world: &World) -> &'static str {
    if world.engine == ARGOCD {
        "resources-finalizer.argocd.argoproj.io"
    } else {
        "finalizers.fluxcd.io"
    }
}

fn controllers(world: &World) -> Vec<String> {
    let all: &[&str] = if world.engine == ARGOCD {
        &[
            "argocd-repo-server",
            "argocd-redis",
            "argocd-applicationset-controller",
        ]
    } else {
        &["source-controller", "kustomize-controller"]
    };
    let all = all.iter().map(|name| deployment(world.namespace(), name));
    let last = (world.engine == ARGOCD).then(|| CONTROLLER.to_owned());
    all.chain(last).collect()
}

fn scaled(world: &World, workload: &str, replicas: u8) {
    let wanted = json!({ "spec": { "replicas": replicas } });
    world.api.patch(workload, &wanted);
}

/// What the API server says that the Namespace waits for.
fn waits_for(world: &World, namespace: &str) -> Option<String> {
    let live = world.api.try_get(namespace).ok()??;
    let said = live["status"]["conditions"].as_array()?;
    let held = said
        .iter()
        .find(|c| c["type"] == "NamespaceFinalizersRemaining" && c["status"] == "True")?;
    held["message"].as_str().map(str::to_owned)
}

fn pods(world: &World) -> usize {
    let namespace = world.namespace();
    let list = world
        .api
        .get(&format!("/api/v1/namespaces/{namespace}/pods"));
    list.unwrap_or_default()["items"]
        .as_array()
        .map_or(0, Vec::len)
}

/// An object of a user's that neither Git nor the install has.
fn by_hand(world: &World) -> (String, Value) {
    let object = if world.engine == ARGOCD {
        let base = world.api.get(&application("base")).unwrap();
        let mut source = base["spec"]["source"].clone();
        source["path"] = json!("by-hand");
        json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
            "metadata": { "name": "by-hand", "namespace": ARGOCD, "finalizers": [finalizer(world)] },
            "spec": {
                "project": "default", "source": source,
                "destination": { "server": "https://kubernetes.default.svc", "namespace": "default" },
            },
        })
    } else {
        json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "Bucket",
            "metadata": { "name": "by-hand", "namespace": FLUX, "finalizers": [finalizer(world)] },
            "spec": { "bucketName": "b", "endpoint": "e", "interval": "1h", "suspend": true },
        })
    };
    (path_of(&object), object)
}

#[test]
#[ignore = "needs a real cluster: make test"]
fn an_engine_namespace_that_hangs_on_finalizers_comes_back_without_a_hand() {
    comes_back(&world::adopted());
}

#[test]
#[ignore = "needs a real cluster: make test"]
fn the_namespace_of_argo_cd_that_hangs_on_finalizers_comes_back_without_a_hand() {
    comes_back(&world::adopted_argocd());
}

/// F21, W10: deleted while neither engine nor agent was there, it hangs on the engine's finalizers, on sync objects of the
/// catalog and on one of a user's. The agent comes, and ends it; no workload is lost, and the user's object is back.
pub(crate) fn comes_back(world: &World) {
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: by-hand, namespace: default}\n";
    world.push("by-hand/map.yaml", map);
    settle(world);
    let (known, workloads) = (on_record(world), workloads(world));
    let agent = deployment("linesman", "linesman-agent");
    scaled(world, &agent, 0);
    until("the agent is away", seconds(LIMIT), || {
        agent_pids(world).is_empty()
    });
    for controller in controllers(world) {
        scaled(world, &controller, 0);
    }
    until("the engine is away", seconds(LIMIT), || pods(world) == 0);
    let (by_hand, object) = by_hand(world);
    let (collection, _) = by_hand.rsplit_once('/').unwrap();
    world.api.create(collection, &object);
    let spec = world.api.get(&by_hand).unwrap()["spec"].clone();
    let before = world.uid(&by_hand);
    let namespace = format!("/api/v1/namespaces/{}", world.namespace());
    let uid = world.uid(&namespace).unwrap();
    world.delete_guarded(&namespace);
    until("it hangs", seconds(LIMIT), || {
        let held = waits_for(world, &namespace);
        held.is_some_and(|by| by.contains(finalizer(world)))
    });

    let began = Instant::now();
    scaled(world, &agent, 1);
    until("the namespace is a new one", seconds(LIMIT), || {
        world.uid(&namespace).is_some_and(|new| new != uid)
    });
    let there = began.elapsed();
    world.function(seconds(LIMIT));
    let whole = shown(began.elapsed());
    let what = "Namespace hanging on finalizers, agent started";
    let new = world.case(&format!("{what} → a new one"));
    figure("W10", &new, "", shown(there));
    let works = world.case(&format!("{what} → function"));
    figure("W10", &works, "≤ 180 s", whole);
    unchanged(world, &workloads);
    until("the user's object is another one", seconds(LIMIT), || {
        world.uid(&by_hand).is_some_and(|new| Some(new) != before)
    });
    assert_eq!(world.api.get(&by_hand).unwrap()["spec"], spec);
    assert!(world.api.delete(&by_hand));
    settle(world);
    let new = since(world, &known);
    let died = |h: &&Value| h["class"] == "NamespaceTerminating" && h["result"] == "healed";
    let died = new.iter().find(died);
    let said = died.map(|h| h["evidence"].to_string()).unwrap_or_default();
    assert!(said.contains(finalizer(world)), "{new:#?}");
}

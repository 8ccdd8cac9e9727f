//! F18: a sync object that the API server takes and the engine cannot read.

use std::thread;

use linesman::clock;
use serde_json::{Value, json};

use crate::healing::{LIMIT, heals, settle};
use crate::support::api::path;
use crate::support::audit::Mark;
use crate::support::world::{self, FLUX, World, kustomization};
use crate::support::{eventually, figure, seconds, shown, until};

/// Asks for a reconciliation in the agent's way, whose answer the agent waits for.
fn asked(world: &World) -> String {
    let stamp = clock::rfc3339(clock::now());
    let annotations = json!({ "reconcile.fluxcd.io/requestedAt": stamp });
    let patch = json!({ "metadata": { "annotations": annotations } });
    world.api.patch(&kustomization(FLUX), &patch);
    stamp
}

fn answered(world: &World, stamp: &str) -> bool {
    let root = world.api.get(&kustomization(FLUX)).unwrap();
    root["status"]["lastHandledReconcileAt"] == json!(stamp)
}

/// F18: somebody's Kustomization elsewhere has an interval beyond Go's bounds. kustomize-controller reads none of them
/// from then on; the record names the object, and nothing is restarted over it.
#[test]
#[ignore = "needs a real cluster: make test"]
fn an_object_that_the_engine_cannot_read_is_named_and_nothing_restarted_over_it() {
    let world = world::adopted();
    settle(&world);
    let group = "kustomize.toolkit.fluxcd.io/v1";
    let bad = path(group, "Kustomization", "default", "unreadable");
    let (collection, _) = bad.rsplit_once('/').unwrap();
    let object = json!({
        "apiVersion": group, "kind": "Kustomization",
        "metadata": { "name": "unreadable", "namespace": "default" },
        "spec": {
            "interval": "99999999999999h", "path": "./none", "prune": false, "suspend": true,
            "sourceRef": { "kind": "GitRepository", "name": "none" },
        },
    });
    let mark = Mark::now(&world.audit);
    world.api.create(collection, &object);
    let record = || {
        let all = heals(&world).into_iter();
        let mut found = all.filter(|h| h["class"] == "UndecodableObject");
        found.next().ok_or("no record")
    };
    let (heal, took) = eventually("the hub shows it by its name", seconds(LIMIT), record);
    figure("F18", "unreadable sync object → named", "", shown(took));
    assert_eq!(heal["object"], "Kustomization default/unreadable", "{heal}");
    let said = heal["evidence"].as_str().unwrap();
    assert!(said.contains("spec.interval '99999999999999h'"), "{said}");
    let stamp = asked(&world);
    // A probe without an answer is called a wedge after 90 s; that nothing is done about it has no event.
    thread::sleep(seconds(105));
    assert!(!answered(&world, &stamp), "the engine reads it after all");
    let deleted = mark.answered().into_iter();
    let deleted = deleted.filter(|a| a.verb == "delete" && a.resource == "pods");
    let names: Vec<String> = deleted.map(|a| a.name).collect();
    assert_eq!(names, [""; 0], "restarted over what a restart cannot mend");
    let wedged = |h: &Value| h["class"] == "QueueWedged" && h["result"] == "open";
    assert!(!heals(&world).iter().any(wedged));

    assert!(world.api.delete(&bad));
    let took = until("the engine answers", seconds(LIMIT), || {
        answered(&world, &stamp)
    });
    figure("F18", "… deleted → the engine answers", "", shown(took));
    settle(&world);
}

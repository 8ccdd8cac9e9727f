//! W4: what is installed is what is pinned, and its Pods meet Pod Security `restricted`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::healing::LIMIT;
use crate::support::place::run;
use crate::support::world::{self, World};
use crate::support::{figure, seconds, shown, until};

/// Of the normal form of Flux v2.9.5 as the lab composes it from the modules in `tests/lab/mods`, without
/// notification-controller.
const FLUX: &str = "sha256:c8cfd95202ab2e8e3826ed450839166cc5f4db7c1fbb9f11036ee496117075ca";
/// Of Argo CD's core install at v3.2.6.
const ARGOCD: &str = "sha256:df5f2c0feed3733c51cd876bfb043fb1d4a7956abf5c380ba4fb59f0eb033243";

/// W4: with Flux.
#[test]
#[ignore = "needs a real cluster: make test"]
fn the_install_is_the_pinned_one_and_runs_as_restricted() {
    let world = world::adopted();
    is_pinned(&world, FLUX);
    admitted(&world);
}

/// W4, W30: with Argo CD.
pub(crate) fn with_argocd(world: &World) {
    is_pinned(world, ARGOCD);
    admitted(world);
}

/// Whatever machine composed it, byte by byte.
fn is_pinned(world: &World, digest: &str) {
    let bundles = world.hub.json(&["engine", "list"]);
    let digests = bundles.as_array().unwrap().iter().map(|b| &b["digest"]);
    let digests: Vec<&Value> = digests.collect();
    assert!(digests.contains(&&json!(digest)), "{bundles:#}");
}

/// All Pods of the engine are made anew in a namespace that takes no others.
fn admitted(world: &World) {
    let namespace = world.namespace();
    let label = |word: &str| {
        run(world
            .place
            .kubectl()
            .args(["label", "--overwrite", "namespace", namespace, word]));
    };
    label("pod-security.kubernetes.io/enforce=restricted");
    let before = pods(world);
    assert!(before.len() >= 2, "{before:?}");
    run(world
        .place
        .kubectl()
        .args(["-n", namespace, "delete", "pods", "--all", "--wait=false"]));
    let took = until("all Pods are others, and available", seconds(LIMIT), || {
        let now = pods(world);
        !now.is_empty() && now.is_disjoint(&before) && world.engine_available()
    });
    let what = world.said("all Pods deleted, enforce=restricted → others admitted and available");
    figure("W4", &what, "", shown(took));
    world.function(seconds(LIMIT));
    label("pod-security.kubernetes.io/enforce-");
}

/// Those that stay: a test before may have left some that end.
fn pods(world: &World) -> BTreeSet<String> {
    let path = format!("/api/v1/namespaces/{}/pods", world.namespace());
    let list = world.api.get(&path).unwrap();
    let items = list["items"].as_array().unwrap().iter();
    let stay = items.filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    let uids = stay.filter_map(|pod| pod["metadata"]["uid"].as_str());
    uids.map(str::to_owned).collect()
}

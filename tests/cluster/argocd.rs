//! Argo CD as the engine, on a lab of its own that all of these tests share: W1, W5, W7, W8, W11, W33, W34, W35,
//! W37, W39, W40.
//!
//! One behaviour after the other in one test costs one settling less each time; the names of the figures tell them apart.

use crate::support::world::{self, CLUSTER};
use crate::support::{figure, seconds, shown, until};

/// W1, W30: YAML applied to the first catalog revision applied in ≤ 45 s; then each commit is followed.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_cluster_is_adopted_with_argo_cd_and_follows_the_catalog() {
    let world = world::adopted_argocd();
    figure(
        "W1",
        "Argo CD: adoption YAML applied → first revision applied",
        "≤ 45 s",
        shown(world.adoption.unwrap()),
    );
    let view = world.hub.json(&["cluster", "show", CLUSTER]);
    assert_eq!(
        view["revision"].as_str(),
        Some(world.head().unwrap().as_str()),
        "{view}"
    );
    let hello = "/apis/apps/v1/namespaces/hello/deployments/hello";
    until("deployment hello is available", seconds(120), || {
        let live = world.api.try_get(hello).ok().flatten();
        live.is_some_and(|d| world::condition(&d, "Available"))
    });
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: followed, namespace: default}\n";
    world.push(&format!("clusters/{CLUSTER}/followed.yaml"), map);
    let took = until("the commit is applied", seconds(120), || {
        world
            .uid("/api/v1/namespaces/default/configmaps/followed")
            .is_some()
    });
    figure(
        "W1",
        "Argo CD: commit pushed → applied, hub there",
        "",
        shown(took),
    );
}

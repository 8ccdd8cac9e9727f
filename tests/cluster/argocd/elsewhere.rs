//! Issue 4 §2: an Argo CD that is not the cluster's engine.

use std::time::Instant;

use serde_json::json;

use crate::healing::{LIMIT, settle};
use crate::support::api::path;
use crate::support::argocd::application;
use crate::support::world::{self, ARGOCD, CLUSTER};
use crate::support::{figure, seconds, shown, until};

/// Issue 4 §2: an Argo CD uses a cluster through the line, by the Secret that the hub's CLI prints.
#[test]
#[ignore = "needs a real cluster: make test"]
fn an_argo_cd_elsewhere_uses_a_cluster_through_the_line() {
    let world = world::adopted_argocd();
    settle(&world);
    world.hub.linesman(&["user", "add", "deployer"]);
    world.hub.linesman(&[
        "grant",
        "add",
        "user:deployer",
        "--cluster",
        CLUSTER,
        "--group",
        "admin",
    ]);
    let file = world.directory.join("cluster-secret.yaml");
    let secret = [
        "cluster",
        "argocd-secret",
        CLUSTER,
        "--user",
        "deployer",
        "--file",
    ];
    world
        .hub
        .linesman(&[&secret[..], &[file.to_str().unwrap()]].concat());
    world.apply(&file);
    let mut spec = world.api.get(&application("app-hello")).unwrap()["spec"].clone();
    spec["source"]["path"] = json!("base");
    spec["destination"] = json!({ "name": CLUSTER, "namespace": "default" });
    spec["source"]["kustomize"] = json!({ "nameSuffix": "-by-line" });
    let object = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
        "metadata": { "name": "by-line", "namespace": ARGOCD }, "spec": spec,
    });
    let place = application("by-line");
    let (collection, _) = place.rsplit_once('/').unwrap();
    world.api.create(collection, &object);
    let began = Instant::now();
    until(
        "the Application is synced through the line",
        seconds(LIMIT),
        || {
            let live = world.api.get(&place).unwrap();
            live["status"]["sync"]["status"] == json!("Synced")
                && live["status"]["operationState"]["phase"] == json!("Succeeded")
        },
    );
    figure(
        "argocd-secret",
        "Argo CD: Application whose destination is the cluster through the line → synced",
        "",
        shown(began.elapsed()),
    );
    let by = world.hub.json(&["audit", "list", "--user", "deployer"]);
    assert!(
        !by.as_array().unwrap().is_empty(),
        "nothing went through the line"
    );
    assert!(world.api.delete(&place));
    assert!(world.api.delete(&path(
        "v1",
        "Secret",
        ARGOCD,
        &format!("linesman-{CLUSTER}")
    )));
}

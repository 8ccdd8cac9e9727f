//! Argo CD's full install: with the API server that the web interface and users speak with, and with notifications.

use serde_json::{Value, json};

use crate::healing::{LIMIT, deleted_at_once, on_record, settle, since};
use crate::support::api::{deployment, path};
use crate::support::place::Place;
use crate::support::world::{ARGOCD, World};
use crate::support::{eventually, figure, seconds, shown, until};

const RBAC: &str = "rbac.authorization.k8s.io/v1";
const HEALTH: &str = "/api/v1/namespaces/argocd/services/https:argocd-server:443/proxy/healthz";

/// Without dex, which only single sign-on needs and the lab has no image of.
fn manifest() -> String {
    let full = Place::bundle("argocd-full");
    let kept = full
        .split("\n---\n")
        .filter(|d| !d.contains("\n  name: argocd-dex-server"));
    kept.collect::<Vec<_>>().join("\n---\n")
}

/// W30, W5: the full install is adopted; what it has beyond the core comes back, and what its users have stays theirs.
#[test]
#[ignore = "needs a real cluster: make test"]
fn the_full_install_is_adopted_and_healed() {
    let mut world = World::open_from("argofull", ARGOCD, &manifest());
    world.adopt();
    let took = world.adoption.unwrap();
    figure(
        "W1",
        "Argo CD, full install: adoption YAML applied → first revision applied",
        "≤ 45 s",
        shown(took),
    );
    answers(&world);
    settle(&world);
    let password = admin(&world);
    let before = on_record(&world);
    let parts = [
        deployment(ARGOCD, "argocd-server"),
        deployment(ARGOCD, "argocd-notifications-controller"),
        path("v1", "Service", ARGOCD, "argocd-server"),
        path("v1", "ConfigMap", ARGOCD, "argocd-rbac-cm"),
        path("v1", "Secret", ARGOCD, "argocd-notifications-secret"),
        path("v1", "ServiceAccount", ARGOCD, "argocd-server"),
        path(RBAC, "Role", ARGOCD, "argocd-notifications-controller"),
        path(RBAC, "RoleBinding", ARGOCD, "argocd-server"),
        path(RBAC, "ClusterRole", "", "argocd-server"),
        path(
            RBAC,
            "ClusterRoleBinding",
            "",
            "argocd-applicationset-controller",
        ),
    ];
    let took = deleted_at_once(&world, &parts);
    figure(
        "W5",
        "Argo CD, full install: ten objects beyond the core deleted → all back",
        "≤ 5 s",
        shown(took),
    );
    answers(&world);
    world.function(seconds(LIMIT));
    settle(&world);
    let heals = since(&world, &before);
    let healed = |heal: &&Value| heal["result"] == "healed";
    assert_eq!(
        heals.iter().filter(healed).count(),
        heals.len(),
        "{heals:#?}"
    );
    assert!(heals.len() >= parts.len(), "{heals:#?}");
    // A Secret that is people's is no Secret of the catalog.
    let class = |object: &str| {
        heals
            .iter()
            .find(|h| h["object"] == object)
            .map(|h| &h["class"])
    };
    let peoples = class("Secret argocd/argocd-notifications-secret");
    assert_eq!(peoples, Some(&json!("ObjectMissing")), "{heals:#?}");
    assert_eq!(admin(&world), password);
    world.close();
}

/// Argo CD's API server says that it is well.
fn answers(world: &World) {
    until(
        "the API server of Argo CD is available",
        seconds(LIMIT),
        || {
            let live = world.api.try_get(&deployment(ARGOCD, "argocd-server"));
            let live = live.ok().flatten().unwrap_or_default();
            live["status"]["availableReplicas"].as_u64() >= Some(1)
        },
    );
    let healthy = || {
        let output = world
            .place
            .kubectl()
            .args(["get", "--raw", HEALTH])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if said == "ok" { Ok(()) } else { Err(said) }
    };
    eventually("Argo CD's API server answers", seconds(60), healthy);
}

/// The hash of the first user's password, which Argo CD's API server made.
fn admin(world: &World) -> String {
    let secret = world
        .api
        .get(&path("v1", "Secret", ARGOCD, "argocd-secret"))
        .unwrap();
    let key = secret["data"]["server.secretkey"]
        .as_str()
        .unwrap_or_default();
    assert!(!key.is_empty(), "the agent's key is there");
    secret["data"]["admin.password"]
        .as_str()
        .unwrap()
        .to_owned()
}

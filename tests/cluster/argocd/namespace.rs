//! Argo CD in a namespace of the owner's choice.

use std::time::Instant;

use serde_json::json;

use crate::healing::{LIMIT, deleted_at_once};
use crate::support::api::{deployment, path};
use crate::support::place::{Place, run};
use crate::support::world::{ARGOCD, CLUSTER, World};
use crate::support::{eventually, figure, seconds, shown, until};

const HERE: &str = "gitops";
const RBAC: &str = "rbac.authorization.k8s.io/v1";
const ARGO: &str = "argoproj.io/v1alpha1";

/// W32: adopted, followed and mended there; in the usual namespace is nothing, and the agent has no rights.
#[test]
#[ignore = "needs a real cluster: make test"]
fn argo_cd_lives_in_the_namespace_that_was_chosen() {
    let world = World::open_from("argons", ARGOCD, &Place::bundle(ARGOCD));
    world.add_with(&["--engine-namespace", HERE]);
    let began = Instant::now();
    world.apply(&world.adopt);
    let root = path(ARGO, "Application", HERE, "linesman");
    let synced = |world: &World| {
        let head = world.head()?;
        let root = world.api.try_get(&root)?.unwrap_or_default();
        let sync = &root["status"]["sync"];
        if sync["status"] == json!("Synced") && sync["revision"] == json!(head) {
            return Ok(());
        }
        Err(format!(
            "{sync}, head {head}; {}",
            root["status"]["conditions"]
        ))
    };
    eventually("the root is synced", seconds(240), || synced(&world));
    figure(
        "W32",
        "Argo CD in another namespace: adoption YAML applied → root Synced",
        "≤ 45 s",
        shown(began.elapsed()),
    );
    let wait = ["cluster", "wait", CLUSTER, "--timeout", "2m"];
    world.hub.linesman(&wait);
    assert!(!exists(&world, "/api/v1/namespaces/argocd"));
    assert_eq!(may(&world, "create", "secrets", HERE), "yes");
    assert_eq!(may(&world, "get", "secrets", ARGOCD), "no");

    mended(&world);
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: pushed, namespace: default}\n";
    world.push(&format!("clusters/{CLUSTER}/pushed.yaml"), map);
    let began = Instant::now();
    until("the commit is applied", seconds(LIMIT), || {
        exists(&world, "/api/v1/namespaces/default/configmaps/pushed")
    });
    figure(
        "W32",
        "Argo CD in another namespace: commit pushed after that → applied",
        "≤ 60 s",
        shown(began.elapsed()),
    );
    eventually("the root is synced again", seconds(60), || synced(&world));
    assert!(!exists(&world, "/api/v1/namespaces/argocd"));

    // A YAML that is made later says the same.
    world.hub.linesman(&[
        "cluster",
        "readopt",
        CLUSTER,
        "--file",
        world.adopt.to_str().unwrap(),
    ]);
    let yaml = std::fs::read_to_string(&world.adopt).unwrap();
    assert!(yaml.contains("value: gitops\n") && !yaml.contains("- argocd\n"));
    stays(&world);
    world.close();
}

/// A YAML for another namespace moves nothing, and makes no second Argo CD.
fn stays(world: &World) {
    let agent = deployment("linesman", "linesman-agent");
    let mut args = vec!["set", "env", "-n", "linesman", "deployment/linesman-agent"];
    args.push("LINESMAN_ARGOCD_NAMESPACE-");
    run(world.place.kubectl().args(args));
    until("the next agent is at work", seconds(LIMIT), || {
        let live = world.api.get(&agent).unwrap();
        let (status, generation) = (&live["status"], &live["metadata"]["generation"]);
        status["observedGeneration"] == *generation
            && status["replicas"] == json!(1)
            && status["updatedReplicas"] == json!(1)
            && status["readyReplicas"] == json!(1)
    });
    mended(world);
    assert!(!exists(world, "/api/v1/namespaces/argocd"));
}

/// Eight objects deleted at once come back there.
fn mended(world: &World) {
    let named = |version: &str, kind: &str, name: &str| path(version, kind, HERE, name);
    let parts = [
        deployment(HERE, "argocd-repo-server"),
        named("apps/v1", "StatefulSet", "argocd-application-controller"),
        named("v1", "Secret", "linesman-catalog"),
        named("v1", "ServiceAccount", "argocd-application-controller"),
        named("v1", "ConfigMap", "argocd-cm"),
        named(RBAC, "RoleBinding", "argocd-application-controller"),
        named(ARGO, "AppProject", "default"),
        path(
            RBAC,
            "ClusterRoleBinding",
            "",
            "argocd-application-controller",
        ),
    ];
    let took = deleted_at_once(world, &parts);
    figure(
        "W32",
        "Argo CD in another namespace: eight objects deleted → all back",
        "≤ 5 s",
        shown(took),
    );
}

fn exists(world: &World, path: &str) -> bool {
    world.api.try_get(path).unwrap().is_some()
}

/// The API server's word on what the agent may.
fn may(world: &World, verb: &str, what: &str, namespace: &str) -> String {
    let output = world
        .place
        .kubectl()
        .args(["auth", "can-i", verb, what, "-n", namespace])
        .args(["--as", "system:serviceaccount:linesman:linesman-agent"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    said.trim().to_owned()
}

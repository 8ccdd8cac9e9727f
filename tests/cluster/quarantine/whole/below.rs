//! Flux, brought by a Kustomization below the root: what prunes it, and says so, is that one. And a version of Flux that does without
//! one of its objects.

use serde_json::json;

use super::{SETTLED, with};
use crate::healing::{LIMIT, heals};
use crate::quarantine::taken::newest;
use crate::quarantine::{CONTROLLERS, Catalog, an_engine_that_is_removed};
use crate::support::api::deployment;
use crate::support::audit::Mark;
use crate::support::world::{CLUSTER, FLUX};
use crate::support::{figure, seconds, shown, until};

const BY: &str = " (by a Kustomization below the root)";

/// The Kustomization as the root brings it, and its place in the catalog.
fn below() -> [String; 2] {
    let kustomization = json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
        "metadata": {"name": "engine", "namespace": FLUX},
        "spec": {
            "interval": "10m", "retryInterval": "1m", "timeout": "5m", "path": "./engine", "prune": true,
            "sourceRef": {"kind": "GitRepository", "name": FLUX},
        },
    });
    let file = format!("clusters/{CLUSTER}/below.yaml");
    [file, kustomization.to_string()]
}

/// W19: a commit that removes the engine from what the Kustomization brings, and one that removes the Kustomization itself.
#[test]
#[ignore = "takes minutes: make chaos"]
fn an_engine_that_is_brought_below_the_root_is_held_when_a_commit_removes_it() {
    let [file, kustomization] = below();
    let catalog = Catalog::below("below", (&file, &kustomization));
    an_engine_that_is_removed(&catalog, BY);
    its_kustomization_goes(&catalog, [&file, &kustomization]);
    catalog.world.close();
}

/// Its end takes what it brought, and Flux begins with it anew each time that it is back.
fn its_kustomization_goes(catalog: &Catalog, [file, kustomization]: [&str; 2]) {
    let world = &catalog.world;
    let path =
        format!("/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/{FLUX}/kustomizations/engine");
    let hello = "/apis/apps/v1/namespaces/hello/deployments/hello";
    let before = world.uid(hello);
    assert!(before.is_some());
    world.push(file, "");
    let took = until(
        "it is gone, and the engine is held and works",
        seconds(300),
        || {
            matches!(world.api.try_get(&path), Ok(None))
                && CONTROLLERS.iter().all(|name| catalog.is_held(name))
                && world.engine_available()
        },
    );
    let took = took + world.function(seconds(LIMIT));
    figure(
        "W19",
        "commit that removes the Kustomization that brings the engine → held, function",
        "≤ 180 s",
        shown(took),
    );
    assert_eq!(world.uid(hello), before);
    catalog.told("Quarantined", "True");
    world.push(file, kustomization);
    let took = until("all is as Git says", seconds(300), || {
        CONTROLLERS.iter().all(|name| !catalog.is_held(name)) && catalog.delivered() == "sixth"
    });
    figure(
        "W19",
        "commit that brings that Kustomization back → given back to Git",
        "≤ 300 s",
        shown(took),
    );
    world.function(seconds(LIMIT));
}

/// W22: a commit without one of the network policies, which no root needs, and one that has it again. The agent writes nothing, and
/// the next snapshot knows of it; what it gives to Git by then is another matter.
#[test]
#[ignore = "takes minutes: make chaos"]
fn a_version_that_does_without_an_object_is_followed() {
    let catalog = Catalog::of("without", "flux");
    let world = &catalog.world;
    let policy = "/apis/networking.k8s.io/v1/namespaces/flux-system/networkpolicies/allow-scraping";
    assert!(world.uid(policy).is_some());
    let without = with(&catalog.good, ["NetworkPolicy", "allow-scraping"], |_| {
        String::new()
    });
    let mark = Mark::now(&world.audit);
    let snapshot = newest(world);
    let controllers = CONTROLLERS.map(|name| world.uid(&deployment(FLUX, name)));
    catalog.push(&without, "without");
    let took = until("it is pruned", seconds(LIMIT), || {
        catalog.delivered() == "without" && world.uid(policy).is_none()
    });
    let took = took + world.function(seconds(LIMIT));
    let what = "commit without a network policy of the engine → pruned, function";
    figure("W22", what, "", shown(took));
    assert_eq!(mark.written_in(FLUX), [""; 0], "the agent wrote");
    until("the next snapshot is kept", seconds(SETTLED), || {
        newest(world) > snapshot
    });
    assert!(world.uid(policy).is_none(), "it was made again");
    catalog.push(&catalog.good, "again");
    until("Git has brought it again", seconds(LIMIT), || {
        catalog.delivered() == "again" && world.uid(policy).is_some()
    });
    world.function(seconds(LIMIT));
    assert!(CONTROLLERS.iter().all(|name| !catalog.is_held(name)));
    assert_eq!(
        CONTROLLERS.map(|name| world.uid(&deployment(FLUX, name))),
        controllers
    );
    let removed = |heal: &serde_json::Value| heal["class"] == "EngineRemovedByCommit";
    assert!(!heals(world).iter().any(removed));
    catalog.world.close();
}

//! Operations that fail and are tried again.

use serde_json::{Value, json};

use crate::children::{condition, holds};
use crate::healing::{LIMIT, settle};
use crate::support::api::path;
use crate::support::argocd::{application, root};
use crate::support::world::{self, ARGOCD, CLUSTER, World};
use crate::support::{at_first_sight, figure, seconds, shown, until};

fn map(name: &str, namespace: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: {namespace}}}\n")
}

fn is_there(world: &World, name: &str) -> bool {
    let map = path("v1", "ConfigMap", "default", name);
    world.uid(&map).is_some()
}

/// W37: an operation that fails is tried again with the head, not with what failed.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_fix_is_applied_although_the_broken_commit_is_still_tried() {
    fix_is_applied(&world::adopted_argocd(), "fixed");
}

/// `name` is that of what the commits bring.
pub(crate) fn fix_is_applied(world: &World, name: &str) {
    settle(world);
    let file = format!("clusters/{CLUSTER}/{name}.yaml");
    let broken = world.push(&file, &map(name, "no-such-namespace"));
    until("the broken commit is tried again", seconds(LIMIT), || {
        let live = world.api.get(&root()).unwrap();
        let state = &live["status"]["operationState"];
        state["syncResult"]["revision"] == json!(broken) && state["retryCount"].as_u64() >= Some(1)
    });
    world.push(&file, &map(name, "default"));
    let took = until("the fix is applied", seconds(LIMIT), || {
        is_there(world, name)
    });
    figure(
        "W37",
        &world.case("fix pushed while the broken commit is being tried again → applied"),
        "≤ 120 s",
        shown(took),
    );
    settle(world);
    assert_eq!(world.synced(), world.head());
}

/// F39: an Application that tries again for ever says of itself that its operation runs, and never that it failed.
#[test]
#[ignore = "needs a real cluster: make test"]
fn an_application_that_tries_again_for_ever_shows_at_the_hub() {
    let world = world::adopted_argocd();
    settle(&world);
    world.push("retried/map.yaml", &map("retried", "no-such-namespace"));
    let place = application("app-hello");
    let mut spec = world.api.get(&place).unwrap()["spec"].clone();
    spec["source"]["path"] = json!("retried");
    spec["syncPolicy"] = json!({
        "automated": {"prune": true},
        "retry": {
            "limit": -1, "refresh": true,
            "backoff": {"duration": "2s", "factor": 1, "maxDuration": "2s"},
        },
    });
    let child = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
        "metadata": {
            "name": "retried", "namespace": ARGOCD,
            "finalizers": ["resources-finalizer.argocd.argoproj.io"],
        },
        "spec": spec,
    });
    let file = format!("clusters/{CLUSTER}/retried.yaml");
    world.push(&file, &child.to_string());
    let took = until("the hub shows it", seconds(LIMIT), || {
        holds(&world, "ChildrenReady", "False")
    });
    figure(
        "children",
        "Argo CD: Application pushed that cannot be applied, with no limit to its tries → shown at the hub (after its debounce of 60 s)",
        "",
        shown(took),
    );
    let tries = || {
        let live = world.api.get(&application("retried")).unwrap();
        let state = &live["status"]["operationState"];
        (state["phase"].clone(), state["retryCount"].as_u64())
    };
    let (_, first) = tries();
    at_first_sight("it is tried four times more", seconds(LIMIT), || {
        let told = told(&world);
        assert_eq!(told["reason"], "ApplyFailed", "{told}");
        let message = told["message"].as_str().unwrap();
        assert!(
            message.contains("retried") && message.contains("no-such-namespace"),
            "{message}"
        );
        let (phase, now) = tries();
        assert_eq!(phase, "Running", "it has an end");
        let more = now >= first.map(|first| first + 4);
        more.then_some(())
            .ok_or_else(|| format!("{now:?}, {first:?} before"))
    });
    world.push("retried/map.yaml", &map("retried", "default"));
    until("the fix is applied", seconds(LIMIT), || {
        is_there(&world, "retried")
    });
    until("the hub shows that it is over", seconds(LIMIT), || {
        holds(&world, "ChildrenReady", "True")
    });
    world.push(&file, "# nothing\n");
    until("it is pruned", seconds(LIMIT), || {
        !is_there(&world, "retried")
    });
    settle(&world);
}

fn told(world: &World) -> Value {
    condition(
        &world.hub.json(&["cluster", "show", CLUSTER]),
        "ChildrenReady",
    )
}

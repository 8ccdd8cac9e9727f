//! W12 with Argo CD: a sync that takes minutes and gets on is no controller that hangs.

use serde_json::{Value, json};

use crate::blocked::pods_of_engine;
use crate::healing::{LIMIT, on_record, settle, since};
use crate::support::api::path;
use crate::support::argocd::{answers, root};
use crate::support::audit::Mark;
use crate::support::world::{self, CLUSTER, World};
use crate::support::{eventually, figure, seconds, shown, until};

/// Jobs that run one after the other before anything is applied, as those that migrate a database do, and a `ConfigMap` that
/// is applied after them.
pub(super) fn commit(hooks: u64, each: u64) -> String {
    let hook = |n: u64| {
        json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {
                "name": format!("slow-{n}"), "namespace": "default",
                "annotations": {
                    "argocd.argoproj.io/hook": "PreSync", "argocd.argoproj.io/hook-delete-policy": "HookSucceeded",
                    "argocd.argoproj.io/sync-wave": n.to_string(),
                },
            },
            "spec": {"template": {"spec": {
                "restartPolicy": "Never",
                "containers": [{
                    "name": "sleeps", "image": "lab.invalid/busybox:1",
                    "command": ["/bin/busybox", "sleep", each.to_string()],
                }],
            }}},
        })
    };
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "slow", "namespace": "default"},
    });
    let all: Vec<String> = (0..hooks)
        .map(hook)
        .chain([map])
        .map(|o| o.to_string())
        .collect();
    all.join("\n---\n")
}

/// When the operation began that the root is at.
pub(super) fn runs(root: &Value, head: &str) -> Option<String> {
    let operation = &root["status"]["operationState"];
    let of_head = operation["phase"] == "Running" && operation["syncResult"]["revision"] == head;
    let began = operation["startedAt"].as_str().filter(|_| of_head);
    began.map(str::to_owned)
}

/// It comes to its end by the one operation that began it; nobody restarts anything, and nothing is called a fault.
pub(super) fn comes_to_its_end(world: &World, hooks: u64, each: u64) {
    settle(world);
    let (known, pods) = (on_record(world), pods_of_engine(world));
    let mark = Mark::now(&world.audit);
    let file = format!("clusters/{CLUSTER}/slow.yaml");
    let head = world.push(&file, &commit(hooks, each));
    let (began, _) = eventually("the sync has begun", seconds(LIMIT), || {
        let live = world.api.get(&root()).unwrap_or_default();
        runs(&live, &head).ok_or("it has not")
    });
    answers(&world.api, seconds(each), |live| {
        runs(live, &head).as_ref() == Some(&began)
    });
    let took = until(
        "the commit is applied",
        seconds(hooks * each + LIMIT),
        || {
            let map = path("v1", "ConfigMap", "default", "slow");
            world.uid(&map).is_some()
        },
    );
    figure(
        "W12",
        &format!(
            "Argo CD: sync with {hooks} hooks of {each} s each, one after the other → applied, nothing restarted"
        ),
        "",
        shown(took),
    );
    until("the sync is over", seconds(LIMIT), || {
        let live = world.api.get(&root()).unwrap_or_default();
        live["status"]["operationState"]["phase"] == "Succeeded"
    });
    let operation = world.api.get(&root()).unwrap()["status"]["operationState"].clone();
    let by = [&operation["startedAt"], &operation["retryCount"]];
    assert_eq!(by, [&json!(began), &Value::Null], "{operation:#}");
    assert_eq!(mark.first_mending_write(), None, "the agent wrote");
    assert_eq!(pods_of_engine(world), pods);
    world.push(&file, "# nothing\n");
    settle(world);
    assert_eq!(since(world, &known), Vec::<Value>::new());
    until("the cluster is healthy", seconds(LIMIT), || {
        world.phase() == "Healthy"
    });
}

/// W12: longer than an answer of a controller is waited for.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_sync_that_takes_longer_than_an_answer_may_is_left_alone() {
    comes_to_its_end(&world::adopted_argocd(), 1, 100);
}

//! An upgrade by Git whose root waits for what it brings.

use serde_json::{Value, json};

use super::with;
use crate::healing::{LIMIT, on_record, since};
use crate::quarantine::{Catalog, rolled};
use crate::support::audit::Mark;
use crate::support::world::{CLUSTER, FLUX};
use crate::support::{closely, figure, seconds, shown, until};

const CONTROLLER: &str = "kustomize-controller";
/// For how long what the commit brings is not ready, in seconds.
const SLOW: u64 = 150;

/// W22: kustomize-controller's new version waits for minutes, as the root says it has to, and answers nobody before that is over.
#[test]
#[ignore = "takes minutes: make chaos"]
fn an_upgrade_whose_root_waits_for_health_is_left_alone() {
    let catalog = Catalog::adopted();
    let world = &catalog.world;
    let place =
        format!("/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/{FLUX}/kustomizations/{FLUX}");
    world.api.patch(&place, &json!({"spec": {"wait": true}}));
    catalog.push(&catalog.good, "waits");
    until("the root waits for what it brings", seconds(LIMIT), || {
        world.synced().is_ok() && catalog.delivered() == "waits"
    });
    world.function(seconds(LIMIT));
    let (known, mark) = (on_record(world), Mark::now(&world.audit));
    let newer = with(&catalog.good, ["Deployment", CONTROLLER], |part| {
        let arg = "        - --events-addr=";
        part.replace(arg, &format!("{arg}\n        - --concurrent=5"))
    });
    let file = format!("clusters/{CLUSTER}/slow.yaml");
    catalog.push_with(&newer, "upgraded", (file, slow().to_string()));
    let checks = || {
        let root = world.api.try_get(&place).ok().flatten();
        let conditions = root.unwrap_or_default()["status"]["conditions"].clone();
        let mut all = conditions
            .as_array()
            .cloned()
            .unwrap_or_default()
            .into_iter();
        let says = |c: &Value, words: &str| c["message"].as_str().unwrap().starts_with(words);
        all.any(|c| c["type"] == "Reconciling" && says(&c, "Running health checks"))
    };
    let new = || {
        let controller = catalog.controller(CONTROLLER);
        catalog.runs(CONTROLLER, "args", "concurrent=5") && rolled(&controller)
    };
    until("the new version waits", seconds(LIMIT), || {
        new() && checks()
    });
    let took = closely("the commit is done with", seconds(SLOW + LIMIT), || {
        assert!(!catalog.is_held(CONTROLLER), "it was called broken");
        world.synced().is_ok()
    });
    figure(
        "W22",
        &format!(
            "commit that changes {CONTROLLER}, root with wait: true and a workload that is ready after {SLOW} s → done with, nothing held"
        ),
        "",
        shown(took),
    );
    assert!(new());
    assert_eq!(mark.first_mending_write(), None, "the agent wrote");
    assert_eq!(since(world, &known), Vec::<Value>::new());
    catalog.world.close();
}

fn slow() -> Value {
    let labels = json!({"app": "slow"});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "slow", "namespace": "default"},
        "spec": {
            "minReadySeconds": SLOW, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{
                "name": "sleeps", "image": "lab.invalid/busybox:1", "command": ["/bin/busybox", "sleep", "3600"],
            }]}},
        },
    })
}

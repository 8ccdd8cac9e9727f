//! H16, W42: keys are replaced under load.

use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use serde_json::json;

use crate::support::world::{self, CLUSTER, FLUX, World};
use crate::support::{figure, seconds, shown, until};

/// H16, W42: both keys replaced while kubectl works through the line and Flux fetches: nothing fails, and one key of each
/// kind is left.
#[test]
#[ignore = "needs a real cluster: make test"]
fn both_keys_are_replaced_under_load_and_nothing_fails() {
    let world = world::adopted();
    world.function(seconds(240));
    let before = (
        fingerprints(&world, "identity"),
        fingerprints(&world, "deploy"),
    );
    assert_eq!((before.0.len(), before.1.len()), (1, 1), "{before:?}");
    let failed = failed_fetches(&world);
    let load = Load::start(&world);
    let began = std::time::Instant::now();
    world.hub.linesman(&[
        "cluster",
        "rotate",
        CLUSTER,
        "--deploy-key",
        "--identity",
        "--wait=3m",
    ]);
    figure(
        "H16",
        "both keys replaced under load",
        "",
        shown(began.elapsed()),
    );
    world.function(seconds(60));
    let good = load.stop();
    assert_eq!(failed_fetches(&world), failed);
    let after = (
        fingerprints(&world, "identity"),
        fingerprints(&world, "deploy"),
    );
    assert_eq!((after.0.len(), after.1.len()), (1, 1), "{after:?}");
    assert!(after.0 != before.0 && after.1 != before.1);
    figure(
        "H16",
        "requests through the line meanwhile, none failed",
        "0 failed",
        good,
    );
    // No heal: what the agent changes on purpose is no fault.
    let heals = world.hub.json(&["heal", "list", CLUSTER]);
    let heals = heals.as_array().unwrap().iter();
    let wrong: Vec<_> = heals
        .filter(|h| h["class"] == json!("GitSecretBad"))
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    until("the cluster is healthy", seconds(60), || {
        world.phase() == "Healthy"
    });
}

/// People at work through the line: one session all the time, and one request after the other.
struct Load {
    watch: Child,
    over: Arc<AtomicBool>,
    requests: JoinHandle<(u32, Vec<String>)>,
}

impl Load {
    fn start(world: &World) -> Self {
        let mut watch = world.through_line();
        watch.args(["get", "namespaces", "--watch", "-o", "name"]);
        let watch = watch.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let over = Arc::new(AtomicBool::new(false));
        let (ends, mut get) = (over.clone(), world.through_line());
        get.args(["get", "namespaces", "-o", "name"]);
        let requests = thread::spawn(move || {
            let (mut good, mut bad) = (0_u32, Vec::new());
            while !ends.load(Ordering::SeqCst) {
                let output = get.output().unwrap();
                if output.status.success() {
                    good += 1;
                } else {
                    bad.push(String::from_utf8_lossy(&output.stderr).into_owned());
                }
            }
            (good, bad)
        });
        Self {
            watch: watch.unwrap(),
            over,
            requests,
        }
    }

    /// How many requests went well; nothing may have failed.
    fn stop(mut self) -> u32 {
        self.over.store(true, Ordering::SeqCst);
        let (good, bad) = self.requests.join().unwrap();
        assert!(
            good > 3 && bad.is_empty(),
            "{good} requests went well, these not: {bad:?}"
        );
        let cut = self.watch.try_wait().unwrap();
        assert!(cut.is_none(), "the watch was cut");
        self.watch.kill().unwrap();
        self.watch.wait().unwrap();
        good
    }
}

/// Of the keys in force at the hub.
pub(crate) fn fingerprints(world: &World, kind: &str) -> Vec<String> {
    let view = world.hub.json(&["cluster", "show", CLUSTER]);
    let keys = view["keys"].as_array().unwrap().iter();
    let of_kind = keys.filter(|k| k["kind"] == json!(kind) && k["state"] != json!("revoked"));
    of_kind
        .map(|k| k["fingerprint"].as_str().unwrap().to_owned())
        .collect()
}

/// How often Flux told of a fetch that failed.
pub(crate) fn failed_fetches(world: &World) -> u64 {
    let events = world.api.get(&format!("/api/v1/namespaces/{FLUX}/events"));
    let events = events.unwrap()["items"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let failed = events.iter().filter(|e| {
        let kind = &e["involvedObject"]["kind"];
        let reason = e["reason"].as_str().unwrap_or_default();
        *kind == json!("GitRepository")
            && ["GitOperationFailed", "AuthenticationFailed"].contains(&reason)
    });
    failed.map(|e| e["count"].as_u64().unwrap_or(1)).sum()
}

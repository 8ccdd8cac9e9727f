//! H14, H15, H16, W42: keys are replaced under load, lost, and recovered.

use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use linesman::clock;
use serde_json::{Value, json};

use crate::support::api::deployment;
use crate::support::world::{self, CLUSTER, FLUX, World};
use crate::support::{figure, seconds, shown, until};

/// H16, W42: both keys replaced while kubectl works through the line and Flux fetches: nothing fails, and one key of each
/// kind is left.
#[test]
#[ignore = "needs a real cluster: make test"]
fn both_keys_are_replaced_under_load_and_nothing_fails() {
    let world = world::adopted();
    world.function(seconds(240));
    // A test before this one may have stopped the hub.
    until("the line is up", seconds(60), || world.line_is_up());
    let before = (
        fingerprints(&world, "identity"),
        fingerprints(&world, "deploy"),
    );
    assert_eq!((before.0.len(), before.1.len()), (1, 1), "{before:?}");
    let failed = failed_fetches(&world);
    let moment = clock::rfc3339(clock::now());
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
    let began = std::time::Instant::now();
    world
        .hub
        .linesman(&["githost", "rotate-host-key", "builtin", "--wait=3m"]);
    figure(
        "W42",
        "host key of the built-in Git server replaced",
        "0 failed fetches",
        shown(began.elapsed()),
    );
    forget_clone(&world);
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
    let since = |h: &Value| h["detectedAt"].as_str().unwrap() >= moment.as_str();
    let wrong: Vec<_> = heals
        .filter(|h| h["class"] == json!("GitSecretBad") && since(h))
        .collect();
    assert_eq!(wrong, Vec::<&Value>::new());
    until("the cluster is healthy", seconds(60), || {
        world.phase() == "Healthy"
    });
}

/// H14, H15: the key Secret is deleted while the agent runs, while it does not, and together with the engine's copy.
#[test]
#[ignore = "needs a real cluster: make test"]
fn lost_keys_come_back_and_the_cluster_stays_the_same() {
    let world = world::adopted();
    world.function(seconds(240));
    // A test before this one may have stopped the hub.
    until("the line is up", seconds(60), || world.line_is_up());
    let keys = "/api/v1/namespaces/linesman/secrets/linesman-keys";
    let of_kinds = || {
        (
            fingerprints(&world, "identity"),
            fingerprints(&world, "deploy"),
        )
    };
    let uids = || {
        ["source-controller", "kustomize-controller"].map(|name| world.uid(&deployment(FLUX, name)))
    };
    let (before, workloads) = (of_kinds(), uids());
    assert!(world.api.delete(keys));
    let took = until("the Secret is back", seconds(30), || {
        world.uid(keys).is_some()
    });
    figure(
        "H14",
        "key Secret deleted, agent there → back",
        "≤ 5 s",
        shown(took),
    );
    assert_eq!(of_kinds(), before);

    stop_agent(&world);
    assert!(world.api.delete(keys));
    start_agent(&world);
    let took = until("the line is back", seconds(180), || world.line_is_up());
    figure(
        "H14",
        "key Secret deleted, agent away → line back",
        "≤ 60 s",
        shown(took),
    );
    let recovered = of_kinds();
    assert_eq!(recovered.1, before.1, "the deploy key is the same");
    assert!(
        recovered.0.len() == 1 && recovered.0 != before.0,
        "{recovered:?}"
    );
    world.function(seconds(60));

    lose_both_and_readopt(&world, keys);
    until("one key of each kind is left", seconds(60), || {
        let (identity, deploy) = of_kinds();
        identity.len() == 1 && deploy.len() == 1 && deploy != before.1
    });
    assert_eq!(uids(), workloads);
    until("the cluster is healthy", seconds(90), || {
        world.phase() == "Healthy"
    });
}

fn lose_both_and_readopt(world: &World, keys: &str) {
    let git = format!("/api/v1/namespaces/{FLUX}/secrets/flux-system");
    stop_agent(world);
    assert!(world.api.delete(keys) && world.api.delete(&git));
    start_agent(world);
    until("the hub shows that the keys are lost", seconds(120), || {
        let view = world.hub.json(&["cluster", "show", CLUSTER]);
        let all = view["conditions"].as_array().cloned().unwrap_or_default();
        all.iter().any(|c| c["reason"] == json!("KeysLost"))
    });
    let yaml = world.directory.join("readopt.yaml");
    let file = yaml.to_str().unwrap();
    world
        .hub
        .linesman(&["cluster", "readopt", CLUSTER, "--file", file]);
    world.apply(&yaml);
    let took = until("the line is back", seconds(180), || world.line_is_up());
    figure(
        "H15",
        "both lost, YAML of the readoption applied → line back",
        "≤ 60 s",
        shown(took),
    );
    let took = world.function(seconds(120));
    figure("H15", "then function", "", shown(took));
}

pub(crate) fn stop_agent(world: &World) {
    let none = json!({ "spec": { "replicas": 0 } });
    world
        .api
        .patch(&deployment("linesman", "linesman-agent"), &none);
    until("the agent is away", seconds(60), || {
        let pods = world.api.get("/api/v1/namespaces/linesman/pods").unwrap();
        pods["items"].as_array().unwrap().is_empty()
    });
}

pub(crate) fn start_agent(world: &World) {
    let one = json!({ "spec": { "replicas": 1 } });
    world
        .api
        .patch(&deployment("linesman", "linesman-agent"), &one);
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

/// W2, H18: the Git host shows another key than the cluster was told. Nobody offers it a credential; both fingerprints are
/// at the hub; one command makes the cluster trust it and drops the old one.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_changed_host_key_stops_the_catalog_until_it_is_accepted() {
    let mut world = world::adopted();
    world.function(seconds(240));
    let old = githost(&world)["keys"][0]["fingerprint"].clone();
    world.hub.stop();
    std::fs::remove_file(world.hub.data().join("git_host_ed25519")).unwrap();
    let before = offered_credentials(&world);
    world.hub.up();
    let mut new = Value::Null;
    let took = until("the hub shows what the cluster meets", seconds(60), || {
        let host = githost(&world);
        let met = &host["clusters"][0];
        new = met["shown"].clone();
        met["mismatch"] == json!(true) && new != old
    });
    let words = mismatch(&world).unwrap();
    for fingerprint in [&old, &new] {
        assert!(words.contains(fingerprint.as_str().unwrap()), "{words}");
    }
    figure(
        "W2",
        "hub is back with another host key → both fingerprints at the hub",
        "≤ 30 s",
        shown(took),
    );
    until("the source is not Ready", seconds(90), || {
        let source = world.api.get(&world::git_repository(FLUX));
        !source.is_some_and(|s| world::ready(&s))
    });
    assert_eq!(
        offered_credentials(&world),
        before,
        "a credential was offered to a host with a wrong key"
    );
    let began = std::time::Instant::now();
    let accept = ["githost", "accept-host-key", "builtin", "--replace"];
    let fingerprint = ["--fingerprint", new.as_str().unwrap()];
    world.hub.linesman(&[&accept[..], &fingerprint].concat());
    until("the catalog is synced again", seconds(60), || {
        let source = world.api.get(&world::git_repository(FLUX));
        source.is_some_and(|s| world::ready(&s)) && mismatch(&world).is_none()
    });
    figure(
        "W2",
        "new host key accepted → synced again",
        "≤ 60 s",
        shown(began.elapsed()),
    );
    world.function(seconds(60));
    until("the engine has the new key alone", seconds(30), || {
        let host = githost(&world);
        let has = &host["clusters"][0]["trusted"];
        *has == json!([new]) && host["offered"] == json!([])
    });
    forget_clone(&world);
    until("the cluster is healthy", seconds(60), || {
        world.phase() == "Healthy"
    });
}

/// What was cloned before knows the old host key.
fn forget_clone(world: &World) {
    let clone = world.directory.join("catalog");
    if clone.exists() {
        std::fs::remove_dir_all(clone).unwrap();
    }
}

fn githost(world: &World) -> Value {
    world.hub.json(&["githost", "show", "builtin"])
}

/// What condition `HostKeyMismatch` says while it is true.
fn mismatch(world: &World) -> Option<String> {
    let view = world.hub.json(&["cluster", "show", CLUSTER]);
    let all = view["conditions"].as_array().cloned().unwrap_or_default();
    let found = all
        .iter()
        .find(|c| c["type"] == json!("HostKeyMismatch") && c["status"] == json!("True"));
    found.map(|c| c["message"].as_str().unwrap_or_default().to_owned())
}

/// How many keys clients have offered to the hub's Git server.
fn offered_credentials(world: &World) -> usize {
    let log = std::fs::read_to_string(world.hub.log()).unwrap();
    log.lines()
        .filter(|l| l.contains("SSH key offered"))
        .count()
}

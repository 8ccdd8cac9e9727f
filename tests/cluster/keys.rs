//! H14, H15, H16, W42: keys are replaced under load, lost, and recovered.

use linesman::clock;
use serde_json::{Value, json};

use crate::healing::{settle, unchanged, workloads};
use crate::support::api::deployment;
use crate::support::place::output;
use crate::support::world::{self, CLUSTER, FLUX, World, git_repository};
use crate::support::{figure, seconds, shown, until};

pub(crate) mod host;
mod hub;
pub(crate) mod load;

use load::Load;
pub(crate) use load::failed_fetches;

/// Heals of what the agent changes on purpose.
const NO_FAULTS: [&str; 4] = [
    "GitSecretBad",
    "HostKeyMismatch",
    "KeyRevoked",
    "QueueWedged",
];

/// H16, W42: both keys replaced while kubectl works through the line and Flux fetches: nothing fails, and one key of each
/// kind is left.
#[test]
#[ignore = "needs a real cluster: make test"]
fn both_keys_are_replaced_under_load_and_nothing_fails() {
    replaced_under_load(&world::adopted());
}

pub(crate) fn replaced_under_load(world: &World) {
    world.function(seconds(240));
    // A test before this one may have stopped the hub.
    until("the line is up", seconds(60), || world.line_is_up());
    let before = of_kinds(world);
    assert_eq!((before.0.len(), before.1.len()), (1, 1), "{before:?}");
    let (failed, fetched) = (failed_fetches(world), host::offered_credentials(world));
    let moment = clock::rfc3339(clock::now());
    let load = Load::start(world);
    let began = std::time::Instant::now();
    let rotate = ["cluster", "rotate", CLUSTER, "--deploy-key", "--identity"];
    world.hub.linesman(&[&rotate[..], &["--wait=3m"]].concat());
    let took = shown(began.elapsed());
    let told = world.said("both keys replaced under load");
    figure("H16", &told, "", took);
    world.function(seconds(60));
    let began = std::time::Instant::now();
    // An engine that mounts its host keys is waited for two minutes.
    world
        .hub
        .linesman(&["githost", "rotate-host-key", "builtin", "--wait=5m"]);
    let told = world.said("host key of the built-in Git server replaced");
    figure("W42", &told, "0 failed fetches", shown(began.elapsed()));
    host::forget_clone(world);
    world.function(seconds(60));
    let (good, asked) = load.stop();
    assert_eq!(failed_fetches(world), failed);
    let after = of_kinds(world);
    assert_eq!((after.0.len(), after.1.len()), (1, 1), "{after:?}");
    assert!(after.0 != before.0 && after.1 != before.1);
    let told = world.said("requests through the line meanwhile, none failed");
    figure("H16", &told, "0 failed", good);
    let fetched = host::offered_credentials(world) - fetched;
    assert!(fetched > 3, "{asked} asked for, {fetched} made");
    let told = world.said("logins at the Git server meanwhile, no look of the engine failed");
    figure("W42", &told, "0 failed", fetched);
    let heals = world.hub.json(&["heal", "list", CLUSTER]);
    let heals = heals.as_array().unwrap().iter();
    let since = |h: &Value| h["detectedAt"].as_str().unwrap() >= moment.as_str();
    let wrong: Vec<_> = heals
        .filter(|h| NO_FAULTS.iter().any(|class| h["class"] == json!(class)) && since(h))
        .collect();
    assert_eq!(wrong, Vec::<&Value>::new());
    until("the cluster is healthy", seconds(60), || {
        world.phase() == "Healthy"
    });
}

/// The identity and the deploy keys in force at the hub.
fn of_kinds(world: &World) -> (Vec<String>, Vec<String>) {
    (
        fingerprints(world, "identity"),
        fingerprints(world, "deploy"),
    )
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
    let uids = || {
        ["source-controller", "kustomize-controller"].map(|name| world.uid(&deployment(FLUX, name)))
    };
    let (before, workloads) = (of_kinds(&world), uids());
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
    assert_eq!(of_kinds(&world), before);

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
    let recovered = of_kinds(&world);
    assert_eq!(recovered.1, before.1, "the deploy key is the same");
    assert!(
        recovered.0.len() == 1 && recovered.0 != before.0,
        "{recovered:?}"
    );
    world.function(seconds(60));

    lose_both_and_readopt(&world, keys);
    until("one key of each kind is left", seconds(60), || {
        let (identity, deploy) = of_kinds(&world);
        identity.len() == 1 && deploy.len() == 1 && deploy != before.1
    });
    assert_eq!(uids(), workloads);
    until("the cluster is healthy", seconds(90), || {
        world.phase() == "Healthy"
    });
}

/// H17: nothing of a revoked cluster is taken any more, which it survives: it heals alone, and comes back by new YAML with keys
/// that nobody has seen.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_revoked_cluster_heals_alone_and_comes_back_with_other_keys() {
    let world = world::adopted();
    settle(&world);
    let (before, workloads) = (of_kinds(&world), workloads(&world));
    let revoke = ["cluster", "revoke", CLUSTER, "--yes", "--reason", "a test"];
    let told = world.hub.json(&revoke);
    assert_eq!(told["already"], json!(false), "{told}");
    let took = until("the line is down", seconds(30), || !world.line_is_up());
    figure("H17", "cluster revoked → line down", "≤ 2 s", shown(took));
    assert_eq!(world.hub.json(&revoke)["already"], json!(true));
    let asked = output(world.through_line().args(["get", "nodes"]));
    assert!(
        !asked.status.success(),
        "kubectl still works through the line"
    );
    let source = git_repository(FLUX);
    let asked =
        json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": "revoked" } } });
    world.api.patch(&source, &asked);
    until("the engine is refused too", seconds(120), || {
        let conditions = world.api.get(&source).unwrap()["status"]["conditions"].clone();
        let all = conditions.as_array().cloned().unwrap_or_default();
        all.iter()
            .any(|c| c["type"] == json!("Ready") && c["status"] == json!("False"))
    });

    let controller = deployment(FLUX, "kustomize-controller");
    let old = world.uid(&controller);
    assert!(world.api.delete(&controller));
    let took = until("it is healed without the hub", seconds(60), || {
        let now = world.uid(&controller);
        now.is_some() && now != old
    });
    figure(
        "H17",
        "revoked: deleted Deployment → back",
        "≤ 5 s",
        shown(took),
    );

    readopted(
        &world,
        "H17",
        "revoked, YAML of the readoption applied → line back",
    );
    until(
        "there are other keys, one of each kind",
        seconds(60),
        || {
            let (identity, deploy) = of_kinds(&world);
            let other = identity != before.0 && deploy != before.1;
            other && identity.len() == 1 && deploy.len() == 1
        },
    );
    unchanged(&world, &workloads);
    until("the cluster is healthy", seconds(120), || {
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
    readopted(
        world,
        "H15",
        "both lost, YAML of the readoption applied → line back",
    );
}

/// New YAML, until the line is back and the engine works.
fn readopted(world: &World, number: &str, what: &str) {
    let yaml = world.directory.join("readopt.yaml");
    let file = yaml.to_str().unwrap();
    world
        .hub
        .linesman(&["cluster", "readopt", CLUSTER, "--file", file]);
    world.apply(&yaml);
    let took = until("the line is back", seconds(180), || world.line_is_up());
    figure(number, what, "≤ 60 s", shown(took));
    let took = world.function(seconds(120));
    figure(number, "then function", "", shown(took));
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

/// Of the keys in force at the hub.
pub(crate) fn fingerprints(world: &World, kind: &str) -> Vec<String> {
    let view = world.hub.json(&["cluster", "show", CLUSTER]);
    let keys = view["keys"].as_array().unwrap().iter();
    let of_kind = keys.filter(|k| k["kind"] == json!(kind) && k["state"] != json!("revoked"));
    of_kind
        .map(|k| k["fingerprint"].as_str().unwrap().to_owned())
        .collect()
}

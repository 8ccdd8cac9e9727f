//! H14, H15, H16, W42: keys are replaced under load, lost, and recovered.

use linesman::clock;
use serde_json::{Value, json};

use crate::healing::{LIMIT, controllers, settle, unchanged, workloads};
use crate::support::api::deployment;
use crate::support::place::output;
use crate::support::world::{self, ARGOCD, CLUSTER, FLUX, World, git_repository};
use crate::support::{figure, seconds, shown, until};

pub(crate) mod host;
mod hub;
pub(crate) mod load;
mod lost;
mod old;
mod whole;

use load::Load;
pub(crate) use load::failed_fetches;
pub(crate) use lost::{lost_and_readopted, lost_beside_the_agent};
use old::Old;

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/linesman/leases/linesman-agent";

/// Heals of what the agent changes on purpose.
const NO_FAULTS: [&str; 4] = [
    "GitSecretBad",
    "HostKeyMismatch",
    "KeyRevoked",
    "QueueWedged",
];

/// H16, W42: both keys replaced while kubectl works through the line and Flux fetches: nothing fails, one key of each
/// kind is left, and the old ones are refused.
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
    let old = Old::of(world);
    let (failed, fetched) = (failed_fetches(world), host::offered_credentials(world));
    let moment = clock::rfc3339(clock::now());
    let load = Load::start(world);
    let began = std::time::Instant::now();
    let rotate = ["cluster", "rotate", CLUSTER, "--deploy-key", "--identity"];
    world.hub.linesman(&[&rotate[..], &["--wait=3m"]].concat());
    let took = shown(began.elapsed());
    let told = world.said("both keys replaced under load");
    figure("H16", &told, "", took);
    let own = old.refused(world, began);
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
    let fetched = host::offered_credentials(world) - fetched - own;
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

/// H17: nothing of a revoked cluster is taken any more, which it survives: it heals alone, and comes back by new YAML with keys
/// that nobody has seen.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_revoked_cluster_heals_alone_and_comes_back_with_other_keys() {
    revoked_and_readopted(&world::adopted());
}

pub(crate) fn revoked_and_readopted(world: &World) {
    settle(world);
    let (before, workloads) = (of_kinds(world), workloads(world));
    let told = |what: &str, bar, took| figure("H17", &world.said(what), bar, shown(took));
    let revoke = ["cluster", "revoke", CLUSTER, "--yes", "--reason", "a test"];
    let first = world.hub.json(&revoke);
    assert_eq!(first["already"], json!(false), "{first}");
    let took = until("the line is down", seconds(30), || !world.line_is_up());
    told("cluster revoked → line down", "≤ 2 s", took);
    assert_eq!(world.hub.json(&revoke)["already"], json!(true));
    let asked = output(world.through_line().args(["get", "nodes"]));
    assert!(
        !asked.status.success(),
        "kubectl still works through the line"
    );
    refused_too(world);

    let [_, controller] = controllers(world);
    let old = world.uid(&controller);
    assert!(world.api.delete(&controller));
    let took = until("it is healed without the hub", seconds(60), || {
        let now = world.uid(&controller);
        now.is_some() && now != old
    });
    told("revoked: deleted Deployment → back", "≤ 5 s", took);

    let what = "revoked, YAML of the readoption applied → line back";
    readopted(world, "H17", &world.said(what));
    until(
        "there are other keys, one of each kind",
        seconds(60),
        || {
            let (identity, deploy) = of_kinds(world);
            let other = identity != before.0 && deploy != before.1;
            other && identity.len() == 1 && deploy.len() == 1
        },
    );
    unchanged(world, &workloads);
    until("the cluster is healthy", seconds(120), || {
        world.phase() == "Healthy"
    });
}

/// The engine's next look at the catalog fails. Argo CD keeps that to itself for three minutes, and counts it.
fn refused_too(world: &World) {
    let failed = failed_fetches(world);
    world.look();
    until("the engine is refused too", seconds(120), || {
        failed_fetches(world) > failed
    });
    let source = git_repository(FLUX);
    until("Flux says so", seconds(60), || {
        world.engine == ARGOCD || !world::ready(&world.api.get(&source).unwrap())
    });
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
    figure(number, &world.said("then function"), "", shown(took));
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

/// The Pod that the agents' Lease names; empty where it names none.
pub(crate) fn leader(world: &World) -> String {
    let lease = world.api.try_get(LEASE).ok().flatten().unwrap_or_default();
    let holder = lease["spec"]["holderIdentity"].as_str();
    holder.unwrap_or_default().to_owned()
}

pub(crate) fn another_leads(world: &World, former: &str) {
    until("another agent leads", seconds(LIMIT), || {
        let now = leader(world);
        !now.is_empty() && now != former
    });
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

//! A Git host that is down, and an engine that is kept from it (W14, F33).

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use linesman::clock;
use serde_json::{Value, json};

use super::{fetcher, fetchers};
use crate::healing::{LIMIT, on_record, settle, since};
use crate::support::api::deployment;
use crate::support::argocd;
use crate::support::audit::Mark;
use crate::support::place::{lab, output, run};
use crate::support::world::{self, ARGOCD, FLUX, World};
use crate::support::{figure, seconds, shown, until};

/// W14: while Git is away nothing is healed, what was fetched is still applied, and the first fetch afterwards ends it.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_git_server_that_is_down_is_nobodys_fault_here() {
    const HELLO: &str = "/apis/apps/v1/namespaces/hello/deployments/hello";
    const APP: &str =
        "/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/flux-system/kustomizations/app-hello";
    let mut world = world::adopted();
    settle(&world);
    let before = on_record(&world);
    let source = deployment(FLUX, "source-controller");
    let uid = world.uid(&source);
    let (said, synced) = (said_that_git_is_away(&world), world.synced_by());
    let mark = Mark::now(&world.audit);
    world.hub.stop();
    // The fetch that is asked for fails, and the agent has time to make something of it.
    world.answers(seconds(LIMIT));
    let hello = world.uid(HELLO);
    assert!(world.api.delete(HELLO));
    let asked =
        json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": "w14" } } });
    world.api.patch(APP, &asked);
    let back = until(
        "the workload is back from what was fetched",
        seconds(LIMIT),
        || world.uid(HELLO).is_some_and(|now| Some(now) != hello),
    );
    figure("W14", "Git away: deleted workload back", "", shown(back));
    says_that_git_is_away(&world, &said);
    let written = (mark.first_mending_write(), world.rewritten(&synced));
    world.hub.up();
    let took = world.function(seconds(LIMIT));
    figure(
        "W14",
        "hub and Git back → fetched and applied",
        "",
        shown(took),
    );
    one_alert(&world, &before);
    let none = (None, Vec::new());
    assert_eq!(written, none, "nothing is mended while Git is away");
    assert_eq!(world.uid(&source), uid);
}

/// W14: the same with Argo CD, which applies nothing that it cannot compare with Git, and says for three minutes nothing
/// of what it cannot fetch.
pub(crate) fn argo_cd_without_git(world: &mut World) {
    settle(world);
    let (before, pods) = (on_record(world), pods_of(world));
    let (said, synced) = (said_that_git_is_away(world), world.synced_by());
    let mark = Mark::now(&world.audit);
    world.hub.stop();
    asks(world);
    let took = says_that_git_is_away(world, &said);
    figure(
        "W14",
        "Argo CD: Git away → called GitUnreachable",
        "",
        shown(took),
    );
    let written = (mark.first_mending_write(), world.rewritten(&synced));
    world.hub.up();
    let took = world.function(seconds(LIMIT));
    figure(
        "W14",
        "Argo CD: hub and Git back → fetched and applied",
        "",
        shown(took),
    );
    one_alert(world, &before);
    let none = (None, Vec::new());
    assert_eq!(written, none, "nothing is mended while Git is away");
    assert_eq!(pods_of(world), pods);
}

/// The agent's own word in the cluster: the hub is away, too. `before` is what it had said by then.
fn says_that_git_is_away(world: &World, before: &BTreeSet<String>) -> Duration {
    until("the agent has said that Git is away", seconds(600), || {
        !said_that_git_is_away(world).is_subset(before)
    })
}

/// Its Events of that. One that comes again soon is the same one, counted; they are there for an hour.
fn said_that_git_is_away(world: &World) -> BTreeSet<String> {
    // About the root, so in its namespace.
    let namespace = world.namespace();
    let events = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
    let all = world.api.get(&events).unwrap_or_default();
    let all = all["items"].as_array().into_iter().flatten();
    let of_it = all.filter(|e| e["reason"] == "GitUnreachable" && e["action"] == "Detected");
    of_it
        .map(|e| json!([e["metadata"]["name"], e["series"]["count"]]).to_string())
        .collect()
}

fn one_alert(world: &World, before: &[Value]) {
    until("the record of it arrives", seconds(LIMIT), || {
        !since(world, before).is_empty()
    });
    settle(world);
    let new = since(world, before);
    let classes: Vec<&Value> = new.iter().map(|h| &h["class"]).collect();
    assert_eq!(
        classes,
        ["GitUnreachable"],
        "one alert, and no heal: {new:#?}"
    );
}

/// A NetworkPolicy that lets what fetches reach nothing, and what a CNI that enforces it would do: the lab's does not, so its
/// packets to the Git host are dropped on the node.
struct Fence<'a> {
    world: &'a World,
    pod: String,
}

fn policies(world: &World) -> String {
    let namespace = world.namespace();
    format!("/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies")
}

impl<'a> Fence<'a> {
    fn around_what_fetches(world: &'a World) -> Self {
        let (label, name) = fetcher(world);
        let policy = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": {"name": "nothing-goes-out"},
            "spec": {
                "podSelector": {"matchLabels": {label: name}},
                "policyTypes": ["Egress"], "egress": [],
            },
        });
        world.api.create(&policies(world), &policy);
        let pods = fetchers(world);
        let pod = pods[0]["status"]["podIP"].as_str().unwrap();
        let pod = pod.to_owned();
        let fence = Self { world, pod };
        run(&mut fence.rule("-I"));
        fence
    }

    fn rule(&self, what: &str) -> Command {
        let (host, port) = (&self.world.place.host, self.world.hub.git_port());
        let mut command = lab();
        command.args(["exec", self.world.place.lab(), "iptables", "-w", what]);
        command.args(["FORWARD", "-s", &self.pod, "-d", host, "-p", "tcp"]);
        command.args(["--dport", &port.to_string(), "-j", "DROP"]);
        command
    }
}

impl Drop for Fence<'_> {
    fn drop(&mut self) {
        // Another test needs the way; what is not there any more is not missed.
        let _gone = output(&mut self.rule("-D"));
        let policies = policies(self.world);
        self.world
            .api
            .delete(&format!("{policies}/nothing-goes-out"));
    }
}

/// Asks the engine to fetch now.
pub(crate) fn asks(world: &World) {
    let (root, annotations) = if world.engine == ARGOCD {
        (argocd::root(), json!({ argocd::REFRESH: "normal" }))
    } else {
        let annotations = json!({ "reconcile.fluxcd.io/requestedAt": "f33" });
        (world::git_repository(FLUX), annotations)
    };
    let patch = json!({ "metadata": { "annotations": annotations } });
    world.api.patch(&root, &patch);
}

/// F33: the agent reads the catalog, the engine beside it does not get there. That is neither the Git host's fault nor the
/// agent's to mend, and over as soon as the way is free.
pub(crate) fn kept_from_the_git_host(world: &World) {
    settle(world);
    // Where the hub was away just now, the agent has to have read the catalog before it can tell whose fault that is.
    until("the agent reads the catalog", seconds(LIMIT), || {
        reads_the_catalog(world)
    });
    let (known, began) = (on_record(world), clock::rfc3339(clock::now()));
    let (_, name) = fetcher(world);
    let source = deployment(world.namespace(), name);
    let (uid, pods) = (world.uid(&source), pods_of(world));
    let mark = Mark::now(&world.audit);
    let fence = Fence::around_what_fetches(world);
    asks(world);
    let mut heal = json!(null);
    // A dial that nobody answers is given up after two minutes; Argo CD says nothing of it for three.
    let seen = until("it is called PolicyBlocks", seconds(600), || {
        let new = since(world, &known);
        let found = new.into_iter().find(|h| h["class"] == "PolicyBlocks");
        found.is_some_and(|found| {
            heal = found;
            true
        })
    });
    let what = format!("{name} kept from the Git host by the network → called PolicyBlocks");
    figure("F33", &what, "", shown(seen));
    assert_eq!(heal["result"], json!("reported"), "{heal}");
    let written = mark.first_mending_write();
    drop(fence);
    let took = world.function(seconds(LIMIT));
    figure(
        "F33",
        &world.said("… the way is free → function"),
        "",
        shown(took),
    );
    assert_eq!(written, None, "the agent wrote");
    assert_eq!((world.uid(&source), pods_of(world)), (uid, pods));
    settle(world);
    until("it is over", seconds(LIMIT), || {
        let new = since(world, &known);
        new.iter().all(|heal| heal["restoredAt"].is_string())
    });
    let new = since(world, &known);
    // Of Argo CD's Applications each says so that was looked at meanwhile. A hub that was away hears late of what was before.
    let meanwhile = |h: &&Value| h["detectedAt"].as_str() >= Some(began.as_str());
    let mut others = new
        .iter()
        .filter(meanwhile)
        .filter(|h| h["class"] != "PolicyBlocks");
    assert_eq!(others.next(), None, "nothing else is blamed");
}

/// Whether the agent's last own look at the catalog went well, by its log.
fn reads_the_catalog(world: &World) -> bool {
    let mut kubectl = world.place.kubectl();
    kubectl.args(["-n", "linesman", "logs", "deployment/linesman-agent"]);
    let log = run(&mut kubectl);
    let mut looks = log.lines().filter(|line| line.contains("catalog "));
    let last = looks.rfind(|line| line.contains(" read"));
    last.is_some_and(|line| line.contains("catalog read"))
}

/// Their UIDs.
pub(super) fn pods_of(world: &World) -> Vec<String> {
    let all = fetchers(world).into_iter();
    all.map(|pod| pod["metadata"]["uid"].as_str().unwrap().to_owned())
        .collect()
}

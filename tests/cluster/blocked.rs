//! What keeps an engine from running although nothing of it is broken: said at once by its name, left to whoever owns
//! it, and over as soon as it is gone.

use std::process::Command;

use serde_json::{Value, json};

use crate::healing::{LIMIT, heals, on_record, settle, since};
use crate::support::api::deployment;
use crate::support::argocd;
use crate::support::audit::Mark;
use crate::support::place::{lab, output, run};
use crate::support::world::{self, ARGOCD, FLUX, World};
use crate::support::{figure, seconds, shown, until};

/// Somebody else's object that keeps Pods of the engine away.
struct Block {
    class: &'static str,
    what: &'static str,
    put: fn(&World),
    take: fn(&World),
}

/// Taken away at the end, also of a test that fails: others share the cluster.
struct Put<'a>(&'a Block, &'a World);

impl Drop for Put<'_> {
    fn drop(&mut self) {
        (self.0.take)(self.1);
    }
}

const QUOTAS: &str = "/api/v1/namespaces/flux-system/resourcequotas";
const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

const BLOCKS: [Block; 3] = [
    Block {
        class: "QuotaBlocks",
        what: "a quota of no Pods",
        put: |world| {
            let quota = json!({
                "apiVersion": "v1", "kind": "ResourceQuota",
                "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}},
            });
            world.api.create(QUOTAS, &quota);
        },
        take: |world| {
            world.api.delete(&format!("{QUOTAS}/none"));
        },
    },
    Block {
        class: "Unschedulable",
        what: "all nodes cordoned",
        put: |world| cordon(world, true),
        take: |world| cordon(world, false),
    },
    Block {
        class: "WebhookBlocks",
        what: "a webhook for Pods that nobody serves",
        put: |world| {
            let of_flux = json!({"matchLabels": {"kubernetes.io/metadata.name": FLUX}});
            let pods = json!({
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"],
            });
            let webhook = json!({
                "name": "pods.nobody.test", "failurePolicy": "Fail", "sideEffects": "None",
                "admissionReviewVersions": ["v1"], "namespaceSelector": of_flux, "rules": [pods],
                "clientConfig": {"service": {"namespace": "default", "name": "nobody"}},
            });
            let all = json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
                "metadata": {"name": "nobody"}, "webhooks": [webhook],
            });
            world.api.create(WEBHOOKS, &all);
        },
        take: |world| {
            world.api.delete(&format!("{WEBHOOKS}/nobody"));
        },
    },
];

fn cordon(world: &World, on: bool) {
    let nodes = world.api.get("/api/v1/nodes").unwrap();
    for node in nodes["items"].as_array().unwrap() {
        let name = node["metadata"]["name"].as_str().unwrap();
        let spec = json!({ "spec": { "unschedulable": on } });
        world.api.patch(&format!("/api/v1/nodes/{name}"), &spec);
    }
}

/// Ends the Pods of source-controller that run, so that others are needed.
fn end_pods(world: &World) {
    let path = format!("/api/v1/namespaces/{FLUX}/pods?labelSelector=app%3Dsource-controller");
    let list = world.api.get(&path).unwrap_or_default();
    for pod in list["items"].as_array().into_iter().flatten() {
        let meta = &pod["metadata"];
        if meta["deletionTimestamp"].is_null() && pod["status"]["phase"] == "Running" {
            let name = meta["name"].as_str().unwrap();
            world
                .api
                .delete(&format!("/api/v1/namespaces/{FLUX}/pods/{name}"));
        }
    }
}

/// W16: the class is known ≤ 30 s, the agent does nothing about what is not its own, and once that is gone the engine
/// works ≤ 30 s later without it.
#[test]
#[ignore = "needs a real cluster: make test"]
fn what_keeps_pods_away_is_named_and_left() {
    let world = world::adopted();
    for block in BLOCKS {
        settle(&world);
        let mark = Mark::now(&world.audit);
        (block.put)(&world);
        let put = Put(&block, &world);
        let seen = until(
            &format!("{} is called {}", block.what, block.class),
            seconds(LIMIT),
            || {
                // What was put there may hold for the next Pod only.
                end_pods(&world);
                let all = heals(&world);
                let mut stand = all.iter().filter(|h| h["restoredAt"].is_null());
                stand.any(|h| h["class"] == block.class)
            },
        );
        drop(put);
        let back = until("source-controller is available", seconds(LIMIT), || {
            world.engine_available()
        });
        let written = mark.first_mending_write();
        figure(
            "W16",
            &format!("{} → called {}", block.what, block.class),
            "≤ 30 s",
            shown(seen),
        );
        figure("W16", "… gone → engine available", "≤ 30 s", shown(back));
        assert_eq!(written, None, "{}: the agent wrote", block.what);
    }
    settle(&world);
}

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
    let mut told = false;
    until(
        "the agent has said that Git is away",
        seconds(LIMIT),
        || {
            let events = world
                .api
                .get("/apis/events.k8s.io/v1/namespaces/linesman/events");
            let all = events.unwrap_or_default()["items"].as_array().cloned();
            told = all
                .unwrap_or_default()
                .iter()
                .any(|e| e["reason"] == "GitUnreachable");
            told
        },
    );
    let written = mark.first_mending_write();
    world.hub.up();
    let took = world.function(seconds(LIMIT));
    figure(
        "W14",
        "hub and Git back → fetched and applied",
        "",
        shown(took),
    );
    until("the record of it arrives", seconds(LIMIT), || {
        !since(&world, &before).is_empty()
    });
    settle(&world);
    assert_eq!(written, None, "nothing is mended while Git is away");
    assert_eq!(world.uid(&source), uid);
    let new = since(&world, &before);
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

/// What fetches, and the label that its Pods have.
fn fetcher(world: &World) -> (&'static str, &'static str) {
    if world.engine == ARGOCD {
        ("app.kubernetes.io/name", "argocd-repo-server")
    } else {
        ("app", "source-controller")
    }
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
        let (label, namespace) = (label.replace('/', "%2F"), world.namespace());
        let path = format!("/api/v1/namespaces/{namespace}/pods?labelSelector={label}%3D{name}");
        let pods = world.api.get(&path).unwrap();
        let pod = pods["items"][0]["status"]["podIP"].as_str().unwrap();
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
fn asks(world: &World) {
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
fn kept_from_the_git_host(world: &World) {
    settle(world);
    let known = on_record(world);
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
    // Of Argo CD's Applications each says so that was looked at meanwhile.
    let mut others = new.iter().filter(|h| h["class"] != "PolicyBlocks");
    assert_eq!(others.next(), None, "nothing else is blamed");
}

/// The UIDs of what fetches.
fn pods_of(world: &World) -> Vec<String> {
    let (label, name) = fetcher(world);
    let (label, namespace) = (label.replace('/', "%2F"), world.namespace());
    let path = format!("/api/v1/namespaces/{namespace}/pods?labelSelector={label}%3D{name}");
    let list = world.api.get(&path).unwrap();
    let all = list["items"].as_array().unwrap().iter();
    all.map(|pod| pod["metadata"]["uid"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
#[ignore = "needs a real cluster: make test"]
fn an_engine_that_is_kept_from_the_git_host_is_told_from_a_host_that_is_down() {
    kept_from_the_git_host(&world::adopted());
}

#[test]
#[ignore = "needs a real cluster: make test"]
fn argo_cd_that_is_kept_from_the_git_host_is_told_from_a_host_that_is_down() {
    kept_from_the_git_host(&world::adopted_argocd());
}

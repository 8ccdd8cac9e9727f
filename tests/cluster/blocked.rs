//! What keeps an engine from running although nothing of it is broken: said at once by its name, left to whoever owns
//! it, and over as soon as it is gone.

use serde_json::{Value, json};

use crate::healing::{LIMIT, heals, on_record, settle, since, works};
use crate::support::audit::Mark;
use crate::support::world::{self, ARGOCD, World};
use crate::support::{figure, seconds, shown, until};

pub(crate) mod git;
pub(crate) mod queue;
mod whole;

/// Somebody else's object that keeps Pods of the engine away.
pub(crate) struct Block {
    class: &'static str,
    pub(crate) what: &'static str,
    pub(crate) put: fn(&World),
    pub(crate) take: fn(&World),
}

/// Taken away at the end, also of a test that fails: others share the cluster.
struct Put<'a>(&'a Block, &'a World);

impl Drop for Put<'_> {
    fn drop(&mut self) {
        (self.0.take)(self.1);
    }
}

const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

pub(crate) const BLOCKS: [Block; 3] = [
    Block {
        class: "QuotaBlocks",
        what: "a quota of no Pods",
        put: |world| {
            let quota = json!({
                "apiVersion": "v1", "kind": "ResourceQuota",
                "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}},
            });
            world.api.create(&quotas(world), &quota);
        },
        take: |world| {
            world.api.delete(&format!("{}/none", quotas(world)));
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
            let of_engine =
                json!({"matchLabels": {"kubernetes.io/metadata.name": world.namespace()}});
            let pods = json!({
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"],
            });
            let webhook = json!({
                "name": "pods.nobody.test", "failurePolicy": "Fail", "sideEffects": "None",
                "admissionReviewVersions": ["v1"], "namespaceSelector": of_engine, "rules": [pods],
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

/// Has nodes take no more Pods, or take them again.
pub(crate) fn cordon(world: &World, on: bool) {
    let nodes = world.api.get("/api/v1/nodes").unwrap();
    for node in nodes["items"].as_array().unwrap() {
        let name = node["metadata"]["name"].as_str().unwrap();
        let spec = json!({ "spec": { "unschedulable": on } });
        world.api.patch(&format!("/api/v1/nodes/{name}"), &spec);
    }
}

fn quotas(world: &World) -> String {
    format!("/api/v1/namespaces/{}/resourcequotas", world.namespace())
}

/// Ends the Pods of what fetches that run, so that others are needed.
pub(crate) fn end_pods(world: &World) {
    end_pods_of(world, fetcher(world));
}

fn end_pods_of(world: &World, labelled: (&str, &str)) {
    for pod in pods_of(world, labelled) {
        let meta = &pod["metadata"];
        if meta["deletionTimestamp"].is_null() && pod["status"]["phase"] == "Running" {
            let (namespace, name) = (world.namespace(), meta["name"].as_str().unwrap());
            world
                .api
                .delete(&format!("/api/v1/namespaces/{namespace}/pods/{name}"));
        }
    }
}

/// W16, by Pods of a Deployment: of what fetches.
pub(crate) fn named_and_left(world: &World) {
    kept_away(world, "deployments", fetcher(world));
}

/// W16, by the Pod of a StatefulSet, of which no condition says why there is none: of Argo CD's application-controller.
pub(crate) fn stateful_named_and_left(world: &World) {
    let (label, _) = fetcher(world);
    kept_away(
        world,
        "statefulsets",
        (label, "argocd-application-controller"),
    );
}

/// W16: the class is known ≤ 30 s, the agent does nothing about what is not its own, and once that is gone it has
/// Kubernetes make the Pods, at most five times in an hour, and the engine works ≤ 30 s later.
fn kept_away(world: &World, resource: &str, labelled: (&str, &str)) {
    let (_, name) = labelled;
    let case = |what: &str| match resource {
        "statefulsets" => world.case(&format!("{name}: {what}")),
        _ => world.case(what),
    };
    for block in BLOCKS {
        settle(world);
        let mark = Mark::now(&world.audit);
        (block.put)(world);
        let put = Put(&block, world);
        let seen = until(
            &format!("{} is called {}", block.what, block.class),
            seconds(LIMIT),
            || {
                // What was put there may hold for the next Pod only.
                end_pods_of(world, labelled);
                let all = heals(world);
                let mut stand = all.iter().filter(|h| h["restoredAt"].is_null());
                let of_it = |h: &Value| h["object"].to_string().contains(name);
                stand.any(|h| h["class"] == block.class && of_it(h))
            },
        );
        let written = mark.first_mending_write();
        let gone = Mark::now(&world.audit);
        drop(put);
        let back = until("the engine is available", seconds(LIMIT), || {
            world.engine_available()
        });
        let looks = gone.written_in(world.namespace());
        figure(
            "W16",
            &case(&format!("{} → called {}", block.what, block.class)),
            "≤ 30 s",
            shown(seen),
        );
        figure(
            "W16",
            &case(&format!("{} gone → engine available", block.what)),
            "≤ 30 s",
            shown(back),
        );
        assert_eq!(written, None, "{}: the agent wrote", block.what);
        let look = format!("patch {resource}/{name}");
        let only = looks.iter().all(|written| *written == look);
        assert!(only && looks.len() <= 5, "{}: {looks:?}", block.what);
    }
    settle(world);
}

#[test]
#[ignore = "needs a real cluster: make test"]
fn what_keeps_pods_away_is_named_and_left() {
    named_and_left(&world::adopted());
}

/// F37: a Pod that failed for good is removed by nobody else, and counts in a quota; the engine goes on with another.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_failed_pod_of_the_engine_is_dropped() {
    let world = world::adopted();
    settle(&world);
    let known = on_record(&world);
    let pod = &fetchers(&world)[0]["metadata"];
    let namespace = world.namespace();
    let path = format!(
        "/api/v1/namespaces/{namespace}/pods/{}",
        pod["name"].as_str().unwrap()
    );
    let over = json!({ "spec": { "activeDeadlineSeconds": 1 } });
    world.api.patch(&path, &over);
    until("the kubelet has ended the Pod", seconds(LIMIT), || {
        let now = world.api.get(&path);
        now.is_none_or(|pod| pod["status"]["phase"] == "Failed")
    });
    let took = until("the failed Pod is dropped", seconds(LIMIT), || {
        world.uid(&path).is_none()
    });
    figure(
        "F37",
        "source-controller's Pod failed → dropped",
        "",
        shown(took),
    );
    works(
        &world,
        "F37",
        "function after a Pod that failed for good",
        "≤ 60 s",
    );
    settle(&world);
    let new = since(&world, &known);
    let dropped = new.iter().find(|h| h["class"] == "Unschedulable");
    let dropped = dropped.unwrap_or_else(|| panic!("no heal of it: {new:#?}"));
    let dropped = world
        .hub
        .json(&["heal", "show", dropped["id"].as_str().unwrap()]);
    let steps = &dropped["steps"];
    let did = (&steps[0]["action"], &steps[0]["outcome"]);
    assert_eq!(did, (&json!("drop-failed"), &json!("ok")), "{dropped:#}");
}

/// What fetches, and the label that its Pods have.
pub(crate) fn fetcher(world: &World) -> (&'static str, &'static str) {
    if world.engine == ARGOCD {
        ("app.kubernetes.io/name", "argocd-repo-server")
    } else {
        ("app", "source-controller")
    }
}

/// The Pods of what fetches.
fn fetchers(world: &World) -> Vec<Value> {
    pods_of(world, fetcher(world))
}

/// The Pods with a label.
pub(crate) fn pods_of(world: &World, (label, name): (&str, &str)) -> Vec<Value> {
    let (label, namespace) = (label.replace('/', "%2F"), world.namespace());
    let path = format!("/api/v1/namespaces/{namespace}/pods?labelSelector={label}%3D{name}");
    let list = world.api.get(&path).unwrap_or_default();
    list["items"].as_array().cloned().unwrap_or_default()
}

/// The Pods of the engine: their UIDs, and how often their containers began anew.
pub(crate) fn pods_of_engine(world: &World) -> Vec<String> {
    let namespace = world.namespace();
    let list = world
        .api
        .get(&format!("/api/v1/namespaces/{namespace}/pods"));
    let list = list.unwrap_or_default()["items"].clone();
    let told = |pod: &Value| {
        let restarts = &pod["status"]["containerStatuses"][0]["restartCount"];
        json!([pod["metadata"]["uid"], restarts]).to_string()
    };
    let mut all: Vec<String> = list.as_array().into_iter().flatten().map(told).collect();
    all.sort();
    all
}

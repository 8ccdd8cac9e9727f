//! F18, W46: a sync object that the API server takes and the engine cannot read.

use std::time::Instant;

use linesman::clock;
use serde_json::{Value, json};

use crate::healing::{LIMIT, deleted_again, on_record, settle, since};
use crate::support::api::{deployment, path};
use crate::support::audit::Mark;
use crate::support::world::{self, CLUSTER, FLUX, World, kustomization};
use crate::support::{figure, seconds, shown, until};

const GROUP: &str = "kustomize.toolkit.fluxcd.io/v1";
const FAR: &str = "99999999999999h";
const FENCE: &str = "kustomize.toolkit.fluxcd.io/reconcile";

/// A Kustomization with a workload of its own.
struct Team {
    name: &'static str,
    namespace: &'static str,
}

impl Team {
    fn path(&self) -> String {
        path(GROUP, "Kustomization", self.namespace, self.name)
    }

    fn object(&self, interval: &str) -> Value {
        json!({
            "apiVersion": GROUP, "kind": "Kustomization",
            "metadata": { "name": self.name, "namespace": self.namespace },
            "spec": {
                "interval": interval, "path": format!("./teams/{}", self.name), "prune": true,
                "targetNamespace": self.namespace,
                "sourceRef": { "kind": "GitRepository", "name": FLUX, "namespace": FLUX },
            },
        })
    }

    fn workload(&self) -> (String, String) {
        let labels = json!({ "app": self.name });
        let container = json!({ "name": "main", "image": "team.test/none:v1" });
        let workload = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": self.name },
            "spec": {
                "replicas": 0, "selector": { "matchLabels": labels },
                "template": { "metadata": { "labels": labels }, "spec": { "containers": [container] } },
            },
        });
        let file = format!("teams/{}/workload.yaml", self.name);
        (file, workload.to_string())
    }

    /// What its workload is: the object, and how often somebody changed what it is to be.
    fn brought(&self, world: &World) -> Option<(String, i64)> {
        let live = world.api.get(&deployment(self.namespace, self.name))?;
        let uid = live["metadata"]["uid"].as_str()?.to_owned();
        Some((uid, live["metadata"]["generation"].as_i64()?))
    }

    fn live(&self, world: &World) -> Value {
        world.api.get(&self.path()).unwrap_or_default()
    }

    fn is_aside(&self, world: &World) -> bool {
        let live = self.live(world);
        let spec = &live["spec"];
        let held = &live["metadata"]["annotations"]["linesman.dev/held"];
        spec["interval"] == "1h0m0s" && spec["suspend"] == true && held.is_string()
    }

    /// At work with this interval, and nothing on it tells of what was.
    fn is_at_work(&self, world: &World, interval: &str) -> bool {
        let live = self.live(world);
        let (spec, annotations) = (&live["spec"], &live["metadata"]["annotations"]);
        spec["interval"] == interval
            && spec["suspend"].is_null()
            && annotations["linesman.dev/held"].is_null()
            && annotations[FENCE].is_null()
    }
}

/// Asks a Kustomization for a reconciliation, and waits until it has come. A request is repeated where Flux, which gives its
/// objects the fields that Git has, was about to apply it.
fn reconciles(world: &World, path: &str) {
    let stamp = clock::rfc3339(clock::now());
    let annotations = json!({ "reconcile.fluxcd.io/requestedAt": stamp });
    let patch = json!({ "metadata": { "annotations": annotations } });
    until(&format!("{path} is reconciled"), seconds(LIMIT), || {
        let live = world.api.get(path).unwrap_or_default();
        let asked = &live["metadata"]["annotations"]["reconcile.fluxcd.io/requestedAt"];
        if live["status"]["lastHandledReconcileAt"] == json!(stamp) {
            return true;
        }
        if *asked != json!(stamp) {
            world.api.patch(path, &patch);
        }
        false
    });
}

fn pods(world: &World) -> Vec<Value> {
    let path = format!("/api/v1/namespaces/{FLUX}/pods?labelSelector=app%3Dkustomize-controller");
    let list = world.api.get(&path).unwrap_or_default();
    list["items"].as_array().cloned().unwrap_or_default()
}

/// A controller that starts now can list no Kustomization.
fn restart_blind(world: &World) {
    let old = pods(world);
    let name = |pod: &Value| pod["metadata"]["name"].as_str().unwrap().to_owned();
    let old: Vec<String> = old.iter().map(name).collect();
    for name in &old {
        world
            .api
            .delete(&format!("/api/v1/namespaces/{FLUX}/pods/{name}"));
    }
    until("a new controller cannot read them", seconds(LIMIT), || {
        let new = pods(world).into_iter().map(|pod| name(&pod));
        let mut new = new.filter(|name| !old.contains(name));
        new.any(|name| {
            let log = format!("/api/v1/namespaces/{FLUX}/pods/{name}/log?tailLines=200");
            let log = world.api.text(&log).unwrap_or_default();
            log.contains("invalid duration")
        })
    });
}

/// What is said of a condition that is true.
fn condition(world: &World, kind: &str) -> String {
    let view = world.hub.try_json(&["cluster", "show", CLUSTER]);
    let view = view.unwrap_or_default();
    let mut all = view["conditions"].as_array().into_iter().flatten();
    let found = all.find(|c| c["type"] == kind && c["status"] == "True");
    let text = found.map(|c| c["message"].as_str().unwrap_or_default());
    text.unwrap_or_default().to_owned()
}

fn quarantined(world: &World) -> String {
    condition(world, "Quarantined")
}

/// The record of what was done, closed.
fn record(world: &World, known: &[Value]) -> Value {
    let mut heal = Value::Null;
    until("the heal is over", seconds(LIMIT), || {
        let new = since(world, known);
        let mut new = new
            .into_iter()
            .filter(|h| h["class"] == "UndecodableObject");
        heal = new.next().unwrap_or_default();
        heal["result"] == "healed"
    });
    heal
}

/// The engine works, and so does what else it was told of.
fn others_reconcile(world: &World, began: Instant) {
    world.function(seconds(LIMIT));
    reconciles(world, &kustomization("app-hello"));
    figure(
        "F18",
        "… → root and the others reconcile again",
        "≤ 60 s",
        shown(began.elapsed()),
    );
}

/// W46: what breaks of the engine while it cannot read that one is mended as ever.
fn others_are_mended(world: &World, team: &Team) {
    let took = deleted_again(world, 1);
    let what = "unreadable Kustomization out of the way, Service deleted → back";
    figure("W46", what, "≤ 5 s", shown(took));
    world.function(seconds(LIMIT));
    assert!(team.is_aside(world), "nobody has corrected it");
}

fn out_of_the_way(world: &World, team: &Team, what: &str) {
    let took = until("it is out of the way", seconds(LIMIT), || {
        team.is_aside(world)
    });
    figure("F18", what, "", shown(took));
}

fn back_at_work(world: &World, team: &Team, interval: &str, what: &str) {
    let took = until("it is at work again", seconds(LIMIT), || {
        team.is_at_work(world, interval)
    });
    figure("F18", what, "", shown(took));
    reconciles(world, &team.path());
    until("the hub forgets it", seconds(LIMIT), || {
        quarantined(world).is_empty()
    });
}

/// The team makes it by kubectl.
fn make(world: &World, team: &Team) {
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": team.namespace },
    });
    world.api.create("/api/v1/namespaces", &namespace);
    let (file, workload) = team.workload();
    world.push(&file, &workload);
    until("the commit is fetched", seconds(LIMIT), || {
        world.synced().is_ok()
    });
    let path = team.path();
    let (collection, _) = path.rsplit_once('/').unwrap();
    world.api.create(collection, &team.object("5m"));
    until("the team's workload is there", seconds(LIMIT), || {
        team.brought(world).is_some()
    });
}

fn deleted_by_agent(mark: &Mark) -> Vec<String> {
    let all = mark.answered().into_iter();
    let own = all.filter(|a| a.verb.starts_with("delete") && a.user.contains(":linesman:"));
    own.map(|a| format!("{}/{}", a.resource, a.name)).collect()
}

/// F18, W46: somebody writes an interval beyond Go's bounds into the Kustomization of a team; kustomize-controller, started anew,
/// reads none of them. That one object is taken out of the way, with what it brought as it was; corrected by hand, it goes on.
#[test]
#[ignore = "needs a real cluster: make test"]
fn an_object_that_the_engine_cannot_read_is_taken_out_of_the_way() {
    let team = Team {
        name: "team-a",
        namespace: "team-a",
    };
    let world = world::adopted();
    settle(&world);
    make(&world, &team);
    let (uid, brought) = (world.uid(&team.path()), team.brought(&world));
    let known = on_record(&world);
    // Without the agent, until the engine is blind.
    let pause = [
        "cluster", "pause", CLUSTER, "--for", "1h", "--reason", "a test",
    ];
    world.hub.linesman(&pause);
    until("the agent is paused", seconds(60), || {
        !condition(&world, "Paused").is_empty()
    });
    let far = json!({ "spec": { "interval": FAR } });
    world.api.patch(&team.path(), &far);
    restart_blind(&world);
    let there = &team.live(&world)["spec"]["interval"];
    assert_eq!(there, FAR, "left in a window");
    let mark = Mark::now(&world.audit);
    world.hub.linesman(&["cluster", "resume", CLUSTER]);
    let began = Instant::now();
    let what = "unreadable Kustomization, its controller blind; window over → out of the way";
    out_of_the_way(&world, &team, what);
    others_reconcile(&world, began);
    assert_eq!(world.uid(&team.path()), uid, "it was not deleted");
    assert_eq!(team.brought(&world), brought, "what it brought was left");
    let heal = record(&world, &known);
    assert_eq!(heal["object"], "Kustomization team-a/team-a", "{heal}");
    let said = |name: &str| heal[name].as_str().unwrap_or_default();
    let field = format!("spec.interval '{FAR}'");
    assert!(said("evidence").contains(&field), "{heal}");
    assert_ne!(said("writer"), "", "{heal}");
    assert!(said("next").contains("correct the fields"), "{heal}");
    until("the hub names it", seconds(LIMIT), || {
        let told = quarantined(&world);
        told.contains("Kustomization team-a/team-a") && told.ends_with("correct it")
    });
    others_are_mended(&world, &team);

    let near = json!({ "spec": { "interval": "7m" } });
    world.api.patch(&team.path(), &near);
    let what = "… corrected by hand → at work, no mark left";
    back_at_work(&world, &team, "7m", what);
    assert_eq!(team.brought(&world), brought);
    assert_eq!(deleted_by_agent(&mark), [""; 0]);

    assert!(world.api.delete(&team.path()));
    until("the team's Kustomization is gone", seconds(LIMIT), || {
        world.api.get(&team.path()).is_none()
    });
    world.api.delete("/api/v1/namespaces/team-a");
    settle(&world);
}

/// F18: the same by a commit. The engine is blind for a moment, and the commit that corrects it arrives like any other.
#[test]
#[ignore = "needs a real cluster: make test"]
fn an_object_that_a_commit_made_unreadable_is_given_back_by_the_next_one() {
    let team = Team {
        name: "team-b",
        namespace: FLUX,
    };
    let world = world::adopted();
    settle(&world);
    let file = "clusters/demo/team-b.yaml".to_owned();
    let commit = |interval: &str| {
        let object = team.object(interval).to_string();
        world.push_all(&[team.workload(), (file.clone(), object)])
    };
    commit("5m");
    until("the team's workload is there", seconds(LIMIT), || {
        team.brought(&world).is_some()
    });
    let (uid, brought) = (world.uid(&team.path()), team.brought(&world));
    settle(&world);
    let known = on_record(&world);

    let bad = commit(FAR);
    let began = Instant::now();
    let what = "pushed with an unreadable Kustomization → out of the way";
    out_of_the_way(&world, &team, what);
    let fence = &team.live(&world)["metadata"]["annotations"][FENCE];
    assert_eq!(fence, "disabled");
    until("the commit is applied", seconds(LIMIT), || {
        world.synced().is_ok()
    });
    others_reconcile(&world, began);
    let heal = record(&world, &known);
    assert_eq!(heal["writer"], "kustomize-controller", "{heal}");
    assert!(heal["commit"].as_str().unwrap().ends_with(&bad), "{heal}");
    assert!(team.is_aside(&world), "Git has the bad value still");
    until("the hub names it", seconds(LIMIT), || {
        quarantined(&world).contains("correct it in the catalog")
    });

    commit("7m");
    let what = "… pushed with another value → at work, no mark left";
    back_at_work(&world, &team, "7m", what);
    assert_eq!(world.uid(&team.path()), uid);
    assert_eq!(team.brought(&world), brought);
    settle(&world);
    let new = since(&world, &known);
    let classes: Vec<&Value> = new.iter().map(|h| &h["class"]).collect();
    assert_eq!(classes, ["UndecodableObject"], "{new:#?}");

    world.push(&file, "# nothing\n");
    until("it is pruned with its workload", seconds(LIMIT), || {
        world.api.get(&team.path()).is_none() && team.brought(&world).is_none()
    });
    settle(&world);
}

//! What the agent names and leaves, for nothing of the engine is as it should not be (F6, F9, F46; F32 and F47 below): with the hub there,
//! and again with the hub stopped and Git there.

use std::collections::BTreeMap;

use linesman::clock;
use serde_json::{Value, json};

use crate::blocked::{cordon, end_pods, fetcher, pods_of, pods_of_engine};
use crate::healing::{
    LIMIT, controllers, deleted_again, on_record, settle, since, unchanged, whole, workloads,
};
use crate::support::api::{deployment, path};
use crate::support::audit::Mark;
use crate::support::place::{lab, run};
use crate::support::world::{self, World};
use crate::support::{eventually, figure, seconds, shown, until};

use super::alone::alone;

mod clocks;
mod unreached;

/// With the hub there; then with the hub stopped, which has all that was told on record once it is back.
fn with_and_without_the_hub(world: &mut World, test: fn(&World)) {
    test(world);
    alone(world, test);
}

/// In seconds. What is far from the engine the agent looks at every five minutes.
const SEEN: u64 = 600;

/// One fault, from before it to its end.
struct Told<'a> {
    world: &'a World,
    number: &'static str,
    class: &'static str,
    object: String,
    known: Vec<Value>,
    workloads: BTreeMap<String, String>,
    mark: Mark,
}

impl<'a> Told<'a> {
    /// Nothing is wrong yet. It is to be told of this object.
    fn before(world: &'a World, [number, class]: [&'static str; 2], object: String) -> Self {
        settle(world);
        let pods = format!("/api/v1/namespaces/{}/pods", world.namespace());
        until("no Pod of before is ending", seconds(LIMIT), || {
            let all = world.api.get(&pods).unwrap_or_default();
            let mut all = all["items"].as_array().into_iter().flatten();
            all.all(|pod| pod["metadata"]["deletionTimestamp"].is_null())
        });
        Self {
            world,
            number,
            class,
            object,
            known: on_record(world),
            workloads: workloads(world),
            mark: Mark::now(&world.audit),
        }
    }

    /// The records of it.
    fn records(&self) -> Vec<Value> {
        let mut new = since(self.world, &self.known);
        new.retain(|heal| heal["class"] == self.class && heal["object"] == self.object);
        new
    }

    /// It is named, and the agent has written nothing. `again` is done before each look. What is told of it.
    fn is_named(&self, what: &str, mut again: impl FnMut()) -> Value {
        let called = format!("it is called {}", self.class);
        let (heal, took) = eventually(&called, seconds(SEEN), || {
            again();
            self.records().pop().ok_or("no record")
        });
        let what = self.world.case(&format!("{what} → called {}", self.class));
        figure(self.number, &what, "", shown(took));
        assert_eq!(heal["result"], "reported", "{heal:#}");
        assert_eq!(self.mark.first_mending_write(), None, "the agent wrote");
        heal
    }

    /// The cause is gone: so is the fault, of which there is one record. That, whole.
    fn is_over(&self) -> Value {
        until("the engine is available", seconds(LIMIT), || {
            self.world.engine_available()
        });
        self.world.function(seconds(LIMIT));
        until("it is over", seconds(SEEN), || {
            let all = self.records();
            !all.is_empty() && all.iter().all(|heal| heal["restoredAt"].is_string())
        });
        settle(self.world);
        unchanged(self.world, &self.workloads);
        let all = self.records();
        let [told] = &all[..] else {
            panic!("{all:#?}");
        };
        assert_eq!(told["result"], "reported", "{told:#}");
        whole(self.world, told)
    }
}

/// What was seen.
fn evidence(heal: &Value) -> &str {
    heal["evidence"].as_str().unwrap()
}

/// A Deployment of the engine, as records name it.
fn of(world: &World, name: &str) -> String {
    format!("Deployment {}/{name}", world.namespace())
}

/// Begins anew at the end, also of a test that fails: the kubelet waits ever longer for what ends again and again.
struct Crashing<'a>(&'a World);

impl Crashing<'_> {
    /// Ends the process of what fetches, where it has begun and said something.
    fn crash(&self) {
        let (_, name) = fetcher(self.0);
        if says(self.0) {
            let script = format!(
                "for pid in $(pgrep -f '^/usr/local/bin/{name}'); do kill -KILL $pid || true; done"
            );
            run(lab().args(["exec", self.0.place.lab(), "sh", "-c", &script]));
        }
    }
}

impl Drop for Crashing<'_> {
    fn drop(&mut self) {
        end_pods(self.0);
    }
}

fn says(world: &World) -> bool {
    let pods = pods_of(world, fetcher(world));
    let mut names = pods.iter().filter_map(|p| p["metadata"]["name"].as_str());
    names.any(|name| {
        let pod = path("v1", "Pod", world.namespace(), name);
        let log = world.api.text(&format!("{pod}/log?tailLines=1"));
        log.is_ok_and(|said| !said.is_empty())
    })
}

/// F6: what fetches ends again and again, and its objects are as last known good. What it said before it ended is told, too.
fn crashes(world: &World) {
    let (_, name) = fetcher(world);
    // One of the same second as its account, as in a new install, is made anew where it fails: its token may be of an account before.
    end_pods(world);
    until("the engine is available", seconds(LIMIT), || {
        world.engine_available()
    });
    let told = Told::before(world, ["F6", "CrashLoop"], of(world, name));
    let crashing = Crashing(world);
    let what = format!("{name} killed as often as it comes up");
    let heal = told.is_named(&what, || crashing.crash());
    let said = evidence(&heal);
    assert!(said.contains("; exit code 137 (Error), "), "{heal:#}");
    drop(crashing);
    let heal = told.is_over();
    let log = heal["scene"]["log"].as_array().map(Vec::len);
    assert!(log.is_some_and(|n| (1..=40).contains(&n)), "{heal:#}");
}

/// F6
#[test]
#[ignore = "takes minutes: make chaos"]
fn a_controller_of_flux_that_crashes_again_and_again_is_named() {
    with_and_without_the_hub(&mut world::adopted(), crashes);
}

/// F6
#[test]
#[ignore = "takes minutes: make chaos"]
fn a_controller_of_argo_cd_that_crashes_again_and_again_is_named() {
    with_and_without_the_hub(&mut world::adopted_argocd(), crashes);
}

/// Nodes take Pods again at the end, also of a test that fails.
struct Cordoned<'a>(&'a World);

impl Drop for Cordoned<'_> {
    fn drop(&mut self) {
        cordon(self.0, false);
    }
}

/// F9: somebody has a controller roll, and no node takes its new Pod. The engine works on the old one.
fn half_rolls(world: &World) {
    let [_, controller] = controllers(world);
    let (_, name) = controller.rsplit_once('/').unwrap();
    let told = Told::before(world, ["F9", "HalfRolled"], of(world, name));
    let before = pods_of_engine(world);
    cordon(world, true);
    let cordoned = Cordoned(world);
    // As `kubectl rollout restart` does.
    let at = json!({ "kubectl.kubernetes.io/restartedAt": clock::rfc3339(clock::now()) });
    let rolls = json!({ "spec": { "template": { "metadata": { "annotations": at } } } });
    world.api.patch(&controller, &rolls);
    let what = format!("{name} restarted by somebody while no node takes Pods");
    let heal = told.is_named(&what, || {});
    let said = evidence(&heal);
    let begins = "the new Pod does not come up, an old one serves: ";
    assert!(
        said.starts_with(begins) && said.contains("unschedulable"),
        "{heal:#}"
    );
    world.function(seconds(LIMIT));
    let now = pods_of_engine(world);
    let lost = before.iter().find(|pod| !now.contains(pod));
    assert_eq!((lost, now.len()), (None, before.len() + 1), "{now:#?}");
    drop(cordoned);
    told.is_over();
    until("its former Pod is gone", seconds(LIMIT), || {
        pods_of_engine(world).len() == before.len()
    });
}

/// F9
#[test]
#[ignore = "takes minutes: make chaos"]
fn a_controller_of_flux_that_rolls_halfway_is_named() {
    with_and_without_the_hub(&mut world::adopted(), half_rolls);
}

/// F9
#[test]
#[ignore = "takes minutes: make chaos"]
fn a_controller_of_argo_cd_that_rolls_halfway_is_named() {
    with_and_without_the_hub(&mut world::adopted_argocd(), half_rolls);
}

const ELSEWHERE: &str = "engine-twice";
const PART_OF: &str = "app.kubernetes.io/part-of";

/// A part of the engine in a namespace of its own, as somebody's second install has it, but that it may do nothing there. Gone at the
/// end, also of a test that fails.
struct Twice<'a>(&'a World);

impl<'a> Twice<'a> {
    fn of(world: &'a World) -> Self {
        let (_, name) = fetcher(world);
        let live = world.api.get(&deployment(world.namespace(), name)).unwrap();
        let mut pods = live["spec"]["template"].clone();
        for account in ["serviceAccount", "serviceAccountName"] {
            pods["spec"][account] = json!("default");
        }
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": ELSEWHERE },
        });
        world.api.create("/api/v1/namespaces", &namespace);
        let twice = Self(world);
        let second = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {
                "name": name, "labels": { PART_OF: live["metadata"]["labels"][PART_OF] },
            },
            "spec": { "selector": live["spec"]["selector"], "template": pods },
        });
        let all = format!("/apis/apps/v1/namespaces/{ELSEWHERE}/deployments");
        world.api.create(&all, &second);
        twice
    }
}

impl Drop for Twice<'_> {
    fn drop(&mut self) {
        let _gone = self.0.api.try_delete(&elsewhere());
    }
}

fn elsewhere() -> String {
    path("v1", "Namespace", "", ELSEWHERE)
}

/// F46: both installs are named, and what breaks of the own one is mended meanwhile.
fn second_install(world: &World) {
    let namespace = world.namespace();
    let object = format!("Namespace {namespace}");
    let told = Told::before(world, ["F46", "TwoInstalls"], object);
    let twice = Twice::of(world);
    let heal = told.is_named("a controller of the engine in another namespace", || {});
    let both = format!(
        "controllers of {} run in namespace {namespace}, which is this install, and in {ELSEWHERE}",
        world.engine
    );
    assert_eq!(evidence(&heal), both, "{heal:#}");
    let took = deleted_again(world, 1);
    let what = world.case("two installs, a Service of the own one deleted → back");
    figure("F46", &what, "≤ 5 s", shown(took));
    drop(twice);
    told.is_over();
    until("the other one is gone", seconds(LIMIT), || {
        world.api.get(&elsewhere()).is_none()
    });
}

/// F46
#[test]
#[ignore = "takes minutes: make chaos"]
fn a_second_flux_is_named() {
    with_and_without_the_hub(&mut world::adopted(), second_install);
}

/// F46
#[test]
#[ignore = "takes minutes: make chaos"]
fn a_second_argo_cd_is_named() {
    with_and_without_the_hub(&mut world::adopted_argocd(), second_install);
}

//! F7, F8: containers that the kubelet does not start, or that the kernel ends, while the engine's objects are as they should be.

use std::time::Instant;

use serde_json::{Value, json};

use super::{condition, named, only_told_of, over, pods};
use crate::blocked::end_pods;
use crate::healing::{LIMIT, on_record, settle, since, unchanged, workloads};
use crate::support::api::{deployment, path};
use crate::support::audit::Mark;
use crate::support::world::{self, ARGOCD, CLUSTER, World};
use crate::support::{eventually, figure, seconds, shown, until};

/// F7: in a window in which the agent may not bring back what the container refers to, it is named. Once it is there, the same Pod
/// starts by itself.
#[test]
#[ignore = "takes minutes: make chaos"]
fn a_container_that_refers_to_what_is_missing_is_named_and_starts_once_that_is_there() {
    const SERVER: &str = "argocd-repo-server";
    let world = world::adopted_argocd();
    settle(&world);
    let (known, workloads) = (on_record(&world), workloads(&world));
    let secret = path("v1", "Secret", ARGOCD, "argocd-redis");
    let good = world.api.get(&secret).unwrap()["data"].clone();
    let mark = Mark::now(&world.audit);
    pause(&world);
    assert!(world.api.delete(&secret));
    let began = Instant::now();
    let object = format!("Deployment {ARGOCD}/{SERVER}");
    let look = || {
        // The kubelet may have the Secret still for the first of them.
        end_pods(&world);
        let new = since(&world, &known);
        let mut all = new.iter();
        let found = all.find(|h| h["class"] == "ConfigRefMissing" && h["object"] == *object);
        found.cloned().ok_or_else(|| format!("{new:#?}"))
    };
    let (heal, _) = eventually("it is called ConfigRefMissing", seconds(LIMIT), look);
    figure(
        "F7",
        &world.said("paused, Secret deleted that a new Pod of the repo-server refers to → called ConfigRefMissing (after 20 s)"),
        "",
        shown(began.elapsed()),
    );
    let evidence = heal["evidence"].to_string();
    let named_it =
        evidence.contains("CreateContainerConfigError") && evidence.contains("argocd-redis");
    assert!(named_it, "{heal:#}");
    assert_eq!(mark.written_in(ARGOCD), [""; 0], "the agent wrote");
    let waits = counted(&world, SERVER);
    assert_eq!(waits.len(), 1, "{waits:?}");

    world.hub.linesman(&["cluster", "resume", CLUSTER]);
    let took = until("it works again", seconds(LIMIT), || {
        world.engine_available()
    });
    figure(
        "F7",
        &world.said("resumed → Secret back, the Pod has started by itself"),
        "",
        shown(took),
    );
    assert_eq!(world.api.get(&secret).unwrap()["data"], good);
    assert_eq!(counted(&world, SERVER), waits, "the same Pod");
    only_told_of(
        &world,
        &heal,
        "create the object that the container refers to",
    );
    let of_secret = ["EngineSecretMissing", "Secret argocd/argocd-redis"];
    let (missed, _) = named(&world, &known, of_secret);
    assert_eq!(over(&world, &missed)["result"], "healed");
    let written = mark.written_in(ARGOCD);
    let is_secret = |write: &String| write.ends_with(" secrets/argocd-redis");
    assert!(
        !written.is_empty() && written.iter().all(is_secret),
        "{written:?}"
    );
    unchanged(&world, &workloads);
    settle(&world);
}

fn pause(world: &World) {
    world.hub.linesman(&[
        "cluster", "pause", CLUSTER, "--for", "1h", "--reason", "a test",
    ]);
    until("the agent says that it is paused", seconds(60), || {
        condition(world, "Paused")["status"] == "True"
    });
}

/// The Pods of a Deployment, and how often their containers began anew.
fn counted(world: &World, name: &str) -> Vec<Value> {
    let told = |pod: &Value| {
        let container = &pod["status"]["containerStatuses"][0];
        json!([pod["metadata"]["uid"], container["restartCount"]])
    };
    pods(world, name).iter().map(told).collect()
}

/// What the controller does not even start with, and the container runtime does.
const LITTLE: &str = "12Mi";

/// Somebody's defaults for containers that name no limits, as Argo CD's own do not. Taken away at the end, also of a test that
/// fails: others share the cluster.
struct Limits<'a>(&'a World);

impl<'a> Limits<'a> {
    const ALL: &'static str = "/api/v1/namespaces/argocd/limitranges";

    fn new(world: &'a World) -> Self {
        let little = json!({
            "apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "little"},
            "spec": {"limits": [{"type": "Container", "default": {"memory": LITTLE}}]},
        });
        world.api.create(Self::ALL, &little);
        Self(world)
    }
}

impl Drop for Limits<'_> {
    fn drop(&mut self) {
        self.0.api.delete(&format!("{}/little", Self::ALL));
    }
}

/// Ends those Pods of a Deployment that have, or have not, so little memory: a rule of the namespace holds for new ones.
fn end_those(world: &World, name: &str, with_little: bool) {
    for pod in pods(world, name) {
        let limits = &pod["spec"]["containers"][0]["resources"]["limits"];
        if (limits["memory"] == LITTLE) == with_little {
            let name = pod["metadata"]["name"].as_str().unwrap();
            world.api.delete(&path("v1", "Pod", ARGOCD, name));
        }
    }
}

/// F8: the Deployment is as it should be, and the Pod gets less memory than the controller needs. That is named and left: a
/// restart does not help, and the limit is somebody else's.
#[test]
#[ignore = "takes minutes: make chaos"]
fn a_controller_that_gets_too_little_memory_is_named_and_left() {
    const CONTROLLER: &str = "argocd-applicationset-controller";
    let world = world::adopted_argocd();
    settle(&world);
    let (known, workloads) = (on_record(&world), workloads(&world));
    let spec = || {
        let live = world.api.get(&deployment(ARGOCD, CONTROLLER)).unwrap();
        live["spec"].clone()
    };
    let before = spec();
    let mark = Mark::now(&world.audit);
    let limits = Limits::new(&world);
    let began = Instant::now();
    let object = format!("Deployment {ARGOCD}/{CONTROLLER}");
    let look = || {
        end_those(&world, CONTROLLER, false);
        let new = since(&world, &known);
        let mut all = new.iter();
        let found = all.find(|h| h["class"] == "OomKilled" && h["object"] == *object);
        found.cloned().ok_or_else(|| format!("{new:#?}"))
    };
    let (heal, _) = eventually("it is called OomKilled", seconds(LIMIT), look);
    figure(
        "F8",
        &world.said("memory limit of 12 MiB for new Pods of the applicationset-controller → called OomKilled"),
        "",
        shown(began.elapsed()),
    );
    let evidence = heal["evidence"].to_string();
    assert!(evidence.contains("exit code 137 (OOMKilled)"), "{heal:#}");
    drop(limits);
    let took = until("it works again", seconds(LIMIT), || {
        end_those(&world, CONTROLLER, true);
        !pods(&world, CONTROLLER).is_empty() && world.engine_available()
    });
    figure(
        "F8",
        &world.said("… limit gone and its Pod ended by hand → the engine is available"),
        "",
        shown(took),
    );
    only_told_of(&world, &heal, "raise the controller's memory limit");
    let wrote = (mark.written_in(ARGOCD), mark.pods_deleted_by_agent());
    assert_eq!(wrote, (Vec::new(), Vec::new()), "the agent wrote");
    assert_eq!(spec(), before);
    unchanged(&world, &workloads);
    settle(&world);
}

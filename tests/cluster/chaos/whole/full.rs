//! F31: what was fetched and has no room. The volumes of Flux' controllers are of memory here, and small, so that it is the
//! kernel that says so.

use std::fmt::Write as _;

use linesman::keys::sha256;
use serde_json::{Value, json};

use crate::healing::{LIMIT, on_record, settle, since, unchanged, workloads};
use crate::support::place::{Place, lab, run};
use crate::support::world::{CLUSTER, FLUX, World, git_repository};
use crate::support::{eventually, figure, seconds, shown, until};

const MARKER: &str = "/api/v1/namespaces/default/configmaps/room";

/// A controller, its volume, and how much fits into that.
struct Volume {
    controller: &'static str,
    name: &'static str,
    size: &'static str,
}

const STORAGE: Volume = Volume {
    controller: "source-controller",
    name: "data",
    size: "2Mi",
};
const WORKSPACE: Volume = Volume {
    controller: "kustomize-controller",
    name: "temp",
    size: "4Mi",
};

impl Volume {
    /// The install with it so small.
    fn in_memory(&self, install: &str) -> String {
        let stock = format!("- emptyDir: {{}}\n        name: {}\n", self.name);
        assert_eq!(install.matches(&stock).count(), 1, "{stock}");
        let small = format!(
            "- emptyDir: {{medium: Memory, sizeLimit: {}}}\n        name: {}\n",
            self.size, self.name
        );
        install.replace(&stock, &small)
    }

    fn pod(&self, world: &World) -> Option<String> {
        let pods = format!(
            "/api/v1/namespaces/{FLUX}/pods?labelSelector=app%3D{}",
            self.controller
        );
        let list = world.api.get(&pods)?;
        let all = list["items"].as_array()?.iter();
        let mut stay = all.filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        stay.next()?["metadata"]["uid"].as_str().map(str::to_owned)
    }

    /// Somebody left something in it, and nothing more fits.
    fn fill(&self, world: &World) {
        let pod = self.pod(world).unwrap();
        let kubelet = world.place.kubeconfig.with_file_name("kubelet");
        let script = format!(
            "cd {}/pods/{pod}/volumes/kubernetes.io~empty-dir/{} && ! cat /dev/zero >left && df --output=avail .",
            kubelet.display(),
            self.name
        );
        let said = run(lab().args(["exec", world.place.lab(), "sh", "-c", &script]));
        assert_eq!(said.lines().last().map(str::trim), Some("0"), "{said}");
    }
}

/// So many bytes that no archive makes smaller than half of them.
fn noise(bytes: usize, seed: &str) -> String {
    let mut text = String::new();
    for n in 0.. {
        if text.len() >= bytes {
            break;
        }
        for byte in sha256(format!("{seed}/{n}").as_bytes()) {
            write!(text, "{byte:02x}").unwrap();
        }
        text.push('\n');
    }
    text
}

/// A commit with so much in it that no cluster reads, and a mark that one does.
fn push(world: &World, bytes: usize, mark: &str) {
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "room", "namespace": "default"}, "data": {"is": mark},
    });
    let files = [
        ("noise/noise.txt".to_owned(), noise(bytes, mark)),
        (format!("clusters/{CLUSTER}/room.yaml"), map.to_string()),
    ];
    world.push_all(&files);
}

fn arrived(world: &World, mark: &str) -> bool {
    let live = world.api.try_get(MARKER).ok().flatten();
    live.is_some_and(|live| live["data"]["is"] == mark)
}

/// The heal of it, as soon as there is one. What hangs on the root may say the same.
fn named(world: &World, known: &[Value]) -> Value {
    let look = || {
        let mut new = since(world, known).into_iter();
        let roots = ["GitRepository", "Kustomization"].map(|kind| format!("{kind} {FLUX}/{FLUX}"));
        new.find(|h| h["class"] == "ArtifactLost" && roots.iter().any(|root| h["object"] == *root))
            .ok_or("no heal of it")
    };
    eventually("it is called ArtifactLost", seconds(LIMIT), look).0
}

/// What is on record of a heal that is over.
fn ended(world: &World, heal: &Value) -> Value {
    let id = heal["id"].as_str().unwrap();
    let look = || {
        let told = world.hub.try_json(&["heal", "show", id])?;
        let over = told["restoredAt"].is_string();
        over.then_some(told.clone()).ok_or_else(|| told.to_string())
    };
    eventually("it is over, on record", seconds(LIMIT), look).0
}

fn steps(heal: &Value) -> Vec<[Value; 2]> {
    let all = heal["steps"].as_array().unwrap().iter();
    all.map(|step| [step["action"].clone(), step["outcome"].clone()])
        .collect()
}

/// F31: asked again, then given another Pod, whose volume is empty; the commit is applied, and workloads stay.
fn full_and_emptied(world: &World, volume: &Volume, mark: &str) -> Value {
    settle(world);
    let (known, workloads) = (on_record(world), workloads(world));
    let pod = volume.pod(world);
    volume.fill(world);
    let began = std::time::Instant::now();
    push(world, 600_000, mark);
    let heal = named(world, &known);
    let what = format!("{}'s volume full, commit pushed", volume.controller);
    let case = |what: &str| world.case(what);
    figure(
        "F31",
        &case(&format!("{what} → called ArtifactLost")),
        "",
        shown(began.elapsed()),
    );
    println!("named: {heal}");
    assert!(
        heal["evidence"]
            .to_string()
            .contains("no space left on device"),
        "{heal}"
    );
    until("its Pod is another one", seconds(LIMIT), || {
        let now = volume.pod(world);
        now.is_some() && now != pod
    });
    figure(
        "F31",
        &case(&format!("{what} → another Pod")),
        "",
        shown(began.elapsed()),
    );
    until("the commit is applied", seconds(LIMIT), || {
        arrived(world, mark)
    });
    figure(
        "F31",
        &case(&format!("{what} → commit applied")),
        "",
        shown(began.elapsed()),
    );
    settle(world);
    unchanged(world, &workloads);
    heal
}

/// F31: what does not fit into an empty volume, either, is tried as often as the budget has it, and told of; the next commit
/// that fits is applied.
fn too_large(world: &World) {
    settle(world);
    let (known, workloads) = (on_record(world), workloads(world));
    push(world, 8_000_000, "too-large");
    let heal = named(world, &known);
    until("it is only told of any more", seconds(LIMIT), || {
        let mut new = since(world, &known).into_iter();
        let told = new.find(|h| h["id"] == heal["id"]).unwrap();
        let next = told["next"].as_str().unwrap_or_default();
        next.contains("give it a larger one") && next.ends_with("the next trial is in an hour")
    });
    push(world, 600_000, "smaller");
    let began = std::time::Instant::now();
    until("what fits is applied", seconds(LIMIT), || {
        arrived(world, "smaller")
    });
    figure(
        "F31",
        "a commit that does not fit, then one that does → that one applied",
        "",
        shown(began.elapsed()),
    );
    settle(world);
    let told = ended(world, &heal);
    println!("too large: {told:#}");
    assert!(steps(&told).len() <= 3, "{told:#}");
    unchanged(world, &workloads);
}

/// F31
#[test]
#[ignore = "takes minutes: make chaos"]
fn a_full_volume_of_a_controller_is_named_and_emptied() {
    let install = STORAGE.in_memory(&WORKSPACE.in_memory(&Place::bundle("flux")));
    let mut world = World::open_from("full", "flux", &install);
    world.adopt();
    assert!(world.api.get(&git_repository(FLUX)).is_some());
    let healed = json!([["nudge", "ok"], ["restart", "ok"]]);
    settle(&world);
    world.lose_hub();
    let heal = full_and_emptied(&world, &STORAGE, "stored");
    world.hub_back();
    let told = ended(&world, &heal);
    let came = (&told["result"], json!(steps(&told)));
    assert_eq!(came, (&json!("healed"), healed.clone()), "{told:#}");

    let heal = full_and_emptied(&world, &WORKSPACE, "unpacked");
    let told = ended(&world, &heal);
    let came = (&told["result"], json!(steps(&told)));
    assert_eq!(came, (&json!("healed"), healed), "{told:#}");

    too_large(&world);
    world.close();
}

//! F38, F41: what the catalog brings and Flux cannot build, and what waits for it.

use serde_json::{Value, json};

use super::{condition, named, only_told_of};
use crate::healing::{LIMIT, on_record, settle, since, unchanged, workloads};
use crate::support::api::path;
use crate::support::audit::Mark;
use crate::support::world::{self, CLUSTER, FLUX, World, kustomization};
use crate::support::{figure, seconds, shown, stays, until};

/// It names a file that is not there.
const UNBUILT: &str =
    "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [absent.yaml]\n";
const WAITS: &str = "Kustomization flux-system/waits";
const ROOT: &str = "Kustomization flux-system/flux-system";

fn map(name: &str, is: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default"}, "data": {"is": is},
    })
}

fn child(name: &str, depends: &[&str]) -> Value {
    let depends: Vec<Value> = depends.iter().map(|on| json!({ "name": on })).collect();
    json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
        "metadata": {"name": name, "namespace": FLUX},
        "spec": {
            "interval": "10m", "retryInterval": "5s", "path": format!("./named/{name}"), "prune": true,
            "sourceRef": {"kind": "GitRepository", "name": FLUX}, "dependsOn": depends,
        },
    })
}

/// What the root brings: both of them, one that waits for `depends`, and a mark that the root goes on.
fn root(depends: &[&str], mark: &str) -> (String, String) {
    let all = [
        child("unbuilt", &[]),
        child("waits", depends),
        map("named", mark),
    ];
    let all = all.map(|object| object.to_string());
    (
        format!("clusters/{CLUSTER}/named.yaml"),
        all.join("\n---\n"),
    )
}

fn file(name: &str, content: &str) -> (String, String) {
    (format!("named/{name}"), content.to_owned())
}

fn is_there(world: &World, name: &str, is: &str) -> bool {
    let live = world
        .api
        .try_get(&path("v1", "ConfigMap", "default", name))
        .ok();
    live.flatten().is_some_and(|live| live["data"]["is"] == is)
}

/// So many sync objects are not Ready, by that class, and nothing is said against the engine.
fn told(world: &World, many: &str, class: &str, mark: &str) {
    until("the hub shows it", seconds(LIMIT), || {
        let told = condition(world, "ChildrenReady");
        let text = told["message"].as_str().unwrap_or_default();
        told["status"] == "False" && told["reason"] == class && text.starts_with(many)
    });
    for well in ["EngineHealthy", "Synced", "GitReachable"] {
        until(&format!("{well} holds"), seconds(LIMIT), || {
            condition(world, well)["status"] == "True"
        });
    }
    assert!(is_there(world, "named", mark), "the root goes on");
}

/// F38, F41: a file is missing that another one names: what it is of is `BuildFailed`, and while it is so, what waits for it is
/// not named. Mended, what still waits for one that does not exist is `DependencyNotReady`. All of it is left to the catalog.
#[test]
#[ignore = "takes minutes: make chaos"]
fn what_cannot_be_built_and_then_what_waits_is_named_and_left_to_the_catalog() {
    let world = world::adopted();
    settle(&world);
    let (known, workloads) = (on_record(&world), workloads(&world));
    let mark = Mark::now(&world.audit);
    let built = cannot_be_built(&world, &known);
    let waits = waits_for_what_is_not_there(&world, &known, &built);
    world.push_all(&[root(&["unbuilt"], "mended")]);
    let took = until("all are Ready", seconds(LIMIT), || {
        is_there(&world, "waits", "there") && condition(&world, "ChildrenReady")["status"] == "True"
    });
    figure(
        "F41",
        "commit that mends it pushed → applied, nothing wrong at the hub",
        "",
        shown(took),
    );
    only_told_of(&world, &waits, "look at the object that the message names");
    assert_eq!(
        classes(&world, &known),
        ["BuildFailed", "DependencyNotReady"]
    );
    assert_eq!(mark.written_in(FLUX), [""; 0], "the agent wrote");

    let (of_root, _) = root(&[], "");
    world.push(&of_root, "# nothing\n");
    until("both are pruned", seconds(LIMIT), || {
        let gone = |name: &str| matches!(world.api.try_get(&kustomization(name)), Ok(None));
        gone("unbuilt") && gone("waits")
    });
    unchanged(&world, &workloads);
    settle(&world);
}

/// F38: what the root itself cannot build is called so once, and goes on being that: at each of its tries, once a minute, it says
/// for a moment that it is neither ready nor not.
#[test]
#[ignore = "takes minutes: make chaos"]
fn what_the_root_cannot_build_is_named_once_however_often_it_tries() {
    let world = world::adopted();
    settle(&world);
    let known = on_record(&world);
    let mark = Mark::now(&world.audit);
    let map = map("twice", "there");
    let twice = format!("clusters/{CLUSTER}/twice.yaml");
    world.push(&twice, &format!("{map}\n---\n{map}\n"));
    let (heal, took) = named(&world, &known, ["BuildFailed", ROOT]);
    figure(
        "F38",
        "commit that the root cannot build pushed → called BuildFailed (after its debounce of 60 s)",
        "",
        shown(took),
    );
    stays("it is one heal, and open", seconds(200), || {
        let told = world
            .hub
            .try_json(&["heal", "show", heal["id"].as_str().unwrap()]);
        classes(&world, &known) == ["BuildFailed"]
            && told.is_ok_and(|told| told["restoredAt"].is_null())
    });
    world.push(&twice, "# nothing\n");
    let advice = "mend the catalog: the message names the file or object";
    only_told_of(&world, &heal, advice);
    assert_eq!(classes(&world, &known), ["BuildFailed"]);
    assert_eq!(mark.written_in(FLUX), [""; 0], "the agent wrote");
    settle(&world);
}

/// The heal of what cannot be built. What waits for it is no fault beside it.
fn cannot_be_built(world: &World, known: &[Value]) -> Value {
    world.push_all(&[
        root(&["unbuilt", "later"], "first"),
        file("unbuilt/kustomization.yaml", UNBUILT),
        file("waits/map.yaml", &map("waits", "there").to_string()),
    ]);
    let unbuilt = ["BuildFailed", "Kustomization flux-system/unbuilt"];
    let (built, took) = named(world, known, unbuilt);
    figure(
        "F38",
        "files that cannot be built pushed → called BuildFailed (after its debounce of 60 s)",
        "",
        shown(took),
    );
    let evidence = built["evidence"].to_string();
    assert!(evidence.contains("absent.yaml"), "{built:#}");
    told(world, "2 of ", "BuildFailed", "first");
    assert_eq!(classes(world, known), ["BuildFailed"]);
    built
}

/// The first one is mended; the heal of the other one, which goes on waiting.
fn waits_for_what_is_not_there(world: &World, known: &[Value], built: &Value) -> Value {
    let absent = map("unbuilt", "there").to_string();
    world.push_all(&[file("unbuilt/absent.yaml", &absent)]);
    until("what was mended is applied", seconds(LIMIT), || {
        is_there(world, "unbuilt", "there")
    });
    let advice = "mend the catalog: the message names the file or object";
    only_told_of(world, built, advice);
    let (waits, took) = named(world, known, ["DependencyNotReady", WAITS]);
    figure(
        "F41",
        "… mended, but for what is not there → called DependencyNotReady (after its debounce of 60 s)",
        "",
        shown(took),
    );
    let evidence = waits["evidence"].to_string();
    assert!(evidence.contains("flux-system/later"), "{waits:#}");
    told(world, "1 of ", "DependencyNotReady", "first");
    assert!(!is_there(world, "waits", "there"));
    waits
}

/// The classes that came on record since, each as often as it did.
fn classes(world: &World, known: &[Value]) -> Vec<String> {
    let all = since(world, known).into_iter();
    let all = all.map(|heal| heal["class"].as_str().unwrap().to_owned());
    let mut all: Vec<String> = all.collect();
    all.sort();
    all
}

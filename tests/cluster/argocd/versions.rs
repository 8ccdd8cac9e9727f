//! Argo CD's own version and registry changed by the hub, and its manifest applied again by a person.

use std::fs;

use serde_json::{Value, json};

use crate::healing::{LIMIT, on_record, settle, since, unchanged, workloads};
use crate::support::api::{deployment, path};
use crate::support::argocd::{CONTROLLER, root};
use crate::support::place::run;
use crate::support::world::{self, ARGOCD, CLUSTER, World};
use crate::support::{figure, seconds, shown, until};

const MIRROR: &str = "mirror.lab.test/of/argo";
const NEXT: &str = "3.2.90";

/// W36, issue 5 §2: host keys, the keys of people beside ours, and Secrets are byte for byte the same after all of it.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_manifest_applied_again_and_another_version_keep_keys_and_settings() {
    let world = world::adopted_argocd();
    settle(&world);
    let hello = deployment("hello", "hello");
    until("the catalog's workload is there", seconds(LIMIT), || {
        world.uid(&hello).is_some()
    });
    peoples_keys(&world, &json!("bGFi"), &json!("lab"));
    let before = (contents(&world), world.uid(&root()), workloads(&world));
    assert!(before.0.iter().all(Value::is_object), "{:?}", before.0);

    applied_again(&world);
    assert_eq!(contents(&world), before.0);
    let known = on_record(&world);
    another_version_from_another_registry(&world);
    assert_eq!(contents(&world), before.0);
    back(&world);
    assert_eq!(contents(&world), before.0);
    assert_eq!(world.uid(&root()), before.1);
    unchanged(&world, &before.2);
    let drifts = drifts(&world, &known);
    assert_eq!(drifts, [] as [Value; 0], "a change is no drift");
    peoples_keys(&world, &Value::Null, &Value::Null);
    settle(&world);
}

/// Heals of something that was not as wanted, told from those of what is slow to come up.
fn drifts(world: &World, known: &[Value]) -> Vec<Value> {
    let classes = [
        "BadImage",
        "ObjectAltered",
        "ReadyButUseless",
        "EngineConfigBroken",
        "GitSecretBad",
    ];
    let mut new = since(world, known);
    new.retain(|heal| classes.iter().any(|class| heal["class"] == *class));
    new
}

/// What people keep beside our keys.
fn peoples_keys(world: &World, secret: &Value, setting: &Value) {
    let session = path("v1", "Secret", ARGOCD, "argocd-secret");
    let data = json!({ "webhook.github.secret": secret });
    world.api.patch(&session, &json!({ "data": data }));
    let settings = path("v1", "ConfigMap", ARGOCD, "argocd-cm");
    let data = json!({ "kustomize.buildOptions.lab": setting });
    world.api.patch(&settings, &json!({ "data": data }));
}

fn contents(world: &World) -> [Value; 5] {
    [
        ("Secret", "argocd-secret"),
        ("Secret", "argocd-redis"),
        ("Secret", "linesman-catalog"),
        ("ConfigMap", "argocd-ssh-known-hosts-cm"),
        ("ConfigMap", "argocd-cm"),
    ]
    .map(|(kind, name)| {
        let live = world.api.get(&path("v1", kind, ARGOCD, name));
        live.unwrap()["data"].clone()
    })
}

/// By a person, as Argo CD's own pages say; it brings its own list of host keys.
fn applied_again(world: &World) {
    let (good, known) = (contents(world), on_record(world));
    let file = world.directory.join("argocd.yaml");
    let mut kubectl = world.place.kubectl();
    let flags = ["apply", "--server-side", "--force-conflicts", "-n", ARGOCD];
    run(kubectl.args(flags).arg("-f").arg(file));
    let took = until("keys and settings are as before", seconds(LIMIT), || {
        contents(world) == good
    });
    figure(
        "W36",
        "Argo CD: its manifest applied again, kubectl returned → host keys, settings, Secrets byte for byte as before",
        "≤ 5 s",
        shown(took),
    );
    // The manifest has host keys of its own. A record that comes late is none of what follows.
    let hosts = json!("ConfigMap argocd/argocd-ssh-known-hosts-cm");
    until(
        "the host keys' heal is over and told",
        seconds(LIMIT),
        || {
            let mut new = since(world, &known).into_iter();
            new.any(|heal| heal["object"] == hosts && heal["result"] == "healed")
        },
    );
    settle(world);
}

fn images(world: &World) -> Vec<String> {
    let all = [
        CONTROLLER.to_owned(),
        deployment(ARGOCD, "argocd-repo-server"),
        deployment(ARGOCD, "argocd-redis"),
    ];
    let image = |path: &String| {
        let live = world.api.get(path).unwrap();
        let image = &live["spec"]["template"]["spec"]["containers"][0]["image"];
        image.as_str().unwrap().to_owned()
    };
    all.iter().map(image).collect()
}

fn another_version_from_another_registry(world: &World) {
    let own = fs::read_to_string(world.directory.join("argocd.yaml")).unwrap();
    let list = world.hub.json(&["engine", "list"]);
    let version = list[0]["version"].as_str().unwrap();
    let next = own.replace(
        &format!("/argoproj/argocd:v{version}"),
        &format!("/argoproj/argocd:v{NEXT}"),
    );
    let file = world.directory.join("argocd-next.yaml");
    fs::write(&file, next).unwrap();
    let imported = world
        .hub
        .json(&["engine", "import", file.to_str().unwrap()]);
    assert_eq!(imported["version"], json!(NEXT), "{imported}");
    for image in list[0]["images"].as_array().unwrap() {
        let from = image.as_str().unwrap();
        let (_, name) = from.split_once('/').unwrap();
        let name = name.replace(&format!("argocd:v{version}"), &format!("argocd:v{NEXT}"));
        world.place.tag_image(from, &format!("{MIRROR}/{name}"));
    }
    let began = std::time::Instant::now();
    let mirror = ["engine", "mirror", MIRROR, "--cluster", CLUSTER];
    let set = ["engine", "set", CLUSTER, "argocd", NEXT, "--wait=4m"];
    world.hub.linesman(&mirror);
    world.hub.linesman(&set);
    figure(
        "#5 §2",
        "Argo CD: engine mirror and engine set → the engine works with the new version",
        "≤ 300 s",
        shown(began.elapsed()),
    );
    let argocd = format!("{MIRROR}/argoproj/argocd:v{NEXT}");
    let images = images(world);
    assert_eq!(images[..2], [argocd.clone(), argocd]);
    assert!(images[2].starts_with(MIRROR), "{images:?}");
    assert!(world.engine_available());
}

fn back(world: &World) {
    let list = world.hub.json(&["engine", "list"]);
    let bundles = list.as_array().unwrap();
    let first = bundles.iter().find(|b| b["version"] != json!(NEXT));
    let first = first.unwrap()["digest"].as_str().unwrap();
    let mirror = ["engine", "mirror", "--default", "--cluster", CLUSTER];
    world.hub.linesman(&mirror);
    let set = [
        "engine",
        "set",
        CLUSTER,
        "argocd",
        "--bundle",
        first,
        "--wait=4m",
    ];
    world.hub.linesman(&set);
    let images = images(world);
    let theirs = |image: &String| !image.contains(MIRROR) && !image.contains(NEXT);
    assert!(images.iter().all(theirs), "{images:?}");
    settle(world);
}

//! Engine versions and image registries changed by the hub: what works stays, what does not goes back.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::healing::{on_record, settle, since};
use crate::support::api::{deployment, path};
use crate::support::place::{lab, output, run};
use crate::support::world::{self, CLUSTER, FLUX, World, kustomization};
use crate::support::{figure, seconds, shown, until};

mod beside;
mod credentials;
mod cut;

const MIRROR: &str = "mirror.lab.test/of/flux";

/// Imports the world's bundle with its text changed; gives the digest.
pub(crate) fn variant(world: &World, version: &str, changed: impl Fn(String) -> String) -> String {
    variant_by(world, version, &[], changed)
}

/// The same, imported with more words of the command's.
pub(crate) fn variant_by(
    world: &World,
    version: &str,
    words: &[&str],
    changed: impl Fn(String) -> String,
) -> String {
    let own = fs::read_to_string(world.directory.join("flux.yaml")).unwrap();
    let label = "app.kubernetes.io/version: v";
    let named = own
        .lines()
        .map(|line| match line.split_once(label) {
            Some((before, _)) => format!("{before}{label}{version}\n"),
            None => format!("{line}\n"),
        })
        .collect();
    let file = world.directory.join(format!("flux-{version}.yaml"));
    fs::write(&file, changed(named)).unwrap();
    let file = file.to_str().unwrap();
    let imported = world
        .hub
        .json(&[&["engine", "import", file], words].concat());
    assert_eq!(imported["version"], json!(version), "{imported}");
    imported["digest"].as_str().unwrap().to_owned()
}

fn image(world: &World) -> String {
    let live = world.api.get(&deployment(FLUX, "source-controller"));
    let live = live.unwrap_or_default();
    let image = &live["spec"]["template"]["spec"]["containers"][0]["image"];
    image.as_str().unwrap_or_default().to_owned()
}

/// Puts the images under the mirror's names into the lab.
fn mirror(world: &World, images: &[Value]) {
    for image in images.iter().filter_map(Value::as_str) {
        let (_, path) = image.split_once('/').unwrap();
        let (name, _) = path.rsplit_once('/').unwrap().1.split_once(':').unwrap();
        let binary = run(lab().args(["path", name]));
        let tag = format!("{MIRROR}/{path}");
        run(lab().args(["image", world.place.lab(), &tag, binary.trim()]));
    }
}

fn engine(world: &World, args: &[&str]) -> Command {
    world.hub.cli(&[&["engine"], args].concat())
}

/// The bundle of Flux that the cluster has.
pub(crate) fn in_force(world: &World) -> Value {
    let present = world.hub.json(&["cluster", "engine", CLUSTER]);
    let list = world.hub.json(&["engine", "list"]);
    let mut list = list.as_array().unwrap().iter();
    let own = list.find(|b| b["engine"] == json!("flux") && b["version"] == present["version"]);
    own.unwrap().clone()
}

/// Upgrade by the hub, a registry that stands in for the images' own, a version that cannot run, and all of it back.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_version_that_works_stays_and_one_that_does_not_goes_back() {
    let world = world::adopted();
    settle(&world);
    let own = in_force(&world);
    let first = own["digest"].as_str().unwrap().to_owned();
    mirror(&world, own["images"].as_array().unwrap());
    let spare = path("v1", "ServiceAccount", FLUX, "spare");
    let spares = "---\napiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: spare\n  namespace: flux-system\n  labels:\n    app.kubernetes.io/part-of: flux\n";
    variant(&world, "2.90.0", |text| {
        text.replace("--log-level=info", "--log-level=debug") + spares
    });
    variant(&world, "2.91.0", |text| {
        text.replace("/source-controller:v", "/source-controller:v0.0.0-not-")
    });
    let root = world.uid(&kustomization(FLUX));
    let known = on_record(&world);

    forwards(&world, &spare);
    let own = image(&world);
    let moved = other_images(&world, &own, &known);
    one_that_cannot_run(&world, &moved);

    // And back to where it began.
    run(&mut engine(
        &world,
        &["mirror", "--default", "--cluster", CLUSTER],
    ));
    run(&mut engine(
        &world,
        &["set", CLUSTER, "flux", "--bundle", &first, "--wait=4m"],
    ));
    assert_eq!(image(&world), own);
    assert_eq!(world.uid(&spare), None, "no bundle has it any more");
    assert_eq!(world.uid(&kustomization(FLUX)), root);
    settle(&world);
}

fn forwards(world: &World, spare: &str) {
    let began = std::time::Instant::now();
    run(&mut engine(
        world,
        &["set", CLUSTER, "flux", "2.90.0", "--wait=4m"],
    ));
    figure(
        "#5 §2",
        "engine set → the engine works with the new version",
        "≤ 300 s",
        shown(began.elapsed()),
    );
    let live = world.api.get(&deployment(FLUX, "kustomize-controller"));
    let args = &live.unwrap()["spec"]["template"]["spec"]["containers"][0]["args"];
    assert!(args.to_string().contains("--log-level=debug"), "{args}");
    assert!(world.uid(spare).is_some());
}

/// Other images: as wanted, they are no drift; deleted, they come back from there.
fn other_images(world: &World, own: &str, known: &[Value]) -> String {
    run(&mut engine(
        world,
        &["mirror", MIRROR, "--cluster", CLUSTER, "--wait=4m"],
    ));
    let moved = image(world);
    assert_eq!(own.split_once('/').unwrap().1, &moved[MIRROR.len() + 1..]);
    let new = since(world, known);
    assert_eq!(new, [] as [Value; 0], "a change is no fault");
    assert!(world.api.delete(&deployment(FLUX, "source-controller")));
    until("the Deployment is back", seconds(30), || {
        image(world) == moved
    });
    settle(world);
    moved
}

/// A version whose image nobody has.
fn one_that_cannot_run(world: &World, moved: &str) {
    let began = std::time::Instant::now();
    let failing = [
        "set",
        CLUSTER,
        "flux",
        "2.91.0",
        "--within",
        "30s",
        "--wait=4m",
    ];
    let refused = output(&mut engine(world, &failing));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(
        said.contains("did not work within 30 s") && said.contains("source-controller"),
        "{said}"
    );
    until("the version of before is back", seconds(60), || {
        image(world) == moved
    });
    settle(world);
    figure(
        "#5 §2",
        "a version that cannot run, given 30 s → function with the one before",
        "30 s + 60 s",
        shown(began.elapsed()),
    );
}

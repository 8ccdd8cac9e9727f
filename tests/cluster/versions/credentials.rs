//! Issue 5 §2: an engine's images from a registry that asks who pulls, by the Secret that people make for it.

use std::collections::BTreeSet;
use std::time::Instant;

use serde_json::{Value, json};

use super::beside::{CONTROLLERS, images, running};
use super::cut::{DRIFT, current};
use crate::children::condition as told_of;
use crate::healing::{LIMIT, on_record, settle, since, unchanged, workloads};
use crate::support::api::{deployment, path};
use crate::support::audit::Mark;
use crate::support::place::run;
use crate::support::registry::{PASSWORD, Registry, USER, Who};
use crate::support::world::{CLUSTER, FLUX, World, condition};
use crate::support::{eventually, figure, seconds, shown, until};

const SECRET: &str = "regcred";
const MIRROR: [&str; 2] = ["engine", "mirror"];

mod whole {
    use super::asks_who_pulls;

    /// #5 §2, W5, F5: ten minutes, of which a change that does not work has five.
    #[test]
    #[ignore = "takes minutes: make chaos"]
    fn images_come_from_a_registry_that_asks_who_pulls_once_the_secret_is_right() {
        asks_who_pulls();
    }
}

fn asks_who_pulls() {
    // Its own: for a change of the registry an engine has as long as the last `engine set` gave it.
    let mut world = World::open("pulled");
    assert!(
        world.place.lab.is_some(),
        "the nodes of a cluster that is given ask this registry over TLS"
    );
    world.adopt();
    settle(&world);
    let own = images(&world);
    let files = world.directory.join("registry");
    let registry = Registry::serve(&world.place, &files, "mirror", &own);
    let moved = own.each_ref().map(|image| registry.name_of(image));
    let mark = Mark::now(&world.audit);
    let (known, workloads) = (on_record(&world), workloads(&world));

    refused(&world, &registry);
    as_it_was(&world, &own);
    pulled(&world, &registry, &moved);
    made_anew(&world, &moved);
    let none = [&MIRROR[..], &["--none", "--cluster", CLUSTER, "--wait=4m"]].concat();
    world.hub.linesman(&none);
    as_it_was(&world, &own);
    assert_eq!(in_words(&world), "the registries that they name");
    assert!(world.uid(&secret_path()).is_some(), "it is people's");
    settle(&world);
    never_read(&mark);
    unchanged(&world, &workloads);
    let mut drift = since(&world, &known);
    drift.retain(|heal| DRIFT.iter().any(|class| heal["class"] == *class));
    assert_eq!(drift, [] as [Value; 0], "a change is no fault");
    world.close();
}

/// Without the Secret, and with another password in it: the hub says what the registry answers, who can serves meanwhile, and after its
/// time the change is undone.
fn refused(world: &World, registry: &Registry) {
    let before = serving(world);
    assert_eq!(before.len(), 1, "{before:?}");
    let began = Instant::now();
    mirror(world, registry, &[]);
    named(world, registry);
    figure(
        "F5",
        "engine mirror at a registry that asks who pulls, without the Secret → RegistryDown at the hub (after 20 s)",
        "",
        shown(began.elapsed()),
    );
    assert_eq!(registry.askers(), BTreeSet::from([Who::Nobody]));
    assert_eq!(secrets(world), by_secret());

    secret(world, registry, "another");
    until(
        "the kubelet comes with another password",
        seconds(LIMIT),
        || registry.askers().contains(&Who::Stranger),
    );
    named(world, registry);
    assert_eq!(serving(world), before);
    let (message, _) = eventually("the change is undone", seconds(600), || {
        let told = current(world)?;
        let message = told["message"].as_str().unwrap_or_default();
        if told["reason"] == "Returned" {
            Ok(message.to_owned())
        } else {
            Err(told.to_string())
        }
    });
    let late = message.contains(" did not work within 300 s; ");
    assert!(late && is_refusal(&message, registry), "{message}");
    until("what was before works", seconds(LIMIT), || {
        secrets(world) == [Value::Null, Value::Null] && world.engine_available()
    });
    assert_eq!(serving(world), before);
    figure(
        "#5 §2",
        "engine mirror at a registry that asks who pulls, with a wrong password → the one of before works again",
        "300 s + 60 s",
        shown(began.elapsed()),
    );
    settle(world);
    assert_eq!(registry.given(), BTreeSet::new());
}

/// The same command again, with the right password in the Secret: all of the images come from there.
fn pulled(world: &World, registry: &Registry, moved: &[String; 2]) {
    secret(world, registry, PASSWORD);
    let began = Instant::now();
    mirror(world, registry, &["--wait=4m"]);
    figure(
        "#5 §2",
        "engine mirror at a registry that asks who pulls, with the Secret → the engine works with what it gave",
        "≤ 300 s",
        shown(began.elapsed()),
    );
    assert_eq!(registry.given(), registry.all());
    by_the_secret(world, moved);
    let words = format!("{}, with Secret {SECRET}", registry.below);
    assert_eq!(in_words(world), words);
    settle(world);
}

/// What is made anew is pulled in the same way.
fn made_anew(world: &World, moved: &[String; 2]) {
    let controller = deployment(FLUX, CONTROLLERS[1]);
    let before = world.uid(&controller);
    assert!(world.api.delete(&controller));
    let took = until("the Deployment is back", seconds(LIMIT), || {
        let now = world.uid(&controller);
        now.is_some() && now != before
    });
    figure(
        "W5",
        "images by a Secret of one's own: source-controller deleted → back, with the Secret",
        "≤ 5 s",
        shown(took),
    );
    settle(world);
    by_the_secret(world, moved);
}

fn mirror(world: &World, registry: &Registry, more: &[&str]) {
    let to = [registry.below.as_str(), "--pull-secret", SECRET];
    let of = ["--cluster", CLUSTER];
    world
        .hub
        .linesman(&[&MIRROR[..], &to[..], &of[..], more].concat());
}

/// What is in force for the cluster, as the CLI says it.
fn in_words(world: &World) -> String {
    let words = [&MIRROR[..], &["--cluster", CLUSTER]].concat();
    world.hub.linesman(&words).trim().to_owned()
}

fn secret_path() -> String {
    path("v1", "Secret", FLUX, SECRET)
}

/// Makes the Secret with this password, as `docs/operating.md` says, in the place of one that is there.
fn secret(world: &World, registry: &Registry, password: &str) {
    world.api.delete(&secret_path());
    let mut kubectl = world.place.kubectl();
    kubectl.args(["-n", FLUX, "create", "secret", "docker-registry", SECRET]);
    run(kubectl.args([
        format!("--docker-server={}", registry.address),
        format!("--docker-username={USER}"),
        format!("--docker-password={password}"),
    ]));
}

/// The hub says which image does not come, and what the registry answers. source-controller has no other Pod by then: its
/// Deployment ends the old one first.
fn named(world: &World, registry: &Registry) {
    eventually("the hub says why", seconds(LIMIT), || {
        let view = world.hub.try_json(&["cluster", "show", CLUSTER])?;
        let told = told_of(&view, "EngineHealthy");
        let message = told["message"].as_str().unwrap_or_default();
        let fails = told["status"] == "False" && told["reason"] == "RegistryDown";
        if fails && is_refusal(message, registry) {
            Ok(())
        } else {
            Err(told.to_string())
        }
    });
}

/// Whether it is containerd's word on one: of today, and from 1.7 on where nobody said who pulls.
fn is_refusal(message: &str, registry: &Registry) -> bool {
    let refused = ["401 Unauthorized", "authorization failed"];
    message.contains(&registry.below) && refused.iter().any(|said| message.contains(said))
}

/// The Pods of kustomize-controller that are ready, by their UIDs.
fn serving(world: &World) -> Vec<String> {
    let of = format!("labelSelector=app%3D{}", CONTROLLERS[0]);
    let list = format!("/api/v1/namespaces/{FLUX}/pods?{of}");
    let list = world.api.get(&list).unwrap();
    let all = list["items"].as_array().unwrap().iter();
    let ready = all.filter(|pod| condition(pod, "Ready"));
    let uid = |pod: &Value| pod["metadata"]["uid"].as_str().unwrap().to_owned();
    ready.map(uid).collect()
}

/// What the Pods of each controller are pulled with.
fn secrets(world: &World) -> [Value; 2] {
    CONTROLLERS.map(|name| {
        let live = world.api.get(&deployment(FLUX, name)).unwrap_or_default();
        live["spec"]["template"]["spec"]["imagePullSecrets"].clone()
    })
}

fn by_secret() -> [Value; 2] {
    CONTROLLERS.map(|_| json!([{ "name": SECRET }]))
}

/// The registry's images run, and are pulled with the Secret.
fn by_the_secret(world: &World, moved: &[String; 2]) {
    assert_eq!(
        (images(world), secrets(world)),
        (moved.clone(), by_secret())
    );
    assert_eq!(running(world), BTreeSet::from(moved.clone()));
}

/// The lab's own images run, and the Pods name no Secret.
fn as_it_was(world: &World, own: &[String; 2]) {
    let none = [Value::Null, Value::Null];
    assert_eq!((images(world), secrets(world)), (own.clone(), none));
    assert_eq!(running(world), BTreeSet::from(own.clone()));
}

/// Nobody of Linesman's asked the API server for the Secret, nor for all of the namespace.
fn never_read(mark: &Mark) {
    let all = mark.answered().into_iter();
    let of_engine = all.filter(|a| a.resource == "secrets" && a.namespace == FLUX);
    let asked = of_engine.map(|a| (a.user.contains("linesman"), a.name));
    let asked: BTreeSet<(bool, String)> = asked.collect();
    let has = |ours: bool, name: &str| asked.contains(&(ours, name.to_owned()));
    assert!(has(false, SECRET), "{asked:?}");
    assert!(!has(true, SECRET) && !has(true, ""), "{asked:?}");
}

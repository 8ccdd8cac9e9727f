//! Issue 5 §2: `engine set` beside what it has nothing to do with: a fault that the catalog had before, and somebody at work on one
//! object of the install.

use std::collections::BTreeSet;

use linesman::clock;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::cut::{DRIFT, current, ended};
use super::{in_force, variant};
use crate::children::{condition, holds};
use crate::healing::{LIMIT, on_record, settle, since, unchanged, workloads};
use crate::support::api::{deployment, path};
use crate::support::world::{self, CLUSTER, FLUX, World, kustomization};
use crate::support::{closely, figure, seconds, shown, stays, until};

/// In the order of their names, which is that of their images'.
pub(super) const CONTROLLERS: [&str; 2] = ["kustomize-controller", "source-controller"];
/// Seconds that a change has.
const WITHIN: i64 = 60;
/// Seconds that somebody is at work: about twice that.
const WINDOW: i64 = 2 * WITHIN + 10;

mod whole {
    use super::{known_fault, one_rests, world};

    /// #5 §2: a version is not blamed for what the catalog had before, at the root and below it; and that stays named.
    #[test]
    #[ignore = "needs a real cluster: make chaos"]
    fn a_version_stays_although_the_catalog_has_an_old_fault() {
        known_fault(&world::adopted());
    }

    /// #5 §2, W24: longer than the change has, and it neither goes back nor goes on there before the window ends.
    #[test]
    #[ignore = "needs a real cluster: make chaos"]
    fn a_change_waits_for_the_window_on_one_object_and_is_made_then() {
        one_rests(&world::adopted());
    }
}

/// A bundle, as the hub and as the cluster have it.
struct Version {
    number: String,
    digest: String,
    /// Of [`CONTROLLERS`].
    images: [String; 2],
}

/// What is in force, and another version with images of its own.
fn versions(world: &World, number: &str) -> [Version; 2] {
    let present = in_force(world);
    let field = |key: &str| present[key].as_str().unwrap().to_owned();
    let own = Version {
        number: field("version"),
        digest: field("digest"),
        images: images(world),
    };
    let images = own.images.each_ref().map(|image| format!("{image}-next"));
    for (from, to) in own.images.iter().zip(&images) {
        world.place.tag_image(from, to);
    }
    let digest = variant(world, number, |text| {
        let both = own.images.iter().zip(&images);
        both.fold(text, |text, (from, to)| {
            text.replace(from.as_str(), to.as_str())
        })
    });
    let number = number.to_owned();
    let next = Version {
        number,
        digest,
        images,
    };
    [own, next]
}

fn known_fault(world: &World) {
    settle(world);
    let [own, next] = versions(world, "2.93.0");
    let workloads = workloads(world);
    break_the_catalog(world);
    let known = on_record(world);
    let began = std::time::Instant::now();
    let set = ["engine", "set", CLUSTER, "flux", "--bundle"];
    let words = [
        &set[..],
        &[next.digest.as_str(), "--within=2m", "--wait=4m"],
    ]
    .concat();
    world.hub.linesman(&words);
    figure(
        "#5 §2",
        "engine set while the catalog has an old fault → the engine works with the new version",
        "≤ 300 s",
        shown(began.elapsed()),
    );
    ended(world, "the catalog has an old fault", &next.number);
    assert_eq!(images(world), next.images);
    assert_eq!(running(world), BTreeSet::from(next.images.clone()));
    // A controller that has just started looks first, and what it finds has its debounce again.
    until("both faults are still named", seconds(LIMIT), || {
        names_the_child(world) && names_the_root(world)
    });
    not_a_fault(world, &known);
    assert_eq!(in_force(world)["digest"], json!(next.digest));
    let told = current(world).unwrap();
    assert_eq!(told["reason"], json!("InForce"), "{told}");

    let nothing = "# nothing\n".to_owned();
    let mended = [child_file(), root_file()].map(|file| (file, nothing.clone()));
    world.push_all(&mended);
    until("the catalog is well", seconds(LIMIT), || {
        holds(world, "ChildrenReady", "True")
            && holds(world, "Synced", "True")
            && world.synced().is_ok()
    });
    world
        .hub
        .linesman(&[&set[..], &[own.digest.as_str(), "--wait=4m"]].concat());
    settle(world);
    assert_eq!(images(world), own.images);
    unchanged(world, &workloads);
}

fn child_file() -> String {
    format!("clusters/{CLUSTER}/beside.yaml")
}

fn root_file() -> String {
    format!("clusters/{CLUSTER}/twice.yaml")
}

/// Commits a Kustomization of which nothing can be built, and after that what the root cannot build. The hub names both.
fn break_the_catalog(world: &World) {
    let child = json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
        "metadata": {"name": "beside", "namespace": FLUX},
        "spec": {
            "interval": "10m", "retryInterval": "5s", "path": "./beside", "prune": true,
            "sourceRef": {"kind": "GitRepository", "name": FLUX},
        },
    });
    let missing = "resources: [missing.yaml]\n";
    world.push_all(&[
        (child_file(), child.to_string()),
        ("beside/kustomization.yaml".to_owned(), missing.to_owned()),
    ]);
    until("what is below the root is named", seconds(LIMIT), || {
        names_the_child(world)
    });
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "twice", "namespace": "default"},
    });
    world.push(&root_file(), &format!("{map}\n---\n{map}\n"));
    until("what is at the root is named", seconds(LIMIT), || {
        names_the_root(world) && names_the_child(world)
    });
}

/// Whether the condition of what the catalog brought names the Kustomization below the root.
fn names_the_child(world: &World) -> bool {
    let view = world.hub.try_json(&["cluster", "show", CLUSTER]);
    let told = condition(&view.unwrap_or_default(), "ChildrenReady");
    let message = told["message"].as_str().unwrap_or_default();
    let fails = told["status"] == json!("False") && told["reason"] == json!("BuildFailed");
    fails && message.contains(&format!("Kustomization {FLUX}/beside "))
}

/// Whether the root says so itself, and the hub shows that in its words. Between two tries it says nothing for a moment.
fn names_the_root(world: &World) -> bool {
    let view = world.hub.try_json(&["cluster", "show", CLUSTER]);
    let told = condition(&view.unwrap_or_default(), "Synced");
    let message = told["message"].as_str().unwrap_or_default();
    let shown = told["status"] == json!("False") && message.contains("BuildFailed: ");
    let live = world.api.get(&kustomization(FLUX)).unwrap_or_default();
    let says = live["status"]["conditions"].as_array();
    let mut says = says.into_iter().flatten();
    shown && says.any(|c| c["type"] == json!("Ready") && c["reason"] == json!("BuildFailed"))
}

fn one_rests(world: &World) {
    settle(world);
    let [own, next] = versions(world, "2.94.0");
    let (known, workloads) = (on_record(world), workloads(world));
    a_controller_rests(world, &own, &next);
    a_service_rests(world, &next, &own);
    settle(world);
    not_a_fault(world, &known);
    unchanged(world, &workloads);
}

/// Of two controllers one rests: the other one runs the new version meanwhile.
fn a_controller_rests(world: &World, from: &Version, to: &Version) {
    let resting = deployment(FLUX, CONTROLLERS[1]);
    let end = rests(world, &resting);
    begin(world, to);
    let half = [to.images[0].clone(), from.images[1].clone()];
    until(
        "the other controller runs the new version",
        seconds(WITHIN.unsigned_abs()),
        || images(world) == half && world.engine_available(),
    );
    waits(
        world,
        &format!("Deployment {FLUX}/{}", CONTROLLERS[1]),
        end,
        &half,
    );
    is_made(world, &resting, end, to);
}

/// A Service rests, before which no controller is altered: what they stand on is as the new version has it, and they work on. One that
/// goes meanwhile comes back in the new version.
fn a_service_rests(world: &World, from: &Version, to: &Version) {
    let resting = path("v1", "Service", FLUX, "source-controller");
    let account = path("v1", "ServiceAccount", FLUX, "source-controller");
    let end = rests(world, &resting);
    begin(world, to);
    until(
        "the account is as the new version has it",
        seconds(WITHIN.unsigned_abs()),
        || label(world, &account) == format!("v{}", to.number),
    );
    world.function(seconds(LIMIT));
    assert_eq!(images(world), from.images, "they wait for the Service");
    assert!(world.api.delete(&deployment(FLUX, CONTROLLERS[0])));
    let half = [to.images[0].clone(), from.images[1].clone()];
    until(
        "the one that went is there in the new version",
        seconds(WITHIN.unsigned_abs()),
        || images(world) == half && world.engine_available(),
    );
    waits(
        world,
        &format!("Service {FLUX}/source-controller"),
        end,
        &half,
    );
    assert_eq!(label(world, &resting), format!("v{}", from.number));
    is_made(world, &resting, end, to);
}

/// Somebody is at work on an object; gives the end of that.
fn rests(world: &World, object: &str) -> OffsetDateTime {
    let end = clock::now() + time::Duration::seconds(WINDOW);
    let end = end.replace_nanosecond(0).unwrap();
    window(world, object, &json!(end.format(&Rfc3339).unwrap()));
    end
}

fn window(world: &World, object: &str, until: &Value) {
    let annotations = json!({ "linesman.dev/maintenance-until": until });
    let patch = json!({ "metadata": { "annotations": annotations } });
    world.api.patch(object, &patch);
}

fn begin(world: &World, to: &Version) {
    let within = format!("--within={WITHIN}s");
    let set = ["engine", "set", CLUSTER, "flux", "--bundle"];
    world
        .hub
        .linesman(&[&set[..], &[to.digest.as_str(), within.as_str()]].concat());
}

/// The change says what it waits for, and does so until the window ends, by when it has had more than its time.
fn waits(world: &World, object: &str, end: OffsetDateTime, expected: &[String; 2]) {
    let words = format!("waits for the end of the maintenance window on {object}");
    until("it says what it waits for", seconds(60), || {
        let told = current(world).unwrap_or_default();
        told["message"].as_str().is_some_and(|m| m.contains(&words))
    });
    // The hub is asked once more before the end.
    let rest = end - clock::now() - time::Duration::seconds(10);
    stays(
        "the change waits",
        rest.try_into().expect("the window is open"),
        || images(world) == *expected,
    );
    let told = current(world).unwrap();
    assert_eq!(
        (&told["status"], &told["reason"]),
        (&json!("False"), &json!("Changing")),
        "{told}"
    );
}

/// The window ends by itself: then, and not before, the change is made.
fn is_made(world: &World, resting: &str, end: OffsetDateTime, to: &Version) {
    let version = format!("v{}", to.number);
    closely("all is as the new version has it", seconds(LIMIT), || {
        label(world, resting) == version && images(world) == to.images
    });
    let late = clock::now() - end;
    assert!(
        late >= time::Duration::ZERO,
        "it was altered {late} before the window's end"
    );
    ended(world, "the window is over", &to.number);
    figure(
        "W24",
        "window on one object over by itself → the change that waited for it is over",
        "",
        shown((clock::now() - end).unsigned_abs()),
    );
    assert_eq!(running(world), BTreeSet::from(to.images.clone()));
    window(world, resting, &Value::Null);
}

/// Of what a change brings nothing is on record.
fn not_a_fault(world: &World, known: &[Value]) {
    let mut new = since(world, known);
    new.retain(|heal| DRIFT.iter().any(|class| heal["class"] == *class));
    assert_eq!(new, [] as [Value; 0], "a change is no fault");
}

/// The images that the Deployments name.
pub(super) fn images(world: &World) -> [String; 2] {
    CONTROLLERS.map(|name| {
        let live = world.api.get(&deployment(FLUX, name)).unwrap_or_default();
        let image = &live["spec"]["template"]["spec"]["containers"][0]["image"];
        image.as_str().unwrap_or_default().to_owned()
    })
}

/// Those of the Pods that stay.
pub(super) fn running(world: &World) -> BTreeSet<String> {
    let list = world.api.get(&format!("/api/v1/namespaces/{FLUX}/pods"));
    let list = list.unwrap_or_default();
    let items = list["items"].as_array().into_iter().flatten();
    let stay = items.filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    let images = stay.filter_map(|pod| pod["spec"]["containers"][0]["image"].as_str());
    images.map(str::to_owned).collect()
}

/// The version that an object says it is of.
fn label(world: &World, object: &str) -> String {
    let live = world.api.get(object).unwrap_or_default();
    let label = &live["metadata"]["labels"]["app.kubernetes.io/version"];
    label.as_str().unwrap_or_default().to_owned()
}

//! Controllers of which no root is asked, and that the agent has no object of its own for: those of notifications and images. It
//! asks them by what people have.

use serde_json::{Value, json};

use crate::healing::{LIMIT, settle};
use crate::support::place::Place;
use crate::support::world::{FLUX, World};
use crate::support::{seconds, until};
use crate::versions::variant_by;

use super::alone::alone;
use super::helm::{answered, canary};
use super::wedged::{are_restarted, is_restarted};

const ALL: &str = "source-controller,kustomize-controller,helm-controller,notification-controller,\
    image-reflector-controller,image-automation-controller";
const IMAGES: &str = "image.toolkit.fluxcd.io/v1";

fn create(world: &World, api: &str, plural: &str, object: &Value) -> String {
    let at = match api {
        "v1" => "/api/v1".to_owned(),
        api => format!("/apis/{api}"),
    };
    let at = format!("{at}/namespaces/{FLUX}/{plural}");
    until(&format!("{plural} are served"), seconds(LIMIT), || {
        world.api.try_get(&at).is_ok_and(|list| list.is_some())
    });
    world.api.create(&at, object);
    format!("{at}/{}", object["metadata"]["name"].as_str().unwrap())
}

fn object(api: &str, kind: &str, spec: &Value) -> Value {
    json!({ "apiVersion": api, "kind": kind, "metadata": { "name": "asked" }, "spec": spec })
}

/// Of each controller the object that it is asked by. None of them does anything: nobody calls the receiver, nothing is
/// scanned, and there is nothing to commit.
fn asked(world: &World) -> [(&'static str, String); 3] {
    let token = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "asked" },
        "stringData": { "token": "not-a-secret" },
    });
    create(world, "v1", "secrets", &token);
    let api = "notification.toolkit.fluxcd.io/v1";
    let receiver = json!({
        "type": "generic", "secretRef": { "name": "asked" },
        "resources": [{ "kind": "GitRepository", "name": FLUX }],
    });
    let receiver = create(world, api, "receivers", &object(api, "Receiver", &receiver));
    let repository = json!({ "image": "lab.invalid/none", "interval": "1h", "suspend": true });
    let repository = object(IMAGES, "ImageRepository", &repository);
    let repository = create(world, IMAGES, "imagerepositories", &repository);
    let automation = json!({
        "interval": "1m",
        "sourceRef": { "kind": "GitRepository", "name": FLUX },
        "git": {
            "checkout": { "ref": { "branch": "main" } },
            "commit": { "author": { "name": "asked", "email": "asked@lab.invalid" } },
            "push": { "branch": "main" },
        },
        "update": { "strategy": "Setters", "path": "./none" },
    });
    let automation = object(IMAGES, "ImageUpdateAutomation", &automation);
    let automation = create(world, IMAGES, "imageupdateautomations", &automation);
    [
        ("notification-controller", receiver),
        ("image-reflector-controller", repository),
        ("image-automation-controller", automation),
    ]
}

/// A Flux with all of them, and who answers by what.
fn with_all(name: &str) -> (World, [(&'static str, String); 3]) {
    let mut world = World::open_from(name, "flux", &Place::bundle("flux-whole"));
    // Nobody has those of images who did not choose them.
    variant_by(&world, "2.90.0", &["--components", ALL], |text| text);
    world.adopt();
    let asked = asked(&world);
    for (_, path) in &asked {
        answered(&world, path);
    }
    (world, asked)
}

/// F12, W12
#[test]
#[ignore = "takes minutes: make chaos"]
fn controllers_of_notifications_and_images_that_hang_are_restarted() {
    let (world, asked) = with_all("witnesses");
    for (name, path) in asked {
        settle(&world);
        is_restarted(&world, name, &path);
    }
}

/// F12, W12: those of notifications, images and releases, all at once, with the hub stopped and Git there.
#[test]
#[ignore = "takes minutes: make chaos"]
fn controllers_that_are_asked_by_other_objects_are_restarted_without_the_hub() {
    let (mut world, asked) = with_all("witnessed");
    let canary = canary();
    answered(&world, &canary);
    alone(&mut world, |world| {
        let asked = asked.iter().map(|(name, path)| (*name, path.as_str()));
        let all: Vec<_> = asked
            .chain([("helm-controller", canary.as_str())])
            .collect();
        are_restarted(world, &all);
    });
    world.close();
}

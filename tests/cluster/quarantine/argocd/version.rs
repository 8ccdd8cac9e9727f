//! W22 with Argo CD: it rolls itself to another version by a commit, and back; and W8, where somebody breaks what that commit brought.

use std::time::Duration;

use serde_json::{Value, json};

use super::super::{rolled, turns};
use super::catalog::Catalog;
use super::{SERVER, image_of};
use crate::healing::{LIMIT, works, wrong_at_once};
use crate::support::api::deployment;
use crate::support::argocd::CONTROLLER;
use crate::support::world::ARGOCD;
use crate::support::{seconds, until};

const IMAGE: &str = "quay.io/argoproj/argocd:v";
/// What only the newer version has.
const FIELD: &str = "LAB_NEWER";

fn controllers() -> [String; 3] {
    let of = |name: &str| deployment(ARGOCD, name);
    [
        CONTROLLER.to_owned(),
        of(SERVER),
        of("argocd-applicationset-controller"),
    ]
}

/// The same install of another version, whose image is the same by another name.
fn newer(catalog: &Catalog) -> String {
    let of = |path: &String| image_of(&catalog.live(path));
    let from = of(&controllers()[0]);
    let (name, version) = from.rsplit_once(":v").unwrap();
    let to = format!("{name}:v9.{version}");
    catalog.world.place.tag_image(&from, &to);
    let parts = catalog.good.replace(IMAGE, &format!("{IMAGE}9."));
    let parts = parts.split("\n---\n").map(|part| {
        let field = format!("        env:\n        - name: {FIELD}\n          value: \"5\"\n");
        part.replacen("        env:\n", &field, 1)
    });
    let all: Vec<String> = parts.collect();
    all.join("\n---\n")
}

/// Whether a controller is of the newer version.
fn is_newer(live: &Value) -> bool {
    let container = &live["spec"]["template"]["spec"]["containers"][0];
    let env = container["env"].as_array().into_iter().flatten();
    let has = env.filter(|e| e["name"] == FIELD).count() == 1;
    let named = image_of(live).starts_with(&format!("{IMAGE}9."));
    assert_eq!(has, named, "{container}");
    named
}

/// Whether all controllers run, and are of the newer version or of the other one.
fn run(catalog: &Catalog, newer: bool) -> bool {
    let runs = |path: &String| {
        let live = catalog.live(path);
        is_newer(&live) == newer && rolled(&live)
    };
    controllers().iter().all(runs)
}

/// Pushes a version, and waits until Argo CD runs it.
fn rolls(catalog: &Catalog, engine: &str, (marker, newer): (&str, bool)) -> Duration {
    catalog.push(engine, marker);
    until("Argo CD runs as Git says", seconds(300), || {
        run(catalog, newer) && catalog.delivered() == json!(marker)
    })
}

fn none_is_held(catalog: &Catalog) -> bool {
    controllers().iter().all(|path| !catalog.is_held(path))
}

/// W22: the agent writes nothing, and what Git has no more is gone.
pub(super) fn another_version_and_back(catalog: &Catalog) {
    let newer = newer(catalog);
    turns::another_version_and_back(catalog.world, |marker, changed| {
        let engine = if changed { &newer } else { &catalog.good };
        rolls(catalog, engine, (marker, changed))
    });
    assert!(none_is_held(catalog));
}

/// W8, W22: the newer version is last known good once it works. What somebody gets wrong of it by kubectl is put right as that version
/// has it, beside what else Git gave it.
pub(super) fn another_version_that_is_broken(catalog: &Catalog) {
    let (world, newer) = (&*catalog.world, newer(catalog));
    rolls(catalog, &newer, ("newer", true));
    world.function(seconds(LIMIT));
    catalog.agent_without_snapshots();
    let case = "another version of Argo CD by Git";
    let [stateful, server, _] = &controllers();
    for path in [stateful, server] {
        wrong_at_once(world, case, &[(path, "image")]);
        let what = world.said(&format!("function after a wrong image ({case})"));
        works(world, "W8", &what, "≤ 90 s");
    }
    until("all of the newer version runs", seconds(LIMIT), || {
        run(catalog, true)
    });
    assert!(none_is_held(catalog));
}

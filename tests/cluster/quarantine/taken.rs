//! A commit that brings the engine, which the agent installed, as something else than the agent has it: another label, log
//! level and limit. Git owns it from then on, and the agent does not fight. A lab of its own.

use serde_json::Value;

use super::stored::migrated_for_git;
use super::{Catalog, FLUX, rolled};
use crate::healing::LIMIT;
use crate::support::audit::Mark;
use crate::support::place::Place;
use crate::support::world::World;
use crate::support::{figure, seconds, shown, until};

const NAMES: [&str; 2] = ["source-controller", "kustomize-controller"];

/// W22: nothing is written while it is taken over, and it works.
#[test]
#[ignore = "needs a real cluster: make test"]
fn an_engine_that_git_takes_over_as_another_one_is_left_to_git() {
    taken_over(|_, _| {});
}

/// The same until it is last known good; `after` is given the number of the snapshot before.
pub(super) fn taken_over(after: impl Fn(&World, u64)) {
    let mut world = World::open("taken");
    world.adopt();
    let good = Place::bundle("flux");
    let catalog = Catalog { world, good };
    let world = &catalog.world;
    until("a snapshot is kept", seconds(LIMIT), || {
        catalog.condition("SnapshotFresh") == "True"
    });
    let first = newest(world);
    let other = another(&catalog.good);
    let mark = Mark::now(&world.audit);
    catalog.push(&other, "taken");
    let took = until("Flux runs as Git says", seconds(300), || {
        let runs = |name: &&str| catalog.runs(name, "args", "--log-level=debug");
        let owned = |name: &&str| {
            let labels = catalog.controller(name)["metadata"]["labels"].clone();
            labels["kustomize.toolkit.fluxcd.io/name"] == FLUX
        };
        catalog.delivered() == "taken"
            && NAMES.iter().all(runs)
            && NAMES.iter().all(owned)
            && NAMES.iter().all(|name| rolled(&catalog.controller(name)))
    });
    let took = took + world.function(seconds(LIMIT));
    figure(
        "W22",
        "commit that takes the installed engine over as another one → rolled, function",
        "",
        shown(took),
    );
    assert_eq!(mark.written_in(FLUX), [""; 0], "the agent wrote");
    after(world, first);
    for name in NAMES {
        assert!(catalog.runs(name, "args", "--log-level=debug"), "{name}");
        assert!(catalog.runs(name, "resources", "911Mi"), "{name}");
        assert!(!catalog.is_held(name), "{name}");
    }
    let heals = world
        .hub
        .json(&["heal", "list", super::CLUSTER])
        .to_string();
    for class in [
        "BadImage",
        "ReadyButUseless",
        "ObjectAltered",
        "BadEngineCommit",
    ] {
        assert!(!heals.contains(class), "{heals}");
    }
    migrated_for_git(&catalog, &other);
    catalog.world.close();
}

/// The same install of another version, so that each of its objects differs.
fn another(good: &str) -> String {
    let other = good
        .replace(
            "app.kubernetes.io/version: v",
            "app.kubernetes.io/version: v9",
        )
        .replace("--log-level=info", "--log-level=debug")
        .replace("memory: 1Gi", "memory: 911Mi");
    for part in ["version: v9", "--log-level=debug", "memory: 911Mi"] {
        assert!(other.contains(part), "{part}");
    }
    other
}

/// The number of the newest snapshot.
pub(super) fn newest(world: &World) -> u64 {
    let all = "/api/v1/namespaces/linesman/configmaps?labelSelector=linesman.dev%2Fsnapshot";
    let all = world.api.get(all).unwrap_or_default();
    let items = all["items"].as_array().cloned().unwrap_or_default();
    let number = |map: &Value| map["data"]["number"].as_str()?.parse().ok();
    items.iter().filter_map(number).max().unwrap_or_default()
}

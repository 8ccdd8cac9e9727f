//! A commit that brings the engine, which the agent installed, as something else than the agent has it: another label, log
//! level and limit. Git owns it from then on, and the agent does not fight. Labs of their own.

use serde_json::{Value, json};

use super::stored::migrated_for_git;
use super::whole::with;
use super::{Catalog, FLUX, rolled};
use crate::healing::LIMIT;
use crate::support::audit::Mark;
use crate::support::place::Place;
use crate::support::world::World;
use crate::support::{eventually, figure, seconds, shown, until};

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
    let catalog = Catalog::new(world, good);
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

/// F39: the agent installed a volume of one type and a variable from a field; a commit has both otherwise, and a variable less.
/// Beside the agent's fields the API server refuses that, or leaves what was taken away.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_commit_that_changes_what_the_agent_installed_beyond_a_merge_is_delivered() {
    let mut world = World::open("claimed");
    world.adopt();
    let good = Place::bundle("flux");
    let catalog = Catalog::new(world, good);
    let other = of_another_type(&catalog.good);
    catalog.push(&other, "other");
    let wanted = json!({
        "delivered": "other", "variable": {"name": "RUNTIME_NAMESPACE", "value": FLUX}, "less": Value::Null,
        "volume": {"name": "tmp", "hostPath": {"path": "/var/tmp", "type": ""}},
    });
    let ((), took) = eventually("Flux is as Git says", seconds(240), || {
        let is = types(&catalog);
        if is == wanted { Ok(()) } else { Err(is) }
    });
    let took = took + catalog.world.function(seconds(LIMIT));
    figure(
        "F39",
        "commit that gives a volume and a variable of the installed engine another type → delivered, function",
        "≤ 120 s",
        shown(took),
    );
    for name in NAMES {
        assert!(!catalog.is_held(name), "{name}");
        let owners = content_of(&catalog.controller(name));
        assert_eq!(owners, ["kustomize-controller"], "{name}");
    }
    catalog.world.close();
}

fn of_another_type(good: &str) -> String {
    let by_field = "        - name: RUNTIME_NAMESPACE\n          valueFrom:\n            fieldRef:\n              fieldPath: metadata.namespace\n";
    let by_value = "        - name: RUNTIME_NAMESPACE\n          value: flux-system\n";
    let limit = "        - name: GOMEMLIMIT\n          valueFrom:\n            resourceFieldRef:\n              containerName: manager\n              resource: limits.memory\n";
    let [empty, host] = [
        "      - emptyDir: {}\n        name: tmp",
        "      - hostPath: {path: /var/tmp}\n        name: tmp",
    ];
    let replaced = |part: &str, what: &str, by: &str| {
        assert!(part.contains(what), "{what}");
        part.replace(what, by)
    };
    let source = with(good, ["Deployment", "source-controller"], |part| {
        replaced(&replaced(part, empty, host), limit, "")
    });
    with(&source, ["Deployment", "kustomize-controller"], |part| {
        replaced(part, by_field, by_value)
    })
}

/// What became of [`of_another_type`].
fn types(catalog: &Catalog) -> Value {
    let of = |name: &str| catalog.controller(name)["spec"]["template"]["spec"].take();
    let [source, kustomize] = NAMES.map(of);
    let named = |all: &Value, name: &str| {
        let mut all = all.as_array().into_iter().flatten();
        all.find(|item| item["name"] == name).cloned()
    };
    let variable = |pod: &Value, name| named(&pod["containers"][0]["env"], name);
    json!({
        "delivered": catalog.delivered(), "variable": variable(&kustomize, "RUNTIME_NAMESPACE"),
        "less": variable(&source, "GOMEMLIMIT"), "volume": named(&source["volumes"], "tmp"),
    })
}

/// Who applied more of an object than labels and annotations.
pub(super) fn content_of(live: &Value) -> Vec<String> {
    let entries = live["metadata"]["managedFields"]
        .as_array()
        .into_iter()
        .flatten();
    let applied =
        entries.filter(|e| e["operation"] == "Apply" && !e["fieldsV1"]["f:spec"].is_null());
    applied
        .map(|e| e["manager"].as_str().unwrap_or_default().to_owned())
        .collect()
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

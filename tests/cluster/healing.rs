//! Heals of the engine: W5, W6, W7, W8, W9, W11, W13, W28, W46, with the hub there and away.
//!
//! The watchdog needs no hub: everything that heals is in the cluster. So each test stops the hub for half of what
//! it does, or for all, and the records must arrive when it is back.

use std::collections::BTreeMap;
use std::time::Instant;

use serde_json::json;

use crate::support::world::{self, CLUSTER, FLUX, World};
use crate::support::{eventually, figure, seconds, shown, until};

mod at_once;
mod away;
mod deleted;
mod exported;
mod fields;
mod records;
mod spoilt;

pub(crate) use at_once::{
    all_deleted_at_once, all_that_lets_it_run, all_that_runs, scaled_to_zero,
};
pub(crate) use away::{
    with_and_without_hub, with_and_without_hub_and_git, with_git_alone,
    with_hub_and_with_git_alone, without_hub,
};
pub(crate) use deleted::{
    all_deleted_in_turn, controllers, deleted_again, deleted_at_once, install,
};
pub(crate) use exported::times_are_exported;
pub(crate) use fields::{WRONG, all_go_wrong, chosen, fields_go_wrong, wrong_at_once};
use records::records_arrive;
pub(crate) use records::{heals, none_is_open, on_record, settle, since, whole};
pub(crate) use spoilt::told_of_and_mended;

const CONTROLLERS: [&str; 2] = ["source-controller", "kustomize-controller"];
/// How long a test waits for what the acceptance wants in seconds.
pub(crate) const LIMIT: u64 = 240;

/// W5: any object of the install deleted is back ≤ 5 s, function ≤ 60 s; with the hub stopped too.
#[test]
#[ignore = "needs a real cluster: make test"]
fn each_deleted_install_object_comes_back() {
    all_deleted_in_turn(&mut world::adopted());
}

/// W6: all Deployments, ServiceAccounts and bindings at once.
#[test]
#[ignore = "needs a real cluster: make test"]
fn all_that_runs_deleted_at_once_works_again() {
    with_git_alone(&mut world::adopted(), all_deleted_at_once);
}

/// W7: all at once scaled to zero are back ≤ 35 s; with the hub there in `make chaos`.
#[test]
#[ignore = "needs a real cluster: make test"]
fn controllers_scaled_to_zero_come_back() {
    with_git_alone(&mut world::adopted(), |world| {
        scaled_to_zero(world, "hub stopped, Git there");
    });
}

/// W8: wrong image, arguments, ServiceAccount, volume by kubectl: function ≤ 90 s.
#[test]
#[ignore = "needs a real cluster: make test"]
fn wrong_fields_by_kubectl_are_mended() {
    let mut world = world::adopted();
    with_and_without_hub(&mut world, wrong_fields);
}

fn wrong_fields(world: &World, case: &str) {
    fields_go_wrong(world, case, &WRONG);
}

/// W9: Namespace deleted: function ≤ 180 s, no workload object lost.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_deleted_engine_namespace_comes_back_and_no_workload_is_lost() {
    let mut world = world::adopted();
    settle(&world);
    world.hub.stop();
    let workloads = workloads(&world);
    let path = format!("/api/v1/namespaces/{FLUX}");
    let uid = world.uid(&path).unwrap();
    let began = Instant::now();
    world.delete_guarded(&path);
    until("the namespace is a new one", seconds(LIMIT), || {
        world.uid(&path).is_some_and(|new| new != uid)
    });
    until("controllers are available", seconds(LIMIT), || {
        world.engine_available()
    });
    // The hub holds the catalog, so the whole function needs it again.
    world.hub.up();
    world.function(seconds(LIMIT));
    figure(
        "W9",
        "Namespace deleted, hub stopped → function (with the start of the hub)",
        "≤ 180 s",
        shown(began.elapsed()),
    );
    unchanged(&world, &workloads);
}

/// W11: a CRD deleted is restored with its objects, and workloads are untouched. With the hub there, `guard::crds` does that to each.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_deleted_crd_is_restored_and_workloads_are_untouched() {
    let mut world = world::adopted();
    without_hub(&mut world, |world, hub| {
        let workloads = workloads(world);
        for name in [
            "gitrepositories.source.toolkit.fluxcd.io",
            "kustomizations.kustomize.toolkit.fluxcd.io",
        ] {
            let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
            let uid = world.uid(&path).unwrap();
            world.delete_guarded(&path);
            let took = until(&format!("CRD {name} is back"), seconds(LIMIT), || {
                world.uid(&path).is_some_and(|new| new != uid)
            });
            figure(
                "W11",
                &format!("CRD {name} deleted → back ({hub})"),
                "≤ 120 s",
                shown(took),
            );
            let root = if name.starts_with("git") {
                world::git_repository(FLUX)
            } else {
                world::kustomization(FLUX)
            };
            let took = until(&format!("{root} is back"), seconds(LIMIT), || {
                world.uid(&root).is_some()
            });
            figure(
                "W11",
                &format!(
                    "… then its root object back: {} ({hub})",
                    root.rsplit('/').nth(1).unwrap()
                ),
                "≤ 120 s",
                shown(took),
            );
        }
        works(
            world,
            "W11",
            &format!("function after CRDs were deleted ({hub})"),
            "≤ 120 s",
        );
        unchanged(world, &workloads);
    });
}

/// W13: the Git Secret deleted, then emptied: back ≤ 5 s each.
#[test]
#[ignore = "needs a real cluster: make test"]
fn the_git_secret_deleted_or_emptied_is_written_again() {
    let mut world = world::adopted();
    with_and_without_hub(&mut world, |world, hub| {
        let path = format!("/api/v1/namespaces/{FLUX}/secrets/flux-system");
        let good = world.api.get(&path).unwrap()["data"].clone();
        let back = |what: &str| {
            until(what, seconds(LIMIT), || {
                world.api.get(&path).is_some_and(|s| s["data"] == good)
            })
        };
        assert!(world.api.delete(&path));
        figure(
            "W13",
            &format!("Git Secret deleted → back ({hub})"),
            "≤ 5 s",
            shown(back("the Secret is back")),
        );
        world
            .api
            .patch(&path, &json!({ "data": { "known_hosts": "" } }));
        figure(
            "W13",
            &format!("known_hosts emptied → back ({hub})"),
            "≤ 5 s",
            shown(back("known_hosts is back")),
        );
        world.api.patch(&path, &json!({ "data": null }));
        figure(
            "W13",
            &format!("Git Secret emptied → back ({hub})"),
            "≤ 5 s",
            shown(back("the data is back")),
        );
        works(
            world,
            "W13",
            &format!("function after that ({hub})"),
            "≤ 60 s",
        );
    });
}

/// W41: the same object deleted as soon as it is back, again and again.
#[test]
#[ignore = "needs a real cluster: make test"]
fn an_object_deleted_again_and_again_comes_back_each_time() {
    let world = world::adopted();
    settle(&world);
    let slowest = deleted_again(&world, 6);
    figure(
        "W41",
        "a Service deleted 6 times in a row, as soon as it is back: slowest",
        "≤ 5 s",
        shown(slowest),
    );
    works(&world, "W41", "function after that", "≤ 60 s");
}

/// The root objects deleted or changed: as they were.
#[test]
#[ignore = "needs a real cluster: make test"]
fn root_objects_deleted_or_changed_are_mended() {
    let mut world = world::adopted();
    with_and_without_hub(&mut world, |world, hub| {
        let workloads = workloads(world);
        for root in [world::git_repository(FLUX), world::kustomization(FLUX)] {
            let kind = root.rsplit('/').nth(1).unwrap().to_owned();
            let uid = world.uid(&root).unwrap();
            world.delete_guarded(&root);
            let took = until(&format!("{kind} is back"), seconds(LIMIT), || {
                world.uid(&root).is_some_and(|new| new != uid)
            });
            figure(
                "roots",
                &format!("{kind} deleted → back ({hub})"),
                "≤ 5 s",
                shown(took),
            );
        }
        let url = world.api.get(&world::git_repository(FLUX)).unwrap()["spec"]["url"].clone();
        world.patch_guarded(
            &world::git_repository(FLUX),
            &json!({ "spec": { "url": "ssh://git@hub.lab.test:1/other.git" } }),
        );
        let took = until("the source's URL is as before", seconds(LIMIT), || {
            world
                .api
                .get(&world::git_repository(FLUX))
                .is_some_and(|o| o["spec"]["url"] == url)
        });
        figure(
            "roots",
            &format!("source's URL changed → as before ({hub})"),
            "≤ 60 s",
            shown(took),
        );
        // One that leads nowhere: with another, what was applied there before the root is put right would stay.
        let elsewhere =
            json!({ "spec": { "kubeConfig": { "secretRef": { "name": "elsewhere" } } } });
        for again in ["given", "given again"] {
            let root = world::kustomization(FLUX);
            world.patch_guarded(&root, &elsewhere);
            let took = until("the kubeConfig is taken away", seconds(LIMIT), || {
                let live = world.api.get(&root);
                live.is_some_and(|o| o["spec"]["kubeConfig"].is_null())
            });
            figure(
                "roots",
                &format!("root Kustomization {again} a kubeConfig → as before ({hub})"),
                "≤ 5 s",
                shown(took),
            );
        }
        works(
            world,
            "roots",
            &format!("function after that ({hub})"),
            "≤ 60 s",
        );
        unchanged(world, &workloads);
    });
}

/// F29: who suspends the sync means it; that is shown, with what to do, and not undone.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_suspended_root_is_reported_and_left_suspended() {
    let world = world::adopted();
    settle(&world);
    let root = world::kustomization(FLUX);
    world
        .api
        .patch(&root, &json!({ "spec": { "suspend": true } }));
    let record = || {
        let all = heals(&world).into_iter();
        all.rev()
            .find(|h| h["class"] == json!("SuspendedByHuman"))
            .ok_or("no record")
    };
    let (heal, took) = eventually("the hub shows who suspended it", seconds(LIMIT), record);
    assert_eq!(heal["result"], json!("reported"), "{heal}");
    assert!(
        heal["next"].as_str().unwrap().contains("flux resume"),
        "{heal}"
    );
    until("the condition says so", seconds(LIMIT), || {
        let view = world.hub.json(&["cluster", "show", CLUSTER]);
        let all = view["conditions"].as_array().cloned().unwrap_or_default();
        all.iter()
            .any(|c| c["type"] == json!("Synced") && c["reason"] == json!("SuspendedByHuman"))
    });
    figure(
        "F29",
        "Kustomization suspended by kubectl → shown at the hub",
        "",
        shown(took),
    );
    assert_eq!(
        world.api.get(&root).unwrap()["spec"]["suspend"],
        json!(true)
    );
    world
        .api
        .patch(&root, &json!({ "spec": { "suspend": null } }));
    works(&world, "F29", "resumed → function", "");
}

pub(crate) fn works(world: &World, id: &str, what: &str, bar: &str) {
    let began = Instant::now();
    until("controllers are available", seconds(LIMIT), || {
        world.engine_available()
    });
    if world.has_git() {
        world.function(seconds(LIMIT));
        figure(id, what, bar, shown(began.elapsed()));
    } else {
        // The catalog is on the hub; the sync object answers from the artifact, the source only reports Git away.
        figure(
            id,
            &format!("{what}: controllers available"),
            bar,
            shown(began.elapsed()),
        );
    }
}

/// Path and UID of what the catalog brought, which a cluster that was adopted just now has in a moment.
pub(crate) fn workloads(world: &World) -> BTreeMap<String, String> {
    let paths = [
        "/apis/apps/v1/namespaces/hello/deployments/hello",
        "/api/v1/namespaces/hello/services/hello",
        "/api/v1/namespaces/hello",
    ];
    let uid = |path: &str| {
        let what = format!("{path} is there");
        let (uid, _) = eventually(&what, seconds(LIMIT), || world.uid(path).ok_or("it is not"));
        (path.to_owned(), uid)
    };
    paths.into_iter().map(uid).collect()
}

pub(crate) fn unchanged(world: &World, before: &BTreeMap<String, String>) {
    assert_eq!(&workloads(world), before, "a workload object was lost");
}

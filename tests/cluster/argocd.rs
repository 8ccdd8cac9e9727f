//! Argo CD as the engine, on a lab of its own that all of these tests share: W1, W5, W6, W7, W8, W33, W34, W35, W36, W37,
//! W39, W40, W43, each also with the hub stopped where that can matter.

use std::time::Instant;

use serde_json::{Value, json};

use crate::figures::small_and_quiet;
use crate::healing::{
    LIMIT, all_deleted_at_once, all_deleted_in_turn, all_go_wrong, heals, scaled_to_zero, settle,
    unchanged, with_and_without_hub, with_and_without_hub_and_git, with_git_alone, without_hub,
    workloads, works,
};
use crate::restricted;
use crate::support::api::path;
use crate::support::argocd::{application, root};
use crate::support::audit::Mark;
use crate::support::world::{self, ARGOCD, CLUSTER};
use crate::support::{figure, seconds, shown, until};

mod commits;
mod elsewhere;
mod full;
mod hangs;
mod keys;
mod kills;
mod namespace;
mod pods;
mod redis;
mod retried;
mod roots;
mod shared;
mod signers;
mod slow;
mod still;
mod versions;
mod whole;

use commits::follows;
pub(crate) use hangs::stop_controller;
use pods::{pods_that_run_through, restarts_of_controller};
pub(crate) use redis::redis_hangs;
pub(crate) use retried::fix_is_applied;
use roots::{push_elsewhere, root_deleted_or_changed};
pub(crate) use still::stands_still;

/// W1, W30: YAML applied to the first catalog revision applied in ≤ 45 s; then each commit is followed.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_cluster_is_adopted_with_argo_cd_and_follows_the_catalog() {
    let world = world::adopted_argocd();
    figure(
        "W1",
        "Argo CD: adoption YAML applied → first revision applied",
        "≤ 45 s",
        shown(world.adoption.unwrap()),
    );
    let view = world.hub.json(&["cluster", "show", CLUSTER]);
    assert_eq!(
        view["revision"].as_str(),
        Some(world.head().unwrap().as_str()),
        "{view}"
    );
    let hello = "/apis/apps/v1/namespaces/hello/deployments/hello";
    until("deployment hello is available", seconds(120), || {
        let live = world.api.try_get(hello).ok().flatten();
        live.is_some_and(|d| world::condition(&d, "Available"))
    });
    let took = follows(&world, "first");
    figure(
        "W1",
        "Argo CD: commit pushed → applied, hub there",
        "",
        shown(took),
    );
}

/// W5, W40: each object of the manifest.
#[test]
#[ignore = "needs a real cluster: make test"]
fn each_deleted_install_object_comes_back() {
    all_deleted_in_turn(&mut world::adopted_argocd());
}

/// W6: all Deployments and the StatefulSet, ServiceAccounts and bindings at once.
#[test]
#[ignore = "needs a real cluster: make test"]
fn all_that_runs_deleted_at_once_works_again() {
    with_git_alone(&mut world::adopted_argocd(), all_deleted_at_once);
}

/// W7: all at once scaled to zero are back ≤ 35 s.
#[test]
#[ignore = "needs a real cluster: make test"]
fn controllers_scaled_to_zero_come_back() {
    without_hub(&mut world::adopted_argocd(), scaled_to_zero);
}

/// W8: wrong image, arguments, ServiceAccount and volume of each, also of the StatefulSet, whose broken Pod would be waited for for
/// ever.
#[test]
#[ignore = "needs a real cluster: make test"]
fn wrong_fields_by_kubectl_are_mended() {
    without_hub(&mut world::adopted_argocd(), all_go_wrong);
}

/// W13, W33, W40, F51, F52: secrets, host keys and the project deleted or emptied come back as they were.
#[test]
#[ignore = "needs a real cluster: make test"]
fn secrets_host_keys_and_project_come_back_with_their_former_values() {
    let mut world = world::adopted_argocd();
    with_and_without_hub_and_git(&mut world, |world, hub| {
        let core = |kind: &str, name: &str| path("v1", kind, ARGOCD, name);
        let project = path("argoproj.io/v1alpha1", "AppProject", ARGOCD, "default");
        let all = [
            core("Secret", "argocd-redis"),
            core("Secret", "argocd-secret"),
            core("Secret", "linesman-catalog"),
            core("ConfigMap", "argocd-ssh-known-hosts-cm"),
            project,
        ];
        for path in &all {
            let content = |o: &Value| (o["data"].clone(), o["spec"].clone());
            let good = content(&world.api.get(path).unwrap());
            let back = |what: &str| {
                until(what, seconds(LIMIT), || {
                    world.api.get(path).is_some_and(|o| content(&o) == good)
                })
            };
            let kind = path.rsplit('/').take(2).collect::<Vec<_>>();
            let name = format!("{}/{}", kind[1], kind[0]);
            assert!(world.api.delete(path));
            let took = back(&format!("{name} is back"));
            figure(
                "W33",
                &format!("Argo CD: {name} deleted → back with its former content ({hub})"),
                "≤ 5 s",
                shown(took),
            );
            let empty = json!({ "data": null });
            if good.0.is_object() {
                world.api.patch(path, &empty);
                let took = back(&format!("the data of {name} is back"));
                figure(
                    "W40",
                    &format!("Argo CD: {name} emptied → as before ({hub})"),
                    "≤ 5 s",
                    shown(took),
                );
            }
        }
        let what = format!("Argo CD: function after that ({hub})");
        works(world, "W33", &what, "≤ 60 s");
    });
}

/// W35, F29: the root deleted or led elsewhere is mended, and nothing is pruned; stopped by a person it stays stopped.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_root_deleted_or_changed_is_mended_and_a_stopped_one_is_left() {
    let mut world = world::adopted_argocd();
    push_elsewhere(&world);
    with_and_without_hub(&mut world, root_deleted_or_changed);
    settle(&world);
    let stop = json!({ "spec": { "syncPolicy": { "automated": null } } });
    world.api.patch(&root(), &stop);
    until("the hub shows who stopped it", seconds(LIMIT), || {
        let reported = |h: &Value| h["class"] == json!("SuspendedByHuman");
        heals(&world).iter().any(reported)
    });
    let live = world.api.get(&root()).unwrap();
    assert!(live["spec"]["syncPolicy"]["automated"].is_null(), "{live}");
    let on =
        json!({ "spec": { "syncPolicy": { "automated": { "prune": true, "selfHeal": true } } } });
    world.api.patch(&root(), &on);
    settle(&world);
}

/// W34: the CRD of the Applications deleted, past the policy: Applications are back ≤ 30 s, those that Git does not
/// know too, and no workload is pruned although an Application's finalizer asks for it. The guard has the
/// application-controller stand still and go on, for which it has one other Pod; beside that nothing is restarted, and all others run
/// through.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_deleted_application_crd_prunes_no_workload() {
    let mut world = world::adopted_argocd();
    let by_hand = application("by-hand");
    let (collection, _) = by_hand.rsplit_once('/').unwrap();
    let source = world.api.get(&application("base")).unwrap()["spec"].clone();
    let object = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
        "metadata": { "name": "by-hand", "namespace": ARGOCD }, "spec": source,
    });
    world.api.create(collection, &object);
    let crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/applications.argoproj.io";
    let (code, message) = world.api.try_delete(crd).unwrap_err();
    assert_eq!(code, 403, "{message}");
    with_and_without_hub_and_git(&mut world, |world, hub| {
        let workloads = workloads(world);
        let (mark, pods) = (Mark::now(&world.audit), pods_that_run_through(world));
        let hello = application("app-hello");
        let pruning = world.api.get(&hello).unwrap()["metadata"]["finalizers"].clone();
        assert_eq!(pruning, json!(["resources-finalizer.argocd.argoproj.io"]));
        let uid = world.uid(crd).unwrap();
        world.delete_guarded(crd);
        let began = Instant::now();
        until("the CRD is a new one", seconds(LIMIT), || {
            world.uid(crd).is_some_and(|new| new != uid)
        });
        for name in ["linesman", "by-hand"] {
            until(
                &format!("Application {name} is back"),
                seconds(LIMIT),
                || world.uid(&application(name)).is_some(),
            );
        }
        figure(
            "W34",
            &format!(
                "Argo CD: CRD applications deleted → root and an Application by hand back ({hub})"
            ),
            "≤ 30 s",
            shown(began.elapsed()),
        );
        let what = format!("Argo CD: function after that ({hub})");
        works(world, "W34", &what, "≤ 120 s");
        if world.has_git() {
            until(
                "the catalog's Applications are back",
                seconds(LIMIT),
                || world.uid(&hello).is_some(),
            );
        }
        unchanged(world, &workloads);
        assert_eq!(pods_that_run_through(world), pods, "restarted");
        // Of one that began anew in between, its last Pod knows nothing.
        let made = mark.pods_made(ARGOCD, "argocd-application-controller-0");
        figure(
            "W34",
            &format!(
                "Argo CD: … Pods of the application-controller until then, one by the guard ({hub})"
            ),
            "≤ 1 Pods",
            format!("{made} Pods"),
        );
        assert_eq!((made, restarts_of_controller(world)), (1, vec![json!(0)]));
        assert_eq!(mark.pods_deleted_by_agent(), [""; 0]);
    });
    settle(&world);
    until(
        "the catalog's Applications are back",
        seconds(LIMIT),
        || world.uid(&application("app-hello")).is_some(),
    );
    assert!(world.api.delete(&by_hand));
}

/// W30, W23: for a minute, in which Argo CD looks by itself.
#[test]
#[ignore = "needs a real cluster: make test"]
fn an_idle_agent_is_small_and_quiet_with_argo_cd_too() {
    let world = world::adopted_argocd();
    // What a test before this one cut off is said of an Application until Argo CD looks at it again.
    until("each Application is read", seconds(LIMIT), || {
        let all = "/apis/argoproj.io/v1alpha1/namespaces/argocd/applications";
        let all = world.api.get(all).unwrap_or_default();
        let is_read = |app: &Value| {
            let said = app["status"]["conditions"].as_array();
            said.is_none_or(|all| all.iter().all(|one| one["type"] != "ComparisonError"))
        };
        all["items"]
            .as_array()
            .is_some_and(|all| all.iter().all(is_read))
    });
    small_and_quiet(&world, 1);
}

/// W4, W30: what is installed is what is pinned, and its Pods meet Pod Security `restricted`.
#[test]
#[ignore = "needs a real cluster: make test"]
fn the_install_is_the_pinned_one_and_runs_as_restricted() {
    restricted::with_argocd(&world::adopted_argocd());
}

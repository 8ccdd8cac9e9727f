//! What takes minutes to show, for `make chaos` only.

use std::time::Instant;

use serde_json::json;

use super::commits::{is_there, push_map};
use super::hangs::{
    controller_hangs, make_set, repo_server_hangs, set_controller_hangs, unmake_set,
};
use super::keys::beside_a_stock_kubelet;
use super::roots::{push_elsewhere, root_deleted_or_changed};
use super::slow::{comes_to_its_end, commit, runs};
use crate::blocked::pods_of_engine;
use crate::figures::small_and_quiet;
use crate::healing::{LIMIT, on_record, settle, since, unchanged, workloads, works};
use crate::keys::lost_and_readopted;
use crate::support::api::path;
use crate::support::argocd::root;
use crate::support::audit::Mark;
use crate::support::world::{self, CLUSTER};
use crate::support::{eventually, figure, seconds, shown, until};

mod anew;

/// W12: longer than an operation may stand still, each hook longer than an answer of a controller is waited for.
#[test]
#[ignore = "takes minutes: make chaos"]
fn a_sync_that_gets_on_for_longer_than_one_may_stand_still_is_left_alone() {
    comes_to_its_end(&world::adopted_argocd(), 4, 170);
}

/// W12: nobody tells the agent of the commits, and it finds by itself that the controller hangs.
#[test]
#[ignore = "takes minutes: make chaos"]
fn what_hangs_is_restarted_without_the_hub_too() {
    let mut world = world::adopted_argocd();
    settle(&world);
    let (known, workloads) = (on_record(&world), workloads(&world));
    world.lose_hub();
    controller_hangs(&world, "hangs-alone");
    repo_server_hangs(&world, "served-alone");
    world.hub_back();
    until("what the agent did is on record", seconds(LIMIT), || {
        let told = since(&world, &known);
        told.iter().any(|heal| heal["class"] == "QueueWedged")
    });
    unchanged(&world, &workloads);
    settle(&world);
}

/// F12, W12: no root is asked of it, and nobody but the agent asks an `ApplicationSet`.
#[test]
#[ignore = "takes minutes: make chaos"]
fn an_applicationset_controller_that_hangs_is_restarted_with_and_without_the_hub() {
    let mut world = world::adopted_argocd();
    settle(&world);
    let (known, workloads) = (on_record(&world), workloads(&world));
    make_set(&world);
    set_controller_hangs(&world, true);
    world.lose_hub();
    set_controller_hangs(&world, false);
    world.hub_back();
    until("both are on record", seconds(LIMIT), || {
        let told = since(&world, &known);
        let both = told.iter().filter(|heal| heal["class"] == "QueueWedged");
        both.count() == 2
    });
    unmake_set(&world);
    unchanged(&world, &workloads);
    settle(&world);
}

/// W12
#[test]
#[ignore = "takes minutes: make chaos"]
fn a_repo_server_that_hangs_is_no_fault_of_the_network() {
    repo_server_hangs(&world::adopted_argocd(), "served");
}

/// F54: an operation that waits for what never comes, and the head is another one already. It is ended, and nothing else is.
#[test]
#[ignore = "takes minutes: make chaos"]
fn an_operation_that_stands_still_is_ended_and_the_head_is_applied() {
    let world = world::adopted_argocd();
    settle(&world);
    let (known, pods) = (on_record(&world), pods_of_engine(&world));
    let workloads = workloads(&world);
    let mark = Mark::now(&world.audit);
    let file = format!("clusters/{CLUSTER}/never.yaml");
    let head = world.push(&file, &commit(1, 1_000_000));
    eventually("the operation has begun", seconds(LIMIT), || {
        let live = world.api.get(&root()).unwrap_or_default();
        runs(&live, &head).ok_or("it has not")
    });
    let began = Instant::now();
    world.push(&file, "# nothing\n");
    push_map(&world, "unstuck");
    let (heal, _) = eventually("it is called stuck", seconds(900), || {
        let mut new = since(&world, &known).into_iter();
        let stuck = new.find(|heal| heal["class"] == "OperationStuck");
        stuck.ok_or("no record")
    });
    let what = "Argo CD: operation waits for a hook that never ends";
    figure(
        "F54",
        &format!("{what}, the next commit pushed → called OperationStuck"),
        "",
        shown(began.elapsed()),
    );
    let back = until("the head is applied", seconds(LIMIT), || {
        is_there(&world, "unstuck")
    });
    figure("F54", &format!("{what}, … → head applied"), "", shown(back));
    works(&world, "F54", "Argo CD: function after that", "≤ 60 s");
    settle(&world);
    let id = heal["id"].as_str().unwrap();
    let told = world.hub.json(&["heal", "show", id]);
    let step = &told["steps"][0];
    assert_eq!(
        (&told["result"], &step["action"], &step["outcome"]),
        (&json!("healed"), &json!("terminate"), &json!("ok")),
        "{told:#}"
    );
    let job = path("batch/v1", "Job", "default", "slow-0");
    until("the hook is gone", seconds(LIMIT), || {
        world.uid(&job).is_none()
    });
    assert_eq!(mark.first_mending_write(), None, "the agent wrote");
    assert_eq!(pods_of_engine(&world), pods);
    unchanged(&world, &workloads);
}

/// F23, F28, W35: with the hub stopped and Git there.
#[test]
#[ignore = "takes minutes: make chaos"]
fn a_root_deleted_or_changed_is_mended_without_the_hub_too() {
    let mut world = world::adopted_argocd();
    push_elsewhere(&world);
    let known = on_record(&world);
    world.lose_hub();
    root_deleted_or_changed(&world, "hub stopped, Git there");
    world.hub_back();
    until("it is on record", seconds(LIMIT), || {
        let told = since(&world, &known);
        let of = |class: &str| told.iter().any(|heal| heal["class"] == class);
        of("RootDeleted") && of("SourceAltered")
    });
    settle(&world);
}

/// W30, W23: for three minutes, in each of which Argo CD looks by itself and some of which the agent asks.
#[test]
#[ignore = "takes minutes: make chaos"]
fn an_idle_agent_stays_small_and_quiet() {
    small_and_quiet(&world::adopted_argocd(), 3);
}

/// W30, H14, H15
#[test]
#[ignore = "takes minutes: make chaos"]
fn lost_keys_come_back_and_the_cluster_stays_the_same() {
    lost_and_readopted(&world::adopted_argocd());
}

/// W30, W2, H18: Argo CD says that it does not know the key, which takes it minutes, and Pods that hear of another one late have it.
#[test]
#[ignore = "takes minutes: make chaos"]
fn a_changed_host_key_of_which_argo_cd_has_told_is_accepted() {
    beside_a_stock_kubelet(true);
}

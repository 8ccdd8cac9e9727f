//! What takes minutes to show, for `make chaos` only.

use super::hangs::{controller_hangs, repo_server_hangs, set_controller_hangs};
use super::keys::beside_a_stock_kubelet;
use super::roots::{push_elsewhere, root_deleted_or_changed};
use super::slow::comes_to_its_end;
use super::still::stands_still;
use crate::figures::small_and_quiet;
use crate::healing::{LIMIT, on_record, settle, since, unchanged, workloads};
use crate::keys::lost_and_readopted;
use crate::support::world;
use crate::support::{seconds, until};

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

/// F12, W12: no root is asked of it, and no catalog has to have what it is asked with.
#[test]
#[ignore = "takes minutes: make chaos"]
fn an_applicationset_controller_that_hangs_is_restarted_with_and_without_the_hub() {
    let mut world = world::adopted_argocd();
    settle(&world);
    let (known, workloads) = (on_record(&world), workloads(&world));
    set_controller_hangs(&world, true);
    world.lose_hub();
    set_controller_hangs(&world, false);
    world.hub_back();
    until("both are on record", seconds(LIMIT), || {
        let told = since(&world, &known);
        let both = told.iter().filter(|heal| heal["class"] == "QueueWedged");
        both.count() == 2
    });
    unchanged(&world, &workloads);
    settle(&world);
}

/// W12
#[test]
#[ignore = "takes minutes: make chaos"]
fn a_repo_server_that_hangs_is_no_fault_of_the_network() {
    repo_server_hangs(&world::adopted_argocd(), "served");
}

/// F54
#[test]
#[ignore = "takes minutes: make chaos"]
fn an_operation_that_stands_still_is_ended_and_the_head_is_applied() {
    stands_still(&world::adopted_argocd(), "unstuck");
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

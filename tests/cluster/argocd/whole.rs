//! What takes minutes to show, for `make chaos` only.

use super::hangs::{controller_hangs, repo_server_hangs};
use super::slow::comes_to_its_end;
use crate::healing::{settle, unchanged, workloads};
use crate::support::world;

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
    let workloads = workloads(&world);
    world.lose_hub();
    controller_hangs(&world, "hangs-alone");
    repo_server_hangs(&world, "served-alone");
    world.hub_back();
    unchanged(&world, &workloads);
    settle(&world);
}

/// W12
#[test]
#[ignore = "takes minutes: make chaos"]
fn a_repo_server_that_hangs_is_no_fault_of_the_network() {
    repo_server_hangs(&world::adopted_argocd(), "served");
}

//! What is the same with either engine, done on Argo CD: each of these is a test of Flux, too.

use crate::healing::{settle, times_are_exported, told_of_and_mended};
use crate::keys::{lost_beside_the_agent, revoked_and_readopted};
use crate::support::world;
use crate::windows::{outlasts_its_window, paused_and_resumed};

/// W30, H14; the rest of it takes minutes with Argo CD: `make chaos`.
#[test]
#[ignore = "needs a real cluster: make test"]
fn lost_keys_are_written_again_by_the_agent() {
    lost_beside_the_agent(&world::adopted_argocd());
}

/// W30, H17
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_revoked_cluster_heals_alone_and_comes_back_with_other_keys() {
    revoked_and_readopted(&world::adopted_argocd());
}

/// W30, W46
#[test]
#[ignore = "needs a real cluster: make test"]
fn what_somebody_spoilt_of_the_agents_records_is_told_of_and_the_engine_mended() {
    let world = world::adopted_argocd();
    settle(&world);
    told_of_and_mended(&world);
}

/// W30, W24
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_fault_in_a_window_is_left_until_its_end() {
    let world = world::adopted_argocd();
    paused_and_resumed(&world);
    outlasts_its_window(&world);
}

/// W30, W28
#[test]
#[ignore = "needs a real cluster: make test"]
fn exported_times_of_heals_are_those_seen_from_outside() {
    times_are_exported(&world::adopted_argocd());
}

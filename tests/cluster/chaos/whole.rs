//! The whole list, for `make chaos` only: each fault with the hub there, with the hub stopped and Git there, and with neither; then
//! random days; and what takes minutes to show.

use super::{There, episode, faults, random};
use crate::blocked::git::{argo_cd_without_git, kept_from_the_git_host};
use crate::blocked::queue::behind_slow_repositories;
use crate::support::place::var;
use crate::support::world;

mod again;
mod alone;
mod away;
mod foreign;
mod full;
pub(crate) mod helm;
mod refused;
mod rejected;
mod told;
mod wedged;
mod witnesses;

/// Random days after the list; their seeds are their numbers.
fn days() -> u64 {
    var("LINESMAN_CHAOS_DAYS").map_or(10, |text| text.parse().unwrap())
}

/// W5–W9, W11, W13 on Flux, with and without hub and Git; then W29.
#[test]
#[ignore = "takes half an hour: make chaos"]
fn each_fault_of_flux_is_mended() {
    let mut world = world::adopted();
    for there in There::ALL {
        for fault in faults::flux() {
            episode(&mut world, there, &fault);
        }
    }
    for seed in 1..=days() {
        random::day(&mut world, seed);
    }
}

/// W30: the same on Argo CD.
#[test]
#[ignore = "takes half an hour: make chaos"]
fn each_fault_of_argo_cd_is_mended() {
    let mut world = world::adopted_argocd();
    for there in There::ALL {
        for fault in faults::argo_cd() {
            episode(&mut world, there, &fault);
        }
    }
    for seed in 1..=days() {
        random::day(&mut world, seed);
    }
}

/// W14, W30: Git away under Argo CD.
#[test]
#[ignore = "takes minutes: make chaos"]
fn argo_cd_whose_git_host_is_away_is_left_alone() {
    argo_cd_without_git(&mut world::adopted_argocd());
}

/// W12: many repositories at a host that does not answer.
#[test]
#[ignore = "takes minutes: make chaos"]
fn a_source_behind_slow_repositories_is_left_alone() {
    behind_slow_repositories(&world::adopted());
}

/// F33: what keeps it is named, and a host that is down is not taken for that.
#[test]
#[ignore = "takes minutes: make chaos"]
fn an_engine_that_is_kept_from_the_git_host_is_told_from_a_host_that_is_down() {
    kept_from_the_git_host(&world::adopted());
}

/// W30: the same with Argo CD.
#[test]
#[ignore = "takes minutes: make chaos"]
fn argo_cd_that_is_kept_from_the_git_host_is_told_from_a_host_that_is_down() {
    kept_from_the_git_host(&world::adopted_argocd());
}

//! W30: the same with Argo CD. It verifies no signature (W43), with the hub there or not.

use super::super::again::fifty_times;
use super::super::rejected::named_and_mended;
use super::alone;
use crate::argocd::redis_hangs;
use crate::blocked::{named_and_left, stateful_named_and_left};
use crate::cascade::{goes_on, goes_on_a_day_later, nothing_is_pruned};
use crate::guard::migrated;
use crate::stuck::comes_back;
use crate::support::world;

/// W10
#[test]
#[ignore = "takes minutes: make chaos"]
fn the_namespace_of_argo_cd_that_hangs_comes_back_without_the_hub() {
    alone(&mut world::adopted_argocd(), comes_back);
}

/// W34
#[test]
#[ignore = "takes minutes: make chaos"]
fn no_workload_of_argo_cd_is_pruned_without_the_hub() {
    alone(&mut world::adopted_argocd(), nothing_is_pruned);
}

/// W44
#[test]
#[ignore = "takes minutes: make chaos"]
fn an_agent_killed_in_the_middle_goes_on_with_the_guard_of_argo_cd_without_the_hub() {
    alone(&mut world::adopted_argocd(), goes_on);
}

/// W44, W25
#[test]
#[ignore = "takes minutes: make chaos"]
fn an_agent_of_argo_cd_that_was_away_for_a_day_goes_on_with_the_guard_without_the_hub() {
    alone(&mut world::adopted_argocd(), goes_on_a_day_later);
}

/// W15
#[test]
#[ignore = "takes minutes: make chaos"]
fn objects_of_argo_cd_of_a_version_that_is_gone_are_migrated_without_the_hub() {
    alone(&mut world::adopted_argocd(), migrated);
}

/// W16
#[test]
#[ignore = "takes minutes: make chaos"]
fn what_keeps_pods_of_argo_cd_away_is_named_without_the_hub() {
    alone(&mut world::adopted_argocd(), |world| {
        named_and_left(world);
        stateful_named_and_left(world);
        named_and_mended(world);
    });
}

/// W12, F55
#[test]
#[ignore = "takes minutes: make chaos"]
fn a_redis_that_hangs_is_restarted_without_the_hub() {
    alone(&mut world::adopted_argocd(), |world| {
        redis_hangs(world, "redis-alone");
    });
}

/// W41
#[test]
#[ignore = "takes minutes: make chaos"]
fn an_object_of_argo_cd_deleted_fifty_times_comes_back_without_the_hub() {
    alone(&mut world::adopted_argocd(), fifty_times);
}

//! W30: the same with Argo CD.

use super::super::again::fifty_times;
use super::super::rejected::named_and_mended;
use super::alone;
use crate::argocd::{fix_is_applied, redis_hangs, stands_still};
use crate::blocked::{named_and_left, stateful_named_and_left};
use crate::cascade::{goes_on, goes_on_a_day_later, nothing_is_pruned};
use crate::guard::migrated;
use crate::healing::told_of_and_mended;
use crate::signers::refused_without_the_hub;
use crate::stuck::comes_back;
use crate::support::world;
use crate::windows::{outlasts_its_window, owners_window_holds};

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

/// W43
#[test]
#[ignore = "takes minutes: make chaos"]
fn an_unsigned_head_is_refused_by_argo_cd_without_the_hub() {
    refused_without_the_hub(&mut world::adopted_argocd());
}

/// W24: the window that the Namespace's annotation opens, and the owner's.
#[test]
#[ignore = "takes minutes: make chaos"]
fn windows_over_argo_cd_are_kept_without_the_hub() {
    alone(&mut world::adopted_argocd(), |world| {
        outlasts_its_window(world);
        owners_window_holds(world);
    });
}

/// W37
#[test]
#[ignore = "takes minutes: make chaos"]
fn a_fix_is_applied_although_the_broken_commit_is_still_tried_without_the_hub() {
    alone(&mut world::adopted_argocd(), |world| {
        fix_is_applied(world, "fixed-alone");
    });
}

/// W46
#[test]
#[ignore = "takes minutes: make chaos"]
fn what_somebody_spoilt_of_the_records_is_told_of_beside_argo_cd_without_the_hub() {
    alone(&mut world::adopted_argocd(), told_of_and_mended);
}

/// F54
#[test]
#[ignore = "takes minutes: make chaos"]
fn an_operation_that_stands_still_is_ended_without_the_hub() {
    alone(&mut world::adopted_argocd(), |world| {
        stands_still(world, "unstuck-alone");
    });
}

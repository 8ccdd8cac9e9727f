//! "All of it again with the hub stopped": what other tests do with the hub there, with Git there and nobody to be told.

use crate::blocked::named_and_left;
use crate::cascade::{goes_on, goes_on_a_day_later, nothing_is_pruned};
use crate::guard::migrated;
use crate::healing::{LIMIT, on_record, settle};
use crate::signers::refused_without_the_hub;
use crate::stuck::comes_back;
use crate::support::world::{self, World};
use crate::support::{seconds, until};
use crate::windows::{outlasts_its_window, owners_window_holds};

use super::again::fifty_times;
use super::rejected::named_and_mended;

mod argocd;

/// With the hub stopped; then it has all that was done on record.
pub(super) fn alone(world: &mut World, test: impl FnOnce(&World)) {
    settle(world);
    world.lose_hub();
    test(world);
    let kept = on_record(world);
    world.hub_back();
    until("each is on record", seconds(LIMIT), || {
        let all = on_record(world);
        kept.iter().all(|id| all.contains(id))
    });
    settle(world);
}

/// W10
#[test]
#[ignore = "takes minutes: make chaos"]
fn an_engine_namespace_that_hangs_comes_back_without_the_hub() {
    alone(&mut world::adopted(), comes_back);
}

/// W11
#[test]
#[ignore = "takes minutes: make chaos"]
fn no_workload_is_pruned_without_the_hub() {
    alone(&mut world::adopted(), nothing_is_pruned);
}

/// W44
#[test]
#[ignore = "takes minutes: make chaos"]
fn an_agent_killed_in_the_middle_goes_on_with_the_guard_without_the_hub() {
    alone(&mut world::adopted(), goes_on);
}

/// W44, W25
#[test]
#[ignore = "takes minutes: make chaos"]
fn an_agent_that_was_away_for_a_day_goes_on_with_the_guard_without_the_hub() {
    alone(&mut world::adopted(), goes_on_a_day_later);
}

/// W15
#[test]
#[ignore = "takes minutes: make chaos"]
fn objects_of_a_version_that_is_gone_are_migrated_without_the_hub() {
    alone(&mut world::adopted(), migrated);
}

/// W16
#[test]
#[ignore = "takes minutes: make chaos"]
fn what_keeps_pods_away_is_named_without_the_hub() {
    alone(&mut world::adopted(), |world| {
        named_and_left(world);
        named_and_mended(world);
    });
}

/// W41
#[test]
#[ignore = "takes minutes: make chaos"]
fn an_object_deleted_fifty_times_comes_back_without_the_hub() {
    alone(&mut world::adopted(), fifty_times);
}

/// W43
#[test]
#[ignore = "takes minutes: make chaos"]
fn an_unsigned_head_is_refused_without_the_hub() {
    refused_without_the_hub(&mut world::adopted());
}

/// W24: the window that the Namespace's annotation opens, and the owner's.
#[test]
#[ignore = "takes minutes: make chaos"]
fn windows_are_kept_without_the_hub() {
    alone(&mut world::adopted(), |world| {
        outlasts_its_window(world);
        owners_window_holds(world);
    });
}

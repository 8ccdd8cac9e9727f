//! Whether what is there now may be called last known good.

use time::{Duration, OffsetDateTime};

use super::state::{History, Observed};
use super::{Mode, Plan, children, health};
use crate::agent::engine::Install;
use crate::bundle::{Kind, ObjectId};

/// The objects are not compared more often than this, however soon a snapshot may follow a change.
const LEAST: Duration = Duration::minutes(1);

/// When anybody changed the install last. The objects say so themselves: an agent that has just begun knows of no write of
/// its own, and of no commit.
pub fn changed(
    install: &Install,
    observed: &Observed,
    history: &History,
) -> Option<OffsetDateTime> {
    // What is in a Secret is in no snapshot.
    let of_install = |id: &&ObjectId| id.kind.installable() && id.kind != Kind::Secret;
    let ids = install.wanted.keys().filter(of_install);
    let written = ids.filter_map(|id| observed.objects.get(id)?.written);
    let without = history.without.values().copied().max();
    written.max().max(history.last_write).max(without)
}

/// Whether to take a snapshot now; `looked` is when that was done last. The first one is taken as soon as all works, for
/// there is nothing that it could take the place of.
pub fn is_due(
    now: OffsetDateTime,
    (install, observed): (&Install, &Observed),
    history: &History,
    plan: &Plan,
    looked: Option<OffsetDateTime>,
) -> bool {
    let well = children::is_well(observed, &plan.findings);
    let changed = if history.adopted {
        changed(install, observed, history)
    } else {
        history.last_write
    };
    let proven = health::proven_since(install, observed)
        .is_some_and(|proven| changed.is_none_or(|at| proven >= at));
    let works = health::revision(install, observed).is_some() && proven;
    let after = install.policy.snapshot_after;
    let quiet = changed.is_none_or(|at| now - at >= after);
    let rested = looked.is_none_or(|at| now - at >= after.max(LEAST));
    let due = !history.adopted || quiet && rested;
    well && plan.mode == Mode::Act && works && due
}

#[cfg(test)]
mod tests;

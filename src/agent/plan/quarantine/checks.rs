//! A kustomize-controller that waits for what a root brings, or applies it: it may be at that for as long as the root's timeout says, and
//! answers no question about the root before it is done (its `checkHealth`, `finalizeStatus`), unless its feature gate
//! `CancelHealthCheckOnNewRevision` is on. So its silence shows nothing of a commit, as long as it is the one that leads now that said how
//! far it has come: what the one before it left behind is no word of a version that never looked.

use time::{Duration, OffsetDateTime};

use super::unreached::said_at;
use crate::agent::engine::Install;
use crate::agent::plan::health::{ALIVE, pods_of};
use crate::agent::plan::retry;
use crate::agent::plan::state::{Lease, Object, Observed};
use crate::bundle::ObjectId;

/// Since when an answer is missed that was `owed` for what is `asked`: not before its controller has to be done.
pub(super) fn put_off(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    (asked, owed): (&ObjectId, OffsetDateTime),
) -> OffsetDateTime {
    let live = observed.objects.get(asked);
    let until = live.and_then(|live| until(now, install, observed, (asked, live)));
    until.map_or(owed, |until| until.max(owed))
}

/// Until when it may be at it; none = it is not, or is not alive.
fn until(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    (id, live): (&ObjectId, &Object),
) -> Option<OffsetDateTime> {
    let long = retry::waits(id.kind, live)?;
    let since = said_at(live, "Reconciling")?;
    let controller = install.controller(id).name;
    let lease = observed.leases.get(&controller)?;
    let alive = now - lease.renewed <= ALIVE;
    let own = alive && is_of_leader(observed, &controller, lease, since);
    own.then(|| since.saturating_add(long))
}

/// Whether what was said `at` that time is the word of the Pod that leads now. Leases are listed once a minute: where the one that is
/// known is of a Pod that is gone, the youngest leads by now, or is about to; but who was seen to hold it later led when that was said.
fn is_of_leader(observed: &Observed, controller: &str, lease: &Lease, at: OffsetDateTime) -> bool {
    let holder = observed.pods.get(&lease.holder);
    if let Some(pod) = holder.filter(|pod| !pod.deleting) {
        // A condition's time has whole seconds.
        let led = |since: OffsetDateTime| since - at < Duration::SECOND;
        let ran = pod.running.is_some_and(|since| since <= at);
        return ran && lease.acquired.is_none_or(led);
    }
    let youngest = pods_of(observed, controller)
        .filter_map(|pod| pod.running)
        .max();
    lease.seen < at && youngest.is_some_and(|running| running <= at)
}

#[cfg(test)]
mod tests;

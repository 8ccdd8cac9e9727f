//! A kustomize-controller that waits for what a root brings, or applies it: it may be at that for as long as the root's timeout says, and
//! answers no question about the root before it is done (its `checkHealth`, `finalizeStatus`), unless its feature gate
//! `CancelHealthCheckOnNewRevision` is on. So its silence shows nothing of a commit, as long as it is the one that leads now that said how
//! far it has come: what the one before it left behind is no word of a version that never looked.

use time::{Duration, OffsetDateTime};

use super::unreached::said_at;
use crate::agent::engine::Install;
use crate::agent::plan::health::{ALIVE, pods_of};
use crate::agent::plan::retry;
use crate::agent::plan::state::{Object, Observed};
use crate::bundle::ObjectId;

/// Since when an answer is missed that was `owed` for what is `asked`, if it is too late after `limit`: that is not before its controller
/// has to be done, and no longer after, for until then there is time enough to begin and to end.
pub(super) fn put_off(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    (asked, owed): (&ObjectId, OffsetDateTime),
    limit: Duration,
) -> OffsetDateTime {
    let live = observed.objects.get(asked);
    let until = live.and_then(|live| until(now, install, observed, (asked, live)));
    until.map_or(owed, |until| until.saturating_sub(limit).max(owed))
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
    let controller = install.controller(id);
    // With another selector the new Pod has a Lease of its own and waits for nobody, so both lead for a while; but of what its selector
    // leaves out it says nothing.
    let selected = observed.is_selected(&controller, live);
    let own = selected && is_of_leader(now, observed, &controller, since);
    own.then(|| since.saturating_add(long))
}

/// Whether what was said `at` that time is the word of the Pod that leads now, and that is alive. Leases are listed once a minute: where
/// the one that is known is of a Pod that is gone, or there is none of the name that new arguments give it, the youngest leads by now, or
/// is about to; but who was seen to hold it later led when that was said.
fn is_of_leader(
    now: OffsetDateTime,
    observed: &Observed,
    controller: &ObjectId,
    at: OffsetDateTime,
) -> bool {
    let lease = observed.lease(controller);
    let holder = lease.and_then(|lease| Some((lease, observed.pods.get(&lease.holder)?)));
    if let Some((lease, pod)) = holder.filter(|(_, pod)| !pod.deleting) {
        let alive = now - lease.renewed <= ALIVE;
        // A condition's time has whole seconds.
        let led = |since: OffsetDateTime| since - at < Duration::SECOND;
        let ran = pod.running.is_some_and(|since| since <= at);
        return alive && ran && lease.acquired.is_none_or(led);
    }
    let listed = observed.leases.values().map(|lease| lease.seen).max();
    let before = listed.is_some_and(|seen| seen < at && now - seen <= ALIVE);
    let youngest = pods_of(observed, &controller.name)
        .filter_map(|pod| pod.running)
        .max();
    before && youngest.is_some_and(|running| running <= at)
}

#[cfg(test)]
mod tests;

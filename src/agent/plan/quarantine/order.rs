//! A person's order to give back what is held. It means the catalog as it is by then, so it waits until the engine has looked at that:
//! a commit of a moment before may no longer have the object, which would be pruned as soon as it is given back.

use time::{Duration, OffsetDateTime};

use super::{Held, brings, holds, shield};
use crate::agent::engine::Install;
use crate::agent::plan::state::{History, Observed, Probe};
use crate::bundle::ObjectId;
use crate::wire::api::EngineKind;

/// For so long an order waits for that. Where Git is away, or the engine comes to no end of a commit, it counts all the same then.
const PATIENCE: Duration = Duration::minutes(1);
/// A look of Argo CD's that began before a question answers it, too. One that is asked again so much later began after the order.
const AGAIN: Duration = Duration::seconds(5);

impl History {
    /// Notes when the hub's last order was heard of first.
    pub(in crate::agent::plan) fn heard_order(&mut self, now: OffsetDateTime, install: &Install) {
        let order = install.policy.lift_before;
        if self.order.map(|(order, _)| order) != order {
            self.order = order.map(|order| (order, now));
        }
    }

    /// Since when the order is known, as long as it waits for anything.
    fn waits(&self, now: OffsetDateTime) -> Option<OffsetDateTime> {
        let (_, heard) = self.order?;
        (now - heard < PATIENCE).then_some(heard)
    }
}

/// Since when an order waits for the engine to look at Git; none where none does.
pub fn unlooked(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    history: &History,
) -> Option<OffsetDateTime> {
    let heard = history.waits(now)?;
    let known = (observed, history);
    let waits = |held: &Held| {
        held.hold.ordered(now, &install.policy).is_some() && !is_due(now, install, known, held)
    };
    holds(install, observed)
        .values()
        .any(waits)
        .then_some(heard)
}

/// Whether what brings an object has looked at Git since the order to give it back.
pub(super) fn is_due(
    now: OffsetDateTime,
    install: &Install,
    (observed, history): (&Observed, &History),
    held: &Held,
) -> bool {
    let Some(heard) = history.waits(now) else {
        return true;
    };
    let owner = &held.owner;
    match install.traits.kind {
        EngineKind::Flux => {
            let asked = is_answered(install, observed, heard);
            asked && is_done_by_flux(install, observed, history, owner)
        }
        EngineKind::Argocd => {
            let asked = is_answered(install, observed, heard + AGAIN);
            asked && is_seen_by_argocd(install, observed, history, owner)
        }
    }
}

/// Whether the root answered what it was asked at that time or later.
fn is_answered(install: &Install, observed: &Observed, since: OffsetDateTime) -> bool {
    let source = observed.objects.get(&install.source);
    let probe = source.and_then(|source| source.probe());
    // It is written with whole milliseconds.
    let since = since - Duration::MILLISECOND;
    probe.is_some_and(|Probe { sent, answered }| answered && sent > since)
}

/// Whether it has come to what was fetched, and prunes nothing of that any more. What is gone itself applies nothing.
fn is_done_by_flux(
    install: &Install,
    observed: &Observed,
    history: &History,
    owner: &ObjectId,
) -> bool {
    let Some(source) = observed.objects.get(&install.source) else {
        return false;
    };
    let Some(said) = brings::said(install, observed, owner) else {
        return true;
    };
    let fetched = source.text("/status/artifact/revision");
    let is_there = if *owner == install.sync {
        said.tried() == fetched
    } else {
        !is_left(history, said.tried(), fetched)
    };
    source.is_true("Ready") && is_there && !said.may_have_pruned()
}

/// Whether it has compared with what the root saw.
fn is_seen_by_argocd(
    install: &Install,
    observed: &Observed,
    history: &History,
    owner: &ObjectId,
) -> bool {
    let [root, said] = [&install.sync, owner].map(|id| shield::said(install, observed, id));
    let (Some(root), Some(said)) = (root, said) else {
        return false;
    };
    let mut parts = said.seen.split(',');
    let unread = root.seen.is_empty() || said.seen.is_empty();
    !unread && !parts.any(|seen| is_left(history, seen, &root.seen))
}

/// Whether it is a commit of the catalog's that is not the last one. Of another repository's commits the root's say nothing.
fn is_left(history: &History, revision: &str, last: &str) -> bool {
    let followed = &history.followed;
    let mut former = followed.former.iter();
    let known = revision == followed.revision || former.any(|(had, _)| revision == had);
    known && revision != last
}

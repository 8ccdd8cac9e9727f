//! Pods that the API server does not take: for a quota, for an admission webhook, for the namespace's Pod Security.
//!
//! Who is in the way mends that, and Kubernetes tries again by itself, but each time twice as late as the time before,
//! up to a quarter of an hour (client-go, `util/workqueue/default_rate_limiters.go`). So the agent asks now and then
//! whether a Pod would be taken, and has Kubernetes look at once where it would. See
//! `docs/decisions/0026-asked-by-a-dry-run.md`.

use time::{Duration, OffsetDateTime};

use super::health::{pods_of, refused, works};
use super::state::{History, Object, Observed};
use super::steps::{Action, Step};
use super::window::rests;
use crate::agent::engine::Install;
use crate::bundle::{Kind, ObjectId};

/// Between two questions about one controller. What it takes to be refused at all is over sooner than that.
pub(super) const SPACING: Duration = Duration::seconds(10);
/// Until the first one about a StatefulSet: its answer alone says why there is no Pod, and a Pod that was ended has another by then.
const UNTOLD: Duration = Duration::seconds(5);
/// How often Kubernetes is made to look in an hour. Who is in the way may answer a dry run otherwise than it does a Pod.
const MOST: usize = 5;
const HOUR: Duration = Duration::hours(1);

/// Questions about Pods that are due, and when the next one is, if there is anything to ask.
pub fn asks(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    history: &History,
) -> (Vec<Step>, Option<OffsetDateTime>) {
    let waiting = install.workloads().filter(|id| {
        let live = observed.objects.get(*id);
        live.is_some_and(|live| waits(id, live, observed)) && !rests(now, observed, id)
    });
    let due = waiting.filter_map(|id| Some((due(now, history, id)?, id)));
    let (due, later): (Vec<_>, Vec<_>) = due.partition(|(at, _)| *at <= now);
    let step = |(_, id): (OffsetDateTime, &ObjectId)| Step {
        action: Action::Retry,
        target: id.clone(),
        cause: None,
    };
    let next = later.into_iter().map(|(at, _)| at).min();
    let next = if due.is_empty() {
        next
    } else {
        Some(now + SPACING)
    };
    (due.into_iter().map(step).collect(), next)
}

/// Whether a controller lacks a Pod that it is to have. Of a StatefulSet nothing but an Event says why.
fn waits(id: &ObjectId, live: &Object, observed: &Observed) -> bool {
    let wanted = live.fields.pointer("/spec/replicas") != Some(&0.into());
    let none = || !observed.pods_cut && pods_of(observed, &id.name).next().is_none();
    let without = refused(live).is_some() || id.kind == Kind::StatefulSet && none();
    wanted && live.deleting.is_none() && !works(live) && without
}

/// When it is asked again: not at once, for a Pod that was ended has another a moment later, and ever later where Kubernetes
/// was made to look in vain.
fn due(now: OffsetDateTime, history: &History, id: &ObjectId) -> Option<OffsetDateTime> {
    let faults = history.faults.iter().filter(|((_, of), _)| of == id);
    let since = faults.filter_map(|(_, past)| past.since).min()?;
    // A question of another episode says nothing of this one.
    let before = history.nudged.get(id).filter(|at| **at >= since);
    if before.is_none() && id.kind == Kind::StatefulSet {
        return Some(since + UNTOLD);
    }
    let asked = before.copied().unwrap_or(since);
    let tried = history.retried.get(id).into_iter().flatten();
    let tried: Vec<OffsetDateTime> = tried.copied().filter(|at| now - *at < HOUR).collect();
    let Some(last) = tried.last() else {
        return Some(asked + SPACING);
    };
    if tried.len() >= MOST {
        return Some(tried.first()?.saturating_add(HOUR));
    }
    let patience = SPACING * 3_i32.pow(u32::try_from(tried.len()).ok()?);
    Some((*last + patience).max(asked + SPACING))
}

impl History {
    /// Notes that Kubernetes was made to look at this controller.
    pub(super) fn retries(&mut self, now: OffsetDateTime, id: &ObjectId) {
        let all = self.retried.entry(id.clone()).or_default();
        all.retain(|at| now - *at < HOUR);
        all.push(now);
    }
}

#[cfg(test)]
mod tests;

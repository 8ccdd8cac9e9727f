//! What Argo CD tries no more, although it may succeed by now. Of each commit of the root it begins one operation, tries that again as
//! the root's `retry` says, and then refuses to: a version that knows no `retry.refresh` after ten tries, and any other where the
//! operation was ended, or begun by hand. Whatever was in the way (a webhook that was down, a quota), nothing would be applied until the
//! next commit. So Argo CD is made to begin anew, less and less often.
//!
//! How often an Application below the root is tried is the catalog's to say.

use time::{Duration, OffsetDateTime};

use super::fault::Class;
use super::find::Finding;
use super::state::{History, Object, Observed};
use super::steps::{Action, Step};
use super::{argocd, giveback, health, pace, quarantine, window};
use crate::agent::engine::Install;
use crate::bundle::ObjectId;
use crate::clock::parse_rfc3339;

/// From the end of the operation to the next one: after the first, the second, and each that follows.
const FIRST: Duration = Duration::MINUTE;
const NEXT: Duration = Duration::minutes(5);
const THEN: Duration = Duration::minutes(15);
const LONGEST: Duration = Duration::minutes(30);
/// How that grows.
const FACTOR: i32 = 3;

/// Has Argo CD begin anew where that is due; and when it will be.
pub(super) fn asks(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    history: &History,
    findings: &[Finding],
) -> (Vec<Step>, Option<OffsetDateTime>) {
    let root = &install.sync;
    let Some(at) = due(now, install, observed, history) else {
        return (Vec::new(), None);
    };
    if !is_sound(now, install, observed, history, findings) {
        return (Vec::new(), None);
    }
    if at > now {
        return (Vec::new(), Some(at));
    }
    let step = Step {
        action: Action::Retry,
        target: root.clone(),
        cause: Some((Class::ApplyFailed, root.clone())),
    };
    (vec![step], None)
}

/// When it is to begin anew; none = it tries by itself, or somebody has stopped it.
fn due(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    history: &History,
) -> Option<OffsetDateTime> {
    let id = &install.sync;
    let live = observed.objects.get(id)?;
    let ended = argocd::given_up(live)?;
    let past = history.faults.get(&(Class::ApplyFailed, id.clone()))?;
    let since = past.since?;
    let stopped = argocd::suspended(live).is_some() || is_ended_by_a_person(history, id, live);
    if stopped || live.deleting.is_some() || window::rests(now, observed, id) {
        return None;
    }
    // By another clock than ours.
    let failed = if ended > now { since } else { ended };
    let from = past.attempts.last().map_or(failed, |at| failed.max(*at));
    let ripe = since + Class::ApplyFailed.debounce();
    let at = ripe.max(from + pause(since, &past.attempts));
    let unserved = pace::again(&past.unserved, now);
    Some(unserved.map_or(at, |again| again.max(at)))
}

/// By those that were asked for within an hour, of a fault that is there since then.
fn pause(since: OffsetDateTime, asked: &[OffsetDateTime]) -> Duration {
    match asked {
        [] => FIRST,
        // There were others before, which are forgotten.
        [last] if *last - since > LONGEST => LONGEST,
        [_] => NEXT,
        [.., before, last] => ((*last - *before) * FACTOR).clamp(THEN, LONGEST),
    }
}

/// Whoever ends an operation may not want it; what the agent ended stood still.
fn is_ended_by_a_person(history: &History, id: &ObjectId, live: &Object) -> bool {
    let stuck = history.faults.get(&(Class::OperationStuck, id.clone()));
    let last = stuck.and_then(|past| past.attempts.last());
    // What it ended before this one began says nothing of it.
    let began = parse_rfc3339(live.text("/status/operationState/startedAt"));
    let ours = last.is_some_and(|at| began.is_none_or(|began| *at >= began));
    argocd::was_ended(live) && !ours
}

/// Whether the engine is as it has to be, so that nothing but the commit is in question: what a commit did to the engine is held back
/// first, and all that is held has to stand; and what the guard has begun comes to its end.
fn is_sound(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    history: &History,
    findings: &[Finding],
) -> bool {
    let mut of_engine = findings
        .iter()
        .filter(|f| install.wanted.contains_key(&f.object));
    of_engine.all(|f| f.class.of_catalog() || f.class.is_beside())
        && health::can_answer(install, observed)
        && !giveback::is_due(install, observed, history)
        && quarantine::keeps(now, install, observed).is_empty()
}

#[cfg(test)]
mod tests;

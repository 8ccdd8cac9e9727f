//! In which order a change of the install is made, and what of it waits for somebody who is at work on one object. Pure.
//!
//! Only that waits which works, and which the change alters at a later stage than what rests. What is missing or broken, or not as any
//! version has it, is put right meanwhile, as it is wanted now, and the time of the change runs until it works: otherwise what was before
//! comes back.

use time::OffsetDateTime;

use super::before::began;
use super::{is_judged, left};
use crate::agent::engine::compare::drift;
use crate::agent::engine::{Install, MANAGER};
use crate::agent::plan::fault::Budget;
use crate::agent::plan::{Class, Finding, History, Key, Observed, Step, find, health, window};
use crate::bundle::{Kind, ObjectId};

/// Of what cannot be applied for its API is not served (apimachinery, `api/meta/errors.go`): a CRD of the new version may be why.
const UNSERVED: &str = "no matches for kind";

/// The object with a window of its own that a change waits for: all else that is left is such, too, or held up by it, and every
/// controller that nobody is at work on does its work.
pub fn waits<'a>(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    history: &History,
    findings: &'a [Finding],
) -> Option<&'a ObjectId> {
    let rests = |f: &&Finding| window::rests(now, observed, &f.object);
    let (resting, others): (Vec<&Finding>, Vec<&Finding>) =
        left(install, observed, findings, &history.ailing).partition(rests);
    let first = first_stage(resting.iter().copied());
    let known = (observed, history);
    let begun = has_begun(install, observed);
    // What a commit breaks meanwhile is not the new version's while no controller runs in that.
    let of_a_commit =
        |f: &Finding| !begun && f.class.of_catalog() && !f.evidence.contains(UNSERVED);
    let waits =
        |f: &&Finding| of_a_commit(f) || is_held_up(install, known, first, (f.class, &f.object));
    let works = install.workloads().all(|id| {
        let live = observed.objects.get(id);
        live.is_some_and(|live| health::works(live)) || window::rests(now, observed, id)
    });
    let object = resting.first().copied().map(|f| &f.object);
    object.filter(|_| works && others.iter().all(waits))
}

/// Whether something rests that is to be altered.
pub fn is_at_rest(now: OffsetDateTime, observed: &Observed, findings: &[Finding]) -> bool {
    first_at_rest(now, observed, findings).is_some()
}

/// Whether a change that waits has nothing to do with a fault: not that an object is still as the former version has it, unless it
/// does not work.
pub fn is_fault(
    now: OffsetDateTime,
    install: &Install,
    known: (&Observed, &History),
    (class, id): &Key,
) -> bool {
    let (_, history) = known;
    !is_former(install, known, (*class, id)) || is_down(now, history, id)
}

/// Leaves the steps that a change of the install allows now, unless something dies. `open` are the findings that something is done about: on
/// the way back what rests holds nothing up, so that what worked does so again.
pub fn stages(
    now: OffsetDateTime,
    install: &Install,
    known: (&Observed, &History),
    steps: &mut Vec<Step>,
    (findings, open): (&[Finding], &[Finding]),
) {
    if !install.changing || findings.iter().any(find::dies) {
        return;
    }
    let (observed, history) = known;
    let forth = install.change().is_some_and(is_judged);
    let first = first_at_rest(now, observed, findings).filter(|_| forth);
    let waits = |class: Class, id: &ObjectId| {
        is_held_up(install, known, first, (class, id)) && !is_down(now, history, id)
    };
    steps.retain(|step| {
        let against = step.cause.as_ref();
        !against.is_some_and(|(class, _)| waits(*class, &step.target))
    });
    // What waits keeps nothing else waiting.
    stage(steps, open.iter().filter(|f| !waits(f.class, &f.object)));
}

/// Leaves the steps of the first stage in which something of the install differs: no controller runs in its new version before all
/// that it stands on is.
fn stage<'a>(steps: &mut Vec<Step>, findings: impl Iterator<Item = &'a Finding>) {
    if let Some(first) = first_stage(findings) {
        steps.retain(|s| !s.target.kind.installable() || s.target.kind.stage() <= first);
    }
}

fn first_at_rest(now: OffsetDateTime, observed: &Observed, findings: &[Finding]) -> Option<u8> {
    let all = findings.iter();
    first_stage(all.filter(|f| window::rests(now, observed, &f.object)))
}

/// The first stage in which something is done about one of them.
fn first_stage<'a>(findings: impl Iterator<Item = &'a Finding>) -> Option<u8> {
    let staged =
        findings.filter(|f| f.object.kind.installable() && f.class.budget() != Budget::Report);
    staged.map(|f| f.object.kind.stage()).min()
}

/// Whether a fault is that an object of a later stage than the `first` at which something rests is not yet as the change has it. Rights,
/// accounts and Secrets are written all the same: they run nothing, and what runs needs them.
fn is_held_up(
    install: &Install,
    known: (&Observed, &History),
    first: Option<u8>,
    (class, id): (Class, &ObjectId),
) -> bool {
    let kind = id.kind;
    let later = first.is_some_and(|first| kind.installable() && kind.stage() > first);
    let needed = matches!(kind, Kind::Secret | Kind::ServiceAccount) || kind.is_rbac();
    later && !needed && is_former(install, known, (class, id))
}

/// Whether a fault is no more than that an object is as the former version has it, and not as the new one does.
fn is_former(
    install: &Install,
    (observed, history): (&Observed, &History),
    (class, id): (Class, &ObjectId),
) -> bool {
    let both = install.wanted.get(id).zip(observed.objects.get(id));
    is_drift(class)
        && both.is_some_and(|(wanted, live)| {
            !drift(&wanted.expect, &live.fields).is_empty()
                && history.is_as_before(install, (id, live))
        })
}

/// Whether a controller was written since the change began, and so runs in the new version, be it to be mended.
fn has_begun(install: &Install, observed: &Observed) -> bool {
    let began = began(install);
    let workloads = install.workloads();
    let mut live = workloads.filter_map(|id| observed.objects.get(id));
    live.any(|live| live.writer == MANAGER && live.written >= began)
}

/// Whether it may be no more than that fields are as another version has them.
fn is_drift(class: Class) -> bool {
    matches!(
        class,
        Class::ObjectAltered
            | Class::BadImage
            | Class::ReadyButUseless
            | Class::EventSinkMissing
            | Class::RbacAltered
            | Class::SourceAltered
            | Class::EngineConfigBroken
    )
}

/// Whether a controller has not worked for longer than a node takes to be drained.
fn is_down(now: OffsetDateTime, history: &History, id: &ObjectId) -> bool {
    let since = history.down.get(id);
    since.is_some_and(|since| now - *since >= find::DOWN)
}

#[cfg(test)]
mod tests;

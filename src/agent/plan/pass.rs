//! One pass over the steps of a plan. A plan is right for the moment in which it is made, and each of its steps takes time: an
//! object comes back, somebody else changes it, a window opens, a step comes to nothing. So before each step it is asked
//! again whether that is still to be done. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::fault::Key;
use super::history::Outcome;
use super::quarantine::HELD;
use super::state::{Object, Observed};
use super::steps::{Action, Step};
use super::{MAINTENANCE, Mode, Plan, is_guards};
use crate::bundle::ObjectId;

/// What was planned, and what became of it so far.
#[derive(Debug)]
pub struct Pass {
    mode: Mode,
    /// What the targets were like when the plan was made, or after our own last step there.
    seen: BTreeMap<ObjectId, Option<Arc<Object>>>,
    /// What something was done about; none = what is against no fault.
    begun: BTreeSet<Option<Key>>,
    /// What came to nothing, and what was left out for that.
    vain: Vec<Step>,
}

impl Pass {
    /// Of a plan that was just made from `observed`.
    pub fn new(plan: &Plan, observed: &Observed) -> Self {
        let targets = plan.steps.iter().map(|step| &step.target);
        let seen = |id: &ObjectId| observed.objects.get(id).cloned();
        Self {
            mode: plan.mode,
            seen: targets.map(|id| (id.clone(), seen(id))).collect(),
            begun: BTreeSet::new(),
            vain: Vec::new(),
        }
    }

    /// The step as it is to be done now; none = that is left to another plan. `anew` is the plan of this moment.
    ///
    /// A step against a fault that nothing was done about yet has to be in that, too. One that goes on with what this pass
    /// began is in no other plan: for it, the object has to be as the pass left it.
    pub fn next(
        &mut self,
        step: &Step,
        live: &Observed,
        anew: impl FnOnce() -> Plan,
    ) -> Option<Step> {
        if self.vain.iter().any(|vain| rests_on(step, vain)) {
            self.vain.push(step.clone());
            return None;
        }
        // Whatever dies is looked at before each step; and the first one was planned just now.
        if is_guards(&step.action) || self.begun.is_empty() {
            return Some(step.clone());
        }
        let anew = anew();
        if anew.mode != self.mode {
            return None;
        }
        if self.begun.contains(&step.cause) {
            let stands = looks_itself(&step.action) || self.stands(&step.target, live);
            return stands.then(|| step.clone());
        }
        let same = |other: &Step| {
            let alike = other.action.as_str() == step.action.as_str();
            alike && other.target == step.target && other.cause == step.cause
        };
        anew.steps.into_iter().find(same)
    }

    /// What a step came to; `live` has what it changed.
    pub fn acted(&mut self, step: &Step, outcome: &Outcome, live: &Observed) {
        let now = live.objects.get(&step.target).cloned();
        self.seen.insert(step.target.clone(), now);
        self.begun.insert(step.cause.clone());
        if outcome.is_vain() {
            self.vain.push(step.clone());
        }
    }

    fn stands(&self, id: &ObjectId, live: &Observed) -> bool {
        let before = self.seen.get(id).and_then(Option::as_ref);
        match (before, live.objects.get(id)) {
            (Some(before), Some(now)) => is_as(before, now),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }
}

/// Whether a step makes no sense, or does harm, after another one of the same plan came to nothing.
fn rests_on(step: &Step, vain: &Step) -> bool {
    if step.target == vain.target {
        return true;
    }
    let held = matches!(
        step.action,
        Action::Hold { .. }
            | Action::Apply
            | Action::Replace
            | Action::Reinstate { .. }
            | Action::Reset
            | Action::Recreate { .. }
            | Action::WriteSecret
    );
    let together = step.cause == vain.cause;
    match &vain.action {
        // Its Application would undo what is held; what is against no fault is held already.
        Action::Shield(_) => {
            let follows = matches!(step.action, Action::Shield(_) | Action::Nudge);
            together && (follows || held && step.cause.is_some())
        }
        // It is not given back: neither may its Application be told so, nor is there anything to ask.
        Action::Lift { .. } | Action::Reclaim => {
            together && matches!(step.action, Action::Shield(_) | Action::Nudge)
        }
        Action::Create
        | Action::CreateHeld { .. }
        | Action::Apply
        | Action::Replace
        | Action::Reinstate { .. }
        | Action::Reset
        | Action::Recreate { .. }
        | Action::WriteSecret
        | Action::RestartPods { .. }
        | Action::DropFailed
        | Action::DropSuperseded
        | Action::Nudge
        | Action::Retry
        | Action::CutRights { .. }
        | Action::ScaleToZero
        | Action::Start { .. }
        | Action::Release
        | Action::Restore
        | Action::Unpin { .. }
        | Action::Lock
        | Action::FreeLease { .. }
        | Action::Terminate
        | Action::Hold { .. }
        | Action::Settle
        | Action::Relinquish { .. }
        | Action::Migrate { .. }
        | Action::Aside(_) => false,
    }
}

/// What reads the object anew, or is sent for just the version that was seen, or changes nothing that anybody wants.
fn looks_itself(action: &Action) -> bool {
    match action {
        Action::Shield(_)
        | Action::Aside(_)
        | Action::Start { .. }
        | Action::Unpin { .. }
        | Action::Nudge
        | Action::Relinquish { .. }
        | Action::Retry => true,
        Action::Create
        | Action::CreateHeld { .. }
        | Action::Apply
        | Action::Replace
        | Action::Reinstate { .. }
        | Action::Reset
        | Action::Recreate { .. }
        | Action::WriteSecret
        | Action::RestartPods { .. }
        | Action::DropFailed
        | Action::DropSuperseded
        | Action::CutRights { .. }
        | Action::ScaleToZero
        | Action::Release
        | Action::Restore
        | Action::Lock
        | Action::FreeLease { .. }
        | Action::Terminate
        | Action::Hold { .. }
        | Action::Lift { .. }
        | Action::Settle
        | Action::Reclaim
        | Action::Migrate { .. } => false,
    }
}

/// Whether nobody has changed what is wanted of an object. Its controller writes what it says of itself all the time, Argo CD
/// also what it does.
fn is_as(before: &Arc<Object>, now: &Arc<Object>) -> bool {
    let going = |live: &Object| live.deleting.is_some();
    Arc::ptr_eq(before, now)
        || before.uid == now.uid
            && going(before) == going(now)
            && wishes(before).eq(wishes(now))
            && words(before) == words(now)
}

fn wishes(live: &Object) -> impl Iterator<Item = (&String, &Value)> {
    let fields = live.fields.as_object().into_iter().flatten();
    fields.filter(|(name, _)| !["metadata", "status", "operation"].contains(&name.as_str()))
}

fn words(live: &Object) -> [Option<&str>; 2] {
    [MAINTENANCE, HELD].map(|name| live.annotation(name))
}

#[cfg(test)]
mod tests;

//! How plans and outcomes become history.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use time::{Duration, OffsetDateTime};

use super::burst;
use super::change::Change;
use super::fault::Budget;
use super::health::pods_of;
use super::pace::{MAX_ATTEMPTS, spends};
use super::state::{History, Object, Observed, Saved};
use super::steps::{Action, Step};
use super::window::LONGEST;
use super::{Class, Finding, Mode, Plan};
use crate::agent::engine::Install;
use crate::agent::engine::argocd::KNOWN_HOSTS;
use crate::bundle::{Kind, ObjectId};
use crate::clock::parse_rfc3339;
use crate::wire::api::EngineKind;

/// What went this short a time before its CRD went with it.
const TOGETHER: Duration = Duration::seconds(60);

/// What could not be brought back is tried again.
pub(super) const AGAIN: Duration = Duration::seconds(30);

/// What could not be brought back for so long is somebody's decision by now.
pub const STALE: Duration = Duration::hours(24);

/// What nobody tried to bring back for so long, although it could be there again, is somebody's decision, too: no window with an end
/// is longer, and then there is the same day.
const UNTRIED: Duration = LONGEST.saturating_add(STALE);

/// What is not on record as tried is looked at again.
const UNRECORDED: Duration = Duration::seconds(2);

/// A source is given up for an object after so many refusals in a row.
const REFUSALS: u32 = 2;
/// The snapshots that are kept; what comes after them is the bundle.
const SOURCES: usize = 3;

/// What a step came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// The API server found nothing to change.
    Unchanged,
    Failed(String),
    /// The API server gave no answer, or one about trouble of its own: that says nothing of the object.
    Unserved(String),
    /// The agent has no right to it.
    Forbidden(String),
    /// The API server says that the object itself is invalid: sent again, it is refused again.
    Refused(String),
}

impl Outcome {
    /// Whether what was to be done is not done.
    pub fn is_vain(&self) -> bool {
        match self {
            Self::Done | Self::Unchanged => false,
            Self::Failed(_) | Self::Unserved(_) | Self::Forbidden(_) | Self::Refused(_) => true,
        }
    }

    pub fn as_str(&self) -> &str {
        match self {
            Self::Done => "ok",
            Self::Unchanged => "nothing to change",
            Self::Failed(error)
            | Self::Unserved(error)
            | Self::Forbidden(error)
            | Self::Refused(error) => error,
        }
    }
}

impl History {
    /// Notes which faults are there, since when, and forgets what is over for an hour.
    pub fn saw(&mut self, now: OffsetDateTime, plan: &Plan) {
        for past in self.faults.values_mut() {
            for times in [&mut past.attempts, &mut past.unserved] {
                times.retain(|at| now - *at < Duration::hours(1));
            }
        }
        let blinds = |f: &Finding| f.class == Class::UndecodableObject;
        self.blinded = if plan.findings.iter().any(blinds) {
            Some(now)
        } else {
            self.blind_until(now)
        };
        for finding in &plan.findings {
            let key = (finding.class, finding.object.clone());
            self.faults.entry(key).or_default().since.get_or_insert(now);
        }
        let there = |key: &super::Key| {
            plan.findings
                .iter()
                .any(|f| f.class == key.0 && f.object == key.1)
        };
        // What cannot be seen now may be there still.
        let unseen = plan.mode == Mode::Learning;
        self.faults.retain(|key, past| {
            if !there(key) {
                past.since = None;
            }
            past.since.is_some() || !past.attempts.is_empty() || past.spent && unseen
        });
    }

    /// Keeps what died with its CRD although it had no finalizer that would have held it. Returns the CRDs that have
    /// more to bring back now.
    pub fn mourn(
        &mut self,
        now: OffsetDateTime,
        install: &Install,
        observed: &Observed,
    ) -> BTreeSet<ObjectId> {
        let mut more = BTreeSet::new();
        // There may be thousands: none is compared with each other one.
        let mut known: BTreeMap<ObjectId, BTreeSet<String>> = BTreeMap::new();
        let burst = burst::is_on(install, observed);
        for (id, (at, keepsake)) in observed.lost.iter() {
            let crd = ObjectId::crd_of(id.kind);
            let live = observed.objects.get(&crd);
            let dead = live.is_none_or(|crd| crd.deleting.is_some());
            // Of a clock that was set back, it may lie ahead.
            let ago = (now - *at).abs();
            let with_many = burst && ago <= burst::TOGETHER;
            if !dead && !with_many || ago > TOGETHER || !install.wanted.contains_key(&crd) {
                continue;
            }
            let saved = self.saved.entry(crd.clone()).or_default();
            let known = known.entry(crd.clone());
            let known = known.or_insert_with(|| {
                let both = |one: &Saved| [one.object.to_string(), let_go(&one.object).to_string()];
                saved.iter().flat_map(both).collect()
            });
            if known.insert(keepsake.to_string()) {
                let object = keepsake.as_ref().clone();
                saved.push(Saved::new(object, now));
                more.insert(crd);
            }
        }
        more
    }

    /// Whether the next try is the first one for some of what died with `crd`. That is to be on record before it is made: an agent
    /// that cannot say later that they are back leaves a record that looks as if nobody had tried.
    pub fn is_first_try(&self, crd: &ObjectId) -> bool {
        let mut saved = self.saved.get(crd).into_iter().flatten();
        saved.any(|one| one.tried.is_none())
    }

    /// All that died with `crd` is tried to be brought back now.
    pub fn tries(&mut self, now: OffsetDateTime, crd: &ObjectId) {
        for one in self.saved.get_mut(crd).into_iter().flatten() {
            one.tried.get_or_insert(now);
        }
    }

    /// What died with `crd` is not brought back yet, for its record was not written. That is no try.
    pub fn put_off(&mut self, now: OffsetDateTime, crd: &ObjectId) {
        self.restore_after.insert(crd.clone(), now + UNRECORDED);
    }

    /// An attempt to bring back what died with `crd`; `left` is what did not come back.
    pub fn restored(&mut self, now: OffsetDateTime, crd: &ObjectId, mut left: Vec<Saved>) {
        self.restore_after.remove(crd);
        self.saved.remove(crd);
        if left.is_empty() {
            return;
        }
        for one in &mut left {
            one.tried.get_or_insert(now);
        }
        self.saved.insert(crd.clone(), left);
        self.restore_after.insert(crd.clone(), now + AGAIN);
    }

    /// More that died with `crd`; of two that died under one name the later one is brought back.
    pub fn died(&mut self, crd: &ObjectId, more: Vec<Saved>) {
        let saved = self.saved.entry(crd.clone()).or_default();
        let places: BTreeSet<String> = more.iter().map(Saved::place).collect();
        saved.retain(|former| !places.contains(&former.place()));
        saved.extend(more);
    }

    /// Forgets what no try brought back for too long: whoever has its name by now would get what somebody else had. So it is with what
    /// nobody tried while its CRD served, be it for a window, another manager or want of an agent: who had use for it made it anew.
    /// As long as the CRD is away nobody can, and it stays, however old it is. Returns it, by CRD.
    pub fn give_up(
        &mut self,
        now: OffsetDateTime,
        observed: &Observed,
    ) -> BTreeMap<ObjectId, Vec<Saved>> {
        let mut given_up = BTreeMap::new();
        for (crd, saved) in &mut self.saved {
            let live = observed.objects.get(crd);
            let serves = live.and_then(|live| serves_since(live));
            let is_stale = |one: &mut Saved| match (one.tried, serves) {
                (Some(tried), _) => now - tried >= STALE,
                (None, Some(serves)) => now - serves.max(one.since) >= UNTRIED,
                (None, None) => false,
            };
            let stale: Vec<Saved> = saved.extract_if(.., is_stale).collect();
            if !stale.is_empty() {
                given_up.insert(crd.clone(), stale);
            }
        }
        self.saved.retain(|_, saved| !saved.is_empty());
        let saved = &self.saved;
        self.restore_after.retain(|crd, _| saved.contains_key(crd));
        given_up
    }

    /// Forgets what is to be brought back with CRDs of the other engine, unless that may still come back: no agent will ever try,
    /// and should the engine return one day, nobody would expect them. Returns their CRDs.
    pub fn leave(&mut self, install: &Install) -> BTreeSet<ObjectId> {
        if install.change().is_some_and(Change::is_open) {
            return BTreeSet::new();
        }
        let other = install.traits.kind.other();
        let left = self.saved.keys();
        let left = left.filter(|crd| engine_of(crd) == Some(other));
        let left: BTreeSet<ObjectId> = left.cloned().collect();
        self.saved.retain(|crd, _| !left.contains(crd));
        self.restore_after.retain(|crd, _| !left.contains(crd));
        left
    }

    /// The install is another one: what was tried with the old one says nothing of it.
    pub fn changed(&mut self) {
        self.settled.clear();
        self.voided.clear();
        self.faults.retain(|(_, id), _| !id.kind.installable());
    }

    /// Notes one step and what it came to. `observed` is what the step was planned from.
    pub fn acted(
        &mut self,
        now: OffsetDateTime,
        step: &Step,
        outcome: &Outcome,
        observed: &Observed,
    ) {
        self.counted(now, step, outcome);
        self.tried(step, outcome);
        if *outcome == Outcome::Done {
            self.voids(&step.target, observed);
        }
        if let (Action::CutRights { uid }, Outcome::Done) = (&step.action, outcome) {
            self.cut.insert(step.target.clone(), uid.clone());
        }
        match (&step.action, outcome) {
            (Action::Nudge | Action::Retry, outcome) => {
                self.nudged.retain(|_, at| now - *at < Duration::hours(1));
                self.nudged.insert(step.target.clone(), now);
                if step.action == Action::Retry && *outcome == Outcome::Done {
                    self.retries(now, &step.target);
                }
            }
            (Action::Apply | Action::WriteSecret, Outcome::Unchanged) => {
                if let Some(live) = observed.objects.get(&step.target) {
                    self.settled.insert(step.target.clone(), live.mark());
                }
            }
            // The object is as it was.
            (Action::Relinquish { commit }, Outcome::Done) => {
                if !commit.is_empty() {
                    self.given.insert(step.target.clone(), commit.clone());
                }
            }
            (_, Outcome::Done) => {
                self.settled.remove(&step.target);
                self.last_write = Some(now);
                if step.target.name == KNOWN_HOSTS {
                    self.host_keys = Some(now);
                }
            }
            (
                _,
                Outcome::Unchanged
                | Outcome::Failed(_)
                | Outcome::Unserved(_)
                | Outcome::Forbidden(_)
                | Outcome::Refused(_),
            ) => {}
        }
    }

    /// Notes whose tokens are void, if it is a ServiceAccount that was not there.
    fn voids(&mut self, account: &ObjectId, observed: &Observed) {
        if account.kind == Kind::ServiceAccount && !observed.objects.contains_key(account) {
            let uids = pods_of(observed, &account.name).map(|pod| pod.uid.clone());
            self.voided.insert(account.clone(), uids.collect());
        }
    }

    /// Notes when it was. A budget by the hour is for what mends: spent by an outage, or by holds that fail, it would leave the
    /// object broken for the rest of the hour.
    fn counted(&mut self, now: OffsetDateTime, step: &Step, outcome: &Outcome) {
        let Some(key) = &step.cause else {
            if !step.action.asks() {
                self.saw_vain(now, step, outcome);
            }
            if step.action.prepares() && *outcome == Outcome::Done {
                self.keeps(now, step);
            }
            return;
        };
        let past = self.faults.entry(key.clone()).or_default();
        // What it makes ready for follows at once, and counts.
        let prepares = step.action.prepares() && matches!(key.0.budget(), Budget::PerHour(_));
        let times = match outcome {
            Outcome::Unserved(_) => &mut past.unserved,
            Outcome::Failed(_) | Outcome::Forbidden(_) | Outcome::Refused(_) if prepares => {
                &mut past.unserved
            }
            Outcome::Done | Outcome::Unchanged if prepares => return,
            Outcome::Done
            | Outcome::Unchanged
            | Outcome::Failed(_)
            | Outcome::Forbidden(_)
            | Outcome::Refused(_) => &mut past.attempts,
        };
        push(times, now);
        past.spent |= spends(key.0, &past.attempts, now);
    }

    /// Nothing else spaces what is against no fault.
    fn saw_vain(&mut self, now: OffsetDateTime, step: &Step, outcome: &Outcome) {
        self.vain.retain(|_, times| {
            times
                .last()
                .is_some_and(|at| now - *at < Duration::hours(1))
        });
        match outcome {
            Outcome::Done => drop(self.vain.remove(&step.target)),
            Outcome::Unchanged
            | Outcome::Failed(_)
            | Outcome::Unserved(_)
            | Outcome::Forbidden(_)
            | Outcome::Refused(_) => {
                push(self.vain.entry(step.target.clone()).or_default(), now);
            }
        }
    }

    /// What keeps a hold in force is sent again only where somebody took it away.
    fn keeps(&mut self, now: OffsetDateTime, step: &Step) {
        self.kept.retain(|_, (_, times)| {
            times
                .last()
                .is_some_and(|at| now - *at < Duration::hours(1))
        });
        let key = (step.action.as_str(), step.target.clone());
        let fresh = || (step.action.clone(), Vec::new());
        let (action, times) = self.kept.entry(key).or_insert_with(fresh);
        if *action != step.action {
            (*action, *times) = fresh();
        }
        push(times, now);
    }

    /// Twice found invalid, an object is taken from the next older source.
    fn tried(&mut self, step: &Step, outcome: &Outcome) {
        let whole = matches!(
            step.action,
            Action::Create
                | Action::CreateHeld { .. }
                | Action::Apply
                | Action::Replace
                | Action::Reinstate { .. }
                | Action::Recreate { .. }
        );
        match outcome {
            Outcome::Refused(_) if whole => {
                let refused = self.refused.entry(step.target.clone()).or_default();
                refused.failures += 1;
                if refused.failures >= REFUSALS && refused.given_up < SOURCES {
                    refused.failures = 0;
                    refused.given_up += 1;
                }
            }
            Outcome::Done | Outcome::Unchanged if whole => {
                if let Some(refused) = self.refused.get_mut(&step.target) {
                    refused.failures = 0;
                }
            }
            Outcome::Refused(_)
            | Outcome::Done
            | Outcome::Unchanged
            | Outcome::Failed(_)
            | Outcome::Unserved(_)
            | Outcome::Forbidden(_) => {}
        }
    }
}

/// The engine that a CRD is of; none = of neither.
fn engine_of(crd: &ObjectId) -> Option<EngineKind> {
    let of = |group: &str| crd.name.ends_with(group);
    if of(".toolkit.fluxcd.io") {
        Some(EngineKind::Flux)
    } else {
        of(".argoproj.io").then_some(EngineKind::Argocd)
    }
}

/// Since when a CRD has its objects; none = it does not.
fn serves_since(crd: &Object) -> Option<OffsetDateTime> {
    if crd.deleting.is_some() || !crd.is_true("Established") {
        return None;
    }
    let all = crd.fields.pointer("/status/conditions")?.as_array()?;
    let is_it = |one: &&Value| one.get("type").and_then(Value::as_str) == Some("Established");
    let at = all.iter().find(is_it)?.get("lastTransitionTime");
    let at = at.and_then(Value::as_str).and_then(parse_rfc3339);
    at.max(crd.created)
}

/// A saved object as it is seen once the guard has taken the engine's finalizer from it, where somebody else's holds it on: the
/// lesser one of two, by which it would come back without its finalizer.
fn let_go(saved: &Value) -> Value {
    let mut object = saved.clone();
    for (place, field) in [("", "status"), ("/metadata", "finalizers")] {
        let fields = object.pointer_mut(place).and_then(Value::as_object_mut);
        fields.and_then(|fields| fields.remove(field));
    }
    object
}

fn push(times: &mut Vec<OffsetDateTime>, now: OffsetDateTime) {
    times.push(now);
    let surplus = times.len().saturating_sub(MAX_ATTEMPTS);
    times.drain(..surplus);
}

#[cfg(test)]
mod tests;

//! How plans and outcomes become history.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use time::{Duration, OffsetDateTime};

use super::burst;
use super::fault::Budget;
use super::health::pods_of;
use super::pace::{MAX_ATTEMPTS, spends};
use super::state::{History, Observed, Saved};
use super::steps::{Action, Step};
use super::{Class, Finding, Mode, Plan};
use crate::agent::engine::Install;
use crate::agent::engine::argocd::KNOWN_HOSTS;
use crate::bundle::{Kind, ObjectId};

/// What went this short a time before its CRD went with it.
const TOGETHER: Duration = Duration::seconds(60);

/// What could not be brought back is tried again.
pub(super) const AGAIN: Duration = Duration::seconds(30);

/// What could not be brought back for so long is somebody's decision by now.
pub const STALE: Duration = Duration::hours(24);

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
                saved.push(Saved { object, since: now });
                more.insert(crd);
            }
        }
        more
    }

    /// An attempt to bring back what died with `crd`; `left` is what did not come back.
    pub fn restored(&mut self, now: OffsetDateTime, crd: &ObjectId, left: Vec<Saved>) {
        self.restore_after.remove(crd);
        self.saved.remove(crd);
        if left.is_empty() {
            self.failing.remove(crd);
            return;
        }
        self.saved.insert(crd.clone(), left);
        self.restore_after.insert(crd.clone(), now + AGAIN);
        self.failing.entry(crd.clone()).or_insert(now);
    }

    /// More that died with `crd`; of two that died under one name the later one is brought back.
    pub fn died(&mut self, crd: &ObjectId, more: Vec<Saved>) {
        let saved = self.saved.entry(crd.clone()).or_default();
        let places: BTreeSet<String> = more.iter().map(Saved::place).collect();
        saved.retain(|former| !places.contains(&former.place()));
        saved.extend(more);
    }

    /// Forgets what no try brought back for too long: whoever has its name by now would get what somebody else had. What nobody could
    /// try, as long as the CRD is away or the owner has things rest, stays. Returns it, by CRD.
    pub fn give_up(&mut self, now: OffsetDateTime) -> BTreeMap<ObjectId, Vec<Saved>> {
        let mut given_up = BTreeMap::new();
        for (crd, saved) in &mut self.saved {
            let Some(failing) = self.failing.get(crd) else {
                continue;
            };
            let stale: Vec<Saved> = saved
                .extract_if(.., |one| now - one.since.max(*failing) >= STALE)
                .collect();
            if !stale.is_empty() {
                given_up.insert(crd.clone(), stale);
            }
        }
        for crd in given_up.keys() {
            if self.saved.get(crd).is_some_and(Vec::is_empty) {
                self.saved.remove(crd);
                self.restore_after.remove(crd);
                self.failing.remove(crd);
            }
        }
        given_up
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
mod tests {
    use serde_json::json;
    use time::macros::datetime;

    use super::*;

    fn create() -> Step {
        Step {
            action: Action::Create,
            target: ObjectId::new(Kind::Deployment, "flux-system", "source-controller"),
            cause: None,
        }
    }

    #[test]
    fn two_refusals_in_a_row_give_up_a_source_and_no_other_failure_does() {
        let now = datetime!(2026-01-02 03:04:05 UTC);
        let refused = || Outcome::Refused("spec.replicas: Invalid value".to_owned());
        let failed = || Outcome::Failed("timed out".to_owned());
        let mut history = History::default();
        let mut given_up = Vec::new();
        let outcomes = [
            (refused(), 0),
            (Outcome::Done, 0),
            (refused(), 0),
            (failed(), 0),
            (refused(), 1),
            (refused(), 1),
            (refused(), 2),
            (refused(), 2),
            (refused(), 3),
            (refused(), 3),
            (refused(), 3),
        ];
        for (outcome, _) in &outcomes {
            history.acted(now, &create(), outcome, &Observed::default());
            given_up.push(history.refused[&create().target].given_up);
        }
        let expected: Vec<usize> = outcomes.iter().map(|(_, n)| *n).collect();
        assert_eq!(given_up, expected);
    }

    /// Only the same once more is a sign that somebody took it away; and against a fault its budget counts.
    #[test]
    fn what_keeps_a_hold_is_counted_while_it_is_the_same() {
        let now = datetime!(2026-01-02 03:04:05 UTC);
        let hold = |note: &str, cause| Step {
            action: Action::Hold {
                note: note.to_owned(),
            },
            cause,
            ..create()
        };
        let target = create().target;
        let fault = Some((Class::BadEngineCommit, target.clone()));
        let mut history = History::default();
        for (step, outcome, kept) in [
            (hold("a", None), Outcome::Done, 1),
            (hold("a", None), Outcome::Done, 2),
            (hold("a", None), Outcome::Unchanged, 2),
            (hold("a", fault), Outcome::Done, 2),
            (create(), Outcome::Done, 2),
            (hold("b", None), Outcome::Done, 1),
            (hold("b", None), Outcome::Done, 2),
        ] {
            history.acted(now, &step, &outcome, &Observed::default());
            let (_, times) = &history.kept[&("hold", target.clone())];
            assert_eq!(times.len(), kept, "{step:?} {outcome:?}");
        }
    }

    #[test]
    fn what_did_not_come_back_is_tried_again_and_the_rest_is_forgotten() {
        let now = datetime!(2026-01-02 03:04:05 UTC);
        let crd = ObjectId::new(
            Kind::CustomResourceDefinition,
            "",
            "applications.argoproj.io",
        );
        let mut history = History::default();
        let [a, b] = ["a", "b"].map(|name| saved(name, now));
        history.saved.insert(crd.clone(), vec![a, b.clone()]);
        history.restored(now, &crd, vec![b.clone()]);
        assert_eq!(history.saved[&crd], [b]);
        assert_eq!(history.restore_after[&crd], now + AGAIN);
        history.restored(now, &crd, Vec::new());
        assert!(history.saved.is_empty() && history.restore_after.is_empty());
    }

    fn saved(name: &str, since: OffsetDateTime) -> Saved {
        Saved {
            object: json!(name),
            since,
        }
    }

    /// However often it is tried: its day begins with the first try after the loss, and no younger one is given up with it.
    #[test]
    fn what_cannot_be_brought_back_for_a_day_is_given_up() {
        let begin = datetime!(2026-01-02 03:04:05 UTC);
        let crd = ObjectId::new(
            Kind::CustomResourceDefinition,
            "",
            "helmreleases.helm.toolkit.fluxcd.io",
        );
        let old = saved("old", begin);
        let young = saved("young", begin + Duration::hours(20));
        let mut history = History::default();
        history.saved.insert(crd.clone(), vec![old.clone()]);
        let mut given_up = Vec::new();
        let mut now = begin;
        while now < begin + Duration::hours(25) {
            given_up.extend(history.give_up(now).into_iter().map(|of| (now, of)));
            let mut left = history.saved.get(&crd).cloned().unwrap_or_default();
            if now == young.since {
                left.push(young.clone());
            }
            history.restored(now, &crd, left);
            now += AGAIN;
        }
        assert_eq!(given_up, [(begin + STALE, (crd.clone(), vec![old]))]);
        assert_eq!(history.saved, [(crd.clone(), vec![young.clone()])].into());
        let rest = history.give_up(young.since + STALE);
        assert_eq!(rest, [(crd, vec![young])].into());
        assert!(history.saved.is_empty() && history.restore_after.is_empty());
        assert!(history.failing.is_empty());
    }

    /// A CRD that hangs over a weekend on somebody's finalizer, or a window, takes nobody's objects along.
    #[test]
    fn what_was_not_tried_is_kept_however_old_it_is() {
        let begin = datetime!(2026-01-02 03:04:05 UTC);
        let crd = ObjectId::new(
            Kind::CustomResourceDefinition,
            "",
            "helmreleases.helm.toolkit.fluxcd.io",
        );
        let mut history = History::default();
        history.died(&crd, vec![saved("x", begin)]);
        let late = begin + Duration::hours(60);
        assert_eq!(history.give_up(late), BTreeMap::new());
        // From the first try on there is a day.
        history.restored(late, &crd, vec![saved("x", begin)]);
        history.restored(late + AGAIN, &crd, vec![saved("x", begin)]);
        let day = late + STALE;
        assert_eq!(history.give_up(day - AGAIN), BTreeMap::new());
        let given_up = history.give_up(day);
        assert_eq!(given_up, [(crd, vec![saved("x", begin)])].into());
    }

    #[test]
    fn of_two_that_died_under_one_name_the_later_one_comes_back() {
        let now = datetime!(2026-01-02 03:04:05 UTC);
        let crd = ObjectId::new(
            Kind::CustomResourceDefinition,
            "",
            "applications.argoproj.io",
        );
        let of = |name: &str, path: &str| Saved {
            object: json!({"metadata": {"namespace": "n", "name": name}, "spec": {"path": path}}),
            since: now,
        };
        let mut history = History::default();
        history.died(&crd, vec![of("a", "1"), of("b", "1")]);
        history.died(&crd, vec![of("b", "2"), of("c", "2")]);
        let expected = vec![of("a", "1"), of("b", "2"), of("c", "2")];
        assert_eq!(history.saved, [(crd, expected)].into());
    }
}

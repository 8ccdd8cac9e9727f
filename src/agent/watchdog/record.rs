//! The record of each heal, from detection to restored function. Pure: ids and times are passed in.

mod acts;
mod aftermath;
mod commits;
mod kept;
mod open;

use std::collections::BTreeMap;

use time::OffsetDateTime;

use crate::agent::engine::Install;
use crate::agent::plan::history::Outcome;
use crate::agent::plan::{
    Class, Finding, History, Key, Mode, Observed, Plan, Step, change, find, writes_fields,
};
use crate::bundle::{Kind, ObjectId};
use crate::clock::rfc3339;
use crate::heal;
use crate::wire::report::{HealRecord, HealResult, HealStep, ObjectEvent, Remade};
use aftermath::Aftermaths;
use commits::{Holding, broke_again};
pub(super) use kept::{Kept, Resumed};
pub(super) use open::{ALARM, WAITS};
use open::{Open, alarmed, closed, comes_of, is_collapse, is_over, learned, opened, rests, waits};

/// Heals that are open at the same time; further faults are mended without a record of their own.
const MAX_OPEN: usize = 64;
/// Steps that are written down for one heal; the rest is counted.
const MAX_STEPS: usize = 40;
const NO_RIGHT: &str = "the agent has no right to do that: condition RightsLost says which ones are missing; apply the adoption YAML again: \
                        'linesman cluster readopt'";

/// The open heals, and those that ended and may not be on record yet.
#[derive(Debug, Default)]
pub(super) struct Records {
    open: BTreeMap<Key, Open>,
    ended: Vec<(Key, HealRecord)>,
    /// Heals that opened and whose Events nobody has looked for: their ids and objects.
    unseen: Vec<(String, ObjectId)>,
    aftermaths: Aftermaths,
    holding: Holding,
}

/// What the cluster was like when the plan was made.
pub(super) struct Moment<'a> {
    pub(super) now: OffsetDateTime,
    pub(super) plan: &'a Plan,
    pub(super) history: &'a History,
    pub(super) observed: &'a Observed,
    /// Since when function is proven.
    pub(super) proven: Option<OffsetDateTime>,
    pub(super) revision: &'a str,
    /// The catalog revision that was tried last.
    pub(super) tried: &'a str,
    /// The field manager of what the engine applies from Git.
    pub(super) applier: &'a str,
    /// Faults that outlasted their maintenance window, and its end.
    pub(super) overdue: &'a [(Key, OffsetDateTime)],
    /// The hub changes the install: what is not as wanted yet is no fault of anybody's.
    pub(super) changing: bool,
    /// The install, where the change has had its time but for what waits for the window on one object.
    pub(super) waits: Option<&'a Install>,
    /// One engine takes the other's place, or gives it back: that goes for what both have, and for the roots, too.
    pub(super) hands_over: bool,
}

impl Records {
    pub(super) fn open_classes(&self) -> impl Iterator<Item = &'static str> {
        self.open.keys().map(|(class, _)| class.as_str())
    }

    /// All times that have been and that something is still decided by.
    pub(super) fn times(&mut self) -> impl Iterator<Item = &mut OffsetDateTime> {
        let open = self.open.values_mut();
        let steps = open.flat_map(|open| {
            let (step, works) = (open.last_step.as_mut(), open.works.as_mut());
            [step, open.acts.time(), works]
        });
        steps.flatten().chain(self.aftermaths.times())
    }

    /// The last thing done about what is open.
    pub(super) fn last_step(&self) -> Option<OffsetDateTime> {
        self.open.values().filter_map(|open| open.last_step).max()
    }

    pub(super) fn open_ids(&self) -> Vec<String> {
        self.open.values().map(|o| o.record.id.clone()).collect()
    }

    /// Heals whose Events are to be looked for, once.
    pub(super) fn unseen(&mut self) -> Vec<(String, ObjectId)> {
        std::mem::take(&mut self.unseen)
    }

    /// What was found of Events about an open heal.
    pub(super) fn witnessed(&mut self, heal: &str, events: Vec<ObjectEvent>) {
        let mut all = self.open.values_mut();
        let open = all.find(|open| open.record.id == heal && !events.is_empty());
        if let Some(open) = open {
            open.record.scene.events = events;
            open.untold = true;
        }
    }

    /// What a container of it said before it ended.
    pub(super) fn logged(&mut self, heal: &str, log: Vec<String>) {
        let mut all = self.open.values_mut();
        let open = all.find(|open| open.record.id == heal && !log.is_empty());
        if let Some(open) = open {
            open.record.scene.log = log;
            open.untold = true;
        }
    }

    /// When [`Self::aftermath`] has something next.
    pub(super) fn due(&self) -> Option<OffsetDateTime> {
        self.aftermaths.due()
    }

    /// A collapse that is over, after which is to be looked now: what the engine made since the time that is given.
    pub(super) fn aftermath(&mut self, now: OffsetDateTime) -> Option<(String, OffsetDateTime)> {
        self.aftermaths.next(now)
    }

    /// What the engine made again after a collapse; the heal that is to be told once more.
    pub(super) fn remade(&mut self, heal: &str, remade: Remade) -> Option<HealRecord> {
        let (key, record) = self.aftermaths.found(heal, remade)?;
        Some(self.end(key, record))
    }

    /// These are kept until the hub has them; nobody else has to tell their end any more.
    pub(super) fn stored(&mut self, ids: &[String]) {
        self.ended.retain(|(_, record)| !ids.contains(&record.id));
    }

    fn end(&mut self, key: Key, record: HealRecord) -> HealRecord {
        self.ended.retain(|(_, known)| known.id != record.id);
        if self.ended.len() >= MAX_OPEN {
            self.ended.remove(0);
        }
        self.ended.push((key, record.clone()));
        record
    }

    /// Closes all: another engine takes the place of the one that they are about.
    pub(super) fn leave(&mut self, now: OffsetDateTime) -> Vec<HealRecord> {
        self.aftermaths = Aftermaths::default();
        self.holding = Holding::default();
        let all = std::mem::take(&mut self.open);
        let left = all.into_iter().map(|(key, open)| {
            let mut record = open.record;
            record.restored_at = Some(rfc3339(now));
            if record.result == HealResult::Open {
                record.result = HealResult::Failed;
            }
            "another engine has taken the place of this one".clone_into(&mut record.next);
            self.end(key, record)
        });
        left.collect()
    }

    /// Opens and closes heals; returns what is to be told. `id` makes the id of a new record.
    pub(super) fn update(
        &mut self,
        moment: &Moment<'_>,
        mut id: impl FnMut() -> String,
    ) -> Vec<HealRecord> {
        let mut told = Vec::new();
        let blind = moment.plan.mode == Mode::Learning;
        let judged = |f: &&Finding| !blind || find::dies(f) || f.class == Class::ApiUnhealthy;
        for finding in moment.plan.findings.iter().filter(judged) {
            let key = (finding.class, finding.object.clone());
            if let Some(open) = self.open.get_mut(&key) {
                open.untold |= learned(&mut open.record, finding);
                open.untold |= broke_again(&mut open.record, finding, moment.now);
            }
            if self.counts(moment, &key) {
                let open = opened(moment, finding, id());
                told.push(open.record.clone());
                self.unseen.push((open.record.id.clone(), key.1.clone()));
                self.open.insert(key, open);
            }
        }
        if blind {
            // What is not seen now may be there all the same.
            return told;
        }
        for (key, open) in &mut self.open {
            open.untold |= rests(key, &mut open.record, moment);
            waits(key, open, moment);
        }
        for (key, end) in moment.overdue {
            let open = self.open.get_mut(key);
            told.extend(open.and_then(|open| alarmed(open, *end, moment.now)));
        }
        for key in &moment.plan.exhausted {
            if let Some(open) = self.open.get_mut(key).filter(|o| !o.exhausted) {
                open.exhausted = true;
                open.record.next = exhausted(key.0);
                told.push(open.record.clone());
            }
        }
        for (key, open) in &mut self.open {
            let acted = open.acts.is_due(moment.now) && !is_over(key, open, moment);
            if open.untold || acted {
                open.untold = false;
                open.acts.told();
                told.push(open.record.clone());
            }
        }
        let over: Vec<Key> = self
            .open
            .iter()
            .filter(|(key, open)| is_over(key, open, moment))
            .map(|(k, _)| k.clone())
            .collect();
        for key in over {
            if let Some(open) = self.open.remove(&key) {
                let record = closed(key.0, open.record, moment);
                self.hold_on(&key, &record);
                if is_collapse(key.0) {
                    self.aftermaths
                        .follow(moment.now, key.clone(), record.clone());
                }
                told.push(self.end(key, record));
            }
        }
        told
    }

    /// Whether a fault gets a record of its own now.
    fn counts(&self, moment: &Moment<'_>, key: &Key) -> bool {
        let since = moment
            .history
            .faults
            .get(key)
            .and_then(|past| past.since)
            .unwrap_or(moment.now);
        let ripe = moment.now - since >= key.0.debounce();
        // What is missing because the Namespace or a CRD went belongs to that heal.
        let part = matches!(
            key.0,
            Class::ObjectMissing
                | Class::ObjectAltered
                | Class::ServiceAccountMissing
                | Class::RootDeleted
                | Class::GitSecretBad
                | Class::EngineSecretMissing
                | Class::ProjectMissing
                | Class::CrdMissing
                | Class::NamespaceMissing
        ) && self
            .open
            .keys()
            .any(|k| is_collapse(k.0) && comes_of(k, key));
        // What Argo CD is asked with is new beside an agent's upgrade, in many clusters at once; one that somebody deleted was seen to go.
        let first = key.0 == Class::ObjectMissing
            && key.1.kind == Kind::ApplicationSet
            && !moment.observed.buried.contains_key(&key.1);
        let dies = matches!(
            key.0,
            Class::NamespaceTerminating | Class::CrdTerminating | Class::SyncObjectsDeleted
        );
        let shared = matches!(
            key.0,
            Class::ObjectMissing
                | Class::ObjectAltered
                | Class::SourceAltered
                | Class::RootDeleted
                | Class::ProjectMissing
        );
        let passes = key.1.kind.installable() || (moment.hands_over && shared);
        let known = (moment.observed, moment.history);
        let fault = moment
            .waits
            .is_some_and(|install| change::is_fault(moment.now, install, known, key));
        let new = moment.changing && passes && !dies && !fault;
        moment.history.adopted
            && !new
            && !first
            && ripe
            && !part
            && !self.open.contains_key(key)
            && self.open.len() < MAX_OPEN
    }

    /// Notes a step at the heal that it belongs to.
    pub(super) fn acted(&mut self, now: OffsetDateTime, step: &Step, outcome: &Outcome) {
        let Some(cause) = &step.cause else {
            return;
        };
        let own = self.open.contains_key(cause).then(|| cause.clone());
        let collapse = self.open.keys().find(|k| is_collapse(k.0)).cloned();
        let Some(open) = own.or(collapse).and_then(|key| self.open.get_mut(&key)) else {
            return;
        };
        open.last_step = Some(now);
        open.record.acted_at.get_or_insert_with(|| rfc3339(now));
        if matches!(outcome, Outcome::Forbidden(_)) && open.record.next != NO_RIGHT {
            NO_RIGHT.clone_into(&mut open.record.next);
            open.untold = true;
        }
        let done = HealStep {
            action: step.action.as_str().to_owned(),
            object: step.target.to_string(),
            at: rfc3339(now),
            outcome: outcome.as_str().to_owned(),
        };
        let begins = heal::acts(&done) && open.acts.acted(now);
        acts::write(&mut open.record.steps, done, begins);
    }
}

/// What a person should do where the budget is spent. What no write brought about nobody writes.
fn exhausted(class: Class) -> String {
    let advice = class.advice();
    let why = if writes_fields(class) || advice.is_empty() {
        "the fault comes back again and again: find who writes it"
    } else {
        advice
    };
    format!("{why}; the next trial is in an hour")
}

#[cfg(test)]
mod tests;

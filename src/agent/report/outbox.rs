//! What the hub has not acknowledged yet. State (steps, conditions, facts) is kept as the newest of each;
//! heals are kept in order, one record an id, until the hub says that it has them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::heal;
use crate::wire::api::{AgentBuild, HostKeysReport, Report, ReportAck};
use crate::wire::report::{
    Condition, ConditionType, Facts, HealRecord, HealResult, NO_ROUTE, Status, StepName, StepReport,
};

use super::super::News;

/// Heals that wait for the hub. Beyond this the oldest closed ones go, and are counted.
pub const MAX_HEALS: usize = 200;
/// Heals in one report; a hub that was away for weeks gets them in pieces.
const HEALS_A_REPORT: usize = 50;

/// Whether Git is reached, by the agent's own probe and by the engine's fetching. The engine's word counts: its fetching is
/// what the cluster lives on. Only that there is no way to the host at all, which the probe says after several tries, stands
/// before it: the hub answers that with another way.
fn reached<'a>(own: Option<&'a Condition>, engine: Option<&'a Condition>) -> Option<&'a Condition> {
    let no_route = |c: &&Condition| c.status == Status::False && c.reason == NO_ROUTE;
    own.filter(no_route).or(engine).or(own)
}

#[derive(Debug, Default)]
pub struct Outbox {
    build: AgentBuild,
    facts: Facts,
    steps: BTreeMap<StepName, StepReport>,
    conditions: BTreeMap<ConditionType, Condition>,
    /// `GitReachable` by the agent's own probe, and by the engine's fetching.
    own_git: Option<Condition>,
    engine_git: Option<Condition>,
    revision: Option<String>,
    host_keys: Option<HostKeysReport>,
    heals: Vec<HealRecord>,
    /// Those of them that the hub has read and does not acknowledge: it is older, and does not know a word of them. They wait
    /// for the next line, which may be to a later hub.
    unread: BTreeSet<String>,
    /// Heals whose end is still to come.
    open: BTreeSet<String>,
    /// All of them: those that a former process left are known, too.
    all_open: bool,
    /// What is in the record of a former process and not understood.
    strange: Vec<Value>,
    /// That record is read.
    knows_former: bool,
    /// Heals that were given up because the hub was away too long.
    dropped: u64,
    /// Counts every change of state; a report carries the count it was made at.
    version: u64,
    acked: u64,
}

/// A report and what its acknowledgement settles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parcel {
    pub report: Report,
    version: u64,
    heals: Vec<HealRecord>,
}

impl Outbox {
    /// `heals` are those that a former process left unacknowledged.
    pub fn new(build: AgentBuild, heals: Vec<HealRecord>) -> Self {
        Self {
            build,
            heals,
            knows_former: true,
            version: 1,
            ..Self::default()
        }
    }

    /// One that does not know yet what a former process left. Heals go up in order: until [`Self::recall`] none does.
    pub fn without_former(build: AgentBuild) -> Self {
        Self {
            knows_former: false,
            ..Self::new(build, Vec::new())
        }
    }

    /// Puts what a former process left before what came since. Of a heal that went on, the newer words count.
    pub fn recall(&mut self, former: Vec<HealRecord>, strange: Vec<Value>) {
        let mut since = std::mem::take(&mut self.heals);
        for old in former {
            let newer = since.iter().position(|heal| heal.id == old.id);
            self.heals.push(match newer {
                Some(at) => since.remove(at),
                None => old,
            });
        }
        self.heals.append(&mut since);
        while self.heals.len() > MAX_HEALS {
            self.drop_one();
        }
        self.strange = strange;
        self.knows_former = true;
        self.version += 1;
    }

    /// Takes news in. True where the heals changed, which outlive the process.
    pub fn add(&mut self, news: News) -> bool {
        match news {
            News::Step(step) => {
                let changed = self.steps.get(&step.step).is_none_or(|old| {
                    (old.state, old.reason.as_str()) != (step.state, step.reason.as_str())
                });
                if changed {
                    self.steps.insert(step.step, step);
                    self.version += 1;
                }
                false
            }
            News::OwnGit(condition) => {
                self.own_git = Some(condition);
                self.reach();
                false
            }
            News::Condition(condition) if condition.kind == ConditionType::GitReachable => {
                self.engine_git = Some(condition);
                self.reach();
                false
            }
            News::Condition(condition) => {
                self.version += u64::from(self.merge(condition));
                false
            }
            News::Revision(revision) => {
                if self.revision.as_ref() != Some(&revision) {
                    self.revision = Some(revision);
                    self.version += 1;
                }
                false
            }
            News::HostKeys(host_keys) => {
                if self.host_keys.as_ref() != Some(&host_keys) {
                    self.host_keys = Some(host_keys);
                    self.version += 1;
                }
                false
            }
            News::Heal(heal) => {
                if heal::is_over(&heal) {
                    self.open.remove(&heal.id);
                } else {
                    self.open.insert(heal.id.clone());
                }
                self.keep(*heal)
            }
            News::GoesOn(ids) => {
                self.open.extend(ids);
                self.all_open = true;
                self.version += 1;
                false
            }
        }
    }

    fn reach(&mut self) {
        let told = reached(self.own_git.as_ref(), self.engine_git.as_ref()).cloned();
        let changed = told.is_some_and(|told| self.merge(told));
        self.version += u64::from(changed);
    }

    pub fn set_facts(&mut self, facts: Facts) {
        if self.facts != facts {
            self.facts = facts;
            self.version += 1;
        }
    }

    /// The hub may have lost what it knew, or is another one: everything goes up again.
    pub fn resend(&mut self) {
        self.version += 1;
        self.unread.clear();
    }

    /// What the hub did not take goes up once more: one reason passes by itself, an id from a clock that was ahead.
    pub fn offer_again(&mut self) {
        self.unread.clear();
    }

    pub fn is_clean(&self) -> bool {
        self.acked == self.version && self.waiting().next().is_none()
    }

    /// What is to go up now.
    fn waiting(&self) -> impl Iterator<Item = &HealRecord> {
        let go = |heal: &&HealRecord| self.knows_former && !self.unread.contains(&heal.id);
        self.heals.iter().filter(go)
    }

    pub fn heals(&self) -> &[HealRecord] {
        &self.heals
    }

    pub fn strange(&self) -> &[Value] {
        &self.strange
    }

    pub fn knows_former(&self) -> bool {
        self.knows_former
    }

    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The next report. With nothing new it is a bare sign of life.
    pub fn next(&self) -> Parcel {
        let heals: Vec<_> = self.waiting().take(HEALS_A_REPORT).cloned().collect();
        let mut report = Report {
            agent: self.build.clone(),
            heals: heals.clone(),
            ..Report::default()
        };
        if self.acked != self.version {
            report.facts = (!self.facts.is_empty()).then(|| self.facts.clone());
            report.steps = self.steps.values().cloned().collect();
            let all = !self.conditions.is_empty();
            report.conditions = all.then(|| self.conditions.values().cloned().collect());
            report.revision.clone_from(&self.revision);
            report.host_keys.clone_from(&self.host_keys);
            // What is still to go up is on its way, open or not.
            let waiting = self.heals.iter().map(|h| &h.id);
            let open: BTreeSet<&String> = self.open.iter().chain(waiting).collect();
            let all_known = self.all_open && self.knows_former;
            report.open_heals = all_known.then(|| open.into_iter().cloned().collect());
        }
        Parcel {
            report,
            version: self.version,
            heals,
        }
    }

    /// The hub has `parcel`. True where the heals changed.
    pub fn settle(&mut self, parcel: &Parcel, ack: &ReportAck) -> bool {
        self.acked = self.acked.max(parcel.version);
        let before = self.heals.len();
        let unread = |h: &&HealRecord| !ack.heals.contains(&h.id) && self.heals.contains(h);
        let unread = parcel.heals.iter().filter(unread);
        self.unread.extend(unread.map(|h| h.id.clone()));
        // A heal that changed while its report was under way goes up once more.
        self.heals.retain(|heal| {
            let stored = ack.heals.contains(&heal.id);
            !(stored && parcel.heals.contains(heal))
        });
        self.unread
            .retain(|id| self.heals.iter().any(|heal| heal.id == *id));
        self.heals.len() != before
    }

    fn merge(&mut self, mut condition: Condition) -> bool {
        let Some(old) = self.conditions.get(&condition.kind) else {
            self.conditions.insert(condition.kind, condition);
            return true;
        };
        if old.status == condition.status {
            condition.since.clone_from(&old.since);
        }
        let changed = *old != condition;
        if changed {
            self.conditions.insert(condition.kind, condition);
        }
        changed
    }

    fn keep(&mut self, heal: HealRecord) -> bool {
        match self.heals.iter_mut().find(|old| old.id == heal.id) {
            Some(old) if *old == heal => return false,
            Some(old) => {
                // In other words, it may be read.
                self.unread.remove(&heal.id);
                *old = heal;
            }
            None => self.heals.push(heal),
        }
        if self.heals.len() > MAX_HEALS {
            self.drop_one();
        }
        true
    }

    fn drop_one(&mut self) {
        // One that was reported may go on for weeks, and is told of once only.
        let closed = |h: &HealRecord| h.result == HealResult::Healed || heal::is_over(h);
        let closed = self.heals.iter().position(closed);
        self.heals.remove(closed.unwrap_or(0));
        self.dropped += 1;
    }
}

#[cfg(test)]
mod tests;

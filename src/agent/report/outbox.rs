//! What the hub has not acknowledged yet. State (steps, conditions, facts) is kept as the newest of each;
//! heals are kept in order, one record an id, until the hub says that it has them.

use std::collections::{BTreeMap, BTreeSet};

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
    /// Heals whose end is still to come.
    open: BTreeSet<String>,
    /// All of them: those that a former process left are known, too.
    all_open: bool,
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
            version: 1,
            ..Self::default()
        }
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
    }

    pub fn is_clean(&self) -> bool {
        self.acked == self.version && self.heals.is_empty()
    }

    pub fn heals(&self) -> &[HealRecord] {
        &self.heals
    }

    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The next report. With nothing new it is a bare sign of life.
    pub fn next(&self) -> Parcel {
        let heals: Vec<_> = self.heals.iter().take(HEALS_A_REPORT).cloned().collect();
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
            report.open_heals = self.all_open.then(|| open.into_iter().cloned().collect());
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
        // A heal that changed while its report was under way goes up once more.
        self.heals.retain(|heal| {
            let stored = ack.heals.contains(&heal.id);
            !(stored && parcel.heals.contains(heal))
        });
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
            Some(old) => *old = heal,
            None => self.heals.push(heal),
        }
        if self.heals.len() > MAX_HEALS {
            let closed = self.heals.iter().position(|h| h.result != HealResult::Open);
            self.heals.remove(closed.unwrap_or(0));
            self.dropped += 1;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::report::{Status, StepState};

    fn heal(id: &str, result: HealResult) -> HealRecord {
        HealRecord {
            id: id.to_owned(),
            class: "ObjectMissing".to_owned(),
            number: 1,
            meaning: String::new(),
            object: String::new(),
            evidence: String::new(),
            writer: String::new(),
            revision: String::new(),
            commit: String::new(),
            steps: Vec::new(),
            fault_at: None,
            detected_at: String::new(),
            acted_at: None,
            restored_at: None,
            result,
            next: String::new(),
        }
    }

    fn outbox() -> Outbox {
        Outbox::new(AgentBuild::default(), Vec::new())
    }

    fn ack(ids: &[&str]) -> ReportAck {
        ReportAck {
            heals: ids.iter().map(|id| (*id).to_owned()).collect(),
            assignment_revision: 1,
        }
    }

    /// H49: the history arrives once and in order.
    #[test]
    fn heals_wait_in_order_until_the_hub_has_them() {
        let mut outbox = outbox();
        for id in ["a", "b"] {
            assert!(outbox.add(News::Heal(Box::new(heal(id, HealResult::Healed)))));
        }
        let parcel = outbox.next();
        let sent: Vec<_> = parcel.report.heals.iter().map(|h| h.id.as_str()).collect();
        assert_eq!(sent, ["a", "b"]);
        assert!(outbox.settle(&parcel, &ack(&["a"])));
        assert_eq!(outbox.heals(), [heal("b", HealResult::Healed)]);
        assert!(outbox.settle(&parcel, &ack(&["b"])));
        assert!(outbox.is_clean());
    }

    /// What the hub has as open and is not named here, nobody will tell the end of.
    #[test]
    fn the_open_heals_are_named_once_those_of_before_are_known() {
        let mut outbox = Outbox::new(
            AgentBuild::default(),
            vec![heal("unsent", HealResult::Open)],
        );
        let told = |outbox: &Outbox| outbox.next().report.open_heals;
        outbox.add(News::Heal(Box::new(heal("new", HealResult::Open))));
        assert_eq!(told(&outbox), None);
        outbox.add(News::GoesOn(vec!["old".to_owned()]));
        let ids = |ids: &[&str]| Some(ids.iter().map(|id| (*id).to_owned()).collect());
        assert_eq!(told(&outbox), ids(&["new", "old", "unsent"]));
        for id in ["old", "new"] {
            outbox.add(News::Heal(Box::new(heal(id, HealResult::Failed))));
        }
        // Their end is not at the hub yet.
        assert_eq!(told(&outbox), ids(&["new", "old", "unsent"]));
        let parcel = outbox.next();
        outbox.settle(&parcel, &ack(&["new", "old", "unsent"]));
        assert_eq!(told(&outbox), None);
        outbox.resend();
        assert_eq!(told(&outbox), ids(&[]));
    }

    #[test]
    fn a_heal_that_closes_while_its_report_travels_goes_up_again() {
        let mut outbox = outbox();
        outbox.add(News::Heal(Box::new(heal("a", HealResult::Open))));
        let parcel = outbox.next();
        outbox.add(News::Heal(Box::new(heal("a", HealResult::Healed))));
        assert!(!outbox.settle(&parcel, &ack(&["a"])));
        assert_eq!(outbox.heals(), [heal("a", HealResult::Healed)]);
    }

    #[test]
    fn open_heals_outlast_closed_ones_and_losses_are_counted() {
        let mut outbox = outbox();
        outbox.add(News::Heal(Box::new(heal("open", HealResult::Open))));
        for n in 0..MAX_HEALS {
            outbox.add(News::Heal(Box::new(heal(
                &n.to_string(),
                HealResult::Healed,
            ))));
        }
        assert_eq!((outbox.heals().len(), outbox.dropped()), (MAX_HEALS, 1));
        assert_eq!(outbox.heals()[0].id, "open");
        assert_eq!(outbox.heals()[1].id, "1");
    }

    #[test]
    fn state_is_sent_whole_when_it_changed_and_not_otherwise() {
        let mut outbox = outbox();
        let step = |reason: &str, at: &str| {
            News::Step(StepReport {
                step: StepName::Git,
                state: StepState::Waiting,
                reason: reason.to_owned(),
                at: at.to_owned(),
            })
        };
        outbox.add(step("auth", "1"));
        let parcel = outbox.next();
        assert_eq!(parcel.report.steps.len(), 1);
        outbox.settle(&parcel, &ack(&[]));
        outbox.add(step("auth", "2"));
        assert!(
            outbox.is_clean(),
            "the same state at another time is no news"
        );
        assert_eq!(outbox.next().report, Report::default());
        outbox.resend();
        assert_eq!(outbox.next().report.steps, parcel.report.steps);
    }

    #[test]
    fn a_condition_keeps_its_time_while_its_status_stays() {
        let mut outbox = outbox();
        let condition = |status, message: &str, since: &str| Condition {
            kind: ConditionType::Synced,
            status,
            reason: "R".to_owned(),
            message: message.to_owned(),
            since: since.to_owned(),
        };
        outbox.add(News::Condition(condition(Status::True, "one", "1")));
        outbox.add(News::Condition(condition(Status::True, "two", "2")));
        let expected = vec![condition(Status::True, "two", "1")];
        assert_eq!(outbox.next().report.conditions, Some(expected));
    }

    /// Two look at it and one answer is told, whoever spoke last.
    #[test]
    fn whether_git_is_reached_is_one_answer_from_two() {
        let told = |status, reason: &str| Condition {
            kind: ConditionType::GitReachable,
            status,
            reason: reason.to_owned(),
            message: String::new(),
            since: "1".to_owned(),
        };
        let read = told(Status::True, "Read");
        let not_read = told(Status::False, "NotRead");
        let no_route = told(Status::False, NO_ROUTE);
        let fetched = told(Status::True, "Fetched");
        let refused = told(Status::False, "KeyRevoked");
        for (own, engine, one) in [
            (Some(&read), None, &read),
            (Some(&not_read), None, &not_read),
            (Some(&no_route), None, &no_route),
            (None, Some(&fetched), &fetched),
            (Some(&read), Some(&fetched), &fetched),
            (Some(&not_read), Some(&fetched), &fetched),
            (Some(&read), Some(&refused), &refused),
            (Some(&not_read), Some(&refused), &refused),
            (Some(&no_route), Some(&refused), &no_route),
            (Some(&no_route), Some(&fetched), &no_route),
        ] {
            let own = own.map(|c| News::OwnGit(c.clone()));
            let engine = engine.map(|c| News::Condition(c.clone()));
            let news: Vec<News> = own.into_iter().chain(engine).collect();
            let mut turned = news.clone();
            turned.reverse();
            for order in [news, turned] {
                let mut outbox = outbox();
                for news in order.clone() {
                    outbox.add(news);
                }
                let told = outbox.next().report.conditions;
                assert_eq!(told, Some(vec![one.clone()]), "{order:?}");
            }
        }
    }
}

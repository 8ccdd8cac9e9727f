//! The record of each heal, from detection to restored function. Pure: ids and times are passed in.

use std::collections::BTreeMap;

use time::OffsetDateTime;

use crate::agent::plan::history::Outcome;
use crate::agent::plan::{Class, Finding, History, Key, Plan, Step};
use crate::clock::rfc3339;
use crate::wire::report::{HealRecord, HealResult, HealStep};

/// Heals that are open at the same time; further faults are mended without a record of their own.
const MAX_OPEN: usize = 64;
/// Steps that are written down for one heal; the rest is counted.
const MAX_STEPS: usize = 40;
const MAX_EVIDENCE: usize = 4096;

/// The open heals.
#[derive(Debug, Default)]
pub(super) struct Records {
    open: BTreeMap<Key, Open>,
}

#[derive(Debug)]
struct Open {
    record: HealRecord,
    last_step: Option<OffsetDateTime>,
    exhausted: bool,
}

/// What the cluster was like when the plan was made.
pub(super) struct Moment<'a> {
    pub(super) now: OffsetDateTime,
    pub(super) plan: &'a Plan,
    pub(super) history: &'a History,
    /// Since when function is proven.
    pub(super) proven: Option<OffsetDateTime>,
    pub(super) revision: &'a str,
}

impl Records {
    /// Opens and closes heals; returns what is to be told. `id` makes the id of a new record.
    pub(super) fn update(
        &mut self,
        moment: &Moment<'_>,
        mut id: impl FnMut() -> String,
    ) -> Vec<HealRecord> {
        let mut told = Vec::new();
        for finding in &moment.plan.findings {
            let key = (finding.class, finding.object.clone());
            if self.counts(moment, &key) {
                let open = opened(moment, finding, id());
                told.push(open.record.clone());
                self.open.insert(key, open);
            }
        }
        for key in &moment.plan.exhausted {
            if let Some(open) = self.open.get_mut(key).filter(|o| !o.exhausted) {
                open.exhausted = true;
                "the fault comes back again and again: find who writes it; the next trial is in an hour"
                    .clone_into(&mut open.record.next);
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
                told.push(closed(open.record, moment.now));
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
        ) && self.open.keys().any(|k| is_collapse(k.0));
        moment.history.adopted
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
        let again = open.record.steps.last().is_some_and(|last| {
            last.action == step.action.as_str()
                && last.object == step.target.to_string()
                && last.outcome == outcome.as_str()
        });
        if !again && open.record.steps.len() < MAX_STEPS {
            open.record.steps.push(HealStep {
                action: step.action.as_str().to_owned(),
                object: step.target.to_string(),
                at: rfc3339(now),
                outcome: outcome.as_str().to_owned(),
            });
        }
    }
}

fn is_collapse(class: Class) -> bool {
    matches!(
        class,
        Class::NamespaceTerminating
            | Class::NamespaceMissing
            | Class::CrdTerminating
            | Class::CrdMissing
    )
}

fn opened(moment: &Moment<'_>, finding: &Finding, id: String) -> Open {
    let key = (finding.class, finding.object.clone());
    let since = moment
        .history
        .faults
        .get(&key)
        .and_then(|past| past.since)
        .unwrap_or(moment.now);
    let reported = finding.class.budget() == crate::agent::plan::fault::Budget::Report;
    Open {
        record: HealRecord {
            id,
            class: finding.class.as_str().to_owned(),
            object: finding.object.to_string(),
            evidence: finding.evidence.chars().take(MAX_EVIDENCE).collect(),
            writer: finding.writer.clone(),
            revision: moment.revision.to_owned(),
            steps: Vec::new(),
            fault_at: finding.fault_at.map(rfc3339),
            detected_at: rfc3339(since),
            acted_at: None,
            restored_at: None,
            result: if reported {
                HealResult::Reported
            } else {
                HealResult::Open
            },
            next: finding.class.advice().to_owned(),
        },
        last_step: None,
        exhausted: false,
    }
}

/// A heal ends when its fault is gone and, where something was done, a probe sent after that was answered.
fn is_over(key: &Key, open: &Open, moment: &Moment<'_>) -> bool {
    let there = moment
        .plan
        .findings
        .iter()
        .any(|f| f.class == key.0 && f.object == key.1);
    // A collapse is over when nothing is missing any more, not when the last old object is gone.
    let rebuilding = is_collapse(key.0)
        && moment
            .plan
            .findings
            .iter()
            .any(|f| f.class.debounce().is_zero());
    if there || rebuilding {
        return false;
    }
    match open.last_step {
        Some(at) => moment.proven.is_some_and(|proven| proven >= at),
        None => !is_collapse(key.0) || moment.proven.is_some(),
    }
}

fn closed(mut record: HealRecord, now: OffsetDateTime) -> HealRecord {
    record.restored_at = Some(rfc3339(now));
    match record.result {
        HealResult::Open => record.result = HealResult::Healed,
        HealResult::Reported | HealResult::Healed | HealResult::Failed => {}
    }
    record.next = String::new();
    record
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::plan::{Action, Mode};
    use crate::bundle::{Kind, ObjectId};

    fn at(seconds: i64) -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp(1_800_000_000 + seconds).unwrap()
    }

    fn deployment() -> ObjectId {
        ObjectId::new(Kind::Deployment, "flux-system", "source-controller")
    }

    /// One round of the loop: what is found at `seconds`, with function proven since `proven`.
    fn round(
        records: &mut Records,
        history: &mut History,
        seconds: i64,
        found: &[(Class, ObjectId)],
        proven: Option<i64>,
    ) -> Vec<HealRecord> {
        let findings = found
            .iter()
            .map(|(class, id)| Finding::new(*class, id, "is broken"));
        let plan = Plan {
            findings: findings.collect(),
            steps: Vec::new(),
            next_look: at(seconds + 60),
            exhausted: Vec::new(),
            mode: Mode::Act,
        };
        history.saw(at(seconds), &plan);
        let moment = Moment {
            now: at(seconds),
            plan: &plan,
            history,
            proven: proven.map(at),
            revision: "main@sha1:1",
        };
        records.update(&moment, || format!("id-{seconds}"))
    }

    fn step(class: Class, id: &ObjectId) -> Step {
        Step {
            action: Action::Create,
            target: id.clone(),
            cause: Some((class, id.clone())),
        }
    }

    fn adopted() -> (Records, History) {
        let history = History {
            adopted: true,
            ..History::default()
        };
        (Records::default(), history)
    }

    #[test]
    fn a_heal_ends_when_a_probe_sent_after_it_is_answered() {
        let (mut records, mut history) = adopted();
        let fault = [(Class::ObjectMissing, deployment())];
        let opened = round(&mut records, &mut history, 0, &fault, Some(-100));
        assert_eq!(opened[0].result, HealResult::Open);
        assert_eq!(opened[0].revision, "main@sha1:1");
        records.acted(at(1), &step(fault[0].0, &fault[0].1), &Outcome::Done);
        assert_eq!(round(&mut records, &mut history, 2, &[], Some(-100)), []);
        let closed = round(&mut records, &mut history, 9, &[], Some(5));
        assert_eq!(closed.len(), 1);
        assert_eq!(closed[0].id, opened[0].id);
        assert_eq!(closed[0].result, HealResult::Healed);
        assert_eq!(closed[0].acted_at, Some(rfc3339(at(1))));
        assert_eq!(closed[0].restored_at, Some(rfc3339(at(9))));
        assert_eq!(closed[0].steps[0].outcome, "ok");
    }

    #[test]
    fn what_went_with_the_namespace_is_one_heal() {
        let (mut records, mut history) = adopted();
        let namespace = ObjectId::new(Kind::Namespace, "", "flux-system");
        let dying = [(Class::NamespaceTerminating, namespace)];
        assert_eq!(round(&mut records, &mut history, 0, &dying, None).len(), 1);
        let missing = [(Class::ObjectMissing, deployment())];
        assert_eq!(round(&mut records, &mut history, 20, &missing, None), []);
        records.acted(
            at(21),
            &step(Class::ObjectMissing, &deployment()),
            &Outcome::Done,
        );
        let closed = round(&mut records, &mut history, 40, &[], Some(30));
        assert_eq!(closed[0].class, "NamespaceTerminating");
        assert_eq!(closed[0].steps.len(), 1);
    }

    #[test]
    fn an_install_is_no_heal() {
        let (mut records, mut history) = (Records::default(), History::default());
        let missing = [(Class::ObjectMissing, deployment())];
        assert_eq!(round(&mut records, &mut history, 0, &missing, None), []);
    }

    #[test]
    fn a_fault_counts_after_its_debounce_and_is_reported_until_it_is_gone() {
        let (mut records, mut history) = adopted();
        let source = ObjectId::new(Kind::GitRepository, "flux-system", "flux-system");
        let fault = [(Class::GitUnreachable, source)];
        assert_eq!(round(&mut records, &mut history, 0, &fault, None), []);
        let opened = round(&mut records, &mut history, 60, &fault, None);
        assert_eq!(opened[0].result, HealResult::Reported);
        assert_eq!(opened[0].detected_at, rfc3339(at(0)));
        assert!(!opened[0].next.is_empty());
        let closed = round(&mut records, &mut history, 90, &[], None);
        assert_eq!(
            (closed[0].result, closed[0].next.as_str()),
            (HealResult::Reported, "")
        );
    }

    /// F29: a suspended root is on record, with the next action, until it is resumed.
    #[test]
    fn a_suspended_root_is_on_record_with_what_to_do() {
        let (mut records, mut history) = adopted();
        let root = ObjectId::new(Kind::Kustomization, "flux-system", "flux-system");
        let fault = [(Class::SuspendedByHuman, root)];
        let told = round(&mut records, &mut history, 0, &fault, Some(-100));
        assert_eq!(told[0].result, HealResult::Reported);
        assert_eq!(told[0].next, Class::SuspendedByHuman.advice());
        assert!(told[0].next.contains("flux resume"), "{}", told[0].next);
        assert_eq!(round(&mut records, &mut history, 9, &fault, Some(-100)), []);
        let resumed = round(&mut records, &mut history, 20, &[], Some(-100));
        assert_eq!(resumed[0].restored_at, Some(rfc3339(at(20))));
    }

    #[test]
    fn open_heals_are_bounded() {
        let (mut records, mut history) = adopted();
        let many: Vec<(Class, ObjectId)> = (0..200)
            .map(|n| {
                (
                    Class::ObjectMissing,
                    ObjectId::new(Kind::Service, "flux-system", &n.to_string()),
                )
            })
            .collect();
        assert_eq!(
            round(&mut records, &mut history, 0, &many, None).len(),
            MAX_OPEN
        );
        for _ in 0..200 {
            records.acted(
                at(1),
                &step(many[0].0, &many[0].1),
                &Outcome::Failed("x".to_owned()),
            );
        }
        let closed = round(&mut records, &mut history, 9, &[], Some(5));
        assert_eq!(closed.iter().map(|r| r.steps.len()).max(), Some(1));
    }
}

//! How plans and outcomes become history.

use time::{Duration, OffsetDateTime};

use super::fault::Budget;
use super::health::pods_of;
use super::pace::{MAX_ATTEMPTS, spends};
use super::state::{History, Observed};
use super::steps::{Action, Step};
use super::{Finding, Mode, Plan};
use crate::agent::engine::argocd::{KEYRING, KNOWN_HOSTS};
use crate::bundle::Kind;

mod saved;

pub(super) use saved::AGAIN;
pub use saved::STALE;

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
        let blinds = |f: &Finding| self.is_blinding(f.class, &f.object);
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
            let there = there(key);
            if !there {
                past.since = None;
            }
            // A fault that is away for a moment, as its hourly trial or a look may have it, is not over.
            past.away = (past.spent && !there && !unseen).then(|| past.away.unwrap_or(now));
            let over = past.away.is_some_and(|at| now - at >= Duration::hours(1));
            past.since.is_some() || !past.attempts.is_empty() || past.spent && !over
        });
    }

    /// The install is another one: what was tried with the old one says nothing of it.
    pub fn changed(&mut self) {
        self.settled.clear();
        self.voided.clear();
        self.faults.retain(|(_, id), _| !id.kind.installable());
        for refused in self.refused.values_mut() {
            refused.failures = 0;
        }
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
            self.voids(step, observed);
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
            // What was replaced and is as before, admission has put there again.
            (Action::Apply | Action::Replace | Action::WriteSecret, Outcome::Unchanged) => {
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
                if [KNOWN_HOSTS, KEYRING].contains(&step.target.name.as_str()) {
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

    /// Notes whose tokens are void, if it is a ServiceAccount that was not there; or who may have got none, if it gave none.
    fn voids(&mut self, step: &Step, observed: &Observed) {
        let account = &step.target;
        if account.kind != Kind::ServiceAccount {
            return;
        }
        let pods = pods_of(observed, &account.name);
        if !observed.objects.contains_key(account) {
            let uids = pods.map(|pod| pod.uid.clone());
            self.voided.insert(account.clone(), uids.collect());
        } else if step.action == Action::Replace {
            let uids = pods.filter(|pod| !pod.ready).map(|pod| pod.uid.clone());
            self.voided.entry(account.clone()).or_default().extend(uids);
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

fn push(times: &mut Vec<OffsetDateTime>, now: OffsetDateTime) {
    times.push(now);
    let surplus = times.len().saturating_sub(MAX_ATTEMPTS);
    times.drain(..surplus);
}

#[cfg(test)]
mod tests;

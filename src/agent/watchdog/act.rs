//! The plan's steps, done one after the other.

use std::sync::Arc;

use futures_util::future::join_all;
use time::OffsetDateTime;
use tracing::{debug, info};

use super::Watchdog;
use super::attend::Guard;
use crate::agent::apply::Hands;
use crate::agent::engine::Install;
use crate::agent::fault::Stage;
use crate::agent::observe::View;
use crate::agent::plan::history::Outcome;
use crate::agent::plan::pass::Pass;
use crate::agent::plan::quarantine::shield;
use crate::agent::plan::state::Answer;
use crate::agent::plan::{
    self, Action, History, Key, Object, Observed, Plan, Step, burst, ownership, pace, probes,
};
use crate::bundle::ObjectId;
use crate::clock;

impl Watchdog {
    /// Does the plan's steps. True = something was done: plan anew.
    pub(super) async fn act(
        &mut self,
        install: &Install,
        view: &View,
        observed: &Observed,
        plan: &Plan,
    ) -> bool {
        let (kube, store) = (self.context.kube.clone(), self.saves.clone());
        let hands = Hands {
            kube: &kube,
            install,
            view,
            observed,
            saves: &store,
        };
        // Each of these cuts rights that are being used to prune: all at once, before anything else.
        let cuts: Vec<&Step> = plan
            .steps
            .iter()
            .filter(|s| matches!(s.action, Action::CutRights { .. }))
            .collect();
        let done = join_all(cuts.iter().map(|step| hands.act(step, &[]))).await;
        for (step, done) in cuts.into_iter().zip(done) {
            self.note(step, &done.outcome, observed);
        }
        let dying = is_dying(clock::now(), install, observed, &self.history);
        let mut pass = Pass::new(plan, observed);
        for step in plan
            .steps
            .iter()
            .filter(|s| !matches!(s.action, Action::CutRights { .. }))
        {
            let live = self.context.around(view.subscribe().borrow().clone());
            let same = is_dying(clock::now(), install, &live, &self.history) == dying;
            if !same || !self.context.term.holds() || self.is_told() {
                return true;
            }
            let anew = || plan::plan(clock::now(), install, &live, &self.history);
            let Some(step) = pass.next(step, &live, anew) else {
                debug!(action = step.action.as_str(), object = %step.target, "left to another plan");
                continue;
            };
            let hands = Hands {
                observed: &live,
                ..hands
            };
            let outcome = self.step(hands, install, &step).await;
            pass.acted(&step, &outcome, &view.subscribe().borrow());
        }
        !plan.steps.is_empty()
    }

    /// Whether hub or owner has said something since the plan was made: the next one heeds it.
    fn is_told(&self) -> bool {
        let owner = self.context.owner.has_changed().unwrap_or(false);
        owner || self.desired.has_changed().unwrap_or(true)
    }

    /// Does one step, and takes in what it came to.
    pub(super) async fn step(
        &mut self,
        hands: Hands<'_>,
        install: &Install,
        step: &Step,
    ) -> Outcome {
        if step.action == Action::Restore {
            let guard = self.guard(install, hands.view, hands.observed);
            let record = Box::pin(self.records_try(clock::now(), &step.target));
            let (ready, cut) = Guard::beside(guard.as_ref(), record).await;
            self.heed(cut, "the record of what is brought back");
            if !ready {
                debug!(object = %step.target, "nothing is brought back before its record was tried again");
                return Outcome::Unserved("it is not on record yet".to_owned());
            }
        }
        if step.action == Action::Release && !self.history.cut.is_empty() {
            // To let go takes a while, and nobody else would know why the engine has no rights.
            let left = self.left();
            Box::pin(self.open_heals.store_taken(left)).await;
        }
        let saved = match step.action {
            Action::Restore | Action::Release => self.history.saved.get(&step.target),
            _ => None,
        };
        let saved = saved.cloned().unwrap_or_default();
        // What is ours again is made from the bundle. What is applied to the root leaves alone what is held, also by the step before.
        let current = ownership::taken(install, hands.observed);
        let shielded = shield::shielded(&current, &hands.view.subscribe().borrow());
        let kept = plan::find::as_stopped(shielded, &step.target, hands.observed, &self.history);
        let hands = Hands {
            install: &kept,
            ..hands
        };
        let done = Box::pin(self.attended(hands, install, step, &saved)).await;
        let applied = !step.action.asks() && done.outcome == Outcome::Done;
        if install.changing && applied {
            self.context.faults.change(Stage::Applied);
        }
        self.note(step, &done.outcome, hands.observed);
        self.tell_of(&step.target, &done.told);
        if step.action == Action::Lock && done.outcome == Outcome::Done {
            let live = hands.observed.objects.get(&step.target);
            let why = live.and_then(|live| probes::refused_word(clock::now(), &step.target, live));
            if let Some(why) = why
                && pace::tells(&mut self.history, &step.target, clock::now())
            {
                self.teller.warn("AllowDeleteRefused", &why);
            }
        }
        if step.action == Action::Restore {
            self.history
                .restored(clock::now(), &step.target, done.saved);
            self.keep_saves(&step.target).await;
        } else if !done.saved.is_empty() {
            self.history.died(&step.target, done.saved);
        }
        done.outcome
    }

    pub(super) fn note(&mut self, step: &Step, outcome: &Outcome, observed: &Observed) {
        let now = clock::now();
        let cause = step
            .cause
            .as_ref()
            .map_or("probe", |key: &Key| key.0.as_str());
        let idle = matches!(
            (&step.action, outcome),
            (Action::Release | Action::Retry, Outcome::Unchanged)
        );
        if idle {
            debug!(action = step.action.as_str(), object = %step.target, "nothing to do");
        } else {
            info!(action = step.action.as_str(), object = %step.target, cause, outcome = outcome.as_str(), "step");
        }

        if matches!(outcome, Outcome::Forbidden(_)) {
            self.context.refused.notify_one();
        }
        // What was not sent for want of the lease says nothing of the API server.
        let unserved = matches!(outcome, Outcome::Unserved(_)) && self.context.term.holds();
        self.context.calls.wrote(!unserved);
        self.history.acted(now, step, outcome, observed);
        if !idle {
            self.records.acted(now, step, outcome);
        }
    }

    /// A list that is refused, or no longer, is a matter of the agent's own rights.
    pub(super) fn see_refusals(&mut self, observed: &Observed) {
        let scopes = observed.scopes.iter();
        let refused = scopes.filter(|(_, scope)| scope.answer == Answer::Refused);
        let refused = refused.map(|(kind, _)| *kind).collect();
        if self.unlisted != refused {
            self.unlisted = refused;
            self.context.refused.notify_one();
        }
    }
}

/// What the engine would prune if it kept its rights.
pub(super) fn is_dying(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    history: &History,
) -> bool {
    let dies = |(id, live): (&ObjectId, &Arc<Object>)| {
        id.kind.holds_others() && live.deleting.is_some() && install.wanted.contains_key(id)
    };
    observed.objects.iter().any(dies) || burst::is_on(now, install, observed, history)
}

#[cfg(test)]
mod tests;

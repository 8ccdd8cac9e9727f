//! Cuts the engine's rights the moment that is due, whatever else the watchdog is at: what it does for another fault, a
//! snapshot or a word to the hub may take seconds, and the engine prunes in less.
//!
//! One task does all of it, so that nothing is cut twice, and what came of each is noted once.

use std::time::Duration;

use anyhow::Result;
use futures_util::future::join_all;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::warn;

use super::act::is_dying;
use super::{Context, Watchdog};
use crate::agent::apply::{CALL, Hands};
use crate::agent::engine::Install;
use crate::agent::lease::Term;
use crate::agent::observe::View;
use crate::agent::plan::history::Outcome;
use crate::agent::plan::{self, Action, History, Observed, Step};
use crate::agent::saves::Saves;
use crate::clock;

/// What could not be cut is tried again.
const AGAIN: Duration = Duration::from_millis(500);
/// Of what is to be done, and of what was; an engine has two bindings.
const QUEUE: usize = 16;

/// The watchdog's end.
pub(super) struct Cutter {
    install: watch::Sender<Followed>,
    orders: mpsc::Sender<Order>,
    notes: mpsc::Receiver<Note>,
}

/// The task's end. `A` adds to what is seen what other parts of the agent know.
pub(super) struct Blade<A> {
    kube: kube::Client,
    saves: Saves,
    term: Term,
    around: A,
    view: View,
    install: watch::Receiver<Followed>,
    orders: mpsc::Receiver<Order>,
    notes: mpsc::Sender<Note>,
}

/// What the engine is to be, and whether it was ours before.
#[derive(Clone)]
struct Followed {
    install: Install,
    adopted: bool,
}

/// What the watchdog planned, and who waits for it.
struct Order {
    steps: Vec<Step>,
    done: oneshot::Sender<()>,
}

/// What a cut came to.
type Note = (Step, Outcome);

pub(super) fn cutter(
    context: &Context,
    view: &View,
    (install, adopted): (&Install, bool),
) -> (Cutter, Blade<impl Fn(Observed) -> Observed + use<>>) {
    let (tell, latest) = watch::channel(Followed {
        install: install.clone(),
        adopted,
    });
    let (order, orders) = mpsc::channel(QUEUE);
    let (note, notes) = mpsc::channel(QUEUE);
    let cutter = Cutter {
        install: tell,
        orders: order,
        notes,
    };
    let all = context.clone();
    let blade = Blade {
        kube: context.kube.clone(),
        saves: Saves::new(&context.kube, &context.namespace),
        term: context.term.clone(),
        around: move |seen| all.around(seen),
        view: view.clone(),
        install: latest,
        orders,
        notes: note,
    };
    (cutter, blade)
}

impl Cutter {
    /// What the engine is to be from now on.
    pub(super) fn follow(&self, install: &Install, adopted: bool) {
        self.install.send_replace(Followed {
            install: install.clone(),
            adopted,
        });
    }

    /// An engine that was adopted meanwhile is nobody else's.
    pub(super) fn adopted(&self, adopted: bool) {
        self.install.send_if_modified(|followed| {
            let changed = followed.adopted != adopted;
            followed.adopted = adopted;
            changed
        });
    }

    /// Until these were cut or could not be, once; what is still there is planned anew.
    async fn cut(&self, steps: Vec<Step>) {
        let (done, answer) = oneshot::channel();
        let order = Order { steps, done };
        // Nobody takes it any more: the watchdog ends, too.
        if self.orders.send(order).await.is_ok() {
            // Behind what the task may be at, for as long as its own calls may take.
            timeout(2 * CALL, answer).await.ok();
        }
    }
}

impl Watchdog {
    /// The plan's cuts, before any other step.
    pub(super) async fn cut(&mut self, plan: &plan::Plan, observed: &Observed) {
        let cuts = || plan.steps.iter().filter(|step| cuts(step));
        if let Some(cutter) = &self.cutter
            && cuts().next().is_some()
        {
            cutter.cut(cuts().cloned().collect()).await;
            self.note_cuts(observed);
        }
    }

    /// What was cut since the last time; and whether the engine is ours by now.
    pub(super) fn note_cuts(&mut self, observed: &Observed) {
        if let Some(cutter) = &self.cutter {
            cutter.adopted(self.history.adopted);
        }
        while let Some((step, outcome)) = self.cutter.as_mut().and_then(|c| c.notes.try_recv().ok())
        {
            self.note(&step, &outcome, observed);
        }
    }
}

pub(super) fn cuts(step: &Step) -> bool {
    matches!(step.action, Action::CutRights { .. })
}

impl<A: Fn(Observed) -> Observed> Blade<A> {
    /// Until the watchdog drops its end.
    pub(super) async fn run(mut self) -> Result<()> {
        let mut seen = self.view.subscribe();
        // What is there already comes first.
        let mut again = Some(Instant::now());
        loop {
            let wake = again.unwrap_or_else(Instant::now);
            let (due, waits) = tokio::select! {
                changed = seen.changed() => match changed {
                    Ok(()) => (self.planned(&mut seen), None),
                    Err(_) => return Ok(()),
                },
                order = self.orders.recv() => match order {
                    Some(order) => (order.steps, Some(order.done)),
                    None => return Ok(()),
                },
                () = sleep_until(wake), if again.is_some() => (self.planned(&mut seen), None),
            };
            let whole = self.cut(due).await;
            again = (!whole).then(|| Instant::now() + AGAIN);
            if let Some(waits) = waits {
                // It may have given up.
                waits.send(()).ok();
            }
        }
    }

    /// The cuts among what would be done now.
    fn planned(&self, seen: &mut watch::Receiver<Observed>) -> Vec<Step> {
        let Followed { install, adopted } = self.install.borrow().clone();
        let observed = seen.borrow_and_update().clone();
        if !is_dying(&install, &observed) {
            return Vec::new();
        }
        let observed = (self.around)(observed);
        // Of what was before, no cut hangs on anything else.
        let history = History {
            adopted,
            ..History::default()
        };
        let plan = plan::plan(clock::now(), &install, &observed, &history);
        plan.steps.into_iter().filter(cuts).collect()
    }

    /// All at once. False = some are still there, and may be gone with the next try.
    async fn cut(&self, mut due: Vec<Step>) -> bool {
        let observed = self.view.subscribe().borrow().clone();
        due.retain(|step| !is_cut(&observed, step));
        if due.is_empty() || !self.term.holds() {
            return true;
        }
        let install = self.install.borrow().install.clone();
        let hands = Hands {
            kube: &self.kube,
            install: &install,
            view: &self.view,
            observed: &observed,
            saves: &self.saves,
        };
        let done = join_all(due.iter().map(|step| hands.act(step, &[]))).await;
        let mut whole = true;
        for (step, done) in due.into_iter().zip(done) {
            whole &= done.outcome == Outcome::Done;
            if let Err(mpsc::error::TrySendError::Full((step, outcome))) =
                self.notes.try_send((step, done.outcome))
            {
                warn!(object = %step.target, outcome = outcome.as_str(), "rights cut; the watchdog is too busy to put it on record");
            }
        }
        whole
    }
}

/// Whether the binding is gone that this step is about.
fn is_cut(observed: &Observed, step: &Step) -> bool {
    let Action::CutRights { uid } = &step.action else {
        return true;
    };
    let live = observed.objects.get(&step.target);
    live.is_none_or(|live| live.uid != *uid || live.deleting.is_some())
}

#[cfg(test)]
mod tests;

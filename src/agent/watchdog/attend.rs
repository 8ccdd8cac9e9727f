//! A call may take long, for an API server or a webhook may: nothing that begins to die meanwhile waits for it. The engine
//! prunes within seconds.

use std::pin::pin;

use futures_util::future::join_all;
use tracing::warn;

use super::act::is_dying;
use super::{Context, Watchdog};
use crate::agent::apply::{Done, Hands};
use crate::agent::engine::Install;
use crate::agent::observe::View;
use crate::agent::plan::state::Saved;
use crate::agent::plan::{self, Action, History, Observed, Step};
use crate::agent::saves::Saves;
use crate::clock;

/// Stands beside what the watchdog does. All that it needs is its own.
pub(super) struct Guard {
    context: Context,
    saves: Saves,
    install: Install,
    view: View,
    history: History,
}

/// What a guard did.
pub(super) struct Cut {
    seen: Observed,
    done: Vec<(Step, Done)>,
}

impl Guard {
    /// Does `work`. Where something begins to die before it is done, the engine's rights are cut and its controllers
    /// stopped beside it, as the plan of that moment has it.
    pub(super) async fn beside<T>(
        guard: Option<&Self>,
        work: impl Future<Output = T>,
    ) -> (T, Option<Cut>) {
        match guard {
            Some(guard) => {
                let (done, cut) = beside(work, guard.begins(), || guard.cut()).await;
                (done, cut.flatten())
            }
            None => (work.await, None),
        }
    }

    /// Ready when something dies.
    async fn begins(&self) {
        let mut seen = self.view.subscribe();
        loop {
            let (now, install, history) = (clock::now(), &self.install, &self.history);
            if is_dying(now, install, &seen.borrow_and_update(), history) {
                return;
            }
            if seen.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    async fn cut(&self) -> Option<Cut> {
        // Another agent leads by now, and has a guard of its own.
        if !self.context.term.holds() {
            return None;
        }
        let seen = self.view.subscribe().borrow().clone();
        let seen = self.context.around(seen);
        let plan = plan::plan(clock::now(), &self.install, &seen, &self.history);
        let hands = Hands {
            kube: &self.context.kube,
            install: &self.install,
            view: &self.view,
            observed: &seen,
            saves: &self.saves,
        };
        let mut done = Vec::new();
        let (cuts, others): (Vec<Step>, Vec<Step>) = plan
            .steps
            .into_iter()
            .partition(|step| matches!(step.action, Action::CutRights { .. }));
        let stops = others.into_iter();
        let stops = stops.filter(|step| step.action == Action::ScaleToZero);
        // Rights first, as ever.
        for steps in [cuts, stops.collect()] {
            let ends = join_all(steps.iter().map(|step| hands.act(step, &[]))).await;
            done.extend(steps.into_iter().zip(ends));
        }
        Some(Cut { seen, done })
    }
}

impl Watchdog {
    /// A guard for what is done next; `install` is the one that plans are made from. What dies already has its cut.
    pub(super) fn guard(
        &self,
        install: &Install,
        view: &View,
        observed: &Observed,
    ) -> Option<Guard> {
        let dying = is_dying(clock::now(), install, observed, &self.history);
        (self.context.term.holds() && !dying).then(|| Guard {
            context: self.context.clone(),
            saves: self.saves.clone(),
            install: install.clone(),
            view: view.clone(),
            history: self.history.clone(),
        })
    }

    /// Does one step under guard.
    pub(super) async fn attended(
        &mut self,
        hands: Hands<'_>,
        install: &Install,
        step: &Step,
        saved: &[Saved],
    ) -> Done {
        let guard = self.guard(install, hands.view, hands.observed);
        let work = Box::pin(hands.act(step, saved));
        let (done, cut) = Guard::beside(guard.as_ref(), work).await;
        self.heed(
            cut,
            &format!("step {} of {}", step.action.as_str(), step.target),
        );
        done
    }

    /// Takes in what a guard did. Whether it did anything.
    pub(super) fn heed(&mut self, cut: Option<Cut>, meanwhile: &str) -> bool {
        let Some(cut) = cut else {
            return false;
        };
        warn!(
            meanwhile,
            "something began to die; the guard did not wait for what was under way"
        );
        for (step, done) in cut.done {
            self.note(&step, &done.outcome, &cut.seen);
        }
        true
    }
}

/// Carries `work` out, and beside it what is to be done once `begins` is ready. What was begun is finished.
async fn beside<T, C, F: Future<Output = C>>(
    work: impl Future<Output = T>,
    begins: impl Future<Output = ()>,
    then: impl FnOnce() -> F,
) -> (T, Option<C>) {
    let mut work = pin!(work);
    tokio::select! {
        biased;
        done = &mut work => (done, None),
        () = begins => {
            let (done, then) = tokio::join!(work, then());
            (done, Some(then))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use tokio::time::{Instant, sleep};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// When work and guard were done, in seconds: the guard begins after `begins`, and takes as long as given.
    async fn times(work: u32, begins: u32, guard: u32) -> (u64, Option<u64>) {
        let start = Instant::now();
        let began = Cell::new(false);
        let done = beside(
            async {
                sleep(SECOND * work).await;
                start.elapsed().as_secs()
            },
            sleep(SECOND * begins),
            || {
                began.set(true);
                async {
                    sleep(SECOND * guard).await;
                    start.elapsed().as_secs()
                }
            },
        )
        .await;
        assert_eq!(began.get(), done.1.is_some());
        done
    }

    #[tokio::test(start_paused = true)]
    async fn the_guard_does_not_wait_for_a_step_and_neither_is_given_up() {
        assert_eq!(times(15, 2, 1).await, (15, Some(3)));
        assert_eq!(times(15, 0, 1).await, (15, Some(1)));
        assert_eq!(times(3, 2, 10).await, (3, Some(12)));
        assert_eq!(times(1, 2, 1).await, (1, None));
        assert_eq!(times(0, 0, 1).await, (0, None));
    }
}

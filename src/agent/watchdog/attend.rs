//! A step may take long, for an API server may: nothing that begins to die meanwhile waits for it. The engine prunes
//! within seconds.

use std::pin::pin;

use futures_util::future::join_all;
use tracing::warn;

use super::Watchdog;
use super::act::is_dying;
use crate::agent::apply::{Done, Hands};
use crate::agent::engine::Install;
use crate::agent::plan::{self, Action, Observed, Step};
use crate::clock;

/// What the guard did beside a step.
struct Cut {
    seen: Observed,
    done: Vec<(Step, Done)>,
}

impl Watchdog {
    /// Does one step. Where something begins to die before it is done, the engine's rights are cut and its controllers
    /// stopped beside it, as the plan of that moment has it; `install` is the one that plans are made from.
    pub(super) async fn attended(
        &mut self,
        hands: Hands<'_>,
        install: &Install,
        step: &Step,
        saved: &[serde_json::Value],
    ) -> Done {
        let mut seen = hands.view.subscribe();
        let begins = async {
            loop {
                if is_dying(install, &seen.borrow_and_update()) {
                    return;
                }
                if seen.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        let cut = || async {
            // Another agent leads by now, and has a guard of its own.
            if !self.context.term.holds() {
                return None;
            }
            let seen = self.context.around(hands.view.subscribe().borrow().clone());
            let plan = plan::plan(clock::now(), install, &seen, &self.history);
            let guards = Hands {
                install,
                observed: &seen,
                ..hands
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
                let ends = join_all(steps.iter().map(|step| guards.act(step, &[]))).await;
                done.extend(steps.into_iter().zip(ends));
            }
            Some(Cut { seen, done })
        };
        // What died before the step was planned has its cut already.
        let dying = is_dying(install, hands.observed);
        let (done, cut) = if dying {
            (hands.act(step, saved).await, None)
        } else {
            beside(hands.act(step, saved), begins, cut).await
        };
        if let Some(cut) = cut.flatten() {
            warn!(
                step = step.action.as_str(), object = %step.target,
                "something began to die while this step was under way; the guard did not wait for it"
            );
            for (step, done) in cut.done {
                self.note(&step, &done.outcome, &cut.seen);
            }
        }
        done
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

//! Signs of life of a process's tasks: who has not beaten for too long stands still.
//!
//! Each task of [`super::Tasks`] has a pulse: it beats whenever the runtime can turn to the task, whatever that waits for.
//! So it tells of a task that keeps its thread: one that blocks, spins, or waits for a lock that nobody gives back. A
//! task that waits for an answer that never comes is not seen by that; where such a wait is a chain of many, the task has
//! a heart of its own, which it lets beat between them.

use std::fmt::Write as _;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};

/// Between two beats of a pulse.
const PULSE: Duration = Duration::from_secs(2);
/// A pulse that has not beaten for so long tells of a task that stands still.
const STILL: Duration = Duration::from_secs(8);

/// The beats of all tasks that must keep turning.
#[derive(Debug, Clone)]
pub struct Hearts {
    start: Instant,
    all: Arc<Mutex<Vec<Heart>>>,
}

/// One task's beat. When the last that the task has of it is dropped, nobody waits for it any more.
#[derive(Debug, Clone)]
pub struct Heart {
    name: &'static str,
    /// The longest pause between two beats.
    limit: Duration,
    start: Instant,
    last: Arc<AtomicU64>,
}

impl Default for Hearts {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            all: Arc::default(),
        }
    }
}

impl Hearts {
    /// A heart that counts from now on.
    pub fn heart(&self, name: &'static str, limit: Duration) -> Heart {
        let heart = Heart {
            name,
            limit,
            start: self.start,
            last: Arc::default(),
        };
        heart.beat();
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(Heart::is_held);
        all.push(heart.clone());
        heart
    }

    /// `task` with a pulse.
    pub(super) async fn pulsed<T>(self, name: &'static str, task: impl Future<Output = T>) -> T {
        self.heart(name, STILL).through(task).await
    }

    /// The tasks that have not beaten within their limit, with the length of the pause.
    pub fn stuck(&self) -> Vec<(&'static str, Duration)> {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let pause = |heart: &Heart| {
            let last = Duration::from_millis(heart.last.load(Ordering::Relaxed));
            self.start.elapsed().saturating_sub(last)
        };
        all.iter()
            .filter(|heart| heart.is_held() && pause(heart) > heart.limit)
            .map(|heart| (heart.name, pause(heart)))
            .collect()
    }

    /// A line for each task that stands still; `None` where all turn.
    pub fn say(&self) -> Option<String> {
        let stuck = self.stuck();
        let mut text = String::new();
        for (name, pause) in &stuck {
            // Writing to a String cannot fail.
            let _infallible = writeln!(text, "task {name} is stuck for {} s", pause.as_secs());
        }
        (!stuck.is_empty()).then_some(text)
    }
}

impl Heart {
    pub fn beat(&self) {
        let millis = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(millis, Ordering::Relaxed);
    }

    /// Lets it beat while `wait` takes as long as it may.
    pub async fn through<T>(&self, wait: impl Future<Output = T>) -> T {
        let mut ticks = interval(PULSE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tokio::pin!(wait);
        loop {
            tokio::select! {
                biased;
                _ = ticks.tick() => self.beat(),
                out = &mut wait => return out,
            }
        }
    }

    /// One is the list's.
    fn is_held(&self) -> bool {
        Arc::strong_count(&self.last) > 1
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;
    use tokio::time::{advance, timeout};
    use tokio_util::sync::CancellationToken;

    use super::super::Tasks;
    use super::*;

    /// L54: a thread that a task keeps is seen, and that it has given it back.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_task_that_keeps_its_thread_is_stuck_for_as_long() {
        let hearts = Hearts::default();
        let mut tasks = Tasks::watched(CancellationToken::new(), &hearts);
        let (started, starts) = oneshot::channel();
        let (release, held) = std::sync::mpsc::channel::<()>();
        tasks.spawn("blocks", |_| async move {
            started.send(()).unwrap();
            held.recv().unwrap();
            std::future::pending().await
        });
        tasks.spawn("waits", |_| std::future::pending());
        starts.await.unwrap();
        let seen = |wanted: &'static [&'static str]| {
            let hearts = hearts.clone();
            let look = async move {
                let mut looks = interval(Duration::from_millis(20));
                loop {
                    looks.tick().await;
                    let stuck: Vec<_> = hearts.stuck().iter().map(|(name, _)| *name).collect();
                    if stuck == wanted {
                        return;
                    }
                }
            };
            timeout(Duration::from_secs(10), look)
        };
        seen(&["blocks"]).await.expect("seen within 10 s");
        release.send(()).unwrap();
        seen(&[]).await.expect("it turns again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_heart_that_nobody_holds_any_more_is_not_missed() {
        let hearts = Hearts::default();
        let (one, other) = (
            hearts.heart("one", Duration::from_secs(1)),
            hearts.heart("other", Duration::from_secs(1)),
        );
        advance(Duration::from_secs(3)).await;
        assert_eq!(
            hearts.say().as_deref(),
            Some("task one is stuck for 3 s\ntask other is stuck for 3 s\n")
        );
        drop(one);
        other.beat();
        assert_eq!(hearts.say(), None);
    }
}

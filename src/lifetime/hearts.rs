//! Signs of life of a process's tasks: who has not beaten for too long stands still.
//!
//! Each task of [`super::Tasks`] has a pulse: it beats whenever the runtime can turn to the task, whatever that waits for.
//! So it tells of a task that keeps its thread: one that blocks, spins, or waits for a lock that nobody gives back. A
//! task that waits for what never comes is not seen by that: such a task has a heart of its own, which it lets beat as it
//! goes from one step to the next. Before a wait that has an end of its own, such as a call to the API server, the heart is
//! told how long that may take ([`Heart::wait`], [`Heart::rests`]): a slow peer stops no heart, and a wait that nobody
//! thought of is told of within [`STILL`].

use std::fmt::Write as _;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};

/// Between two beats of a pulse.
const PULSE: Duration = Duration::from_secs(2);
/// A heart that has not beaten for so long, where it announced no longer wait, tells of a task that stands still (L54: readiness
/// says so within 10 s).
pub const STILL: Duration = Duration::from_secs(8);

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
    /// The longest pause between two beats of a task that waits for nothing that was announced.
    limit: Duration,
    start: Instant,
    signs: Arc<Signs>,
}

/// Times are milliseconds since the start.
#[derive(Debug, Default)]
struct Signs {
    last: AtomicU64,
    /// When the next beat is due.
    due: AtomicU64,
    /// When each wait that is under way ends by itself.
    waits: Mutex<Vec<u64>>,
}

/// A wait that ends by itself; the heart beats when it is over.
#[derive(Debug)]
pub struct Wait {
    heart: Heart,
    end: u64,
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
            signs: Arc::default(),
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
        let now = millis(self.start.elapsed());
        let pause = |heart: &Heart| {
            let last = heart.signs.last.load(Ordering::Relaxed);
            Duration::from_millis(now.saturating_sub(last))
        };
        all.iter()
            .filter(|heart| heart.is_held() && now > heart.due())
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
        let now = self.now();
        self.signs.last.store(now, Ordering::Relaxed);
        let due = now.saturating_add(millis(self.limit));
        self.signs.due.store(due, Ordering::Relaxed);
    }

    /// Beats, and says that the task has nothing to do for as long as this, unless it is called.
    pub fn rests(&self, longest: Duration) {
        self.beat();
        let due = self.now().saturating_add(millis(longest + self.limit));
        self.signs.due.store(due, Ordering::Relaxed);
    }

    /// Says that the task waits for something until what this gives is dropped, and that it gives up by itself after `longest`.
    pub fn wait(&self, longest: Duration) -> Wait {
        let end = self.now().saturating_add(millis(longest));
        self.waits().push(end);
        Wait {
            heart: self.clone(),
            end,
        }
    }

    /// A sign of life from what works for the task, perhaps beside it: it does not cut short what the task said of its rest.
    pub fn stirs(&self) {
        let now = self.now();
        self.signs.last.fetch_max(now, Ordering::Relaxed);
        let due = now.saturating_add(millis(self.limit));
        self.signs.due.fetch_max(due, Ordering::Relaxed);
    }

    /// Lets it beat while `wait` takes as long as it may.
    pub async fn through<T>(&self, wait: impl Future<Output = T>) -> T {
        let mut ticks = interval(PULSE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tokio::pin!(wait);
        loop {
            tokio::select! {
                biased;
                _ = ticks.tick() => self.stirs(),
                out = &mut wait => return out,
            }
        }
    }

    fn due(&self) -> u64 {
        let waits = self.waits().iter().copied().max().unwrap_or_default();
        let due = self.signs.due.load(Ordering::Relaxed);
        due.max(waits.saturating_add(millis(self.limit)))
    }

    fn now(&self) -> u64 {
        millis(self.start.elapsed())
    }

    fn waits(&self) -> MutexGuard<'_, Vec<u64>> {
        let waits = self.signs.waits.lock();
        waits.unwrap_or_else(PoisonError::into_inner)
    }

    /// One is the list's.
    fn is_held(&self) -> bool {
        Arc::strong_count(&self.signs) > 1
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let mut waits = self.heart.waits();
        if let Some(own) = waits.iter().position(|end| *end == self.end) {
            waits.swap_remove(own);
        }
        drop(waits);
        self.heart.stirs();
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
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

    /// L54: a wait that was announced is no standstill while it may last, whatever goes on beside it; one that was not, or that
    /// goes on for longer, is.
    #[tokio::test(start_paused = true)]
    async fn a_heart_that_waits_is_missed_when_its_wait_should_have_ended() {
        let hearts = Hearts::default();
        let heart = hearts.heart("waits", STILL);
        let second = Duration::from_secs(1);
        let call = heart.wait(second * 60);
        let short = heart.wait(second * 10);
        advance(second * 30).await;
        drop(short);
        advance(second * 38).await;
        assert_eq!(hearts.stuck(), []);
        advance(second).await;
        assert_eq!(hearts.stuck(), [("waits", second * 39)]);
        drop(call);
        advance(STILL).await;
        assert_eq!(hearts.stuck(), []);
        advance(second).await;
        assert_eq!(hearts.stuck(), [("waits", STILL + second)]);
        // What ends beside a task that rests does not make it late.
        heart.rests(second * 60);
        drop(heart.wait(second));
        advance(second * 60 + STILL).await;
        assert_eq!(hearts.stuck(), []);
        heart.beat();
        advance(STILL + second).await;
        assert_eq!(hearts.stuck(), [("waits", STILL + second)]);
    }
}

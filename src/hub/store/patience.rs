//! How long a call waits for records in a server that fell silent, and what is known then of what it changed.
//!
//! A request has one patience for all that it asks of the records; what it does beside that (reading its body, Git, an agent)
//! does not count. It is of the task that carries the request out, so that no handler can forget it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::{Result, StoreError, calls};

/// A call that no request waits for: more than a free connection, a lock and the work itself may take.
const BACKGROUND: Duration = Duration::from_secs(30);

tokio::task_local! {
    static OWN: Arc<Patience>;
}

/// Of one request.
#[derive(Debug)]
pub struct Patience {
    /// Until it is known who asks.
    left: Mutex<Duration>,
    /// From then on, less what was waited until then.
    whole: Duration,
    first: Duration,
    ran_out: AtomicBool,
    /// A commit was asked for, and not answered yet.
    asked: AtomicBool,
    stored: AtomicBool,
}

/// What became of a request's changes, as far as the database said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changed {
    Nothing,
    /// What was asked for so far is stored.
    Some,
    /// The last change is stored, or it is not.
    Unknown,
}

impl Patience {
    pub fn new(first: Duration, whole: Duration) -> Arc<Self> {
        Arc::new(Self {
            left: Mutex::new(first),
            whole,
            first,
            ran_out: AtomicBool::new(false),
            asked: AtomicBool::new(false),
            stored: AtomicBool::new(false),
        })
    }

    pub fn ran_out(&self) -> bool {
        self.ran_out.load(Ordering::Relaxed)
    }

    pub fn changed(&self) -> Changed {
        if self.asked.load(Ordering::Relaxed) {
            Changed::Unknown
        } else if self.stored.load(Ordering::Relaxed) {
            Changed::Some
        } else {
            Changed::Nothing
        }
    }

    fn change_left(&self, change: impl FnOnce(Duration) -> Duration) -> Duration {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        *left = change(*left);
        *left
    }

    fn judged(&self) {
        let more = self.whole.saturating_sub(self.first);
        self.change_left(|left| left.saturating_add(more));
    }
}

/// Carries a request out with this patience.
pub async fn within<T>(patience: &Arc<Patience>, work: impl Future<Output = T>) -> T {
    OWN.scope(patience.clone(), work).await
}

/// The same work in a task of its own, which the request waits for.
pub fn carried<T>(work: impl Future<Output = T>) -> impl Future<Output = T> {
    let (own, call) = (OWN.try_with(Clone::clone).ok(), calls::own());
    let work = calls::carried(call, work);
    async move {
        match own {
            Some(own) => OWN.scope(own, work).await,
            None => work.await,
        }
    }
}

/// It is known who asks: what is asked for may take longer than looking that up. Once a request.
pub fn judged() {
    let _nobodys = OWN.try_with(|own| own.judged());
}

/// Waits on the records; None = they are silent, and nothing is known of what was asked last.
pub async fn heed<T>(asked: impl Future<Output = T>) -> Option<T> {
    let Ok(own) = OWN.try_with(Clone::clone) else {
        return timeout(BACKGROUND, asked).await.ok();
    };
    let left = own.change_left(|left| left);
    let began = Instant::now();
    let answered = timeout(left, asked).await.ok();
    let took = began.elapsed();
    own.change_left(|left| left.saturating_sub(took));
    if answered.is_none() {
        own.ran_out.store(true, Ordering::Relaxed);
    }
    answered
}

/// The same for work that another task does for this one; who has no patience of its own waits as long as that takes.
pub async fn as_caller<T>(asked: impl Future<Output = T>) -> Option<T> {
    if OWN.try_with(|_| ()).is_err() {
        return Some(asked.await);
    }
    heed(asked).await
}

pub(super) async fn call<T>(
    doing: &'static str,
    asked: impl Future<Output = Result<T>>,
) -> Result<T> {
    heed(asked).await.unwrap_or(Err(StoreError::Silent(doing)))
}

/// A commit, whose answer may not come.
pub(super) async fn commit(
    asked: impl Future<Output = Result<(), sqlx::Error>>,
) -> Result<(), sqlx::Error> {
    let note = |of: fn(&Patience) -> &AtomicBool, is| {
        let _nobodys = OWN.try_with(|own| of(own).store(is, Ordering::Relaxed));
    };
    note(|own| &own.asked, true);
    let answered = asked.await;
    match &answered {
        Ok(()) => {
            note(|own| &own.stored, true);
            note(|own| &own.asked, false);
        }
        Err(sqlx::Error::Database(_)) => note(|own| &own.asked, false),
        Err(_) => {}
    }
    answered
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_secs(5);
    const WHOLE: Duration = Duration::from_secs(15);

    async fn answered_after(seconds: u64) -> Option<()> {
        heed(tokio::time::sleep(Duration::from_secs(seconds))).await
    }

    #[tokio::test(start_paused = true)]
    async fn all_waits_of_a_request_count_together_and_nothing_else_does() {
        let patience = Patience::new(FIRST, WHOLE);
        let began = Instant::now();
        within(&patience, async {
            assert_eq!(answered_after(3).await, Some(()));
            // Not the records: a body, Git, an agent.
            tokio::time::sleep(Duration::from_mins(1)).await;
            assert_eq!(answered_after(3).await, None);
        })
        .await;
        assert_eq!(began.elapsed(), Duration::from_secs(65));
        assert!(patience.ran_out());
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_known_may_ask_for_more_in_a_task_of_its_own_as_well() {
        let patience = Patience::new(FIRST, WHOLE);
        within(&patience, async {
            assert_eq!(answered_after(4).await, Some(()));
            judged();
            let work = carried(async { (answered_after(10).await, answered_after(2).await) });
            let mut tasks = tokio::task::JoinSet::new();
            tasks.spawn(work);
            assert_eq!(tasks.join_next().await.unwrap().unwrap(), (Some(()), None));
        })
        .await;
        assert!(patience.ran_out());
    }

    #[tokio::test]
    async fn a_commit_without_an_answer_is_unknown_and_one_that_is_refused_is_not() {
        let patience = Patience::new(FIRST, WHOLE);
        within(&patience, async {
            assert_eq!(patience.changed(), Changed::Nothing);
            let lost = commit(async { Err(sqlx::Error::PoolTimedOut) }).await;
            assert!(lost.is_err());
            assert_eq!(patience.changed(), Changed::Unknown);
            assert!(commit(async { Ok(()) }).await.is_ok());
            assert_eq!(patience.changed(), Changed::Some);
        })
        .await;
        assert!(!patience.ran_out());
    }
}

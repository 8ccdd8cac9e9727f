//! How often something may happen: some of it at once, and one more with each span of time. What agents bring about at such a pace
//! is counted for each cluster alone. Pure: the time is told.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// So many at once, and how long one more takes to be earned.
#[derive(Debug, Clone, Copy)]
pub struct Rate {
    pub most: u32,
    pub every: Duration,
}

/// What is left, and since when more is earned.
#[derive(Debug, Clone, Copy)]
pub struct Left {
    pub n: u32,
    pub since: Instant,
}

impl Rate {
    pub fn whole(self, now: Instant) -> Left {
        Left {
            n: self.most,
            since: now,
        }
    }

    /// With what was earned until now.
    pub fn earned(self, left: Left, now: Instant) -> Left {
        let more = now.saturating_duration_since(left.since).as_millis() / self.every.as_millis();
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        let n = left.n.saturating_add(more);
        if n >= self.most {
            return self.whole(now);
        }
        Left {
            n,
            since: left.since + self.every.saturating_mul(more),
        }
    }

    /// How long the next one takes.
    pub fn wait(self, left: Left, now: Instant) -> Duration {
        let waited = now.saturating_duration_since(left.since);
        self.every.saturating_sub(waited)
    }
}

/// What an agent brings about that changes the hub's records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// A report.
    Report,
    /// A key of the cluster's that the hub does not have in force yet, or a join with one that it has.
    Key,
    /// A line that takes the place of another process'.
    Takeover,
}

impl Act {
    fn rate(self) -> Rate {
        let (most, every) = match self {
            // Nothing is lost by a wait: each has all that is new since the last one that was taken. An agent whose news goes on for
            // minutes waits a second at a time.
            Self::Report => (300, Duration::from_millis(200)),
            // A rotation takes one of each kind; two agents that know no better take a line from each other every 30 s.
            Self::Key | Self::Takeover => (60, Duration::from_secs(30)),
        };
        Rate { most, every }
    }
}

/// What each cluster's agent has left.
#[derive(Debug, Default)]
pub struct Paces {
    clusters: Mutex<HashMap<String, Own>>,
}

#[derive(Debug, Default)]
struct Own {
    reports: Option<Left>,
    keys: Option<Left>,
    takeovers: Option<Left>,
    /// Takeovers since the last one that was within the pace.
    untold: u64,
}

impl Own {
    fn take(&mut self, act: Act, now: Instant) -> Result<(), Duration> {
        let rate = act.rate();
        let kept = match act {
            Act::Report => &mut self.reports,
            Act::Key => &mut self.keys,
            Act::Takeover => &mut self.takeovers,
        };
        let mut left = kept.map_or_else(|| rate.whole(now), |left| rate.earned(left, now));
        let taken = match left.n.checked_sub(1) {
            Some(n) => {
                left.n = n;
                Ok(())
            }
            None => Err(rate.wait(left, now)),
        };
        *kept = Some(left);
        taken
    }
}

impl Paces {
    /// One more of the cluster with this id; the error is how long that takes yet.
    pub fn take(&self, cluster_id: &str, act: Act, now: Instant) -> Result<(), Duration> {
        let mut clusters = self.lock();
        let own = clusters.entry(cluster_id.to_owned()).or_default();
        own.take(act, now)
    }

    /// One more takeover of the cluster's line. Gives how many there were since the last one that was within the pace; None = this
    /// is one of those.
    pub fn takeover(&self, cluster_id: &str, now: Instant) -> Option<u64> {
        let mut clusters = self.lock();
        let own = clusters.entry(cluster_id.to_owned()).or_default();
        if own.take(Act::Takeover, now).is_err() {
            own.untold += 1;
            return None;
        }
        Some(std::mem::take(&mut own.untold))
    }

    /// The cluster was removed.
    pub fn forget(&self, cluster_id: &str) {
        self.lock().remove(cluster_id);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Own>> {
        self.clusters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_reports_so_often_at_once_and_earns_more() {
        let (paces, start) = (Paces::default(), Instant::now());
        let mut at = start;
        for round in 0..2 {
            for n in 0..300 {
                assert_eq!(paces.take("eu1", Act::Report, at), Ok(()), "{round} {n}");
            }
            let wait = Err(Duration::from_millis(200));
            assert_eq!(paces.take("eu1", Act::Report, at), wait);
            // Neither another cluster nor what else there is waits for it.
            let others = [("us1", Act::Report), ("eu1", Act::Key)];
            for (cluster, act) in others {
                assert_eq!(paces.take(cluster, act, at), Ok(()));
            }
            at += Duration::from_mins(1);
        }
        paces.forget("eu1");
        assert_eq!(paces.take("eu1", Act::Report, start), Ok(()));
    }

    #[test]
    fn takeovers_beyond_the_pace_are_counted_with_the_next_one_within_it() {
        let (paces, start) = (Paces::default(), Instant::now());
        for n in 0..60 {
            assert_eq!(paces.takeover("eu1", start), Some(0), "{n}");
        }
        for n in 0..7 {
            assert_eq!(paces.takeover("eu1", start), None, "{n}");
        }
        let earned = start + Duration::from_secs(30);
        let all = [earned; 2].map(|at| paces.takeover("eu1", at));
        assert_eq!(all, [Some(7), None]);
    }
}

//! The request ids of the last 90 s: an assertion is good for one request. The 90 s are the agent's own, by its monotonic clock: an
//! assertion is good on one line only, whose hub time goes on by that same clock, so it cannot outlive its id. The hub's time
//! itself may be another on the next line, and would keep ids too long or drop them too soon.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::expect_used))]

use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

/// Longer than an assertion lives, tolerance on both sides included.
const KEEP: Duration = Duration::from_secs(90);

/// Ids seen, oldest first, at most `capacity`.
#[derive(Debug)]
pub struct Replay {
    seen: HashSet<Box<str>>,
    order: VecDeque<(Instant, Box<str>)>,
    capacity: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    New,
    Before,
    /// No room to remember it, so it must not pass.
    Full,
}

impl Default for Replay {
    fn default() -> Self {
        Self::new(100_000)
    }
}

impl Replay {
    pub fn new(capacity: usize) -> Self {
        Self {
            seen: HashSet::new(),
            order: VecDeque::new(),
            capacity,
        }
    }

    /// Remembers `id` at `now` and says whether it was there.
    pub fn see(&mut self, id: &str, now: Instant) -> Seen {
        while let Some((at, _)) = self.order.front()
            && now.saturating_duration_since(*at) > KEEP
        {
            if let Some((_, old)) = self.order.pop_front() {
                self.seen.remove(&old);
            }
        }
        if self.seen.contains(id) {
            return Seen::Before;
        }
        if self.order.len() >= self.capacity {
            return Seen::Full;
        }
        self.seen.insert(id.into());
        self.order.push_back((now, id.into()));
        Seen::New
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_passes_once_within_its_time() {
        let (mut replay, start) = (Replay::new(2), Instant::now());
        let (end, after) = (start + KEEP, start + KEEP + Duration::from_secs(1));
        assert_eq!(replay.see("a", start), Seen::New);
        assert_eq!(replay.see("a", end), Seen::Before);
        assert_eq!(replay.see("b", end), Seen::New);
        assert_eq!(replay.see("c", end), Seen::Full);
        assert_eq!(replay.see("c", after), Seen::New);
        assert_eq!(replay.see("b", after), Seen::Before);
    }

    /// Threads read the clock before they have the lock.
    #[test]
    fn a_moment_before_the_last_one_changes_nothing() {
        let (mut replay, start) = (Replay::new(2), Instant::now());
        let end = start + KEEP;
        assert_eq!(replay.see("a", end), Seen::New);
        assert_eq!(replay.see("b", start), Seen::New);
        assert_eq!(replay.see("a", start), Seen::Before);
        let after = end + KEEP + Duration::from_secs(1);
        assert_eq!(replay.see("c", after), Seen::New);
        assert_eq!(replay.order.len(), 1, "both are forgotten");
    }
}

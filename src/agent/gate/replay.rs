//! The request ids of the last 90 s: an assertion is good for one request.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::expect_used))]

use std::collections::{HashSet, VecDeque};

/// Longer than an assertion lives, tolerance on both sides included.
const KEEP: i64 = 90;

/// Ids seen, oldest first, at most `capacity`.
#[derive(Debug)]
pub struct Replay {
    seen: HashSet<Box<str>>,
    order: VecDeque<(i64, Box<str>)>,
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

    /// Remembers `id` at `now` (unix seconds) and says whether it was there.
    pub fn see(&mut self, id: &str, now: i64) -> Seen {
        while let Some((at, _)) = self.order.front()
            && now.saturating_sub(*at) > KEEP
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
        let mut replay = Replay::new(2);
        assert_eq!(replay.see("a", 0), Seen::New);
        assert_eq!(replay.see("a", KEEP), Seen::Before);
        assert_eq!(replay.see("b", KEEP), Seen::New);
        assert_eq!(replay.see("c", KEEP), Seen::Full);
        assert_eq!(replay.see("c", KEEP + 1), Seen::New);
        assert_eq!(replay.see("b", KEEP + 1), Seen::Before);
    }
}

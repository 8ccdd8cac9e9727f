//! The request ids of the last 90 s: an assertion is good for one request. The 90 s are the agent's own, by its monotonic clock: an
//! assertion is good on one line only, whose hub time goes on by that same clock, so it cannot outlive its id. The hub's time
//! itself may be another on the next line, and would keep ids too long or drop them too soon.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::expect_used))]

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use crate::keys::sha256;

/// Longer than an assertion lives, tolerance on both sides included.
const KEEP: Duration = Duration::from_secs(90);
/// Some 2,400 requests a second, and at most 15 MB.
const CAPACITY: usize = 220_000;

/// A text, told from others: the beginning of its hash. What is kept has one size, whatever the hub sends.
type Short = [u8; 16];

/// Ids seen, oldest first, at most `capacity`.
#[derive(Debug)]
pub struct Replay {
    seen: HashSet<Short>,
    order: VecDeque<(Instant, Short, Short)>,
    /// How many of them are whose.
    of: HashMap<Short, usize>,
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
        Self::new(CAPACITY)
    }
}

impl Replay {
    pub fn new(capacity: usize) -> Self {
        Self {
            seen: HashSet::new(),
            order: VecDeque::new(),
            of: HashMap::new(),
            capacity,
        }
    }

    /// Remembers `id` of `user` at `now` and says whether it was there. Once half of the room is taken, whoever has more than a
    /// quarter of it gets no more: one who asks without a pause does not keep all others out.
    pub fn see(&mut self, id: &str, user: &str, now: Instant) -> Seen {
        while let Some((at, _, _)) = self.order.front()
            && now.saturating_duration_since(*at) > KEEP
        {
            if let Some((_, id, user)) = self.order.pop_front() {
                self.seen.remove(&id);
                self.forget(user);
            }
        }
        let (id, user) = (short(id), short(user));
        if self.seen.contains(&id) {
            return Seen::Before;
        }
        let (taken, mine) = (self.order.len(), self.of.get(&user).copied());
        let greedy = mine.is_some_and(|mine| mine > self.capacity.div_ceil(4));
        if taken >= self.capacity || greedy && taken >= self.capacity.div_ceil(2) {
            return Seen::Full;
        }
        self.seen.insert(id);
        self.order.push_back((now, id, user));
        *self.of.entry(user).or_default() += 1;
        Seen::New
    }

    /// One id less of this user.
    fn forget(&mut self, user: Short) {
        if let Some(count) = self.of.get_mut(&user) {
            *count -= 1;
            if *count == 0 {
                self.of.remove(&user);
            }
        }
    }
}

fn short(text: &str) -> Short {
    let mut short = Short::default();
    for (byte, of_hash) in short.iter_mut().zip(sha256(text.as_bytes())) {
        *byte = of_hash;
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_passes_once_within_its_time() {
        let (mut replay, start) = (Replay::new(2), Instant::now());
        let (end, after) = (start + KEEP, start + KEEP + Duration::from_secs(1));
        assert_eq!(replay.see("a", "ada", start), Seen::New);
        assert_eq!(replay.see("a", "ada", end), Seen::Before);
        assert_eq!(replay.see("b", "ada", end), Seen::New);
        assert_eq!(replay.see("c", "ada", end), Seen::Full);
        assert_eq!(replay.see("c", "ada", after), Seen::New);
        assert_eq!(replay.see("b", "ada", after), Seen::Before);
    }

    /// Threads read the clock before they have the lock.
    #[test]
    fn a_moment_before_the_last_one_changes_nothing() {
        let (mut replay, start) = (Replay::new(2), Instant::now());
        let end = start + KEEP;
        assert_eq!(replay.see("a", "ada", end), Seen::New);
        assert_eq!(replay.see("b", "ada", start), Seen::New);
        assert_eq!(replay.see("a", "ada", start), Seen::Before);
        let after = end + KEEP + Duration::from_secs(1);
        assert_eq!(replay.see("c", "ada", after), Seen::New);
        assert_eq!(replay.order.len(), 1, "both are forgotten");
        let one: HashMap<_, _> = [(short("ada"), 1)].into();
        assert_eq!(replay.of, one);
    }

    /// L40: who asks without a pause is told to come again, and nobody else.
    #[test]
    fn one_user_does_not_take_the_room_of_all() {
        use Seen::{Full, New};
        let (mut replay, start) = (Replay::new(8), Instant::now());
        let mut told = |user: &str, times: usize, at: Instant| -> Vec<Seen> {
            let ids = (0..times).map(|n| format!("{user}-{n}-{at:?}"));
            ids.map(|id| replay.see(&id, user, at)).collect()
        };
        assert_eq!(told("ada", 6, start), [New, New, New, New, Full, Full]);
        assert_eq!(told("bob", 4, start), [New, New, New, Full]);
        assert_eq!(told("eve", 2, start), [New, Full]);
        let later = start + KEEP + Duration::from_secs(1);
        assert_eq!(told("ada", 5, later), [New, New, New, New, Full]);
    }
}

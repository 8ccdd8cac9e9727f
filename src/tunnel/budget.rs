//! Memory that unread input takes, of a line and of the process: what is allocated counts, not what is of use, so
//! that a few bytes that hold on to a whole message cost what the message costs.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::expect_used))]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

/// All lines of a process share one; clones mean the same.
#[derive(Debug, Clone)]
pub struct Budget {
    pool: Arc<Pool>,
}

#[derive(Debug)]
struct Pool {
    limit: usize,
    used: AtomicUsize,
    /// Lines that share it.
    lines: AtomicUsize,
}

/// How full the memory is, of the line or of the process, whichever is fuller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Free,
    /// From half on: no window grows.
    Half,
    /// From three quarters on: credit for empty streams only.
    Tight,
    /// The line has to give memory back.
    Over,
}

impl Budget {
    /// `limit` in bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            pool: Arc::new(Pool {
                limit,
                used: AtomicUsize::new(0),
                lines: AtomicUsize::new(0),
            }),
        }
    }

    /// For a process that sets no limit beside those of its lines.
    pub fn unlimited() -> Self {
        Self::new(usize::MAX)
    }

    pub fn used(&self) -> usize {
        self.pool.used.load(Ordering::Relaxed)
    }

    pub fn limit(&self) -> usize {
        self.pool.limit
    }
}

/// The share of a line.
#[derive(Debug)]
pub(super) struct Meter {
    limit: usize,
    account: Arc<Account>,
}

#[derive(Debug)]
struct Account {
    used: AtomicUsize,
    pool: Arc<Pool>,
}

impl Account {
    fn add(&self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        self.pool.used.fetch_add(bytes, Ordering::Relaxed);
    }

    fn sub(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        self.pool.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Bytes that are counted until the last slice of them is gone.
struct Held {
    bytes: Bytes,
    size: usize,
    account: Arc<Account>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.account.sub(self.size);
    }
}

impl Meter {
    pub(super) fn new(limit: usize, process: &Budget) -> Self {
        process.pool.lines.fetch_add(1, Ordering::Relaxed);
        let account = Account {
            used: AtomicUsize::new(0),
            pool: process.pool.clone(),
        };
        Self {
            limit,
            account: Arc::new(account),
        }
    }

    /// Counts `bytes`, which stand in an allocation of `size`, for as long as any slice of them lives.
    pub(super) fn hold(&self, bytes: Bytes, size: usize) -> Bytes {
        self.account.add(size);
        Bytes::from_owner(Held {
            bytes,
            size,
            account: self.account.clone(),
        })
    }

    /// A buffer changed its size.
    pub(super) fn resized(&self, before: usize, after: usize) {
        if after > before {
            self.account.add(after - before);
        } else {
            self.account.sub(before - after);
        }
    }

    pub(super) fn used(&self) -> usize {
        self.account.used.load(Ordering::Relaxed)
    }

    pub(super) fn level(&self) -> Level {
        let pool = &self.account.pool;
        let (own, all) = (self.used(), pool.used.load(Ordering::Relaxed));
        let average = all / pool.lines.load(Ordering::Relaxed).max(1);
        // Where the process is full, those give back who have more than their part; the last tenth is for the
        // time until they do.
        let process_over = all > pool.limit
            && (own >= average || all > pool.limit.saturating_add(pool.limit / 10));
        if own > self.limit || process_over {
            return Level::Over;
        }
        let above = |used: usize, limit: usize, quarters: usize| used > limit / 4 * quarters;
        if above(own, self.limit, 3) || above(all, pool.limit, 3) {
            Level::Tight
        } else if above(own, self.limit, 2) || above(all, pool.limit, 2) {
            Level::Half
        } else {
            Level::Free
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.account.pool.lines.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_costs_the_whole_message_until_it_is_gone() {
        let process = Budget::new(1000);
        let meter = Meter::new(1000, &process);
        let message = meter.hold(Bytes::from(vec![7; 400]), 400);
        let slice = message.slice(10..11);
        drop(message);
        assert_eq!(
            (meter.used(), process.used(), &slice[..]),
            (400, 400, &[7][..])
        );
        drop(slice);
        assert_eq!((meter.used(), process.used()), (0, 0));
    }

    #[test]
    fn the_fuller_of_line_and_process_decides() {
        let process = Budget::new(1000);
        let (one, other) = (Meter::new(400, &process), Meter::new(2000, &process));
        let level = |used: usize, others: usize| {
            let held = (
                one.hold(Bytes::new(), used),
                other.hold(Bytes::new(), others),
            );
            let level = (one.level(), other.level());
            drop(held);
            level
        };
        assert_eq!(level(100, 0), (Level::Free, Level::Free));
        assert_eq!(level(201, 0), (Level::Half, Level::Free));
        assert_eq!(level(301, 0), (Level::Tight, Level::Free));
        assert_eq!(level(401, 0), (Level::Over, Level::Free));
        assert_eq!(level(0, 501), (Level::Half, Level::Half));
        assert_eq!(level(0, 751), (Level::Tight, Level::Tight));
        // The one with little is spared while the other gives back, up to a tenth more.
        assert_eq!(level(100, 901), (Level::Tight, Level::Over));
        assert_eq!(level(100, 1001), (Level::Over, Level::Over));
    }
}

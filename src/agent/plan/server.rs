//! How the API server answers (F14). While it is not well itself, what it says of the engine makes no verdict: an error, or
//! an answer that comes late, looks like a fault of what was asked for. Only the guard goes on, which cannot wait.
//!
//! The caller tells what became of each call, and when; the last half minute of that decides, so the gate opens by itself.

use std::collections::VecDeque;

use time::{Duration, OffsetDateTime};

use super::setback;

/// What is further back says nothing of now.
pub const WINDOW: Duration = Duration::seconds(30);
/// Calls that are remembered, the last ones.
pub const MAX_CALLS: usize = 512;
/// Fewer errors than this are an accident.
const SOME: usize = 3;
/// More than one call in so many fails: 20 %.
const FAILS: usize = 5;
/// An answer that takes longer is late; more than one in so many: the 99th percentile is.
const LATE: Duration = Duration::seconds(2);
const LATE_IN: usize = 100;
/// Questions in a row to which it said that it is not ready, or nothing.
const UNREADY: u32 = 2;

/// What became of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    pub at: OffsetDateTime,
    /// Answered with 5xx.
    pub failed: bool,
    /// Until the answer began; none for one that may wait for something to happen.
    pub took: Option<Duration>,
}

/// The calls of the last [`WINDOW`], and what `/readyz` said last.
#[derive(Debug, Clone, Default)]
pub struct Calls {
    last: VecDeque<Call>,
    unready: u32,
}

/// Whether there may be a verdict.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Gate {
    #[default]
    Open,
    Shut(Symptoms),
}

/// What keeps the gate shut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Symptoms {
    /// Of the last [`WINDOW`], as the other figures.
    pub calls: usize,
    pub failed: usize,
    pub p99: Duration,
    /// `/readyz` fails.
    pub unready: bool,
}

impl Calls {
    pub fn note(&mut self, call: Call) {
        setback::cap(self.last.iter_mut().map(|old| &mut old.at), call.at);
        if self.last.len() >= MAX_CALLS {
            self.last.pop_front();
        }
        self.last.push_back(call);
        self.last.retain(|old| call.at - old.at <= WINDOW);
    }

    /// What `/readyz` said; none where it cannot be asked.
    pub fn readyz(&mut self, ready: Option<bool>) {
        self.unready = match ready {
            Some(false) => self.unready.saturating_add(1),
            Some(true) | None => 0,
        };
    }

    /// A call that lies ahead is of a clock that was set back, and counts as one of now.
    pub fn gate(&mut self, now: OffsetDateTime) -> Gate {
        setback::cap(self.last.iter_mut().map(|call| &mut call.at), now);
        let fresh = || self.last.iter().filter(|call| now - call.at <= WINDOW);
        let (calls, failed) = (fresh().count(), fresh().filter(|c| c.failed).count());
        let mut took: Vec<Duration> = fresh().filter_map(|call| call.took).collect();
        took.sort_unstable();
        let late = took.iter().filter(|took| **took > LATE).count();
        let fails = failed >= SOME && failed * FAILS > calls;
        let is_late = late >= SOME && late * LATE_IN > took.len();
        let unready = self.unready >= UNREADY;
        if !(fails || is_late || unready) {
            return Gate::Open;
        }
        let rank = (took.len() * 99).div_ceil(100).saturating_sub(1);
        Gate::Shut(Symptoms {
            calls,
            failed,
            p99: took.get(rank).copied().unwrap_or_default(),
            unready,
        })
    }
}

impl Gate {
    pub fn is_shut(&self) -> bool {
        match self {
            Self::Open => false,
            Self::Shut(_) => true,
        }
    }
}

impl Symptoms {
    /// For people.
    pub fn text(&self) -> String {
        let Self {
            calls,
            failed,
            p99,
            unready,
        } = self;
        let share = (failed * 100).checked_div(*calls).unwrap_or_default();
        let ready = if *unready { "fails" } else { "is well" };
        format!(
            "of {calls} calls in {} s {failed} ({share} %) were answered with 5xx; the 99th percentile took {} ms; /readyz {ready}",
            WINDOW.whole_seconds(),
            p99.whole_milliseconds()
        )
    }
}

#[cfg(test)]
mod tests;

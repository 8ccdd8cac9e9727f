//! Flow-control arithmetic. Credit is a promise of buffer space: it is given for bytes that the reader
//! consumed, never for bytes that arrived.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::expect_used))]

use std::time::{Duration, Instant};

use crate::wire::frame::MAX_CREDIT;

/// A stream's first window, each way.
pub const INITIAL_WINDOW: u32 = 64 << 10;
/// A window grows up to this on a short way, where the reader is fast enough.
pub const NEAR_WINDOW: u32 = 4 << 20;
/// And up to this on the longest.
pub const MAX_WINDOW: u32 = MAX_CREDIT;
/// Bytes a second (1.34 Gbit/s) that one stream is to have room for, however long the way.
const RATE: u32 = 160 << 20;
/// Credit is not withheld beyond this: on a long way the window would be that much smaller.
const OWED: u32 = NEAR_WINDOW / 4;
/// Before so much was consumed a window grows to this only: an upload that an API server refuses (at 3 MiB, mostly) has then
/// little on its way that nobody reads.
const EARLY: u32 = 4 << 20;
const EARLY_WINDOW: u32 = 512 << 10;
/// A window that nobody read from for this long falls back to the first one.
const QUIET: Duration = Duration::from_secs(10);

/// What a window may grow to: what [`RATE`] brings in a round trip, since credit for it is that long under way, and
/// half of the line's memory at most, because one reader that stops leaves all of it unread.
///
/// `least` is the line's shortest round trip: one that is long because of what stands in queues would only make
/// them longer.
pub fn ceiling(least: Option<Duration>, budget: usize) -> u32 {
    let millis = least.map_or(0, |rtt| u32::try_from(rtt.as_millis()).unwrap_or(u32::MAX));
    let way = (RATE / 1000).saturating_mul(millis).min(MAX_WINDOW);
    let memory = u32::try_from(budget / 2).unwrap_or(u32::MAX);
    way.min(memory).max(NEAR_WINDOW)
}

/// By how much a window may outgrow its first size where the line's others have by `others` together: sixteen times what is then
/// left of half of the line's memory. One alone has nearly all of the half, and however many there are, what they promise
/// together stays within it: readers that all stop at once lose no stream for it. The other half is for what unread bytes hold
/// on to beside themselves.
pub fn share(budget: usize, others: usize) -> u32 {
    let left = (budget / 2).saturating_sub(others);
    u32::try_from(left / 17 * 16).unwrap_or(u32::MAX)
}

/// The peer broke the credit rules; the stream is reset with FLOW.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("flow control broken")]
pub struct FlowFault;

/// What may still be queued for the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendWindow {
    credit: u32,
}

impl SendWindow {
    pub fn new(initial: u32) -> Self {
        Self {
            credit: initial.min(MAX_CREDIT),
        }
    }

    pub fn available(self) -> usize {
        usize::try_from(self.credit).unwrap_or(usize::MAX)
    }

    /// Takes up to `wanted` bytes of credit and says how many.
    pub fn take(&mut self, wanted: usize) -> usize {
        let taken = u32::try_from(wanted).unwrap_or(u32::MAX).min(self.credit);
        self.credit -= taken;
        usize::try_from(taken).unwrap_or_default()
    }

    pub fn add(&mut self, amount: u32) -> Result<(), FlowFault> {
        let sum = self.credit.checked_add(amount).ok_or(FlowFault)?;
        if sum > MAX_CREDIT {
            return Err(FlowFault);
        }
        self.credit = sum;
        Ok(())
    }
}

/// What the peer may still send, and when it gets more.
#[derive(Debug, Clone, Copy)]
pub struct RecvWindow {
    first: u32,
    /// What promises and unread bytes together may come to.
    window: u32,
    /// Promised to the peer and not yet arrived.
    promised: u32,
    /// Arrived and not yet consumed.
    unread: u32,
    /// Consumed ever, as far as [`EARLY`] counts.
    taken: u32,
    /// Consumption since `since`, to see whether the window is what limits the stream.
    consumed: u32,
    since: Instant,
    last: Instant,
}

impl RecvWindow {
    pub fn new(now: Instant, initial: u32) -> Self {
        Self {
            first: initial,
            window: initial,
            promised: initial,
            unread: 0,
            taken: 0,
            consumed: 0,
            since: now,
            last: now,
        }
    }

    /// Counts `len` bytes that arrived.
    pub fn receive(&mut self, len: usize) -> Result<(), FlowFault> {
        let len = u32::try_from(len).map_err(|_| FlowFault)?;
        self.promised = self.promised.checked_sub(len).ok_or(FlowFault)?;
        self.unread = self.unread.saturating_add(len);
        Ok(())
    }

    /// Counts `len` bytes that the reader took. The window doubles where half of it was consumed within two
    /// round trips, up to `ceiling`; without one it stays. One that is larger than its `share` allows becomes smaller by what was
    /// taken.
    pub fn consume(
        &mut self,
        now: Instant,
        len: usize,
        (rtt, ceiling): (Option<Duration>, Option<u32>),
        share: u32,
    ) {
        let most_of_all = self.first.saturating_add(share);
        let len = u32::try_from(len).unwrap_or(u32::MAX).min(self.unread);
        self.unread -= len;
        if now.saturating_duration_since(self.last) > QUIET {
            self.window = self.first;
            (self.consumed, self.since) = (0, now);
        }
        self.last = now;
        let span = rtt.map(|rtt| rtt * 2).unwrap_or_default();
        if now.saturating_duration_since(self.since) > span {
            (self.consumed, self.since) = (0, now);
        }
        self.consumed = self.consumed.saturating_add(len);
        self.taken = self.taken.saturating_add(len);
        if self.consumed >= self.window / 2 {
            if let Some(ceiling) = ceiling.filter(|_| rtt.is_some()) {
                let most = if self.taken < EARLY {
                    EARLY_WINDOW
                } else {
                    ceiling
                };
                let most = most.min(most_of_all).max(self.window);
                self.window = self.window.saturating_mul(2).min(most);
            }
            (self.consumed, self.since) = (0, now);
        }
        self.window -= len.min(self.window.saturating_sub(most_of_all));
    }

    /// What the peer may come to fill beyond the first window.
    pub fn grown(&self) -> usize {
        let promised = self.promised.saturating_add(self.unread);
        let grown = self.window.max(promised).saturating_sub(self.first);
        usize::try_from(grown).unwrap_or(usize::MAX)
    }

    /// The credit to send now: a quarter of the window (at most [`OWED`]) at least, or anything where the peer has none left.
    pub fn due(&self) -> Option<u32> {
        let owed = self
            .window
            .saturating_sub(self.promised)
            .saturating_sub(self.unread);
        let enough = owed >= (self.window / 4).min(OWED) || self.promised == 0;
        (owed > 0 && enough).then_some(owed)
    }

    pub fn grant(&mut self, amount: u32) {
        self.promised = self.promised.saturating_add(amount);
    }

    pub fn unread(&self) -> u32 {
        self.unread
    }

    pub fn window(&self) -> u32 {
        self.window
    }
}

#[cfg(test)]
mod tests;

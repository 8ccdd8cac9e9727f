//! Is the peer alive, how far away is it, and how much bulk is on the way to it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::wire::frame::{HEADER, MAX_PAYLOAD};

/// Nothing received for this long (and a tenth more or less): PING.
const IDLE: Duration = Duration::from_secs(10);
/// Nothing received for this long: the line is dead. Whoever asks is to know of it within 25 s, a late timer and a log line
/// included.
const DEAD: Duration = Duration::from_millis(24_500);
/// A process that slept gets this long to hear from its peer.
const GRACE: Duration = Duration::from_secs(2);
/// A timer that comes this late means that the process slept.
const SLEPT: Duration = Duration::from_secs(5);
/// One PING for so many bytes of bulk, or for what passes in so long where that is more: the answered ones tell what
/// is on the way. On a fast path each PONG is a packet of its own, and a tenth of the receiver's work.
const BULK_PER_PING: u64 = 128 << 10;
const PING_SPAN: Duration = Duration::from_millis(1);
const MAX_UNANSWERED: usize = 256;
/// Bulk on the way that is always allowed.
const MIN_FLIGHT: u64 = 256 << 10;
const MIN_SPAN: Duration = Duration::from_millis(10);
/// A message is what the line carries in this time, within bounds: what is in it cannot be overtaken.
const BATCH_SPAN: Duration = Duration::from_millis(20);
const MIN_BATCH: usize = 4 << 10;
pub(super) const MAX_BATCH: usize = (64 << 10) - 16;
/// The payload of a longest message, in as few frames as it takes.
const MAX_TURN: usize = MAX_BATCH - MAX_BATCH.div_ceil(MAX_PAYLOAD + HEADER) * HEADER;
/// Where the line carries several messages in this time, so many leave in one go. On such a path the calls of the
/// system, and waking the peer for each message, cost more than the bytes.
const TOGETHER_SPAN: Duration = Duration::from_micros(200);
/// Messages that leave in one go.
pub const TOGETHER: usize = 3;
/// One of many bulk streams sends what the line carries in this time before it is the next one's turn, within bounds. A message
/// that holds one stream's bytes is kept by its reader as it came, and wakes one reader instead of four.
const TURN_SPAN: Duration = Duration::from_millis(1);
/// An end that only receives asks so often how far away the peer is. Its credit waits behind what is on the way, and
/// windows that grow by the round trip of an idle path stay small.
const REFRESH: Duration = Duration::from_millis(20);
/// Until the rate is known.
const FIRST_BATCH: usize = 32 << 10;

#[derive(Debug)]
struct Ping {
    serial: u64,
    at: Instant,
    /// Bulk sent before it.
    bulk: u64,
    /// Bulk that was answered when it was sent, and when that was.
    answered: u64,
    answered_at: Instant,
}

/// What PING and PONG tell.
#[derive(Debug)]
pub(super) struct Path {
    idle: Duration,
    heard: Instant,
    /// A PING has to go out.
    due: bool,
    serial: u64,
    asked: Instant,
    unanswered: VecDeque<Ping>,
    smoothed: Option<Duration>,
    least: Option<Duration>,
    bulk: u64,
    /// Bulk sent before the newest PING, and before the newest answered one.
    marked: u64,
    answered: u64,
    answered_at: Instant,
    /// Bytes a second that arrive at the peer.
    rate: f64,
}

impl Path {
    /// `unit` in 0..1 spreads the PINGs of many lines.
    pub(super) fn new(now: Instant, unit: f64) -> Self {
        Self {
            idle: IDLE.mul_f64(0.9 + 0.2 * unit.clamp(0.0, 1.0)),
            heard: now,
            due: true,
            serial: 0,
            asked: now,
            unanswered: VecDeque::new(),
            smoothed: None,
            least: None,
            bulk: 0,
            marked: 0,
            answered: 0,
            answered_at: now,
            rate: 0.0,
        }
    }

    pub(super) fn heard(&mut self, now: Instant) {
        self.heard = self.heard.max(now);
    }

    pub(super) fn rtt(&self) -> Option<Duration> {
        self.smoothed
    }

    /// The shortest round trip so far.
    pub(super) fn least(&self) -> Option<Duration> {
        self.least
    }

    /// True where it answers a PING of ours.
    pub(super) fn pong(&mut self, now: Instant, serial: u64) -> bool {
        // An answer to a PING that a later one replaced, or to none of ours.
        if !self.unanswered.iter().any(|ping| ping.serial == serial) {
            return false;
        }
        while let Some(ping) = self.unanswered.pop_front() {
            if ping.serial != serial {
                continue;
            }
            let sample = now.saturating_duration_since(ping.at);
            self.least = Some(self.least.map_or(sample, |least| least.min(sample)));
            self.smoothed = Some(self.smoothed.map_or(sample, |old| (old * 7 + sample) / 8));
            // Over a round trip at least: answers that arrive in one go say nothing about the time between them.
            let span = now
                .saturating_duration_since(ping.answered_at)
                .max(sample)
                .as_secs_f64()
                .max(0.000_01);
            let moved = ping.bulk.saturating_sub(ping.answered);
            if moved > 0 {
                let rate = f64::from(u32::try_from(moved).unwrap_or(u32::MAX)) / span;
                self.rate = if rate > self.rate {
                    rate
                } else {
                    (self.rate * 7.0 + rate) / 8.0
                };
            }
            (self.answered, self.answered_at) = (ping.bulk, now);
            break;
        }
        // Bulk was marked by the rate of before. A path that stood, and then answered all at once, seems to carry so little that
        // what no PING marks may fill it; and who waits for room sends nothing that would ask.
        if self.unanswered.is_empty() && !self.has_room() {
            self.due = true;
        }
        true
    }

    /// Has a PING go out; gives the serial of the one before it.
    pub(super) fn ask(&mut self) -> u64 {
        self.due = true;
        self.serial
    }

    pub(super) fn count_bulk(&mut self, now: Instant, len: usize) {
        if self.bulk == self.answered {
            // Nothing was on the way: the time before does not count.
            self.answered_at = now;
        }
        self.bulk = self
            .bulk
            .saturating_add(u64::try_from(len).unwrap_or_default());
        let apart = self.moved_in(PING_SPAN).max(BULK_PER_PING);
        if self.bulk - self.marked >= apart && self.unanswered.len() < MAX_UNANSWERED {
            self.due = true;
        }
    }

    /// Credit goes out: the round trip that it takes is measured, not more often than needed.
    pub(super) fn count_credit(&mut self, now: Instant) {
        if now.saturating_duration_since(self.asked) >= REFRESH && self.unanswered.is_empty() {
            self.due = true;
        }
    }

    /// Bulk that does not fit on the way stands in a queue that sparse streams wait behind.
    pub(super) fn has_room(&self) -> bool {
        let span = self
            .least
            .map_or(MIN_SPAN, |least| (least * 2).max(MIN_SPAN));
        self.bulk - self.answered < self.moved_in(span).max(MIN_FLIGHT)
    }

    /// Bytes that arrive at the peer in `span`.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float cast saturates, and the rate is not negative"
    )]
    fn moved_in(&self, span: Duration) -> u64 {
        (self.rate * span.as_secs_f64()) as u64
    }

    /// Bytes of the next message.
    pub(super) fn batch(&self) -> usize {
        if self.rate == 0.0 {
            return FIRST_BATCH;
        }
        let batch = usize::try_from(self.moved_in(BATCH_SPAN)).unwrap_or(MAX_BATCH);
        batch.clamp(MIN_BATCH, MAX_BATCH)
    }

    /// Bytes of one bulk stream's turn.
    pub(super) fn turn(&self) -> usize {
        let turn = usize::try_from(self.moved_in(TURN_SPAN)).unwrap_or(MAX_TURN);
        turn.clamp(MAX_PAYLOAD, MAX_TURN)
    }

    /// Messages that may leave in one go, 1 at least.
    pub(super) fn together(&self) -> usize {
        let moved = usize::try_from(self.moved_in(TOGETHER_SPAN)).unwrap_or(usize::MAX);
        (moved / MAX_BATCH).clamp(1, TOGETHER)
    }

    pub(super) fn wants_ping(&self) -> bool {
        self.due
    }

    pub(super) fn ping(&mut self, now: Instant) -> Option<u64> {
        if !std::mem::take(&mut self.due) {
            return None;
        }
        self.serial += 1;
        self.asked = now;
        if self.unanswered.len() >= MAX_UNANSWERED {
            self.unanswered.pop_back();
        }
        self.unanswered.push_back(Ping {
            serial: self.serial,
            at: now,
            bulk: self.bulk,
            answered: self.answered,
            answered_at: self.answered_at,
        });
        self.marked = self.bulk;
        Some(self.serial)
    }

    /// True where the peer is dead.
    pub(super) fn timeout(&mut self, now: Instant) -> bool {
        let next = self.next_timeout();
        if now.saturating_duration_since(next) > SLEPT {
            let grace = now.checked_sub(DEAD.saturating_sub(GRACE)).unwrap_or(now);
            self.heard = self.heard.max(grace);
            self.due = true;
            return false;
        }
        let silent = self.silence(now);
        if silent >= DEAD {
            return true;
        }
        let asked = self
            .unanswered
            .back()
            .is_some_and(|ping| ping.at >= self.heard);
        if silent >= self.idle && !asked {
            self.due = true;
        }
        false
    }

    /// How long ago the peer was heard last.
    pub(super) fn silence(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.heard)
    }

    pub(super) fn next_timeout(&self) -> Instant {
        let asked = self.due
            || self
                .unanswered
                .back()
                .is_some_and(|ping| ping.at >= self.heard);
        self.heard + if asked { DEAD } else { self.idle }
    }
}

//! One stream's state.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::{Buf as _, Bytes, BytesMut};

use super::{ALWAYS_QUEUED, Queue};
use crate::tunnel::LineError;
use crate::tunnel::budget::Meter;
use crate::tunnel::credit::{RecvWindow, SendWindow};
use crate::wire::frame::{Class, Code, Kind};

/// A payload shorter than this is copied: a slice of it would pin the whole message.
pub(super) const COPY_BELOW: usize = 1024;
/// So is one that is a smaller part of its message. Four fill the longest one, whose head the last of them makes room for.
const KEPT_PART: usize = 5;
/// A stream is sparse while it sends less than this in [`SPARSE_SPAN`].
pub(super) const SPARSE_BYTES: usize = 8 << 10;
const SPARSE_SPAN: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sending {
    Open,
    /// FIN is to follow the queue.
    Finishing,
    /// FIN is on its way.
    Finished,
}

/// Where a stream with queued bytes waits for its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    Sparse,
    Bulk,
    Background,
}

#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "flags that input sets and output clears"
)]
pub(super) struct StreamState {
    pub(super) ours: bool,
    pub(super) kind: Kind,
    pub(super) class: Class,
    /// The application still has its handle.
    pub(super) held: bool,
    /// Not over on the wire: counts against `max_streams`.
    pub(super) live: bool,
    /// OPEN is not sent yet.
    pub(super) opening: Option<(Kind, Bytes)>,

    pub(super) queue: Queue,
    pub(super) send: SendWindow,
    pub(super) sending: Sending,
    /// STOP came: what is written goes nowhere.
    pub(super) muted: bool,
    pub(super) want_write: bool,
    /// Waits for room on the line.
    pub(super) crowded: bool,
    pub(super) lane: Option<Lane>,
    /// Since when it waits there, where its turn has not begun.
    pub(super) waits_since: Option<Instant>,
    /// What is left of its turn among the bulk streams.
    pub(super) turn: usize,
    burst: Burst,

    pub(super) buffer: RecvBuffer,
    pub(super) recv: RecvWindow,
    received: Burst,
    pub(super) fin_received: bool,
    /// Unread bytes were dropped.
    pub(super) truncated: bool,
    /// The application reads no more: what arrives is dropped.
    pub(super) discarding: bool,
    pub(super) stop: Option<Code>,
    /// Since when unread bytes lie here.
    pub(super) unread_since: Instant,
    /// Is among those that make way for others.
    pub(super) ranked: bool,

    /// To be sent; ends the stream on the wire.
    pub(super) rst: Option<LineError>,
    /// What the holder of the handle gets, after what it can still read.
    pub(super) error: Option<LineError>,
    /// Waits in the queue of streams with control frames.
    pub(super) urgent: bool,
}

impl StreamState {
    pub(super) fn new(
        now: Instant,
        ours: bool,
        (kind, class): (Kind, Class),
        send: u32,
        recv: u32,
    ) -> Self {
        Self {
            ours,
            kind,
            class,
            held: true,
            live: true,
            opening: None,
            queue: Queue::default(),
            send: SendWindow::new(send),
            sending: Sending::Open,
            muted: false,
            want_write: false,
            crowded: false,
            lane: None,
            waits_since: None,
            turn: 0,
            burst: Burst::new(now),
            buffer: RecvBuffer::default(),
            recv: RecvWindow::new(now, recv),
            received: Burst::new(now),
            fin_received: false,
            truncated: false,
            discarding: false,
            stop: None,
            unread_since: now,
            ranked: false,
            rst: None,
            error: None,
            urgent: false,
        }
    }

    /// Nothing more will pass in either direction.
    pub(super) fn is_over(&self) -> bool {
        self.sending == Sending::Finished && self.fin_received
    }

    /// How much more may be queued, where one stream may have `max` and the line has `line_room` left. A stream with
    /// nothing queued never waits for others.
    pub(super) fn room(&self, max: usize, line_room: usize) -> usize {
        let room = max.saturating_sub(self.queue.len()).min(line_room);
        if self.queue.is_empty() {
            room.max(ALWAYS_QUEUED)
        } else {
            room
        }
    }

    /// The lane for bytes that were just queued.
    pub(super) fn choose_lane(&self, now: Instant, was_empty: bool) -> Lane {
        match self.class {
            Class::Background => Lane::Background,
            Class::Normal if was_empty && self.burst.recent(now) < SPARSE_BYTES => Lane::Sparse,
            Class::Normal => Lane::Bulk,
        }
    }

    pub(super) fn count_sent(&mut self, now: Instant, len: usize) {
        self.burst.count(now, len);
    }

    /// A stream that had its share is not sparse any more.
    pub(super) fn is_bulky(&self, now: Instant) -> bool {
        self.burst.recent(now) >= SPARSE_BYTES
    }

    /// The lane in which bytes that arrived count. Their sender does not say in which they went: it is judged here,
    /// by the sender's rule.
    pub(super) fn count_received(&mut self, now: Instant, len: usize) -> Lane {
        let recent = self.received.recent(now);
        self.received.count(now, len);
        match self.class {
            Class::Background => Lane::Background,
            Class::Normal if recent < SPARSE_BYTES => Lane::Sparse,
            Class::Normal => Lane::Bulk,
        }
    }
}

/// Bytes of one direction in the present [`SPARSE_SPAN`].
#[derive(Debug, Clone, Copy)]
struct Burst {
    bytes: usize,
    since: Instant,
}

impl Burst {
    fn new(now: Instant) -> Self {
        Self {
            bytes: 0,
            since: now,
        }
    }

    fn recent(&self, now: Instant) -> usize {
        if now.saturating_duration_since(self.since) < SPARSE_SPAN {
            self.bytes
        } else {
            0
        }
    }

    fn count(&mut self, now: Instant, len: usize) {
        if now.saturating_duration_since(self.since) >= SPARSE_SPAN {
            *self = Self::new(now);
        }
        self.bytes = self.bytes.saturating_add(len);
    }
}

/// Bytes that arrived and were not read. Whoever changes it passes the meter that counts what it holds on to.
#[derive(Debug, Default)]
pub(super) struct RecvBuffer {
    chunks: VecDeque<Bytes>,
    len: usize,
    /// The newest bytes, where they came in small pieces, and what was counted for them.
    tail: BytesMut,
    tail_size: usize,
}

impl RecvBuffer {
    /// `held` is the length of the allocation that `payload` is a slice of, where it may be kept. A small part of one is copied:
    /// it would hold on to the whole.
    pub(super) fn push(&mut self, payload: Bytes, held: Option<usize>, meter: &Meter) {
        self.len += payload.len();
        if payload.len() >= COPY_BELOW {
            if !self.tail.is_empty() {
                let size = std::mem::take(&mut self.tail_size);
                let tail = std::mem::take(&mut self.tail).freeze();
                self.chunks.push_back(meter.hold(tail, size));
                meter.resized(size, 0);
            }
            let kept = held.is_some_and(|message| payload.len() >= message / KEPT_PART);
            self.chunks.push_back(if kept {
                payload
            } else {
                meter.hold(Bytes::copy_from_slice(&payload), payload.len())
            });
        } else {
            self.tail.extend_from_slice(&payload);
            // Reading moves the front on, so the capacity that is left may be less than what is allocated.
            let size = self.tail.capacity().max(self.tail_size);
            meter.resized(self.tail_size, size);
            self.tail_size = size;
        }
    }

    pub(super) fn read(&mut self, out: &mut [u8], meter: &Meter) -> usize {
        let mut filled = 0;
        while let Some(space) = out.get_mut(filled..).filter(|space| !space.is_empty()) {
            let done = if let Some(chunk) = self.chunks.front_mut() {
                let done = take(chunk, space);
                if chunk.is_empty() {
                    self.chunks.pop_front();
                }
                done
            } else {
                // What was read at the front of a buffer still counts: it is freed as a whole.
                let done = take(&mut self.tail, space);
                if self.tail.is_empty() {
                    meter.resized(self.tail_size, 0);
                    (self.tail, self.tail_size) = (BytesMut::new(), 0);
                }
                done
            };
            if done == 0 {
                break;
            }
            filled += done;
        }
        self.len = self.len.saturating_sub(filled);
        filled
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn clear(&mut self, meter: &Meter) {
        meter.resized(self.tail_size, 0);
        *self = Self::default();
    }
}

fn take(from: &mut impl bytes::Buf, into: &mut [u8]) -> usize {
    let len = from.remaining().min(into.len());
    if let Some(into) = into.get_mut(..len) {
        from.copy_to_slice(into);
    }
    len
}

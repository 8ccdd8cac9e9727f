//! What is sent next: control before sparse before bulk before background.

use std::time::{Duration, Instant};

use bytes::BytesMut;

use super::path::MAX_BATCH;
use super::state::{Lane, SPARSE_BYTES, Sending};
use super::{ALWAYS_QUEUED, Event, MAX_LINE_QUEUED, MAX_QUEUED, Session, class};
use crate::tunnel::budget::Level;
use crate::tunnel::websocket::MAX_SEALED;
use crate::wire::frame::{self, Frame, HEADER, MAX_PAYLOAD, Open};

/// Bytes of control frames in one message, the last frame aside.
const CONTROL: usize = 32 << 10;
/// A DATA frame is not cut shorter than this to fit into a message.
const LEAST_CUT: usize = 512;
/// After so many bytes of sparse streams in a row bulk gets a turn.
const SPARSE_RUN: usize = 64 << 10;
/// What a sparse or background stream may send before it is the next one's turn, and a bulk stream on a slow path.
const TURN: usize = MAX_PAYLOAD;
/// A stream that said something has an answer to wait for, or says more, for so long.
pub(super) const TALK: Duration = Duration::from_millis(100);
/// Background is sure of one byte for so many of bulk: 5 %.
const BULK_SHARE: usize = 19;

impl Session {
    /// True where [`Session::poll_transmit`] would write something.
    pub fn has_transmit(&self) -> bool {
        if self.over.is_some() {
            return self.goaway.is_some();
        }
        let control = self.goaway.is_some()
            || self.pong.is_some()
            || self.path.wants_ping()
            || !(self.refused.is_empty() && self.opens.is_empty() && self.urgent.is_empty());
        let bulk = !(self.bulk.is_empty() && self.background.is_empty());
        control || !self.sparse.is_empty() || (bulk && self.path.has_room())
    }

    /// How many messages may leave in one go. One, where a sparse stream waits or did a moment ago: it is held up by what
    /// has left.
    pub fn together(&self, now: Instant) -> usize {
        let talks = self
            .sparse_at
            .is_some_and(|at| now.saturating_duration_since(at) < TALK);
        if self.several() && (talks || !self.sparse.is_empty()) {
            return 1;
        }
        self.path.together()
    }

    fn several(&self) -> bool {
        self.sparse.len() + self.bulk.len() + self.background.len() > 1
    }

    /// What one stream may have queued: what leaves in one go, or where there are several its part of that.
    pub(super) fn max_queued(&self) -> usize {
        if self.several() {
            MAX_QUEUED
        } else {
            MAX_QUEUED * self.path.together()
        }
    }

    /// Appends the next frames to `out`, one message of whole frames; false where there was nothing to send.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut BytesMut) -> bool {
        let start = out.len();
        if let Some(goaway) = self.goaway.take() {
            frame::encode(&Frame::Goaway(goaway), out);
        }
        if self.over.is_none() {
            if let Some(serial) = self.pong.take() {
                frame::encode(&Frame::Pong(serial), out);
            }
            if let Some(serial) = self.path.ping(now) {
                frame::encode(&Frame::Ping(serial), out);
            }
            if self.send_control(now, start + CONTROL, out) {
                if !(self.bulk.is_empty() && self.background.is_empty()) {
                    out.reserve(self.path.batch());
                }
                self.send_data(now, start + self.path.batch(), out);
            }
        }
        self.wake_crowded();
        out.len() > start
    }

    /// False where the message is full before all control frames are in it.
    fn send_control(&mut self, now: Instant, end: usize, out: &mut BytesMut) -> bool {
        while out.len() < end {
            let Some((id, code)) = self.refused.pop() else {
                break;
            };
            frame::encode(
                &Frame::Rst {
                    id,
                    code,
                    text: String::new(),
                },
                out,
            );
        }
        while out.len() < end {
            let Some(id) = self.opens.pop_front() else {
                break;
            };
            self.send_open(id, out);
        }
        if !self.opens.is_empty() {
            return false;
        }
        while out.len() < end {
            let Some(id) = self.urgent.pop_front() else {
                return true;
            };
            self.send_flags(now, id, out);
        }
        self.urgent.is_empty()
    }

    fn send_open(&mut self, id: u32, out: &mut BytesMut) {
        let window = self.config.window;
        if let Some(stream) = self.streams.get_mut(&id)
            && let Some((kind, meta)) = stream.opening.take()
        {
            let class = stream.class;
            frame::encode(
                &Frame::Open(Open {
                    id,
                    kind,
                    class,
                    window,
                    meta,
                }),
                out,
            );
        }
    }

    fn send_flags(&mut self, now: Instant, id: u32, out: &mut BytesMut) {
        let tight = self.meter.level() >= Level::Tight;
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        stream.urgent = false;
        if !stream.live {
            return;
        }
        if let Some(error) = stream.rst.take() {
            frame::encode(
                &Frame::Rst {
                    id,
                    code: error.code,
                    text: error.text,
                },
                out,
            );
            self.end(id);
            return;
        }
        if let Some(code) = stream.stop.take() {
            frame::encode(&Frame::Stop { id, code }, out);
        }
        let wants =
            !stream.fin_received && !stream.discarding && (!tight || stream.buffer.len() == 0);
        if let Some(amount) = stream.recv.due().filter(|_| wants) {
            stream.recv.grant(amount);
            frame::encode(&Frame::Credit { id, amount }, out);
            self.path.count_credit(now);
        }
        self.send_fin(id, out);
    }

    fn send_fin(&mut self, id: u32, out: &mut BytesMut) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if stream.sending == Sending::Finishing && stream.queue.is_empty() {
            stream.sending = Sending::Finished;
            frame::encode(&Frame::Fin { id }, out);
            if stream.is_over() {
                self.end(id);
            }
        }
    }

    fn send_data(&mut self, now: Instant, end: usize, out: &mut BytesMut) {
        loop {
            let room = end.saturating_sub(out.len() + HEADER);
            if room < LEAST_CUT {
                return;
            }
            let bulk_waits =
                !(self.bulk.is_empty() && self.background.is_empty()) && self.path.has_room();
            if !(self.sparse.is_empty() || bulk_waits && self.sparse_run >= SPARSE_RUN) {
                let Some(id) = self.sparse.pop_front() else {
                    return;
                };
                self.sparse_run += self.send_from(now, (Lane::Sparse, id), room, out);
                continue;
            }
            if !bulk_waits {
                return;
            }
            self.sparse_run = 0;
            let background = self.bulk.is_empty()
                || (self.bulk_run >= BULK_SHARE * TURN && !self.background.is_empty());
            let lane = if background {
                Lane::Background
            } else {
                Lane::Bulk
            };
            let Some(id) = self.lane(lane).pop_front() else {
                return;
            };
            let sent = self.send_from(now, (lane, id), room, out);
            self.bulk_run = if background {
                self.bulk_run.saturating_sub(sent * BULK_SHARE)
            } else {
                // A lane that is empty saves nothing up.
                (self.bulk_run + sent).min(BULK_SHARE * TURN)
            };
            self.path.count_bulk(now, sent);
        }
    }

    /// One frame of a stream's queue, at most `room` of it. Where more is queued the stream goes on with its turn,
    /// or waits for the next; else FIN follows.
    fn send_from(
        &mut self,
        now: Instant,
        (lane, id): (Lane, u32),
        room: usize,
        out: &mut BytesMut,
    ) -> usize {
        let Some(stream) = self.streams.get_mut(&id) else {
            return 0;
        };
        stream.lane = None;
        if stream.turn == 0 {
            stream.turn = match lane {
                Lane::Bulk => self.path.turn(),
                Lane::Sparse | Lane::Background => TURN,
            };
        }
        let len = stream.queue.len().min(stream.turn);
        let len = len.min(room).min(MAX_PAYLOAD);
        if len == 0 {
            return 0;
        }
        frame::data_head(id, len, out);
        stream.queue.move_to(out, len);
        stream.count_sent(now, len);
        stream.turn -= len;
        if stream.turn < LEAST_CUT {
            // Too little for a frame of its own.
            stream.turn = 0;
        }
        let waited = stream.waits_since.take();
        let waited = waited.map(|since| now.saturating_duration_since(since));
        class(&mut self.classes, lane).send(len, waited);
        self.queued = self.queued.saturating_sub(len);
        if stream.queue.is_empty() {
            stream.turn = 0;
            if lane == Lane::Sparse && len < SPARSE_BYTES {
                // Bulk that begins has more.
                self.sparse_at = Some(now);
            }
            self.send_fin(id, out);
        } else {
            let next = if lane == Lane::Sparse && stream.is_bulky(now) {
                Lane::Bulk
            } else {
                lane
            };
            stream.lane = Some(next);
            let goes_on = stream.turn > 0 && next == lane;
            stream.waits_since = (!goes_on).then_some(now);
            let lane = self.lane(next);
            if goes_on {
                lane.push_front(id);
            } else {
                lane.push_back(id);
            }
        }
        self.wake_writer(id);
        len
    }

    fn wake_writer(&mut self, id: u32) {
        let max = self.max_queued();
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        let room = max.saturating_sub(stream.queue.len());
        if stream.want_write && stream.send.available() > 0 && room >= max / 4 {
            stream.want_write = false;
            self.events.push_back(Event::Writable(id));
        }
    }

    pub(super) fn wake_crowded(&mut self) {
        while self.queued + MAX_QUEUED + ALWAYS_QUEUED <= MAX_LINE_QUEUED {
            let Some(id) = self.crowded.pop_front() else {
                break;
            };
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.crowded = false;
                if std::mem::take(&mut stream.want_write) {
                    self.events.push_back(Event::Writable(id));
                }
            }
        }
    }
}

const _: () = assert!(CONTROL + MAX_PAYLOAD + HEADER * 4 + 1024 < MAX_SEALED);
const _: () = assert!(MAX_BATCH + HEADER <= MAX_SEALED);

//! What the application asks of a session.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::state::{Sending, StreamState};
use super::{
    Drain, Event, MAX_LINE_QUEUED, MAX_QUEUED, Over, Read, STOP_PATIENCE, Said, Session, gone,
};
use crate::tunnel::LineError;
use crate::tunnel::budget::Level;
use crate::tunnel::credit;
use crate::wire::frame::{Class, Code, Goaway, Kind, MAX_ID, MAX_META};

impl Session {
    /// Opens a stream; DATA may follow at once.
    pub fn open(
        &mut self,
        now: Instant,
        kind: Kind,
        class: Class,
        meta: Bytes,
    ) -> Result<u32, LineError> {
        if let Some(over) = &self.over {
            return Err(LineError::new(Code::LineLost, over.text.clone()));
        }
        if let Some(drain) = self.draining {
            return Err(LineError::new(drain.code, "the line takes no new streams"));
        }
        if meta.len() > MAX_META {
            return Err(LineError::new(
                Code::Limit,
                format!("{} bytes of metadata", meta.len()),
            ));
        }
        if self.own_live >= self.config.peer_max_streams {
            return Err(LineError::new(
                Code::Limit,
                format!("{} streams are open on the line", self.own_live),
            ));
        }
        if !self.takes_streams(now) {
            return Err(LineError::new(
                Code::OverBudget,
                "unread input takes the line's memory",
            ));
        }
        let id = self.next_id;
        if id > MAX_ID {
            let text = "stream ids are used up";
            self.drain(
                now,
                Goaway {
                    code: Code::Ids,
                    retry_after_ms: 0,
                    drain_ms: 600_000,
                    text: text.to_owned(),
                },
            );
            return Err(LineError::new(Code::Ids, text));
        }
        self.next_id = id.saturating_add(2);
        let mut stream = StreamState::new(
            now,
            true,
            (kind, class),
            self.config.peer_window,
            self.config.window,
        );
        stream.opening = Some((kind, meta));
        self.streams.insert(id, stream);
        self.opens.push_back(id);
        self.own_live += 1;
        self.opened += 1;
        Ok(id)
    }

    /// Queues as much of `data` as there is credit and room for. 0 bytes taken: `Writable` follows.
    pub fn write(&mut self, now: Instant, id: u32, data: &[u8]) -> Result<usize, LineError> {
        let (max, line_room) = (self.max_queued(), self.line_room());
        let stream = self.streams.get_mut(&id).ok_or_else(gone)?;
        if let Some(error) = &stream.error {
            return Err(error.clone());
        }
        if stream.muted {
            return Ok(data.len());
        }
        if stream.sending != Sending::Open {
            return Err(LineError::new(Code::Internal, "written after shutdown"));
        }
        let empty = stream.queue.is_empty();
        let room = stream.room(max, line_room);
        let taken = stream.send.take(data.len().min(room));
        if let Some(data) = data.get(..taken).filter(|data| !data.is_empty()) {
            stream.queue.push(data);
            self.queued += taken;
            if stream.lane.is_none() {
                let lane = stream.choose_lane(now, empty);
                stream.lane = Some(lane);
                stream.waits_since = Some(now);
                self.lane(lane).push_back(id);
            }
        }
        if taken < data.len() {
            self.wait_for_room(id, line_room);
        }
        Ok(taken)
    }

    /// How much [`Session::write`] would take now. Where that is nothing, `Writable` follows.
    pub fn room(&mut self, id: u32) -> usize {
        let (max, line_room) = (self.max_queued(), self.line_room());
        let Some(stream) = self.streams.get_mut(&id) else {
            return 0;
        };
        if stream.muted {
            // It goes nowhere, and is in nobody's way.
            return MAX_QUEUED;
        }
        let room = stream.room(max, line_room).min(stream.send.available());
        if room == 0 && stream.sending == Sending::Open && stream.error.is_none() {
            self.wait_for_room(id, line_room);
        }
        room
    }

    fn line_room(&self) -> usize {
        MAX_LINE_QUEUED.saturating_sub(self.queued)
    }

    /// `Writable` is to follow, with credit or when something of what is queued has left.
    fn wait_for_room(&mut self, id: u32, line_room: usize) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if stream.send.available() == 0 && !stream.want_write {
            self.stalls += 1;
        }
        stream.want_write = true;
        if line_room < MAX_QUEUED && !stream.crowded {
            stream.crowded = true;
            self.crowded.push_back(id);
        }
    }

    /// What the peer said of a stream beside its bytes.
    pub fn said(&self, id: u32) -> Said {
        let Some(stream) = self.streams.get(&id) else {
            return Said::Failed {
                error: gone(),
                whole: false,
            };
        };
        match &stream.error {
            Some(error) => Said::Failed {
                error: error.clone(),
                whole: stream.fin_received && !stream.truncated,
            },
            None if stream.muted => Said::Stop,
            None => Said::Nothing,
        }
    }

    /// Takes bytes that arrived, and with that gives the peer room for more.
    pub fn read(&mut self, now: Instant, id: u32, out: &mut [u8]) -> Result<Read, LineError> {
        let rtt = self.path.rtt();
        let ceiling = credit::ceiling(self.path.least(), self.config.budget);
        let stream = self.streams.get_mut(&id).ok_or_else(gone)?;
        let len = stream.buffer.read(out, &self.meter);
        if len == 0 {
            return match &stream.error {
                // All that the peer sent was read: a later loss takes nothing from it.
                Some(error) if stream.truncated || !stream.fin_received => Err(error.clone()),
                _ if stream.fin_received || stream.discarding => Ok(Read::End),
                _ if out.is_empty() => Ok(Read::Data(0)),
                _ => Ok(Read::Blocked),
            };
        }
        let level = self.meter.level();
        stream.unread_since = now;
        let ceiling = (level == Level::Free).then_some(ceiling);
        let others = self.grown.saturating_sub(stream.recv.grown());
        let share = credit::share(self.config.budget, others);
        stream.recv.consume(now, len, (rtt, ceiling), share);
        self.grown = others + stream.recv.grown();
        let spared = level < Level::Tight || stream.buffer.len() == 0;
        let due = stream.recv.due().is_some() && spared;
        if due && !stream.fin_received && stream.live {
            self.mark_urgent(id);
        }
        Ok(Read::Data(len))
    }

    /// This direction is complete.
    pub fn finish(&mut self, id: u32) -> Result<(), LineError> {
        let stream = self.streams.get_mut(&id).ok_or_else(gone)?;
        if let Some(error) = &stream.error {
            return Err(error.clone());
        }
        if stream.sending == Sending::Open {
            stream.sending = Sending::Finishing;
            if stream.queue.is_empty() {
                self.mark_urgent(id);
            }
        }
        Ok(())
    }

    /// The application reads no more of this stream; what it writes still goes.
    pub fn stop(&mut self, now: Instant, id: u32, code: Code) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if stream.discarding {
            return;
        }
        stream.discarding = true;
        stream.buffer.clear(&self.meter);
        if !stream.fin_received && stream.live {
            stream.stop = Some(code);
            self.stops.push_back((now + STOP_PATIENCE, id));
            self.mark_urgent(id);
        }
    }

    /// Ends both directions at once.
    pub fn reset(&mut self, id: u32, code: Code, text: &str) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if stream.live && stream.rst.is_none() {
            let error = LineError {
                unsent: stream.opening.is_some(),
                ..LineError::new(code, text)
            };
            stream.rst = Some(error.clone());
            stream.error.get_or_insert(error);
            self.drop_bytes(id);
            let opening = self
                .streams
                .get_mut(&id)
                .and_then(|stream| stream.opening.take());
            if opening.is_some() {
                // The peer never heard of it, and must not now.
                self.end(id);
            } else {
                self.mark_urgent(id);
            }
        }
    }

    /// The application dropped its handle.
    pub fn release(&mut self, now: Instant, id: u32) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        stream.held = false;
        let finished = stream.sending != Sending::Open;
        if !stream.live {
            self.forget(id);
        } else if finished {
            self.stop(now, id, Code::None);
        } else {
            self.reset(id, Code::Cancelled, "");
        }
    }

    /// No new streams; the line ends when it is empty, or when the time to drain is over. Asked for again, that can only be sooner.
    pub fn drain(&mut self, now: Instant, goaway: Goaway) {
        if self.over.is_some() {
            return;
        }
        let until = now + Duration::from_millis(goaway.drain_ms.into());
        if let Some(drain) = self.draining.as_mut().filter(|drain| drain.ours) {
            if until < drain.until {
                drain.until = until;
                self.goaway = Some(goaway);
            }
            return;
        }
        self.draining = Some(Drain {
            since: now,
            until,
            ours: true,
            code: goaway.code,
        });
        self.events.push_back(Event::Draining(goaway.clone()));
        self.goaway = Some(goaway);
    }

    /// Says goodbye and ends the session now.
    pub fn leave(&mut self, code: Code, text: &str) {
        if self.over.is_none() {
            self.goaway = Some(Goaway {
                code,
                retry_after_ms: 0,
                drain_ms: 0,
                text: text.to_owned(),
            });
            self.over = Some(Over {
                code,
                text: text.to_owned(),
                fault: false,
                by_peer: self.peer_goaway.clone(),
                silence: Duration::ZERO,
            });
        }
    }
}

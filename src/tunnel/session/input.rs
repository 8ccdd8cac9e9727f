//! What arrives: one message of frames, and the answers of the fault table.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::state::{COPY_BELOW, Sending, StreamState};
use super::{Drain, Event, Over, Role, Session, class};
use crate::tunnel::LineError;
use crate::wire::frame::{self, Code, Frame, Goaway, Open};

/// OPENs above the limit in [`LIMIT_SPAN`] that end the line.
const MAX_OVER_LIMIT: u32 = 10_000;
const LIMIT_SPAN: Duration = Duration::from_secs(10);
/// The flow-control fault that ends the line.
const MAX_FLOW_FAULTS: u32 = 3;
/// The peer gets a little longer to close a drained line than it asked for.
const DRAIN_SLACK: Duration = Duration::from_secs(2);

/// Whether all DATA in the message are one stream's.
fn of_one_stream(message: &Bytes) -> bool {
    let (mut rest, mut first) = (message.clone(), None);
    while let Ok(Some(frame)) = frame::decode(&mut rest) {
        if let Frame::Data { id, .. } = frame
            && *first.get_or_insert(id) != id
        {
            return false;
        }
    }
    true
}

/// A fault of the line as a whole.
struct Fault(Code, String);

impl Fault {
    fn protocol(text: impl Into<String>) -> Self {
        Self(Code::Protocol, text.into())
    }
}

impl Session {
    /// Takes a message of whole frames. Faults show in [`Session::over`].
    pub fn handle_message(&mut self, now: Instant, message: Bytes) {
        self.path.heard(now);
        let len = message.len();
        // Parts of a short message are copied, so nothing holds on to it; nor to one of several streams, of which one may be read
        // long after the others.
        let copied = len < COPY_BELOW || !of_one_stream(&message);
        let (mut rest, held) = if copied {
            (message, None)
        } else {
            (self.meter.hold(message, len), Some(len))
        };
        while self.over.is_none() {
            let fault = match frame::decode(&mut rest) {
                Ok(None) => return,
                Ok(Some(frame)) => self.handle_frame(now, frame, held).err(),
                Err(error) => Some(Fault::protocol(error.to_string())),
            };
            if let Some(Fault(code, text)) = fault {
                self.fail(code, text);
            }
        }
    }

    fn fail(&mut self, code: Code, text: String) {
        self.goaway = Some(Goaway {
            code,
            retry_after_ms: 0,
            drain_ms: 0,
            text: text.clone(),
        });
        self.over = Some(Over {
            code,
            text,
            fault: true,
            by_peer: self.peer_goaway.clone(),
            silence: Duration::ZERO,
        });
    }

    /// `held` is the size of the message, where parts of it may be kept as they are.
    fn handle_frame(
        &mut self,
        now: Instant,
        frame: Frame,
        held: Option<usize>,
    ) -> Result<(), Fault> {
        match frame {
            Frame::Challenge(_) | Frame::Hello(_) | Frame::Welcome(_) | Frame::Refuse(_) => {
                Err(Fault::protocol("handshake frame on a running line"))
            }
            Frame::Open(open) => self.handle_open(now, &open),
            Frame::Data { id, payload } => self.handle_data(now, id, payload, held),
            Frame::Credit { id, amount } => self.handle_credit(id, amount),
            Frame::Fin { id } => self.handle_fin(id),
            Frame::Rst { id, code, text } => self.handle_rst(id, code, text),
            Frame::Stop { id, code: _ } => self.handle_stop(id),
            Frame::Ping(serial) => {
                self.pong = Some(serial);
                Ok(())
            }
            Frame::Pong(serial) => {
                let answers = self.path.pong(now, serial);
                let later = |before: &mut u64| answers && serial > *before;
                if self.asked.take_if(later).is_some() {
                    self.answered = true;
                }
                Ok(())
            }
            Frame::Goaway(goaway) => {
                self.handle_goaway(now, goaway);
                Ok(())
            }
            Frame::Skipped => Ok(()),
        }
    }

    /// The stream of `id`; `None` where it is over (frames of both ends cross on the way).
    fn known(&mut self, id: u32) -> Result<Option<&mut StreamState>, Fault> {
        let is_ours = (id % 2 == 1) == (self.config.role == Role::Agent);
        let seen = if is_ours {
            id < self.next_id
        } else {
            id <= self.highest_peer
        };
        if !seen {
            return Err(Fault::protocol(format!(
                "frame for stream {id}, which was never opened"
            )));
        }
        // A stream that is over on the wire is not known to the peer any more.
        let stream = self
            .streams
            .get_mut(&id)
            .filter(|stream| stream.live && stream.rst.is_none());
        if stream
            .as_ref()
            .is_some_and(|stream| stream.opening.is_some())
        {
            return Err(Fault::protocol(format!(
                "frame for stream {id}, which was never opened"
            )));
        }
        Ok(stream)
    }

    fn handle_open(&mut self, now: Instant, open: &Open) -> Result<(), Fault> {
        let is_ours = (open.id % 2 == 1) == (self.config.role == Role::Agent);
        if is_ours || open.id <= self.highest_peer {
            return Err(Fault::protocol(format!("OPEN of stream {}", open.id)));
        }
        self.highest_peer = open.id;
        if self.peer_live >= self.config.max_streams {
            if now.saturating_duration_since(self.over_limit.0) > LIMIT_SPAN {
                self.over_limit = (now, 0);
            }
            self.over_limit.1 += 1;
            if self.over_limit.1 > MAX_OVER_LIMIT {
                return Err(Fault(
                    Code::Limit,
                    "too many streams over the limit".to_owned(),
                ));
            }
            return self.refuse(open.id, Code::Limit);
        }
        if !self.takes_streams(now) {
            return self.refuse(open.id, Code::OverBudget);
        }
        let what = (open.kind, open.class);
        let stream = StreamState::new(now, false, what, open.window, self.config.window);
        self.streams.insert(open.id, stream);
        self.peer_live += 1;
        self.opened += 1;
        self.events.push_back(Event::Opened {
            id: open.id,
            kind: open.kind,
            class: open.class,
            // Kept for as long as the stream is: it must not hold on to its message.
            meta: Bytes::copy_from_slice(&open.meta),
        });
        Ok(())
    }

    fn refuse(&mut self, id: u32, code: Code) -> Result<(), Fault> {
        if self.refused.push(id, code) {
            return Ok(());
        }
        Err(Fault(Code::Limit, "refused streams pile up".to_owned()))
    }

    fn handle_data(
        &mut self,
        now: Instant,
        id: u32,
        payload: Bytes,
        held: Option<usize>,
    ) -> Result<(), Fault> {
        let Some(stream) = self.known(id)? else {
            return Ok(());
        };
        if payload.is_empty() || stream.fin_received {
            let code = if payload.is_empty() {
                Code::Protocol
            } else {
                Code::Flow
            };
            return self.stream_fault(id, code, "DATA that may not be");
        }
        if stream.recv.receive(payload.len()).is_err() {
            return self.stream_fault(id, Code::Flow, "more DATA than credit");
        }
        let lane = stream.count_received(now, payload.len());
        let is_discarding = stream.discarding;
        if stream.buffer.len() == 0 {
            stream.unread_since = now;
        }
        class(&mut self.classes, lane).receive(payload.len());
        if is_discarding {
            return Ok(());
        }
        if let Some(stream) = self.streams.get_mut(&id) {
            self.unread.came(id, stream, payload.len());
            stream.buffer.push(payload, held, &self.meter);
        }
        self.events.push_back(Event::Readable(id));
        self.relieve(now);
        Ok(())
    }

    fn stream_fault(&mut self, id: u32, code: Code, text: &str) -> Result<(), Fault> {
        if code == Code::Flow {
            self.flow_faults += 1;
            if self.flow_faults >= MAX_FLOW_FAULTS {
                return Err(Fault(Code::Flow, format!("{text}, again")));
            }
        }
        self.reset(id, code, text);
        self.events.push_back(Event::Failed(id));
        Ok(())
    }

    fn handle_credit(&mut self, id: u32, amount: u32) -> Result<(), Fault> {
        let Some(stream) = self.known(id)? else {
            return Ok(());
        };
        if stream.send.add(amount).is_err() {
            return self.stream_fault(id, Code::Flow, "more CREDIT than a window");
        }
        if std::mem::take(&mut stream.want_write) {
            self.events.push_back(Event::Writable(id));
        }
        Ok(())
    }

    fn handle_fin(&mut self, id: u32) -> Result<(), Fault> {
        let Some(stream) = self.known(id)? else {
            return Ok(());
        };
        if stream.fin_received {
            return self.stream_fault(id, Code::Protocol, "FIN twice");
        }
        stream.fin_received = true;
        stream.stop = None;
        let over = stream.is_over();
        self.events.push_back(Event::Readable(id));
        if over {
            self.end(id);
        }
        Ok(())
    }

    fn handle_rst(&mut self, id: u32, code: Code, text: String) -> Result<(), Fault> {
        // The peer's RST may cross ours: then the stream is over as well.
        let crossed = self
            .streams
            .get(&id)
            .is_some_and(|stream| stream.live && stream.rst.is_some());
        let Some(stream) = self.known(id)? else {
            if crossed {
                self.end(id);
            }
            return Ok(());
        };
        stream.error = Some(LineError::new(code, text));
        let queued = std::mem::take(&mut stream.queue).len();
        self.queued = self.queued.saturating_sub(queued);
        self.events.push_back(Event::Failed(id));
        self.end(id);
        Ok(())
    }

    fn handle_stop(&mut self, id: u32) -> Result<(), Fault> {
        let Some(stream) = self.known(id)? else {
            return Ok(());
        };
        if stream.muted {
            return Ok(());
        }
        stream.muted = true;
        let queued = std::mem::take(&mut stream.queue).len();
        if stream.sending == Sending::Open {
            stream.sending = Sending::Finishing;
        }
        let finishing = stream.sending == Sending::Finishing;
        self.queued = self.queued.saturating_sub(queued);
        if finishing {
            self.mark_urgent(id);
        }
        self.events.push_back(Event::Writable(id));
        Ok(())
    }

    fn handle_goaway(&mut self, now: Instant, goaway: Goaway) {
        let until = now + Duration::from_millis(goaway.drain_ms.into()) + DRAIN_SLACK;
        match &mut self.draining {
            // Ours stands; the earlier end counts.
            Some(drain) => drain.until = drain.until.min(until),
            None => {
                self.draining = Some(Drain {
                    since: now,
                    until,
                    ours: false,
                    code: goaway.code,
                });
            }
        }
        // Streams that the peer has not heard of can be opened on the next line.
        while let Some(id) = self.opens.pop_front() {
            if self
                .streams
                .get(&id)
                .is_some_and(|stream| stream.opening.is_some())
            {
                self.reset(id, goaway.code, "the line takes no new streams");
                self.events.push_back(Event::Failed(id));
            }
        }
        if self.peer_goaway.is_none() {
            self.events.push_back(Event::Draining(goaway.clone()));
        }
        self.peer_goaway = Some(goaway);
    }
}

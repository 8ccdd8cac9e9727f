//! The line's state machine after the handshake, sans-IO: frames and commands go in, frames and events come
//! out, time is an argument (`docs/protocol.md`).
//!
//! What input provokes is a flag or a counter, never a queue: the reader never waits for the writer, and a peer
//! that sends without reading grows nothing here. All that is queued is covered by the peer's credit, so it
//! can always be sent. There is no window of the connection as a whole.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::expect_used))]

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::budget::Meter;
use super::{ClassLoad, Classes, LineError, LineLoad};
use crate::wire::frame::{Class, Code, Goaway, Kind};

mod commands;
mod config;
mod input;
mod output;
mod path;
mod queue;
mod refused;
mod room;
mod state;
mod timeout;

pub use config::{Config, Role, UNREAD_LONG};
use path::Path;
pub use path::TOGETHER;
use queue::Queue;
use refused::Refused;
use room::Unread;
use state::{Lane, StreamState};
use timeout::Drain;

/// Bytes that one stream may have queued.
const MAX_QUEUED: usize = 64 << 10;
/// Bytes that a stream with an empty queue may always queue.
const ALWAYS_QUEUED: usize = 8 << 10;
/// Bytes that all streams together may have queued.
const MAX_LINE_QUEUED: usize = 4 << 20;
/// No FIN so long after STOP: RST.
const STOP_PATIENCE: Duration = Duration::from_secs(30);

/// Something for the driver to pass on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Opened {
        id: u32,
        kind: Kind,
        class: Class,
        meta: Bytes,
    },
    Readable(u32),
    Writable(u32),
    /// The stream ended badly; reads give what is left, then the error.
    Failed(u32),
    /// No new streams on this line.
    Draining(Goaway),
}

/// What a read found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    Data(usize),
    /// Nothing now; `Readable` follows.
    Blocked,
    End,
}

/// What the peer said of a stream beside its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    Nothing,
    /// It reads no more.
    Stop,
    /// The stream can no longer end well; `whole`: but all that the peer had to send has come.
    Failed {
        error: LineError,
        whole: bool,
    },
}

/// Why the session is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Over {
    pub code: Code,
    pub text: String,
    /// The frames broke the protocol: close with 1002.
    pub fault: bool,
    pub by_peer: Option<Goaway>,
    /// For how long nothing had been heard, where that is why; else 0.
    pub silence: Duration,
}

/// The session.
#[derive(Debug)]
pub struct Session {
    config: Config,
    streams: HashMap<u32, StreamState>,
    next_id: u32,
    highest_peer: u32,
    own_live: usize,
    peer_live: usize,
    opened: u64,
    closed: u64,

    /// Streams whose OPEN is to be sent, in the order of their ids.
    opens: VecDeque<u32>,
    /// Streams with control frames to send.
    urgent: VecDeque<u32>,
    sparse: VecDeque<u32>,
    bulk: VecDeque<u32>,
    background: VecDeque<u32>,
    sparse_run: usize,
    /// When a sparse stream last had something whole to say.
    sparse_at: Option<Instant>,
    /// Bulk sent since background had its turn, less what that took of it.
    bulk_run: usize,
    queued: usize,
    /// Streams that wait for room on the line.
    crowded: VecDeque<u32>,
    /// OPENs of the peer that get RST without ever having had a state.
    refused: Refused,
    over_limit: (Instant, u32),
    flow_faults: u32,
    meter: Meter,
    /// What the windows of all streams have outgrown their first sizes by.
    grown: usize,
    /// Its memory was full, and not a quarter of it is free again.
    full: bool,
    /// Who makes way then.
    unread: Unread,
    stops: VecDeque<(Instant, u32)>,

    pong: Option<u64>,
    path: Path,
    /// The serial of the PING before the one of [`Session::ask`], until that is answered.
    asked: Option<u64>,
    answered: bool,
    goaway: Option<Goaway>,
    /// When drained (by either end), until when.
    draining: Option<Drain>,
    /// How often a writer met a window without credit.
    stalls: u64,
    classes: Classes,
    peer_goaway: Option<Goaway>,
    over: Option<Over>,
    events: VecDeque<Event>,
}

impl Session {
    pub fn new(now: Instant, config: Config) -> Self {
        let meter = Meter::new(config.budget, &config.process);
        let path = Path::new(now, config.unit);
        let next_id = match config.role {
            Role::Agent => 1,
            Role::Hub => 2,
        };
        Self {
            config,
            streams: HashMap::new(),
            next_id,
            highest_peer: 0,
            own_live: 0,
            peer_live: 0,
            opened: 0,
            closed: 0,
            opens: VecDeque::new(),
            urgent: VecDeque::new(),
            sparse: VecDeque::new(),
            bulk: VecDeque::new(),
            background: VecDeque::new(),
            sparse_run: 0,
            sparse_at: None,
            bulk_run: 0,
            queued: 0,
            crowded: VecDeque::new(),
            refused: Refused::default(),
            over_limit: (now, 0),
            flow_faults: 0,
            meter,
            grown: 0,
            full: false,
            unread: Unread::new(now),
            stops: VecDeque::new(),
            pong: None,
            path,
            asked: None,
            answered: false,
            goaway: None,
            draining: None,
            stalls: 0,
            classes: Classes::default(),
            peer_goaway: None,
            over: None,
            events: VecDeque::new(),
        }
    }

    /// The connection below is gone: every stream that is not complete fails. Of one that has failed already nobody waits longer
    /// than for this.
    pub fn lose(&mut self, code: Code, text: &str) {
        self.leave(code, text);
        let ended: Vec<u32> = self
            .streams
            .iter()
            .filter(|(_, stream)| stream.live || stream.error.is_some())
            .map(|(id, _)| *id)
            .collect();
        for id in ended {
            if let Some(stream) = self.streams.get_mut(&id) {
                let unsent = stream.opening.is_some();
                stream.error.get_or_insert_with(|| LineError {
                    unsent,
                    ..LineError::new(Code::LineLost, text)
                });
                self.events.push_back(Event::Failed(id));
            }
            self.end(id);
        }
    }

    /// Something arrived at the socket, be it part of a message.
    pub fn heard(&mut self, now: Instant) {
        self.path.heard(now);
    }

    /// Asks the peer for a sign of life; [`Session::answered`] says whether one came.
    pub fn ask(&mut self) {
        self.asked = Some(self.path.ask());
        self.answered = false;
    }

    /// Whether the peer answered since it was asked last.
    pub fn answered(&self) -> bool {
        self.answered
    }

    pub fn poll_event(&mut self) -> Option<Event> {
        if self.events.is_empty() {
            self.wake_crowded();
        }
        self.events.pop_front()
    }

    /// Set once: the session is over when its last frames are sent.
    pub fn over(&self) -> Option<&Over> {
        self.over.as_ref()
    }

    /// The error that ended `id`, while the application holds it.
    pub fn error(&self, id: u32) -> Option<&LineError> {
        self.streams
            .get(&id)
            .and_then(|stream| stream.error.as_ref())
    }

    /// Whether the peer said that it reads no more of `id`.
    pub fn is_muted(&self, id: u32) -> bool {
        self.streams.get(&id).is_some_and(|stream| stream.muted)
    }

    pub fn rtt(&self) -> Option<Duration> {
        self.path.rtt()
    }

    /// Streams that are not over on the wire.
    pub fn live(&self) -> usize {
        self.own_live + self.peer_live
    }

    /// What the line carries at this moment. Looks at every stream: for people, not for each request.
    pub fn load(&self) -> LineLoad {
        let mut load = LineLoad {
            stalls: self.stalls,
            classes: self.classes,
            ..LineLoad::default()
        };
        for stream in self.streams.values().filter(|stream| stream.live) {
            load.unread += stream.buffer.len();
            match stream.kind {
                Kind::Api => load.api += 1,
                Kind::Git => load.git += 1,
                Kind::Report => load.report += 1,
                Kind::State | Kind::Other(_) => load.other += 1,
            }
        }
        load
    }

    /// Streams ever opened, and of these ended.
    pub fn counts(&self) -> (u64, u64) {
        (self.opened, self.closed)
    }

    /// Memory that unread input takes.
    pub fn unread(&self) -> usize {
        self.meter.used()
    }

    pub fn is_draining(&self) -> bool {
        self.draining.is_some()
    }

    fn lane(&mut self, lane: Lane) -> &mut VecDeque<u32> {
        match lane {
            Lane::Sparse => &mut self.sparse,
            Lane::Bulk => &mut self.bulk,
            Lane::Background => &mut self.background,
        }
    }

    fn mark_urgent(&mut self, id: u32) {
        if let Some(stream) = self.streams.get_mut(&id)
            && !stream.urgent
        {
            stream.urgent = true;
            self.urgent.push_back(id);
        }
    }

    /// Drops what is queued and what is unread.
    fn drop_bytes(&mut self, id: u32) {
        if let Some(stream) = self.streams.get_mut(&id) {
            self.queued = self.queued.saturating_sub(stream.queue.len());
            stream.queue = Queue::default();
            stream.truncated |= stream.buffer.len() > 0;
            stream.buffer.clear(&self.meter);
        }
    }

    /// The stream is over on the wire.
    fn end(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if stream.live {
            stream.live = false;
            self.closed += 1;
            if stream.ours {
                self.own_live = self.own_live.saturating_sub(1);
            } else {
                self.peer_live = self.peer_live.saturating_sub(1);
            }
        }
        if !stream.held {
            self.forget(id);
        }
    }

    fn forget(&mut self, id: u32) {
        self.drop_bytes(id);
        if let Some(stream) = self.streams.remove(&id) {
            self.grown = self.grown.saturating_sub(stream.recv.grown());
        }
        // Queues name streams that are gone; they must not outgrow the table while the writer stands.
        let most = 64 + 2 * self.streams.len();
        let streams = &self.streams;
        for queue in [
            &mut self.opens,
            &mut self.urgent,
            &mut self.sparse,
            &mut self.bulk,
            &mut self.background,
            &mut self.crowded,
        ] {
            if queue.len() > most {
                queue.retain(|id| streams.contains_key(id));
            }
        }
        self.unread.forget(streams, most);
        if self.stops.len() > most {
            self.stops.retain(|(_, id)| streams.contains_key(id));
        }
    }
}

fn class(classes: &mut Classes, lane: Lane) -> &mut ClassLoad {
    match lane {
        Lane::Sparse => &mut classes.sparse,
        Lane::Bulk => &mut classes.bulk,
        Lane::Background => &mut classes.background,
    }
}

fn gone() -> LineError {
    LineError::new(Code::Internal, "the stream has ended")
}

#[cfg(test)]
mod tests;

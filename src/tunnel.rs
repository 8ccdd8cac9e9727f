//! Streams on a line, for both ends: open and accept.
//!
//! A [`Line`] is a handle of one authenticated connection between agent and hub; its streams are
//! [`Stream`]s. [`session`], [`credit`], [`budget`], [`handshake`] and [`websocket`] are sans-IO, [`driver`] moves their bytes.

use std::time::Duration;

use bytes::Bytes;
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

use crate::wire::frame::{Class, Code, Kind};

pub mod budget;
pub mod carry;
pub mod credit;
pub mod driver;
pub mod handshake;
pub mod session;
pub mod splice;
pub mod stream;
pub mod switched;
pub mod websocket;

pub use driver::Line;
pub use stream::Stream;

/// A stream that the peer opened.
#[derive(Debug)]
pub struct Incoming {
    pub kind: Kind,
    pub class: Class,
    /// JSON; its shape belongs to the kind.
    pub meta: Bytes,
    /// Of the line that it came on.
    pub epoch: u64,
    pub stream: Stream,
}

/// Why a stream, or an attempt to open one, failed. Inside of an `io::Error` from a [`Stream`]:
/// `error.get_ref().and_then(|e| e.downcast_ref::<LineError>())`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}{}{text}", if text.is_empty() { "" } else { ": " })]
pub struct LineError {
    pub code: Code,
    pub text: String,
    /// The stream's OPEN had not left when it ended: the peer never hears of it.
    pub unsent: bool,
}

impl LineError {
    pub fn new(code: Code, text: impl Into<String>) -> Self {
        Self {
            code,
            text: text.into(),
            unsent: false,
        }
    }
}

/// What is known of a line now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineFacts {
    pub epoch: u64,
    /// UUID, made by the hub.
    pub session: String,
    /// The peer's address.
    pub remote: String,
    /// UUID of the agent's process.
    pub instance: String,
    pub since: OffsetDateTime,
    /// The age at which something on the way ends this agent's lines, where it found that out.
    pub cap: Option<Duration>,
    /// Smoothed; absent until the first PONG.
    pub rtt: Option<Duration>,
    /// Streams that are open now.
    pub live: usize,
    /// Streams ever opened, by either end.
    pub opened: u64,
    /// GOAWAY was sent or received.
    pub draining: bool,
    /// Bytes of frames.
    pub sent: u64,
    pub received: u64,
}

/// What streams of one class sent and received here, and how long they waited to send.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClassLoad {
    /// Bytes of streams, ever; frames' headers not counted.
    pub sent: u64,
    /// The same of what arrived: by the rule of the scheduler, as seen from this end.
    pub received: u64,
    /// From when a stream had something to send until its turn, smoothed over the last turns; None = there was none yet.
    pub delay: Option<Duration>,
}

impl ClassLoad {
    /// A stream sent so much; `waited` where that began a turn.
    pub(in crate::tunnel) fn send(&mut self, len: usize, waited: Option<Duration>) {
        let len = u64::try_from(len).unwrap_or(u64::MAX);
        self.sent = self.sent.saturating_add(len);
        if let Some(waited) = waited {
            let smoothed = self.delay.map_or(waited, |old| (old * 7 + waited) / 8);
            self.delay = Some(smoothed);
        }
    }

    /// So much of a stream arrived.
    pub(in crate::tunnel) fn receive(&mut self, len: usize) {
        let len = u64::try_from(len).unwrap_or(u64::MAX);
        self.received = self.received.saturating_add(len);
    }
}

/// By the scheduler's classes, the first served first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Classes {
    pub sparse: ClassLoad,
    pub bulk: ClassLoad,
    pub background: ClassLoad,
}

impl Classes {
    pub fn named(&self) -> [(&'static str, ClassLoad); 3] {
        [
            ("sparse", self.sparse),
            ("bulk", self.bulk),
            ("background", self.background),
        ]
    }
}

/// What a line carries now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LineLoad {
    /// Streams that are open, by kind.
    pub api: usize,
    pub git: usize,
    pub report: usize,
    pub other: usize,
    /// Bytes that arrived and were not read yet.
    pub unread: usize,
    /// How often a writer here met a window without credit, ever.
    pub stalls: u64,
    pub classes: Classes,
}

/// How a line ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    pub code: Code,
    pub text: String,
    /// The peer's wish, where its GOAWAY named one.
    pub retry_after: Option<Duration>,
    /// True where the peer said GOAWAY.
    pub by_peer: bool,
    /// For how long nothing had been heard of the peer, where that is why it ended; else 0.
    pub silence: Duration,
}

/// Fires when the stream can no longer end well: RST or loss of the line.
pub type Cancelled = CancellationToken;

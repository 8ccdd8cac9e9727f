//! How the command of an exec ended, read from what its API server says while that passes. Pure: no byte is held back or changed, at
//! most [`MOST`] are kept, and at the first that it does not expect it gives up for good. Then nothing is known of the end.
//!
//! The status is a `Status` on a channel of its own (`k8s.io/apimachinery/pkg/util/remotecommand`, from its fourth version on). By
//! WebSocket each message begins with its channel, and that of the status is 3. By SPDY/3.1 it is the error stream, which client-go opens
//! first (`remotecommand/v2.go`) and which therefore is stream 1; what another client has there is no `Status`.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::expect_used))]

use http::header::{HeaderMap, SEC_WEBSOCKET_PROTOCOL};
use serde::Deserialize;

use crate::kubeapi::path::RequestInfo;

/// Bytes of a status that are kept. Whatever is longer has no exit code in it.
const MOST: usize = 4 << 10;

pub(super) const STATUS_CHANNEL: u8 = 3;
const ERROR_STREAM: u32 = 1;

/// A WebSocket frame's longest head that a server sends (RFC 6455, 5.2); that of SPDY has 8 bytes.
const HEAD: usize = 10;

/// What carries a session's channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    WebSocket,
    /// draft-mbelshe-httpbis-spdy-00, 2.2
    Spdy,
}

/// Whose bytes a frame has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum To {
    /// Its first byte says it.
    Said,
    Status,
    Other,
}

/// A frame whose head was read.
#[derive(Debug, Clone, Copy)]
struct Open {
    to: To,
    left: u64,
    /// Of a message in parts: whose the next one is.
    goes_on: bool,
}

/// Looks at what the server sends; begins behind the head of its 101.
#[derive(Debug)]
pub struct Exit {
    framing: Framing,
    head: [u8; HEAD],
    have: usize,
    open: Option<Open>,
    /// A WebSocket message of which more parts come.
    message: Option<To>,
    status: Vec<u8>,
    /// The server has closed (RFC 6455, 5.5.1).
    closed: bool,
    lost: bool,
}

/// What is read of the `Status`.
#[derive(Deserialize)]
struct Told {
    status: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    details: Details,
}

#[derive(Default, Deserialize)]
struct Details {
    #[serde(default)]
    causes: Vec<Cause>,
}

#[derive(Deserialize)]
struct Cause {
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
}

impl Exit {
    /// `answer` is the head of the 101. None = such a session does not say how it ends.
    pub fn of(info: &RequestInfo, answer: &HeaderMap) -> Option<Self> {
        let told = |name: &str| answer.get(name)?.to_str().ok();
        let session = matches!(info.subresource.as_str(), "exec" | "attach");
        let framing = if let Some(chosen) = told(SEC_WEBSOCKET_PROTOCOL.as_str()) {
            matches!(chosen, "v4.channel.k8s.io" | "v5.channel.k8s.io")
                .then_some(Framing::WebSocket)
        } else {
            (told("x-stream-protocol-version") == Some("v4.channel.k8s.io"))
                .then_some(Framing::Spdy)
        };
        session.then_some(Self::new(framing?))
    }

    pub fn new(framing: Framing) -> Self {
        Self {
            framing,
            head: [0; HEAD],
            have: 0,
            open: None,
            message: None,
            status: Vec::new(),
            closed: false,
            lost: false,
        }
    }

    /// For what its user is given of the same session; None = no word of the hub's own has a place there.
    pub fn beside(&self) -> Option<Self> {
        (self.framing == Framing::WebSocket).then(|| Self::new(self.framing))
    }

    /// Whether a `Status` may come next: nothing is in its middle, and neither a `Status` nor an end was said.
    pub fn takes_a_word(&self) -> bool {
        let between = self.have == 0 && self.open.is_none() && self.message.is_none();
        between && self.status.is_empty() && !self.closed && !self.lost
    }

    /// What the server said next, in whatever pieces it comes.
    pub fn see(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !self.lost && !rest.is_empty() {
            rest = match self.open {
                Some(open) => self.payload(open, rest),
                None => self.head(rest),
            };
        }
    }

    /// The exit code, where the server has said one; what cannot be read is none.
    pub fn code(&self) -> Option<i32> {
        if self.lost {
            return None;
        }
        let told: Told = serde_json::from_slice(&self.status).ok()?;
        match (told.status.as_str(), told.reason.as_str()) {
            ("Success", _) => Some(0),
            ("Failure", "NonZeroExitCode") => {
                let mut causes = told.details.causes.iter();
                let cause = causes.find(|cause| cause.reason == "ExitCode")?;
                cause.message.parse().ok()
            }
            _ => None,
        }
    }

    fn lose(&mut self) {
        self.lost = true;
        self.status = Vec::new();
    }

    /// One more byte of a head.
    fn head<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let Some((first, rest)) = bytes.split_first() else {
            return bytes;
        };
        if let Some(place) = self.head.get_mut(self.have) {
            *place = *first;
        }
        self.have += 1;
        if self.have < self.wanted() {
            return rest;
        }
        self.have = 0;
        let read = match self.framing {
            Framing::WebSocket => self.message_part(),
            Framing::Spdy => self.spdy_frame(),
        };
        match read {
            Some(open) => self.go_on(open),
            None => self.lose(),
        }
        rest
    }

    /// Bytes of the head that is being read, as far as one can tell.
    fn wanted(&self) -> usize {
        let [_, second, ..] = self.head;
        match self.framing {
            Framing::Spdy => 8,
            Framing::WebSocket if self.have < 2 => 2,
            Framing::WebSocket => match second & 0x7f {
                126 => 4,
                127 => HEAD,
                _ => 2,
            },
        }
    }

    /// None = no server sends such a frame: reserved bits, a mask, text, a part of nothing, a control frame in parts.
    fn message_part(&mut self) -> Option<Open> {
        let [first, second, long @ ..] = self.head;
        let (last, kind) = (first & 0x80 != 0, first & 0x0f);
        if first & 0x70 != 0 || second & 0x80 != 0 {
            return None;
        }
        let left = match second {
            126 => {
                let [high, low, ..] = long;
                u64::from(u16::from_be_bytes([high, low]))
            }
            127 => u64::from_be_bytes(long),
            short => u64::from(short),
        };
        let to = match kind {
            0 => self.message.take()?,
            2 if self.message.is_none() => To::Said,
            8..=10 if last && left <= 125 => {
                self.closed |= kind == 8;
                return Some(Open {
                    to: To::Other,
                    left,
                    goes_on: false,
                });
            }
            _ => return None,
        };
        Some(Open {
            to,
            left,
            goes_on: !last,
        })
    }

    /// None = another version, a kind or a flag that it does not have, or the stream 0.
    fn spdy_frame(&self) -> Option<Open> {
        let [one, two, three, four, flags, high, middle, low, ..] = self.head;
        let left = u64::from(u32::from_be_bytes([0, high, middle, low]));
        let to = if one & 0x80 == 0 {
            match (u32::from_be_bytes([one, two, three, four]), flags) {
                (0, _) | (_, 2..) => return None,
                (ERROR_STREAM, _) => To::Status,
                _ => To::Other,
            }
        } else {
            let control = (one & 0x7f, two, u16::from_be_bytes([three, four]));
            matches!(control, (0, 3, 1..=9)).then_some(To::Other)?
        };
        Some(Open {
            to,
            left,
            goes_on: false,
        })
    }

    fn payload<'a>(&mut self, mut open: Open, bytes: &'a [u8]) -> &'a [u8] {
        let most = match open.to {
            To::Said => 1,
            To::Status | To::Other => open.left,
        };
        let len = usize::try_from(most).unwrap_or(usize::MAX);
        let (some, rest) = bytes.split_at(len.min(bytes.len()));
        open.left = open.left.saturating_sub(some.len() as u64);
        match open.to {
            To::Said if some == [STATUS_CHANNEL] => open.to = To::Status,
            To::Said => open.to = To::Other,
            To::Status if self.status.len() + some.len() > MOST => self.lose(),
            To::Status => self.status.extend_from_slice(some),
            To::Other => {}
        }
        self.go_on(open);
        rest
    }

    /// Behind a frame comes a head.
    fn go_on(&mut self, open: Open) {
        self.open = (open.left > 0).then_some(open);
        if open.left == 0 && open.goes_on {
            self.message = Some(open.to);
        }
    }
}

#[cfg(test)]
mod tests;

//! The frames of the line: encode, decode, limits (`docs/protocol.md`).
//!
//! A WebSocket message is one or more whole frames. A frame is a header of nine bytes, `type u8 | flags u8 |
//! len u24 | stream u32`, all big-endian, and `len` bytes of payload. Stream 0 is the line itself. Flags are
//! ignored; a type of 0x80 and above that this build does not know is skipped, one below is an error.
#![deny(clippy::indexing_slicing, clippy::expect_used)]

use bytes::{Buf, Bytes};

mod code;
mod encode;

pub use code::Code;
pub use encode::{data, data_head, encode, encoded_len};

/// Bytes of a frame's header.
pub const HEADER: usize = 9;
/// Bytes of the longest payload.
pub const MAX_PAYLOAD: usize = 16_384;
/// Bytes of the longest message.
pub const MAX_MESSAGE: usize = 65_536;
/// Bytes of the longest text of a code.
pub const MAX_TEXT: usize = 512;
/// Bytes of the longest metadata of a stream.
pub const MAX_META: usize = MAX_PAYLOAD - OPEN_FIXED;
/// The highest stream id.
pub const MAX_ID: u32 = (1 << 31) - 1;
/// The most credit that one CREDIT frame may add, and a stream may hold.
pub const MAX_CREDIT: u32 = 16 << 20;

const OPEN_FIXED: usize = 6;

const CHALLENGE: u8 = 0x01;
const HELLO: u8 = 0x02;
const WELCOME: u8 = 0x03;
const REFUSE: u8 = 0x04;
const OPEN: u8 = 0x10;
const DATA: u8 = 0x11;
const CREDIT: u8 = 0x12;
const FIN: u8 = 0x13;
const RST: u8 = 0x14;
const STOP: u8 = 0x15;
const PING: u8 = 0x20;
const PONG: u8 = 0x21;
const GOAWAY: u8 = 0x22;
/// From here on a type that is not known is skipped.
const OPTIONAL: u8 = 0x80;

/// One frame. Identifiers are never 0 in frames of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// Hub's first frame: JSON.
    Challenge(Bytes),
    /// Agent: JSON and 64 bytes of signature.
    Hello(Bytes),
    /// Hub: JSON and 64 bytes of signature. Streams only after it.
    Welcome(Bytes),
    /// Hub: no line for this agent now.
    Refuse(Refusal),
    Open(Open),
    Data {
        id: u32,
        payload: Bytes,
    },
    /// Adds to the receiver's send window.
    Credit {
        id: u32,
        amount: u32,
    },
    /// This direction is complete.
    Fin {
        id: u32,
    },
    /// Both directions end.
    Rst {
        id: u32,
        code: Code,
        text: String,
    },
    /// "I read no more": the receiver drops its queue and sends FIN.
    Stop {
        id: u32,
        code: Code,
    },
    Ping(u64),
    Pong(u64),
    Goaway(Goaway),
    /// A frame of a newer peer.
    Skipped,
}

/// A new stream. DATA may follow at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Open {
    pub id: u32,
    pub kind: Kind,
    pub class: Class,
    /// Bytes that the acceptor may send before the first CREDIT.
    pub window: u32,
    /// JSON; its shape belongs to the kind.
    pub meta: Bytes,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub code: Code,
    pub retry_after_ms: u32,
    pub text: String,
}

/// No new streams on this line; running ones live `drain_ms` at most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Goaway {
    pub code: Code,
    pub retry_after_ms: u32,
    pub drain_ms: u32,
    pub text: String,
}

/// What a stream carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Hub to agent: one HTTP exchange with the kube-apiserver.
    Api,
    /// Agent to hub: TCP to the catalog's Git host.
    Git,
    /// Agent to hub: one HTTP exchange with the hub's agent routes.
    Report,
    /// Agent to hub: the state stream.
    State,
    /// A kind of a newer peer.
    Other(u8),
}

impl Kind {
    fn byte(self) -> u8 {
        match self {
            Self::Api => 1,
            Self::Git => 2,
            Self::Report => 3,
            Self::State => 4,
            Self::Other(byte) => byte,
        }
    }
}

impl From<u8> for Kind {
    fn from(byte: u8) -> Self {
        match byte {
            1 => Self::Api,
            2 => Self::Git,
            3 => Self::Report,
            4 => Self::State,
            other => Self::Other(other),
        }
    }
}

/// How urgent a stream is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Class {
    #[default]
    Normal,
    /// Sent when nothing else waits, with a small guaranteed share.
    Background,
}

/// Bytes that are not frames: the line ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("frame is cut short")]
    Truncated,
    #[error("payload of {0} bytes is above the limit")]
    TooLong(usize),
    #[error("frame type {0:#04x} is not known")]
    Type(u8),
    #[error("payload of frame type {0:#04x} has the wrong size")]
    Size(u8),
    #[error("frame type {kind:#04x} on stream {id}")]
    Stream { kind: u8, id: u32 },
}

/// Takes the next frame off `message`; `None` at its end.
pub fn decode(message: &mut Bytes) -> Result<Option<Frame>, FrameError> {
    if message.is_empty() {
        return Ok(None);
    }
    if message.remaining() < HEADER {
        return Err(FrameError::Truncated);
    }
    let kind = message.get_u8();
    let _flags = message.get_u8();
    let len = usize::try_from(message.get_uint(3)).unwrap_or(usize::MAX);
    let id = message.get_u32();
    if len > MAX_PAYLOAD {
        return Err(FrameError::TooLong(len));
    }
    if message.remaining() < len {
        return Err(FrameError::Truncated);
    }
    let payload = message.split_to(len);
    let on_line = matches!(
        kind,
        CHALLENGE | HELLO | WELCOME | REFUSE | PING | PONG | GOAWAY
    );
    let on_stream = matches!(kind, OPEN | DATA | CREDIT | FIN | RST | STOP);
    if (on_line && id != 0) || (on_stream && (id == 0 || id > MAX_ID)) {
        return Err(FrameError::Stream { kind, id });
    }
    body(kind, id, payload).map(Some)
}

#[expect(
    clippy::too_many_lines,
    reason = "one arm a frame type reads best as one table"
)]
fn body(kind: u8, id: u32, mut payload: Bytes) -> Result<Frame, FrameError> {
    let exactly = |size: usize, payload: &Bytes| {
        if payload.len() == size {
            Ok(())
        } else {
            Err(FrameError::Size(kind))
        }
    };
    let at_least = |size: usize, payload: &Bytes| {
        if payload.len() >= size {
            Ok(())
        } else {
            Err(FrameError::Size(kind))
        }
    };
    Ok(match kind {
        CHALLENGE => Frame::Challenge(payload),
        HELLO => Frame::Hello(payload),
        WELCOME => Frame::Welcome(payload),
        REFUSE => {
            at_least(6, &payload)?;
            let (code, retry_after_ms) = (payload.get_u16().into(), payload.get_u32());
            Frame::Refuse(Refusal {
                code,
                retry_after_ms,
                text: text(kind, &payload)?,
            })
        }
        OPEN => {
            at_least(OPEN_FIXED, &payload)?;
            let kind = payload.get_u8().into();
            let class = if payload.get_u8() == 1 {
                Class::Background
            } else {
                Class::Normal
            };
            let window = payload.get_u32();
            Frame::Open(Open {
                id,
                kind,
                class,
                window,
                meta: payload,
            })
        }
        DATA => Frame::Data { id, payload },
        CREDIT => {
            exactly(4, &payload)?;
            Frame::Credit {
                id,
                amount: payload.get_u32(),
            }
        }
        FIN => {
            exactly(0, &payload)?;
            Frame::Fin { id }
        }
        RST => {
            at_least(2, &payload)?;
            Frame::Rst {
                id,
                code: payload.get_u16().into(),
                text: text(kind, &payload)?,
            }
        }
        STOP => {
            exactly(2, &payload)?;
            Frame::Stop {
                id,
                code: payload.get_u16().into(),
            }
        }
        PING => {
            exactly(8, &payload)?;
            Frame::Ping(payload.get_u64())
        }
        PONG => {
            exactly(8, &payload)?;
            Frame::Pong(payload.get_u64())
        }
        GOAWAY => {
            at_least(10, &payload)?;
            let code = payload.get_u16().into();
            let (retry_after_ms, drain_ms) = (payload.get_u32(), payload.get_u32());
            Frame::Goaway(Goaway {
                code,
                retry_after_ms,
                drain_ms,
                text: text(kind, &payload)?,
            })
        }
        other if other >= OPTIONAL => Frame::Skipped,
        other => return Err(FrameError::Type(other)),
    })
}

fn text(kind: u8, payload: &Bytes) -> Result<String, FrameError> {
    if payload.len() > MAX_TEXT {
        return Err(FrameError::Size(kind));
    }
    // Replacement characters may lengthen it; a text is for people and goes out through `clip` again.
    Ok(clip(&String::from_utf8_lossy(payload)).to_owned())
}

/// The longest prefix of `text` that a frame carries.
pub fn clip(text: &str) -> &str {
    let mut end = text.len().min(MAX_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests;

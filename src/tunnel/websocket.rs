//! WebSocket framing (RFC 6455) of a line, sans-IO: binary messages, each its own allocation of exactly its size, so
//! that what a slice of one pins in memory is known. No extensions; text, wrong masks and reserved bits are errors.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::expect_used))]

use bytes::{Bytes, BytesMut};

use super::session::Role;
use crate::wire::frame::MAX_MESSAGE;

/// Bytes before a message that [`seal`] needs for its header.
pub const SPACE: usize = 8;
/// The longest message that [`seal`] takes.
pub const MAX_SEALED: usize = 65_535;

/// Headers and short messages are read through a buffer of this size; the rest of a long one goes straight to
/// its place.
const SCRATCH: usize = 1024;
const MAX_CONTROL: usize = 125;

const CONTINUATION: u8 = 0x0;
const TEXT: u8 = 0x1;
const BINARY: u8 = 0x2;
const CLOSE: u8 = 0x8;
const PING: u8 = 0x9;
const PONG: u8 = 0xa;

/// Codes of a close frame (RFC 6455 §7.4.1).
pub mod close {
    pub const NORMAL: u16 = 1000;
    pub const AWAY: u16 = 1001;
    pub const PROTOCOL: u16 = 1002;
    pub const POLICY: u16 = 1008;
    pub const SIZE: u16 = 1009;

    /// The others are not given out, or mean that there was no close frame.
    pub(super) const fn may_be_sent(code: u16) -> bool {
        matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
    }
}

/// What arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Received {
    Message(Bytes),
    /// To be answered with its payload.
    Ping(Bytes),
    /// With the peer's code, if it gave one.
    Close(Option<u16>),
}

/// The peer broke the framing: close with the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Broken {
    pub code: u16,
    pub text: &'static str,
}

const fn broken(text: &'static str) -> Broken {
    Broken {
        code: close::PROTOCOL,
        text,
    }
}

#[derive(Debug, Clone, Copy)]
struct Head {
    opcode: u8,
    is_final: bool,
    mask: Option<[u8; 4]>,
    len: usize,
}

/// Takes bytes of the connection and gives messages.
#[derive(Debug)]
pub struct Reader {
    /// Where the other end has to mask.
    masked: bool,
    /// The longest message.
    most: usize,
    scratch: Box<[u8; SCRATCH]>,
    start: usize,
    end: usize,
    /// The frame whose payload is being read.
    head: Option<Head>,
    /// The message so far; the frame's payload begins at `from`.
    body: BytesMut,
    from: usize,
    /// A message of several frames is under way.
    fragmented: bool,
}

impl Reader {
    /// `role` is the end that reads.
    pub fn new(role: Role) -> Self {
        Self {
            masked: role == Role::Hub,
            most: MAX_MESSAGE,
            scratch: Box::new([0; SCRATCH]),
            start: 0,
            end: 0,
            head: None,
            body: BytesMut::new(),
            from: 0,
            fragmented: false,
        }
    }

    /// Takes messages up to this length from now on.
    pub fn limit(&mut self, most: usize) {
        self.most = most;
    }

    /// The next of what was filled in; `None` where more has to be.
    pub fn poll(&mut self) -> Result<Option<Received>, Broken> {
        loop {
            let head = match self.head {
                Some(head) => head,
                None => match self.parse_head()? {
                    Some(head) => head,
                    None => return Ok(None),
                },
            };
            if head.opcode >= CLOSE {
                match self.control(head)? {
                    None => return Ok(None),
                    Some(None) => {}
                    Some(received) => return Ok(received),
                }
            } else {
                self.fill_body();
                if self.missing() > 0 {
                    return Ok(None);
                }
                self.head = None;
                if let Some(key) = head.mask {
                    mask(self.body.get_mut(self.from..).unwrap_or_default(), key);
                }
                if head.is_final {
                    let body = std::mem::take(&mut self.body);
                    // What grew part by part has room to spare.
                    let message = if std::mem::take(&mut self.fragmented) {
                        Bytes::copy_from_slice(&body)
                    } else {
                        body.freeze()
                    };
                    return Ok(Some(Received::Message(message)));
                }
                self.fragmented = true;
            }
        }
    }

    /// A long message's place and how much of it is to come; `None` where [`Reader::space`] is to be filled.
    pub fn direct(&mut self) -> Option<(&mut BytesMut, usize)> {
        let missing = self.missing();
        (missing > 0 && self.start == self.end).then_some((&mut self.body, missing))
    }

    /// Where headers and short messages go; [`Reader::filled`] says how much came.
    pub fn space(&mut self) -> &mut [u8] {
        self.scratch.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        self.scratch.get_mut(self.end..).unwrap_or_default()
    }

    /// All of that room, for what is not to be understood any more.
    pub fn scratch(&mut self) -> &mut [u8] {
        (self.start, self.end) = (0, 0);
        self.scratch.as_mut_slice()
    }

    pub fn filled(&mut self, len: usize) {
        self.end = (self.end + len).min(SCRATCH);
    }

    fn buffered(&self) -> &[u8] {
        self.scratch.get(self.start..self.end).unwrap_or_default()
    }

    /// Bytes of the frame under way that are not there yet.
    fn missing(&self) -> usize {
        self.head
            .filter(|head| head.opcode < CLOSE)
            .map_or(0, |head| {
                (self.from + head.len).saturating_sub(self.body.len())
            })
    }

    fn fill_body(&mut self) {
        let len = self.missing().min(self.end - self.start);
        let part = self.scratch.get(self.start..self.start + len);
        self.body.extend_from_slice(part.unwrap_or_default());
        self.start += len;
    }

    fn parse_head(&mut self) -> Result<Option<Head>, Broken> {
        let Some((head, size)) = head(self.buffered())? else {
            return Ok(None);
        };
        if head.mask.is_some() != self.masked {
            return Err(broken(if self.masked {
                "a frame without mask"
            } else {
                "a frame with a mask"
            }));
        }
        match head.opcode {
            TEXT => return Err(broken("a text message")),
            BINARY if self.fragmented => return Err(broken("a message within another")),
            CONTINUATION if !self.fragmented => return Err(broken("a part of no message")),
            CONTINUATION | BINARY => {
                if self.body.len().saturating_add(head.len) > self.most {
                    return Err(Broken {
                        code: close::SIZE,
                        text: "a message above the limit",
                    });
                }
                self.from = self.body.len();
                self.body.reserve(head.len);
            }
            CLOSE | PING | PONG if head.len > MAX_CONTROL || !head.is_final => {
                return Err(broken("a control frame that is too long or in parts"));
            }
            CLOSE | PING | PONG => {}
            _ => return Err(broken("a frame of an unknown kind")),
        }
        self.start += size;
        self.head = Some(head);
        Ok(Some(head))
    }

    /// A control frame, once all of it is there; inner `None` for a PONG.
    #[expect(
        clippy::option_option,
        reason = "not there yet, nothing to tell, something to tell"
    )]
    fn control(&mut self, head: Head) -> Result<Option<Option<Received>>, Broken> {
        let Some(payload) = self.buffered().get(..head.len) else {
            return Ok(None);
        };
        let mut payload = BytesMut::from(payload);
        self.start += head.len;
        self.head = None;
        if let Some(key) = head.mask {
            mask(&mut payload, key);
        }
        Ok(Some(match head.opcode {
            PING => Some(Received::Ping(payload.freeze())),
            PONG => None,
            _ => match payload.get(..2) {
                Some(&[high, low]) => {
                    let code = u16::from_be_bytes([high, low]);
                    if !close::may_be_sent(code) {
                        return Err(broken("a close frame with a code that nobody may send"));
                    }
                    Some(Received::Close(Some(code)))
                }
                _ if payload.is_empty() => Some(Received::Close(None)),
                _ => return Err(broken("a close frame with half a code")),
            },
        }))
    }
}

/// The header at the front of `bytes` and its size.
fn head(bytes: &[u8]) -> Result<Option<(Head, usize)>, Broken> {
    let &[first, second, ref rest @ ..] = bytes else {
        return Ok(None);
    };
    if first & 0x70 != 0 {
        return Err(broken("a frame with reserved bits"));
    }
    let (len, rest, least) = match second & 0x7f {
        126 => match rest.split_first_chunk::<2>() {
            Some((len, rest)) => (u64::from(u16::from_be_bytes(*len)), rest, 126),
            None => return Ok(None),
        },
        127 => match rest.split_first_chunk::<8>() {
            Some((len, rest)) => (u64::from_be_bytes(*len), rest, 65_536),
            None => return Ok(None),
        },
        len => (u64::from(len), rest, 0),
    };
    if len < least || len >> 63 == 1 {
        return Err(broken("a length that is not in its shortest form"));
    }
    let (mask, rest) = if second & 0x80 == 0 {
        (None, rest)
    } else {
        match rest.split_first_chunk::<4>() {
            Some((mask, rest)) => (Some(*mask), rest),
            None => return Ok(None),
        }
    };
    let head = Head {
        opcode: first & 0x0f,
        is_final: first & 0x80 != 0,
        mask,
        len: usize::try_from(len).unwrap_or(usize::MAX),
    };
    Ok(Some((head, bytes.len() - rest.len())))
}

/// Makes a message of what stands behind the first [`SPACE`] bytes of `out`, at most [`MAX_SEALED`]; the header goes
/// before it. Says where the bytes for the wire begin.
pub fn seal(out: &mut [u8], key: Option<[u8; 4]>) -> usize {
    seal_as(BINARY, out, key)
}

/// A control frame with its whole header; `payload` is at most 125 long.
fn control_frame(opcode: u8, payload: &[u8], key: Option<[u8; 4]>) -> BytesMut {
    let mut out = BytesMut::zeroed(SPACE);
    out.extend_from_slice(payload.get(..MAX_CONTROL).unwrap_or(payload));
    let start = seal_as(opcode, &mut out, key);
    out.split_off(start)
}

pub fn pong(payload: &[u8], key: Option<[u8; 4]>) -> BytesMut {
    control_frame(PONG, payload, key)
}

pub fn closing(code: u16, key: Option<[u8; 4]>) -> BytesMut {
    control_frame(CLOSE, &code.to_be_bytes(), key)
}

fn seal_as(opcode: u8, out: &mut [u8], key: Option<[u8; 4]>) -> usize {
    let Some((space, payload)) = out.split_at_mut_checked(SPACE) else {
        return 0;
    };
    let masked = if key.is_some() { 0x80 } else { 0 };
    let len = u16::try_from(payload.len()).unwrap_or(u16::MAX);
    let [high, low] = len.to_be_bytes();
    let short = len < 126;
    let mut header = [
        0x80 | opcode,
        masked | if short { low } else { 126 },
        high,
        low,
        0,
        0,
        0,
        0,
    ];
    let mut size = if short { 2 } else { 4 };
    if let Some(key) = key {
        mask(payload, key);
        if let Some(place) = header.get_mut(size..size + 4) {
            place.copy_from_slice(&key);
        }
        size += 4;
    }
    let start = SPACE - size;
    if let (Some(place), Some(header)) = (space.get_mut(start..), header.get(..size)) {
        place.copy_from_slice(header);
    }
    start
}

/// Applies or takes off a mask (RFC 6455 §5.3), eight bytes at a time.
fn mask(data: &mut [u8], key: [u8; 4]) {
    let [a, b, c, d] = key;
    let wide = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let (chunks, rest) = data.as_chunks_mut::<8>();
    for chunk in chunks {
        *chunk = (u64::from_ne_bytes(*chunk) ^ wide).to_ne_bytes();
    }
    for (byte, key) in rest.iter_mut().zip(key.iter().cycle()) {
        *byte ^= key;
    }
}

#[cfg(test)]
mod tests;

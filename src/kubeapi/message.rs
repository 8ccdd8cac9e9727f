//! HTTP/1 requests as bytes, checked more strictly than a lenient parser does (RFC 9112): what two servers
//! could frame differently is refused before anyone acts on it. Sans-IO; heads are held back until they are
//! whole, bodies pass as they come. What the server's own parser would refuse is refused here too, for it has no words.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::expect_used))]

use http::{StatusCode, Uri};

use super::status::{Hop, Refusal};

mod measure;

pub use measure::measured;

/// The longest head, and the most header fields of one: hyper's own bounds.
pub const MAX_HEAD: usize = 64 << 10;
const MAX_FIELDS: usize = 100;
const MANY: &str = "more than 100 header fields";
const LONG: &str = "more than 64 KiB";
/// The longest line of a chunk's size, and all trailers together.
const MAX_LINE: usize = 256;
const MAX_TRAILERS: usize = 16 << 10;

/// Why a request is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// It is none, or two servers could frame it differently.
    #[error("not a well-formed HTTP request: {0}")]
    Framing(&'static str),
    /// More than anybody needs.
    #[error("the request's head has {0}")]
    HeadSize(&'static str),
}

impl Violation {
    /// What the user is told. Nothing behind it on the connection can be trusted.
    pub fn refusal(self) -> Refusal {
        let (code, reason, next) = match self {
            Self::Framing(_) => (
                StatusCode::BAD_REQUEST,
                "Framing",
                "send one well-formed HTTP request",
            ),
            Self::HeadSize(_) => (
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "HeadSize",
                "send fewer or shorter headers, and a shorter URL",
            ),
        };
        Refusal::new(Hop::Hub, code, reason, self.to_string())
            .next(next)
            .close()
    }
}

/// What a head says of what follows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    pub body: Framing,
    /// A switch of protocol is asked for.
    pub upgrade: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    Length(u64),
    Chunked,
}

/// Checks a head, given to its blank line.
pub fn head(bytes: &[u8]) -> Result<Head, Violation> {
    let text = bytes
        .strip_suffix(b"\r\n\r\n")
        .ok_or(Violation::Framing("a head without an end"))?;
    let mut lines = Lines(Some(text));
    request_line(lines.next().unwrap_or_default())?;
    let (mut hosts, mut lengths, mut codings) = (0, 0, 0);
    let (mut length, mut upgrade) = (0, false);
    for (number, line) in lines.enumerate() {
        if number == MAX_FIELDS {
            return Err(Violation::HeadSize(MANY));
        }
        let (name, value) = field(line)?;
        match name.to_ascii_lowercase().as_slice() {
            b"host" => hosts += 1,
            b"content-length" => {
                lengths += 1;
                length = decimal(value)
                    .ok_or(Violation::Framing("a Content-Length that is no number"))?;
            }
            b"transfer-encoding" if value.eq_ignore_ascii_case(b"chunked") => codings += 1,
            b"transfer-encoding" => {
                return Err(Violation::Framing("a Transfer-Encoding other than chunked"));
            }
            b"upgrade" => upgrade = true,
            _ => {}
        }
    }
    if hosts > 1 || lengths > 1 || codings > 1 {
        return Err(Violation::Framing(
            "Host, Content-Length or Transfer-Encoding twice",
        ));
    }
    if lengths + codings > 1 {
        return Err(Violation::Framing(
            "both Content-Length and Transfer-Encoding",
        ));
    }
    if hosts == 0 && text_version(text) != b"HTTP/1.0" {
        return Err(Violation::Framing("no Host"));
    }
    if codings > 0 && text_version(text) == b"HTTP/1.0" {
        return Err(Violation::Framing("Transfer-Encoding with HTTP/1.0"));
    }
    let body = if codings > 0 {
        Framing::Chunked
    } else {
        Framing::Length(length)
    };
    Ok(Head { body, upgrade })
}

struct Lines<'a>(Option<&'a [u8]>);

impl<'a> Iterator for Lines<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let all = self.0?;
        let end = all.windows(2).position(|two| two == b"\r\n");
        let (line, rest) = match end.and_then(|end| all.split_at_checked(end)) {
            Some((line, rest)) => (line, rest.get(2..)),
            None => (all, None),
        };
        self.0 = rest;
        Some(line)
    }
}

fn text_version(text: &[u8]) -> &[u8] {
    let line = Lines(Some(text)).next().unwrap_or_default();
    line.rsplit(|byte| *byte == b' ').next().unwrap_or_default()
}

fn request_line(line: &[u8]) -> Result<(), Violation> {
    let mut words = line.split(|byte| *byte == b' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let good = method.is_some_and(is_token)
        && target.is_some_and(is_target)
        && matches!(version, Some(b"HTTP/1.1" | b"HTTP/1.0"))
        && words.next().is_none();
    good.then_some(())
        .ok_or(Violation::Framing("a bad request line"))
}

fn is_target(text: &[u8]) -> bool {
    let printable = text.iter().all(|byte| *byte > b' ' && *byte != 0x7f);
    let text = std::str::from_utf8(text).ok().filter(|_| printable);
    text.is_some_and(|text| text.parse::<Uri>().is_ok())
}

/// Name and value of one line.
fn field(line: &[u8]) -> Result<(&[u8], &[u8]), Violation> {
    if matches!(line.first(), Some(b' ' | b'\t')) {
        return Err(Violation::Framing("a folded line"));
    }
    let colon = line.iter().position(|byte| *byte == b':');
    let (name, value) = colon
        .and_then(|colon| line.split_at_checked(colon))
        .ok_or(Violation::Framing("a line without a colon"))?;
    if !is_token(name) {
        return Err(Violation::Framing("a bad field name"));
    }
    let value = value.get(1..).unwrap_or_default();
    let bad = |byte: &u8| (*byte < b' ' && *byte != b'\t') || *byte == 0x7f;
    if value.iter().any(bad) {
        return Err(Violation::Framing("a control character"));
    }
    // What is white space besides blank and tab was refused above.
    Ok((name, value.trim_ascii()))
}

/// RFC 9110 5.6.2
fn is_token(text: &[u8]) -> bool {
    let of = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !text.is_empty() && text.iter().all(of)
}

fn decimal(text: &[u8]) -> Option<u64> {
    let digits = !text.is_empty() && text.len() <= 18 && text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text)
        .ok()
        .filter(|_| digits)?
        .parse()
        .ok()
}

/// Follows one connection's requests.
#[derive(Debug)]
pub struct Scanner {
    state: State,
    /// Heads that have passed.
    heads: u64,
}

#[derive(Debug)]
enum State {
    /// A head that is not whole yet: nothing of it has passed.
    Head(Vec<u8>),
    /// Bytes of a body that are still to come.
    Body(u64),
    /// The line that gives a chunk's size.
    Size(Vec<u8>),
    /// A chunk and the line end behind it.
    Chunk(u64),
    ChunkEnd(Vec<u8>),
    /// Trailers: the line under way, and bytes of all.
    Trailers(Vec<u8>, usize),
    /// A switch was asked for: nothing passes before the answer.
    Asked,
    /// The protocol was switched.
    Open,
    /// Nothing passes any more.
    Broken {
        in_body: bool,
    },
}

impl Default for Scanner {
    fn default() -> Self {
        Self::at(State::Head(Vec::new()))
    }
}

impl Scanner {
    fn at(state: State) -> Self {
        Self { state, heads: 0 }
    }

    /// For a connection that carries another protocol.
    pub fn open() -> Self {
        Self::at(State::Open)
    }

    /// Takes in bytes and appends those that pass to `out`; gives how many it took. Fewer than all where the
    /// answer to a switch is waited for.
    pub fn push(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<usize, Violation> {
        let mut rest = input;
        while !rest.is_empty() && !self.is_asked() {
            match self.step(rest, out) {
                Ok(taken) => rest = rest.get(taken..).unwrap_or_default(),
                Err(violation) => {
                    let in_body = !matches!(self.state, State::Head(_));
                    self.state = State::Broken { in_body };
                    return Err(violation);
                }
            }
        }
        Ok(input.len() - rest.len())
    }

    /// Bytes that may pass unseen: of a body, or all that follow a switch.
    pub fn passes(&self) -> u64 {
        match self.state {
            State::Body(left) | State::Chunk(left) => left,
            State::Open => u64::MAX,
            _ => 0,
        }
    }

    /// So many of them passed.
    pub fn passed(&mut self, bytes: u64) {
        match &mut self.state {
            State::Body(left) | State::Chunk(left) => {
                *left = left.saturating_sub(bytes);
                self.turn();
            }
            _ => {}
        }
    }

    /// Heads that have passed.
    pub fn heads(&self) -> u64 {
        self.heads
    }

    /// Whether the last of them has a body with a violation in it.
    pub fn broke_in_body(&self) -> bool {
        matches!(self.state, State::Broken { in_body: true })
    }

    /// Whether the answer to a switch is waited for.
    pub fn is_asked(&self) -> bool {
        matches!(self.state, State::Asked)
    }

    /// The answer: whether the protocol was switched.
    pub fn answered(&mut self, switched: bool) {
        if self.is_asked() {
            self.state = if switched {
                State::Open
            } else {
                State::Head(Vec::new())
            };
        }
    }

    /// The next state where this one is over.
    fn turn(&mut self) {
        match self.state {
            State::Body(0) => self.state = State::Head(Vec::new()),
            State::Chunk(0) => self.state = State::ChunkEnd(Vec::new()),
            _ => {}
        }
    }

    fn step(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<usize, Violation> {
        let passes = usize::try_from(self.passes()).unwrap_or(usize::MAX);
        if passes > 0 {
            let taken = passes.min(input.len());
            out.extend(input.iter().take(taken));
            self.passed(taken as u64);
            return Ok(taken);
        }
        match &mut self.state {
            State::Head(held) => {
                let taken = to_line_end(held, input)?;
                let whole = held.ends_with(b"\r\n\r\n");
                if held.len() > MAX_HEAD {
                    return Err(Violation::HeadSize(LONG));
                }
                if whole {
                    let held = std::mem::take(held);
                    self.state = next(head(&held)?);
                    self.heads += 1;
                    out.extend(held);
                }
                Ok(taken)
            }
            State::Size(line) => {
                let taken = to_line_end(line, input)?;
                if line.len() > MAX_LINE {
                    return Err(Violation::Framing("an endless chunk size"));
                }
                if line.ends_with(b"\r\n") {
                    let line = std::mem::take(line);
                    self.state = match chunk_size(&line)? {
                        0 => State::Trailers(Vec::new(), 0),
                        size => State::Chunk(size),
                    };
                    out.extend(line);
                }
                Ok(taken)
            }
            State::ChunkEnd(line) => {
                let taken = to_line_end(line, input)?;
                if line.as_slice() == b"\r\n" {
                    out.extend(std::mem::take(line));
                    self.state = State::Size(Vec::new());
                } else if !b"\r\n".starts_with(line) {
                    return Err(Violation::Framing("a chunk that is longer than it says"));
                }
                Ok(taken)
            }
            State::Trailers(line, all) => {
                let taken = to_line_end(line, input)?;
                *all += taken;
                if *all > MAX_TRAILERS {
                    return Err(Violation::Framing("endless trailers"));
                }
                if line.ends_with(b"\r\n") {
                    let line = std::mem::take(line);
                    if trailer(&line)? {
                        self.state = State::Head(Vec::new());
                    }
                    out.extend(line);
                }
                Ok(taken)
            }
            // Whoever sent a bad request is not listened to any more.
            State::Broken { .. } => Ok(input.len()),
            State::Body(_) | State::Chunk(_) | State::Open => {
                self.turn();
                Ok(0)
            }
            State::Asked => Ok(0),
        }
    }
}

fn next(head: Head) -> State {
    match head.body {
        // A body before a switch would be read as the new protocol.
        Framing::Length(0) if head.upgrade => State::Asked,
        Framing::Length(0) => State::Head(Vec::new()),
        Framing::Length(length) => State::Body(length),
        Framing::Chunked => State::Size(Vec::new()),
    }
}

/// Appends up to the end of the line; only CR LF ends one, and neither stands elsewhere.
fn to_line_end(line: &mut Vec<u8>, input: &[u8]) -> Result<usize, Violation> {
    let end = input.iter().position(|byte| *byte == b'\n');
    let taken = end.map_or(input.len(), |end| end + 1);
    for byte in input.iter().take(taken) {
        match (line.last(), byte) {
            (Some(b'\r'), b'\n') => {}
            (Some(b'\r'), _) => return Err(Violation::Framing("a CR without LF")),
            (_, b'\n') => return Err(Violation::Framing("a LF without CR")),
            (_, 0) => return Err(Violation::Framing("a NUL")),
            _ => {}
        }
        line.push(*byte);
    }
    Ok(taken)
}

/// Checks a line of trailers; whether it is the empty one behind the last.
fn trailer(line: &[u8]) -> Result<bool, Violation> {
    match line.strip_suffix(b"\r\n").unwrap_or_default() {
        [] => Ok(true),
        line => field(line).map(|_| false),
    }
}

/// RFC 9112 7.1, extensions ignored.
fn chunk_size(line: &[u8]) -> Result<u64, Violation> {
    let bad = Violation::Framing("a bad chunk size");
    let line = line.strip_suffix(b"\r\n").unwrap_or_default();
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
    let good = (1..=15).contains(&digits.len()) && digits.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(digits).ok().filter(|_| good);
    u64::from_str_radix(text.ok_or(bad)?, 16).map_err(|_| bad)
}

#[cfg(test)]
mod tests;

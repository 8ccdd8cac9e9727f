//! The requests of one connection, one behind the other, as their bytes come.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::expect_used))]

use super::{Framing, Head, LONG, MAX_HEAD, Violation, field, head};

/// The longest line of a chunk's size, and all trailers together.
const MAX_LINE: usize = 256;
const MAX_TRAILERS: usize = 16 << 10;

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

    /// Whether a part of the next one is there, and not the whole.
    pub fn has_begun(&self) -> bool {
        matches!(&self.state, State::Head(held) if !held.is_empty())
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

//! Why the hub ended an answer or a session in its middle, said in the protocol that it speaks. Pure. Nothing is said unless what was
//! said before ended where a word of the hub may stand: in the middle of an event or a frame it would be read as a part of that.
//!
//! A watch in JSON has it as an event `ERROR` with a `Status` (`k8s.io/apimachinery/pkg/watch`), and then its regular end: a reset could
//! overtake the event. `kubectl` prints such a `Status`, and informers list anew. A session by WebSocket has it as a `Status` on the
//! channel of those. `kubectl` prints its message where a regular CLOSE follows (`remotecommand/websocket.go` and `v4.go` of client-go:
//! behind any other one the channel counts as broken, and is not read).
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::expect_used))]

use std::io::BufRead as _;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap};

use super::exit::STATUS_CHANNEL;
use crate::kubeapi::path::RequestInfo;

/// The most bytes of a control frame, and of the words in a CLOSE (RFC 6455, 5.5).
const CONTROL: usize = 125;
const WORDS: usize = CONTROL - 2;
/// RFC 6455, 7.4.1: it has done what it was for.
const NORMAL: u16 = 1000;
const LAST_BINARY: u8 = 0x82;
const LAST_CLOSE: u8 = 0x88;

/// Where the events of a watch in JSON begin and end: an API server says each on a line of its own, and no text of JSON has a line's end
/// in it. So only where lines begin and end is looked at: a watch may have thousands of events per second, which nobody parses here.
#[derive(Debug, Default)]
pub struct Events {
    /// The last byte that was said; None = nothing was yet.
    last: Option<u8>,
    /// A line came that is no event, or a part of one: nothing is known any more.
    lost: bool,
}

impl Events {
    /// `answer` is the head of a 200. None = it is no watch, or not told as plain JSON.
    pub fn of(info: &RequestInfo, answer: &HeaderMap) -> Option<Self> {
        // Behind a `/proxy/` path anybody may answer, in any form.
        if info.verb != "watch" || !info.subresource.is_empty() {
            return None;
        }
        let kind = answer.get(CONTENT_TYPE)?.to_str().ok()?;
        let kind = kind.split(';').next().unwrap_or_default().trim();
        let plain = !answer.contains_key(CONTENT_ENCODING) && !answer.contains_key(CONTENT_LENGTH);
        (kind == "application/json" && plain).then(Self::default)
    }

    /// What was said next, in whatever pieces it comes.
    pub fn see(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() && !self.lost {
            let all = rest;
            // Of bytes in memory this cannot fail.
            let Ok(len) = rest.skip_until(b'\n') else {
                return;
            };
            self.piece(all.get(..len).unwrap_or_default());
        }
    }

    /// What ends with a line, or is a part of one.
    fn piece(&mut self, piece: &[u8]) {
        let (line, ends) = match piece {
            [line @ .., b'\n'] => (line, true),
            part => (part, false),
        };
        self.lost |= self.at_line() && line.first() != Some(&b'{');
        self.last = line.last().copied().or(self.last);
        if ends {
            self.lost |= self.last != Some(b'}');
            self.last = Some(b'\n');
        }
    }

    /// Whether a line begins.
    fn at_line(&self) -> bool {
        self.last.is_none_or(|last| last == b'\n')
    }

    /// Whether an event may come next.
    pub fn is_between(&self) -> bool {
        self.at_line() && !self.lost
    }
}

/// The last event of a watch. `status` is a `Status` in JSON.
pub fn event(status: &str) -> Bytes {
    format!("{{\"type\":\"ERROR\",\"object\":{status}}}\n").into()
}

/// The last frames of a session by WebSocket, as its server says them: the `Status`, and a CLOSE with the reason.
pub fn frames(status: &str, reason: &str) -> Vec<u8> {
    let status = [&[STATUS_CHANNEL][..], status.as_bytes()].concat();
    let words = crate::hub::cut(reason, WORDS).as_bytes();
    let close = [&NORMAL.to_be_bytes()[..], words].concat();
    [frame(LAST_BINARY, &status), frame(LAST_CLOSE, &close)].concat()
}

/// RFC 6455, 5.2, without a mask.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let length = payload.len();
    let size = if let (true, Ok(short)) = (length <= CONTROL, u8::try_from(length)) {
        vec![short]
    } else if let Ok(long) = u16::try_from(length) {
        [&[126][..], &long.to_be_bytes()].concat()
    } else {
        let longer = u64::try_from(length).unwrap_or(u64::MAX);
        [&[127][..], &longer.to_be_bytes()].concat()
    };
    [&[first][..], &size, payload].concat()
}

#[cfg(test)]
mod tests;

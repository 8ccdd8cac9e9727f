//! HTTP/2 frames as bytes (RFC 9113), counted: those by which a client keeps a server at work without asking it for anything.
//! Sans-IO. What is in a frame is the server's to judge.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::expect_used))]

use std::time::{Duration, Instant};

/// What a client sends before its first frame ([RFC 9113] 3.4).
///
/// [RFC 9113]: https://www.rfc-editor.org/rfc/rfc9113
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// So many frames that ask for nothing may come in this time. People's programs send some in a minute, and proxies that many
/// share a `RST_STREAM` for each request that is given up.
const MOST: u32 = 10_000;
const SPAN: Duration = Duration::from_secs(10);

const HEADER: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

/// Follows what one client sends.
#[derive(Debug)]
pub struct Frames {
    /// Of the preface, or of a frame's payload, still to come.
    rest: usize,
    /// The next frame's header, so far.
    header: [u8; HEADER],
    read: usize,
    counted: u32,
    since: Instant,
}

impl Frames {
    pub fn new(now: Instant) -> Self {
        Self {
            rest: PREFACE.len(),
            header: [0; HEADER],
            read: 0,
            counted: 0,
            since: now,
        }
    }

    /// Takes in what came. The error is how much of it ends with a whole frame, after which nothing more is to be heard of
    /// this client.
    pub fn push(&mut self, now: Instant, bytes: &[u8]) -> Result<(), usize> {
        let mut left = bytes;
        while !left.is_empty() {
            let taken = if self.rest > 0 {
                let taken = self.rest.min(left.len());
                self.rest -= taken;
                taken
            } else {
                self.head(now, left)
            };
            left = left.get(taken..).unwrap_or_default();
            if self.counted > MOST && self.rest == 0 && self.read == 0 {
                return Err(bytes.len() - left.len());
            }
        }
        Ok(())
    }

    /// Takes in of the next frame's header what is there.
    fn head(&mut self, now: Instant, bytes: &[u8]) -> usize {
        let room = self.header.get_mut(self.read..).unwrap_or_default();
        let taken = room.len().min(bytes.len());
        for (place, byte) in room.iter_mut().zip(bytes) {
            *place = *byte;
        }
        self.read += taken;
        if self.read == HEADER {
            self.read = 0;
            let [high, middle, low, kind, ..] = self.header;
            let len = u32::from_be_bytes([0, high, middle, low]);
            self.rest = usize::try_from(len).unwrap_or(usize::MAX);
            self.count(now, kind, len);
        }
        taken
    }

    fn count(&mut self, now: Instant, kind: u8, len: u32) {
        let asks = match kind {
            DATA => len > 0,
            // A download has any number of the second.
            HEADERS | WINDOW_UPDATE => true,
            _ => false,
        };
        if asks {
            return;
        }
        if now.saturating_duration_since(self.since) >= SPAN {
            (self.counted, self.since) = (0, now);
        }
        self.counted += 1;
    }
}

/// What a server is given in the place of a flood: a head in more parts than any has. It answers `GOAWAY(ENHANCE_YOUR_CALM)`.
pub fn endless_head() -> Vec<u8> {
    const PARTS: usize = 256;
    let empty = |kind| [0, 0, 0, kind, 0, 0x7f, 0xff, 0xff, 0xff];
    let mut all = empty(HEADERS).to_vec();
    all.extend(empty(CONTINUATION).repeat(PARTS));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, len: u8) -> Vec<u8> {
        let mut frame = vec![0, 0, len, kind, 0, 0, 0, 0, 1];
        frame.resize(HEADER + usize::from(len), 0);
        frame
    }

    fn connection(frames: &[u8]) -> Vec<u8> {
        [PREFACE, frames].concat()
    }

    /// L40
    #[test]
    fn a_flood_ends_behind_a_whole_frame_however_it_is_cut() {
        let (ping, most) = (frame(6, 8), MOST as usize);
        let flood = connection(&ping.repeat(most + 5));
        let end = PREFACE.len() + ping.len() * (most + 1);
        let now = Instant::now();
        for piece in [1, 5, 17, 24, 4096, flood.len()] {
            let mut frames = Frames::new(now);
            let mut passed = 0;
            let cut = flood.chunks(piece).find_map(|part| {
                let good = frames.push(now, part).err();
                passed += good.unwrap_or(part.len());
                good
            });
            assert_eq!((cut.is_some(), passed), (true, end), "{piece}");
        }
    }

    #[test]
    fn what_asks_for_something_is_not_counted() {
        let (most, now) = (MOST as usize, Instant::now());
        for asks in [frame(DATA, 1), frame(HEADERS, 30), frame(WINDOW_UPDATE, 4)] {
            let mut frames = Frames::new(now);
            let all = connection(&asks.repeat(most + 1));
            assert_eq!(frames.push(now, &all), Ok(()), "{asks:?}");
        }
        // Beside them the others count: empty DATA, RST_STREAM, SETTINGS, PRIORITY, and what nobody knows.
        for idle in [
            frame(DATA, 0),
            frame(3, 4),
            frame(4, 0),
            frame(2, 5),
            frame(0xfa, 0),
        ] {
            let mut frames = Frames::new(now);
            let both = [idle, frame(HEADERS, 3)].concat().repeat(most + 1);
            assert!(frames.push(now, &connection(&both)).is_err());
        }
    }

    #[test]
    fn what_comes_over_time_is_no_flood() {
        let (start, pings) = (Instant::now(), frame(6, 8).repeat(MOST as usize));
        let mut frames = Frames::new(start);
        assert_eq!(frames.push(start, &connection(&pings)), Ok(()));
        for n in 1..5 {
            assert_eq!(frames.push(start + SPAN * n, &pings), Ok(()), "{n}");
        }
        assert_eq!(frames.push(start + SPAN * 4, &frame(6, 8)), Err(17));
    }
}

//! Signs of life for a user whom nobody reads.
//!
//! While the server takes nothing, its user is not read, and the end of his connection lies unseen behind what he sent: in our
//! kernel, or in his own, which cannot send it through a window that is shut. So no look at our socket shows that he was killed.
//! What is sent to him does: a kernel whose process is gone answers with RST (RFC 1122, 4.2.2.13), and the next write fails. One
//! who has ended only his side still hears, and stays. The same goes for a server that was told of his end and does not end.
//!
//! A beat says nothing and asks for no answer, which he could not give: of WebSocket it is a PONG that nobody asked for (RFC 6455,
//! 5.5.3), of SPDY/3.1 a SETTINGS without settings (2.6.4). It goes between two frames of the server alone. `kubectl` takes a PONG
//! for a sign that the server lives, and waits on: its own pings do not get through then.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use super::Dialect;

/// How long a user waits before the first beat, and between two. What comes of one shows at the next.
const EVERY: Duration = Duration::from_secs(3);

const PONG: [u8; 2] = [0x8a, 0];
/// Control frame of version 3, type 4, no flags, 4 bytes: the number of settings.
const SETTINGS: [u8; 12] = [0x80, 3, 0, 4, 0, 0, 0, 4, 0, 0, 0, 0];

/// A server's end that says a beat between its own frames while it keeps the user waiting.
pub struct Beating<S> {
    server: S,
    /// Empty where the dialect has none.
    beat: &'static [u8],
    frames: Frames,
    /// Since when the server takes nothing, or does not end although the user has.
    waits: Option<Instant>,
    /// When that is looked at again.
    due: Pin<Box<Sleep>>,
}

impl<S> Beating<S> {
    pub fn new(server: S, dialect: Dialect) -> Self {
        let beat: &[u8] = match dialect {
            Dialect::WebSocket => &PONG,
            Dialect::Spdy => &SETTINGS,
            Dialect::Other => &[],
        };
        Self {
            server,
            beat,
            frames: Frames::new(dialect),
            waits: None,
            due: Box::pin(sleep(EVERY)),
        }
    }

    /// Ready = a beat is to go now. A server that goes on in between leaves the clock as it is: that is cheaper than to set it each
    /// time.
    fn poll_due(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let may = !self.beat.is_empty() && self.frames.is_between();
        let Some(since) = self.waits.filter(|_| may) else {
            return Poll::Pending;
        };
        loop {
            ready!(self.due.as_mut().poll(cx));
            let (now, due) = (Instant::now(), since + EVERY);
            if due <= now {
                self.due.as_mut().reset(now + EVERY);
                return Poll::Ready(());
            }
            self.due.as_mut().reset(due);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Beating<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buf.filled().len();
        let read = Pin::new(&mut this.server).poll_read(cx, buf);
        if read.is_ready() {
            this.frames
                .see(buf.filled().get(before..).unwrap_or_default());
            return read;
        }
        if buf.remaining() < this.beat.len() {
            return Poll::Pending;
        }
        ready!(this.poll_due(cx));
        buf.put_slice(this.beat);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Beating<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.server).poll_write(cx, buf);
        self.waits = match wrote {
            Poll::Pending => Some(self.waits.unwrap_or_else(Instant::now)),
            Poll::Ready(_) => None,
        };
        wrote
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.server).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.waits.get_or_insert_with(Instant::now);
        Pin::new(&mut self.server).poll_shutdown(cx)
    }
}

/// Bytes of a frame's head: of SPDY, and the most of a WebSocket's without its key.
const SPDY_HEAD: usize = 8;
const WEBSOCKET_HEAD: usize = 10;
/// Of a frame that is masked, which no server's is.
const KEY: u64 = 4;

/// Where the frames of a server begin and end. At the first that is none of its dialect it gives up for good, and at a CLOSE, behind
/// which nothing comes (RFC 6455, 5.5.1).
#[derive(Debug)]
struct Frames {
    dialect: Dialect,
    head: [u8; WEBSOCKET_HEAD],
    have: usize,
    /// Bytes of the frame that are to come.
    left: u64,
    lost: bool,
}

/// What the bytes of a head tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Head {
    /// There is more of it.
    Part,
    /// So many bytes follow.
    Whole(u64),
    /// No beat has a place behind it.
    Strange,
}

impl Frames {
    fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            head: [0; WEBSOCKET_HEAD],
            have: 0,
            left: 0,
            lost: dialect == Dialect::Other,
        }
    }

    fn is_between(&self) -> bool {
        !self.lost && self.have == 0 && self.left == 0
    }

    /// What the server said next, in whatever pieces it comes.
    fn see(&mut self, mut bytes: &[u8]) {
        while !self.lost
            && let Some((first, rest)) = bytes.split_first()
        {
            if self.left > 0 {
                let left = usize::try_from(self.left).unwrap_or(usize::MAX);
                let (some, rest) = bytes.split_at(left.min(bytes.len()));
                self.left -= some.len() as u64;
                bytes = rest;
                continue;
            }
            if let Some(place) = self.head.get_mut(self.have) {
                *place = *first;
            }
            self.have += 1;
            bytes = rest;
            match self.head() {
                Head::Part => {}
                Head::Whole(left) => (self.have, self.left) = (0, left),
                Head::Strange => self.lost = true,
            }
        }
    }

    fn head(&self) -> Head {
        let head = self.head.get(..self.have).unwrap_or_default();
        match self.dialect {
            Dialect::Spdy => spdy(head),
            Dialect::WebSocket => websocket(head),
            Dialect::Other => Head::Strange,
        }
    }
}

fn spdy(head: &[u8]) -> Head {
    match head {
        [first, version, ..] if first & 0x80 != 0 && (*first, *version) != (0x80, 3) => {
            Head::Strange
        }
        [_, _, _, _, _, high, middle, low] => {
            Head::Whole(u32::from_be_bytes([0, *high, *middle, *low]).into())
        }
        _ if head.len() < SPDY_HEAD => Head::Part,
        _ => Head::Strange,
    }
}

fn websocket(head: &[u8]) -> Head {
    let [first, size, long @ ..] = head else {
        return Head::Part;
    };
    if !matches!(first & 0x0f, 0..=2 | 9..=10) {
        return Head::Strange;
    }
    let length = match (size & 0x7f, long) {
        (126, [high, low]) => u64::from(u16::from_be_bytes([*high, *low])),
        (126, _) => return Head::Part,
        (127, long) => match <[u8; 8]>::try_from(long) {
            Ok(long) => u64::from_be_bytes(long),
            Err(_) => return Head::Part,
        },
        (short, _) => u64::from(short),
    };
    let key = if size & 0x80 == 0 { 0 } else { KEY };
    Head::Whole(length.saturating_add(key))
}

#[cfg(test)]
mod tests;

//! The API server's end of a switched protocol, read to the last byte before anything more is sent there.
//!
//! A server that closes a socket with unread input answers with RST (RFC 1122, 4.2.2.13), and what lay unsent in its kernel is
//! lost. So a ping of the client that meets the close takes the tail of a `kubectl cp` with it, megabytes where the user is slower
//! than the cluster. What is read before the ping goes out cannot be lost any more. But the kubelet, behind the API server, closes
//! just so, and what lies between those two cannot be read from here; so a ping, which nobody is in a hurry for, waits until the server
//! has been silent for a second. To a WebSocket's command the API server sends pings of its own (every 5 s, `StreamTranslatorHandler` of
//! Kubernetes), which nothing keeps back: against those helps alone that what the command says does not lie there for long.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep};

use super::Dialect;

/// What is read ahead is allocated in pieces of so many bytes.
const PIECE: usize = 64 << 10;
/// The most pieces of one connection: 8 MiB, about what two kernels hold of it by default (`tcp_wmem`, `tcp_rmem`).
const MAX_PIECES: usize = 128;
/// A server from which nothing has come for so long after it was read empty has nothing more in its kernel. On a busy machine
/// bytes need some milliseconds even over loopback.
const QUIET: Duration = Duration::from_millis(20);
/// The longest that what the user sends waits for that; then it goes, come what may. On a busy machine what two kernels hold
/// takes more than a tenth of a second to read.
const HOLD: Duration = Duration::from_millis(250);
/// Between two such waits: who sends much at a time is not to be slowed down. Less than the 5 s between two pings of `kubectl`.
const PAUSE: Duration = Duration::from_secs(4);
/// A server that has said nothing for so long is not in the middle of something: a ping may go.
const SILENCE: Duration = Duration::from_secs(1);
/// The most bytes of pings that wait; further ones go as all else does, and take these along.
const MAX_KEPT: usize = 1 << 10;

/// Memory for what is read ahead of all users of a process; clones mean the same.
#[derive(Debug, Clone)]
pub struct Ahead(Arc<Semaphore>);

impl Ahead {
    /// `limit` in bytes. Where it is used up nothing is read ahead.
    pub fn new(limit: usize) -> Self {
        Self(Arc::new(Semaphore::new(limit / PIECE)))
    }
}

/// A server's end that is read empty before it is written to.
pub struct Eager<S> {
    server: S,
    pool: Ahead,
    pieces: VecDeque<Piece>,
    /// What came behind the pieces: the server's end, well or not.
    end: Option<io::Result<()>>,
    held: Option<Held>,
    /// What the user sends does not wait again before.
    next: Instant,
    pings: Pings,
}

/// Pings of the user that wait for the server's silence.
struct Pings {
    dialect: Dialect,
    kept: Vec<u8>,
    /// When the first of them came.
    since: Instant,
    /// When the server last said something.
    heard: Instant,
    due: Pin<Box<Sleep>>,
    unflushed: bool,
}

struct Piece {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
    _place: OwnedSemaphorePermit,
}

/// What the user sent waits until the server is quiet.
struct Held {
    until: Instant,
    quiet: Pin<Box<Sleep>>,
    /// As much is read ahead as may be, so nothing tells whether the server is quiet.
    full: bool,
}

/// How far a server is read.
enum Read {
    /// Empty, for now.
    Empty,
    /// There may be more: of this connection as much is read ahead as may be.
    Full,
    /// To its end, or there is no memory for more.
    Over,
}

impl<S: AsyncRead + Unpin> Eager<S> {
    pub fn new(server: S, pool: Ahead, dialect: Dialect) -> Self {
        let now = Instant::now();
        Self {
            server,
            pool,
            pieces: VecDeque::new(),
            end: None,
            held: None,
            next: now,
            pings: Pings {
                dialect,
                kept: Vec::new(),
                since: now,
                heard: now,
                due: Box::pin(sleep(SILENCE)),
                unflushed: false,
            },
        }
    }

    /// A piece with room, or why there is none. A further one leaves memory for `spared` pieces of others.
    fn room(&mut self, spared: usize) -> Result<&mut Piece, Read> {
        if self.pieces.back().is_none_or(|last| last.end == PIECE) {
            if self.pieces.len() == MAX_PIECES {
                return Err(Read::Full);
            }
            if self.pool.0.available_permits() <= spared {
                return Err(Read::Over);
            }
            let place = self.pool.0.clone().try_acquire_owned();
            let place = place.map_err(|_| Read::Over)?;
            self.pieces.push_back(Piece {
                bytes: vec![0; PIECE].into_boxed_slice(),
                start: 0,
                end: 0,
                _place: place,
            });
        }
        self.pieces.back_mut().ok_or(Read::Over)
    }

    /// Reads what there is; the bytes read are counted in `got`.
    fn read_empty(&mut self, cx: &mut Context<'_>, spared: usize, got: &mut usize) -> Read {
        while self.end.is_none() {
            let piece = match self.room(spared) {
                Ok(piece) => piece,
                Err(why) => return why,
            };
            // Out of the way while the server is borrowed.
            let mut bytes = std::mem::take(&mut piece.bytes);
            let filled = piece.end;
            let mut room = ReadBuf::new(&mut bytes);
            room.set_filled(filled);
            let read = Pin::new(&mut self.server).poll_read(cx, &mut room);
            let end = room.filled().len();
            if let Some(piece) = self.pieces.back_mut() {
                (piece.bytes, piece.end) = (bytes, end);
            }
            *got += end - filled;
            self.end = match read {
                Poll::Ready(Ok(())) if end > filled => None,
                Poll::Ready(over) => Some(over),
                Poll::Pending => {
                    if end == 0 {
                        self.pieces.pop_back();
                    }
                    return Read::Empty;
                }
            };
        }
        Read::Over
    }

    /// Ready = what the user sent may go.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut got = 0;
        let full = match self.read_empty(cx, 0, &mut got) {
            Read::Over => {
                self.held = None;
                return Poll::Ready(());
            }
            Read::Full => true,
            Read::Empty => false,
        };
        let now = Instant::now();
        if got > 0 {
            self.pings.heard = now;
        }
        if self.held.is_none() && (now < self.next || got == 0 && !full) {
            return Poll::Ready(());
        }
        let held = self.held.get_or_insert_with(|| Held {
            until: now + HOLD,
            quiet: Box::pin(sleep(QUIET)),
            full: false,
        });
        if full {
            held.quiet.as_mut().reset(held.until);
        } else if got > 0 || held.full {
            held.quiet.as_mut().reset((now + QUIET).min(held.until));
        }
        held.full = full;
        ready!(held.quiet.as_mut().poll(cx));
        self.held = None;
        self.next = Instant::now() + PAUSE;
        Poll::Ready(())
    }
}

impl Pings {
    fn is_empty(&self) -> bool {
        self.kept.is_empty() && !self.unflushed
    }

    /// Takes what the user sends if it is pings alone, and there is room.
    fn keep(&mut self, bytes: &[u8]) -> bool {
        let room = MAX_KEPT - self.kept.len();
        if bytes.len() > room || !self.dialect.is_pings(bytes) {
            return false;
        }
        if self.kept.is_empty() {
            self.since = Instant::now();
        }
        self.kept.extend_from_slice(bytes);
        true
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Eager<S> {
    /// Reads what the server has to say while the user takes nothing. Of the memory for all users one connection's is left, for
    /// those who send something.
    pub(super) fn read_ahead(&mut self, cx: &mut Context<'_>) {
        let mut got = 0;
        let read = self.read_empty(cx, MAX_PIECES, &mut got);
        if got > 0 {
            self.pings.heard = Instant::now();
        }
        if !self.pings.is_empty() {
            self.poll_pings(cx, matches!(read, Read::Empty));
        }
    }

    /// Lets go the pings whose time has come. `empty` = the server has said all that it has to say for now.
    fn poll_pings(&mut self, cx: &mut Context<'_>, empty: bool) {
        let last = self.pings.since + self.pings.dialect.patience();
        let due = if empty {
            last.min(self.pings.heard + SILENCE)
        } else {
            last
        };
        if Instant::now() < due {
            self.pings.due.as_mut().reset(due);
            if self.pings.due.as_mut().poll(cx).is_pending() {
                return;
            }
        }
        if !empty && self.poll_turn(cx).is_pending() {
            return;
        }
        if let Poll::Ready(Err(_)) = self.poll_kept(cx) {
            // A server that takes nothing any more needs no ping; what it said before is read on.
            self.pings.kept = Vec::new();
            self.pings.unflushed = false;
        }
    }

    fn poll_kept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.pings.kept.is_empty() {
            let wrote = Pin::new(&mut self.server).poll_write(cx, &self.pings.kept);
            match ready!(wrote)? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                size => self.pings.kept.drain(..size),
            };
            self.pings.unflushed = true;
        }
        if self.pings.unflushed {
            ready!(Pin::new(&mut self.server).poll_flush(cx))?;
            self.pings.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Eager<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while let Some(piece) = self.pieces.front_mut() {
            let size = buf.remaining().min(piece.end - piece.start);
            buf.put_slice(&piece.bytes[piece.start..piece.start + size]);
            piece.start += size;
            if piece.start == piece.end {
                self.pieces.pop_front();
            }
            if size > 0 {
                return Poll::Ready(Ok(()));
            }
        }
        match self.end.take() {
            Some(Err(error)) => {
                self.end = Some(Ok(()));
                Poll::Ready(Err(error))
            }
            Some(Ok(())) => {
                self.end = Some(Ok(()));
                Poll::Ready(Ok(()))
            }
            None => {
                let before = buf.filled().len();
                let read = Pin::new(&mut self.server).poll_read(cx, buf);
                if buf.filled().len() > before {
                    self.pings.heard = Instant::now();
                }
                if !self.pings.is_empty() {
                    self.poll_pings(cx, read.is_pending());
                }
                read
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Eager<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.pings.keep(buf) {
            return Poll::Ready(Ok(buf.len()));
        }
        ready!(self.poll_turn(cx));
        ready!(self.poll_kept(cx))?;
        Pin::new(&mut self.server).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.server).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.server).poll_shutdown(cx)
    }
}

//! The connection of a line: its options, its messages, and when something last arrived.
//!
//! One owner reads and writes, by polling: there is no lock between the directions and no task between the session
//! and the connection. Buffers live while they are in use; an idle line keeps a kilobyte.

use std::collections::VecDeque;
use std::fs;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::mem;
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::{BufMut as _, Bytes, BytesMut};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_util::io::poll_read_buf;

use super::super::handshake::MAX_HANDSHAKE;
use super::super::session::{Role, TOGETHER};
use super::super::websocket::{self, Broken, MAX_SEALED, Reader, Received};
use crate::clock;
use crate::wire::frame::MAX_MESSAGE;

/// Unsent bytes that the kernel keeps at most: what lies there cannot be overtaken. One message, so that a fast path
/// takes it in one call: with 16 KiB the sender of one bulk stream on loopback spends a tenth more processor time on a
/// byte, and an echo beside bulk on 200 Mbit/s is no faster.
const NOTSENT_LOWAT: u32 = 64 << 10;
const PATIENCE: Duration = Duration::from_secs(30);
/// A message buffer up to this size is kept for the next one.
const KEPT: usize = 2 << 10;
/// What TLS may take of a line's messages in one go; more would only wait in its memory.
pub const TLS_BUFFER: usize = TOGETHER * MAX_SEALED;
/// Masks that are made at a time.
const MASKS: usize = 64;

/// Whether anybody may use BBR, which keeps its rate where single packets get lost. Where the system does not say so it is not
/// asked: with the rights of root that would load a module into its kernel.
static BBR: LazyLock<bool> = LazyLock::new(|| {
    fs::read_to_string(ALLOWED)
        .is_ok_and(|allowed| allowed.split_whitespace().any(|name| name == "bbr"))
});
const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";

/// Sets what a line needs of its TCP connection. A system that lacks an option keeps its own way.
pub fn tune(socket: &TcpStream) {
    tune_for_anybody(socket);
    let socket = SockRef::from(socket);
    let patience = socket.set_tcp_user_timeout(Some(PATIENCE));
    told("TCP_USER_TIMEOUT", patience);
    if *BBR {
        told("TCP_CONGESTION", socket.set_tcp_congestion(b"bbr"));
    }
}

/// The same for a connection that may be a person's: kubectl behind a pager takes nothing while it is not read, for as
/// long as people are away, and `TCP_USER_TIMEOUT` counts a window that stays shut like a peer that is gone. Who is gone
/// answers no keepalive; a line has its own liveness.
pub fn tune_for_anybody(socket: &TcpStream) {
    let socket = SockRef::from(socket);
    let keepalive = TcpKeepalive::new()
        .with_time(PATIENCE)
        .with_interval(Duration::from_secs(10));
    told("TCP_NODELAY", socket.set_tcp_nodelay(true));
    told(
        "TCP_NOTSENT_LOWAT",
        socket.set_tcp_notsent_lowat(NOTSENT_LOWAT),
    );
    told("SO_KEEPALIVE", socket.set_tcp_keepalive(&keepalive));
}

fn told(option: &str, set: io::Result<()>) {
    if let Err(error) = set {
        tracing::debug!(option, %error, "socket option is not set");
    }
}

/// Why a connection is of no use any more.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Framing(#[from] Broken),
    #[error("the peer closed the connection")]
    Closed,
}

/// A WebSocket after its upgrade.
#[derive(Debug)]
pub struct Socket<S> {
    io: S,
    reader: Reader,
    /// Of the agent: a client masks what it sends.
    masks: Option<Masks>,
    /// Messages for the wire, each with how much of it is sent.
    out: VecDeque<(BytesMut, usize)>,
    /// Something was put that the connection has not been seen to let go of.
    unflushed: bool,
    /// A small buffer for the next message.
    spare: BytesMut,
    /// A PING of the framing that is not answered yet; a later one replaces it.
    ping: Option<Bytes>,
    heard: Instant,
    /// What came with the answer to the upgrade.
    early: Bytes,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Socket<S> {
    /// `early` came behind the upgrade and was read with it. The peer may say as much as a handshake needs.
    pub fn new(io: S, role: Role, early: Bytes) -> Self {
        let mut reader = Reader::new(role);
        reader.limit(MAX_HANDSHAKE);
        Self {
            io,
            reader,
            masks: (role == Role::Agent).then(Masks::default),
            out: VecDeque::new(),
            unflushed: false,
            spare: BytesMut::new(),
            ping: None,
            heard: super::now(),
            early,
        }
    }

    /// The peer has proven who it is: messages may be as long as a line's.
    pub(super) fn proven(&mut self) {
        self.reader.limit(MAX_MESSAGE);
    }

    /// When bytes last arrived, be it part of a message.
    pub(super) fn heard(&self) -> Instant {
        self.heard
    }

    /// True while a message is not with the system.
    pub(super) fn is_sending(&self) -> bool {
        self.unflushed
    }

    /// True where [`Socket::poll_send`] has something to do.
    pub(super) fn has_output(&self) -> bool {
        self.is_sending() || self.ping.is_some()
    }

    /// Puts a message that `fill` writes behind those on their way and gives its length; 0 where `fill` wrote nothing.
    pub(super) fn put(&mut self, fill: impl FnOnce(&mut BytesMut)) -> usize {
        let mut out = mem::take(&mut self.spare);
        out.resize(websocket::SPACE, 0);
        fill(&mut out);
        let len = out.len() - websocket::SPACE;
        if len == 0 {
            self.keep(out);
        } else {
            let start = websocket::seal(&mut out, self.masks.as_mut().map(Masks::next));
            self.push(out, start);
        }
        len
    }

    /// Hands what was put to the system, to the last byte.
    pub(super) fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.unflushed
            && let Some(payload) = self.ping.take()
        {
            let pong = websocket::pong(&payload, self.masks.as_mut().map(Masks::next));
            self.push(pong, 0);
        }
        while !self.out.is_empty() {
            let mut parts = [IoSlice::new(&[]); TOGETHER];
            for (part, (message, sent)) in parts.iter_mut().zip(&self.out) {
                *part = IoSlice::new(message.get(*sent..).unwrap_or_default());
            }
            match ready!(Pin::new(&mut self.io).poll_write_vectored(cx, &parts))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                len => self.sent(len),
            }
        }
        // TLS may have taken all and given on only a part.
        ready!(Pin::new(&mut self.io).poll_flush(cx))?;
        self.unflushed = false;
        Poll::Ready(Ok(()))
    }

    fn push(&mut self, message: BytesMut, from: usize) {
        self.out.push_back((message, from));
        self.unflushed = true;
    }

    /// So many bytes of what was put are with the system.
    fn sent(&mut self, mut len: usize) {
        while let Some((message, sent)) = self.out.front_mut() {
            let step = len.min(message.len() - *sent);
            *sent += step;
            len -= step;
            if *sent < message.len() {
                return;
            }
            if let Some((message, _)) = self.out.pop_front() {
                self.keep(message);
            }
        }
    }

    fn keep(&mut self, mut message: BytesMut) {
        if message.capacity() <= KEPT {
            message.clear();
            self.spare = message;
        }
    }

    /// The next message. PINGs of the framing are kept for [`Socket::poll_send`].
    pub(super) fn poll_message(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Bytes, SocketError>> {
        loop {
            match self.reader.poll()? {
                Some(Received::Message(message)) => return Poll::Ready(Ok(message)),
                Some(Received::Ping(payload)) => {
                    self.ping = Some(payload);
                    // The owner of the socket looks at its output before it waits again.
                    cx.waker().wake_by_ref();
                }
                Some(Received::Close(_)) => return Poll::Ready(Err(SocketError::Closed)),
                None => {}
            }
            if ready!(self.poll_fill(cx))? == 0 {
                return Poll::Ready(Err(SocketError::Closed));
            }
        }
    }

    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let io = Pin::new(&mut self.io);
        let len = if !self.early.is_empty() {
            let space = self.reader.space();
            let len = space.len().min(self.early.len());
            space[..len].copy_from_slice(&self.early.split_to(len));
            self.reader.filled(len);
            len
        } else if let Some((body, missing)) = self.reader.direct() {
            ready!(poll_read_buf(io, cx, &mut body.limit(missing)))?
        } else {
            let mut space = ReadBuf::new(self.reader.space());
            ready!(io.poll_read(cx, &mut space))?;
            let len = space.filled().len();
            self.reader.filled(len);
            len
        };
        if len > 0 {
            self.heard = super::now();
        }
        Poll::Ready(Ok(len))
    }

    /// Sends what is on its way, a close frame, and shuts the connection down.
    pub(super) async fn close(&mut self, code: u16) -> io::Result<()> {
        poll_fn(|cx| self.poll_send(cx)).await?;
        let closing = websocket::closing(code, self.masks.as_mut().map(Masks::next));
        self.push(closing, 0);
        poll_fn(|cx| self.poll_send(cx)).await?;
        poll_fn(|cx| Pin::new(&mut self.io).poll_shutdown(cx)).await
    }

    /// Reads to the peer's end and keeps nothing: a connection that is dropped with unread input is reset, and a goodbye may
    /// be lost with that. What breaks the framing cannot be told apart any more.
    pub(super) async fn rest(&mut self) {
        loop {
            match poll_fn(|cx| self.poll_message(cx)).await {
                Ok(_) => {}
                Err(SocketError::Framing(_)) => break,
                Err(SocketError::Closed | SocketError::Io(_)) => return,
            }
        }
        while poll_fn(|cx| self.poll_skip(cx)).await {}
    }

    /// Whether there was something more.
    fn poll_skip(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let mut space = ReadBuf::new(self.reader.scratch());
        let read = ready!(Pin::new(&mut self.io).poll_read(cx, &mut space));
        Poll::Ready(read.is_ok() && !space.filled().is_empty())
    }
}

/// Random masks, made some at a time.
#[derive(Debug)]
struct Masks {
    made: [[u8; 4]; MASKS],
    used: usize,
}

impl Default for Masks {
    fn default() -> Self {
        Self {
            made: [[0; 4]; MASKS],
            used: MASKS,
        }
    }
}

impl Masks {
    fn next(&mut self) -> [u8; 4] {
        if self.used >= MASKS {
            let random: [u8; 4 * MASKS] = clock::random();
            self.made.as_flattened_mut().copy_from_slice(&random);
            self.used = 0;
        }
        self.used += 1;
        self.made[self.used - 1]
    }
}

#[cfg(test)]
mod tests;

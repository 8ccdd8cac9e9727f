//! The connection of a line: its options, its messages, and when something last arrived.
//!
//! One owner reads and writes, by polling: there is no lock between the directions and no task between the session
//! and the connection. Buffers live while they are in use; an idle line keeps a kilobyte.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::{BufMut as _, Bytes, BytesMut};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_util::io::poll_read_buf;

use super::super::session::Role;
use super::super::websocket::{self, Broken, Reader, Received};
use crate::clock;

/// Unsent bytes that the kernel keeps at most: what lies there cannot be overtaken. One message, so that a fast path
/// takes it in one call: with 16 KiB the sender of one bulk stream on loopback spends a tenth more processor time on a
/// byte, and an echo beside bulk on 200 Mbit/s is no faster.
const NOTSENT_LOWAT: u32 = 64 << 10;
const PATIENCE: Duration = Duration::from_secs(30);
/// A message buffer up to this size is kept for the next one.
const KEPT: usize = 2 << 10;
/// Masks that are made at a time.
const MASKS: usize = 64;

/// Sets what a line needs of its TCP connection. A system that lacks an option keeps its own way.
pub fn tune(socket: &TcpStream) {
    let socket = SockRef::from(socket);
    let keepalive = TcpKeepalive::new()
        .with_time(PATIENCE)
        .with_interval(Duration::from_secs(10));
    let set = [
        ("TCP_NODELAY", socket.set_tcp_nodelay(true)),
        (
            "TCP_NOTSENT_LOWAT",
            socket.set_tcp_notsent_lowat(NOTSENT_LOWAT),
        ),
        (
            "TCP_USER_TIMEOUT",
            socket.set_tcp_user_timeout(Some(PATIENCE)),
        ),
        ("SO_KEEPALIVE", socket.set_tcp_keepalive(&keepalive)),
    ];
    for (option, result) in set {
        if let Err(error) = result {
            tracing::debug!(option, %error, "socket option is not set");
        }
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
    /// Bytes for the wire, sent up to `sent`.
    out: BytesMut,
    sent: usize,
    /// A PING of the framing that is not answered yet; a later one replaces it.
    ping: Option<Bytes>,
    heard: Instant,
    /// What came with the answer to the upgrade.
    early: Bytes,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Socket<S> {
    /// `early` came behind the upgrade and was read with it.
    pub fn new(io: S, role: Role, early: Bytes) -> Self {
        Self {
            io,
            reader: Reader::new(role),
            masks: (role == Role::Agent).then(Masks::default),
            out: BytesMut::new(),
            sent: 0,
            ping: None,
            heard: super::now(),
            early,
        }
    }

    /// When bytes last arrived, be it part of a message.
    pub(super) fn heard(&self) -> Instant {
        self.heard
    }

    /// True while the message before is not with the system.
    pub(super) fn is_sending(&self) -> bool {
        !self.out.is_empty()
    }

    /// True where [`Socket::poll_send`] has something to do.
    pub(super) fn has_output(&self) -> bool {
        self.is_sending() || self.ping.is_some()
    }

    /// Puts a message that `fill` writes on its way, where nothing is; false where `fill` wrote nothing.
    pub(super) fn put(&mut self, fill: impl FnOnce(&mut BytesMut)) -> usize {
        debug_assert!(!self.is_sending(), "one message at a time");
        self.out.resize(websocket::SPACE, 0);
        fill(&mut self.out);
        let len = self.out.len() - websocket::SPACE;
        if len == 0 {
            self.out.clear();
        } else {
            self.sent = websocket::seal(&mut self.out, self.masks.as_mut().map(Masks::next));
        }
        len
    }

    /// Hands what was put to the system, to the last byte.
    pub(super) fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.out.is_empty()
            && let Some(payload) = self.ping.take()
        {
            self.out = websocket::pong(&payload, self.masks.as_mut().map(Masks::next));
            self.sent = 0;
        }
        while let Some(rest) = self.out.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match ready!(Pin::new(&mut self.io).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                len => self.sent += len,
            }
        }
        ready!(Pin::new(&mut self.io).poll_flush(cx))?;
        if self.out.capacity() > KEPT {
            self.out = BytesMut::new();
        }
        self.out.clear();
        self.sent = 0;
        Poll::Ready(Ok(()))
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
        self.out = websocket::closing(code, self.masks.as_mut().map(Masks::next));
        poll_fn(|cx| self.poll_send(cx)).await?;
        poll_fn(|cx| Pin::new(&mut self.io).poll_shutdown(cx)).await
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

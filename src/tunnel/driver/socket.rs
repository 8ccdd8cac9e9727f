//! The socket below the WebSocket: its options, and when something last arrived.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Unsent bytes that the kernel keeps at most: what lies there cannot be overtaken.
const NOTSENT_LOWAT: u32 = 16 << 10;
const PATIENCE: Duration = Duration::from_secs(30);

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

/// When bytes last arrived.
#[derive(Debug, Clone)]
pub(super) struct Heard {
    start: Instant,
    millis: Arc<AtomicU64>,
}

impl Heard {
    pub(super) fn last(&self) -> Instant {
        self.start + Duration::from_millis(self.millis.load(Ordering::Relaxed))
    }
}

/// A connection that notes when bytes arrive: part of a message is a sign of life too.
#[derive(Debug)]
pub struct Counted<S> {
    io: S,
    heard: Heard,
}

impl<S> Counted<S> {
    pub(super) fn new(io: S, now: Instant) -> Self {
        Self {
            io,
            heard: Heard {
                start: now,
                millis: Arc::default(),
            },
        }
    }

    pub(super) fn heard(&self) -> Heard {
        self.heard.clone()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let result = Pin::new(&mut self.io).poll_read(cx, buf);
        if buf.filled().len() > before {
            let millis = super::now()
                .saturating_duration_since(self.heard.start)
                .as_millis();
            self.heard
                .millis
                .store(u64::try_from(millis).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
        result
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

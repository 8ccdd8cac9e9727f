//! A TCP connection carried by a stream, at either end of the line: half-close stays half-close, a reset a reset.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional_with_sizes};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};

use super::Stream;
use crate::wire::frame::Code;

/// A connection without a byte in either direction for so long is over.
pub const IDLE: Duration = Duration::from_mins(10);
/// Bytes on their way in each direction of one connection.
const BUFFER: usize = 16 << 10;

/// Carries bytes both ways until both directions have ended; gives the bytes to and from the socket. Where it fails, the
/// other side is reset: a connection that was cut must not look as if it had ended well.
pub async fn carry(
    mut stream: Stream,
    mut socket: TcpStream,
    idle: Duration,
) -> io::Result<(u64, u64)> {
    // Small packets are answers that somebody waits for; without it a transfer only costs milliseconds.
    socket.set_nodelay(true).ok();
    let cancelled = stream.cancelled();
    let begun = Instant::now();
    let last = Arc::new(AtomicU64::new(0));
    let copied = {
        let mut socket = Watched {
            inner: &mut socket,
            begun,
            last: last.clone(),
        };
        let copy = copy_bidirectional_with_sizes(&mut stream, &mut socket, BUFFER, BUFFER);
        tokio::select! {
            copied = copy => copied,
            () = silence(begun, &last, idle) => {
                let text = format!("no byte for {} s", idle.as_secs());
                Err(io::Error::new(io::ErrorKind::TimedOut, text))
            }
            // The socket may not be read at this moment: a reset of the stream has to reach it all the same.
            () = cancelled.cancelled() => Err(io::ErrorKind::ConnectionReset.into()),
        }
    };
    let Err(error) = copied else {
        return copied;
    };
    reset(&socket);
    // The peer's word says more than what came of it here.
    let error = stream.failure().map_or(error, io::Error::from);
    stream.reset(Code::Cancelled, &error.to_string());
    Err(error)
}

/// Lets the socket's end be RST, not FIN.
pub fn reset(socket: &TcpStream) {
    // One that takes no options is broken already.
    socket.set_zero_linger().ok();
}

async fn silence(begun: Instant, last: &AtomicU64, idle: Duration) {
    loop {
        let last = Duration::from_millis(last.load(Ordering::Relaxed));
        let due = begun + last + idle;
        if due <= Instant::now() {
            return;
        }
        sleep_until(due).await;
    }
}

/// Notes when a byte went by.
struct Watched<'a> {
    inner: &'a mut TcpStream,
    begun: Instant,
    last: Arc<AtomicU64>,
}

impl Watched<'_> {
    fn note(&self) {
        let millis = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(millis, Ordering::Relaxed);
    }
}

impl AsyncRead for Watched<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut *self.inner).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.note();
        }
        polled
    }
}

impl AsyncWrite for Watched<'_> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut *self.inner).poll_write(cx, buf);
        if matches!(polled, Poll::Ready(Ok(_))) {
            self.note();
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.inner).poll_shutdown(cx)
    }
}

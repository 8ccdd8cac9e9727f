//! `AsyncRead` and `AsyncWrite` over one stream of a line.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::CancellationToken;

use crate::wire::frame::Code;

/// One stream. Dropped after shutdown with unread input it sends STOP, dropped without shutdown RST(CANCELLED).
#[derive(Debug)]
pub struct Stream {
    cancelled: CancellationToken,
}

impl Stream {
    /// Ends both directions at once; the peer may read what it has, then gets the code.
    pub fn reset(self, code: Code, text: &str) {
        let _ = (code, text);
    }

    /// Fires when the peer resets the stream or the line is lost.
    pub fn cancelled(&self) -> CancellationToken {
        self.cancelled.clone()
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        _buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        _buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Pending
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

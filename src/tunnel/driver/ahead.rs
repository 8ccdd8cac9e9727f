//! Reads ahead of TLS. rustls asks for 4 KiB at a time, five calls of the system a record; under load this asks
//! for 64 KiB, and keeps nothing while the connection is idle.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::io::poll_read_buf;

/// What one call asks for under load.
const AHEAD: usize = 64 << 10;
/// A read that fills so much shows load.
const LOADED: usize = 4 << 10;

/// A connection below TLS.
#[derive(Debug)]
pub struct Ahead<S> {
    io: S,
    buffer: BytesMut,
    loaded: bool,
}

impl<S> Ahead<S> {
    pub fn new(io: S) -> Self {
        Self {
            io,
            buffer: BytesMut::new(),
            loaded: false,
        }
    }

    pub fn get_ref(&self) -> &S {
        &self.io
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Ahead<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.buffer.is_empty() {
            if !this.loaded {
                let before = buf.filled().len();
                ready!(Pin::new(&mut this.io).poll_read(cx, buf))?;
                this.loaded = buf.filled().len() - before >= LOADED;
                return Poll::Ready(Ok(()));
            }
            this.buffer.reserve(AHEAD);
            match poll_read_buf(Pin::new(&mut this.io), cx, &mut this.buffer) {
                Poll::Ready(Ok(len)) => this.loaded = len >= LOADED,
                other => {
                    // Nothing to wait with: the buffer comes back with the load.
                    this.buffer = BytesMut::new();
                    this.loaded = other.is_pending() && this.loaded;
                    return other.map_ok(|_| ());
                }
            }
        }
        let len = buf.remaining().min(this.buffer.len());
        buf.put_slice(&this.buffer[..len]);
        this.buffer.advance(len);
        if this.buffer.is_empty() && !this.loaded {
            this.buffer = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Ahead<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn bytes_come_as_they_were_sent_and_an_idle_connection_keeps_no_buffer() {
        let (mut far, near) = tokio::io::duplex(1 << 20);
        let mut near = Ahead::new(near);
        let sent: Vec<u8> = (0..300_000_usize)
            .map(|n| u8::try_from(n % 251).unwrap())
            .collect();
        far.write_all(&sent).await.unwrap();
        let mut got = vec![0; sent.len()];
        for part in got.chunks_mut(4096) {
            near.read_exact(part).await.unwrap();
        }
        assert!(got == sent);
        far.write_all(b"x").await.unwrap();
        assert_eq!(near.read_u8().await.unwrap(), b'x');
        far.write_all(b"y").await.unwrap();
        assert_eq!(near.read_u8().await.unwrap(), b'y');
        assert_eq!((near.buffer.capacity(), near.loaded), (0, false));
        drop(far);
        assert!(near.read_u8().await.is_err(), "the end");
    }
}

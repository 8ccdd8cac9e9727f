//! An answer on its way to the user, counted, with its audit record closed when it ends, however it ends.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::exchange::Answer;
use super::exit::Exit;
use super::limits::Place;
use super::refusal;
use crate::hub::audit::Opened;
use crate::hub::running::Seat;

/// One request under way: its audit record, its place among the running ones.
pub struct Running {
    pub opened: Opened,
    pub place: Place,
    pub since: Instant,
    pub seat: Seat,
}

impl Running {
    /// Closes the record.
    pub fn close(self, code: u16, bytes: u64) {
        let millis = self.millis();
        self.opened.close(code, bytes, millis);
    }

    /// Closes the record of an answer or session that the cluster's side did not bring to its end.
    pub fn broke(self, why: &'static str, code: u16, bytes: u64) {
        let millis = self.millis();
        self.opened.broke(why, code, (bytes, millis));
    }

    /// Closes the record of a request whose access ended while it ran.
    pub fn cut(self, bytes: u64) {
        let millis = self.millis();
        self.opened.cut("access ended", bytes, millis);
    }

    fn millis(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Why an answer stops in its middle.
#[derive(Debug, thiserror::Error)]
#[error("the token or grant that let the request through has ended")]
struct AccessEnded;

/// The answer's body; the record is closed at its end or when the user leaves.
pub struct Recorded {
    pub answer: Answer,
    /// Ready when the access that lets it run ends.
    pub over: Pin<Box<dyn Future<Output = ()> + Send>>,
    pub running: Option<Running>,
    pub code: u16,
    pub bytes: u64,
}

impl Recorded {
    fn close(&mut self) {
        if let Some(running) = self.running.take() {
            running.close(self.code, self.bytes);
        }
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        self.close();
    }
}

impl Body for Recorded {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        if self.running.is_some() && self.over.as_mut().poll(cx).is_ready() {
            let bytes = self.bytes;
            if let Some(running) = self.running.take() {
                running.cut(bytes);
            }
            // An error, so that nobody takes the part for the whole.
            return Poll::Ready(Some(Err(AccessEnded.into())));
        }
        let frame = Pin::new(&mut self.answer).poll_frame(cx);
        match &frame {
            Poll::Ready(Some(Ok(frame))) => {
                self.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
            }
            Poll::Ready(Some(Err(error))) => {
                let (why, code, bytes) = (refusal::broken(error), self.code, self.bytes);
                if let Some(running) = self.running.take() {
                    running.broke(why, code, bytes);
                }
            }
            Poll::Ready(None) => self.close(),
            Poll::Pending => {}
        }
        frame.map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.answer.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.is_end_stream() {
            // To HEAD, and with 204 and 304: only the head says how long a body would be. Of a known length axum makes a header.
            return SizeHint::default();
        }
        self.answer.size_hint()
    }
}

/// Shows what is read to who looks for the end of a session's command.
pub struct Seen<'a, T> {
    pub io: T,
    pub exit: Option<&'a mut Exit>,
}

impl<T: AsyncRead + Unpin> AsyncRead for Seen<'_, T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.io).poll_read(cx, buf);
        if let Some(exit) = self.exit.as_mut() {
            exit.see(&buf.filled()[before..]);
        }
        polled
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Seen<'_, T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

/// Counts what passes, both ways.
pub struct Counted<T> {
    pub io: T,
    pub bytes: Arc<AtomicU64>,
}

impl<T: AsyncRead + Unpin> AsyncRead for Counted<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.io).poll_read(cx, buf);
        self.bytes
            .fetch_add((buf.filled().len() - before) as u64, Ordering::Relaxed);
        polled
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Counted<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let polled = Pin::new(&mut self.io).poll_write(cx, buf);
        if let Poll::Ready(Ok(n)) = &polled {
            self.bytes.fetch_add(*n as u64, Ordering::Relaxed);
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

//! `AsyncRead` and `AsyncWrite` over one stream of a line.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::coop;
use tokio_util::sync::CancellationToken;

use super::LineError;
use super::driver::{Line, Shared};
use super::session::{Read, Said};
use crate::wire::frame::Code;

/// One stream. Dropped after shutdown with unread input it sends STOP, dropped without shutdown RST(CANCELLED).
///
/// Reads and writes count against the task's budget, as those of tokio's sockets do: whoever always finds something to read, or
/// room for one more byte, gives way to the line's own task and to other streams.
pub struct Stream {
    shared: Arc<Shared>,
    id: u32,
}

impl Stream {
    pub(super) fn new(shared: Arc<Shared>, id: u32) -> Self {
        Self { shared, id }
    }

    /// Ends both directions at once; the peer may read what it has, then gets the code.
    pub fn reset(self, code: Code, text: &str) {
        self.shared
            .with(|state| state.session.reset(self.id, code, text));
    }

    /// "I read no more": the peer drops what it has queued; what is written here still goes.
    pub fn stop(&self, code: Code) {
        self.shared
            .with(|state| state.session.stop(super::driver::now(), self.id, code));
    }

    /// The line that it runs on.
    pub fn line(&self) -> Line {
        Line::of(self.shared.clone())
    }

    /// [`Self::stop`] for somebody who does not hold the stream; without effect once that is over.
    pub fn stopper(&self) -> impl Fn() + Send + Sync + use<> {
        let (shared, id) = (self.shared.clone(), self.id);
        move || {
            shared.with(|state| state.session.stop(super::driver::now(), id, Code::None));
        }
    }

    /// Whether the peer reads no more, for somebody who does not hold the stream.
    pub fn muted(&self) -> impl Fn() -> bool + Send + Sync + use<> {
        let (shared, id) = (self.shared.clone(), self.id);
        move || shared.with(|state| state.session.is_muted(id))
    }

    /// Fires when the stream fails: the peer resets it, or does not end what it was told to stop, or the line is lost.
    pub fn cancelled(&self) -> CancellationToken {
        self.shared.with(|state| {
            let token = state
                .slot(self.id)
                .cancel
                .get_or_insert_with(CancellationToken::new)
                .clone();
            if state.session.error(self.id).is_some() {
                token.cancel();
            }
            token
        })
    }

    /// Why the stream can no longer end well, where it cannot.
    pub fn failure(&self) -> Option<LineError> {
        self.shared
            .with(|state| state.session.error(self.id).cloned())
    }

    /// What the peer said beside its bytes. The task of whoever writes is woken when that changes.
    pub(super) fn poll_said(&self, cx: &Context<'_>) -> Said {
        self.shared.with(|state| {
            state.slot(self.id).writer = Some(cx.waker().clone());
            state.session.said(self.id)
        })
    }

    /// How much a write would take now. Where that is nothing, the task of whoever writes is woken when it is more.
    pub(super) fn poll_room(&self, cx: &Context<'_>) -> usize {
        self.shared.with(|state| {
            state.slot(self.id).writer = Some(cx.waker().clone());
            state.session.room(self.id)
        })
    }

    /// The id on the wire.
    pub fn id(&self) -> u32 {
        self.id
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({})", self.id)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.shared.with(|state| {
            state.session.release(super::driver::now(), self.id);
            state.forget(self.id);
        });
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let turn = ready!(coop::poll_proceed(cx));
        let space = buf.initialize_unfilled();
        let read = self.shared.with(|state| {
            let read = state.session.read(super::driver::now(), self.id, space);
            if read == Ok(Read::Blocked) {
                state.slot(self.id).reader = Some(cx.waker().clone());
            }
            read
        });
        if read != Ok(Read::Blocked) {
            turn.made_progress();
        }
        match read {
            Ok(Read::Data(len)) => {
                buf.advance(len);
                Poll::Ready(Ok(()))
            }
            Ok(Read::End) => Poll::Ready(Ok(())),
            Ok(Read::Blocked) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error.into())),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let turn = ready!(coop::poll_proceed(cx));
        let written = self.shared.with(|state| {
            let written = state.session.write(super::driver::now(), self.id, buf);
            if written == Ok(0) {
                state.slot(self.id).writer = Some(cx.waker().clone());
            }
            written
        });
        if written != Ok(0) {
            turn.made_progress();
        }
        match written {
            Ok(0) => Poll::Pending,
            Ok(len) => Poll::Ready(Ok(len)),
            Err(error) => Poll::Ready(Err(error.into())),
        }
    }

    /// Nothing to do: what was written is covered by credit and goes out by itself.
    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(
            self.shared
                .with(|state| state.session.finish(self.id))
                .map_err(Into::into),
        )
    }
}

impl From<LineError> for io::Error {
    fn from(error: LineError) -> Self {
        let kind = match error.code {
            Code::LineLost | Code::Superseded | Code::Draining | Code::Revoked => {
                io::ErrorKind::ConnectionAborted
            }
            Code::DialRefused => io::ErrorKind::ConnectionRefused,
            Code::DialTimeout => io::ErrorKind::TimedOut,
            Code::Dns | Code::Unreachable => io::ErrorKind::HostUnreachable,
            Code::Internal => io::ErrorKind::BrokenPipe,
            _ => io::ErrorKind::ConnectionReset,
        };
        Self::new(kind, error)
    }
}

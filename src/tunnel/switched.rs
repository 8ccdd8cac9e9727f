//! The bytes of a switched protocol (exec, attach, port-forward, cp), both ways, at either end of the line.
//!
//! A server that has said all it has to say closes at once (`UpgradeAwareHandler` of Kubernetes: both connections as soon as
//! one way has ended). A ping of the client that comes then finds nobody, and must not cost the tail of the answer: what the
//! server cannot take any more is dropped, and what it said before is carried to its end. Two kernels could still lose it,
//! for a socket that is closed with unread input is reset: that of the server, hence [`Eager`], and our own towards the user,
//! hence [`linger`].
//!
//! A user who is gone is not always seen to be so: hence [`Beating`].

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

mod beats;
mod eager;
mod pings;

pub use beats::Beating;
pub use eager::{Ahead, Eager};
pub use pings::Dialect;

/// Carries until both ways have ended; gives the bytes to and from the server. An error = one of the ends cannot be read to
/// its end, or the user takes nothing more.
pub async fn carry<U, S>(user: &mut U, server: &mut S, buffer: usize) -> io::Result<(u64, u64)>
where
    U: AsyncRead + AsyncWrite + Unpin,
    S: AsyncRead + AsyncWrite + Unpin,
{
    both(user, server, buffer, |_, _| ()).await
}

/// The same, with the server read ahead of a user who is slower than it.
pub async fn carry_ahead<U, S>(
    user: &mut U,
    server: &mut Eager<S>,
    buffer: usize,
) -> io::Result<(u64, u64)>
where
    U: AsyncRead + AsyncWrite + Unpin,
    S: AsyncRead + AsyncWrite + Unpin,
{
    both(user, server, buffer, Eager::read_ahead).await
}

/// `blocked` is called with the server when the user takes nothing more for now.
async fn both<U, S>(
    user: &mut U,
    server: &mut S,
    buffer: usize,
    mut blocked: impl FnMut(&mut S, &mut Context<'_>),
) -> io::Result<(u64, u64)>
where
    U: AsyncRead + AsyncWrite + Unpin,
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (mut to, mut from) = (Way::new(buffer), Way::new(buffer));
    poll_fn(|cx| {
        let sent = match to.poll(cx, user, server, |_, _| ()) {
            Poll::Ready(Err(Failed::Write(_))) => {
                to.drop_rest();
                Poll::Ready(())
            }
            Poll::Ready(Err(Failed::Read(error))) => return Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) => Poll::Ready(()),
            Poll::Pending => Poll::Pending,
        };
        let said = match from.poll(cx, server, user, &mut blocked) {
            Poll::Ready(Err(Failed::Read(error) | Failed::Write(error))) => {
                return Poll::Ready(Err(error));
            }
            Poll::Ready(Ok(())) => Poll::Ready(()),
            Poll::Pending => Poll::Pending,
        };
        if sent.is_ready() && said.is_ready() {
            return Poll::Ready(Ok((to.bytes, from.bytes)));
        }
        Poll::Pending
    })
    .await
}

/// Reads on what a user sends to whom nothing more is said, until he closes: only then has he all. Whoever calls sets the limit.
pub async fn linger<U: AsyncRead + Unpin>(user: &mut U) {
    // An error is an end, too.
    tokio::io::copy(user, &mut tokio::io::sink()).await.ok();
}

enum Failed {
    Read(io::Error),
    Write(io::Error),
}

/// One direction.
struct Way {
    buffer: Box<[u8]>,
    /// What is read and not written.
    start: usize,
    end: usize,
    /// Written and not flushed.
    unflushed: bool,
    /// All was read.
    ended: bool,
    /// The end was given on, or is of no use any more.
    done: bool,
    bytes: u64,
}

impl Way {
    fn new(buffer: usize) -> Self {
        Self {
            buffer: vec![0; buffer].into_boxed_slice(),
            start: 0,
            end: 0,
            unflushed: false,
            ended: false,
            done: false,
            bytes: 0,
        }
    }

    fn drop_rest(&mut self) {
        self.done = true;
        self.buffer = Box::default();
    }

    fn poll<R, W>(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut R,
        to: &mut W,
        blocked: impl FnOnce(&mut R, &mut Context<'_>),
    ) -> Poll<Result<(), Failed>>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        loop {
            if self.done {
                return Poll::Ready(Ok(()));
            }
            if self.start < self.end {
                let rest = &self.buffer[self.start..self.end];
                let Poll::Ready(wrote) = Pin::new(&mut *to).poll_write(cx, rest) else {
                    blocked(from, cx);
                    return Poll::Pending;
                };
                let wrote = wrote.and_then(|n| match n {
                    0 => Err(io::ErrorKind::WriteZero.into()),
                    n => Ok(n),
                });
                let wrote = wrote.map_err(Failed::Write)?;
                self.start += wrote;
                self.bytes += u64::try_from(wrote).unwrap_or_default();
                self.unflushed = true;
                continue;
            }
            if self.ended {
                ready!(Pin::new(&mut *to).poll_shutdown(cx)).map_err(Failed::Write)?;
                self.done = true;
                continue;
            }
            let mut room = ReadBuf::new(&mut self.buffer);
            match Pin::new(&mut *from).poll_read(cx, &mut room) {
                Poll::Ready(read) => {
                    read.map_err(Failed::Read)?;
                    (self.start, self.end) = (0, room.filled().len());
                    self.ended = self.end == 0;
                }
                Poll::Pending => {
                    // What somebody waits for does not lie in a buffer.
                    if self.unflushed {
                        ready!(Pin::new(&mut *to).poll_flush(cx)).map_err(Failed::Write)?;
                        self.unflushed = false;
                    }
                    return Poll::Pending;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;

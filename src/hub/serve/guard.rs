//! The user's side of a connection. HTTP/1 is held to the rules of [`message`]: a request that two servers could
//! frame differently never reaches the parser, and nothing that a client sends behind a switch of protocol is
//! read before the switch was granted. Of HTTP/2 the frames are counted that ask for nothing ([`frames`]). A client that
//! says nothing is not waited for: the server behind measures time only from the first head on.
//!
//! [`message`]: crate::kubeapi::message
//! [`frames`]: crate::kubeapi::frames

use std::future::Future as _;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use super::heads::Part;
use crate::kubeapi::frames::{self, Frames, PREFACE};
use crate::kubeapi::message::{Scanner, Violation};

/// What the parser gets in the place of a head that is refused, so that the refusal is told in its turn, behind the answers to
/// what was sent before it. [`Verdict`] knows it from a client's own.
const STAND_IN: &[u8] = b"GET / HTTP/1.1\r\nHost: refused\r\nConnection: close\r\n\r\n";
/// Bytes that are read while the answer to a switch is waited for, so that the end of the connection shows.
const MAX_HELD: usize = 16 << 10;
const READ: usize = 16 << 10;
/// The same of heads, through room that each look at the connection clears, and there are some for each request.
const HEADS: usize = 2 << 10;

/// A client whose upload was refused sends on for a moment. What arrives at a closed socket resets the connection, and on many systems
/// that costs the client the answer; so a little of it is read, and the rest is not reset before the client had time to
/// read why. The same as Go's server does.
const LINGER: Duration = Duration::from_secs(1);
const MOST_DISCARDED: usize = 256 << 10;

/// Which of a connection's requests stands in for a head that was refused, and why; and which of the answers switches the
/// protocol. For whoever answers them.
#[derive(Debug, Clone, Default)]
pub(super) struct Verdict(Arc<Told>);

#[derive(Debug, Default)]
struct Told {
    /// Requests that were asked about.
    asked: AtomicU64,
    /// Counted from 1.
    refused: OnceLock<(u64, Violation)>,
    answers: Mutex<Answers>,
}

#[derive(Debug, Default)]
struct Answers {
    given: u64,
    /// Whether the last of them switches the protocol.
    switches: bool,
    /// Who reads, while one of them is waited for.
    reader: Option<Waker>,
}

impl Verdict {
    /// On the connection's next request.
    pub(super) fn on_next(&self) -> Option<Violation> {
        let nth = self.0.asked.fetch_add(1, Ordering::Relaxed) + 1;
        let refused = self.0.refused.get();
        refused.filter(|(at, _)| *at == nth).map(|(_, why)| *why)
    }

    /// The connection's next answer is there, and switches the protocol or does not. It is its giver who says so: in the bytes that
    /// are written it may stand behind the answer to a request before it, whose body may look like anything.
    pub(super) fn answered(&self, switches: bool) {
        let mut answers = self.answers();
        answers.given += 1;
        answers.switches = switches;
        let reader = answers.reader.take();
        drop(answers);
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// Whether the answer to request `nth`, the last that was handed on, switches the protocol. `None` = it is not there; the task is
    /// woken when one more is.
    fn switches(&self, nth: u64, cx: &Context<'_>) -> Option<bool> {
        let mut answers = self.answers();
        if answers.given >= nth {
            return Some(answers.switches);
        }
        answers.reader = Some(cx.waker().clone());
        None
    }

    fn answers(&self) -> MutexGuard<'_, Answers> {
        let answers = self.0.answers.lock();
        answers.unwrap_or_else(PoisonError::into_inner)
    }

    fn refuse(&self, nth: u64, violation: Violation) {
        // The first is the last: nothing is read behind it.
        let _first = self.0.refused.set((nth, violation));
    }
}

/// A connection whose requests are checked as they are read.
pub(super) struct Guarded<S, T> {
    io: S,
    /// What lives as long as the connection, whatever becomes of it.
    _kept: T,
    scanner: Scanner,
    /// Of HTTP/2.
    frames: Option<Frames>,
    /// Present until the first request has begun.
    first: Option<First>,
    /// Read, not checked.
    held: BytesMut,
    /// Checked, not handed on.
    ready: Vec<u8>,
    handed: usize,
    violation: Option<Violation>,
    verdict: Verdict,
    part: Part,
    /// Present once our side is shut down.
    leaving: Option<Leaving>,
}

/// Until when so many bytes have to be handed on.
struct First {
    until: Pin<Box<Sleep>>,
    missing: usize,
}

struct Leaving {
    until: Pin<Box<Sleep>>,
    discarded: usize,
    /// The client is in the middle of a request.
    expects: bool,
}

impl<S, T> Guarded<S, T> {
    /// The first head has so long to be whole: nothing of it is handed on before.
    pub(super) fn http1(io: S, first: Duration, kept: T) -> Self {
        Self::new(io, kept, (Scanner::default(), None), (first, 1))
    }

    /// The same of HTTP/2's preface.
    pub(super) fn http2(io: S, first: Duration, kept: T) -> Self {
        let frames = Frames::new(Instant::now().into_std());
        Self::new(
            io,
            kept,
            (Scanner::open(), Some(frames)),
            (first, PREFACE.len()),
        )
    }

    fn new(
        io: S,
        kept: T,
        (scanner, frames): (Scanner, Option<Frames>),
        (first, missing): (Duration, usize),
    ) -> Self {
        Self {
            io,
            _kept: kept,
            scanner,
            frames,
            first: Some(First {
                until: Box::pin(sleep(first)),
                missing,
            }),
            held: BytesMut::new(),
            ready: Vec::new(),
            handed: 0,
            violation: None,
            verdict: Verdict::default(),
            part: Part::default(),
            leaving: None,
        }
    }

    pub(super) fn verdict(&self) -> Verdict {
        self.verdict.clone()
    }

    /// Of HTTP/1's heads.
    pub(super) fn part(&self) -> Part {
        self.part.clone()
    }

    /// Checks what was read; whether something can be handed on now.
    fn scan(&mut self) -> bool {
        if self.violation.is_none() && !self.held.is_empty() {
            match self.scanner.push(&self.held, &mut self.ready) {
                Ok(taken) => self.held.advance(taken),
                Err(violation) => {
                    self.violation = Some(violation);
                    self.held = BytesMut::new();
                    if !self.scanner.broke_in_body() {
                        self.verdict.refuse(self.scanner.heads() + 1, violation);
                        self.ready.extend(STAND_IN);
                    }
                }
            }
            self.part.set(self.scanner.has_begun());
        }
        self.handed < self.ready.len()
    }

    /// Whether the client has had its time for the first request.
    fn is_late(&mut self, cx: &mut Context<'_>) -> bool {
        let first = self.first.as_mut();
        first.is_some_and(|first| first.until.as_mut().poll(cx).is_ready())
    }

    /// So many bytes were handed on.
    fn begun(&mut self, bytes: usize) {
        if let Some(first) = &mut self.first {
            first.missing = first.missing.saturating_sub(bytes);
            if first.missing == 0 {
                self.first = None;
            }
        }
    }

    /// Whether it may begin so: what speaks HTTP/1 where HTTP/2 was agreed upon would be served, and nobody would have looked at it.
    fn is_preface(&self, read: &[u8]) -> bool {
        let missing = match &self.first {
            Some(first) if self.frames.is_some() => first.missing,
            _ => return true,
        };
        let wanted = PREFACE.iter().skip(PREFACE.len() - missing);
        read.iter().zip(wanted).all(|(read, wanted)| read == wanted)
    }

    fn hand_on(&mut self, buf: &mut ReadBuf<'_>) {
        let rest = self.ready.get(self.handed..).unwrap_or_default();
        let now = rest.len().min(buf.remaining());
        buf.put_slice(rest.get(..now).unwrap_or_default());
        self.handed += now;
        self.begun(now);
        if self.handed == self.ready.len() {
            self.ready = Vec::new();
            self.handed = 0;
        }
    }
}

impl<S: AsyncRead + Unpin, T: Unpin> Guarded<S, T> {
    /// Reads of another protocol than HTTP/1.
    fn poll_open(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buf))?;
        let read = buf.filled().get(before..).unwrap_or_default();
        if !self.is_preface(read) {
            buf.set_filled(before);
            let text = "this connection is of HTTP/2, and does not begin so";
            let error = std::io::Error::new(std::io::ErrorKind::InvalidData, text);
            return Poll::Ready(Err(error));
        }
        let (now, len) = (Instant::now().into_std(), read.len());
        if let Some(Err(good)) = self.frames.as_mut().map(|frames| frames.push(now, read)) {
            tracing::debug!("a flood of HTTP/2 frames");
            self.violation = Some(Violation::Framing("a flood of frames that ask for nothing"));
            buf.set_filled(before + good);
            self.ready.extend(frames::endless_head());
        }
        self.begun(len);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin, T: Unpin> AsyncRead for Guarded<S, T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let this = &mut *self;
        if this.is_late(cx) {
            tracing::debug!("no request in time");
            return Poll::Ready(match this.frames {
                // As if the client had ended: there is nothing to answer.
                None => Ok(()),
                // Half a preface would be answered as HTTP/1.
                Some(_) => Err(std::io::ErrorKind::TimedOut.into()),
            });
        }
        loop {
            if this.scan() {
                this.hand_on(buf);
                return Poll::Ready(Ok(()));
            }
            if let Some(violation) = this.violation.filter(|_| this.scanner.broke_in_body()) {
                // To whoever reads the body: it has no end.
                let error = std::io::Error::new(std::io::ErrorKind::InvalidData, violation);
                return Poll::Ready(Err(error));
            }
            match this.scanner.passes() {
                _ if !this.held.is_empty() => {}
                0 => {}
                u64::MAX if this.violation.is_none() => return this.poll_open(cx, buf),
                u64::MAX => {}
                passes => {
                    let room = usize::try_from(passes).unwrap_or(READ).min(READ);
                    let room = room.min(buf.remaining());
                    let mut part = ReadBuf::new(buf.initialize_unfilled_to(room));
                    ready!(Pin::new(&mut this.io).poll_read(cx, &mut part))?;
                    let read = part.filled().len();
                    buf.advance(read);
                    this.scanner.passed(read as u64);
                    return Poll::Ready(Ok(()));
                }
            }
            if this.scanner.is_asked() {
                match this.verdict.switches(this.scanner.heads(), cx) {
                    Some(switched) => {
                        this.scanner.answered(switched);
                        continue;
                    }
                    None if this.held.len() >= MAX_HELD => return Poll::Pending,
                    None => {}
                }
            }
            let mut room = [0; HEADS];
            let mut read = ReadBuf::new(&mut room);
            ready!(Pin::new(&mut this.io).poll_read(cx, &mut read))?;
            if read.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            // After a bad request, reading goes on only to see the end.
            if this.violation.is_none() {
                this.held.extend_from_slice(read.filled());
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin, T: Unpin> AsyncWrite for Guarded<S, T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let this = &mut *self;
        if this.leaving.is_none() {
            ready!(Pin::new(&mut this.io).poll_shutdown(cx))?;
            let passes = this.scanner.passes();
            if passes == u64::MAX && this.violation.is_none() {
                // Another protocol, with its own end.
                return Poll::Ready(Ok(()));
            }
            this.leaving = Some(Leaving {
                until: Box::pin(sleep(LINGER)),
                discarded: this.held.len(),
                expects: passes > 0 || !this.held.is_empty(),
            });
        }
        let Some(leaving) = &mut this.leaving else {
            return Poll::Ready(Ok(()));
        };
        let mut room = [0; READ];
        while leaving.discarded < MOST_DISCARDED {
            let mut read = ReadBuf::new(&mut room);
            match Pin::new(&mut this.io).poll_read(cx, &mut read) {
                Poll::Ready(Ok(())) if !read.filled().is_empty() => {
                    leaving.discarded += read.filled().len();
                    leaving.expects = true;
                }
                Poll::Pending if leaving.expects => break,
                // The client is gone, too, or has nothing more to say.
                Poll::Ready(_) | Poll::Pending => return Poll::Ready(Ok(())),
            }
        }
        leaving.until.as_mut().poll(cx).map(Ok)
    }
}

#[cfg(test)]
mod tests;

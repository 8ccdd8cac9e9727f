//! An answer on its way to the user, counted, with its audit record closed when it ends, however it ends.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::exchange::Answer;
use super::exit::Exit;
use super::farewell::{self, Events};
use super::limits::Slot;
use super::refusal;
use crate::hub::api::Hangup;
use crate::hub::audit::Opened;
use crate::hub::running::Seat;

/// How long a user whose access has ended may take to reach the error that says so, before the connection ends.
const UNREAD: Duration = Duration::from_secs(1);

/// One request under way: its audit record, its slot among the running ones.
pub struct Running {
    pub opened: Opened,
    pub slot: Slot,
    pub since: Instant,
    pub seat: Seat,
    /// The grant that ends first, where no token or session ends before.
    pub first: Option<String>,
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

    /// Closes the record of a request whose access ended while it ran; gives what that says.
    pub fn cut(self, bytes: u64) -> String {
        let why = match (self.seat.why(), &self.first) {
            (Some(taken), _) => format!("access ended: {taken}"),
            (None, Some(grant)) => format!("access ended: grant {grant} expired"),
            (None, None) => "access ended: the token or session expired".to_owned(),
        };
        let millis = self.millis();
        self.opened.cut(why.clone(), bytes, millis);
        why
    }

    fn millis(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Why an answer stops in its middle.
#[derive(Debug, thiserror::Error)]
#[error("the token or grant that let the request through has ended")]
struct AccessEnded;

/// The answer's body; the record is closed at its end, when the user leaves, or when the access ends that lets it run. Nobody asks a
/// body for more while its user takes nothing: [`Recorded::cut_at`] ends it then.
pub struct Recorded(Arc<Passing>);

struct Passing {
    state: Mutex<State>,
    /// The body is not there any more.
    left: CancellationToken,
}

struct State {
    /// None = it was cut, or its line was lost.
    answer: Option<Answer>,
    /// Whoever takes it closes the record. None = that is done.
    running: Option<Running>,
    /// Who waits for the next part of the answer.
    reader: Option<Waker>,
    code: u16,
    bytes: u64,
    /// Of a watch that can be told by an event why it ends.
    events: Option<Events>,
    rest: Rest,
}

/// What whoever reads on finds in the place of an answer that was cut.
enum Rest {
    /// An error, so that nobody takes the part for the whole.
    Error,
    /// The last event of a watch, which says why.
    Event(Bytes),
    /// The end: it was said.
    Nothing,
}

impl Rest {
    fn frame(&mut self) -> Option<Result<Frame<Bytes>, axum::BoxError>> {
        match std::mem::replace(self, Self::Nothing) {
            Self::Event(event) => Some(Ok(Frame::data(event))),
            Self::Nothing => None,
            Self::Error => {
                *self = Self::Error;
                Some(Err(AccessEnded.into()))
            }
        }
    }
}

impl State {
    fn close(&mut self) {
        if let Some(running) = self.running.take() {
            running.close(self.code, self.bytes);
        }
    }
}

impl Passing {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends what still runs: its record says so, and its stream is reset. False = it was over.
    fn cut(&self) -> bool {
        let mut state = self.state();
        let Some(running) = state.running.take() else {
            return false;
        };
        let (answer, reader) = (state.answer.take(), state.reader.take());
        let between = state.events.as_ref().is_some_and(Events::is_between);
        let told = between.then(|| running.opened.request_id().to_owned());
        let why = running.cut(state.bytes);
        if let Some(request_id) = told {
            let status = refusal::cut_off(&why).status(&request_id);
            state.rest = Rest::Event(farewell::event(&status));
        }
        drop(state);
        // The stream is the answer's.
        drop(answer);
        if let Some(reader) = reader {
            reader.wake();
        }
        true
    }
}

impl Recorded {
    pub fn new(answer: Answer, running: Running, code: u16, events: Option<Events>) -> Self {
        Self(Arc::new(Passing {
            state: Mutex::new(State {
                answer: Some(answer),
                running: Some(running),
                reader: None,
                code,
                bytes: 0,
                events,
                rest: Rest::Error,
            }),
            left: CancellationToken::new(),
        }))
    }

    /// What has to run beside the body: ends the answer when its access is `over`, be it taken or not. Whoever reads finds an error in
    /// its place, or a watch's last event; the connection (of HTTP/2 the stream) of whoever does not is ended. Completes with the body.
    pub fn cut_at(
        &self,
        over: Pin<Box<dyn Future<Output = ()> + Send>>,
        hangup: Option<Hangup>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let passing = self.0.clone();
        async move {
            let over = passing.left.run_until_cancelled(over).await.is_some();
            if !over || !passing.cut() {
                return;
            }
            let left = timeout(UNREAD, passing.left.cancelled()).await;
            if let (Err(_), Some(Hangup(hangup))) = (left, hangup) {
                hangup.cancel();
            }
        }
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.close();
        let answer = state.answer.take();
        drop(state);
        // Now, and not when whoever runs beside it gets to it.
        drop(answer);
        self.0.left.cancel();
    }
}

impl Body for Recorded {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        let mut state = self.0.state();
        let state = &mut *state;
        let Some(answer) = &mut state.answer else {
            return Poll::Ready(state.rest.frame());
        };
        let frame = Pin::new(answer).poll_frame(cx);
        match &frame {
            Poll::Ready(Some(Ok(frame))) => {
                let data = frame.data_ref().map_or(&[][..], |data| &data[..]);
                state.bytes += data.len() as u64;
                if let Some(events) = &mut state.events {
                    events.see(data);
                }
            }
            Poll::Ready(Some(Err(error))) => {
                let (why, code, bytes) = (refusal::broken(error), state.code, state.bytes);
                if let Some(running) = state.running.take() {
                    let between = state.events.as_ref().is_some_and(Events::is_between);
                    let request_id = running.opened.request_id();
                    let told = (between && refusal::by_line(error))
                        .then(|| refusal::line_gone().status(request_id));
                    running.broke(why, code, bytes);
                    if let Some(status) = told {
                        state.answer = None;
                        state.rest = Rest::Event(farewell::event(&status));
                        return Poll::Ready(state.rest.frame());
                    }
                }
            }
            Poll::Ready(None) => state.close(),
            Poll::Pending => state.reader = Some(cx.waker().clone()),
        }
        frame.map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        let state = self.0.state();
        state.answer.as_ref().is_some_and(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let state = self.0.state();
        match &state.answer {
            Some(answer) if !answer.is_end_stream() => answer.size_hint(),
            // To HEAD, and with 204 and 304: only the head says how long a body would be. Of a known length axum makes a header.
            _ => SizeHint::default(),
        }
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
    /// Looks at what was written; None = no word of the hub's own has a place behind it.
    pub said: Option<Exit>,
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
            if let Some(said) = &mut self.said {
                said.see(buf.get(..*n).unwrap_or_default());
            }
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

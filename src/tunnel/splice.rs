//! Two streams of two lines made one: what comes on one of them goes out on the other, and what the ends say of the
//! stream beside its bytes (FIN, STOP, RST with its code, the loss of a line) each hears as if there were one line.
//!
//! Nothing is read that the other stream has no room for, so the ends' credit bounds what lies between them.

use std::future::poll_fn;
use std::io;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};

use super::session::Said;
use super::{LineError, Stream};
use crate::wire::frame::Code;

/// What is moved at a time.
const PIECE: usize = 16 << 10;
/// After so many pieces in a row other tasks have their turn.
const TURN: usize = 16;

/// Carries until both directions have ended, or one of the streams has failed: then gives why. Each end was told by
/// then: the far one, which is an agent, hears CANCELLED where the near line was lost.
pub async fn splice(mut near: Stream, mut far: Stream) -> Result<(), LineError> {
    let (mut there, mut back) = (Way::default(), Way::default());
    let over = poll_fn(|cx| {
        // What an end says comes before its bytes: who gave up is not read to the end first.
        let (one, other) = (near.poll_said(cx), far.poll_said(cx));
        if let Some(error) = heed(one, &far, &mut there, &mut back) {
            return Poll::Ready(Over::Near(error));
        }
        if let Some(error) = heed(other, &near, &mut back, &mut there) {
            return Poll::Ready(Over::Far(error));
        }
        let moved = [
            there.carry(&mut near, &mut far, cx),
            back.carry(&mut far, &mut near, cx),
        ];
        if there.done && back.done {
            return Poll::Ready(Over::Done);
        }
        if moved.contains(&true) {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    });
    match over.await {
        // A stream that was shut down says STOP where its peer goes on.
        Over::Done => Ok(()),
        Over::Near(error) => {
            let code = match error.code {
                Code::LineLost => Code::Cancelled,
                code => code,
            };
            far.reset(code, &error.text);
            Err(error)
        }
        Over::Far(error) => {
            near.reset(error.code, &error.text);
            Err(error)
        }
    }
}

/// How it ended: where one failed, the other is still to be told.
enum Over {
    Done,
    Near(LineError),
    Far(LineError),
}

/// One direction.
#[derive(Debug, Default)]
struct Way {
    /// Read, and not taken: the room became less meanwhile.
    rest: Vec<u8>,
    /// All was read.
    ended: bool,
    /// FIN was given on: nothing more is carried.
    done: bool,
    /// The source was told that nobody reads on.
    stopped: bool,
}

/// What is to be done by the word of one end: `way` comes from it, `back` leads to it from `source`. An error ends all.
fn heed(said: Said, source: &Stream, way: &mut Way, back: &mut Way) -> Option<LineError> {
    match said {
        Said::Nothing => {}
        Said::Stop => back.stop(source),
        Said::Failed { error, whole } if !whole && !way.done => return Some(error),
        // All that it had to send has come, and goes on; RST would cost the other end the tail of it.
        Said::Failed { .. } => {
            back.stop(source);
            back.done = true;
        }
    }
    None
}

impl Way {
    /// Says to the source that nobody reads on.
    fn stop(&mut self, source: &Stream) {
        if !mem::replace(&mut self.stopped, true) {
            self.rest = Vec::new();
            source.stop(Code::None);
        }
    }

    /// Moves what can be moved now; true where there may be more at once.
    fn carry(&mut self, from: &mut Stream, to: &mut Stream, cx: &mut Context<'_>) -> bool {
        for _ in 0..TURN {
            if self.done {
                return false;
            }
            match self.step(from, to, cx) {
                Poll::Ready(Ok(())) => {}
                // The next look at the streams says what became of it.
                Poll::Ready(Err(_)) => return true,
                Poll::Pending => return false,
            }
        }
        true
    }

    fn step(
        &mut self,
        from: &mut Stream,
        to: &mut Stream,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.rest.is_empty() {
            let taken = ready!(Pin::new(to).poll_write(cx, &self.rest))?;
            self.rest.drain(..taken);
            return Poll::Ready(Ok(()));
        }
        if self.ended {
            ready!(Pin::new(to).poll_shutdown(cx))?;
            self.done = true;
            return Poll::Ready(Ok(()));
        }
        let room = to.poll_room(cx).min(PIECE);
        if room == 0 {
            return Poll::Pending;
        }
        let mut piece = [0; PIECE];
        let mut space = ReadBuf::new(&mut piece[..room]);
        ready!(Pin::new(from).poll_read(cx, &mut space))?;
        let read = space.filled();
        if read.is_empty() {
            self.ended = true;
            return Poll::Ready(Ok(()));
        }
        let taken = match Pin::new(to).poll_write(cx, read)? {
            Poll::Ready(taken) => taken,
            Poll::Pending => 0,
        };
        self.rest.extend_from_slice(&read[taken..]);
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests;

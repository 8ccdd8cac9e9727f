//! The one loop between connection, timer, commands and the session. It never waits for the peer to read: what is
//! written waits beside what is read.

use std::future::{Future as _, poll_fn};
use std::io;
use std::mem;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::futures::Notified;
use tokio::time::{Sleep, timeout};
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

use super::super::Ended;
use super::super::session::Over;
use super::super::websocket::close;
use super::shared::Shared;
use super::socket::{Socket, SocketError};
use super::{CLOSING, FLUSH, now};
use crate::wire::frame::Code;

/// Runs a line to its end.
pub(super) async fn run<S>(
    shared: Arc<Shared>,
    mut socket: Socket<S>,
    stop: CancellationToken,
) -> Ended
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (ended, code) = serve(&shared, &mut socket, &stop).await;
    let ended = shared.end(ended);
    // The last frames and the close code go out if the peer takes them; it is not waited for long, and where it was not heard
    // any more not at all: whoever runs the line is to know now.
    let patience = match ended.code {
        Code::LineLost => Duration::ZERO,
        _ => CLOSING,
    };
    let goodbye = async {
        poll_fn(|cx| socket.poll_send(cx)).await?;
        put(&shared, &mut socket);
        socket.close(code).await?;
        socket.rest().await;
        Ok::<_, io::Error>(())
    };
    match timeout(patience, goodbye).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "close the line's connection"),
        Err(_) => tracing::debug!("the peer took no goodbye"),
    }
    ended
}

/// What the loop waits for.
struct Waits<'p, 'w> {
    stop: Pin<&'p mut WaitForCancellationFuture<'w>>,
    timer: Pin<&'p mut Sleep>,
    wake: Pin<&'p mut Notified<'w>>,
    /// Who is asked first; it changes, so that a connection that always takes does not keep it from giving.
    reads_first: bool,
}

enum Turn {
    Stopped,
    Late,
    Woken,
    Sent(io::Result<()>),
    Received(Result<Bytes, SocketError>),
}

async fn serve<S>(
    shared: &Arc<Shared>,
    socket: &mut Socket<S>,
    stop: &CancellationToken,
) -> (Ended, u16)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut waits = Waits {
        stop: pin!(stop.cancelled()),
        timer: pin!(tokio::time::sleep_until(
            shared.lock().session.poll_timeout().into()
        )),
        wake: pin!(shared.wake.notified()),
        reads_first: false,
    };
    let (mut fired, mut leaving) = (false, None);
    loop {
        if !socket.is_sending() {
            let together = shared.lock().session.together(now());
            (0..together).any(|_| !put(shared, socket));
        }
        let (mut timeout, over, sent) = {
            let state = shared.lock();
            let sent = !socket.is_sending() && !state.session.has_transmit();
            let over = state.session.over().cloned();
            (state.session.poll_timeout(), over, sent)
        };
        if let Some(over) = over {
            timeout = *leaving.get_or_insert_with(|| now() + flush(&over));
            if sent || now() >= timeout {
                return finished(over);
            }
        }
        // A timer that fires too early asks again; one that is too late has to be moved.
        if mem::take(&mut fired) || waits.timer.deadline().into_std() > timeout {
            waits.timer.as_mut().reset(timeout.into());
        }
        match poll_fn(|cx| waits.poll(socket, cx)).await {
            Turn::Stopped => {
                shared.with(|state| state.session.leave(Code::Draining, "the process stops"));
                let text = "stopped".to_owned();
                return (
                    Ended {
                        code: Code::Draining,
                        text,
                        retry_after: None,
                        by_peer: false,
                        silence: Duration::ZERO,
                    },
                    close::AWAY,
                );
            }
            Turn::Late => {
                fired = true;
                shared.with(|state| {
                    state.session.heard(socket.heard());
                    state.session.handle_timeout(now());
                });
            }
            Turn::Woken => waits.wake.set(shared.wake.notified()),
            Turn::Sent(Ok(())) => {}
            Turn::Sent(Err(error)) => return (lost(own_words(&error.to_string())), close::AWAY),
            Turn::Received(Ok(message)) => {
                let len = u64::try_from(message.len()).unwrap_or_default();
                shared.received.fetch_add(len, Ordering::Relaxed);
                shared.with(|state| state.session.handle_message(now(), message));
            }
            Turn::Received(Err(error)) => return broken(shared, &error),
        }
    }
}

impl Waits<'_, '_> {
    fn poll<S>(&mut self, socket: &mut Socket<S>, cx: &mut Context<'_>) -> Poll<Turn>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        if self.stop.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Turn::Stopped);
        }
        if self.timer.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Turn::Late);
        }
        self.reads_first = !self.reads_first;
        if self.reads_first
            && let Poll::Ready(received) = socket.poll_message(cx)
        {
            return Poll::Ready(Turn::Received(received));
        }
        if socket.has_output()
            && let Poll::Ready(sent) = socket.poll_send(cx)
        {
            return Poll::Ready(Turn::Sent(sent));
        }
        if !self.reads_first
            && let Poll::Ready(received) = socket.poll_message(cx)
        {
            return Poll::Ready(Turn::Received(received));
        }
        self.wake.as_mut().poll(cx).map(|()| Turn::Woken)
    }
}

/// Takes the session's next message onto the connection; false where there is none.
fn put<S>(shared: &Arc<Shared>, socket: &mut Socket<S>) -> bool
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    if !shared.lock().session.has_transmit() {
        return false;
    }
    let len = socket.put(|out| {
        shared.with(|state| state.session.poll_transmit(now(), out));
    });
    shared
        .sent
        .fetch_add(u64::try_from(len).unwrap_or_default(), Ordering::Relaxed);
    len > 0
}

/// How long the last messages of a line may take to leave. Nobody takes those of one that is dead.
fn flush(over: &Over) -> Duration {
    if over.code == Code::LineLost {
        Duration::ZERO
    } else {
        FLUSH
    }
}

fn finished(over: Over) -> (Ended, u16) {
    let code = if over.fault {
        close::PROTOCOL
    } else {
        close::NORMAL
    };
    let retry_after = over
        .by_peer
        .as_ref()
        .map(|goaway| Duration::from_millis(goaway.retry_after_ms.into()));
    let by_peer = over.by_peer.is_some();
    (
        Ended {
            code: over.code,
            text: over.text,
            retry_after,
            by_peer,
            silence: over.silence,
        },
        code,
    )
}

pub(super) fn lost(text: &str) -> Ended {
    Ended {
        code: Code::LineLost,
        text: text.to_owned(),
        retry_after: None,
        by_peer: false,
        silence: Duration::ZERO,
    }
}

/// Without the address of a library's manual, with which an error of TLS may end: people read this in a condition.
fn own_words(error: &str) -> &str {
    error.split_once(": https://").map_or(error, |(own, _)| own)
}

/// What to say of a connection that gives no more messages.
fn broken(shared: &Shared, error: &SocketError) -> (Ended, u16) {
    let code = match error {
        SocketError::Closed => return (closed(shared), close::NORMAL),
        SocketError::Framing(framing) => framing.code,
        SocketError::Io(_) => return (lost(own_words(&error.to_string())), close::AWAY),
    };
    let ended = Ended {
        code: Code::Protocol,
        text: error.to_string(),
        retry_after: None,
        by_peer: false,
        silence: Duration::ZERO,
    };
    (ended, code)
}

/// The peer closed: with the reason that its GOAWAY gave, if it gave one.
fn closed(shared: &Shared) -> Ended {
    match &shared.phase.borrow().draining {
        Some(goaway) => Ended {
            code: goaway.code,
            text: goaway.text.clone(),
            retry_after: Some(Duration::from_millis(goaway.retry_after_ms.into())),
            by_peer: true,
            silence: Duration::ZERO,
        },
        None => lost("the peer closed the connection"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_broke_is_told_of_without_a_librarys_manual() {
        let said = "peer closed connection without sending TLS close_notify";
        let linked = format!("{said}: https://docs.rs/rustls/latest/rustls/manual/index.html");
        assert_eq!([linked.as_str(), said].map(own_words), [said, said]);
    }
}

//! The line's connection and its streams: one loop moves bytes between the two.
//!
//! One task a line, which the caller runs. The session lives behind a lock that is held for a few copies and never
//! over an await; streams work on it directly and wake the loop where something is to be sent.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use time::OffsetDateTime;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::session::{Config, Session};
use super::{Ended, Incoming, LineError, LineFacts, LineLoad, Stream};
use crate::clock::Steady;
use crate::wire::frame::{Class, Code, Goaway, Kind};

mod ahead;
mod exchange;
mod memory;
mod run;
mod shared;
mod socket;

pub use ahead::Ahead;
pub use exchange::{ExchangeError, receive, refuse, reject, send};
pub use memory::memory;
pub(super) use shared::Shared;
use shared::{Phase, State};
pub use socket::{Socket, SocketError, TLS_BUFFER, tune, tune_for_anybody};

/// A goodbye that the peer does not take in this time is not waited for.
const CLOSING: Duration = Duration::from_secs(2);

/// What was written before the end of a line, the last bytes of finished streams among it, has this long to leave.
const FLUSH: Duration = Duration::from_secs(10);

/// What stays the same while a line lives.
#[derive(Debug, Clone)]
pub struct Identity {
    pub epoch: u64,
    pub session: String,
    pub remote: String,
    pub instance: String,
    pub since: OffsetDateTime,
    /// The hub's, as WELCOME told it; the same at both ends.
    pub hub_clock: Steady,
    /// The age at which something on the way ends this agent's lines, where it found that out.
    pub cap: Option<Duration>,
}

/// Handle of a running line; clones mean the same line.
#[derive(Clone)]
pub struct Line {
    shared: Arc<Shared>,
}

/// The driver's clock, which tests can pause.
pub(super) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// A line over an authenticated WebSocket, and the future that runs it: whoever awaits that owns the line.
/// Streams of the peer go to `incoming`; when it is full they are refused.
pub fn line<S>(
    mut socket: Socket<S>,
    config: Config,
    identity: Identity,
    incoming: mpsc::Sender<Incoming>,
    stop: CancellationToken,
) -> (Line, impl Future<Output = Ended> + Send + 'static)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    socket.proven();
    let shared = Arc::new(Shared {
        state: Mutex::new(State::new(Session::new(now(), config))),
        wake: Notify::new(),
        phase: watch::Sender::new(Phase::default()),
        identity,
        incoming,
        sent: AtomicU64::new(0),
        received: AtomicU64::new(0),
        begun: now(),
    });
    let run = run::run(shared.clone(), socket, stop);
    (Line { shared }, run)
}

impl Line {
    pub(super) fn of(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Opens a stream. Does not wait for the peer: its refusal comes as an error of the stream.
    #[expect(
        clippy::unused_async,
        reason = "callers must not depend on that opening never waits"
    )]
    pub async fn open(&self, kind: Kind, class: Class, meta: Bytes) -> Result<Stream, LineError> {
        let id = self
            .shared
            .with(|state| state.session.open(now(), kind, class, meta))?;
        Ok(Stream::new(self.shared.clone(), id))
    }

    pub fn facts(&self) -> LineFacts {
        let (rtt, live, opened, draining) = self.shared.with(|state| {
            let session = &state.session;
            (
                session.rtt(),
                session.live(),
                session.counts().0,
                session.is_draining(),
            )
        });
        let Identity {
            epoch,
            session,
            remote,
            instance,
            since,
            hub_clock: _,
            cap,
        } = self.shared.identity.clone();
        let sent = self.shared.sent.load(Ordering::Relaxed);
        let received = self.shared.received.load(Ordering::Relaxed);
        LineFacts {
            epoch,
            session,
            remote,
            instance,
            since,
            cap,
            rtt,
            live,
            opened,
            draining,
            sent,
            received,
        }
    }

    /// The time by which both ends judge what is said on this line, whatever became of their wall clocks.
    pub fn hub_now(&self) -> OffsetDateTime {
        self.shared.identity.hub_clock.at(now())
    }

    /// How old it is, whatever became of the wall clock.
    pub fn age(&self) -> Duration {
        now().saturating_duration_since(self.shared.begun)
    }

    /// What it carries now; looks at every stream.
    pub fn load(&self) -> LineLoad {
        self.shared.with(|state| state.session.load())
    }

    /// Opens no more streams and asks the peer for the same; the line ends when it is empty or after `drain`.
    pub fn goaway(&self, code: Code, retry_after: Duration, drain: Duration, text: &str) {
        let millis = |time: Duration| u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
        let goaway = Goaway {
            code,
            retry_after_ms: millis(retry_after),
            drain_ms: millis(drain),
            text: text.to_owned(),
        };
        self.shared.with(|state| state.session.drain(now(), goaway));
        // A drain that is over at once has no timer yet.
        self.shared.wake.notify_one();
    }

    /// Asks the peer for a sign of life; [`Line::answered`] says whether one came.
    pub fn ask(&self) {
        self.shared.with(|state| state.session.ask());
    }

    /// Whether the peer answered since it was asked last.
    pub fn answered(&self) -> bool {
        self.shared.with(|state| state.session.answered())
    }

    /// Says goodbye and ends the line now.
    pub fn close(&self, code: Code, text: &str) {
        self.shared.with(|state| state.session.leave(code, text));
        self.shared.wake.notify_one();
    }

    /// Completes when either end takes no new streams any more: with the peer's or our own wish.
    pub async fn draining(&self) -> Goaway {
        let mut phase = self.shared.phase.subscribe();
        let found = phase
            .wait_for(|phase| phase.draining.is_some() || phase.ended.is_some())
            .await;
        found
            .ok()
            .and_then(|phase| phase.draining.clone())
            .unwrap_or_else(|| Goaway {
                code: Code::LineLost,
                retry_after_ms: 0,
                drain_ms: 0,
                text: String::new(),
            })
    }

    /// Completes when the line has ended.
    pub async fn closed(&self) -> Ended {
        let mut phase = self.shared.phase.subscribe();
        let ended = phase.wait_for(|phase| phase.ended.is_some()).await;
        ended
            .ok()
            .and_then(|phase| phase.ended.clone())
            .unwrap_or_else(|| run::lost("the line ended"))
    }

    /// Whether it has ended; so by the time that a stream fails with it. `LINE_LOST` of a stream alone may be the word of the peer.
    pub fn is_over(&self) -> bool {
        self.shared.phase.borrow().ended.is_some()
    }

    /// False from the first GOAWAY on.
    pub fn takes_streams(&self) -> bool {
        let phase = self.shared.phase.borrow();
        phase.draining.is_none() && phase.ended.is_none()
    }
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Line(epoch {}, {})",
            self.shared.identity.epoch, self.shared.identity.remote
        )
    }
}

#[cfg(test)]
mod tests;

//! Dial the hub, back off, keep the line and hand out its streams.
//!
//! A line that drains is replaced before it ends, and so is one that nears the age at which something on the way ends
//! it; one that breaks is dialled again with full jitter. A hub that refuses this agent is asked again, slowly: keys are
//! never given up here. A new identity key moves the line at once, make before break.

use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

use time::OffsetDateTime;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::agent::identity::Identity;
use crate::clock;
use crate::keys::Public;
use crate::secret::Secret;
use crate::tunnel::{Ended, Incoming, Line};
use crate::wire::api::{AgentBuild, HubKey, HubRef};
use crate::wire::frame::{Code, Goaway};
use crate::wire::id::ClusterName;

mod cap;
mod dial;
mod transport;
mod up;
mod wait;
mod way;

pub use dial::DialError;
pub use transport::is_old_tls;
pub use way::Around;

use cap::Ages;

/// A line that held so long was healthy: the next break starts the schedule anew.
const HEALTHY: Duration = Duration::from_mins(1);
/// What streams have to end when the agent stops, of the 30 s that its Pod has.
pub const DRAIN: Duration = Duration::from_secs(15);
/// All that the link needs to know. The hub's record (CA, URLs, keys) and the way there may change while it runs.
#[derive(Debug)]
pub struct LinkConfig {
    pub hub: watch::Receiver<HubRef>,
    pub cluster: ClusterName,
    pub keys: watch::Receiver<Identity>,
    pub build: AgentBuild,
    /// UUID of this process.
    pub instance: String,
    pub proxy: watch::Receiver<Option<ProxyConfig>>,
}

/// An HTTP proxy that is asked to CONNECT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyConfig {
    /// `host:port`
    pub address: String,
    /// `user:password`
    pub credentials: Option<Secret<String>>,
    /// As in `NO_PROXY`: what is dialled directly ([`crate::manifests::bypass::bypassed`]).
    pub bypass: Vec<String>,
}

/// Is there a line?
#[derive(Debug, Clone)]
pub enum LinkState {
    Down {
        since: OffsetDateTime,
        /// What went wrong last, for people.
        cause: String,
        /// Dials since the line was up.
        attempt: u32,
        /// Whoever answered the last dial is not the hub by the CA and keys that are in force: it may have others now.
        strange: bool,
    },
    Up {
        line: Line,
        /// Keys whose assertions are good on this line: those that are kept of the hub, and until these change those of its
        /// handshake.
        keyset: Vec<HubKey>,
    },
}

/// Keeps a line to the hub until `stop`, then drains it. Streams that the hub opens go to `incoming`; when it is full they are
/// refused.
pub async fn run(
    config: LinkConfig,
    line: watch::Sender<LinkState>,
    incoming: mpsc::Sender<Incoming>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let mut lines = JoinSet::new();
    let mut held: Option<Line> = None;
    let mut ages = Ages::default();
    let mut attempt = 0;
    while !stop.is_cancelled() {
        recovered(config.keys.clone(), &line, &stop).await;
        // Of one that has ended nothing is held: a hub that is told so ends what it still takes for running there.
        held = held.filter(|line| !line.is_over());
        let used = config.keys.borrow().identity.public();
        let mut known = config.hub.borrow().clone();
        let mut way = config.proxy.borrow().clone();
        let dialled = Box::pin(dial::dial(
            &config,
            held.as_ref(),
            ages.cap(),
            incoming.clone(),
        ));
        let Some(dialled) = stop.run_until_cancelled(dialled).await else {
            break;
        };
        let (wait, asked) = match dialled {
            Ok(dialled) => {
                // Streams that it brings are judged by the keys that are told with it: it is told first.
                let (up, driven) = dialled.published(&line);
                lines.spawn(drained(up.clone(), driven, stop.clone()));
                info!(cluster = %config.cluster, line = ?up, "line up");
                let kept = tokio::select! {
                    kept = keep(&up, &mut ages, &stop) => kept,
                    () = replaced(config.keys.clone(), used) => Kept::OtherKey,
                    never = followed(config.hub.clone(), known.keyset.clone(), &line) => match never {},
                };
                // What changed while it was up hurries nobody now: the wait spreads the agents, and leaves another one its line.
                (known, way) = (config.hub.borrow().clone(), config.proxy.borrow().clone());
                held = Some(up);
                let (wait, next_attempt) = next(kept, attempt, &line);
                attempt = next_attempt;
                (wait, true)
            }
            Err(error) => {
                held = held.filter(|line| !line.is_over());
                failed(&line, held.is_some(), attempt, &error);
                let wait = wait::after_failure(&error, attempt, clock::unit());
                attempt = attempt.saturating_add(1);
                (wait, wait::is_asked(&error))
            }
        };
        while let Some(lived) = lines.try_join_next() {
            if lived.is_ok_and(|age| ages.lived(age)) {
                info!(
                    "a line outlived the limit that lines seemed to have; they are no longer renewed"
                );
            }
        }
        let other = async {
            tokio::select! {
                () = replaced(config.keys.clone(), used) => {}
                () = changed(config.hub.clone(), &known) => {}
                () = changed(config.proxy.clone(), &way) => {}
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            counted = waited(wait, asked, held.as_ref(), &line) => attempt = counted.unwrap_or(attempt),
            () = other => attempt = 0,
        }
    }
    // Each line drains by itself when `stop` fires.
    while lines.join_next().await.is_some() {}
    Ok(())
}

/// Waits while the hub cannot know the identity key, because the one before was lost.
async fn recovered(
    mut keys: watch::Receiver<Identity>,
    state: &watch::Sender<LinkState>,
    stop: &CancellationToken,
) {
    if !keys.borrow().lost {
        return;
    }
    state.send_replace(LinkState::Down {
        since: clock::now(),
        cause: "the identity key was lost and is being recovered".to_owned(),
        attempt: 0,
        strange: false,
    });
    let known = async { keys.wait_for(|keys| !keys.lost).await.is_ok() };
    // Without a sender there is nothing to wait for but the stop.
    if stop.run_until_cancelled(known).await == Some(false) {
        stop.cancelled().await;
    }
}

/// Waits until the identity key is another than `used`.
async fn replaced(mut keys: watch::Receiver<Identity>, used: Public) {
    let other = keys.wait_for(|keys| keys.identity.public() != used);
    let gone = other.await.is_err();
    if gone {
        // Nobody is left to replace it.
        std::future::pending::<()>().await;
    }
}

/// Waits for the next dial, and says the attempt to count from where that is another one now. While a line drained nobody took
/// the next one, it may be for minutes. It was a good line, and whoever comes after it may be there as soon as it has ended; where
/// the agent was `asked` to wait, that stands.
async fn waited(
    wait: Duration,
    asked: bool,
    held: Option<&Line>,
    state: &watch::Sender<LinkState>,
) -> Option<u32> {
    let mut until = Instant::now() + wait;
    let ended = tokio::select! {
        () = sleep_until(until) => return None,
        ended = over(held) => ended,
    };
    if matches!(*state.borrow(), LinkState::Up { .. }) {
        down(state, 0, &ended);
    }
    if !asked {
        until = until.min(Instant::now() + wait::after_end(&ended, 0, clock::unit()));
    }
    sleep_until(until).await;
    (!asked).then_some(1)
}

/// How a line that drains ended: a wait for the next one may be longer than that takes. Never completes where there is none.
async fn over(held: Option<&Line>) -> Ended {
    match held {
        Some(held) => held.closed().await,
        None => std::future::pending().await,
    }
}

/// Waits until something of the hub, or of the way there, is not as `known` any more.
async fn changed<T: PartialEq>(mut now: watch::Receiver<T>, known: &T) {
    let gone = now.wait_for(|now| now != known).await.is_err();
    if gone {
        // Nobody is left to change it.
        std::future::pending::<()>().await;
    }
}

/// The hub's keys that are kept now count on the line too: it signs with the next one without another handshake.
async fn followed(
    mut hub: watch::Receiver<HubRef>,
    mut known: Vec<HubKey>,
    state: &watch::Sender<LinkState>,
) -> Infallible {
    loop {
        let Ok(other) = hub.wait_for(|hub| hub.keyset != known).await else {
            return std::future::pending().await;
        };
        known.clone_from(&other.keyset);
        drop(other);
        state.send_if_modified(|state| match state {
            LinkState::Up { keyset, .. } if *keyset != known => {
                keyset.clone_from(&known);
                true
            }
            LinkState::Up { .. } | LinkState::Down { .. } => false,
        });
    }
}

/// Runs a line, and says how old it got. When `stop` fires it takes no new streams, and those that run have [`DRAIN`].
async fn drained(
    line: Line,
    run: impl Future<Output = Ended> + Send,
    stop: CancellationToken,
) -> Duration {
    let since = Instant::now();
    tokio::pin!(run);
    tokio::select! {
        _ended = &mut run => return since.elapsed(),
        () = stop.cancelled() => {}
    }
    line.goaway(Code::Draining, Duration::ZERO, DRAIN, "the agent stops");
    run.await;
    since.elapsed()
}

/// Why a line needs a successor.
enum Kept {
    Ended {
        ended: Ended,
        healthy: bool,
    },
    Draining {
        goaway: Goaway,
        healthy: bool,
    },
    /// It works, but something on the way will end it soon.
    Aged,
    /// The identity key that it was dialled with is not the present one any more.
    OtherKey,
    Stopped,
}

/// Holds a line until it has to be replaced.
async fn keep(line: &Line, ages: &mut Ages, stop: &CancellationToken) -> Kept {
    let since = Instant::now();
    let renewal = ages.renewal();
    let at_age = async {
        match renewal {
            Some(age) => sleep_until(since + age).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        // A line that ended does not drain any more either: what it ended with comes first.
        biased;
        ended = line.closed() => {
            let age = since.elapsed();
            if ended.code == Code::LineLost && ages.broke(age) {
                let (cap, renewal) = (ages.cap(), ages.renewal());
                warn!(?cap, ?renewal, "something between agent and hub ends lines at this age; they are renewed before it");
            }
            Kept::Ended { ended, healthy: age >= HEALTHY }
        }
        goaway = line.draining() => Kept::Draining { goaway, healthy: since.elapsed() >= HEALTHY },
        () = at_age => Kept::Aged,
        () = stop.cancelled() => Kept::Stopped,
    }
}

/// How long to wait before the next dial, and the attempt to count from.
fn next(kept: Kept, attempt: u32, state: &watch::Sender<LinkState>) -> (Duration, u32) {
    match kept {
        Kept::Ended { ended, healthy } => {
            let attempt = if healthy { 0 } else { attempt };
            down(state, attempt, &ended);
            let wait = wait::after_end(&ended, attempt, clock::unit());
            (wait, attempt.saturating_add(1))
        }
        Kept::Draining { goaway, healthy } => {
            info!(code = %goaway.code, text = goaway.text, "the hub drains the line");
            let attempt = if healthy { 0 } else { attempt };
            wait::after_goaway(&goaway, attempt, clock::unit())
        }
        Kept::Aged => {
            info!("the line is renewed before something on the way ends it");
            (Duration::ZERO, 0)
        }
        Kept::OtherKey => {
            info!("the identity key is another now; moving the line");
            (Duration::ZERO, 0)
        }
        Kept::Stopped => (Duration::ZERO, 0),
    }
}

fn down(state: &watch::Sender<LinkState>, attempt: u32, ended: &Ended) {
    let cause = format!("{}: {}", ended.code, ended.text);
    info!(cause, "line down");
    state.send_replace(LinkState::Down {
        since: clock::now(),
        cause,
        attempt,
        strange: false,
    });
}

/// Keeps `since` of the first failure. A line that still drains stays in place.
fn failed(state: &watch::Sender<LinkState>, is_held: bool, attempt: u32, error: &DialError) {
    let cause = error.chain();
    warn!(attempt, cause, "dial the hub");
    if is_held {
        return;
    }
    state.send_modify(|state| {
        let since = match state {
            LinkState::Down { since, .. } => *since,
            LinkState::Up { .. } => clock::now(),
        };
        *state = LinkState::Down {
            since,
            cause,
            attempt: attempt.saturating_add(1),
            strange: error.is_strange(),
        };
    });
}

//! Serves each `api` stream of the line: hyper server, gate, hyper client to the kube-apiserver as the
//! user that the hub asserts. Streams meet the token of `linesman-line` only; the agent's own client is
//! given to the keepers of token and role, which no stream reaches.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info, warn};

use crate::agent::enroll::stored::{self, within};
use crate::agent::gate::policy::Policy;
use crate::agent::gate::replay::Replay;
use crate::agent::gate::{Covered, Running};
use crate::agent::link::{self, LinkState};
use crate::assertion::ApiMeta;
use crate::lifetime::Tasks;
use crate::lifetime::hearts::{Heart, Hearts, STILL};
use crate::tunnel::switched::Ahead;
use crate::tunnel::{Incoming, Line, Stream};
use crate::wire::api::HubKey;
use crate::wire::frame::{Code, Kind};

pub mod credential;
pub mod exchange;
mod refused;
mod running;
mod send;
pub mod subjects;
mod upload;
pub mod upstream;

use exchange::{Exchange, Shared};
use subjects::Keeper;
pub use subjects::Subjects;
use upstream::{Credential, Upstream};

/// What the forwarder works with.
pub struct Context {
    /// The agent's own client: for token and role. No stream reaches it.
    pub kube: kube::Client,
    /// Where the API server is; only address and CA of it are used.
    pub server: kube::Config,
    /// The agent's namespace.
    pub namespace: String,
    /// Where Argo CD is, or would be.
    pub argocd: String,
    pub hub_id: String,
    pub cluster_id: String,
    pub policy: watch::Receiver<Option<Policy>>,
    pub covered: watch::Receiver<Covered>,
    /// For the pulses of its tasks, and those that its keepers let beat themselves.
    pub hearts: Hearts,
}

/// Streams served at once; a watch is one.
const STREAMS: usize = 4_096;
/// What is read ahead of users whose sessions are slower than the API server, in bytes.
const AHEAD: usize = 24 << 20;
/// Streams that wait to be served. Requests that waited for the line come all at once, and one message opens thousands: none is
/// refused for its company while there is room to serve it.
pub const INCOMING: usize = STREAMS;
/// What exchanges have to notice that their line ended.
const LAST: Duration = Duration::from_secs(1);
/// How old a line is at least that is given up because of its clock.
const RENEWABLE: Duration = Duration::from_mins(1);
/// What runs on such a line has this long, as on any that has a successor: what it runs by was judged when it began.
const MOVE: Duration = Duration::from_mins(10);
/// First uses of names that wait for the role.
const WANTS: usize = 1_024;
/// How long after `stop` exchanges may run on; their lines drain by then.
const DRAIN: Duration = link::DRAIN.saturating_add(Duration::from_secs(2));

/// Serves the line's `api` streams until `stop` and while their lines drain, and keeps token and role.
pub async fn run(
    context: Context,
    incoming: mpsc::Receiver<Incoming>,
    link: watch::Receiver<LinkState>,
    subjects: watch::Receiver<Subjects>,
    stop: CancellationToken,
) -> Result<()> {
    // What exchanges rely on is kept until the last of them has ended.
    let mut tasks = Tasks::watched(CancellationToken::new(), &context.hearts);
    let shared = Arc::new(keepers(context, subjects, &mut tasks)?);
    tasks.spawn("streams", |_| streams(shared, incoming, link, stop));
    tasks.run(Duration::from_secs(2)).await
}

/// Starts what the exchanges rely on. The agent's own client goes here and no further.
pub fn keepers(
    context: Context,
    granted: watch::Receiver<Subjects>,
    tasks: &mut Tasks,
) -> Result<Shared> {
    let Context {
        kube,
        server,
        namespace,
        argocd,
        hub_id,
        cluster_id,
        policy,
        covered,
        hearts,
    } = context;
    let (token, credential) = watch::channel(Credential::Starting);
    let (renew, renewals) = mpsc::channel(1);
    let (wants, wanted) = mpsc::channel(WANTS);
    let (allowed, known) = watch::channel(BTreeSet::new());
    let upstream = Upstream::new(&server, credential, renew)?;
    let keeper = Keeper {
        kube: kube.clone(),
        upstream: upstream.clone(),
        granted,
        policy: policy.clone(),
        allowed,
        heart: hearts.heart("line subjects", STILL),
    };
    let tokens = credential::Keeper {
        kube,
        namespace: namespace.clone(),
        publish: token,
        heart: hearts.heart("line token", STILL),
    };
    tasks.spawn("line token", |stop| {
        credential::keep(tokens, renewals, stop)
    });
    tasks.spawn("line subjects", |stop| subjects::keep(keeper, wanted, stop));
    let replay = Mutex::new(Replay::default());
    let switched = TaskTracker::new();
    Ok(Shared {
        hub_id,
        cluster_id,
        namespace,
        argocd,
        upstream,
        policy,
        covered,
        allowed: known,
        wants,
        replay,
        switched,
        ahead: Ahead::new(AHEAD),
    })
}

/// A keeper's call to the API server: it has a deadline, and shows that the keeper lives.
async fn call<T>(heart: &Heart, call: impl Future<Output = kube::Result<T>>) -> Result<T> {
    let _wait = heart.wait(stored::DEADLINE);
    within(call).await
}

/// Serves each stream that comes, as many at once as [`INCOMING`], until `stop` and while their lines drain.
pub async fn streams(
    shared: Arc<Shared>,
    mut incoming: mpsc::Receiver<Incoming>,
    link: watch::Receiver<LinkState>,
    stop: CancellationToken,
) -> Result<()> {
    // The last that a handshake said: streams of a line that drains need them too.
    let mut keyset = Vec::new();
    let mut running = JoinSet::new();
    let over = async {
        stop.cancelled().await;
        sleep(DRAIN).await;
    };
    tokio::pin!(over);
    loop {
        let arrived = tokio::select! {
            // Until then the lines drain; their end is the end of `incoming`.
            () = &mut over => break,
            Some(ended) = running.join_next(), if !running.is_empty() => {
                report_panic(ended);
                continue;
            }
            arrived = incoming.recv() => match arrived {
                Some(arrived) => arrived,
                None => break,
            },
        };
        // The link tells of a line before it brings streams.
        if let LinkState::Up { keyset: said, .. } = &*link.borrow() {
            keyset.clone_from(said);
        }
        // A session goes on beside its exchange, which ended with the switch of protocols.
        if running.len() + shared.switched.len() >= STREAMS {
            arrived
                .stream
                .reset(Code::Limit, "the agent serves as many streams as it can");
            continue;
        }
        if let Some((stream, exchange)) = accept(arrived, &keyset) {
            running.spawn(serve(stream, shared.clone(), exchange));
        }
    }
    // Of a line that ended nothing can be read or written any more.
    shared.switched.close();
    let rest = async {
        while let Some(ended) = running.join_next().await {
            report_panic(ended);
        }
        shared.switched.wait().await;
    };
    if tokio::time::timeout(LAST, rest).await.is_err() {
        info!("exchanges were still running when their lines had ended");
    }
    Ok(())
}

fn report_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        warn!(%error, "an exchange ended badly");
    }
}

/// The stream with what it says of itself; refused where it is no `api` stream.
fn accept(arrived: Incoming, keyset: &[HubKey]) -> Option<(Stream, Exchange)> {
    let Incoming {
        kind,
        meta,
        stream,
        epoch,
        ..
    } = arrived;
    if kind != Kind::Api {
        stream.reset(Code::Refused, "this agent serves api streams only");
        return None;
    }
    let Ok(meta) = serde_json::from_slice::<ApiMeta>(&meta) else {
        stream.reset(Code::Protocol, "the stream's meta cannot be read");
        return None;
    };
    let line = stream.line();
    let exchange = Exchange {
        meta,
        epoch,
        keyset: keyset.to_vec(),
        hub_now: line.hub_now(),
        renew: Arc::new(move || renew(&line)),
        cancelled: stream.cancelled(),
        stop: Arc::new(stream.stopper()),
    };
    Some((stream, exchange))
}

/// Asks for another line in place of one whose ends do not agree on the time any more: one of them was suspended.
fn renew(line: &Line) {
    // Of a young one that is no clock's fault, and the next line would be no better. Its age is not the wall clock's, which
    // may be what went wrong.
    if line.age() >= RENEWABLE && line.takes_streams() {
        warn!(
            ?line,
            "hub and agent do not agree on the time any more; moving to another line"
        );
        let text = "the clocks of hub and agent went apart";
        line.goaway(Code::Draining, Duration::ZERO, MOVE, text);
    }
}

/// One HTTP/1.1 exchange over `io`; ends when it is over or cancelled.
pub async fn serve<S>(io: S, shared: Arc<Shared>, exchange: Exchange)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let cancelled = exchange.cancelled.clone();
    let id = exchange.meta.id.clone();
    let (begun, mut runs) = watch::channel(None::<Running>);
    let owner = shared.clone();
    let service = service_fn(move |request| {
        let (shared, exchange) = (shared.clone(), exchange.clone());
        let answer = exchange::answer(shared, exchange, request, begun.clone());
        async move { Ok::<_, Infallible>(answer.await) }
    });
    // A watch or a log that runs ends with the access; a short request may finish.
    let over = async {
        let running = runs.wait_for(Option::is_some).await;
        match running.ok().and_then(|running| running.clone()) {
            Some(running) => running::over(running, &owner).await,
            None => std::future::pending().await,
        }
    };
    let connection = reader()
        .serve_connection(TokioIo::new(io), service)
        .with_upgrades();
    // Dropping the connection drops the request to the API server with it.
    tokio::select! {
        ended = connection => {
            if let Err(error) = ended {
                debug!(request = id, %error, "exchange ended");
            }
        }
        () = cancelled.cancelled() => debug!(request = id, "exchange cancelled"),
        () = over => {}
    }
}

/// What reads a stream's request.
pub fn reader() -> http1::Builder {
    let mut reader = http1::Builder::new();
    reader
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_secs(10))
        .half_close(true)
        .keep_alive(false)
        .auto_date_header(false)
        .max_buf_size(64 << 10);
    reader
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use time::OffsetDateTime;

    use super::*;
    use crate::clock::Steady;
    use crate::tunnel::driver::{self, Identity, Socket};
    use crate::tunnel::session::{Config, Role};

    /// A wall clock that is set right while a line is up makes it neither old nor young.
    #[tokio::test(start_paused = true)]
    async fn a_line_is_as_old_as_it_is_whatever_the_wall_clock_says() {
        let long_ago = OffsetDateTime::UNIX_EPOCH;
        let to_come = OffsetDateTime::UNIX_EPOCH + time::Duration::days(365 * 200);
        for since in [long_ago, to_come] {
            let identity = Identity {
                epoch: 1,
                session: String::new(),
                remote: String::new(),
                instance: String::new(),
                since,
                hub_clock: Steady::new(0, std::time::Instant::now()),
                cap: None,
            };
            let socket = Socket::new(tokio::io::duplex(64).0, Role::Agent, Bytes::new());
            let (streams, stop) = (mpsc::channel(1).0, CancellationToken::new());
            let config = Config::new(Role::Agent);
            let (line, _run) = driver::line(socket, config, identity, streams, stop);
            renew(&line);
            assert!(line.takes_streams(), "a young line is kept: {since}");
            tokio::time::advance(RENEWABLE).await;
            renew(&line);
            assert!(!line.takes_streams(), "an old one is replaced: {since}");
            // A session that runs there knows nothing of the time.
            assert_eq!(line.draining().await.drain_ms, 600_000);
        }
    }
}

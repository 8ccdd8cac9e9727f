//! The line's endpoint: WebSocket upgrade, handshake, and the streams that the agent opens.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use bytes::Bytes;
use http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use tracing::{debug, info, warn};

use super::problem::{Problem, Slug};
use super::{Remote, agents};
use crate::clock;
use crate::hub::Hub;
use crate::hub::audit::{Entry, Verdict};
use crate::hub::auth::AgentPrincipal;
use crate::hub::twin::takeovers::Holder;
use crate::hub::{directory, gitline};
use crate::tunnel::driver::{self, Identity};
use crate::tunnel::handshake::{Limits, SUBPROTOCOL};
use crate::tunnel::session::{Config, Role};
use crate::tunnel::{Incoming, Line, Stream};
use crate::wire::api::FOLLOWS_KEYS;
use crate::wire::frame::{Code, Kind};
use crate::wire::id::ClusterName;

mod proof;

use proof::{Proven, prove};

/// Where agents ask for their line.
pub const PATH: &str = "/v1/line";
/// From the answer 101 to the first byte.
const UPGRADED: Duration = Duration::from_secs(10);
/// Streams of an agent that wait to be served, and that are served at once.
const WAITING: usize = 64;
const MAX_REPORTS: usize = 64;
/// When the hub stops, requests that are on their way to it by then still find their line.
const LAST_REQUESTS: Duration = Duration::from_secs(1);
/// The agent's calls have this long to end when the hub stops.
const ENDING: Duration = Duration::from_secs(2);

/// Agents that have to dial anew because of the hub's next key do so spread over this time; what runs on their lines has a
/// while to end.
const KEYS_SPREAD: Duration = Duration::from_secs(5);
const MOVE: Duration = Duration::from_mins(10);

type Socket = driver::Socket<TokioIo<Upgraded>>;

pub fn routes() -> Router<Arc<Hub>> {
    Router::new().route(PATH, get(upgrade))
}

/// Answers the upgrade; who asks shows in the handshake behind it.
async fn upgrade(State(hub): State<Arc<Hub>>, mut request: Request) -> Response {
    let Some(accept) = accept_key(request.headers()) else {
        let text = format!("this is the line's endpoint: WebSocket 13, subprotocol {SUBPROTOCOL}");
        return Problem::new(Slug::BadRequest, text, "agents dial it by themselves")
            .into_response();
    };
    let Some(upgrade) = request.extensions_mut().remove::<OnUpgrade>() else {
        let text = "the line needs HTTP/1.1";
        return Problem::new(
            Slug::BadRequest,
            text,
            "let the proxy before the hub pass the upgrade",
        )
        .into_response();
    };
    let Ok(place) = hub.tunnels.unproven.clone().try_acquire_owned() else {
        return (
            StatusCode::SERVICE_UNAVAILABLE,
            [(http::header::RETRY_AFTER, "5")],
        )
            .into_response();
    };
    let remote = request.extensions().get::<Remote>().copied();
    let work = hub.clone();
    hub.work
        .spawn(async move { serve(work, upgrade, remote, place).await });
    let head = [
        (UPGRADE, HeaderValue::from_static("websocket")),
        (CONNECTION, HeaderValue::from_static("upgrade")),
        (SEC_WEBSOCKET_ACCEPT, accept),
        (
            SEC_WEBSOCKET_PROTOCOL,
            HeaderValue::from_static(SUBPROTOCOL),
        ),
    ];
    (StatusCode::SWITCHING_PROTOCOLS, head).into_response()
}

/// The answer to the client's key (RFC 6455 §4.2.1), where the request is one for a line.
fn accept_key(headers: &HeaderMap) -> Option<HeaderValue> {
    let has = |name: HeaderName, word: &str| {
        let values = headers.get_all(name);
        let mut words = values
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','));
        words.any(|found| found.trim().eq_ignore_ascii_case(word))
    };
    let asked = has(UPGRADE, "websocket")
        && has(CONNECTION, "upgrade")
        && has(SEC_WEBSOCKET_VERSION, "13")
        && has(SEC_WEBSOCKET_PROTOCOL, SUBPROTOCOL);
    let key = headers.get(SEC_WEBSOCKET_KEY).filter(|_| asked)?;
    HeaderValue::from_str(&derive_accept_key(key.as_bytes())).ok()
}

async fn serve(
    hub: Arc<Hub>,
    upgrade: OnUpgrade,
    remote: Option<Remote>,
    place: OwnedSemaphorePermit,
) {
    let peer = remote.map(|remote| remote.to_string()).unwrap_or_default();
    let upgraded = match timeout(UPGRADED, upgrade).await {
        Ok(Ok(upgraded)) => upgraded,
        Ok(Err(error)) => return debug!(peer, %error, "upgrade to a line"),
        Err(_) => return debug!(peer, "upgrade to a line took too long"),
    };
    let mut socket = Socket::new(TokioIo::new(upgraded), Role::Hub, Bytes::new());
    let proven = match timeout(UPGRADED, prove(&hub, &mut socket, &peer)).await {
        Ok(Ok(proven)) => proven,
        Ok(Err(error)) => {
            if let Some(code) = error.fault() {
                warn!(peer, code, %error, "handshake of a line");
            } else {
                debug!(peer, %error, "handshake of a line");
            }
            return driver::reject(socket, &error).await;
        }
        Err(_) => return debug!(peer, "handshake of a line took too long"),
    };
    match proven {
        Some(proven) => {
            drop(place);
            run(hub, socket, proven, remote, peer).await;
        }
        None => driver::refuse(socket).await,
    }
}

async fn run(hub: Arc<Hub>, socket: Socket, proven: Proven, remote: Option<Remote>, peer: String) {
    let Proven {
        agent,
        key,
        hello,
        epoch,
        session,
        clock: hub_clock,
        told,
    } = proven;
    let cluster = agent.cluster.clone();
    let follows = hello.build.features.iter().any(|f| f == FOLLOWS_KEYS);
    let identity = Identity {
        epoch,
        session,
        remote: peer.clone(),
        instance: hello.instance,
        since: clock::now(),
        hub_clock,
        cap: hello.cap_ms.map(Duration::from_millis),
    };
    let config = Config {
        process: hub.tunnels.memory.clone(),
        unread_long: hub.config.bounds.unread_long,
        ..Limits::default().session(Role::Hub, hello.limits, clock::unit())
    };
    let (arriving, incoming) = mpsc::channel(WAITING);
    // The hub's stop drains the line; what ends it is the drain.
    let (line, running) =
        driver::line(socket, config, identity, arriving, CancellationToken::new());
    let cluster_id = agent.cluster_id.clone();
    let before = hub
        .tunnels
        .add(&cluster, &cluster_id, line.clone(), hello.resumes);
    hub.tunnels
        .proven((&cluster, &cluster_id), epoch, &key.fingerprint);
    if let Some(before) = before {
        // Put on record however soon this line ends.
        let (hub, peer) = (hub.clone(), peer.clone());
        let (cluster, id) = (cluster.clone(), cluster_id.clone());
        let work = hub.work.clone();
        work.spawn(async move { taken_over(&hub, (&cluster, &id), &peer, before).await });
    }
    info!(%cluster, epoch, peer, "line up");
    hub.presence.heard(&cluster_id, clock::now(), true);
    tokio::pin!(running);
    // In boxes: an idle line keeps no room for what is done at its ends. All of it goes on beside the line, which is in use from
    // here on, however long the store takes.
    let telling = Box::pin(async {
        // The others find the agent's next line when they hear that its former key has ended.
        let before = directory::came(&hub, &cluster, &cluster_id, &line).await;
        agents::identity::in_use(&hub, &key).await;
        if let Some(before) = before {
            taken_over(&hub, (&cluster, &cluster_id), &peer, before).await;
        }
    });
    // An agent that follows costs no more than this.
    let other_keys = async {
        if !follows {
            Box::pin(other_keys(&hub, &line, &told)).await;
        }
    };
    let serving = async {
        Box::pin(revoked_meanwhile(&hub, &line, &key.fingerprint)).await;
        streams(&hub, &line, agent, incoming, remote).await;
    };
    let ended = tokio::select! {
        ended = &mut running => ended,
        ((), (), ()) = async { tokio::join!(telling, serving, other_keys) } => running.await,
    };
    let known = hub.tunnels.remove((&cluster, &cluster_id), &line, &ended);
    Box::pin(directory::went(&hub, &cluster_id, epoch)).await;
    Box::pin(directory::last_heard(&hub, (&cluster, &cluster_id), known)).await;
    info!(%cluster, epoch, code = %ended.code, text = ended.text, "line down");
}

/// Has an agent dial anew whose line knows the hub's keys by its handshake alone: before the next key signs.
async fn other_keys(hub: &Hub, line: &Line, told: &str) {
    let mut said = hub.said.subscribe();
    let other = said.wait_for(|said| said.keys.pin().kid != told);
    let spread = async {
        if other.await.is_ok() {
            sleep(KEYS_SPREAD.mul_f64(clock::unit())).await;
            // It comes back at once: a line that drains takes no requests.
            line.goaway(
                Code::Draining,
                Duration::ZERO,
                MOVE,
                "the hub has another key",
            );
        }
    };
    hub.stop.run_until_cancelled(spread).await;
}

/// Ends a line whose key was revoked between its proof and its place among the lines: who revoked it did not see it. Where that
/// cannot be found out, its agent is to prove itself again.
async fn revoked_meanwhile(hub: &Hub, line: &Line, fingerprint: &str) {
    match hub.store.cluster_key_by_fingerprint(fingerprint).await {
        Ok(Some(key)) if !key.removed && key.state.is_valid() => {}
        Ok(_) => line.close(Code::Revoked, "the key was revoked"),
        Err(error) => {
            if !hub.store.is_away() {
                tracing::error!(error = %crate::hub::chain_of(&error), "look up an agent's key again");
            }
            line.close(Code::Unavailable, "the hub's store does not answer");
        }
    }
}

/// Another process of the agent had the line. Each such process can bring that about at any time: those of a flood are counted.
async fn taken_over(
    hub: &Hub,
    (cluster, cluster_id): (&ClusterName, &str),
    peer: &str,
    before: Holder,
) {
    let Holder { instance, remote } = before;
    hub.metrics.taken_over();
    warn!(%cluster, peer, before = remote, "another process of the agent took the line over");
    let Some(untold) = hub.paces.takeover(cluster_id, Instant::now()) else {
        return;
    };
    let mut reason = format!("instance {instance} at {remote} held it");
    if untold > 0 {
        reason = format!("{reason} ({untold} times more since the record before)");
    }
    let entry = line_entry(Some(cluster.to_string()), peer, "line.takeover", reason);
    record(hub, Verdict::Allow, entry).await;
}

/// Serves the streams that the agent opens. After the hub's stop its calls end soon, what is carried with the line.
async fn streams(
    hub: &Arc<Hub>,
    line: &Line,
    agent: AgentPrincipal,
    mut incoming: mpsc::Receiver<Incoming>,
    remote: Option<Remote>,
) {
    let (mut served, mut carried) = (JoinSet::new(), JoinSet::new());
    let stopped = async {
        hub.stop.cancelled().await;
        sleep(LAST_REQUESTS).await;
    };
    tokio::pin!(stopped);
    loop {
        tokio::select! {
            next = incoming.recv() => match next {
                None => break,
                Some(Incoming { kind: Kind::Report, stream, .. }) => {
                    if served.len() < MAX_REPORTS {
                        served.spawn(report(hub.clone(), agent.clone(), stream, remote));
                    } else {
                        stream.reset(Code::Limit, "too many calls at once");
                    }
                }
                Some(Incoming { kind: Kind::Git, stream, meta, .. }) => {
                    if carried.len() < gitline::MAX_STREAMS {
                        let (hub, cluster) = (hub.clone(), agent.cluster_id.clone());
                        carried.spawn(async move {
                            gitline::serve(&hub, &cluster, &meta, stream).await;
                        });
                    } else {
                        stream.reset(Code::Limit, "64 connections to the Git host are the most");
                    }
                }
                Some(next) => {
                    next.stream.reset(Code::Refused, "the hub does not serve streams of this kind");
                }
            },
            Some(_) = served.join_next() => {}
            Some(_) = carried.join_next() => {}
            () = &mut stopped => break,
        }
    }
    line.goaway(Code::Draining, ENDING, hub.config.drain, "the hub stops");
    let rest = async { while served.join_next().await.is_some() {} };
    drop(timeout(ENDING, rest).await);
    // The line's end cuts those that outlive the drain.
    while carried.join_next().await.is_some() {}
}

/// One HTTP exchange with the agent's routes.
async fn report(hub: Arc<Hub>, agent: AgentPrincipal, stream: Stream, remote: Option<Remote>) {
    let router = agents::line_router(hub, agent);
    let service =
        hyper::service::service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
            if let Some(remote) = remote {
                request.extensions_mut().insert(remote);
            }
            router.clone().oneshot(request)
        });
    let served = hyper::server::conn::http1::Builder::new()
        .half_close(true)
        .keep_alive(false)
        .auto_date_header(false)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        debug!(%error, "call of an agent ended");
    }
}

fn line_entry(cluster: Option<String>, peer: &str, action: &str, reason: String) -> Entry {
    Entry {
        actor: format!("agent:{}", cluster.as_deref().unwrap_or("?")),
        action: action.to_owned(),
        cluster,
        reason: Some(reason),
        remote: peer.to_owned(),
        ..Entry::default()
    }
}

async fn record(hub: &Hub, verdict: Verdict, entry: Entry) {
    let action = entry.action.clone();
    if hub.audit.event(Entry { verdict, ..entry }).await.is_err() {
        tracing::error!(action, "an event of a line could not be put on record");
    }
}

//! The HTTPS port: TLS, then HTTP/1.1 or HTTP/2, each connection within limits.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use axum::Router;
use axum::body::Body;
use http::header::{self, HeaderValue};
use http::{Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use super::forwarded::{self, Cidr};
use super::guard::{Guarded, Verdict};
use super::heads::{Clock, Part};
use super::room::{Asking, Held, Room, Seat, Sort};
use crate::hub::Hub;
use crate::hub::api::{self, Hangup, Newcomer, Refused, Remote};
use crate::hub::tls::is_old;
use crate::kubeapi::message::{self, MAX_HEAD, Violation};
use crate::tunnel::driver::{self, Ahead};

/// TLS handshakes and heads have this long: the first head from the handshake, each other one from its first byte.
const HEAD: Duration = Duration::from_secs(10);
/// What clients have, when the hub stops, to send what they are about to send.
const SETTLE: Duration = Duration::from_millis(500);
const STREAMS: u32 = 250;
/// A head of HTTP/2 as RFC 9113 counts it, 32 bytes more for each field. What is longer than we take and shorter than this is
/// refused by us, in words; what is longer yet the parser refuses, which has none.
const HEADER_LIST: usize = 2 * MAX_HEAD;
/// A connection that was told to go, and that nothing is asked on, has this long.
const GONE: Duration = Duration::from_secs(2);
/// HTTP/2 PING: finds peers that are gone behind a silent `logs -f`.
const PING: Duration = Duration::from_secs(20);

pub(super) async fn run(
    listener: TcpListener,
    hub: Arc<Hub>,
    stop: CancellationToken,
) -> Result<()> {
    let acceptor = TlsAcceptor::from(hub.tls.server_config());
    let router = api::router(hub.clone());
    let room = Room::new(hub.config.bounds.connections);
    let connections = TaskTracker::new();
    let (streams, end) = (Streams::default(), CancellationToken::new());
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let (socket, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors: what is open has to end first.
                tracing::warn!(%error, "accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (acceptor, router) = (acceptor.clone(), router.clone());
        let (hub, stop, end) = (hub.clone(), stop.clone(), end.clone());
        let from = forwarded::whose(peer.ip(), &hub.config.trusted_proxies);
        let (seat, hangup, streams) = (room.enter(from), Hangup::default(), streams.clone());
        connections.spawn(async move {
            let place = (seat.clone(), Open::new(hub));
            let place = (place, stop, (hangup.clone(), streams));
            let serving = connection(socket, peer, acceptor, router, place);
            tokio::select! {
                () = serving => {}
                () = end.cancelled() => {}
                () = hangup.0.cancelled() => tracing::debug!(%peer, "ended: its access is over, and it takes nothing in"),
                () = seat.dismissed() => tracing::debug!(%peer, "made room for another connection"),
            }
        });
    }
    drop(listener);
    connections.close();
    let drained = tokio::time::timeout(hub.config.drain, connections.wait()).await;
    if drained.is_err() {
        end.cancel();
        tracing::info!(left = connections.len(), "drain time is over");
    }
    streams.end().await;
    Ok(())
}

/// A connection in the figures, for as long as its socket lives: a line and a session, too.
struct Open {
    hub: Arc<Hub>,
}

impl Open {
    fn new(hub: Arc<Hub>) -> Self {
        hub.metrics.connections().inc();
        Self { hub }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.hub.metrics.connections().dec();
    }
}

/// A connection that has just been made, or whose client is sending, is not closed on its request.
async fn settled(stop: &CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(SETTLE).await;
}

async fn connection(
    socket: TcpStream,
    peer: SocketAddr,
    acceptor: TlsAcceptor,
    router: Router,
    ((seat, open), stop, (hangup, streams)): (
        (Arc<Seat>, Open),
        CancellationToken,
        (Hangup, Streams),
    ),
) {
    // Whether it becomes a line shows later.
    driver::tune_for_anybody(&socket);
    let tls = match tokio::time::timeout(HEAD, acceptor.accept(Ahead::new(socket))).await {
        Ok(Ok(tls)) => tls,
        Ok(Err(error)) if is_old(&error) => {
            return tracing::debug!(%peer, "TLS handshake refused: the client, or what stands before the hub, speaks no TLS 1.3");
        }
        Ok(Err(error)) => return tracing::debug!(%peer, %error, "TLS handshake"),
        Err(_) => return tracing::debug!(%peer, "TLS handshake took too long"),
    };
    // HTTP/2 has its own framing; without having been agreed on it is a bad HTTP/1 request.
    let http2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
    let trusted: Arc<[Cidr]> = open.hub.config.trusted_proxies.clone();
    let place = (seat.clone(), open);
    let guarded = if http2 {
        Guarded::http2(tls, HEAD, place)
    } else {
        Guarded::http1(tls, HEAD, place)
    };
    let verdict = guarded.verdict();
    let asked = seat.clone();
    let service = hyper::service::service_fn(move |mut request: Request<_>| {
        let client = forwarded::client(peer, request.headers_mut(), &trusted);
        request.extensions_mut().insert(Remote(client));
        ask(router.clone(), request, &verdict, (&asked, hangup.clone()))
    });
    let reader = reader(guarded.part(), streams);
    let serving = reader.serve_connection_with_upgrades(TokioIo::new(guarded), service);
    tokio::pin!(serving);
    let result = tokio::select! {
        result = &mut serving => result,
        () = settled(&stop) => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
        () = seat.unused() => {
            serving.as_mut().graceful_shutdown();
            tokio::select! {
                result = &mut serving => result,
                () = seat.idle(|| GONE) => Ok(()),
            }
        }
    };
    if let Err(error) = result {
        tracing::debug!(%peer, %error, "connection ended");
    }
}

tokio::task_local! {
    /// Of the HTTP/2 stream that runs.
    static STREAM: Hangup;
}

/// Runs the HTTP/2 streams of all connections, each so that it can be ended alone: one that is dropped is reset (CANCEL), and what it had
/// yet to send is forgotten. None outlives the port.
#[derive(Debug, Clone, Default)]
struct Streams {
    running: TaskTracker,
    end: CancellationToken,
}

impl Streams {
    /// Ends those that are left.
    async fn end(&self) {
        self.end.cancel();
        self.running.close();
        // One that keeps its thread is not waited for any longer.
        if tokio::time::timeout(GONE, self.running.wait())
            .await
            .is_err()
        {
            tracing::warn!(left = self.running.len(), "streams that do not end");
        }
    }
}

impl<S> Executor<S> for Streams
where
    S: Future<Output: Send + 'static> + Send + 'static,
{
    fn execute(&self, stream: S) {
        let hangup = Hangup::default();
        let running = STREAM.scope(hangup.clone(), stream);
        let end = self.end.clone();
        self.running.spawn(async move {
            let running = hangup.0.run_until_cancelled(running);
            end.run_until_cancelled(running).await;
        });
    }
}

/// What reads a connection's requests, behind the [`Guarded`] that has this part of a head.
fn reader(part: Part, streams: Streams) -> auto::Builder<Streams> {
    let mut reader = auto::Builder::new(streams);
    reader
        .http1()
        .timer(Clock(part))
        .header_read_timeout(HEAD)
        .max_buf_size(MAX_HEAD);
    reader
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING)
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(u32::try_from(HEADER_LIST).unwrap_or(u32::MAX));
    reader
}

/// Reads the requests of one HTTP/1 connection as the port does. For whoever compares what is read here with what others read of the same
/// bytes: `answer` is given the violation where a request stands in for one that was refused.
pub async fn requests<S, A, F>(io: S, answer: A)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    A: Fn(Request<Incoming>, Option<Violation>) -> F,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let guarded = Guarded::http1(io, HEAD, ());
    let verdict = guarded.verdict();
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let answer = answer(request, verdict.on_next());
        let verdict = verdict.clone();
        async move {
            let response = answer.await;
            verdict.answered(response.status() == StatusCode::SWITCHING_PROTOCOLS);
            Ok::<_, Infallible>(response)
        }
    });
    let reader = reader(guarded.part(), Streams::default());
    let serving = reader.serve_connection_with_upgrades(TokioIo::new(guarded), service);
    if let Err(error) = serving.await {
        tracing::debug!(%error, "connection ended");
    }
}

/// One request, which has its place until the last of its answer has gone.
fn ask(
    router: Router,
    mut request: Request<Incoming>,
    verdict: &Verdict,
    (seat, connection): (&Arc<Seat>, Hangup),
) -> impl Future<Output = Result<Response<Held>, Infallible>> + use<> {
    let asking = seat.asked(sort(&request));
    if !seat.is_known() {
        request.extensions_mut().insert(newcomer(seat));
    }
    let refused = verdict.on_next().or_else(|| measured(&request));
    let refused = refused.map(Violation::refusal);
    if let Some(refusal) = refused.or_else(|| asking.as_ref().err().cloned()) {
        request.extensions_mut().insert(Refused(refusal));
    }
    let verdict = verdict.clone();
    async move {
        let hangup = STREAM.try_with(Clone::clone).unwrap_or(connection);
        request.extensions_mut().insert(hangup);
        let mut response = router.oneshot(request).await?;
        let switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        verdict.answered(switched);
        if asking.as_ref().is_ok_and(Asking::is_a_line) && !switched {
            // The place is a line's.
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
        }
        Ok(match asking {
            Ok(asking) if switched => {
                asking.for_good();
                response.map(|body| Held::new(body, None))
            }
            Ok(asking) => response.map(|body| asking.with(body)),
            Err(_) => response.map(|body| Held::new(body, None)),
        })
    }
}

/// What the connection's place hears of who asks there.
fn newcomer(seat: &Arc<Seat>) -> Newcomer {
    // What a request leaves behind keeps no place.
    let seat = Arc::downgrade(seat);
    Newcomer(Arc::new(move || {
        if let Some(seat) = seat.upgrade() {
            seat.know();
        }
    }))
}

/// What is wrong with the size of a head of HTTP/2; of HTTP/1 it was looked at before it was parsed.
fn measured(request: &Request<Incoming>) -> Option<Violation> {
    let http2 = request.version() == Version::HTTP_2;
    let measured = || message::measured(request.uri(), request.headers()).err();
    http2.then(measured).flatten()
}

/// Where the line's path and a switch of protocol are asked for, it is an agent, or nobody for long.
fn sort(request: &Request<Incoming>) -> Sort {
    let switch =
        request.version() == Version::HTTP_11 && request.headers().contains_key(header::UPGRADE);
    if switch && request.uri().path() == api::tunnel::PATH {
        Sort::Line
    } else {
        Sort::User
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;
    use tokio::time::timeout;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    /// One whose answer nobody waits for any more, as its connection is gone.
    #[tokio::test]
    async fn a_stream_that_runs_on_ends_with_the_port() {
        let streams = Streams::default();
        let (held, gone) = oneshot::channel::<()>();
        streams.clone().execute(async move {
            let _held = held;
            std::future::pending::<()>().await;
        });
        assert_eq!(streams.running.len(), 1);
        timeout(PATIENCE, streams.end()).await.unwrap();
        assert_eq!(streams.running.len(), 0);
        assert!(gone.await.is_err());
    }
}

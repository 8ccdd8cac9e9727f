//! The HTTPS port: TLS, then HTTP/1.1 or HTTP/2, each connection within limits.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use super::guard::Guarded;
use crate::hub::Hub;
use crate::hub::api::{self, Refused, Remote};
use crate::kubeapi::message::MAX_HEAD;
use crate::tunnel::driver::{self, Ahead};

/// Connections at once, lines among them.
const CONNECTIONS: usize = 20_000;
/// TLS handshakes and heads have this long.
const HEAD: Duration = Duration::from_secs(10);
/// What clients have, when the hub stops, to send what they are about to send.
const SETTLE: Duration = Duration::from_millis(500);
const STREAMS: u32 = 250;
/// HTTP/2 PING: finds peers that are gone behind a silent `logs -f`.
const PING: Duration = Duration::from_secs(20);

pub(super) async fn run(
    listener: TcpListener,
    hub: Arc<Hub>,
    stop: CancellationToken,
) -> Result<()> {
    let acceptor = TlsAcceptor::from(hub.tls.server_config());
    let router = api::router(hub.clone());
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let connections = TaskTracker::new();
    let end = CancellationToken::new();
    loop {
        let place = room.clone().acquire_owned();
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = async { (place.await, listener.accept().await) } => accepted,
        };
        let (place, (socket, peer)) = match accepted {
            (place, Ok(accepted)) => (place.expect("nobody closes the semaphore"), accepted),
            (_, Err(error)) => {
                // Out of file descriptors: what is open has to end first.
                tracing::warn!(%error, "accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (acceptor, router) = (acceptor.clone(), router.clone());
        let (hub, stop, end) = (hub.clone(), stop.clone(), end.clone());
        let seat = Seat::new(place, hub);
        connections.spawn(async move {
            let serving = connection(socket, peer, acceptor, router, (seat, stop));
            end.run_until_cancelled(serving).await;
        });
    }
    drop(listener);
    connections.close();
    let drained = tokio::time::timeout(hub.config.drain, connections.wait()).await;
    if drained.is_err() {
        end.cancel();
        tracing::info!(left = connections.len(), "drain time is over");
    }
    Ok(())
}

/// A connection's place among [`CONNECTIONS`], given back with its socket: a line and a session have theirs, too.
struct Seat {
    hub: Arc<Hub>,
    _place: OwnedSemaphorePermit,
}

impl Seat {
    fn new(place: OwnedSemaphorePermit, hub: Arc<Hub>) -> Self {
        hub.metrics.connections().inc();
        Self { hub, _place: place }
    }
}

impl Drop for Seat {
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
    (seat, stop): (Seat, CancellationToken),
) {
    // Whether it becomes a line shows later.
    driver::tune_for_anybody(&socket);
    let tls = match tokio::time::timeout(HEAD, acceptor.accept(Ahead::new(socket))).await {
        Ok(Ok(tls)) => tls,
        Ok(Err(error)) => return tracing::debug!(%peer, %error, "TLS handshake"),
        Err(_) => return tracing::debug!(%peer, "TLS handshake took too long"),
    };
    // HTTP/2 has its own framing; without having been agreed on it is a bad HTTP/1 request.
    let http2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
    let guarded = if http2 {
        Guarded::http2(tls, HEAD, seat)
    } else {
        Guarded::http1(tls, HEAD, seat)
    };
    let verdict = guarded.verdict();
    let service = hyper::service::service_fn(move |mut request: hyper::Request<_>| {
        request.extensions_mut().insert(Remote(peer));
        if let Some(violation) = verdict.on_next() {
            request.extensions_mut().insert(Refused(violation));
        }
        let request: hyper::Request<hyper::body::Incoming> = request;
        router.clone().oneshot(request)
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(MAX_HEAD);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING)
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(u32::try_from(MAX_HEAD).unwrap_or(u32::MAX));
    let serving = builder.serve_connection_with_upgrades(TokioIo::new(guarded), service);
    tokio::pin!(serving);
    let result = tokio::select! {
        result = &mut serving => result,
        () = settled(&stop) => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%peer, %error, "connection ended");
    }
}

//! Liveness, readiness and metrics, on their own port and without authentication.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use http::{Request, StatusCode, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use tracing::debug;

use crate::hub::Hub;
use crate::telemetry::OPEN_METRICS;

/// Connections at once, of probes and of whoever collects metrics; more wait. Their files are those of the other ports, too.
const CONNECTIONS: usize = 256;
/// What a head may take, and a connection in all.
const HEAD: Duration = Duration::from_secs(10);
const WHOLE: Duration = Duration::from_mins(1);
/// A store that does not answer for so long is not there.
const STORE: Duration = Duration::from_secs(3);

/// Serves until `stop`.
pub async fn serve(listener: TcpListener, hub: Arc<Hub>, stop: CancellationToken) -> Result<()> {
    let router = Router::new()
        .route("/livez", get(live))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(hub);
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            Some(_) = connections.join_next(), if connections.len() >= CONNECTIONS => {}
            accepted = listener.accept(), if connections.len() < CONNECTIONS => match accepted {
                Ok((socket, _)) => drop(connections.spawn(connection(socket, router.clone()))),
                // Out of file descriptors: what is open has to end first.
                Err(error) => {
                    debug!(%error, "health connection not accepted");
                    sleep(Duration::from_millis(100)).await;
                }
            },
        }
    }
}

async fn connection(socket: TcpStream, router: Router) {
    let service = service_fn(move |request: Request<Incoming>| router.clone().oneshot(request));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(16 << 10)
        .serve_connection(TokioIo::new(socket), service);
    if let Ok(Err(error)) = timeout(WHOLE, connection).await {
        debug!(%error, "health connection ended");
    }
}

/// Live = every task turns. A store that is away is no reason to start again.
async fn live(State(hub): State<Arc<Hub>>) -> Response {
    match hub.hearts.say() {
        None => "ok\n".into_response(),
        Some(stuck) => (StatusCode::INTERNAL_SERVER_ERROR, stuck).into_response(),
    }
}

/// Ready = not stopping, every task turns, and the store takes writes.
async fn ready(State(hub): State<Arc<Hub>>) -> Response {
    if let Some(stuck) = hub.hearts.say() {
        return (StatusCode::SERVICE_UNAVAILABLE, stuck).into_response();
    }
    if hub.stop.is_cancelled() {
        return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n").into_response();
    }
    let text = match timeout(STORE, hub.store.check()).await {
        Ok(Ok(())) => return "ok\n".into_response(),
        Ok(Err(error)) => format!("{}\n", crate::hub::chain_of(&error)),
        Err(_) => format!("the store does not answer within {} s\n", STORE.as_secs()),
    };
    (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
}

async fn metrics(State(hub): State<Arc<Hub>>) -> Response {
    match hub.metrics.text(&hub.tunnels.totals()) {
        Ok(text) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

//! Liveness, readiness and metrics, on their own port and without authentication.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use http::{StatusCode, header};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::hub::Hub;
use crate::telemetry::{OPEN_METRICS, port};

/// Connections at once, of probes and of whoever collects metrics.
const CONNECTIONS: usize = 256;
/// A store that does not answer for so long is not there.
const STORE: Duration = Duration::from_secs(3);

/// Serves until `stop`.
pub async fn serve(listener: TcpListener, hub: Arc<Hub>, stop: CancellationToken) -> Result<()> {
    let router = Router::new()
        .route("/livez", get(live))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(hub);
    let service = TowerToHyperService::new(router);
    port::serve(listener, CONNECTIONS, service, stop).await;
    Ok(())
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

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
use crate::hub::store::away::MEANWHILE;
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

/// Ready = not stopping, every task turns, the data directory is there, which Git is served from, and the store takes writes.
async fn ready(State(hub): State<Arc<Hub>>) -> Response {
    if let Some(stuck) = hub.hearts.say() {
        return (StatusCode::SERVICE_UNAVAILABLE, stuck).into_response();
    }
    if hub.stop.is_cancelled() {
        return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n").into_response();
    }
    let gone = hub.data_gone.borrow().clone();
    if let Some(gone) = gone {
        return (StatusCode::SERVICE_UNAVAILABLE, gone + "\n").into_response();
    }
    let text = match timeout(STORE, hub.store.check()).await {
        Ok(Ok(())) => return "ok\n".into_response(),
        Ok(Err(error)) => crate::hub::chain_of(&error),
        Err(_) => format!("the store does not answer within {} s", STORE.as_secs()),
    };
    let text = not_ready(text, hub.store.away());
    (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
}

/// Why the store is not there, and since when where that is known, in the words of the log.
fn not_ready(why: String, away: Option<String>) -> String {
    match away {
        None => why + "\n",
        Some(since) => {
            let begins = format!("the database is away since {since}");
            let why = why.strip_prefix(&format!("{begins}: ")).unwrap_or(&why);
            format!("{begins}: {MEANWHILE} ({why})\n")
        }
    }
}

async fn metrics(State(hub): State<Arc<Hub>>) -> Response {
    match hub.metrics.text(&hub.tunnels.totals()) {
        Ok(text) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_whether_the_hub_is_ready_hears_what_the_log_says() {
        let (why, at) = ("reach the database: refused", "2026-11-21T08:00:00.000Z");
        let answer =
            |why: &str, away: Option<&str>| not_ready(why.to_owned(), away.map(str::to_owned));
        assert_eq!(answer(why, None), format!("{why}\n"));
        let said = format!("the database is away since {at}: {MEANWHILE} ({why})\n");
        assert_eq!(answer(why, Some(at)), said);
        let named = format!("the database is away since {at}: {why}");
        assert_eq!(answer(&named, Some(at)), said);
    }
}

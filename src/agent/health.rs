//! `/livez` and `/readyz`, which tell the truth.
//!
//! Liveness asks only whether the agent's own tasks still move: a hub or a Git host that is away must never
//! restart a fleet. Readiness asks whether the hub hears this pod.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http::{Method, Response, StatusCode};
use http_body_util::Full;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Probes that are answered at once; more wait in the listener's queue.
const CONNECTIONS: usize = 16;
/// A connection that has sent no whole request by then is closed.
const HEADER_WAIT: Duration = Duration::from_secs(5);

/// What the probes answer from; clones share it.
#[derive(Debug, Clone, Default)]
pub struct Health(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    beats: BTreeMap<&'static str, Beat>,
    ready: Readiness,
}

#[derive(Debug, Clone, Copy)]
struct Beat {
    at: Instant,
    limit: Duration,
}

/// Why the pod is ready or not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Readiness {
    /// Nothing was acknowledged by the hub yet.
    #[default]
    Starting,
    /// Another replica holds the Lease; this one is as ready as it can be.
    Standby,
    /// The line is up, or a report was acknowledged over HTTPS within the last minute.
    Heard,
    /// Heard before, not now.
    Unheard { cause: String },
}

impl Health {
    /// The task `name` moves: it promises to say so again within `limit`.
    pub fn beat(&self, name: &'static str, now: Instant, limit: Duration) {
        self.state().beats.insert(name, Beat { at: now, limit });
    }

    /// The task `name` ended as it should; it promises nothing any more.
    pub fn retire(&self, name: &'static str) {
        self.state().beats.remove(name);
    }

    pub fn set_ready(&self, ready: Readiness) {
        self.state().ready = ready;
    }

    /// The task that is longest overdue, and by how much; `None` = all move.
    pub fn stuck(&self, now: Instant) -> Option<(&'static str, Duration)> {
        let state = self.state();
        let overdue = |(name, beat): (&&'static str, &Beat)| {
            let late = now
                .saturating_duration_since(beat.at)
                .checked_sub(beat.limit)?;
            (late > Duration::ZERO).then_some((*name, late))
        };
        state
            .beats
            .iter()
            .filter_map(overdue)
            .max_by_key(|(_, late)| *late)
    }

    pub fn readiness(&self) -> Readiness {
        self.state().ready.clone()
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a probe of `path` is answered.
fn answer(health: &Health, path: &str, now: Instant) -> (StatusCode, String) {
    match path {
        "/livez" => match health.stuck(now) {
            None => (StatusCode::OK, "ok\n".to_owned()),
            Some((name, late)) => {
                let text = format!("task {name} is overdue by {} s\n", late.as_secs());
                (StatusCode::SERVICE_UNAVAILABLE, text)
            }
        },
        "/readyz" => match health.readiness() {
            Readiness::Heard | Readiness::Standby => (StatusCode::OK, "ok\n".to_owned()),
            Readiness::Starting => (
                StatusCode::SERVICE_UNAVAILABLE,
                "the hub has not answered yet\n".to_owned(),
            ),
            Readiness::Unheard { cause } => (
                StatusCode::SERVICE_UNAVAILABLE,
                format!("the hub is not reached: {cause}\n"),
            ),
        },
        _ => (
            StatusCode::NOT_FOUND,
            "ask for /livez or /readyz\n".to_owned(),
        ),
    }
}

/// Answers probes until stopped.
pub async fn serve(listener: TcpListener, health: Health, stop: CancellationToken) -> Result<()> {
    let connections = TaskTracker::new();
    let slots = Arc::new(tokio::sync::Semaphore::new(CONNECTIONS));
    loop {
        let slot = slots.clone().acquire_owned();
        let Some(slot) = stop.run_until_cancelled(slot).await else {
            break;
        };
        let slot = slot.context("the semaphore of probe connections is closed")?;
        let Some(accepted) = stop.run_until_cancelled(listener.accept()).await else {
            break;
        };
        let Ok((socket, _)) = accepted else { continue };
        let health = health.clone();
        let service =
            hyper::service::service_fn(move |request: http::Request<hyper::body::Incoming>| {
                let (status, text) = if *request.method() == Method::GET {
                    answer(&health, request.uri().path(), Instant::now())
                } else {
                    (
                        StatusCode::METHOD_NOT_ALLOWED,
                        "probes use GET\n".to_owned(),
                    )
                };
                let mut response = Response::new(Full::new(Bytes::from(text)));
                *response.status_mut() = status;
                async move { Ok::<_, Infallible>(response) }
            });
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_WAIT)
            .keep_alive(false)
            .serve_connection(TokioIo::new(socket), service);
        let stop = stop.clone();
        connections.spawn(async move {
            // A probe that breaks off is the prober's business.
            drop(stop.run_until_cancelled(connection).await);
            drop(slot);
        });
    }
    connections.close();
    connections.wait().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn liveness_names_the_task_that_stands_still() {
        let (health, start) = (Health::default(), Instant::now());
        health.beat("observe", start, Duration::from_mins(1));
        health.beat("report", start, Duration::from_secs(30));
        let at = |seconds| answer(&health, "/livez", start + Duration::from_secs(seconds));
        assert_eq!(at(30), (StatusCode::OK, "ok\n".to_owned()));
        let late = (
            StatusCode::SERVICE_UNAVAILABLE,
            "task report is overdue by 5 s\n".to_owned(),
        );
        assert_eq!(at(35), late);
        health.retire("report");
        assert_eq!(at(35), (StatusCode::OK, "ok\n".to_owned()));
    }

    /// L14: a hub that is away takes readiness and leaves liveness.
    #[test]
    fn an_unreached_hub_is_told_by_readiness_alone() {
        let (health, now) = (Health::default(), Instant::now());
        assert_eq!(
            answer(&health, "/readyz", now).0,
            StatusCode::SERVICE_UNAVAILABLE
        );
        health.set_ready(Readiness::Heard);
        assert_eq!(answer(&health, "/readyz", now).0, StatusCode::OK);
        health.set_ready(Readiness::Unheard {
            cause: "connection refused".into(),
        });
        let expected = "the hub is not reached: connection refused\n".to_owned();
        assert_eq!(
            answer(&health, "/readyz", now),
            (StatusCode::SERVICE_UNAVAILABLE, expected)
        );
        assert_eq!(answer(&health, "/livez", now).0, StatusCode::OK);
    }
}

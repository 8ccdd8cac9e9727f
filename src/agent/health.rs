//! `/livez` and `/readyz`, which tell the truth, and `/metrics`.
//!
//! Live means that every internal task still turns: never that hub, Git or API server answer, for an outage of
//! theirs must not restart the agent that heals. Ready means that the hub hears this agent, by the line or by
//! HTTPS; a standby replica is ready to take over.

use std::convert::Infallible;

use anyhow::Result;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::lifetime::hearts::Hearts;
use crate::telemetry::{HealMetrics, OPEN_METRICS, port};

/// Connections at once; the kubelet needs two.
const CONNECTIONS: usize = 16;

/// Whether the agent does its work, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readiness {
    Ready(String),
    NotReady(String),
}

/// What the endpoints tell.
#[derive(Clone)]
pub struct Told {
    pub hearts: Hearts,
    pub readiness: watch::Receiver<Readiness>,
    pub metrics: HealMetrics,
}

/// Serves the endpoints until `stop`.
pub async fn serve(listener: TcpListener, told: Told, stop: CancellationToken) -> Result<()> {
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = answer(&request, &told);
        async move { Ok::<_, Infallible>(answer) }
    });
    port::serve(listener, CONNECTIONS, service, stop).await;
    Ok(())
}

fn answer<B>(request: &Request<B>, told: &Told) -> Response<Full<Bytes>> {
    let (status, text) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/livez") => match told.hearts.say() {
            None => (StatusCode::OK, "ok\n".to_owned()),
            Some(stuck) => (StatusCode::INTERNAL_SERVER_ERROR, stuck),
        },
        (&Method::GET | &Method::HEAD, "/readyz") => ready(told),
        (&Method::GET | &Method::HEAD, "/metrics") => return metrics(&told.metrics),
        _ => (
            StatusCode::NOT_FOUND,
            "only /livez, /readyz and /metrics\n".to_owned(),
        ),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response
}

/// With a task that stands still nothing that the agent says of itself is to be relied on.
fn ready(told: &Told) -> (StatusCode, String) {
    match (told.hearts.say(), &*told.readiness.borrow()) {
        (Some(stuck), _) => (StatusCode::SERVICE_UNAVAILABLE, stuck),
        (None, Readiness::Ready(text)) => (StatusCode::OK, format!("{text}\n")),
        (None, Readiness::NotReady(text)) => (StatusCode::SERVICE_UNAVAILABLE, format!("{text}\n")),
    }
}

fn metrics(metrics: &HealMetrics) -> Response<Full<Bytes>> {
    let Ok(text) = metrics.text() else {
        let mut response = Response::new(Full::default());
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        return response;
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    let kind = HeaderValue::from_static(OPEN_METRICS);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::task::JoinSet;

    use super::*;

    fn get(path: &str, hearts: &Hearts, readiness: &Readiness) -> StatusCode {
        let request = Request::get(path).body(()).unwrap();
        let (_sender, readiness) = watch::channel(readiness.clone());
        let told = Told {
            hearts: hearts.clone(),
            readiness,
            metrics: HealMetrics::default(),
        };
        answer(&request, &told).status()
    }

    /// L54
    #[tokio::test(start_paused = true)]
    async fn an_agent_with_a_stuck_task_is_neither_live_nor_ready_until_it_beats_again() {
        let hearts = Hearts::default();
        let ready = Readiness::Ready("line up".into());
        let heart = hearts.heart("report", Duration::from_secs(30));
        tokio::time::advance(Duration::from_secs(29)).await;
        assert_eq!(get("/livez", &hearts, &ready), StatusCode::OK);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(hearts.stuck(), [("report", Duration::from_secs(31))]);
        assert_eq!(
            get("/livez", &hearts, &ready),
            StatusCode::INTERNAL_SERVER_ERROR
        );
        assert_eq!(
            get("/readyz", &hearts, &ready),
            StatusCode::SERVICE_UNAVAILABLE
        );
        heart.beat();
        assert_eq!(get("/livez", &hearts, &ready), StatusCode::OK);
        assert_eq!(get("/readyz", &hearts, &ready), StatusCode::OK);
    }

    /// L14
    #[tokio::test]
    async fn an_outage_of_the_hub_is_not_ready_but_live() {
        let hearts = Hearts::default();
        let away = Readiness::NotReady("the hub has not been reached for 60 s".into());
        assert_eq!(
            get("/readyz", &hearts, &away),
            StatusCode::SERVICE_UNAVAILABLE
        );
        assert_eq!(get("/livez", &hearts, &away), StatusCode::OK);
        assert_eq!(get("/metrics", &hearts, &away), StatusCode::OK);
        assert_eq!(get("/secrets", &hearts, &away), StatusCode::NOT_FOUND);
    }

    #[tokio::test]
    async fn the_endpoints_answer_over_a_socket() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (_sender, readiness) = watch::channel(Readiness::NotReady("not joined".into()));
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let told = Told {
            hearts: Hearts::default(),
            readiness,
            metrics: HealMetrics::default(),
        };
        tasks.spawn(serve(listener, told, stop.clone()));
        for (path, status) in [("livez", 200), ("readyz", 503), ("metrics", 200)] {
            let url = format!("http://{address}/{path}");
            let client = reqwest::Client::builder().no_proxy().build().unwrap();
            let answer = client.get(url).send().await.unwrap();
            assert_eq!(answer.status().as_u16(), status);
            let text = answer.text().await.unwrap();
            // L29
            assert_eq!(
                text.contains("\nlinesman_tasks "),
                path == "metrics",
                "{text}"
            );
        }
        stop.cancel();
        tasks.join_next().await.unwrap().unwrap().unwrap();
    }
}

use axum::Router;
use axum::body::Body;
use axum::http::StatusCode;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::*;

/// What a controller that serves `pieces` as its metrics counts.
async fn of(status: StatusCode, pieces: &'static [&'static str]) -> Result<Option<Requests>> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let answer = move || async move {
        let pieces = pieces.iter().map(|piece| anyhow::Ok(*piece));
        let body = Body::from_stream(futures_util::stream::iter(pieces));
        (status, body)
    };
    let router = Router::new().route("/metrics", get(answer));
    let mut server = JoinSet::new();
    server.spawn(async move { axum::serve(listener, router).await });
    requests(at).await
}

/// F55
#[tokio::test]
async fn what_a_controller_counts_is_read_from_its_metrics() {
    let pieces: &[&str] = &[
        "# TYPE argocd_redis_request_total counter\nargocd_redis_requ",
        "est_total{failed=\"false\",initiator=\"a\"} 68\nargocd_redis_request_total{failed=\"true\"",
        ",initiator=\"a\"} 3\n",
    ];
    let counted = Requests {
        answered: 68,
        failed: 3,
    };
    assert_eq!(of(StatusCode::OK, pieces).await.unwrap(), Some(counted));
    assert_eq!(of(StatusCode::OK, &["up 1\n"]).await.unwrap(), None);
    let refused = of(StatusCode::FORBIDDEN, pieces).await.unwrap_err();
    assert_eq!(refused.to_string(), "403 Forbidden");
}

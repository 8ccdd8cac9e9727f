//! Serves each `api` stream of the line: hyper server, gate, hyper client to the kube-apiserver as the
//! user that the hub asserts. Streams meet the token of `linesman-line` only; the agent's own client is
//! given to the keepers of token, role and policy, which no stream reaches.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tracing::debug;

use crate::agent::News;

pub mod credential;
pub mod exchange;
pub mod owner;
pub mod subjects;
pub mod upstream;

use exchange::{Exchange, Shared};
pub use subjects::Subjects;

/// What the forwarder works with.
pub struct Context {
    /// The agent's own client: for token, role and policy. No stream reaches it.
    pub kube: kube::Client,
    /// Where the API server is; only address and CA of it are used.
    pub server: kube::Config,
    /// The agent's namespace.
    pub namespace: String,
    pub hub_id: String,
    pub cluster_id: String,
    pub news: mpsc::Sender<News>,
}

/// One HTTP/1.1 exchange over `io`; ends when it is over or cancelled.
pub async fn serve<S>(io: S, shared: Arc<Shared>, exchange: Exchange)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let cancelled = exchange.cancelled.clone();
    let id = exchange.meta.id.clone();
    let service = service_fn(move |request| {
        let answer = exchange::answer(shared.clone(), exchange.clone(), request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_secs(10))
        .half_close(true)
        .keep_alive(false)
        .auto_date_header(false)
        .max_buf_size(64 << 10)
        .serve_connection(TokioIo::new(io), service)
        .with_upgrades();
    match cancelled.run_until_cancelled(connection).await {
        Some(Ok(())) => {}
        Some(Err(error)) => debug!(request = id, %error, "exchange ended"),
        // Dropping the connection drops the request to the API server with it.
        None => debug!(request = id, "exchange cancelled"),
    }
}

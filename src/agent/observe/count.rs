//! What Argo CD's controllers count of their requests to Redis, by their metrics, which its own policies let each namespace read.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use futures_util::future::join_all;
use http::header::{CONNECTION, HOST};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::View;
use crate::agent::plan::redis::{Reader, Requests, counted};

/// A request that nobody answers is given up after 12 s and more.
const EVERY: Duration = Duration::from_secs(20);
const ANSWER: Duration = Duration::from_secs(10);
/// Where a controller serves its metrics.
const PORT: u16 = 8082;
/// So many controllers share the work at most.
const MAX_CONTROLLERS: usize = 16;
/// Bytes of one answer: each Application has lines of its own.
const MAX_ANSWER: usize = 64 << 20;

/// Asks the Pods of `controller` until `stop`.
pub(super) async fn run(controller: String, view: View, stop: CancellationToken) {
    let mut turns = interval(EVERY);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while stop.run_until_cancelled(turns.tick()).await.is_some() {
        let pods = {
            let seen = view.0.borrow();
            let all = counted(&controller, &seen).take(MAX_CONTROLLERS);
            let all = all.map(|(name, pod)| [name, &pod.uid, &pod.address].map(Clone::clone));
            all.collect::<Vec<_>>()
        };
        let asked = pods.iter().map(|pod| ask(pod, &view));
        if stop.run_until_cancelled(join_all(asked)).await.is_none() {
            break;
        }
    }
}

async fn ask([name, uid, address]: &[String; 3], view: &View) {
    let read = async {
        let address = address.parse().context("read the Pod's address")?;
        requests(SocketAddr::new(address, PORT)).await
    };
    let read = timeout(ANSWER, read).await;
    match read.context("no answer").and_then(|read| read) {
        Ok(Some(requests)) => view.counted(name, uid, requests),
        Ok(None) => debug!(pod = name, "counts no requests to Redis"),
        Err(error) => debug!(pod = name, error = format!("{error:#}"), "metrics not read"),
    }
}

/// None where it counts none.
async fn requests(at: SocketAddr) -> Result<Option<Requests>> {
    let stream = TcpStream::connect(at).await.context("connect")?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::get("/metrics")
        .header(HOST, at.to_string())
        .header(CONNECTION, "close")
        .body(Empty::<Bytes>::new())?;
    let read = async move {
        let answer = sender.send_request(request).await?;
        ensure!(answer.status() == StatusCode::OK, "{}", answer.status());
        let (mut body, mut reader, mut bytes) = (answer.into_body(), Reader::default(), 0);
        while let Some(frame) = body.frame().await {
            if let Ok(data) = frame?.into_data() {
                bytes += data.len();
                ensure!(bytes <= MAX_ANSWER, "more than {MAX_ANSWER} bytes");
                reader.take(&data);
            }
        }
        anyhow::Ok(reader.done())
    };
    // The answer says what became of the connection.
    let (read, _) = tokio::join!(read, connection);
    read
}

#[cfg(test)]
mod tests;

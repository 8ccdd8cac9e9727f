//! The port that probes and collectors of metrics ask: small answers over HTTP/1.1, without authentication.

use std::convert::Infallible;
use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::HttpService;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::debug;

/// What a head may take, and a connection in all.
const HEAD: Duration = Duration::from_secs(10);
const WHOLE: Duration = Duration::from_mins(1);

/// Serves until `stop`: so many connections at once, more wait. Their files are those of the other ports, too.
pub async fn serve<S, B>(
    listener: TcpListener,
    connections: usize,
    service: S,
    stop: CancellationToken,
) where
    S: HttpService<Incoming, ResBody = B, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: Body<Data: Send, Error: std::error::Error + Send + Sync> + Send + 'static,
{
    let mut open = JoinSet::new();
    loop {
        while open.try_join_next().is_some() {}
        tokio::select! {
            () = stop.cancelled() => return,
            Some(_) = open.join_next(), if open.len() >= connections => {}
            accepted = listener.accept(), if open.len() < connections => match accepted {
                Ok((socket, _)) => drop(open.spawn(connection(socket, service.clone()))),
                // Out of file descriptors: what is open has to end first.
                Err(error) => {
                    debug!(%error, "health connection not accepted");
                    sleep(Duration::from_millis(100)).await;
                }
            },
        }
    }
}

async fn connection<S, B>(socket: TcpStream, service: S)
where
    S: HttpService<Incoming, ResBody = B, Error = Infallible>,
    B: Body<Error: std::error::Error + Send + Sync> + 'static,
{
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(16 << 10)
        .serve_connection(TokioIo::new(socket), service);
    if let Ok(Err(error)) = timeout(WHOLE, connection).await {
        debug!(%error, "health connection ended");
    }
}

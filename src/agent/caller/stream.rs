//! HTTP on a stream of the line: one exchange, or a body that has no end.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use bytes::{Bytes, BytesMut};
use http::Request;
use http::header::{CONTENT_TYPE, HOST};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use tokio::time::timeout;

use super::{Answer, Call, retry_after};
use crate::tunnel::{Line, Stream};
use crate::wire::frame::{Class, Kind};

type Connection = hyper::client::conn::http1::Connection<TokioIo<Stream>, Full<Bytes>>;
type Sender = hyper::client::conn::http1::SendRequest<Full<Bytes>>;

/// One exchange on a stream of the line.
pub(super) async fn over_line(line: &Line, call: &Call) -> Result<Answer> {
    let (mut sender, connection) = connect(line).await?;
    let exchange = async {
        let response = sender
            .send_request(request(call)?)
            .await
            .context("send on the line")?;
        let (head, body) = response.into_parts();
        let body = http_body_util::Limited::new(body, call.limit)
            .collect()
            .await
            .map_err(|e| anyhow!("read from the line: {e}"))?;
        Ok(Answer {
            status: head.status,
            retry_after: retry_after(&head.headers),
            body: body.to_bytes(),
        })
    };
    drive(connection, exchange).await
}

/// Reads a body of lines that has no end; `line` gets each. Ends with the stream, or when it is silent for
/// `silence`.
pub async fn follow(
    line: &Line,
    call: &Call,
    silence: Duration,
    mut on_line: impl FnMut(&[u8]),
) -> Result<()> {
    let (mut sender, connection) = connect(line).await?;
    let exchange = async {
        let response = timeout(silence, sender.send_request(request(call)?))
            .await
            .context("no answer")?
            .context("send on the line")?;
        if !response.status().is_success() {
            bail!("hub answered {}", response.status());
        }
        let mut body = response.into_body();
        let mut held = BytesMut::new();
        while let Some(frame) = timeout(silence, body.frame()).await.context("silent")? {
            let Ok(data) = frame.context("read from the line")?.into_data() else {
                continue;
            };
            held.extend_from_slice(&data);
            while let Some(end) = held.iter().position(|b| *b == b'\n') {
                on_line(&held.split_to(end + 1));
            }
            if held.len() > call.limit {
                bail!("a line of more than {} bytes", call.limit);
            }
        }
        Ok(())
    };
    drive(connection, exchange).await
}

async fn connect(line: &Line) -> Result<(Sender, Connection)> {
    let stream = line
        .open(Kind::Report, Class::Normal, Bytes::new())
        .await
        .context("open a stream on the line")?;
    hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .context("start HTTP on the line")
}

fn request(call: &Call) -> Result<Request<Full<Bytes>>> {
    let mut request = Request::builder()
        .method(call.method.clone())
        .uri(&call.path)
        .header(HOST, "hub");
    if !call.body.is_empty() {
        request = request.header(CONTENT_TYPE, "application/json");
    }
    request
        .body(Full::new(call.body.clone()))
        .context("make the request")
}

/// Polls the connection beside the exchange, in one task.
async fn drive<T>(connection: Connection, exchange: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::pin!(connection, exchange);
    tokio::select! {
        biased;
        result = &mut exchange => result,
        ended = &mut connection => match ended {
            // What was received before the end is still to be read.
            Ok(()) => exchange.await,
            Err(error) => Err(error).context("the line's stream failed"),
        },
    }
}

//! One HTTP/1.1 exchange over one stream of a line. The connection is polled by the answer's body, so no
//! task runs beside it, nothing is buffered, and whoever drops the body ends the stream.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

type Connection = Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>;

/// An answer's head and read buffer; hyper's own default is six times this.
const BUFFER: usize = 64 << 10;

/// Why no head of an answer came.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    #[error("no answer in time")]
    Timeout,
    #[error("the stream ended before an answer")]
    Stream(#[source] hyper::Error),
}

/// Sends the request and waits for the answer's head, at most `head`.
pub async fn send<S>(
    io: S,
    request: Request<Body>,
    head: Option<Duration>,
) -> Result<Response<Answer>, Failed>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let exchange = exchange(io, request);
    match head {
        Some(limit) => tokio::time::timeout(limit, exchange)
            .await
            .map_err(|_| Failed::Timeout)?,
        None => exchange.await,
    }
}

async fn exchange<S>(io: S, request: Request<Body>) -> Result<Response<Answer>, Failed>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut builder = http1::Builder::new();
    builder.max_buf_size(BUFFER);
    let (mut sender, connection) = builder
        .handshake(TokioIo::new(io))
        .await
        .map_err(Failed::Stream)?;
    let mut connection: Option<Connection> = Some(Box::pin(connection.with_upgrades()));
    let response = {
        let mut sending = pin!(sender.send_request(request));
        poll_fn(|cx| {
            drive(&mut connection, cx);
            sending.as_mut().poll(cx)
        })
        .await
    };
    // With its sender gone the connection finishes this exchange and shuts its side down.
    drop(sender);
    let response = response.map_err(Failed::Stream)?;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        // The switched stream is handed over only when the connection has ended.
        poll_fn(|cx| {
            drive(&mut connection, cx);
            if connection.is_none() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }
    Ok(response.map(|incoming| Answer {
        connection,
        incoming,
    }))
}

fn drive(connection: &mut Option<Connection>, cx: &mut Context<'_>) {
    // Its error reaches whoever waits for head or body.
    if connection
        .as_mut()
        .is_some_and(|connection| connection.as_mut().poll(cx).is_ready())
    {
        *connection = None;
    }
}

/// The answer's body with the connection that it comes from. Trailers do not cross.
pub struct Answer {
    connection: Option<Connection>,
    incoming: Incoming,
}

impl hyper::body::Body for Answer {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = &mut *self;
        loop {
            drive(&mut this.connection, cx);
            let mut frame = Pin::new(&mut this.incoming).poll_frame(cx);
            if frame.is_pending() {
                // Asking for a frame makes the connection want to read: let it.
                drive(&mut this.connection, cx);
                frame = Pin::new(&mut this.incoming).poll_frame(cx);
            }
            match frame {
                Poll::Ready(Some(Ok(frame))) if frame.is_trailers() => {}
                frame => return frame,
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl Drop for Answer {
    /// A finished exchange says goodbye (FIN); one that is cut short resets its stream.
    fn drop(&mut self) {
        if self.incoming.is_end_stream() {
            drive(
                &mut self.connection,
                &mut Context::from_waker(Waker::noop()),
            );
        }
    }
}

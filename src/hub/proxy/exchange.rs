//! One HTTP/1.1 exchange over one stream of a line. The connection is polled by the answer's body, so no
//! task runs beside it, nothing is buffered, and whoever drops the body ends the stream.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::kubeapi::headers;

type Connection = Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>;

/// An answer's head and read buffer; hyper's own default is six times this.
const BUFFER: usize = 64 << 10;

/// An answer's head with all informational ones before it: of these hyper takes any number.
const HEADS: u64 = 256 << 10;

/// Why no head of an answer came.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    #[error("no answer within {0:?}")]
    Timeout(Duration),
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
            .map_err(|_| Failed::Timeout(limit))?,
        None => exchange.await,
    }
}

async fn exchange<S>(io: S, mut request: Request<Body>) -> Result<Response<Answer>, Failed>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    headers::set_chunked(&mut request);
    let mut builder = http1::Builder::new();
    builder.max_buf_size(BUFFER);
    let left = Arc::new(AtomicU64::new(HEADS));
    let io = Headed {
        io,
        left: left.clone(),
    };
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
    left.store(u64::MAX, Ordering::Relaxed);
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

/// The agent's side, which says only so much before the head of its answer has come.
struct Headed<S> {
    io: S,
    left: Arc<AtomicU64>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Headed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.io).poll_read(cx, buf);
        let len = u64::try_from(buf.filled().len() - before).unwrap_or(u64::MAX);
        let left = self.left.load(Ordering::Relaxed);
        if left != u64::MAX {
            let Some(left) = left.checked_sub(len) else {
                let text = "256 KiB came before the head of the answer";
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, text)));
            };
            self.left.store(left, Ordering::Relaxed);
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Headed<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
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

/// The answer's body with the connection that it comes from. Trailers do not cross, as RFC 9112 (7.1.2) leaves it to whoever takes
/// the chunks apart: nobody asked the API server for any, and what they say was not cleaned as the head was.
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

//! Other multiplexers as crates, over the same TLS but without WebSocket, which spares them its framing and masks:
//! yamux as it comes, and HTTP/2 the other way round (the agent serves, the hub asks) with windows that suit bulk.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::io::{AsyncRead as FuturesRead, AsyncWrite as FuturesWrite};
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::load::{self, Duplex, Io};

/// For one stream and for the connection; HTTP/2's own 64 KiB are used up by one stream in no time.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 64 << 20;
const QUEUED: usize = 64 << 10;

/// Asks for streams on an HTTP/2 connection; `tasks` drives it.
pub(crate) async fn h2_hub(io: Duplex, tasks: &mut JoinSet<()>) -> SendRequest<Bytes> {
    let (sender, connection) = h2::client::Builder::new()
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buffer_size(QUEUED)
        .handshake(io)
        .await
        .unwrap();
    tasks.spawn(async move { drop(connection.await) });
    sender
}

pub(crate) async fn h2_open(sender: &SendRequest<Bytes>) -> io::Result<Duplex> {
    let mut sender = sender.clone().ready().await.map_err(io::Error::other)?;
    let request = http::Request::post("https://agent.bench/")
        .body(())
        .unwrap();
    let (response, send) = sender
        .send_request(request, false)
        .map_err(io::Error::other)?;
    Ok(Box::new(H2 {
        send,
        from: From::Response(response),
        rest: Bytes::new(),
    }))
}

pub(crate) async fn h2_agent(io: Duplex) {
    let mut connection = h2::server::Builder::new()
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buffer_size(QUEUED)
        .max_concurrent_streams(16_384)
        .handshake::<_, Bytes>(io)
        .await
        .unwrap();
    let mut served = JoinSet::new();
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        let Ok(send) = respond.send_response(http::Response::new(()), false) else {
            continue;
        };
        let from = From::Body(request.into_body());
        let rest = Bytes::new();
        served.spawn(load::serve(Box::new(H2 { send, from, rest })));
        while served.try_join_next().is_some() {}
    }
}

enum From {
    Response(ResponseFuture),
    Body(RecvStream),
}

struct H2 {
    send: SendStream<Bytes>,
    from: From,
    rest: Bytes,
}

impl AsyncRead for H2 {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if let From::Response(response) = &mut this.from {
            let response = ready!(Pin::new(response).poll(cx)).map_err(io::Error::other)?;
            this.from = From::Body(response.into_body());
        }
        if let From::Body(body) = &mut this.from {
            while this.rest.is_empty() {
                match ready!(body.poll_data(cx)) {
                    None => return Poll::Ready(Ok(())),
                    Some(data) => this.rest = data.map_err(io::Error::other)?,
                }
            }
            let len = buf.remaining().min(this.rest.len());
            buf.put_slice(&this.rest.split_to(len));
            drop(body.flow_control().release_capacity(len));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for H2 {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let wanted = buf.len().min(QUEUED);
        self.send.reserve_capacity(wanted);
        let mut room = self.send.capacity();
        while room == 0 {
            room = match ready!(self.send.poll_capacity(cx)) {
                Some(room) => room.map_err(io::Error::other)?,
                None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            };
        }
        let len = room.min(wanted);
        let data = Bytes::copy_from_slice(&buf[..len]);
        self.send.send_data(data, false).map_err(io::Error::other)?;
        Poll::Ready(Ok(len))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let sent = self.send.send_data(Bytes::new(), true);
        Poll::Ready(sent.map_err(io::Error::other))
    }
}

/// Asks for a stream of a yamux connection.
pub(crate) type YamuxOpener = mpsc::Sender<oneshot::Sender<yamux::Stream>>;

/// Either end of a yamux connection: its task opens what is asked for and serves what the peer opens.
pub(crate) fn yamux(io: Duplex, mode: yamux::Mode, tasks: &mut JoinSet<()>) -> YamuxOpener {
    let (opener, mut asked) = mpsc::channel::<oneshot::Sender<yamux::Stream>>(1024);
    let mut connection = yamux::Connection::new(Tokio(io), yamux::Config::default(), mode);
    tasks.spawn(async move {
        let mut served = JoinSet::new();
        let mut waiting: Option<oneshot::Sender<yamux::Stream>> = None;
        loop {
            let inbound = std::future::poll_fn(|cx| {
                loop {
                    if waiting.is_none()
                        && let Poll::Ready(Some(next)) = asked.poll_recv(cx)
                    {
                        waiting = Some(next);
                    }
                    if waiting.is_none() {
                        break;
                    }
                    match connection.poll_new_outbound(cx) {
                        Poll::Ready(Ok(stream)) => {
                            if let Some(answer) = waiting.take() {
                                drop(answer.send(stream));
                            }
                        }
                        Poll::Ready(Err(error)) => return Poll::Ready(Some(Err(error))),
                        Poll::Pending => break,
                    }
                }
                connection.poll_next_inbound(cx)
            });
            match inbound.await {
                Some(Ok(stream)) => drop(served.spawn(load::serve(Box::new(Futures(stream))))),
                Some(Err(_)) | None => return,
            }
            while served.try_join_next().is_some() {}
        }
    });
    opener
}

pub(crate) async fn yamux_open(opener: &YamuxOpener) -> io::Result<Duplex> {
    let (answer, stream) = oneshot::channel();
    opener.send(answer).await.map_err(io::Error::other)?;
    let stream = stream.await.map_err(io::Error::other)?;
    Ok(Box::new(Futures(stream)))
}

/// What tokio reads and writes, for yamux.
struct Tokio<T>(T);

impl<T: Io> FuturesRead for Tokio<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut buf = ReadBuf::new(buf);
        ready!(Pin::new(&mut self.0).poll_read(cx, &mut buf))?;
        Poll::Ready(Ok(buf.filled().len()))
    }
}

impl<T: Io> FuturesWrite for Tokio<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// A stream of yamux, for tokio.
struct Futures(yamux::Stream);

impl AsyncRead for Futures {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let len = ready!(Pin::new(&mut self.0).poll_read(cx, buf.initialize_unfilled()))?;
        buf.advance(len);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Futures {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_close(cx)
    }
}

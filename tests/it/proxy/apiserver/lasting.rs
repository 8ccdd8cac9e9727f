//! Answers that go on: watches, bodies without an end, and switched connections.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{Body, Open, State, full};

/// The head and the half leave before it dies.
pub(super) fn broken(state: &State) -> Response<Body> {
    let half = stream::iter([Ok(Frame::data(Bytes::from("half")))]);
    let mut released = state.released.subscribe();
    let death = stream::once(async move {
        drop(released.wait_for(|released| *released).await);
        Err(std::io::Error::other("died"))
    });
    Response::new(StreamBody::new(half.chain(death)).boxed_unsync())
}

pub(super) fn events(state: &State) -> Response<Body> {
    let (events, open) = (state.events.subscribe(), Open::new(&state.open));
    let body = stream::unfold((events, open), |(mut events, open)| async move {
        let event = events.recv().await.ok()?;
        Some((Ok(Frame::data(event)), (events, open)))
    });
    Response::new(StreamBody::new(body).boxed_unsync())
}

pub(super) fn endless(state: &State) -> Response<Body> {
    let produced = state.produced.clone();
    let body = stream::repeat(Bytes::from(vec![b'x'; 64 << 10])).map(move |chunk| {
        produced.fetch_add(chunk.len(), Ordering::SeqCst);
        Ok(Frame::data(chunk))
    });
    Response::new(StreamBody::new(body).boxed_unsync())
}

/// The same with a length, of which less is ever read.
pub(super) fn promised(state: &State) -> Response<Body> {
    let mut response = endless(state);
    let length = "1000000000".parse().unwrap();
    response.headers_mut().insert("content-length", length);
    response
}

/// Upper-cases what comes over the switched connection.
pub(super) fn exec(state: &State, mut request: Request<Incoming>) -> Response<Body> {
    let open = Open::new(&state.open);
    let protocol = request.headers().get("sec-websocket-protocol").cloned();
    let upgraded = hyper::upgrade::on(&mut request);
    #[expect(
        clippy::disallowed_methods,
        reason = "the stand-in ends with its runtime"
    )]
    tokio::spawn(async move {
        let _open = open;
        let mut io = TokioIo::new(upgraded.await.unwrap());
        let mut buffer = [0; 1024];
        while let Ok(n @ 1..) = io.read(&mut buffer).await {
            buffer[..n].make_ascii_uppercase();
            io.write_all(&buffer[..n]).await.unwrap();
        }
    });
    let mut response = full(StatusCode::SWITCHING_PROTOCOLS, "");
    response
        .headers_mut()
        .insert("connection", "Upgrade".parse().unwrap());
    response
        .headers_mut()
        .insert("upgrade", "websocket".parse().unwrap());
    if let Some(protocol) = protocol {
        response
            .headers_mut()
            .insert("sec-websocket-protocol", protocol);
    }
    response
}

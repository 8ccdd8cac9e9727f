//! L34, L42: fields behind an answer. Nobody on the way asks for them (`TE` is of one connection), the API server sends none, and
//! what they say was not cleaned as the head was: they end where they are read, and the answer before them is whole.

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use linesman::tunnel::Incoming;

use super::{codes, filled, told};
use crate::proxy::apiserver::ApiServer;
use crate::proxy::world::{PATIENCE, World, name};

/// What is answered.
pub(in crate::proxy) const TRAILED: &str = "HTTP/1.1 200 OK\r\nTrailer: Set-Cookie, X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n\
     5\r\nwhole\r\n0\r\nSet-Cookie: a=b\r\nX-Sum: 7\r\n\r\n";
const PATH: &str = "/clusters/eu1/api/v1/raw/trailers";

/// A user of HTTP/1.1 who takes trailers: the answer to the byte.
async fn over_http1(world: &World) {
    let request = "GET @/api/v1/raw/trailers HTTP/1.1\r\nHost: h\r\n$\r\nTE: trailers\r\nConnection: TE, close\r\n\r\n";
    let told = told(world, &filled(world, request)).await;
    assert_eq!(codes(&told), ["200"], "{told}");
    let (head, body) = told.split_once("\r\n\r\n").unwrap();
    assert!(!head.to_lowercase().contains("trailer"), "{head}");
    assert_eq!(body, "5\r\nwhole\r\n0\r\n\r\n");
}

/// The same over HTTP/2, where each client takes them.
async fn over_http2(world: &World) {
    let tls = TokioIo::new(world.connect(&[b"h2"]).await);
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), tls)
        .await
        .unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { drop(connection.await) });
    let request = Request::get(format!("https://localhost{PATH}"))
        .header("authorization", format!("Bearer {}", world.token))
        .header("te", "trailers")
        .body(Empty::<Bytes>::new())
        .unwrap();
    let answer = timeout(PATIENCE, sender.send_request(request)).await;
    let answer = answer.expect("it is answered").unwrap();
    assert_eq!(answer.status(), 200);
    assert!(!answer.headers().contains_key("trailer"), "{answer:?}");
    let body = timeout(PATIENCE, answer.into_body().collect()).await;
    let body = body.expect("it ends").unwrap();
    assert_eq!(body.trailers(), None);
    assert_eq!(body.to_bytes(), "whole");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trailers_of_an_api_server_end_on_the_way() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    over_http1(&world).await;
    over_http2(&world).await;
}

/// An agent that passes on what it should not, once.
async fn gone_wrong(streams: &mut mpsc::Receiver<Incoming>) {
    let mut stream = streams.recv().await.unwrap().stream;
    let mut request = [0; 4096];
    drop(stream.read(&mut request).await);
    drop(stream.write_all(TRAILED.as_bytes()).await);
    drop(stream.shutdown().await);
    // Until the hub has let go.
    while let Ok(1..) = stream.read(&mut request).await {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trailers_of_a_hostile_agent_end_at_the_hub() {
    let mut world = World::new().await;
    let (_stop, mut streams, _state) = world.dial().await;
    let line = world.hub.tunnels.get(&name()).unwrap();
    tokio::join!(over_http1(&world), gone_wrong(&mut streams));
    tokio::join!(over_http2(&world), gone_wrong(&mut streams));
    assert!(line.takes_streams(), "the line was lost");
}

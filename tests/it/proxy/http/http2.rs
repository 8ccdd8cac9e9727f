//! L7, L34: the same forms over HTTP/2, and what only HTTP/2 can say.

use std::convert::Infallible;

use ::http::{HeaderMap, Request};
use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::time::timeout;

use super::super::apiserver::ApiServer;
use super::super::hostile::{ACTS, acting};
use super::super::world::{PATIENCE, World};
use super::rows;
use super::user::{Told, kept};

/// L7: the same over HTTP/2, side by side on one connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_form_of_an_answer_arrives_over_http_2() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let tls = TokioIo::new(world.connect(&[b"h2"]).await);
    let (sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), tls)
        .await
        .unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move { drop(connection.await) });
    let asks = rows()
        .into_iter()
        .map(|((method, path, _, headers, body), expected)| {
            let mut sender = sender.clone();
            let bearer = format!("Bearer {}", world.token);
            async move {
                let url = format!("https://localhost/clusters/eu1/api/v1/namespaces/a/{path}");
                let mut request = Request::builder().method(method).uri(url);
                request = request.header("authorization", bearer);
                // Of a body's framing HTTP/2 has its own.
                let chunked = headers.starts_with("Transfer");
                let framing = |line: &&str| !line.starts_with("Transfer");
                for line in headers.split_terminator("\r\n").filter(framing) {
                    let (name, value) = line.split_once(": ").unwrap();
                    request = request.header(name.to_ascii_lowercase(), value);
                }
                let body = if chunked { "in parts" } else { body };
                let expected = Told {
                    body: if chunked { body.into() } else { expected.body },
                    headers: over_http2(expected.headers, chunked.then_some(body.len())),
                    status: expected.status[9..12].to_owned(),
                };
                let whole = Bytes::from(body);
                let body = if chunked {
                    // Its length is not said.
                    let parts = [Ok::<_, Infallible>(Frame::data(whole))];
                    StreamBody::new(stream::iter(parts)).boxed()
                } else {
                    Full::new(whole).boxed()
                };
                let request = request.body(body).unwrap();
                let (head, answer) = sender.send_request(request).await.unwrap().into_parts();
                let answer = answer.collect().await.unwrap().to_bytes();
                let found = Told {
                    status: head.status.as_str().to_owned(),
                    headers: of(&head.headers),
                    body: answer.to_vec(),
                };
                assert_eq!(found, expected, "{method} {path}");
            }
        });
    let asks = futures_util::future::join_all(asks.collect::<Vec<_>>());
    timeout(PATIENCE, asks).await.expect("all are answered");
}

fn of(headers: &HeaderMap) -> Vec<String> {
    let text = headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.to_str().unwrap()));
    kept(text)
}

/// What HTTP/2 says of the same answer.
fn over_http2(headers: Vec<String>, len: Option<usize>) -> Vec<String> {
    let framing = |line: &String| !line.starts_with("transfer-encoding");
    let length = |line: String| match len {
        Some(len) if line.starts_with("content-length") => format!("content-length: {len}"),
        _ => line,
    };
    headers.into_iter().filter(framing).map(length).collect()
}

/// L34: over HTTP/2, where anybody can send some, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trailers_of_http2_end_at_the_hub() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let tls = TokioIo::new(world.connect(&[b"h2"]).await);
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), tls)
        .await
        .unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move { drop(connection.await) });
    for rows in [
        &[("impersonate-user", "root")][..],
        &[("impersonate-group", "a"), ("impersonate-group", "a")],
        &[
            ("impersonate_user", "root, ada "),
            ("x-remote-user", "root"),
        ],
        &[
            ("impersonate-uid", "0"),
            ("impersonate-extra-scopes", "all"),
        ],
    ] {
        let before = server.seen().len();
        let mut trailers = HeaderMap::new();
        for (name, value) in rows {
            trailers.append(*name, value.parse().unwrap());
        }
        let parts = [Frame::data(Bytes::from("body")), Frame::trailers(trailers)];
        let body = stream::iter(parts.map(Ok::<_, std::io::Error>));
        let request = Request::post("https://localhost/clusters/eu1/api/v1/namespaces/a/echo")
            .header("authorization", format!("Bearer {}", world.token))
            .header("te", "trailers")
            .header("trailer", "impersonate-user")
            .body(StreamBody::new(body))
            .unwrap();
        let asked = timeout(PATIENCE, sender.send_request(request)).await;
        let answer = asked.expect("it is answered").unwrap();
        assert_eq!(answer.status(), 201);
        let body = answer.into_body().collect().await.unwrap();
        assert_eq!(body.to_bytes(), "body");
        let seen = server.seen().split_off(before);
        let [seen] = seen.as_slice() else {
            panic!("{rows:?}: {seen:?}")
        };
        assert_eq!(acting(seen), ACTS, "{rows:?}");
        assert!(!seen.headers.contains_key("te"), "{rows:?}");
        assert_eq!(seen.trailers, None, "{rows:?}");
    }
}

/// Headers that a user of HTTP/2 adds, and the code. What passes must arrive as if they had not been there.
const ADDED: [(&[(&str, &str)], u16); 14] = [
    (&[("impersonate-user", "root")], 403),
    (&[("impersonate-user", "ada")], 403),
    (&[("impersonate-user", "ada, root")], 403),
    (&[("impersonate-user", "root ")], 403),
    (&[("impersonate-user", "")], 403),
    (
        &[("impersonate-user", "ada"), ("impersonate-user", "root")],
        403,
    ),
    (&[("impersonate_user", "root")], 403),
    (&[("impersonate-group", "a, system:masters")], 403),
    (
        &[("impersonate-group", "a"), ("impersonate-group", "a")],
        403,
    ),
    (&[("impersonate-uid", "0")], 403),
    (&[("impersonate-extra-scopes", "all")], 403),
    (&[("impersonate_extra_scopes", "all")], 403),
    (
        &[
            ("x-remote-user", "root"),
            ("x_remote_group", "system:masters"),
        ],
        200,
    ),
    (&[("te", "trailers"), ("trailer", "impersonate-user")], 200),
];

/// L34: the same rules as over HTTP/1.1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_of_http2_never_become_an_identity() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let tls = TokioIo::new(world.connect(&[b"h2"]).await);
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), tls)
        .await
        .unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move { drop(connection.await) });
    for (rows, code) in ADDED {
        let before = server.seen().len();
        let mut request = Request::get("https://localhost/clusters/eu1/api/v1/pods")
            .header("authorization", format!("Bearer {}", world.token));
        for (name, value) in rows {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::new())).unwrap();
        let asked = timeout(PATIENCE, sender.send_request(request)).await;
        let answer = asked.expect("it is answered").unwrap();
        assert_eq!(answer.status().as_u16(), code, "{rows:?}");
        let seen = server.seen().split_off(before);
        match seen.as_slice() {
            [] => assert_ne!(code, 200, "{rows:?}"),
            [one] if code == 200 => assert_eq!(acting(one), ACTS, "{rows:?}"),
            seen => panic!("{rows:?}: {seen:?}"),
        }
    }
}

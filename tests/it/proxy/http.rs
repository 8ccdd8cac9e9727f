//! L7: the forms of HTTP that users and servers speak, each on its whole way: user, hub, line, agent, API server and back.

use std::io::ErrorKind;

use ::http::Response;
use bytes::Bytes;
use futures_util::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::apiserver::ApiServer;
use super::world::{PATIENCE, World};

mod http2;
mod user;

use user::{Told, told, user};

/// A stream of gzip, as the API server gives it; nobody between it and the user unpacks it.
const ZIPPED: &[u8] =
    b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xab\xae\x05\x00\x43\xbf\xa6\xa3\x02\x00\x00\x00";

/// What the stand-in answers to paths that end so.
pub(super) fn answer(path: &str) -> Option<Response<UnsyncBoxBody<Bytes, std::io::Error>>> {
    let whole = |code, rows: &[(&str, &str)], body: &'static [u8]| {
        let body = Full::new(Bytes::from_static(body)).map_err(|n| match n {});
        let mut response = Response::builder().status(code);
        for (name, value) in rows {
            response = response.header(*name, *value);
        }
        response.body(body.boxed_unsync()).unwrap()
    };
    let kind = ("content-type", "application/json");
    Some(match path {
        "zipped" => whole(200, &[kind, ("content-encoding", "gzip")], ZIPPED),
        "known" => whole(200, &[kind, ("etag", "\"7\"")], b"{\"known\":1}"),
        "nothing" => whole(204, &[("warning", "299 - \"w\"")], b""),
        "login" => whole(401, &[kind], b"{\"login\":0}"),
        "moved" => whole(301, &[("location", "/api/v1/pods?limit=1&x=%2F")], b""),
        "unchanged" => whole(304, &[("etag", "\"7\"")], b""),
        "parts" => {
            let parts = ["{\"one\":1}\n", "", "{\"two\":2}\n"];
            let parts = parts.map(|part| Ok(Frame::data(Bytes::from(part))));
            Response::new(StreamBody::new(stream::iter(parts)).boxed_unsync())
        }
        _ => return None,
    })
}

const JSON: &str = "content-type: application/json";
const OK: &str = "HTTP/1.1 200 OK";
const CHUNKED: &str = "Transfer-Encoding: chunked\r\n";

/// Method, path, version, headers and body of a request.
type Asked = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
);

/// What is asked on one connection, one after the other, and what is told, to the byte.
fn rows() -> Vec<(Asked, Told)> {
    // At the end the connection is as good as at first.
    let pods = told(OK, &[JSON, "content-length: 2"], b"{}");
    let last = (row("GET", "pods", "", ""), pods);
    let rows = answers().into_iter().chain(bodies());
    rows.chain([last]).collect()
}

fn row(
    method: &'static str,
    path: &'static str,
    headers: &'static str,
    body: &'static str,
) -> Asked {
    (method, path, "HTTP/1.1", headers, body)
}

/// Forms of answers.
fn answers() -> Vec<(Asked, Told)> {
    vec![
        (
            row("GET", "pods/known", "", ""),
            told(
                OK,
                &[JSON, "etag: \"7\"", "content-length: 11"],
                b"{\"known\":1}",
            ),
        ),
        (
            row("HEAD", "pods/known", "", ""),
            told(OK, &[JSON, "etag: \"7\"", "content-length: 11"], b""),
        ),
        (
            row("GET", "pods/zipped", "Accept-Encoding: gzip\r\n", ""),
            told(
                OK,
                &[JSON, "content-encoding: gzip", "content-length: 22"],
                ZIPPED,
            ),
        ),
        (
            row("HEAD", "pods/zipped", "Accept-Encoding: gzip\r\n", ""),
            told(
                OK,
                &[JSON, "content-encoding: gzip", "content-length: 22"],
                b"",
            ),
        ),
        (
            row("DELETE", "pods/nothing", "", ""),
            told("HTTP/1.1 204 No Content", &["warning: 299 - \"w\""], b""),
        ),
        (
            row("GET", "pods/unchanged", "If-None-Match: \"7\"\r\n", ""),
            told("HTTP/1.1 304 Not Modified", &["etag: \"7\""], b""),
        ),
        (
            row("GET", "pods/parts", "", ""),
            told(
                OK,
                &["transfer-encoding: chunked"],
                b"{\"one\":1}\n{\"two\":2}\n",
            ),
        ),
        (row("HEAD", "pods/parts", "", ""), told(OK, &[], b"")),
    ]
}

/// Forms of requests' bodies.
fn bodies() -> Vec<(Asked, Told)> {
    let created = |len: &str, body: &str| {
        let length = format!("content-length: {len}");
        told("HTTP/1.1 201 Created", &[&length], body.as_bytes())
    };
    vec![
        (
            row("POST", "echo", "Content-Length: 5\r\n", "whole"),
            created("5", "whole"),
        ),
        (
            row("POST", "echo", "Content-Length: 0\r\n", ""),
            created("0", ""),
        ),
        (
            row(
                "PUT",
                "echo",
                CHUNKED,
                "2;x=y\r\nin\r\n6\r\n parts\r\n0\r\nTrailer-Of: mine\r\n\r\n",
            ),
            created("8", "in parts"),
        ),
        (row("PATCH", "echo", CHUNKED, "0\r\n\r\n"), created("0", "")),
        // Nothing is defined for it (RFC 9110 9.3.1, 9.3.5), and servers behind `/proxy/` read it all the same.
        (
            row("GET", "echo", "Content-Length: 5\r\n", "known"),
            created("5", "known"),
        ),
        (
            row("GET", "echo", CHUNKED, "4\r\nsome\r\n0\r\n\r\n"),
            created("4", "some"),
        ),
        (
            row("DELETE", "echo", CHUNKED, "4\r\nsome\r\n0\r\n\r\n"),
            created("4", "some"),
        ),
    ]
}

fn bytes(world: &World, (method, path, version, headers, body): Asked) -> String {
    format!(
        "{method} /clusters/eu1/api/v1/namespaces/a/{path} {version}\r\nHost: h\r\nAuthorization: Bearer {}\r\n{headers}\r\n{body}",
        world.token
    )
}

/// L7: chunked both ways, gzip, HEAD, 204 and 304, on one connection, and all at once on another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_form_of_an_answer_arrives_as_it_was_given() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let mut one = user(&world).await;
    for (asked, expected) in rows() {
        one.io
            .write_all(bytes(&world, asked).as_bytes())
            .await
            .unwrap();
        let answer = timeout(PATIENCE, one.answer(asked.0)).await;
        assert_eq!(answer.ok(), Some(expected), "{asked:?}");
    }
    let mut all = user(&world).await;
    let asked: String = rows().iter().map(|row| bytes(&world, row.0)).collect();
    all.io.write_all(asked.as_bytes()).await.unwrap();
    for (asked, expected) in rows() {
        let answer = timeout(PATIENCE, all.answer(asked.0)).await;
        assert_eq!(answer.ok(), Some(expected), "{asked:?}, pipelined");
    }
    let seen = server.seen();
    let methods: Vec<&str> = seen.iter().map(|seen| seen.method.as_str()).collect();
    let asked: Vec<&str> = rows().iter().map(|row| row.0.0).collect();
    assert_eq!(methods, [&asked[..], &asked[..]].concat());
}

/// L7: a body that waits for `100 Continue` gets it, and one that is refused before does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_waits_is_asked_for_only_where_it_is_wanted() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let expects = "Expect: 100-continue\r\nContent-Length: 5\r\n";
    let mut user = user(&world).await;
    let asked = ("POST", "echo", "HTTP/1.1", expects, "");
    user.io
        .write_all(bytes(&world, asked).as_bytes())
        .await
        .unwrap();
    let line = timeout(PATIENCE, user.line()).await;
    assert_eq!(line.expect("it is asked for"), "HTTP/1.1 100 Continue");
    assert_eq!(user.line().await, "");
    user.io.write_all(b"later").await.unwrap();
    let answer = timeout(PATIENCE, user.answer("")).await.expect("an answer");
    let created = told("HTTP/1.1 201 Created", &["content-length: 5"], b"later");
    assert_eq!(answer, created);
    let seen = server.seen().pop().unwrap();
    assert!(!seen.headers.contains_key("expect"), "{seen:?}");
    // Who may not is told without a word for the body, and nothing arrives.
    let expects = format!("{expects}Impersonate-User: root\r\n");
    let refused = bytes(&world, ("POST", "echo", "HTTP/1.1", "@", "")).replace('@', &expects);
    user.io.write_all(refused.as_bytes()).await.unwrap();
    let answer = timeout(PATIENCE, user.answer("")).await.expect("an answer");
    assert_eq!(answer.status, "HTTP/1.1 403 Forbidden");
    user.end().await;
    assert_eq!(server.seen().len(), 1);
}

/// L7: `Connection: close`, HTTP/1.0 with and without a length, and 1.0 that keeps its connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_ends_where_its_user_said_so() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let parts = b"{\"one\":1}\n{\"two\":2}\n";
    let pods = |status, headers: &[&str]| {
        told(
            status,
            &[&[JSON, "content-length: 2"], headers].concat(),
            b"{}",
        )
    };
    let close = "Connection: close\r\n";
    let old = "HTTP/1.0 200 OK";
    for (asked, expected) in [
        (
            ("GET", "pods", "HTTP/1.1", close, ""),
            pods(OK, &["connection: close"]),
        ),
        (
            ("GET", "pods/parts", "HTTP/1.1", close, ""),
            told(
                OK,
                &["transfer-encoding: chunked", "connection: close"],
                parts,
            ),
        ),
        (("GET", "pods", "HTTP/1.0", "", ""), pods(old, &[])),
        (
            ("GET", "pods/parts", "HTTP/1.0", "", ""),
            told(old, &[], parts),
        ),
        (
            ("POST", "echo", "HTTP/1.0", "Content-Length: 3\r\n", "old"),
            told("HTTP/1.0 201 Created", &["content-length: 3"], b"old"),
        ),
    ] {
        let mut user = user(&world).await;
        user.io
            .write_all(bytes(&world, asked).as_bytes())
            .await
            .unwrap();
        let answer = timeout(PATIENCE, user.answer("")).await;
        assert_eq!(answer.expect("an answer"), expected, "{asked:?}");
        user.end().await;
    }
    let mut user = user(&world).await;
    for _ in 0..2 {
        let asked = ("GET", "pods", "HTTP/1.0", "Connection: keep-alive\r\n", "");
        user.io
            .write_all(bytes(&world, asked).as_bytes())
            .await
            .unwrap();
        let answer = timeout(PATIENCE, user.answer("")).await;
        let expected = pods(old, &["connection: keep-alive"]);
        assert_eq!(answer.expect("an answer"), expected);
    }
}

/// L7, L9: where only the connection's end says that an answer is whole, one that broke does not look like it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_answer_has_no_goodbye_for_a_user_of_http_1_0() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let mut user = user(&world).await;
    let asked = ("GET", "pods/broken", "HTTP/1.0", "", "");
    user.io
        .write_all(bytes(&world, asked).as_bytes())
        .await
        .unwrap();
    assert_eq!(user.line().await, "HTTP/1.0 200 OK");
    while !user.line().await.is_empty() {}
    assert_eq!(user.exactly(4).await, b"half");
    server.release();
    let mut rest = Vec::new();
    let ended = timeout(PATIENCE, user.io.read_to_end(&mut rest)).await;
    let ended = ended.expect("it ends").map_err(|error| error.kind());
    assert_eq!((ended, rest), (Err(ErrorKind::UnexpectedEof), Vec::new()));
}

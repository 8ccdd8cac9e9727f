//! L11: requests that are refused before they are parsed, over raw sockets: the user is told as of any other refusal.

use bytes::Bytes;
use http::Request;
use http_body_util::Empty;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::apiserver::ApiServer;
use super::figures::scraped;
use super::hostile::{codes, filled, told};
use super::told::{Row as Told, status as whole, told as said};
use super::world::{PATIENCE, World};

const FRAMING: &str = "send one well-formed HTTP request";
const SIZE: &str = "send fewer or shorter headers, and a shorter URL";

/// Code, reason, what is wrong and what to do.
type Row = (u16, &'static str, &'static str, &'static str);

const fn framing(what: &'static str) -> Row {
    (400, "Framing", what, FRAMING)
}

/// The `Status` that one answer is, after a look at its headers.
fn status(answer: &str) -> (String, Value) {
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let header = |name: &str| {
        let mut lines = head.split("\r\n");
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        value.unwrap_or_else(|| panic!("{name} in {head}"))
    };
    assert_eq!(header("connection"), "close");
    assert_eq!(header("content-type"), "application/json");
    assert_eq!(header("content-length"), body.len().to_string());
    let id = header("x-request-id").to_owned();
    (id, serde_json::from_str(body).unwrap())
}

fn expected(id: &str, (code, reason, what, next): Row) -> Value {
    let row = Told {
        hop: "hub",
        code,
        reason,
        what,
        next,
        after: None,
    };
    whole(id, row)
}

/// Checks the last answer, of so many, against the row.
fn refused(told: &str, before: usize, row: Row) {
    let answers: Vec<_> = told.split("HTTP/1.1 ").skip(1).collect();
    assert_eq!(answers.len(), before + 1, "{told}");
    let (id, status) = status(answers[before]);
    assert!(!id.is_empty());
    assert_eq!(status, expected(&id, row));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_parsed_is_refused_by_name_and_request_id() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let get = |rest: &str| format!("GET @/api HTTP/1.1\r\nHost: h\r\n$\r\n{rest}\r\n");
    let many = (
        431,
        "HeadSize",
        "the request's head has more than 100 header fields",
        SIZE,
    );
    let long = (
        431,
        "HeadSize",
        "the request's head has more than 64 KiB",
        SIZE,
    );
    let rows = [
        (
            get("Host: i\r\n"),
            framing(
                "not a well-formed HTTP request: Host, Content-Length or Transfer-Encoding twice",
            ),
        ),
        (
            get("X : y\r\n"),
            framing("not a well-formed HTTP request: a bad field name"),
        ),
        (
            "hello\r\n\r\n".to_owned(),
            framing("not a well-formed HTTP request: a bad request line"),
        ),
        (
            "GET @/api HTTP/1.1\n".to_owned(),
            framing("not a well-formed HTTP request: a LF without CR"),
        ),
        (
            "GET @/a<b HTTP/1.1\r\nHost: h\r\n\r\n".to_owned(),
            framing("not a well-formed HTTP request: a bad request line"),
        ),
        (
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
            framing("not a well-formed HTTP request: a bad request line"),
        ),
        (get(&"X: y\r\n".repeat(200)), many),
        (get(&"X: y\r\n".repeat(20_000)), long),
        (get(&format!("X: {}\r\n", "y".repeat(100_000))), long),
        (
            format!("GET @/{} HTTP/1.1\r\nHost: h\r\n\r\n", "y".repeat(70_000)),
            long,
        ),
    ];
    for (sent, row) in &rows {
        refused(&told(&world, &filled(&world, sent)).await, 0, *row);
    }
    assert_eq!(server.seen().len(), 0, "{:?}", server.seen());
    let figures = scraped(&world).await;
    let counted = ["Framing", "HeadSize"].map(|rule| {
        let name = format!("linesman_hub_refusals_total{{rule=\"{rule}\"}}");
        figures.get(&name).copied()
    });
    assert_eq!(counted, [Some(6.0), Some(4.0)]);
}

/// What HTTP/1.1 would not take on the way to the cluster is refused here; the connection is not to blame.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_of_http2_is_refused_by_the_same_measure() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let tls = TokioIo::new(world.connect(&[b"h2"]).await);
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), tls)
        .await
        .unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move { drop(connection.await) });
    let mut ask = async |target: usize, fields: usize, value: usize| {
        let uri = format!(
            "https://localhost/clusters/eu1/api/v1/pods?x={}",
            "y".repeat(target)
        );
        let mut request = Request::get(uri);
        // With the authority and who asks, two more.
        for _ in 0..fields {
            request = request.header("x", "y".repeat(value));
        }
        let request = request.header("authorization", format!("Bearer {}", world.token));
        let request = request.body(Empty::<Bytes>::new()).unwrap();
        let answer = timeout(PATIENCE, sender.send_request(request)).await;
        answer.expect("it is answered").unwrap()
    };
    for (target, fields, value) in [(0, 90, 1), (0, 1, 65_000), (60_000, 1, 5_000), (0, 90, 650)] {
        let answer = ask(target, fields, value).await;
        assert_eq!(answer.status(), 200, "{target} {fields} {value}");
        let seen = server.seen().pop().unwrap();
        assert_eq!(seen.headers.get_all("x").iter().count(), fields);
    }
    let before = server.seen().len();
    for (target, fields, value, what) in [
        (
            0,
            99,
            1,
            "the request's head has more than 100 header fields",
        ),
        (
            0,
            1_500,
            1,
            "the request's head has more than 100 header fields",
        ),
        (0, 1, 66_000, "the request's head has more than 64 KiB"),
        (0, 2, 60_000, "the request's head has more than 64 KiB"),
        (60_000, 1, 6_000, "the request's head has more than 64 KiB"),
    ] {
        let row = Told {
            hop: "hub",
            code: 431,
            reason: "HeadSize",
            what,
            next: SIZE,
            after: None,
        };
        said(ask(target, fields, value).await, row).await;
    }
    assert_eq!(ask(0, 1, 1).await.status(), 200);
    assert_eq!(server.seen().len(), before + 1);
}

/// The answers to what came before it are whole, and first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_waits_for_its_turn() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let slow = "GET @/api/v1/slow HTTP/1.1\r\nHost: h\r\n$\r\n\r\n";
    let sent = filled(&world, &format!("{slow}{slow}GET / HTTP/1.1\r\n\r\n"));
    let mut tls = world.connect(&[]).await;
    tls.write_all(&sent).await.unwrap();
    server.asked_for("/slow", 1).await;
    server.release();
    let mut answer = Vec::new();
    let read = timeout(PATIENCE, tls.read_to_end(&mut answer)).await;
    drop(read.expect("the connection ends"));
    let told = String::from_utf8(answer).unwrap();
    assert_eq!(codes(&told), ["200", "200", "400"], "{told}");
    refused(&told, 2, framing("not a well-formed HTTP request: no Host"));
}

/// The head that stands in for a refused one is nobody's to send.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_can_ask_for_a_refusal() {
    let world = World::new().await;
    let same = "GET / HTTP/1.1\r\nHost: refused\r\nConnection: close\r\n\r\n";
    let told = told(&world, same.as_bytes()).await;
    assert_eq!(codes(&told).len(), 1, "{told}");
    assert!(!told.contains("\"kind\":\"Status\""), "{told}");
}

/// A body that breaks its own framing: what was sent of it has no end, so nothing was executed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_body_is_the_users_fault_and_on_record_as_such() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let head = "POST @/api/v1/namespaces/a/echo HTTP/1.1\r\nHost: h\r\n$\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (body, what) in [
        ("4\r\nbody\r\nx\r\n", "a bad chunk size"),
        (
            "4\r\nbody!\r\n0\r\n\r\n",
            "a chunk that is longer than it says",
        ),
        ("4\r\nbody\r\n0\r\nX : y\r\n\r\n", "a bad field name"),
    ] {
        let told = told(&world, &filled(&world, &format!("{head}{body}"))).await;
        let what = format!("not a well-formed HTTP request: {what}");
        assert_eq!(codes(&told), ["400"], "{told}");
        let (id, status) = status(told.split_once("HTTP/1.1 ").unwrap().1);
        let message = format!("hub: {what}; {FRAMING} (request {id})");
        assert_eq!(status["message"], json!(message));
        let rows = world.audit().await;
        let closed = rows
            .iter()
            .find(|row| row.stage == "close" && row.request_id == id);
        assert_eq!(closed.and_then(|row| row.code), Some(400));
    }
}

//! L40: whose access ends while something of theirs runs is told by which grant, where the protocol has a place for that, and nothing
//! where it has none.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use linesman::clock;
use linesman::hub::access::Grant;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::apiserver::ApiServer;
use super::world::{Door, PATIENCE, World, get};
use crate::wait::until;

/// From when the access is over.
const CUT: Duration = Duration::from_secs(5);
const WATCH: &str = "/api/v1/pods?watch=1";
const EXEC: &str = "/api/v1/namespaces/a/pods/x/exec?command=sh";
const EVENT: &str = "{\"type\":\"ADDED\",\"object\":{}}\n";
const REVOKED: &str = "access ended: grant grant-ada was revoked by admin";

async fn revoke(world: &World) {
    let revoke = Request::delete("/v1/grants/grant-ada")
        .header("if-match", "*")
        .header("authorization", format!("Bearer {}", world.admin()));
    let revoked = world.send(revoke.body(Bytes::new()).unwrap()).await;
    assert_eq!(revoked.status(), 204);
}

/// A watch in JSON, which this has come over.
async fn watching(server: &ApiServer, world: &World, said: &str) -> Incoming {
    let mut request = get(WATCH);
    let headers = request.headers_mut();
    headers.insert("accept", "application/json".parse().unwrap());
    let mut body = world.send(request).await.into_body();
    server.event(said);
    let frame = timeout(PATIENCE, body.frame()).await.expect("an event");
    assert_eq!(frame.unwrap().unwrap().into_data().unwrap(), said);
    body
}

/// What comes yet, and whether that ends as it should.
async fn rest(mut body: Incoming) -> (String, bool) {
    let mut text = Vec::new();
    let whole = loop {
        match timeout(CUT, body.frame()).await.expect("it ends") {
            Some(Ok(frame)) => text.extend_from_slice(&frame.into_data().unwrap()),
            Some(Err(_)) => break false,
            None => break true,
        }
    };
    (String::from_utf8(text).unwrap(), whole)
}

/// The one event that says why.
fn told(text: &str, why: &str) {
    assert_eq!(text.find('\n'), Some(text.len() - 1), "{text}");
    let event: Value = serde_json::from_str(text).unwrap();
    assert_eq!(event["type"], "ERROR");
    status(&event["object"], why);
}

fn status(status: &Value, why: &str) {
    let code = (&status["status"], &status["reason"], &status["code"]);
    assert_eq!(
        code,
        (&"Failure".into(), &"Forbidden".into(), &403.into()),
        "{status}"
    );
    let message = status["message"].as_str().unwrap();
    assert!(message.starts_with(&format!("hub: {why}")), "{message}");
}

async fn recorded(world: &World, action: &str, why: &str) {
    let closed = async || {
        let rows = world.hub.store.audit_tail(None, 100).await.unwrap();
        rows.iter().any(|row| {
            let says = row.reason.as_deref().is_some_and(|r| r.starts_with(why));
            row.stage == "close" && row.action == action && says
        })
    };
    until("the record says by which grant", CUT, closed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_in_json_ends_with_an_event_that_names_the_revoked_grant() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let body = watching(&server, &world, EVENT).await;
    revoke(&world).await;
    let (text, whole) = rest(body).await;
    assert!(whole);
    told(&text, REVOKED);
    server.no_watches().await;
    recorded(&world, "kube.watch", REVOKED).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_in_json_ends_with_an_event_that_names_the_expired_grant() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let short = |grant: &mut Grant| {
        "short".clone_into(&mut grant.id);
        grant.expires_at = Some(clock::now() + time::Duration::HOUR);
    };
    world.grant("ada", &["view"], short).await;
    let body = watching(&server, &world, EVENT).await;
    // The look that ends what has run out, an hour early: a busy machine has all its time to ask before.
    let late = clock::now() + time::Duration::HOUR;
    assert_eq!(world.hub.requests.end_over(late), 1);
    let (text, whole) = rest(body).await;
    assert!(whole);
    let why = "access ended: grant short expired";
    told(&text, why);
    recorded(&world, "kube.watch", why).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_over_http2_is_told_the_same_and_the_connection_goes_on() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let tls = TokioIo::new(world.connect(&[b"h2"]).await);
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), tls).await.unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { drop(connection.await) });
    let request = Request::get(format!("https://localhost/clusters/eu1{WATCH}"))
        .header("accept", "application/json")
        .header("authorization", format!("Bearer {}", world.token));
    let request = request.body(Full::<Bytes>::default()).unwrap();
    let mut body = sender.send_request(request).await.unwrap().into_body();
    server.event(EVENT);
    let frame = timeout(PATIENCE, body.frame()).await.expect("an event");
    assert_eq!(frame.unwrap().unwrap().into_data().unwrap(), EVENT);
    revoke(&world).await;
    let (text, whole) = rest(body).await;
    assert!(whole);
    told(&text, REVOKED);
    let request = Request::get("https://localhost/v1/hub");
    let beside = sender.send_request(request.body(Full::default()).unwrap());
    assert_eq!(beside.await.unwrap().status(), 200);
}

/// Not for want of access: who asks again may have it by the next line.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_in_json_ends_with_an_event_when_its_line_is_lost() {
    const LOST: Door = Door {
        shut: true,
        cuts: 1,
    };
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let body = watching(&server, &world, EVENT).await;
    world.door.send_replace(LOST);
    let (text, whole) = rest(body).await;
    assert!(whole);
    assert_eq!(text.find('\n'), Some(text.len() - 1), "{text}");
    let event: Value = serde_json::from_str(&text).unwrap();
    let status = &event["object"];
    let told = [&event["type"], &status["reason"], &status["code"]];
    let wanted: [Value; 3] = ["ERROR".into(), "ServiceUnavailable".into(), 503.into()];
    assert_eq!(told, wanted.each_ref(), "{text}");
    let message = status["message"].as_str().unwrap();
    let why = "line: the line was lost while the watch ran; ask again (request ";
    assert!(message.starts_with(why), "{message}");
    recorded(&world, "kube.watch", "the line was lost").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_the_middle_of_an_event_nothing_is_said_of_a_lost_line() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let body = watching(&server, &world, "{\"type\":\"ADDED\",\"object\":{").await;
    world.door.send_replace(Door {
        shut: true,
        cuts: 1,
    });
    assert_eq!(rest(body).await, (String::new(), false));
    recorded(&world, "kube.watch", "the line was lost").await;
}

/// A part of an event stays one, and an error follows: nobody takes it for a whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_the_middle_of_an_event_nothing_is_said() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let body = watching(&server, &world, "{\"type\":\"ADDED\",\"object\":{").await;
    revoke(&world).await;
    assert_eq!(rest(body).await, (String::new(), false));
    recorded(&world, "kube.watch", REVOKED).await;
}

/// A session that this frame came back over; the stand-in answers in capitals.
async fn session(world: &World, frame: &[u8]) -> TokioIo<hyper::upgrade::Upgraded> {
    let request = Request::get(format!("/clusters/eu1{EXEC}"))
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-protocol", "v5.channel.k8s.io")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
    let mut response = world.send(request.body(Bytes::new()).unwrap()).await;
    assert_eq!(response.status(), 101);
    let mut io = TokioIo::new(hyper::upgrade::on(&mut response).await.unwrap());
    io.write_all(frame).await.unwrap();
    io.flush().await.unwrap();
    let mut answer = vec![0; frame.len()];
    let came = timeout(PATIENCE, io.read_exact(&mut answer)).await;
    came.expect("it is answered").unwrap();
    assert_eq!(answer, frame.to_ascii_uppercase());
    io
}

/// All that comes yet.
async fn last_words(mut io: TokioIo<hyper::upgrade::Upgraded>) -> Vec<u8> {
    let mut rest = Vec::new();
    let end = timeout(CUT, io.read_to_end(&mut rest)).await;
    // Whether the connection says goodbye is another matter.
    drop(end.expect("it ends"));
    rest
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_by_websocket_ends_with_a_status_and_a_close() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let io = session(&world, b"\x82\x03\x01hi").await;
    revoke(&world).await;
    let rest = last_words(io).await;
    let [0x82, 126, high, low, behind @ ..] = &rest[..] else {
        panic!("{rest:?}");
    };
    let (said, close) = behind.split_at(u16::from_be_bytes([*high, *low]).into());
    let (channel, said) = said.split_first().unwrap();
    assert_eq!(*channel, 3);
    status(&serde_json::from_slice(said).unwrap(), REVOKED);
    let [0x88, _, 0x03, 0xe8, why @ ..] = close else {
        panic!("{close:?}");
    };
    assert!(why.starts_with(REVOKED.as_bytes()), "{close:?}");
    server.no_watches().await;
    recorded(&world, "kube.exec", REVOKED).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_the_middle_of_a_frame_nothing_is_said() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let io = session(&world, b"\x82\x05\x01hi").await;
    revoke(&world).await;
    assert_eq!(last_words(io).await, b"");
    recorded(&world, "kube.exec", REVOKED).await;
}

//! Kubernetes requests from the hub's side of a stream to a stand-in API server, through the agent's real
//! server, gate and client.

mod abuse;
mod access;
mod alike;
mod answers;
mod apiserver;
mod bare;
mod broken;
mod cutoff;
mod deaf;
mod drained;
mod errors;
mod figures;
mod hostile;
mod http;
mod hub;
mod kill;
mod left;
mod line;
mod lost;
mod outage;
mod owner;
mod pair;
mod parted;
mod pipelined;
mod reach;
pub(crate) mod record;
mod refused;
mod replicas;
mod revoked;
mod rotated;
mod silence;
mod stalled;
mod table;
mod told;
mod twin;
mod unparsed;
mod unsent;
mod upload;
mod watches;
mod world;

use ::http::{Request, StatusCode};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use linesman::agent::link::LinkState;
use linesman::hub::Hub;
use linesman::tunnel::Incoming;
use serde_json::Value;
use tokio::sync::{mpsc, watch};

use apiserver::{ApiServer, Seen};
use pair::Pair;
use world::post;

/// The API token of user `ada`, who has a grant on every cluster of the hub.
pub(crate) async fn ada(hub: &Hub) -> String {
    world::ada(hub).await
}

/// An agent's side of the streams of a line, with an API server behind it.
pub(crate) async fn behind(
    (hub, cluster): (&str, &str),
    streams: mpsc::Receiver<Incoming>,
    state: watch::Receiver<LinkState>,
) {
    let server = ApiServer::start().await;
    let shared = Pair::shared(&server, hub, cluster, &[]);
    world::forward(shared, streams, state).await;
}

async fn text(
    response: ::http::Response<impl hyper::body::Body<Data = Bytes, Error: std::fmt::Debug>>,
) -> String {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

async fn status(
    response: ::http::Response<impl hyper::body::Body<Data = Bytes, Error: std::fmt::Debug>>,
) -> Value {
    serde_json::from_str(&text(response).await).unwrap()
}

fn header<'a>(seen: &'a Seen, name: &str) -> Vec<&'a str> {
    seen.headers
        .get_all(name)
        .iter()
        .map(|v| v.to_str().unwrap())
        .collect()
}

#[tokio::test]
async fn a_request_arrives_as_its_user_with_our_headers_only() {
    let server = ApiServer::start().await;
    let pair = Pair::new(&server);
    let request = Request::get("/clusters/eu1/api/v1/namespaces/a/pods?limit=5&x=%2F&x=")
        .header("host", "hub.example.com")
        .header("authorization", "Bearer lmt1.users.token")
        .header("cookie", "a=b")
        .header("x-remote-user", "root")
        .header("x-remote-group", "system:masters")
        .header("x_remote_user", "root")
        .header("x-forwarded-for", "6.6.6.6")
        .header("forwarded", "for=6.6.6.6")
        .header("audit-id", "theirs")
        .header(
            "traceparent",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        )
        .header("origin", "https://evil")
        .header("referer", "https://evil")
        .header("proxy-authorization", "Basic x")
        .header("connection", "x-private")
        .header("x-private", "1")
        .header("te", "trailers")
        .header("accept", "application/json;as=Table")
        .header("accept", "application/json")
        .header("if-none-match", "x")
        .header("user-agent", "kubectl/v1.35");
    let response = pair
        .send(request.body(Bytes::new()).unwrap())
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    let seen = server.seen();
    let [one] = seen.as_slice() else {
        panic!("{} requests", seen.len())
    };
    assert_eq!(
        (one.method.as_str(), one.target.as_str()),
        ("GET", "/api/v1/namespaces/a/pods?limit=5&x=%2F&x=")
    );
    let names: Vec<_> = one
        .headers
        .keys()
        .map(|name| name.as_str().to_owned())
        .collect();
    let mut sorted = names.clone();
    sorted.sort_unstable();
    assert_eq!(
        sorted,
        [
            "accept",
            "audit-id",
            "authorization",
            "host",
            "if-none-match",
            "impersonate-group",
            "impersonate-user",
            "traceparent",
            "user-agent",
            "x-forwarded-for",
        ]
    );
    are_ours(one, &server);
    assert_eq!(
        header(one, "accept"),
        ["application/json;as=Table", "application/json"]
    );
}

fn are_ours(one: &Seen, server: &ApiServer) {
    assert_eq!(header(one, "impersonate-user"), ["linesman:ada"]);
    assert_eq!(
        header(one, "impersonate-group"),
        ["linesman:admin", "linesman:ops"]
    );
    assert_eq!(header(one, "authorization"), ["Bearer line-token"]);
    assert_eq!(header(one, "audit-id"), [Pair::id(1).as_str()]);
    assert_eq!(header(one, "x-forwarded-for"), ["10.1.2.3"]);
    // The stream's meta says it, and nothing beside that.
    let traced = "00-07070707070707070707070707070707-0707070707070707-00";
    assert_eq!(header(one, "traceparent"), [traced]);
    assert_eq!(header(one, "host"), [server.authority()]);
}

#[tokio::test]
async fn impersonation_by_the_user_never_reaches_the_api_server() {
    let server = ApiServer::start().await;
    let pair = Pair::new(&server);
    for (name, value) in [
        ("Impersonate-User", "root"),
        ("IMPERSONATE-GROUP", "system:masters"),
        ("impersonate_user", "root"),
        ("Impersonate-Uid", "1"),
        ("Impersonate-Extra-Scopes", "x"),
    ] {
        let request = Request::get("/clusters/eu1/api/v1/pods")
            .header(name, value)
            .body(Bytes::new())
            .unwrap();
        match Pair::plan(&request) {
            // The one form that a grant can let through, and then by the assertion.
            Ok(plan) => assert!(
                name == "Impersonate-User" && plan.acting.is_some() && plan.headers.len() == 1,
                "{name}: {plan:?}"
            ),
            Err(refusal) => assert_eq!(
                (refusal.code, refusal.reason),
                (StatusCode::FORBIDDEN, "Impersonation"),
                "{name}"
            ),
        }
        // A hub that passes it on all the same meets the agent's own rules.
        let response = pair.send_raw(request).await.unwrap();
        assert_eq!(response.status(), 403, "{name}");
        let body = status(response).await;
        assert!(
            body["message"]
                .as_str()
                .unwrap()
                .starts_with("agent: the request carries"),
            "{body}"
        );
    }
    assert_eq!(server.seen().len(), 0);
}

#[tokio::test]
async fn bodies_pass_both_ways() {
    let server = ApiServer::start().await;
    let pair = Pair::new(&server);
    let sent = Bytes::from(vec![b'x'; 700_000]);
    let request = post("/api/v1/namespaces/a/echo", sent.clone());
    let response = pair.send(request).await.unwrap();
    assert_eq!(response.status(), 201);
    let back = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(back.len(), sent.len());
    assert!(back == sent);
}

#[tokio::test]
async fn a_switched_protocol_is_copied_both_ways() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let server = ApiServer::start().await;
    let pair = Pair::new(&server);
    let request = Request::get("/clusters/eu1/api/v1/namespaces/a/pods/x/exec?command=sh")
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-protocol", "v5.channel.k8s.io")
        .body(Bytes::new())
        .unwrap();
    let mut response = pair.send(request).await.unwrap();
    assert_eq!(response.status(), 101);
    assert_eq!(response.headers()["upgrade"], "websocket");
    let upgraded = hyper::upgrade::on(&mut response).await.unwrap();
    let mut io = hyper_util::rt::TokioIo::new(upgraded);
    io.write_all(b"hello").await.unwrap();
    let mut back = [0; 5];
    io.read_exact(&mut back).await.unwrap();
    assert_eq!(&back, b"HELLO");
    drop(io);
    server.no_watches().await;
}

#[tokio::test]
async fn a_refused_switch_passes_unmodified() {
    let server = ApiServer::start().await;
    let pair = Pair::new(&server);
    let request = Request::get("/clusters/eu1/api/v1/namespaces/a/pods/none/exec?command=sh")
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .body(Bytes::new())
        .unwrap();
    let response = pair.send(request).await.unwrap();
    assert_eq!(response.status(), 404);
    assert_eq!(text(response).await, apiserver::NOT_FOUND);
}

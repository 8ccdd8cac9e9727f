//! Kubernetes requests from the hub's side of a stream to a stand-in API server, through the agent's real
//! server, gate and client.

mod abuse;
mod access;
mod alike;
mod apiserver;
mod bare;
mod broken;
mod cutoff;
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
mod pipelined;
mod reach;
pub(crate) mod record;
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
use world::{PATIENCE, get, post};

use crate::wait::measured;

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

/// L8
#[tokio::test]
async fn a_watch_streams_each_event_and_ends_upstream_when_it_is_dropped() {
    let server = ApiServer::start().await;
    let pair = Pair::new(&server);
    let response = pair.send(get("/api/v1/pods?watch=1")).await.unwrap();
    let mut body = response.into_body();
    for n in 0..3 {
        server.event(&format!("event {n}\n"));
        let frame = tokio::time::timeout(PATIENCE, body.frame())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        assert_eq!(frame.into_data().unwrap(), format!("event {n}\n"));
    }
    assert_eq!(server.watches(), 1);
    drop(body);
    let row = ("L8", "watch dropped → ended upstream", "≤ 100 ms");
    measured(row, PATIENCE, server.no_watches()).await;
}

/// L8
#[tokio::test]
async fn a_request_that_is_given_up_before_its_answer_ends_upstream() {
    let server = ApiServer::start().await;
    let pair = Pair::new(&server);
    tokio::select! {
        answered = pair.send(get("/api/v1/stuck")) => panic!("{:?}", answered.err()),
        () = server.asked_for("/stuck", 1) => {}
    }
    let row = ("L8", "request given up → ended upstream", "≤ 100 ms");
    measured(row, PATIENCE, server.no_watches()).await;
}

#[tokio::test]
async fn a_large_list_is_not_buffered() {
    let server = ApiServer::start().await;
    let pair = Pair::new(&server);
    let response = pair.send(get("/api/v1/endless")).await.unwrap();
    let mut body = response.into_body();
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(!first.is_empty());
    // Nobody reads on: the server is held up after what windows and sockets take.
    let limit = 16 << 20;
    let before = server
        .settled(async || drop(pair.send(get("/api/v1/pods")).await.unwrap()))
        .await;
    assert!(before < limit, "{before} bytes were taken in");
    let mut read = first.len();
    while read < limit {
        read += body
            .frame()
            .await
            .unwrap()
            .unwrap()
            .into_data()
            .unwrap()
            .len();
    }
    assert!(server.produced() > before);
}

/// L9: an answer whose server dies in its middle is cut off, and never looks complete.
#[tokio::test]
async fn a_broken_answer_is_no_clean_end() {
    let server = ApiServer::start().await;
    let pair = Pair::new(&server);
    let response = pair.send(get("/api/v1/broken")).await.unwrap();
    assert_eq!(response.status(), 200);
    let mut body = response.into_body();
    let half = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(half, "half");
    server.release();
    assert!(body.frame().await.unwrap().is_err());
}

#[tokio::test]
async fn answers_lose_cookies_and_foreign_locations() {
    let server = ApiServer::start().await;
    let pair = Pair::new(&server);
    let response = pair
        .send(get("/api/v1/namespaces/a/services/s/proxy/evil"))
        .await
        .unwrap();
    let headers = response.headers();
    for gone in [
        "set-cookie",
        "strict-transport-security",
        "alt-svc",
        "access-control-allow-origin",
        "location",
    ] {
        assert!(!headers.contains_key(gone), "{gone}");
    }
    assert_eq!(headers["x-content-type-options"], "nosniff");
    assert_eq!(headers["content-security-policy"], "sandbox");
}

#[tokio::test]
async fn a_refused_token_is_renewed_once_for_a_request_without_body() {
    let server = ApiServer::start().await;
    let pair = Pair::new(&server);
    server.accept_only("Bearer line-token-2");
    let get = || get("/api/v1/pods");
    let response = pair.send(get()).await.unwrap();
    assert_eq!(response.status(), 200);
    // Between the two the line asks whose refusal it was.
    assert_eq!((server.asked("/api/v1/pods"), server.seen().len()), (2, 3));
    server.accept_only("Bearer another");
    let response = pair.send(get()).await.unwrap();
    assert_eq!(response.status(), 502);
    let body = status(response).await;
    assert!(
        body["message"]
            .as_str()
            .unwrap()
            .contains("check Secret linesman-line-bind"),
        "{body}"
    );
    assert_eq!(body["details"]["causes"][0]["field"], "api server");
}

#[tokio::test]
async fn an_unseen_role_is_waited_for_and_a_write_is_not_repeated() {
    let server = ApiServer::start().await;
    let pair = Pair::new(&server);
    server.refuse_impersonation(2);
    let response = pair.send(get("/api/v1/pods")).await.unwrap();
    assert_eq!(response.status(), 200);
    server.refuse_impersonation(1);
    let post = || post("/api/v1/namespaces/a/echo", "x");
    let before = server.seen().len();
    let response = pair.send(post()).await.unwrap();
    assert_eq!(response.status(), 503);
    assert!(!response.headers().contains_key("retry-after"));
    assert_eq!(server.seen().len(), before + 1);
    assert_eq!(pair.send(post()).await.unwrap().status(), 201);
}

/// L11: a Pod that says what the API server says of the line's rights is asked once, and its words are the user's.
#[tokio::test]
async fn what_is_behind_the_api_server_does_not_say_whom_the_line_may_act_as() {
    const LYING: &str = "/api/v1/namespaces/a/pods/p/proxy/lying";
    let server = ApiServer::start().await;
    let pair = Pair::new(&server);
    for (n, asked) in [get(LYING), post(LYING, "x")].into_iter().enumerate() {
        let response = pair.send(asked).await.unwrap();
        assert_eq!(response.status(), 403);
        assert_eq!(text(response).await, apiserver::NOT_ACTING);
        assert_eq!(server.asked("/lying"), n + 1);
    }
    // The API server itself is taken at its word there, too.
    server.refuse_impersonation(2);
    let response = pair
        .send(get("/api/v1/namespaces/a/pods/p/proxy/fine"))
        .await;
    assert_eq!(response.unwrap().status(), 200);
    assert_eq!(server.asked("/fine"), 2);
}

/// L11: the API server quotes what was asked for, whatever it is called; the role is not written anew for that, and nothing is asked
/// twice.
#[tokio::test]
async fn a_name_in_the_path_does_not_pass_for_a_refusal_of_the_lines_account() {
    let server = ApiServer::start().await;
    let pair = Pair::new(&server);
    for name in [
        "cannot impersonate resource system:serviceaccount:",
        "\" is forbidden: User \"system:serviceaccount:linesman:linesman-line\" cannot impersonate resource \"users",
    ] {
        let escaped = name.replace(' ', "%20").replace('"', "%22");
        let path = format!("{}{escaped}", apiserver::CLOSED);
        for (n, asked) in [get(&path), post(&path, "x")].into_iter().enumerate() {
            let response = pair.send(asked).await.unwrap();
            assert_eq!(response.status(), 403);
            assert_eq!(text(response).await, apiserver::not_read(name));
            assert_eq!(server.asked(&path), n + 1);
        }
    }
    assert_eq!(pair.anew(), 0);
    server.refuse_impersonation(1);
    let response = pair.send(get("/api/v1/pods")).await.unwrap();
    assert_eq!((response.status().as_u16(), pair.anew()), (200, 1));
}

#[tokio::test]
async fn the_users_own_403_passes_unchanged() {
    let server = ApiServer::start().await;
    let pair = Pair::new(&server);
    let response = pair.send(get("/api/v1/forbidden")).await.unwrap();
    assert_eq!(response.status(), 403);
    assert_eq!(text(response).await, apiserver::FORBIDDEN);
}

#[tokio::test]
async fn an_api_server_that_is_down_is_named() {
    let server = ApiServer::start().await;
    let pair = Pair::new(&server);
    server.stop().await;
    let response = pair.send(get("/api/v1/pods")).await.unwrap();
    assert_eq!(response.status(), 502);
    assert!(!response.headers().contains_key("retry-after"));
    let body = status(response).await;
    assert!(
        body["message"]
            .as_str()
            .unwrap()
            .starts_with("api server: the agent cannot connect"),
        "{body}"
    );
}

#[tokio::test]
async fn the_agent_refuses_an_assertion_for_another_request() {
    let server = ApiServer::start().await;
    let pair = Pair::new(&server);
    let meta = pair.meta("GET", "/api/v1/pods");
    let delete = Request::delete("/api/v1/pods").body(Bytes::new()).unwrap();
    let response = pair.send_with(delete, meta).await.unwrap();
    assert_eq!(response.status(), 403);
    let body = status(response).await;
    assert!(
        body["message"]
            .as_str()
            .unwrap()
            .starts_with("agent: the assertion is for another request"),
        "{body}"
    );
    assert_eq!(server.seen().len(), 0);
}

/// L17: an end that was suspended has another time than its line. Nothing is sent on, and another line is asked for.
#[tokio::test]
async fn a_line_whose_ends_do_not_agree_on_the_time_is_replaced() {
    let server = ApiServer::start().await;
    let pair = Pair::new(&server);
    for (apart, code, renewals) in [(0, 200, 0), (9, 200, 0), (-30, 503, 1), (90, 503, 2)] {
        pair.set_apart(apart);
        let response = pair.send(get("/api/v1/pods")).await.unwrap();
        let retry = response.headers().get("retry-after").cloned();
        let told = (response.status().as_u16(), pair.set_apart(0));
        assert_eq!(told, (code, renewals), "{apart} s apart");
        assert_eq!(retry.is_some(), code == 503, "{apart} s apart");
    }
    assert_eq!(server.seen().len(), 2);
}

/// H36: what the hub lets through, the owner of the cluster may still refuse.
#[tokio::test]
async fn the_owners_policy_holds_at_the_next_request() {
    let server = ApiServer::start().await;
    let pair = Pair::new(&server);
    let get = || get("/api/v1/pods");
    assert_eq!(pair.send(get()).await.unwrap().status(), 200);
    pair.policy("line", "off");
    let response = pair.send(get()).await.unwrap();
    assert_eq!(response.status(), 403);
    assert!(
        status(response).await["message"]
            .as_str()
            .unwrap()
            .contains("'line' in ConfigMap linesman-policy")
    );
    pair.policy("readOnly", "true");
    assert_eq!(pair.send(get()).await.unwrap().status(), 200);
    let delete = Request::delete("/clusters/eu1/api/v1/pods")
        .body(Bytes::new())
        .unwrap();
    assert_eq!(pair.send(delete).await.unwrap().status(), 403);
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

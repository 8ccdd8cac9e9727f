//! H36, L44: a hub that asks for more than it may, by the agent's real server, gate and client: the owner's policy holds, and no
//! stream leads anywhere but to the API server.

use std::io::ErrorKind;

use ::http::{Request, StatusCode};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper_util::rt::TokioIo;
use linesman::clock;
use serde_json::Value;
use tokio::io::AsyncReadExt as _;
use tokio::time::timeout;

use super::apiserver::ApiServer;
use super::pair::Pair;
use super::told::{self, Row};
use super::world::{PATIENCE, get, post};
use super::{header, status};

/// As a hub that applies no rule sends it.
fn asked(method: &str, uri: &str, headers: &[(&str, &str)]) -> Request<Bytes> {
    let mut request = Request::builder().method(method).uri(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Bytes::new()).unwrap()
}

/// Code, hop and rule of the answer; the agent's own have both.
async fn rule(pair: &Pair, request: Request<Bytes>) -> (u16, Value, Value) {
    let target = request.uri().path_and_query().map_or("", |t| t.as_str());
    let meta = pair.meta(request.method().as_str(), target);
    let answer = pair.send_with(request, meta).await.unwrap();
    let code = answer.status();
    if code == StatusCode::OK {
        return (200, Value::Null, Value::Null);
    }
    let mut said = status(answer).await;
    let cause = said["details"]["causes"][0].take();
    (
        code.as_u16(),
        cause["field"].clone(),
        cause["reason"].clone(),
    )
}

/// The day after tomorrow: it is not now.
fn another_day() -> String {
    let day = (clock::now() + time::Duration::days(2))
        .weekday()
        .to_string();
    format!("{} 00:00-23:59", &day[..3])
}

/// H36: key and value of the policy, what it lets pass and what not, and by what rule.
#[tokio::test]
async fn each_key_of_the_owners_policy_holds_against_the_hub() {
    const LIST: (&str, &str) = ("GET", "/api/v1/pods");
    const NODE: (&str, &str) = ("GET", "/api/v1/nodes/n/proxy/x");
    let server = ApiServer::start().await;
    let pair = Pair::new(&server);
    let delete = ("DELETE", "/api/v1/namespaces/a/pods/x");
    let inside = ("GET", "/api/v1/namespaces/a/pods");
    let outside = ("GET", "/api/v1/namespaces/b/pods");
    let hours = another_day();
    let keys = ("GET", "/api/v1/namespaces/linesman/secrets/linesman-keys");
    let all = ("GET", "/api/v1/secrets?fieldSelector=&fieldSelector=");
    let policy = (
        "PATCH",
        "/api/v1/namespaces/linesman/configmaps/linesman-policy",
    );
    for (key, value, passes, refused, name) in [
        ("ownNamespace", "deny", Some(LIST), keys, "OwnNamespace"),
        ("ownNamespace", "deny", Some(inside), all, "OwnNamespace"),
        ("ownNamespace", "deny", Some(delete), policy, "OwnNamespace"),
        ("line", "off", None, LIST, "LineOff"),
        ("readOnly", "true", Some(LIST), delete, "ReadOnly"),
        ("maxGroups", "1", None, LIST, "Groups"),
        ("namespaces", "a", Some(inside), outside, "Namespace"),
        ("namespaces", "a", Some(delete), LIST, "Namespace"),
        ("hours", hours.as_str(), None, LIST, "OutOfHours"),
        ("nodeProxy", "deny", Some(LIST), NODE, "NodeProxy"),
    ] {
        pair.policy(key, value);
        let before = server.seen().len();
        let request = |(method, path): (&str, &str)| asked(method, path, &[("host", "h")]);
        let found = rule(&pair, request(refused)).await;
        assert_eq!(found, (403, "agent".into(), name.into()), "{key}: {value}");
        assert_eq!(server.seen().len(), before, "{key}: {value}");
        if let Some(passes) = passes {
            assert_eq!(rule(&pair, request(passes)).await.0, 200, "{key}: {value}");
        }
        // Without it the same passes, but for what is refused unless it is allowed.
        let allowed = if key == "ownNamespace" {
            key
        } else {
            "nodeProxy"
        };
        pair.policy(allowed, "allow");
        assert_eq!(rule(&pair, request(refused)).await.0, 200, "{key}");
    }
}

/// A hub that puts its clock where the owner lets people in.
#[tokio::test]
async fn a_hub_that_lies_about_the_time_does_not_open_the_owners_hours() {
    let server = ApiServer::start().await;
    let pair = Pair::new(&server);
    pair.policy("hours", &another_day());
    let list = || asked("GET", "/api/v1/pods", &[("host", "h")]);
    for days in [2, -5] {
        pair.lie(days * 86_400);
        let found = rule(&pair, list()).await;
        assert_eq!(found, (403, "agent".into(), "OutOfHours".into()), "{days}");
    }
    pair.policy("hours", "00:00-24:00");
    assert_eq!(rule(&pair, list()).await.0, 200);
}

/// L44: the form of the target, Host and the path; what answers elsewhere is asked nothing.
#[tokio::test]
async fn a_stream_reaches_the_api_server_and_nothing_else_whatever_it_names() {
    let server = ApiServer::start().await;
    let pair = Pair::new(&server);
    let decoy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    decoy.set_nonblocking(true).unwrap();
    let there = decoy.local_addr().unwrap().to_string();
    let there = there.as_str();
    let kubelet = format!("/api/v1/nodes/{there}/proxy/pods");
    let metadata = "169.254.169.254";
    for (method, target, host, code) in [
        ("GET", format!("http://{there}/api/v1/pods"), there, 200),
        ("GET", format!("https://{there}/api/v1/pods"), there, 200),
        ("GET", format!("http://{there}/api/v1/pods"), "other", 400),
        ("GET", "/api/v1/pods".to_owned(), there, 200),
        (
            "GET",
            format!("http://{metadata}/api/v1/pods"),
            metadata,
            200,
        ),
        (
            "GET",
            format!("http://{metadata}/latest/meta-data"),
            metadata,
            404,
        ),
        ("GET", "/latest/meta-data/iam".to_owned(), metadata, 404),
        (
            "GET",
            "http://kubernetes.default.svc/metrics".to_owned(),
            "kubernetes.default.svc",
            200,
        ),
        ("GET", format!("//{there}/api/v1/pods"), there, 400),
        ("GET", kubelet, there, 403),
        ("CONNECT", there.to_owned(), there, 405),
    ] {
        let before = server.seen().len();
        let found = rule(&pair, asked(method, &target, &[("host", host)])).await;
        assert_eq!(found.0, code, "{method} {target} {host}: {found:?}");
        let seen = server.seen().split_off(before);
        assert_eq!(seen.len(), usize::from(code == 200), "{target}");
        for one in seen {
            assert_eq!(header(&one, "host"), [server.authority()], "{target}");
            assert!(one.target.starts_with('/'), "{target}: {}", one.target);
        }
    }
    let asked = decoy.accept().map(|_| ()).unwrap_err();
    assert_eq!(asked.kind(), ErrorKind::WouldBlock, "it was asked");
}

/// L47: what runs ends with the access, and what comes then is told who ended it, and how to allow it again.
#[tokio::test]
async fn access_that_the_owner_withdrew_ends_what_runs_and_is_named() {
    let server = ApiServer::start().await;
    let pair = Pair::new(&server);
    let mut watch = pair
        .send(get("/api/v1/pods?watch=1"))
        .await
        .unwrap()
        .into_body();
    server.event("event\n");
    timeout(PATIENCE, watch.frame())
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    let mut exec = get("/api/v1/namespaces/a/pods/x/exec?command=sh");
    for (name, value) in [("connection", "Upgrade"), ("upgrade", "websocket")] {
        exec.headers_mut().insert(name, value.parse().unwrap());
    }
    let mut session = pair.send(exec).await.unwrap();
    assert_eq!(session.status(), 101);
    let session = hyper::upgrade::on(&mut session).await.unwrap();
    let mut session = TokioIo::new(session);
    pair.withdraw();
    let mut rest = Vec::new();
    let ended = timeout(PATIENCE, session.read_to_end(&mut rest)).await;
    drop(ended.expect("the session ends"));
    let ended = timeout(PATIENCE, watch.frame()).await;
    assert!(ended.expect("the watch ends").unwrap().is_err());
    server.no_watches().await;
    let asked = server.seen().len();
    let row = Row {
        hop: "agent",
        code: 502,
        reason: "Withdrawn",
        what: "the cluster's owner ended access through the line: Secret linesman-line-bind was deleted",
        next: "to allow it again: kubectl -n linesman create secret generic linesman-line-bind",
        after: None,
    };
    for (n, request) in [(3, get("/api/v1/pods")), (4, post("/api/v1/pods", "{}"))] {
        let answer = pair.send(request).await.unwrap();
        assert!(!answer.headers().contains_key("retry-after"));
        assert_eq!(status(answer).await, told::status(&Pair::id(n), row));
    }
    assert_eq!(server.seen().len(), asked);
}

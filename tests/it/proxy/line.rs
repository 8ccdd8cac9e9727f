//! The whole way: a user's HTTPS request, the hub's proxy, a real line, the agent's gate, the API server.

use bytes::Bytes;
use http_body_util::BodyExt as _;

use super::apiserver::{self, ApiServer};
use super::world::{Door, PATIENCE, World, get, post};
use crate::wait::measured;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_users_request_crosses_the_line_as_that_user() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let response = world.send(get("/api/v1/pods?limit=1")).await;
    assert_eq!(response.status(), 200);
    let id = response.headers()["x-request-id"]
        .to_str()
        .unwrap()
        .to_owned();
    let seen = server.seen();
    assert_eq!(seen[0].target, "/api/v1/pods?limit=1");
    assert_eq!(seen[0].headers["impersonate-user"], "linesman:ada");
    assert_eq!(seen[0].headers["impersonate-group"], "linesman:admin");
    assert_eq!(seen[0].headers["authorization"], "Bearer line-token");
    assert_eq!(seen[0].headers["audit-id"], id);
    assert_eq!(seen[0].headers["x-forwarded-for"], "127.0.0.1");
}

/// The trace that the API server is told of: version and flags, its id, whose child the request is.
fn traced(server: &ApiServer) -> [String; 4] {
    let seen = server.seen().pop().unwrap();
    let values: Vec<_> = seen.headers.get_all("traceparent").iter().collect();
    let [value] = values.as_slice() else {
        panic!("{values:?}")
    };
    let parts = value.to_str().unwrap().split('-').map(str::to_owned);
    parts.collect::<Vec<_>>().try_into().unwrap()
}

/// W3C Trace Context: a user's trace goes on, with the hub between; what is none begins one that nobody else has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_users_trace_goes_on_to_the_api_server_and_any_other_begins_at_the_hub() {
    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let ask = async |traceparent: &[&str]| {
        let mut request = get("/api/v1/pods");
        for value in traceparent {
            let value = value.parse().unwrap();
            request.headers_mut().append("traceparent", value);
        }
        assert_eq!(world.send(request).await.status(), 200);
        traced(&server)
    };
    let users = format!("00-{TRACE}-{SPAN}-01");
    let [version, trace, parent, flags] = ask(&[&users]).await;
    assert_eq!([&*version, &*trace, &*flags], ["00", TRACE, "01"]);
    assert_ne!(parent, SPAN);
    let malformed = format!("00-{}-{SPAN}-01", TRACE.to_uppercase());
    let mut begun = std::collections::BTreeSet::from([TRACE.to_owned()]);
    let (users, malformed) = (users.as_str(), malformed.as_str());
    for sent in [&[][..], &[malformed], &[users, users], &["ff"]] {
        let [version, trace, parent, flags] = ask(sent).await;
        assert_eq!([&*version, &*flags], ["00", "00"], "{sent:?}");
        assert_eq!((trace.len(), parent.len()), (32, 16), "{sent:?}");
        assert_ne!(parent, SPAN);
        assert!(begun.insert(trace), "{sent:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_body_crosses_both_ways() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let sent = Bytes::from(vec![b'x'; 2_500_000]);
    let post = post("/api/v1/namespaces/a/echo", sent.clone());
    let response = world.send(post).await;
    assert_eq!(response.status(), 201);
    assert!(response.into_body().collect().await.unwrap().to_bytes() == sent);
}

/// L8
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_ends_upstream_when_its_user_leaves() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let mut body = world.send(get("/api/v1/pods?watch=1")).await.into_body();
    for n in 0..3 {
        server.event(&format!("event {n}\n"));
        let frame = tokio::time::timeout(PATIENCE, body.frame())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        assert_eq!(frame.into_data().unwrap(), format!("event {n}\n"));
    }
    drop(body);
    let row = ("L8", "user left → watch ended upstream", "≤ 100 ms");
    measured(row, PATIENCE, server.no_watches()).await;
    let again = world.send(get("/api/v1/pods")).await;
    assert_eq!(again.status(), 200, "the line is up after the cancel");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_list_without_a_reader_is_not_taken_in() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let mut body = world.send(get("/api/v1/endless")).await.into_body();
    drop(body.frame().await.unwrap().unwrap());
    let others = async || {
        let beside = world.send(get("/api/v1/pods")).await;
        assert_eq!(beside.status(), 200, "others pass beside it");
    };
    let taken = server.settled(others).await;
    assert!(taken < 32 << 20, "{taken} bytes were taken in");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_line_repeats_a_get_and_never_a_post() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    // The line breaks while the API server thinks.
    let reading = world.send(get("/api/v1/slow"));
    let writing = world.send(post("/api/v1/namespaces/a/slowly", "x"));
    let cutting = async {
        server.asked_for("/slow", 1).await;
        server.asked_for("/slowly", 1).await;
        let cut = Door {
            shut: false,
            cuts: 1,
        };
        world.door.send_replace(cut);
        server.asked_for("/slow", 2).await;
        server.release();
    };
    let (read, written, ()) = tokio::join!(reading, writing, cutting);
    assert_eq!(read.status(), 200);
    assert_eq!(server.asked("/slow"), 2);
    assert_eq!(written.status(), 502);
    assert!(!written.headers().contains_key("retry-after"));
    let body = written.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8_lossy(&body).into_owned();
    assert!(text.contains("outcome unknown"), "{text}");
    // After everything has come back, the write has still been asked for once.
    assert_eq!(world.send(get("/api/v1/pods")).await.status(), 200);
    assert_eq!(server.asked("/slowly"), 1);
}

/// L3: kubectl tries SPDY where the answer to its WebSocket handshake is anything but a switch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_switch_passes_and_closes() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let mut request = get("/api/v1/namespaces/a/pods/none/exec?command=sh");
    for (name, value) in [("connection", "Upgrade"), ("upgrade", "websocket")] {
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    let response = world.send(request).await;
    assert_eq!(response.status(), 404);
    assert_eq!(response.headers()["connection"], "close");
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, apiserver::NOT_FOUND);
}

//! The whole way: a user's HTTPS request, the hub's proxy, a real line, the agent's gate, the API server.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::BodyExt as _;

use super::apiserver::{self, ApiServer};
use super::world::{Door, World, get, post};

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_ends_upstream_when_its_user_leaves() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let mut body = world.send(get("/api/v1/pods?watch=1")).await.into_body();
    for n in 0..3 {
        server.event(&format!("event {n}\n"));
        let frame = tokio::time::timeout(Duration::from_secs(5), body.frame())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        assert_eq!(frame.into_data().unwrap(), format!("event {n}\n"));
    }
    let since = Instant::now();
    drop(body);
    server.no_watches().await;
    assert!(
        since.elapsed() < Duration::from_millis(100),
        "{:?}",
        since.elapsed()
    );
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

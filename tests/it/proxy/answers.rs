//! Answers on their way back: how they stream, how they end, and what they lose.

use http_body_util::BodyExt as _;

use super::apiserver::ApiServer;
use super::pair::Pair;
use super::world::{PATIENCE, get};
use crate::wait::measured;

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

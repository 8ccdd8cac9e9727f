//! Answers of a hostile cluster, and of a hostile agent.

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::BodyExt as _;
use linesman::tunnel::Incoming;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::proxy::apiserver::ApiServer;
use crate::proxy::told::{Row, told};
use crate::proxy::world::{PATIENCE, World, get, name};

/// L42: answers that a hostile cluster gives, by the stand-in's path.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hostile_answer_is_sanitised_or_a_502_and_the_line_stays_up() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let epoch = || world.hub.tunnels.get(&name()).unwrap().facts().epoch;
    let before = epoch();
    for path in ["early-switch", "huge-head", "bad-head", "endless-hints"] {
        let response = world.send(get(&format!("/api/v1/raw/{path}"))).await;
        assert_eq!(response.status(), StatusCode::BAD_GATEWAY, "{path}");
        let text = response.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8_lossy(&text).into_owned();
        assert!(text.contains("\"kind\":\"Status\""), "{path}: {text}");
    }
    let page = world
        .send(get("/api/v1/namespaces/a/services/s/proxy/evil"))
        .await;
    assert_eq!(page.status(), 302);
    for gone in [
        "set-cookie",
        "location",
        "alt-svc",
        "strict-transport-security",
    ] {
        assert!(!page.headers().contains_key(gone), "{gone}");
    }
    assert_eq!(page.headers()["content-security-policy"], "sandbox");
    assert_eq!(world.send(get("/api/v1/pods")).await.status(), 200);
    assert_eq!(epoch(), before, "the line was lost");
}

/// L9: a refusal that breaks off is no refusal without a body.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_that_breaks_off_is_not_taken_for_a_whole_one() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let response = world.send(get("/api/v1/raw/half-refusal")).await;
    let row = Row {
        hop: "api server",
        code: 502,
        reason: "BadAnswer",
        what: "it refused the request, and the connection broke before it had said why",
        next: "repeat it; if it stays, check what stands between the agent and its API server",
        after: None,
    };
    told(response, row).await;
}

/// L42: an agent that answers as no server does costs its own requests, and its line holds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_hostile_agent_answers_is_cleaned_or_refused() {
    const PLAIN: &str = "/api/v1/pods";
    const PROXIED: &str = "/api/v1/namespaces/a/services/s/proxy/page";
    const GOOD: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
    let mut world = World::new().await;
    let (_stop, mut streams, _state) = world.dial().await;
    let before = world.hub.tunnels.get(&name()).unwrap();
    let before = before.facts().epoch;
    let head = |rows: &str| format!("HTTP/1.1 200 OK\r\n{rows}\r\nContent-Length: 2\r\n\r\n{{}}");
    let refused = [
        head("X: a\rSet-Cookie: b=c"),
        head("X: a\0b"),
        head("X y: a"),
        head("X : a"),
        head(": a"),
        head(&format!("X: {}", "x".repeat(1 << 20))),
        head(&"X: y\r\n".repeat(10_000)),
        head("Content-Length: 3"),
        format!(
            "{}{GOOD}",
            "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n".repeat(20_000)
        ),
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
            .to_owned(),
        "HTTP/1.1 99 Low\r\n\r\n".to_owned(),
        "HTTP/1.1 1000 High\r\n\r\n".to_owned(),
        "HTTP/3.7 200 OK\r\n\r\n".to_owned(),
        "SSH-2.0-OpenSSH_9.2\r\n".to_owned(),
        "\0\0\0\0".to_owned(),
        String::new(),
    ];
    for answer in refused {
        let shown = answer.chars().take(60).collect::<String>();
        let response = answered(&world, &mut streams, PLAIN, answer).await;
        assert_eq!(response.status(), StatusCode::BAD_GATEWAY, "{shown:?}");
        let text = response.into_body().collect().await.unwrap().to_bytes();
        assert!(
            String::from_utf8_lossy(&text).contains("\"kind\":\"Status\""),
            "{shown:?}"
        );
    }
    let rows = "Set-Cookie: a=b\r\nStrict-Transport-Security: max-age=1\r\nAlt-Svc: h3\r\nLocation: //evil/\r\n\
                Access-Control-Allow-Origin: *\r\nConnection: X-Hop\r\nX-Hop: a\r\nContent-Type: text/html";
    for path in [PLAIN, PROXIED] {
        let page = answered(&world, &mut streams, path, head(rows)).await;
        assert_eq!(page.status(), 200);
        for gone in [
            "set-cookie",
            "strict-transport-security",
            "alt-svc",
            "location",
            "access-control-allow-origin",
            "x-hop",
        ] {
            assert!(!page.headers().contains_key(gone), "{path}: {gone}");
        }
        assert_eq!(page.headers()["x-content-type-options"], "nosniff");
        let boxed = page.headers().get("content-security-policy");
        assert_eq!(boxed.is_some(), path == PROXIED, "{path}");
    }
    // What comes behind an answer is nobody's.
    let response = answered(&world, &mut streams, PLAIN, format!("{GOOD}{GOOD}")).await;
    assert_eq!(response.status(), 200);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, Bytes::from_static(b"{}"));
    let line = world.hub.tunnels.get(&name()).unwrap();
    assert_eq!(line.facts().epoch, before, "the line was lost");
}

/// What the user gets where the agent answers these bytes.
async fn answered(
    world: &World,
    streams: &mut mpsc::Receiver<Incoming>,
    path: &str,
    answer: String,
) -> Response<hyper::body::Incoming> {
    let agent = async {
        let mut stream = streams.recv().await.unwrap().stream;
        let mut request = [0; 4096];
        drop(stream.read(&mut request).await);
        drop(stream.write_all(answer.as_bytes()).await);
        drop(stream.shutdown().await);
        stream
    };
    let asked = async { tokio::join!(world.send(get(path)), agent).0 };
    timeout(PATIENCE, asked)
        .await
        .expect("the user is answered")
}

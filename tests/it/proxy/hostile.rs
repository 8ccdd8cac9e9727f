//! Requests and answers that are meant to be understood differently by hub, agent and API server: smuggling,
//! header injection, path traversal. Row by row over raw sockets, against the real hub with a line.

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::apiserver::ApiServer;
use super::world::{PATIENCE, World, get};

mod answer;
mod identity;
mod tenant;
mod trailers;

use identity::ours_alone;
pub(super) use identity::{ACTS, acting};
pub(super) use trailers::TRAILED;

/// What came back for raw bytes: all until the hub closed the connection.
pub(super) async fn told(world: &World, bytes: &[u8]) -> String {
    let mut tls = world.connect(&[]).await;
    tls.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    let read = timeout(PATIENCE, tls.read_to_end(&mut answer)).await;
    // A close without a TLS goodbye is one, too.
    drop(read.unwrap_or_else(|_| {
        panic!(
            "the connection stays open after {:?}: {}",
            String::from_utf8_lossy(bytes),
            String::from_utf8_lossy(&answer)
        )
    }));
    String::from_utf8_lossy(&answer).into_owned()
}

/// The codes of all answers on that connection.
pub(super) fn codes(told: &str) -> Vec<&str> {
    told.split("HTTP/1.1 ")
        .skip(1)
        .map(|answer| &answer[..3])
        .collect()
}

/// `@` = the path up to the cluster, `$` = a valid Authorization line.
pub(super) fn filled(world: &World, text: &str) -> Vec<u8> {
    text.replace('@', "/clusters/eu1")
        .replace('$', &format!("Authorization: Bearer {}", world.token))
        .into_bytes()
}

pub(super) const PODS: &str =
    "GET @/api/v1/pods HTTP/1.1\r\nHost: h\r\nConnection: close\r\n$\r\n\r\n";

/// L36: each is one whole connection, a good request behind the bad one.
pub(super) const SMUGGLING: [&str; 22] = [
    "GET @/api HTTP/1.1\r\nHost: h\r\nHost: h\r\n$\r\n\r\n",
    "GET @/api HTTP/1.1\r\nHost: h\r\nhost: evil\r\n$\r\n\r\n",
    "GET @/api HTTP/1.1\r\n$\r\n\r\n",
    "GET https://evil@/api HTTP/1.1\r\nHost: h\r\n$\r\n\r\n",
    "POST @/api HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nContent-Length: 4\r\n$\r\n\r\nbody",
    "POST @/api HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nContent-Length: 5\r\n$\r\n\r\nbody",
    "POST @/api HTTP/1.1\r\nHost: h\r\nContent-Length: 4, 4\r\n$\r\n\r\nbody",
    "POST @/api HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n$\r\n\r\nbody",
    "POST @/api HTTP/1.1\r\nHost: h\r\nContent-Length: 0x4\r\n$\r\n\r\nbody",
    "POST @/api HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n$\r\n\r\n0\r\n\r\n",
    "POST @/api HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n$\r\n\r\n0\r\n\r\n",
    "POST @/api HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n$\r\n\r\n0\r\n\r\n",
    "POST @/api HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: xchunked\r\n$\r\n\r\n0\r\n\r\n",
    "POST @/api HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n$\r\n\r\n0\r\n\r\n",
    "POST @/api HTTP/1.1\r\nHost: h\r\nTransfer-Encoding : chunked\r\n$\r\n\r\n0\r\n\r\n",
    "POST @/api HTTP/1.1\r\nHost: h\r\nTransfer-Encoding:\r\n chunked\r\n$\r\n\r\n0\r\n\r\n",
    "POST @/api HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n$\r\n\r\n0\r\n\r\n",
    "GET @/api HTTP/1.1\nHost: h\n$\n\n",
    "GET @/api HTTP/1.1\r\nHost: h\r\n$\r\nX: a\0b\r\n\r\n",
    "GET @/api HTTP/1.1\r\nHost: h\r\n$\r\nX: a\rImpersonate-User: root\r\n\r\n",
    "GET @/api HTTP/1.1\r\nHost: h\r\n$\r\nX: a\n\rImpersonate-User: root\r\n\r\n",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_can_be_framed_in_two_ways_is_refused_and_the_connection_closed() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    for row in SMUGGLING {
        let told = told(&world, &filled(&world, &format!("{row}{PODS}"))).await;
        assert_eq!(codes(&told), ["400"], "{row:?}: {told}");
    }
    assert_eq!(server.seen().len(), 0, "{:?}", server.seen());
    let good = told(&world, &filled(&world, PODS)).await;
    assert_eq!(codes(&good), ["200"], "{good}");
}

/// L36, L38: target and code. All of them with a valid token.
pub(super) const TARGETS: [(&str, u16); 36] = [
    ("@//api/v1/pods", 400),
    ("@/api//v1/pods", 400),
    ("@/api/v1/../../apis", 400),
    ("@/api/v1/./pods", 400),
    ("@/api/v1/%2e%2e/apis", 400),
    ("@/api/v1/%2E./apis", 400),
    ("@/api/v1/%252e%252e/apis", 400),
    ("@/api/v1/namespaces/a%2fpods", 400),
    ("@/api/v1/namespaces/a%2Fpods", 400),
    ("@/api/v1/namespaces/a%252Fpods", 400),
    ("@/api/v1/namespaces/a%5cpods", 400),
    ("@/api/v1/namespaces/a\\pods", 400),
    ("@/api/v1/namespaces/a%00/pods", 400),
    ("@/api/v1/namespaces/a%0d%0aX:y/pods", 400),
    ("@/api/v1/namespaces/%c0%ae%c0%ae/pods", 400),
    ("@/api/v1/namespaces/%zz/pods", 400),
    ("@/api/v1/namespaces/%/pods", 400),
    ("@/api/v1/namespaces/a/pods/../../proxy/x", 400),
    ("@", 404),
    ("@/", 404),
    ("@/debug/pprof", 404),
    ("@/logs/", 404),
    ("@/API/v1/pods", 404),
    ("@/clusters/eu1/api", 404),
    ("/clusters/eu2/api/v1/pods", 403),
    ("/clusters/EU1/api/v1/pods", 403),
    ("/clusters/e%751/api/v1/pods", 403),
    ("/clusters/eu1%2f..%2feu2/api", 403),
    ("/clusters/eu1%00/api", 403),
    ("/clusters/eu1;x=y/api", 403),
    ("/clusters/./api", 403),
    ("/clusters/../clusters/eu2/api", 403),
    ("/clusters/eu2/../eu1/api", 403),
    ("/clusters//eu1/api", 403),
    ("//clusters/eu1/api", 404),
    ("/%63lusters/eu1/api/v1/pods", 404),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_that_two_parsers_could_read_differently_reaches_no_cluster() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    for (target, code) in TARGETS {
        let request = format!("GET {target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n$\r\n\r\n");
        let told = told(&world, &filled(&world, &request)).await;
        assert_eq!(codes(&told), [code.to_string()], "{target}: {told}");
    }
    for method in ["CONNECT", "TRACE", "PRI"] {
        let request =
            format!("{method} @/api/v1/pods HTTP/1.1\r\nHost: h\r\nConnection: close\r\n$\r\n\r\n");
        let told = told(&world, &filled(&world, &request)).await;
        assert!(codes(&told)[0].starts_with('4'), "{method}: {told}");
    }
    assert_eq!(server.seen().len(), 0, "{:?}", server.seen());
}

/// L6: the tail behind `/proxy/` and the query are not ours to read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tail_behind_proxy_and_the_query_arrive_as_they_were_sent() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let long = format!("/api/v1/pods?x={}", "y".repeat(8 << 10));
    let targets = [
        "/api/v1/namespaces/a/services/s:80/proxy/a%2Fb;c+d//e/../f?x=%2F&x=&x",
        "/api/v1/namespaces/a/services/s/proxy/%252e",
        "/api/v1/namespaces/a/pods?labelSelector=a%3Db%2Cc&x=a+b&&y=;",
        "/api/v1/namespaces/a/pods/p/none?command=sh&command=-c&command=",
        &long,
    ];
    for target in targets {
        let response = world.send(get(target)).await;
        assert_eq!(response.status(), 200, "{target}");
        assert_eq!(server.seen().last().unwrap().target, target);
    }
}

/// L37: a switch that was not granted ends the connection, and what was sent behind it goes nowhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_behind_a_refused_switch_goes_upstream() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    for (path, code) in [
        ("/api/v1/namespaces/a/pods/none/exec", "404"),
        ("/api/v1/namespaces/a/pods/sick/exec", "500"),
        ("/api/v1/namespaces/a/pods/x/attach", "200"),
    ] {
        for protocol in ["websocket", "SPDY/3.1"] {
            let before = server.seen().len();
            let request = format!(
                "GET @{path} HTTP/1.1\r\nHost: h\r\n$\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\r\n{PODS}"
            );
            let told = told(&world, &filled(&world, &request)).await;
            assert_eq!(codes(&told), [code], "{path}: {told}");
            assert_eq!(server.seen().len(), before + 1, "{path}");
        }
    }
}

/// L7, L34: users speak HTTP/2 as well, by the same rules.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http2_users_are_served_by_the_same_rules() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let tls = world.connect(&[b"h2"]).await;
    assert_eq!(tls.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(tls))
            .await
            .unwrap();
    #[expect(clippy::disallowed_methods, reason = "ends with its connection")]
    tokio::spawn(async move { drop(connection.await) });
    let request = |target: &str, headers: &[(&str, &str)]| {
        let mut request = Request::get(format!("https://localhost{target}"))
            .header("authorization", format!("Bearer {}", world.token));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(Empty::<Bytes>::new()).unwrap()
    };
    let pods = "/clusters/eu1/api/v1/pods";
    let mut send = async |request| {
        sender
            .send_request(request)
            .await
            .unwrap()
            .status()
            .as_u16()
    };
    assert_eq!(send(request(pods, &[])).await, 200);
    ours_alone(&server.seen()[0], "HTTP/2");
    for (target, header, code) in [
        (pods, ("host", "evil"), 400),
        ("/clusters/eu1/api/v1/%2e%2e/apis", ("x", "y"), 400),
        ("/clusters/eu1//api", ("x", "y"), 400),
        ("/clusters/eu1/api/v1/namespaces/a%2fb", ("x", "y"), 400),
        ("/clusters/eu2/api/v1/pods", ("x", "y"), 403),
    ] {
        assert_eq!(
            send(request(target, &[header])).await,
            code,
            "{target} {header:?}"
        );
    }
    // Many at once, and one that is given up, on the same connection.
    let mut watch = sender
        .send_request(request("/clusters/eu1/api/v1/pods?watch=1", &[]))
        .await
        .unwrap();
    server.event("one\n");
    let first = watch.body_mut().frame().await.unwrap().unwrap();
    assert_eq!(first.into_data().unwrap(), "one\n");
    let many = (0..50).map(|_| sender.send_request(request(pods, &[])));
    for answer in futures_util::future::join_all(many.collect::<Vec<_>>()).await {
        assert_eq!(answer.unwrap().status(), 200);
    }
    drop(watch);
    server.no_watches().await;
}

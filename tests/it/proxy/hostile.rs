//! Requests and answers that are meant to be understood differently by hub, agent and API server: smuggling,
//! header injection, path traversal. Row by row over raw sockets, against the real hub with a line.

use std::collections::BTreeSet;

use bytes::Bytes;
use http::{HeaderName, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use linesman::hub::access::Grant;
use linesman::tunnel::Incoming;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::apiserver::{ApiServer, Seen};
use super::world::{PATIENCE, World, get};

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

const PODS: &str = "GET @/api/v1/pods HTTP/1.1\r\nHost: h\r\nConnection: close\r\n$\r\n\r\n";

/// L36: each is one whole connection, a good request behind the bad one.
const SMUGGLING: [&str; 22] = [
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
const TARGETS: [(&str, u16); 36] = [
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

/// Headers that a user adds, and the code. What passes must arrive as if they had not been there.
const HEADERS: [(&str, u16); 43] = [
    ("Impersonate-User: root", 403),
    ("impersonate-user: root", 403),
    ("iMpErSoNaTe-UsEr: root", 403),
    ("IMPERSONATE_USER: root", 403),
    ("Impersonate-User: ada", 403),
    ("Impersonate-User: ada, root", 403),
    ("Impersonate-User: root \t ", 403),
    ("Impersonate-User: ada\r\nimpersonate-user: root", 403),
    ("Impersonate-Group: a\r\nImpersonate-Group: a", 403),
    ("IMPERSONATE-EXTRA-SCOPES: all", 403),
    ("Impersonate_Extra_Scopes: all", 403),
    ("Impersonate-: root", 403),
    ("IMPERSONATE-GROUP: system:masters", 403),
    ("Impersonate-Group: a, system:masters", 403),
    ("Impersonate_User: root", 403),
    ("impersonate_Group: system:masters", 403),
    ("Impersonate-User:", 403),
    ("Impersonate-User:   ", 403),
    ("Impersonate-Uid: 0", 403),
    ("Impersonate-Extra-Scopes: all", 403),
    ("Impersonate-Extra-a%2fb: c", 403),
    ("Impersonate-User: root\r\nImpersonate-User: root", 403),
    (
        "Connection: Impersonate-User\r\nImpersonate-User: root",
        403,
    ),
    (
        "Connection: close, impersonate-group\r\nImpersonate-Group: system:masters",
        403,
    ),
    // What they name is taken from the user's headers, and never from ours.
    (
        "Connection: Impersonate-User, Impersonate-Group, Authorization",
        200,
    ),
    ("Impersonate-User : root", 400),
    ("Impersonate_User : root", 400),
    ("Impersonate-User\t: root", 400),
    (" Impersonate-User: root", 400),
    ("X-Remote-User: root", 200),
    ("x_remote_group: system:masters", 200),
    ("X-Remote-Extra-Scopes: all", 200),
    ("X-Forwarded-For: 127.0.0.1", 200),
    ("X-Forwarded-Client-Cert: x", 200),
    ("Forwarded: for=127.0.0.1", 200),
    ("Audit-ID: mine", 200),
    ("Cookie: a=b", 200),
    ("Proxy-Authorization: Basic x", 200),
    ("Connection: Audit-ID, X-Forwarded-For, Host", 200),
    ("Connection: close, X-Thing\r\nX-Thing: 1", 200),
    ("TE: trailers\r\nTrailer: Impersonate-User", 200),
    ("Keep-Alive: 5\r\nProxy-Connection: keep-alive", 200),
    ("Upgrade: h2c\r\nConnection: Upgrade", 400),
];

/// The names that reach the API server, besides those of an upgrade.
const OURS: [&str; 7] = [
    "audit-id",
    "authorization",
    "host",
    "impersonate-group",
    "impersonate-user",
    "traceparent",
    "x-forwarded-for",
];

/// L34: the identity that arrives is ours, whatever the user sends, or nothing arrives.
fn ours_alone(seen: &Seen, row: &str) {
    let mut names: Vec<_> = seen.headers.keys().map(ToString::to_string).collect();
    names.sort_unstable();
    assert_eq!(names, OURS, "{row}");
    let all = |name: &str| {
        let values = seen.headers.get_all(name).iter();
        values.map(|v| v.to_str().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(all("impersonate-user"), ["linesman:ada"], "{row}");
    assert_eq!(all("impersonate-group"), ["linesman:admin"], "{row}");
    assert_eq!(all("authorization"), ["Bearer line-token"], "{row}");
    assert_eq!(all("x-forwarded-for"), ["127.0.0.1"], "{row}");
    assert_ne!(all("audit-id"), ["mine"], "{row}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_of_the_user_never_become_an_identity() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    for (row, code) in HEADERS {
        let before = server.seen().len();
        let request = format!(
            "GET @/api/v1/pods HTTP/1.1\r\nHost: h\r\n$\r\nConnection: close\r\n{row}\r\n\r\n"
        );
        let told = told(&world, &filled(&world, &request)).await;
        assert_eq!(codes(&told), [code.to_string()], "{row}: {told}");
        let seen = server.seen().split_off(before);
        match seen.as_slice() {
            [] => assert_ne!(code, 200, "{row}"),
            [one] if code == 200 => ours_alone(one, row),
            seen => panic!("{row}: {seen:?}"),
        }
    }
}

/// As which user and in which groups; None = 403.
type Arrives = Option<(&'static str, &'static [&'static str])>;

/// L10, L34: what someone adds whom a grant lets act as `bob` in `edit`, and as whom it arrives.
const ACTING: [(&str, Arrives); 20] = [
    (
        "X: y",
        Some(("linesman:ada", &["linesman:admin", "linesman:view"])),
    ),
    ("Impersonate-User: bob", Some(("linesman:bob", &[]))),
    (
        "impersonate-user: linesman:bob",
        Some(("linesman:bob", &[])),
    ),
    (
        "Impersonate-User: bob\r\nImpersonate-Group: edit",
        Some(("linesman:bob", &["linesman:edit"])),
    ),
    (
        "Impersonate-Group: edit\r\nIMPERSONATE-USER:   bob  \r\nImpersonate-Group: edit",
        Some(("linesman:bob", &["linesman:edit"])),
    ),
    ("Impersonate-User: root", None),
    ("Impersonate-User: ada", None),
    ("Impersonate-User: edit", None),
    ("Impersonate-Group: edit", None),
    ("Impersonate-User: bob\r\nImpersonate-Group: admin", None),
    (
        "Impersonate-User: bob\r\nImpersonate-Group: edit, system:masters",
        None,
    ),
    (
        "Impersonate-User: bob\r\nImpersonate-Group: system:masters",
        None,
    ),
    ("Impersonate-User: bob\r\nImpersonate-Group:", None),
    (
        "Impersonate-User: bob\r\nImpersonate_Group: system:masters",
        None,
    ),
    ("Impersonate-User: bob\r\nImpersonate_User: root", None),
    ("Impersonate-User: bob\r\nImpersonate-User: bob", None),
    ("Impersonate-User: bob\r\nImpersonate-Uid: 0", None),
    (
        "Impersonate-User: bob\r\nImpersonate-Extra-Scopes: all",
        None,
    ),
    (
        "Connection: Impersonate-User\r\nImpersonate-User: bob",
        None,
    ),
    (
        "Impersonate-User: bob\r\nX-Remote-User: root",
        Some(("linesman:bob", &[])),
    ),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acting_as_someone_is_what_a_grant_says_in_one_form_and_on_record() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let lets = |grant: &mut Grant| {
        grant.id = "lets".to_owned();
        grant.act_as = ["user:bob", "group:edit"]
            .map(|s| s.parse().unwrap())
            .into();
    };
    world.grant("ada", &["view"], lets).await;
    for (row, arrives) in ACTING {
        let before = server.seen().len();
        let request = format!(
            "GET @/api/v1/pods HTTP/1.1\r\nHost: h\r\n$\r\nConnection: close\r\n{row}\r\n\r\n"
        );
        let told = told(&world, &filled(&world, &request)).await;
        let seen = server.seen().split_off(before);
        let Some((user, groups)) = arrives else {
            assert_eq!(
                (codes(&told), seen.len()),
                (vec!["403"], 0),
                "{row}: {told}"
            );
            assert!(told.contains("--as"), "{row}: {told}");
            continue;
        };
        assert_eq!(
            (codes(&told), seen.len()),
            (vec!["200"], 1),
            "{row}: {told}"
        );
        let all = |name: &str| {
            let values = seen[0].headers.get_all(name).iter();
            values
                .map(|v| v.to_str().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(all("impersonate-user"), [user], "{row}");
        assert_eq!(all("impersonate-group"), groups, "{row}");
        let acts = |name: &&str| name.starts_with("impersonate") || name.starts_with("x-remote");
        let names: BTreeSet<&str> = seen[0]
            .headers
            .keys()
            .map(HeaderName::as_str)
            .filter(acts)
            .collect();
        let ours = ["impersonate-group", "impersonate-user"].into_iter();
        let ours = ours.filter(|name| *name == "impersonate-user" || !groups.is_empty());
        assert_eq!(names, ours.collect(), "{row}");
    }
    let rows = world.audit().await;
    let acted: BTreeSet<_> = rows
        .iter()
        .filter(|row| row.stage == "open")
        .map(|row| (row.actor.as_str(), row.acted_as.as_deref()))
        .collect();
    assert_eq!(
        acted,
        BTreeSet::from([
            ("user:ada", None),
            ("user:ada", Some("linesman:bob")),
            ("user:ada", Some("linesman:bob in linesman:edit")),
        ])
    );
}

/// L34
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trailers_of_the_user_never_arrive() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    for trailers in TRAILERS {
        for announced in ["", "Trailer: Impersonate-User, impersonate-group\r\n"] {
            let before = server.seen().len();
            let request = format!(
                "POST @/api/v1/namespaces/a/echo HTTP/1.1\r\nHost: h\r\n$\r\nConnection: close\r\n{announced}\
                 TE: trailers\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n{trailers}\r\n\r\n"
            );
            let told = told(&world, &filled(&world, &request)).await;
            assert_eq!(codes(&told), ["201"], "{trailers}: {told}");
            let seen = server.seen().split_off(before);
            let [one] = seen.as_slice() else {
                panic!("{trailers}: {seen:?}")
            };
            assert_eq!(one.trailers, None, "{trailers}");
            assert_eq!(acting(one), ACTS, "{trailers}");
        }
    }
}

/// What users put behind a body.
const TRAILERS: [&str; 5] = [
    "Impersonate-User: root",
    "IMPERSONATE-GROUP: system:masters\r\nimpersonate-group: system:masters",
    "impersonate_user: root, ada ",
    "Impersonate-Uid: 0\r\nImpersonate-Extra-Scopes: all",
    "Connection: Impersonate-User\r\nX-Remote-User: root",
];

/// All that says as whom a request goes.
pub(super) fn acting(seen: &Seen) -> Vec<String> {
    let told = ["authorization", "x-remote", "x_remote", "trailer"];
    let acts = |name: &str| {
        name.starts_with("impersonate") || told.iter().any(|told| name.starts_with(told))
    };
    let all = seen.headers.iter();
    let mut all: Vec<_> = all
        .filter(|(name, _)| acts(name.as_str()))
        .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
        .collect();
    all.sort();
    all
}

/// The same of user `ada`.
pub(super) const ACTS: [&str; 3] = [
    "authorization: Bearer line-token",
    "impersonate-group: linesman:admin",
    "impersonate-user: linesman:ada",
];

/// L37: a switch that was not granted ends the connection, and what was sent behind it goes nowhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_behind_a_refused_switch_goes_upstream() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    for (path, code) in [
        ("/api/v1/namespaces/a/pods/none/exec", "404"),
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

/// L42: answers that a hostile cluster gives, by the stand-in's path.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hostile_answer_is_sanitised_or_a_502_and_the_line_stays_up() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let epoch = || {
        world
            .hub
            .tunnels
            .get(&super::world::name())
            .unwrap()
            .facts()
            .epoch
    };
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

/// L42: an agent that answers as no server does costs its own requests, and its line holds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_hostile_agent_answers_is_cleaned_or_refused() {
    const PLAIN: &str = "/api/v1/pods";
    const PROXIED: &str = "/api/v1/namespaces/a/services/s/proxy/page";
    const GOOD: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
    let mut world = World::new().await;
    let (_stop, mut streams, _state) = world.dial().await;
    let before = world.hub.tunnels.get(&super::world::name()).unwrap();
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
    let line = world.hub.tunnels.get(&super::world::name()).unwrap();
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

//! What users say of who they are, in headers and trailers, beside what arrives.

use std::collections::BTreeSet;

use http::HeaderName;
use linesman::hub::access::Grant;

use super::{codes, filled, told};
use crate::proxy::apiserver::{ApiServer, Seen};
use crate::proxy::world::World;

/// Headers that a user adds, and the code. What passes must arrive as if they had not been there.
const HEADERS: [(&str, u16); 44] = [
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
    // A bearer token to an API server.
    (
        "Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.c2VjcmV0",
        200,
    ),
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
pub(super) fn ours_alone(seen: &Seen, row: &str) {
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
pub(in crate::proxy) fn acting(seen: &Seen) -> Vec<String> {
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
pub(in crate::proxy) const ACTS: [&str; 3] = [
    "authorization: Bearer line-token",
    "impersonate-group: linesman:admin",
    "impersonate-user: linesman:ada",
];

//! What the hub answers below `/clusters/` before and without a line.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use linesman::clock;
use linesman::hub::access::{Grant, Mode};
use serde_json::Value;

use super::world::{UNWAITED, World};
use crate::wait::measured;

async fn ask(
    world: &World,
    path: &str,
    token: &str,
    headers: &[(&str, &str)],
) -> Response<Incoming> {
    let mut request = Request::get(path).header("authorization", format!("Bearer {token}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    world.send(request.body(Bytes::new()).unwrap()).await
}

/// Code, hop and message of a `Status`.
pub(super) async fn refusal(response: Response<Incoming>) -> (u16, String, String) {
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let status: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(
        (&status["kind"], &status["code"]),
        (&"Status".into(), &code.into())
    );
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (
        code,
        text(&status["details"]["causes"][0]["field"]),
        text(&status["message"]),
    )
}

/// Path, token (0 unknown, 1 with a grant, 2 without), whether with `--as`, and: code, hop, text.
const REFUSALS: [(&str, usize, bool, u16, &str, &str); 10] = [
    (PODS, 0, false, 401, "hub", "run 'linesman login'"),
    (
        PODS,
        2,
        false,
        403,
        "hub",
        "bob has no grant on cluster eu1",
    ),
    (
        OTHER,
        1,
        false,
        403,
        "hub",
        "ada has no grant on cluster eu2",
    ),
    ("/clusters/e%751/api", 1, false, 403, "hub", "no grant"),
    (PODS, 1, true, 403, "hub", "leave out --as"),
    (
        "/clusters/eu1/debug/x",
        1,
        false,
        404,
        "hub",
        "not a path of",
    ),
    ("/clusters/eu1", 1, false, 404, "hub", "not a path of"),
    (DOTS, 1, false, 400, "hub", "a dot segment in the path"),
    (
        "/clusters/eu1//api",
        1,
        false,
        400,
        "hub",
        "an empty segment",
    ),
    (PODS, 1, false, 503, "line", "cluster eu1 is offline"),
];
const PODS: &str = "/clusters/eu1/api/v1/pods";
const OTHER: &str = "/clusters/eu2/api/v1/pods";
const DOTS: &str = "/clusters/eu1/api/v1/../x";

#[tokio::test]
async fn refusals_name_the_hop_and_the_request() {
    let world = World::new().await;
    let nobody = world.user("bob", &[]).await;
    let tokens = ["lmt1.x.y", &world.token, &nobody];
    for (path, token, as_root, code, hop, text) in REFUSALS {
        let headers = [("impersonate-user", "root")];
        let headers = if as_root { &headers[..] } else { &[] };
        let response = ask(&world, path, tokens[token], headers).await;
        let id = response.headers()["x-request-id"]
            .to_str()
            .unwrap()
            .to_owned();
        let (status, field, message) = refusal(response).await;
        assert_eq!((status, field.as_str()), (code, hop), "{path}: {message}");
        assert!(message.starts_with(&format!("{hop}: ")), "{message}");
        assert!(message.contains(text), "{path}: {message}");
        assert!(message.ends_with(&format!("(request {id})")), "{message}");
    }
}

/// 503 means that the request was let through, for there is no line.
#[tokio::test]
async fn a_grant_lets_through_what_it_covers() {
    let world = World::new().await;
    let limited = world.user("kim", &[]).await;
    let narrow = |grant: &mut Grant| {
        grant.mode = Mode::Read;
        grant.namespaces = Some(["a".to_owned()].into());
    };
    world.grant("kim", &["view"], narrow).await;
    let over = world.user("eve", &[]).await;
    let ended = |grant: &mut Grant| grant.expires_at = Some(clock::now());
    world.grant("eve", &["view"], ended).await;
    for (token, path, code, text) in [
        (&limited, "namespaces/a/pods", 503, "line: "),
        (
            &limited,
            "namespaces/b/pods",
            403,
            "grant grant-kim: it is for namespace a",
        ),
        (&limited, "pods", 403, "no grant of kim covers 'list pods'"),
        (
            &limited,
            "namespaces/a/pods/x/exec",
            403,
            "it is read-only, and 'get pods/exec'",
        ),
        (
            &over,
            "namespaces/a/pods",
            403,
            "eve has no grant on cluster eu1 any more: grant grant-eve (view; ",
        ),
    ] {
        let path = format!("/clusters/eu1/api/v1/{path}");
        let (status, _, message) = refusal(ask(&world, &path, token, &[]).await).await;
        assert!(
            status == code && message.contains(text),
            "{path}: {status} {message}"
        );
    }
}

/// L11
#[tokio::test]
async fn an_offline_cluster_is_told_at_once_and_without_retry_after() {
    let world = World::new().await;
    let row = ("L11", "request, there never was a line → told", "≤ 200 ms");
    let asked = ask(&world, "/clusters/eu1/api", &world.token, &[]);
    let response = measured(row, UNWAITED, asked).await;
    assert_eq!(response.status(), 503);
    assert!(!response.headers().contains_key("retry-after"));
}

/// An exec is a GET, and so are a list and a watch: whoever looks for who tried it finds it by its name, and by the code of its answer.
#[tokio::test]
async fn a_refused_request_is_on_record_as_what_it_asked_for() {
    let world = World::new().await;
    let kim = world.user("kim", &[]).await;
    let reads = |grant: &mut Grant| grant.mode = Mode::Read;
    world.grant("kim", &["view"], reads).await;
    let pods = "/clusters/eu1/api/v1/namespaces/a/pods";
    drop(ask(&world, &format!("{pods}/x/exec?command=id"), &kim, &[]).await);
    drop(ask(&world, &format!("{pods}?watch=1"), "lmt1.x.y", &[]).await);
    // Of what no API server takes the method is all that is known.
    drop(ask(&world, &format!("{pods}//x"), &kim, &[]).await);
    let rows = world.audit().await;
    let told = rows.iter().map(|row| {
        format!(
            "{} {} {} {:?}",
            row.actor, row.action, row.verdict, row.code
        )
    });
    assert_eq!(
        told.collect::<Vec<_>>(),
        [
            "user:kim kube.exec deny Some(403)",
            "anyone kube.watch deny Some(401)",
            "user:kim kube.get deny Some(400)",
        ]
    );
}

#[tokio::test]
async fn every_request_is_on_record_with_its_verdict() {
    let world = World::new().await;
    let watch = "/clusters/eu1/api/v1/namespaces/a/pods?watch=1&x=secret";
    drop(ask(&world, watch, &world.token, &[]).await);
    let headers = [("impersonate-user", "root")];
    drop(ask(&world, PODS, &world.token, &headers).await);
    let rows = world.audit().await;
    let mut seen: Vec<_> = rows
        .iter()
        .map(|row| {
            format!(
                "{} {} {} {} {} {:?}",
                row.stage, row.actor, row.action, row.verdict, row.target, row.code
            )
        })
        .collect();
    seen.sort();
    assert_eq!(
        seen,
        [
            "close user:ada kube.watch allow /api/v1/namespaces/a/pods Some(503)",
            "event user:ada kube.list deny /api/v1/pods Some(403)",
            "open user:ada kube.watch allow /api/v1/namespaces/a/pods None",
        ]
    );
    assert!(
        rows.iter()
            .all(|row| row.cluster.as_deref() == Some("eu1") && !row.request_id.is_empty())
    );
}

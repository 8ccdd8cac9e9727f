//! What runs by an access ends with it: watches and exec sessions. How far a token reaches.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use linesman::assertion::{ApiMeta, Claims, Mode};
use linesman::clock;
use linesman::hub::access::Grant;
use linesman::keys;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::apiserver::ApiServer;
use super::pair::Pair;
use super::told::{Row, told};
use super::world::{World, forward, get, post};

/// What is taken away, by which call, and what the next request hears.
const ENDS: [(&str, &str, u16); 3] = [
    ("token", "/v1/api-tokens/", 401),
    ("user", "/v1/users/ada", 401),
    ("grant", "/v1/grants/grant-ada", 403),
];

/// L40, H32: a revoked token, user or grant ends new requests at once and those that run within 5 s.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_watches_and_sessions_end_with_the_access_they_run_by() {
    for (what, path, code) in ENDS {
        let server = ApiServer::start().await;
        let world = World::with_line(&server).await;
        let mut watch = world.send(get("/api/v1/pods?watch=1")).await.into_body();
        server.event("event\n");
        assert_eq!(
            watch.frame().await.unwrap().unwrap().into_data().unwrap(),
            "event\n"
        );
        let mut exec = exec(&world).await;
        let mut path = path.to_owned();
        if what == "token" {
            path += world.token.split('.').nth(1).unwrap();
        }
        let admin = format!("Bearer {}", world.admin());
        let revoke = Request::delete(&path)
            .header("if-match", "*")
            .header("authorization", admin);
        let revoked = world.send(revoke.body(Bytes::new()).unwrap()).await;
        assert_eq!(revoked.status(), 204, "{what}");
        // An error: nobody takes the part of an answer for the whole.
        let end = tokio::time::timeout(Duration::from_secs(5), watch.frame()).await;
        assert!(end.unwrap().unwrap().is_err(), "{what}: the watch is cut");
        let mut rest = Vec::new();
        let end = exec.read_to_end(&mut rest);
        drop(
            tokio::time::timeout(Duration::from_secs(5), end)
                .await
                .unwrap(),
        );
        server.no_watches().await;
        assert_eq!(
            world.send(get("/api/v1/pods")).await.status(),
            code,
            "{what}"
        );
        let closed = closed_as_cut(&world).await;
        assert_eq!(closed, ["kube.exec", "kube.watch"], "{what}");
    }
}

const EXEC: &str = "/api/v1/namespaces/a/pods/x/exec?command=sh";

fn to_exec() -> Request<Bytes> {
    let request = Request::get(format!("/clusters/eu1{EXEC}"))
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
    request.body(Bytes::new()).unwrap()
}

pub(super) async fn exec(world: &World) -> TokioIo<hyper::upgrade::Upgraded> {
    let mut response = world.send(to_exec()).await;
    assert_eq!(response.status(), 101);
    let mut io = TokioIo::new(hyper::upgrade::on(&mut response).await.unwrap());
    io.write_all(b"ls").await.unwrap();
    let mut answer = [0; 2];
    io.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"LS");
    io
}

/// The actions whose records say that they were cut.
async fn closed_as_cut(world: &World) -> Vec<String> {
    let mut cut = Vec::new();
    for _ in 0..200 {
        let rows = world.hub.store.audit_tail(None, 100).await.unwrap();
        let why = |row: &linesman::hub::store::AuditRow| row.reason.clone().unwrap_or_default();
        let ended = |row: &&linesman::hub::store::AuditRow| why(row).starts_with("access ended: ");
        cut = rows
            .iter()
            .filter(ended)
            .map(|row| row.action.clone())
            .collect();
        if cut.len() >= 2 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    cut.sort();
    cut
}

/// A watch that a grant lets in which lasts so long from a moment before.
async fn briefly_granted(server: &ApiServer, world: &World) -> (Incoming, Duration) {
    for seconds in [2, 8, 32] {
        let lasts = Duration::from_secs(seconds);
        let ends = clock::now() + lasts;
        let short = |grant: &mut Grant| {
            grant.id = format!("short-{seconds}");
            grant.expires_at = Some(ends);
        };
        world.grant("ada", &["view"], short).await;
        let mut watch = world.send(get("/api/v1/pods?watch=1")).await.into_body();
        server.event("event\n");
        let first = watch.frame().await;
        // A busy machine may take longer than the grant lasts. Such a watch runs by the other one, or is over: once more.
        if clock::now() < ends {
            first.unwrap().unwrap();
            return (watch, lasts);
        }
    }
    panic!("no watch is up before its grant is over");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_ends_with_the_grant_that_lets_it() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let (mut watch, lasts) = briefly_granted(&server, &world).await;
    let within = lasts + Duration::from_secs(3);
    let end = tokio::time::timeout(within, watch.frame()).await;
    assert!(end.unwrap().unwrap().is_err());
    // What the other grant gives stays: the groups of the ended one are gone.
    assert_eq!(world.send(get("/api/v1/pods")).await.status(), 200);
    let seen = server.seen();
    let groups: Vec<_> = seen
        .last()
        .unwrap()
        .headers
        .get_all("impersonate-group")
        .iter()
        .collect();
    assert_eq!(groups, ["linesman:admin"]);
}

/// A machine's token stays with its clusters, and does not tell which others there are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_reaches_the_clusters_that_it_is_for() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    for (cluster, code) in [("eu1", 200), ("us1", 403)] {
        let limits = format!(r#""scopes":["kube"],"clusters":["{cluster}"]"#);
        let token = token(&world, &limits).await;
        let mut answers = Vec::new();
        for path in ["/clusters/eu1/version", "/clusters/none/version"] {
            let ask = Request::get(path).header("authorization", &token);
            let answer = world.send(ask.body(Bytes::new()).unwrap()).await;
            let status = answer.status().as_u16();
            let text = answer.into_body().collect().await.unwrap().to_bytes();
            answers.push((status, String::from_utf8(text.to_vec()).unwrap()));
        }
        assert_eq!(answers[0].0, code, "{answers:?}");
        assert!(
            answers[1].0 == 403 && answers[1].1.contains("is not for cluster none"),
            "{answers:?}"
        );
        if code == 403 {
            assert!(
                answers[0].1.contains("the token is not for cluster eu1"),
                "{answers:?}"
            );
        }
    }
}

/// As `Authorization` has it: a token of `ada` with these limits.
async fn token(world: &World, limits: &str) -> String {
    let admin = format!("Bearer {}", world.admin());
    let body = format!(r#"{{"user":"ada","title":"ci","lasts":60,{limits}}}"#);
    let request = Request::post("/v1/api-tokens").header("authorization", admin);
    let made = world.send(request.body(Bytes::from(body)).unwrap()).await;
    assert_eq!(made.status(), 201);
    let made = made.into_body().collect().await.unwrap().to_bytes();
    let made: serde_json::Value = serde_json::from_slice(&made).unwrap();
    format!("Bearer {}", made["token"].as_str().unwrap())
}

/// The modes that the hub asserted, in the order in which requests came to the agent.
type Modes = Arc<Mutex<Vec<Mode>>>;

/// A hub whose cluster's agent writes down in which mode each request came.
async fn observed(server: &ApiServer) -> (World, Modes, JoinSet<()>) {
    let mut world = World::new().await;
    let (_, mut streams, state) = world.dial().await;
    let shared = Pair::shared(server, &world.hub.id, &world.cluster_id, &[]);
    let (pass, passed) = mpsc::channel(64);
    let (modes, mut tasks) = (Modes::default(), JoinSet::new());
    let seen = modes.clone();
    tasks.spawn(async move {
        while let Some(arrived) = streams.recv().await {
            let meta: ApiMeta = serde_json::from_slice(&arrived.meta).unwrap();
            let claims = meta.assertion.split('.').nth(1).unwrap();
            let claims = keys::decode(claims).unwrap();
            let claims: Claims = serde_json::from_slice(&claims).unwrap();
            seen.lock().unwrap().push(claims.mode);
            drop(pass.send(arrived).await);
        }
    });
    tasks.spawn(forward(shared, passed, state));
    (world, modes, tasks)
}

/// What every token is tried with, and the code of its answer where it passes.
fn requests() -> [(Request<Bytes>, u16); 4] {
    const MAY_I: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    [
        (get("/api/v1/pods"), 200),
        (post("/api/v1/namespaces/a/pods", "{}"), 200),
        (to_exec(), 101),
        (post(MAY_I, "{}"), 200),
    ]
}

/// The scope, the mode in which requests go, what each of them hears that does not pass, and what to do then.
type Reach = (&'static str, Mode, [Option<&'static str>; 4], &'static str);

const NOT_KUBE: Option<&str> = Some("the token's scopes do not reach into clusters");

const REACHES: [Reach; 3] = [
    ("kube", Mode::Full, [None; 4], ""),
    (
        "kube-read",
        Mode::Read,
        [
            None,
            Some("the token has the scope kube-read, and 'create pods' is more than reading"),
            Some("the token has the scope kube-read, and 'get pods/exec' is more than reading"),
            None,
        ],
        "use a token with the scope kube",
    ),
    (
        "viewer",
        Mode::Read,
        [NOT_KUBE; 4],
        "use a token with the scope kube or kube-read",
    ),
];

/// However much its user's grants allow: what is more than the scopes does not leave the hub, and what `kube-read` lets through is
/// asserted as reading, to which the agent holds it once more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_reaches_no_further_into_a_cluster_than_its_scopes() {
    let server = ApiServer::start().await;
    let (world, modes, _agent) = observed(&server).await;
    for (scope, mode, refused, next) in REACHES {
        let token = token(&world, &format!(r#""scopes":["{scope}"]"#)).await;
        for ((mut request, code), what) in requests().into_iter().zip(refused) {
            let headers = request.headers_mut();
            headers.insert("authorization", token.parse().unwrap());
            let row = format!("{scope}: {} {}", request.method(), request.uri());
            let (asked, went) = (server.seen().len(), modes.lock().unwrap().len());
            let answer = world.send(request).await;
            let Some(what) = what else {
                assert_eq!(answer.status().as_u16(), code, "{row}");
                assert_eq!(server.seen().len(), asked + 1, "{row}");
                assert_eq!(modes.lock().unwrap()[went..], [mode], "{row}");
                continue;
            };
            let refusal = Row {
                hop: "hub",
                code: 403,
                reason: "NoGrant",
                what,
                next,
                after: None,
            };
            told(answer, refusal).await;
            assert_eq!(server.seen().len(), asked, "{row}: {:?}", server.seen());
            assert_eq!(modes.lock().unwrap().len(), went, "{row}");
        }
    }
}

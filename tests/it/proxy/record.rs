//! L48, L49: what is kept of requests over a real line, and what is not.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use linesman::hub::store::{AuditQuery, AuditRow, DRY_RUN};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};
use tracing::Dispatch;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::MakeWriter;

use super::apiserver::{ApiServer, FORBIDDEN};
use super::world::{Door, PATIENCE, World, get, post};

const EXEC: &str = "/api/v1/namespaces/a/pods/x/exec?command=canary-command-3Kq8Zw";

fn exec() -> Request<Bytes> {
    let mut request = get(EXEC);
    for (name, value) in [("connection", "Upgrade"), ("upgrade", "websocket")] {
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    request
}

/// Types into a session, and leaves it.
async fn session(world: &World, input: &str) {
    let response = world.send(exec()).await;
    assert_eq!(response.status(), 101);
    let mut io = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
    io.write_all(input.as_bytes()).await.unwrap();
    let mut echoed = vec![0; input.len()];
    let read = timeout(PATIENCE, io.read_exact(&mut echoed)).await;
    read.expect("it is echoed").unwrap();
    assert_eq!(echoed, input.to_ascii_uppercase().as_bytes());
}

/// The records, as soon as so many requests are closed.
async fn closed(world: &World, count: usize) -> Vec<AuditRow> {
    let mut looks = interval(Duration::from_millis(10));
    let all = async {
        loop {
            looks.tick().await;
            let rows = world.audit().await;
            if rows.iter().filter(|row| row.stage == "close").count() >= count {
                return rows;
            }
        }
    };
    timeout(PATIENCE, all).await.expect("they are closed")
}

/// L48: one record of the beginning and one of the end, under the id that the API server has in its own audit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_request_and_session_is_on_record_with_its_beginning_its_end_and_its_bytes() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    for request in [
        get("/api/v1/pods"),
        post("/api/v1/namespaces/a/echo", "hello"),
        get("/api/v1/namespaces/a/forbidden"),
    ] {
        let answer = world.send(request).await;
        answer.into_body().collect().await.unwrap();
    }
    let mut watch = world.send(get("/api/v1/pods?watch=1")).await.into_body();
    server.event("event\n");
    let event = timeout(PATIENCE, watch.frame()).await;
    event.unwrap().unwrap().unwrap();
    drop(watch);
    session(&world, "typed").await;
    let rows = closed(&world, 5).await;
    let told = |stage: &str| -> Vec<_> {
        let rows = rows.iter().filter(|row| row.stage == stage);
        let mut told: Vec<_> = rows
            .map(|row| {
                assert_eq!(
                    (row.actor.as_str(), row.verdict.as_str()),
                    ("user:ada", "allow")
                );
                (
                    row.action.clone(),
                    row.code,
                    row.bytes,
                    row.millis.is_some(),
                )
            })
            .collect();
        told.sort();
        told
    };
    let ended = |action: &str, code, bytes: usize| {
        let bytes = u64::try_from(bytes).unwrap();
        (action.to_owned(), Some(code), Some(bytes), true)
    };
    assert_eq!(
        told("close"),
        [
            ended("kube.create", 201, 5),
            ended("kube.exec", 101, 10),
            ended("kube.list", 200, 2),
            ended("kube.list", 403, FORBIDDEN.len()),
            ended("kube.watch", 200, 6),
        ]
    );
    assert_eq!(told("open").len(), 5);
    joined(&server, &rows);
}

/// What an API server forbids it was asked all the same; what the agent forbids is denied by the record of its end, with the rule.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_agent_refuses_is_denied_on_record_with_its_rule() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let forbidden = world.send(get("/api/v1/namespaces/a/forbidden")).await;
    forbidden.into_body().collect().await.unwrap();
    let path = "/clusters/eu1/apis/apps/v1/namespaces/linesman/deployments/linesman-agent";
    let delete = Request::delete(path).body(Bytes::new()).unwrap();
    let refused = world.send(delete).await;
    assert_eq!(refused.status(), 403);
    refused.into_body().collect().await.unwrap();
    let rows = closed(&world, 2).await;
    let told = |row: &AuditRow| (row.stage.clone(), row.verdict.clone(), row.reason.clone());
    let of = |action: &str| -> Vec<_> {
        let rows = rows.iter().filter(|row| row.action == action);
        rows.map(told).collect()
    };
    let row = |stage: &str, verdict: &str, reason: Option<&str>| {
        (
            stage.to_owned(),
            verdict.to_owned(),
            reason.map(str::to_owned),
        )
    };
    let allowed = |stage| row(stage, "allow", None);
    assert_eq!(of("kube.list"), [allowed("open"), allowed("close")]);
    assert_eq!(
        of("kube.delete"),
        [
            allowed("open"),
            row("close", "deny", Some("agent:OwnNamespace"))
        ]
    );
    let denied = AuditQuery {
        verdict: Some("deny".to_owned()),
        limit: 9,
        ..AuditQuery::default()
    };
    let found = world.hub.store.audit_query(&denied).await.unwrap().rows;
    let found: Vec<_> = found.iter().map(|row| (&*row.action, row.code)).collect();
    assert_eq!(found, [("kube.delete", Some(403))]);
}

/// A dry run that read like a write would be taken for what broke something.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_says_what_was_asked_for_as_a_dry_run() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    for query in ["?dryRun=All", ""] {
        let create = post(&format!("/api/v1/namespaces/a/echo{query}"), "hello");
        let created = world.send(create).await;
        assert_eq!(created.status(), 201);
        created.into_body().collect().await.unwrap();
    }
    let rows = closed(&world, 2).await;
    let told = |stage: &str| {
        let rows = rows.iter().filter(|row| row.stage == stage);
        rows.map(|row| row.reason.clone()).collect::<Vec<_>>()
    };
    let dry = [Some(DRY_RUN.to_owned()), None];
    assert_eq!(told("open"), dry);
    let mut ends = told("close");
    ends.sort();
    ends.reverse();
    assert_eq!(ends, dry);
}

/// L48: what the cluster's side did not bring to its end says so, with what passed until then; who leaves ends it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_says_which_answers_and_sessions_broke_off() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let mut broken = world.send(get("/api/v1/broken")).await.into_body();
    broken.frame().await.unwrap().unwrap();
    server.release();
    assert!(broken.frame().await.unwrap().is_err());
    let mut watch = world.send(get("/api/v1/pods?watch=1")).await.into_body();
    server.event("event\n");
    watch.frame().await.unwrap().unwrap();
    let response = world.send(exec()).await;
    let mut io = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
    io.write_all(b"typed").await.unwrap();
    let mut echoed = [0; 5];
    io.read_exact(&mut echoed).await.unwrap();
    session(&world, "left").await;
    closed(&world, 2).await;
    world.door.send_replace(Door {
        shut: true,
        cuts: 1,
    });
    let mut rest = Vec::new();
    let ended = timeout(PATIENCE, io.read_to_end(&mut rest)).await;
    drop(ended.expect("the session ends"));
    let ended = timeout(PATIENCE, watch.frame()).await;
    assert!(ended.expect("the watch ends").unwrap().is_err());
    let rows = closed(&world, 4).await;
    let rows = rows.iter().filter(|row| row.stage == "close");
    let mut told: Vec<_> = rows
        .map(|row| {
            (
                row.action.as_str(),
                row.code,
                row.bytes,
                row.reason.as_deref(),
            )
        })
        .collect();
    told.sort_unstable();
    let lost = Some("the line was lost");
    assert_eq!(
        told,
        [
            ("kube.exec", Some(101), Some(8), None),
            ("kube.exec", Some(101), Some(10), lost),
            (
                "kube.list",
                Some(200),
                Some(4),
                Some("the cluster's side broke it off")
            ),
            ("kube.watch", Some(200), Some(6), lost),
        ]
    );
}

/// Each end is that of one beginning, and both have the id that went up.
fn joined(server: &ApiServer, rows: &[AuditRow]) {
    let mut asked: Vec<String> = server
        .seen()
        .iter()
        .map(|seen| seen.headers["audit-id"].to_str().unwrap().to_owned())
        .collect();
    asked.sort();
    let ids = |stage: &str| {
        let rows = rows.iter().filter(|row| row.stage == stage);
        let mut ids: Vec<_> = rows.map(|row| row.request_id.clone()).collect();
        ids.sort();
        ids
    };
    assert_eq!((ids("open"), ids("close")), (asked.clone(), asked));
    for end in rows.iter().filter(|row| row.stage == "close") {
        let begun = rows.iter().find(|row| Some(row.seq) == end.opened);
        let begun = begun.unwrap();
        let (stage, id) = (begun.stage.as_str(), &begun.request_id);
        assert_eq!((stage, id), ("open", &end.request_id));
        assert!(begun.seq < end.seq && begun.at <= end.at);
    }
}

/// What both ends log, at every level.
#[derive(Clone, Default)]
pub(crate) struct Log(pub(crate) Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A change over HTTP/2, with all that may not be logged in its frames, and one whose head is too large.
async fn multiplexed(world: &World) {
    let tls = TokioIo::new(world.connect(&[b"h2"]).await);
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), tls).await.unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { drop(connection.await) });
    for (fields, code) in [(1, 201), (200, 431)] {
        let path = "/clusters/eu1/api/v1/namespaces/a/echo?x=canary-query-8Vb1Ks";
        let mut request = Request::post(format!("https://localhost{path}"))
            .header("authorization", format!("Bearer {}", world.token));
        for _ in 0..fields {
            request = request.header("cookie", "session=canary-cookie-2Mf5Ud");
        }
        let body = Full::new(Bytes::from_static(b"canary-body-0Pq9Rw"));
        let asked = sender.send_request(request.body(body).unwrap());
        let answer = timeout(PATIENCE, asked).await.unwrap().unwrap();
        assert_eq!(answer.status().as_u16(), code);
        answer.into_body().collect().await.unwrap();
    }
}

/// Writes what this thread logs at any level, until it is dropped. Where a process has one subscriber alone, the thread that first
/// comes by a place in the code says whether it is heard there, and one of another test says no: so there are two.
pub(crate) fn logged<W>(write: W) -> (Dispatch, DefaultGuard)
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .with_writer(write);
    let guard = tracing::subscriber::set_default(subscriber.finish());
    (Dispatch::new(tracing_subscriber::registry()), guard)
}

/// L49: hub, line and agent on one thread, so that nothing that they log is missed.
#[tokio::test]
async fn neither_end_logs_a_token_a_cookie_or_a_body_at_any_level_over_any_http() {
    let log = Log::default();
    let writer = log.clone();
    let logging = logged(move || writer.clone());
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let mut create = post(
        "/api/v1/namespaces/a/echo?fieldManager=canary-query-5Rt2Bd",
        "canary-body-7Yh4Nc",
    );
    let cookie = "session=canary-cookie-9Lp6Vf".parse().unwrap();
    create.headers_mut().insert("cookie", cookie);
    let created = world.send(create).await.into_body();
    let created = created.collect().await.unwrap().to_bytes();
    assert_eq!(created, "canary-body-7Yh4Nc");
    session(&world, "canary-input-1Xs8Gj").await;
    let mut watch = world.send(get("/api/v1/pods?watch=1")).await.into_body();
    server.event("canary-event-4Wm7Tk\n");
    timeout(PATIENCE, watch.frame()).await.unwrap();
    drop(watch);
    multiplexed(&world).await;
    let mut wrong = get("/api/v1/pods");
    let bearer = "Bearer lmt1.AAAAAAAAAAAAAAAAAAAAAA.canary-bearer-6Qd3Hz";
    let headers = wrong.headers_mut();
    headers.insert("authorization", bearer.parse().unwrap());
    assert_eq!(world.send(wrong).await.status(), 401);
    let rows = closed(&world, 4).await;
    drop(logging);
    // The record has it, and nothing else.
    let exec = rows.iter().find(|row| row.action == "kube.exec");
    let command = exec.and_then(|row| row.command.as_deref());
    assert_eq!(command, Some("canary-command-3Kq8Zw"));
    let log = String::from_utf8_lossy(&log.0.lock().unwrap()).into_owned();
    // Both ends were heard.
    for said in ["DEBUG linesman::hub", "DEBUG linesman::agent"] {
        assert!(log.contains(said), "{log}");
    }
    let token = world.token.rsplit('.').next().unwrap().to_owned();
    let canaries = [
        "query", "body", "cookie", "input", "event", "bearer", "command",
    ];
    let canaries = canaries.map(|what| format!("canary-{what}"));
    // The agent's credential at the API server, and the user's at the hub.
    let secrets = canaries.into_iter().chain(["line-token".to_owned(), token]);
    for secret in secrets.flat_map(|secret| [secret.to_uppercase(), secret]) {
        let line = log.lines().find(|line| line.contains(&secret));
        assert_eq!(line, None, "{secret} is logged");
    }
}

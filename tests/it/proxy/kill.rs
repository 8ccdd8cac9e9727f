//! The real program as hub, killed in the middle of what it does.

use std::io::BufRead as _;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use linesman::agent::link::{self, LinkState};
use linesman::hub::audit::chain::Follower;
use linesman::hub::store::sqlite::Sqlite;
use linesman::hub::store::{AuditRow, Store};
use linesman::keys::KeyPair;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::apiserver::ApiServer;
use super::pair::Pair;
use super::world::{Left, PATIENCE, World, forward, link_config, not_dialled};

mod joins;

/// Killed when it goes out of scope.
pub(super) struct Hub {
    process: Child,
    pub(super) url: String,
}

impl Hub {
    pub(super) fn start(left: &Left) -> Self {
        let any = "127.0.0.1:0";
        let mut process = Command::new(env!("CARGO_BIN_EXE_linesman"))
            .args(["hub", "--listen", any, "--git-listen", any])
            .args(["--health-listen", any, "--data"])
            .arg(&left.data)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut said = std::io::BufReader::new(process.stdout.take().unwrap()).lines();
        let first = said.next().unwrap().unwrap();
        let url = first.strip_prefix("hub").unwrap().trim().to_owned();
        Self { process, url }
    }

    /// Where it listens.
    pub(super) fn at(&self) -> SocketAddr {
        let port: u16 = self.url.rsplit(':').next().unwrap().parse().unwrap();
        ([127, 0, 0, 1], port).into()
    }

    pub(super) fn resident_kib(&self) -> u64 {
        crate::process::resident_kib(self.process.id())
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// The agent's line to the hub, up.
pub(super) async fn agent(left: &Left, url: &str, server: &ApiServer, tasks: &mut JoinSet<()>) {
    let mut reference = left.reference.clone();
    reference.urls = vec![url.to_owned()];
    let shared = Pair::shared(server, &reference.id, &left.cluster_id, &[]);
    let (held, hub) = watch::channel(reference);
    let config = link_config(hub);
    let (line, mut state) = watch::channel(not_dialled());
    let (incoming, streams) = mpsc::channel(64);
    tasks.spawn(async move {
        drop(link::run(config, line, incoming, CancellationToken::new()).await);
        drop(held);
    });
    tasks.spawn(forward(shared, streams, state.clone()));
    let up = state.wait_for(|state| matches!(state, LinkState::Up { .. }));
    drop(timeout(PATIENCE, up).await.expect("the line comes up"));
}

/// What is on record of requests, and that the chain holds.
async fn record(left: &Left, action: &str) -> Vec<AuditRow> {
    let store = Store::Sqlite(Sqlite::open_read_only(&left.data).unwrap());
    let key = std::fs::read_to_string(left.data.join("hub.key")).unwrap();
    let key = KeyPair::from_openssh(&key).unwrap().public();
    let anchors = store.audit_anchors().await.unwrap();
    let mut follower = Follower::new(&left.reference.id, anchors, &[key]).unwrap();
    let rows = store.audit(0, None, 100_000).await.unwrap();
    for row in &rows {
        follower.follow(row).unwrap();
    }
    follower.end().unwrap();
    rows.into_iter()
        .filter(|row| row.action == action)
        .collect()
}

/// L48: a killed hub has lost no record, and the next start says which requests it interrupted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_hub_leaves_what_was_open_marked_as_interrupted() {
    let server = ApiServer::start().await;
    let left = World::new().await.leave();
    let hub = Hub::start(&left);
    let mut tasks = JoinSet::new();
    agent(&left, &hub.url, &server, &mut tasks).await;
    let tls = left.connect(hub.at()).await;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(tls))
        .await
        .unwrap();
    tasks.spawn(async move { drop(connection.await) });
    let request = Request::get("/clusters/eu1/api/v1/pods?watch=1")
        .header("host", "localhost")
        .header("authorization", format!("Bearer {}", left.token))
        .body(Full::<Bytes>::default());
    let answer = sender.send_request(request.unwrap()).await.unwrap();
    assert_eq!(answer.status(), 200);
    let mut body = answer.into_body();
    server.event("event\n");
    timeout(PATIENCE, body.frame())
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    // SIGKILL: nothing of its own runs any more.
    drop(hub);
    let stages = |rows: &[AuditRow]| -> Vec<(String, Option<String>)> {
        let stage = |row: &AuditRow| (row.stage.clone(), row.reason.clone());
        rows.iter().map(stage).collect()
    };
    let open = ("open".to_owned(), None);
    assert_eq!(
        stages(&record(&left, "kube.watch").await),
        std::slice::from_ref(&open)
    );
    // The banner is printed behind the chain's start.
    drop(Hub::start(&left));
    let why = Some("interrupted: the hub ended".to_owned());
    assert_eq!(
        stages(&record(&left, "kube.watch").await),
        [open, ("close".to_owned(), why)]
    );
    std::fs::remove_dir_all(&left.data).unwrap();
}

/// One user's requests, one after the other, as long as the hub answers.
async fn busy(left: Arc<Left>, hub: SocketAddr) {
    let tls = left.connect(hub).await;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(tls))
        .await
        .unwrap();
    let asks = async {
        while sender.ready().await.is_ok() {
            let request = Request::get("/clusters/eu1/api/v1/namespaces/a/pods/busy")
                .header("host", "localhost")
                .header("authorization", format!("Bearer {}", left.token))
                .body(Full::<Bytes>::default());
            let Ok(answer) = sender.send_request(request.unwrap()).await else {
                return;
            };
            assert_eq!(answer.status(), 200);
            if answer.into_body().collect().await.is_err() {
                return;
            }
        }
    };
    // A hub that is killed breaks it.
    drop(tokio::join!(connection, asks));
}

/// H37: of what the API server has seen nothing is missing on record, however busy the hub was when it was killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_is_killed_among_many_requests_has_each_on_record() {
    const CLIENTS: usize = 50;
    let server = ApiServer::start().await;
    let left = Arc::new(World::new().await.leave());
    let hub = Hub::start(&left);
    let mut tasks = JoinSet::new();
    agent(&left, &hub.url, &server, &mut tasks).await;
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        clients.spawn(busy(left.clone(), hub.at()));
    }
    server.asked_for("/busy", 5 * CLIENTS).await;
    drop(hub);
    while let Some(client) = clients.join_next().await {
        client.unwrap();
    }
    let seen = server.seen();
    let seen = seen.iter().filter(|seen| seen.target.ends_with("/busy"));
    let seen: Vec<&str> = seen
        .map(|seen| seen.headers["audit-id"].to_str().unwrap())
        .collect();
    // How often each of them stands there as open, and as closed.
    let told = |rows: &[AuditRow]| -> Vec<(usize, usize)> {
        let count = |id: &str, stage: &str| {
            let of = |row: &&AuditRow| row.request_id == id && row.stage == stage;
            rows.iter().filter(of).count()
        };
        let each = seen
            .iter()
            .map(|id| (count(id, "open"), count(id, "close")));
        each.collect()
    };
    let rows = record(&left, "kube.get").await;
    let opened: Vec<usize> = told(&rows).into_iter().map(|(open, _)| open).collect();
    assert_eq!(opened, vec![1; seen.len()]);
    drop(Hub::start(&left));
    let rows = record(&left, "kube.get").await;
    assert_eq!(told(&rows), vec![(1, 1); seen.len()]);
    let cut = |row: &&AuditRow| row.reason.as_deref() == Some("interrupted: the hub ended");
    let interrupted = rows.iter().filter(cut).count();
    assert!(
        (1..seen.len()).contains(&interrupted),
        "{interrupted} of {}",
        seen.len()
    );
    std::fs::remove_dir_all(&left.data).unwrap();
}

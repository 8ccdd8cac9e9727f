//! The whole way: a user's HTTPS request, the hub's proxy, a real line, the agent's gate, the API server.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming as Answer;
use hyper_util::rt::TokioIo;
use linesman::agent::forward::exchange::{Exchange, Shared};
use linesman::agent::forward::serve;
use linesman::agent::link::{self, LinkConfig, LinkState};
use linesman::clock;
use linesman::hub::registration::{Claim, Prefix, Redeemed, TokenText};
use linesman::hub::store::{ApiToken, JoinToken, NewBundle, NewClusterRow, TokenKind, UserRow};
use linesman::hub::tls::TlsSource;
use linesman::hub::{self, Hub, HubConfig, Listeners};
use linesman::keys::KeyPair;
use linesman::tunnel::Incoming;
use linesman::wire::api::{AdoptionOptions, AgentBuild, EngineKind};
use linesman::wire::id::{ClusterName, Digest};
use linesman::wire::report::Facts;
use rustls_pki_types::pem::PemObject as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::apiserver::ApiServer;
use super::pair::Pair;

/// A hub on loopback with one cluster, whose agent's line is up.
struct World {
    hub: Arc<Hub>,
    https: std::net::SocketAddr,
    token: String,
    cut: mpsc::Sender<()>,
    data: PathBuf,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
        self.tasks.abort_all();
        drop(std::fs::remove_dir_all(&self.data));
    }
}

impl World {
    async fn new(name: &str, server: &ApiServer) -> Self {
        drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
        let data =
            std::env::temp_dir().join(format!("linesman-it-line-{name}-{}", std::process::id()));
        drop(std::fs::remove_dir_all(&data));
        let bind = || TcpListener::bind("127.0.0.1:0");
        let listeners = Listeners {
            https: bind().await.unwrap(),
            git: bind().await.unwrap(),
            health: bind().await.unwrap(),
        };
        let https = listeners.https.local_addr().unwrap();
        // The agent dials through this door, which tests can shut.
        let door = bind().await.unwrap();
        let dialled = door.local_addr().unwrap();
        let config = HubConfig {
            data: data.clone(),
            url: format!("https://localhost:{}", dialled.port()),
            listen: https,
            health_listen: listeners.health.local_addr().unwrap(),
            git_listen: listeners.git.local_addr().unwrap(),
            git_url: "ssh://git@localhost:2222".to_owned(),
            tls: TlsSource::Own { names: Vec::new() },
            agent_image: "lab.invalid/linesman:dev".to_owned(),
            offline_after: Duration::from_secs(45),
            drain: Duration::from_secs(1),
        };
        let stop = CancellationToken::new();
        let (hub, chain) = hub::start(config, stop.clone()).await.unwrap();
        let mut tasks = JoinSet::new();
        let running = hub::serve::run(listeners, hub.clone(), chain);
        tasks.spawn(async move { drop(running.await) });
        let (cut, cuts) = mpsc::channel(1);
        tasks.spawn(door_to(door, https, cuts));
        let identity = KeyPair::from_seed(&[11; 32]);
        let cluster_id = join(&hub, &identity).await;
        let token = user(&hub).await;
        let world = Self {
            hub,
            https,
            token,
            cut,
            data,
            stop: stop.clone(),
            tasks,
        };
        world.agent(server, identity, cluster_id).await
    }

    async fn agent(mut self, server: &ApiServer, identity: KeyPair, cluster_id: String) -> Self {
        let shared = Pair::shared(server, &self.hub.id, &cluster_id);
        let (hub_held, hub_ref) = watch::channel(self.hub.reference());
        let config = LinkConfig {
            hub: hub_ref,
            cluster: name(),
            identity,
            build: AgentBuild::default(),
            instance: uuid::Uuid::now_v7().to_string(),
            proxy: None,
        };
        let down = LinkState::Down {
            since: clock::now(),
            cause: String::new(),
            attempt: 0,
        };
        let (line, mut state) = watch::channel(down);
        let (incoming, streams) = mpsc::channel(64);
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            link::run(config, line, incoming, stop).await.unwrap();
            drop(hub_held);
        });
        self.tasks.spawn(forward(shared, streams, state.clone()));
        let up = state.wait_for(|state| matches!(state, LinkState::Up { .. }));
        drop(
            tokio::time::timeout(Duration::from_secs(10), up)
                .await
                .expect("the line comes up")
                .unwrap(),
        );
        self
    }

    /// As kubectl: HTTP/1.1 over TLS.
    async fn send(&self, request: Request<Bytes>) -> Response<Answer> {
        let (mut parts, body) = request.into_parts();
        parts.headers.insert(
            "authorization",
            format!("Bearer {}", self.token).parse().unwrap(),
        );
        parts.headers.insert("host", "localhost".parse().unwrap());
        let tcp = TcpStream::connect(self.https).await.unwrap();
        let mut roots = rustls::RootCertStore::empty();
        let ca =
            rustls_pki_types::CertificateDer::from_pem_slice(self.hub.reference().ca.as_bytes())
                .unwrap();
        roots.add(ca).unwrap();
        let config = rustls::ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let tls = connector
            .connect("localhost".try_into().unwrap(), tcp)
            .await
            .unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(tls))
            .await
            .unwrap();
        #[expect(clippy::disallowed_methods, reason = "ends with its connection")]
        tokio::spawn(async move { drop(connection.await) });
        sender
            .send_request(Request::from_parts(parts, Full::new(body)))
            .await
            .unwrap()
    }
}

fn name() -> ClusterName {
    "eu1".parse().unwrap()
}

/// Copies connections to the hub; a cut breaks those that are open.
async fn door_to(door: TcpListener, to: std::net::SocketAddr, mut cuts: mpsc::Receiver<()>) {
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            accepted = door.accept() => {
                let (mut socket, _) = accepted.unwrap();
                open.spawn(async move {
                    let mut hub = TcpStream::connect(to).await.unwrap();
                    drop(tokio::io::copy_bidirectional(&mut socket, &mut hub).await);
                });
            }
            cut = cuts.recv() => {
                if cut.is_none() {
                    return;
                }
                open.abort_all();
            }
        }
    }
}

async fn forward(
    shared: Arc<Shared>,
    mut streams: mpsc::Receiver<Incoming>,
    state: watch::Receiver<LinkState>,
) {
    let mut running = JoinSet::new();
    while let Some(Incoming {
        meta,
        epoch,
        stream,
        ..
    }) = streams.recv().await
    {
        let mut state = state.clone();
        let up = state
            .wait_for(|state| matches!(state, LinkState::Up { .. }))
            .await
            .unwrap()
            .clone();
        let LinkState::Up {
            hub_time_offset,
            keyset,
            ..
        } = up
        else {
            panic!("it is up")
        };
        let exchange = Exchange {
            meta: serde_json::from_slice(&meta).unwrap(),
            epoch,
            keyset,
            hub_time_offset,
            cancelled: stream.cancelled(),
        };
        running.spawn(serve(stream, shared.clone(), exchange));
    }
}

/// The cluster with its agent's key on record; gives its id.
async fn join(hub: &Hub, identity: &KeyPair) -> String {
    let digest = Digest::from_bytes([1; 32]);
    let bundle = NewBundle {
        digest: digest.clone(),
        engine: EngineKind::Flux,
        version: "2.9.5".to_owned(),
        objects: 0,
        images: Vec::new(),
        data: Vec::new(),
        imported_by: "test".to_owned(),
    };
    let now = clock::now();
    hub.store.add_bundle(bundle, now).await.unwrap();
    let new = NewClusterRow {
        name: name(),
        labels: std::collections::BTreeMap::default(),
        engine: EngineKind::Flux,
        engine_version: "2.9.5".to_owned(),
        bundle: digest,
        catalog_path: "clusters/eu1".to_owned(),
        adoption: AdoptionOptions::default(),
    };
    let cluster = hub.store.create_cluster(new, now).await.unwrap();
    let token = TokenText::new(clock::random(), clock::random());
    let record = JoinToken {
        id: token.id.clone(),
        cluster_id: cluster.id.clone(),
        hash: token.hash(),
        kind: TokenKind::Join,
        new_cluster: false,
        adoption: AdoptionOptions::default(),
        issued_by: "test".to_owned(),
        expires_at: now + time::Duration::hours(1),
        redeemed: None,
        revoked_at: None,
        created_at: now,
    };
    hub.store.issue_join_token(record).await.unwrap();
    let claim = Claim {
        token,
        cluster: "eu1".to_owned(),
        incarnation: "uid".to_owned(),
        identity: identity.public(),
        deploy: KeyPair::from_seed(&[12; 32]).public(),
        agent: AgentBuild::default(),
        facts: Facts::default(),
        addr: "127.0.0.1:1".to_owned(),
    };
    let redeemed = hub.store.redeem(claim, now).await.unwrap();
    assert!(matches!(redeemed, Redeemed::Bound { .. }));
    cluster.id
}

async fn user(hub: &Hub) -> String {
    let user = UserRow {
        id: "id-ada".to_owned(),
        name: "ada".to_owned(),
        roles: Vec::new(),
        groups: vec!["admin".to_owned()],
        disabled: false,
    };
    let user = hub.store.ensure_user(user).await.unwrap();
    let token = TokenText::new(clock::random(), clock::random());
    let record = ApiToken {
        id: token.id.clone(),
        user_id: user.id,
        hash: token.hash(),
        title: "test".to_owned(),
        expires_at: None,
        revoked_at: None,
    };
    hub.store.add_api_token(record, clock::now()).await.unwrap();
    token.text(Prefix::Api).into_inner()
}

fn get(path: &str) -> Request<Bytes> {
    Request::get(format!("/clusters/eu1{path}"))
        .body(Bytes::new())
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_users_request_crosses_the_line_as_that_user() {
    let server = ApiServer::start().await;
    let world = World::new("crosses", &server).await;
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
    let world = World::new("large", &server).await;
    let sent = Bytes::from(vec![b'x'; 2_500_000]);
    let post = Request::post("/clusters/eu1/api/v1/namespaces/a/echo")
        .body(sent.clone())
        .unwrap();
    let response = world.send(post).await;
    assert_eq!(response.status(), 201);
    assert!(response.into_body().collect().await.unwrap().to_bytes() == sent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_ends_upstream_when_its_user_leaves() {
    let server = ApiServer::start().await;
    let world = World::new("watch", &server).await;
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
    let world = World::new("list", &server).await;
    let mut body = world.send(get("/api/v1/endless")).await.into_body();
    drop(body.frame().await.unwrap().unwrap());
    tokio::time::sleep(Duration::from_millis(500)).await;
    let taken = server.produced();
    assert!(taken < 32 << 20, "{taken} bytes were taken in");
    assert_eq!(
        world.send(get("/api/v1/pods")).await.status(),
        200,
        "others pass beside it"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_line_repeats_a_get_and_never_a_post() {
    let server = ApiServer::start().await;
    let world = World::new("cut", &server).await;
    let asked = |path: &str| {
        server
            .seen()
            .iter()
            .filter(|seen| seen.target.ends_with(path))
            .count()
    };
    // The line breaks while the API server thinks.
    let reading = world.send(get("/api/v1/slow"));
    let writing = world.send(
        Request::post("/clusters/eu1/api/v1/namespaces/a/slowly")
            .body(Bytes::from("x"))
            .unwrap(),
    );
    let cutting = async {
        while asked("slow") + asked("slowly") < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        world.cut.send(()).await.unwrap();
    };
    let (read, written, ()) = tokio::join!(reading, writing, cutting);
    assert_eq!(read.status(), 200);
    assert_eq!(asked("/slow"), 2);
    assert_eq!(written.status(), 502);
    assert!(!written.headers().contains_key("retry-after"));
    let body = written.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8_lossy(&body).into_owned();
    assert!(text.contains("outcome unknown"), "{text}");
    // After everything has come back, the write has still been asked for once.
    assert_eq!(world.send(get("/api/v1/pods")).await.status(), 200);
    assert_eq!(asked("/slowly"), 1);
}

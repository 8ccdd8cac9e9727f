//! A real hub on loopback with the cluster `eu1`, its users, and its agent's line.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, header};
use http_body_util::Full;
use hyper::body::Incoming as Answer;
use hyper_util::rt::TokioIo;
use linesman::agent::forward::exchange::{Exchange, Shared};
use linesman::agent::forward::serve;
use linesman::agent::identity::Identity;
use linesman::agent::link::{self, LinkConfig, LinkState};
use linesman::clock;
use linesman::hub::access::{Clusters, Grant, Mode, Subject};
use linesman::hub::audit::Entry;
use linesman::hub::registration::{Claim, Redeemed, TokenText};
use linesman::hub::store::{AuditRow, JoinToken, NewBundle, NewClusterRow, TokenKind, UserRow};
use linesman::hub::tls::TlsSource;
use linesman::hub::{self, Bounds, Hub, HubConfig, Listeners};
use linesman::keys::KeyPair;
use linesman::tunnel::Incoming;
use linesman::wire::api::{AdoptionOptions, AgentBuild, EngineKind, HubRef};
use linesman::wire::id::{ClusterName, Digest};
use linesman::wire::report::Facts;
use rustls_pki_types::pem::PemObject as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

use super::apiserver::ApiServer;
use super::pair::Pair;
use crate::hub::support::api_token;

/// How long anything may take that is not measured.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// A hub with one cluster, which has a line where [`World::agent`] was called.
pub(super) struct World {
    pub(super) hub: Arc<Hub>,
    /// The token of user `ada`, who has a grant.
    pub(super) token: String,
    /// What the agent dials through.
    pub(super) door: watch::Sender<Door>,
    /// Where that leads.
    pub(super) to: watch::Sender<SocketAddr>,
    pub(super) https: SocketAddr,
    pub(super) cluster_id: String,
    data: PathBuf,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

/// What replicas of a hub share.
#[derive(Clone)]
struct Site {
    data: PathBuf,
    url: String,
    records: hub::store::Records,
    bounds: Bounds,
}

impl Site {
    fn new(outside: &TcpListener, records: hub::store::Records) -> Self {
        let data = std::env::temp_dir().join(format!("linesman-it-proxy-{}", uuid::Uuid::now_v7()));
        let url = format!("https://localhost:{}", outside.local_addr().unwrap().port());
        Self {
            data,
            url,
            records,
            bounds: Bounds::default(),
        }
    }
}

/// The way between agent and hub.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Door {
    /// New connections are dropped.
    pub(super) shut: bool,
    /// Every change of this drops those that stand.
    pub(super) cuts: u32,
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
        self.tasks.abort_all();
        drop(std::fs::remove_dir_all(&self.data));
    }
}

impl World {
    /// The cluster's key is on record, and nobody has connected.
    pub(super) async fn new() -> Self {
        Self::bounded(Bounds::default()).await
    }

    /// The same with bounds of the test's own.
    pub(super) async fn bounded(bounds: Bounds) -> Self {
        let outside = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let site = Site {
            bounds,
            ..Site::new(&outside, hub::store::Records::File)
        };
        let mut world = Self::at(&site, None).await;
        world.open(outside).await;
        world
    }

    /// So many replicas of a hub on one database and one data directory, with a door to the first.
    pub(super) async fn replicas<const N: usize>() -> [Self; N] {
        let url = crate::postgres::database().await;
        Self::reaching([(); N].map(|()| url.as_str())).await
    }

    /// The same, each of which reaches the database by its own URL.
    pub(super) async fn reaching<const N: usize>(urls: [&str; N]) -> [Self; N] {
        let outside = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut site = Site::new(&outside, hub::store::Records::File);
        let mut outside = Some(outside);
        let mut worlds: Vec<Self> = Vec::new();
        for url in urls {
            let target = hub::store::postgres::Target::parse(url).unwrap();
            site.records = hub::store::Records::Server(target);
            let peer = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut world = Self::at(&site, Some(peer)).await;
            match (worlds.first(), outside.take()) {
                (Some(first), _) => {
                    (world.token, world.cluster_id) =
                        (first.token.clone(), first.cluster_id.clone());
                }
                (None, Some(outside)) => world.open(outside).await,
                (None, None) => unreachable!(),
            }
            worlds.push(world);
        }
        worlds.try_into().ok().unwrap()
    }

    /// The door to it, the cluster and its user.
    async fn open(&mut self, outside: TcpListener) {
        let (to, door) = (self.to.subscribe(), self.door.subscribe());
        self.tasks.spawn(relay(outside, to, door));
        self.cluster_id = join(&self.hub).await;
        self.token = self.user("ada", &["admin"]).await;
    }

    /// A hub without a door.
    async fn at(site: &Site, peer: Option<TcpListener>) -> Self {
        drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
        let Site {
            data,
            url,
            records,
            bounds,
        } = site.clone();
        let bind = || TcpListener::bind("127.0.0.1:0");
        let peer_at = peer.as_ref().map(|peer| peer.local_addr().unwrap());
        let listeners = Listeners {
            https: bind().await.unwrap(),
            git: bind().await.unwrap(),
            health: bind().await.unwrap(),
            peer,
        };
        let https = listeners.https.local_addr().unwrap();
        let config = HubConfig {
            trusted_proxies: [].into(),
            records,
            keys: hub::rotation::KeyPolicy::default(),
            bounds,
            data: data.clone(),
            url,
            listen: https,
            health_listen: listeners.health.local_addr().unwrap(),
            git_listen: listeners.git.local_addr().unwrap(),
            git_url: "ssh://git@localhost:2222".to_owned(),
            tls: TlsSource::Own { names: Vec::new() },
            agent_image: "lab.invalid/linesman:dev".to_owned(),
            offline_after: Duration::from_secs(45),
            drain: Duration::from_secs(1),
            git_over_line: hub::gitline::Allowed::Auto,
            audit: hub::AuditConfig::default(),
            notify: hub::notify::Config::default(),
            oidc: None,
            peer: peer_at.map(|listen| hub::PeerConfig {
                listen,
                url: listen.to_string(),
            }),
        };
        let stop = CancellationToken::new();
        let (hub, chain) = hub::start(config, stop.clone()).await.unwrap();
        let mut tasks = JoinSet::new();
        let running = hub::serve::run(listeners, hub.clone(), chain);
        tasks.spawn(async move { drop(running.await) });
        Self {
            hub,
            token: String::new(),
            door: watch::Sender::default(),
            to: watch::Sender::new(https),
            https,
            cluster_id: String::new(),
            data,
            stop,
            tasks,
        }
    }

    /// Ends this hub as SIGTERM does.
    pub(super) async fn stop(&mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
    }

    /// Ends it, and leaves its data behind as a stopped hub would.
    pub(super) fn leave(self) -> Left {
        let data = self.data.with_extension("left");
        copy_tree(&self.data, &data);
        Left {
            reference: self.hub.reference(),
            token: self.token.clone(),
            cluster_id: self.cluster_id.clone(),
            data,
        }
    }

    /// The same with the line up.
    pub(super) async fn with_line(server: &ApiServer) -> Self {
        let mut world = Self::new().await;
        world.agent(server).await;
        world
    }

    /// Starts the cluster's agent, which ends with the token; its line is up when this returns.
    pub(super) async fn agent(&mut self, server: &ApiServer) -> CancellationToken {
        self.agent_under(server, &[]).await
    }

    /// The same under a policy of the cluster's owner.
    pub(super) async fn agent_under(
        &mut self,
        server: &ApiServer,
        policy: &[(&str, &str)],
    ) -> CancellationToken {
        let shared = Pair::shared(server, &self.hub.id, &self.cluster_id, policy);
        self.agent_of(shared).await
    }

    /// The same with its parts.
    pub(super) async fn agent_of(&mut self, shared: Arc<Shared>) -> CancellationToken {
        let (stop, streams, state) = self.dial().await;
        self.tasks.spawn(forward(shared, streams, state));
        stop
    }

    /// The same where the door leads to another replica.
    pub(super) async fn agent_at(&mut self, server: &ApiServer, owner: &Hub) -> CancellationToken {
        let shared = Pair::shared(server, &self.hub.id, &self.cluster_id, &[]);
        let (stop, streams, state) = self.dial_to(owner).await;
        self.tasks.spawn(forward(shared, streams, state));
        stop
    }

    /// The same without anyone who serves the streams.
    pub(super) async fn dial(
        &mut self,
    ) -> (
        CancellationToken,
        mpsc::Receiver<Incoming>,
        watch::Receiver<LinkState>,
    ) {
        let hub = self.hub.clone();
        self.dial_to(&hub).await
    }

    async fn dial_to(
        &mut self,
        owner: &Hub,
    ) -> (
        CancellationToken,
        mpsc::Receiver<Incoming>,
        watch::Receiver<LinkState>,
    ) {
        let (hub_held, hub_ref) = watch::channel(self.hub.reference());
        let config = link_config(hub_ref);
        let (line, mut state) = watch::channel(not_dialled());
        let (incoming, streams) = mpsc::channel(64);
        let stop = self.stop.child_token();
        let stopped = stop.clone();
        self.tasks.spawn(async move {
            link::run(config, line, incoming, stopped).await.unwrap();
            drop(hub_held);
        });
        let up = state.wait_for(|state| matches!(state, LinkState::Up { .. }));
        drop(timeout(PATIENCE, up).await.expect("the line comes up"));
        has_line(owner, true).await;
        (stop, streams, state)
    }

    /// Waits until the hub has a line, or none.
    pub(super) async fn has_line(&self, wanted: bool) {
        has_line(&self.hub, wanted).await;
    }

    /// One more cluster, which nobody has joined; gives its id.
    pub(super) async fn another(&self, name: &str) -> String {
        add(&self.hub, name.parse().unwrap()).await
    }

    /// A user's API token, with a grant where there are groups.
    pub(super) async fn user(&self, name: &str, groups: &[&str]) -> String {
        let user = UserRow {
            id: format!("id-{name}"),
            name: name.to_owned(),
            roles: Vec::new(),
            groups: Vec::new(),
            disabled: false,
            provider: None,
            rev: 1,
        };
        if !groups.is_empty() {
            self.grant(name, groups, |_| {}).await;
        }
        let user = self.hub.store.ensure_user(user).await.unwrap();
        api_token(&self.hub, user.id).await
    }

    /// A grant on every cluster, changed as the test needs it.
    pub(super) async fn grant(&self, user: &str, groups: &[&str], change: impl FnOnce(&mut Grant)) {
        let mut grant = everywhere(&format!("grant-{user}"), user, groups);
        change(&mut grant);
        let stored = self.hub.store.add_grant(grant, None, clock::now());
        stored.await.unwrap();
    }

    /// The token of the hub's first admin.
    pub(super) fn admin(&self) -> String {
        let text = std::fs::read_to_string(self.data.join("admin.token")).unwrap();
        text.trim().to_owned()
    }

    /// Changes the database behind the hub's back.
    pub(super) async fn execute(&self, sql: &'static str) {
        use sqlx::Connection as _;
        let url = format!("sqlite://{}", self.data.join("hub.db").display());
        let mut connection = sqlx::SqliteConnection::connect(&url).await.unwrap();
        let done = sqlx::query(sql).execute(&mut connection).await;
        done.unwrap();
        connection.close().await.unwrap();
    }

    /// All audit records of what was answered before.
    pub(super) async fn audit(&self) -> Vec<AuditRow> {
        // Records are stored in order: behind this one, all before it are there.
        self.hub.audit.event(Entry::default()).await.unwrap();
        let rows = self.hub.store.audit_tail(None, 100).await.unwrap();
        rows.into_iter()
            .filter(|row| !row.action.is_empty())
            .collect()
    }

    /// A TLS connection to the hub, as any client has it.
    pub(super) async fn connect(&self, alpn: &[&[u8]]) -> TlsStream<TcpStream> {
        connect(self.https, &self.hub.reference().ca, alpn).await
    }

    /// For many of them.
    pub(super) fn connector(&self, alpn: &[&[u8]]) -> TlsConnector {
        connector(&self.hub.reference().ca, alpn)
    }

    /// As kubectl: HTTP/1.1 over TLS, as `ada` where the request names nobody.
    pub(super) async fn send(&self, request: Request<Bytes>) -> Response<Answer> {
        self.send_on(self.connect(&[]).await, request).await
    }

    /// The same over a connection that stands.
    pub(super) async fn send_on(
        &self,
        tls: TlsStream<TcpStream>,
        mut request: Request<Bytes>,
    ) -> Response<Answer> {
        let headers = request.headers_mut();
        headers.insert(header::HOST, HeaderValue::from_static("localhost"));
        let bearer = format!("Bearer {}", self.token);
        headers
            .entry(header::AUTHORIZATION)
            .or_insert(bearer.parse().unwrap());
        let tls = TokioIo::new(tls);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(tls).await.unwrap();
        #[expect(clippy::disallowed_methods, reason = "ends with its connection")]
        tokio::spawn(async move { drop(connection.with_upgrades().await) });
        sender.send_request(request.map(Full::new)).await.unwrap()
    }
}

async fn has_line(hub: &Hub, wanted: bool) {
    let mut changes = hub.tunnels.changes();
    let seen = async {
        while hub.tunnels.get(&name()).is_some() != wanted {
            changes.changed().await.unwrap();
        }
    };
    timeout(PATIENCE, seen).await.expect("the hub sees it");
}

/// What a hub leaves for the next one on its data.
pub(super) struct Left {
    pub(super) reference: HubRef,
    /// The token of user `ada`.
    pub(super) token: String,
    pub(super) cluster_id: String,
    pub(super) data: PathBuf,
}

impl Left {
    pub(super) async fn connect(&self, to: SocketAddr) -> TlsStream<TcpStream> {
        connect(to, &self.reference.ca, &[]).await
    }
}

async fn connect(to: SocketAddr, ca: &str, alpn: &[&[u8]]) -> TlsStream<TcpStream> {
    let tcp = TcpStream::connect(to).await.unwrap();
    let name = "localhost".try_into().unwrap();
    connector(ca, alpn).connect(name, tcp).await.unwrap()
}

fn connector(ca: &str, alpn: &[&[u8]]) -> TlsConnector {
    let mut roots = rustls::RootCertStore::empty();
    let ca = rustls_pki_types::CertificateDer::from_pem_slice(ca.as_bytes()).unwrap();
    roots.add(ca).unwrap();
    let mut config = rustls::ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    TlsConnector::from(Arc::new(config))
}

fn copy_tree(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

pub(super) fn name() -> ClusterName {
    "eu1".parse().unwrap()
}

pub(super) fn get(path: &str) -> Request<Bytes> {
    let path = format!("/clusters/eu1{path}");
    Request::get(path).body(Bytes::new()).unwrap()
}

pub(super) fn post(path: &str, body: impl Into<Bytes>) -> Request<Bytes> {
    let path = format!("/clusters/eu1{path}");
    Request::post(path).body(body.into()).unwrap()
}

pub(super) fn identity() -> KeyPair {
    KeyPair::from_seed(&[11; 32])
}

async fn relay(outside: TcpListener, to: watch::Receiver<SocketAddr>, door: watch::Receiver<Door>) {
    let mut open = JoinSet::new();
    while let Ok((mut socket, _)) = outside.accept().await {
        let mut door = door.clone();
        if door.borrow_and_update().shut {
            continue;
        }
        let to = *to.borrow();
        open.spawn(async move {
            let mut hub = TcpStream::connect(to).await.unwrap();
            tokio::select! {
                _ = tokio::io::copy_bidirectional(&mut socket, &mut hub) => {}
                _ = door.changed() => {}
            }
        });
    }
}

/// Serves each stream as the agent does.
pub(super) async fn forward(
    shared: Arc<Shared>,
    mut streams: mpsc::Receiver<Incoming>,
    mut state: watch::Receiver<LinkState>,
) {
    let mut running = JoinSet::new();
    while let Some(arrived) = streams.recv().await {
        let up = state.wait_for(|state| matches!(state, LinkState::Up { .. }));
        let Ok(LinkState::Up { keyset, .. }) = up.await.map(|up| up.clone()) else {
            return;
        };
        let exchange = Exchange {
            meta: serde_json::from_slice(&arrived.meta).unwrap(),
            epoch: arrived.epoch,
            keyset,
            hub_now: arrived.stream.line().hub_now(),
            renew: Arc::new(|| {}),
            cancelled: arrived.stream.cancelled(),
            stop: Arc::new(arrived.stream.stopper()),
        };
        running.spawn(serve(arrived.stream, shared.clone(), exchange));
    }
}

/// The cluster with its agent's key on record; gives its id.
async fn join(hub: &Hub) -> String {
    let (store, now) = (&hub.store, clock::now());
    let cluster_id = add(hub, name()).await;
    let token = TokenText::new(clock::random(), clock::random());
    let record = JoinToken {
        id: token.id.clone(),
        cluster_id: cluster_id.clone(),
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
    store.issue_join_token(record).await.unwrap();
    let claim = Claim {
        token,
        cluster: "eu1".to_owned(),
        incarnation: "uid".to_owned(),
        identity: identity().public(),
        deploy: KeyPair::from_seed(&[12; 32]).public(),
        agent: AgentBuild::default(),
        facts: Facts::default(),
        addr: "127.0.0.1:1".to_owned(),
    };
    let redeemed = store.redeem(claim, now).await.unwrap();
    assert!(matches!(redeemed, Redeemed::Bound { .. }));
    cluster_id
}

/// A cluster without keys; gives its id.
async fn add(hub: &Hub, name: ClusterName) -> String {
    let (store, now, digest) = (&hub.store, clock::now(), Digest::from_bytes([1; 32]));
    let bundle = NewBundle {
        digest: digest.clone(),
        engine: EngineKind::Flux,
        version: "2.9.5".to_owned(),
        objects: 0,
        images: Vec::new(),
        data: Vec::new(),
        imported_by: "test".to_owned(),
    };
    store.add_bundle(bundle, now).await.unwrap();
    let new = NewClusterRow {
        name: name.clone(),
        labels: BTreeMap::default(),
        engine: EngineKind::Flux,
        engine_version: "2.9.5".to_owned(),
        bundle: digest,
        catalog_path: format!("clusters/{name}"),
        git_route: linesman::wire::api::GitRoute::Auto,
        adoption: AdoptionOptions::default(),
    };
    store.create_cluster(new, now).await.unwrap().id
}

/// How the agent of these tests dials.
pub(super) fn link_config(hub: watch::Receiver<HubRef>) -> LinkConfig {
    LinkConfig {
        hub,
        cluster: name(),
        keys: watch::channel(Identity {
            identity: identity(),
            ..Identity::from_seeds(&[1; 32], &[2; 32])
        })
        .1,
        build: AgentBuild::default(),
        instance: uuid::Uuid::now_v7().to_string(),
        proxy: None,
    }
}

pub(super) fn not_dialled() -> LinkState {
    LinkState::Down {
        since: clock::now(),
        cause: String::new(),
        attempt: 0,
        strange: false,
    }
}

/// A grant on all clusters, without limits.
pub(super) fn everywhere(id: &str, user: &str, groups: &[&str]) -> Grant {
    Grant {
        id: id.to_owned(),
        subject: Subject::User(user.to_owned()),
        clusters: Clusters::All,
        groups: groups.iter().map(|g| (*g).to_owned()).collect(),
        act_as: [].into(),
        namespaces: None,
        mode: Mode::Full,
        expires_at: None,
        reason: String::new(),
        created_by: "admin".to_owned(),
        created_at: clock::now(),
        rev: 1,
    }
}

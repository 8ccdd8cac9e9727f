//! A real hub on loopback with the cluster `eu1`, its users, and its agent's line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, header};
use http_body_util::Full;
use hyper::body::Incoming as Answer;
use hyper_util::rt::TokioIo;
use linesman::hub::tls::TlsSource;
use linesman::hub::{self, Bounds, Hub, HubConfig, Listeners};
use linesman::wire::api::HubRef;
use linesman::wire::id::ClusterName;
use rustls_pki_types::pem::PemObject as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

mod agent;
mod records;

use agent::relay;
pub(super) use agent::{Door, forward, held, identity, link_config, not_dialled};
use records::join;
pub(super) use records::{ada, everywhere, readopt};

/// How long anything may take that is not measured.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// What came sooner was not waited for: a request waits 10 s for a line.
pub(super) const UNWAITED: Duration = Duration::from_secs(5);
/// Nothing more moves that has not moved for so long: on a busy machine whoever moves it may be without a core for as long as some
/// looks take.
pub(super) const STILL: Duration = Duration::from_secs(1);

/// What runs has this long when a hub ends, where the test says nothing of it.
const DRAIN: Duration = Duration::from_secs(1);

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
    /// Once the hub has ended.
    pub(super) over: CancellationToken,
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
    drain: Duration,
    /// What replicas reach one another through, where that is anything.
    between: Option<watch::Receiver<Door>>,
}

impl Site {
    fn new(outside: &TcpListener, records: hub::store::Records) -> Self {
        let data =
            std::env::temp_dir().join(format!("linesman-it-proxy-{}", linesman::clock::id()));
        let url = format!("https://localhost:{}", outside.local_addr().unwrap().port());
        Self {
            data,
            url,
            records,
            bounds: Bounds::default(),
            drain: DRAIN,
            between: None,
        }
    }
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
        Self::made(|site| site.bounds = bounds).await
    }

    /// Whose hub gives what runs this long when it ends.
    pub(super) async fn draining(drain: Duration) -> Self {
        Self::made(|site| site.drain = drain).await
    }

    async fn made(change: impl FnOnce(&mut Site)) -> Self {
        let outside = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut site = Site::new(&outside, hub::store::Records::File);
        change(&mut site);
        let mut world = Self::at(&site, None).await;
        world.open(outside).await;
        world
    }

    /// So many replicas of a hub on one database and one data directory, with a door to the first.
    pub(super) async fn replicas<const N: usize>() -> [Self; N] {
        Self::replicas_draining(DRAIN).await
    }

    /// The same, each of which gives what runs this long when it ends.
    pub(super) async fn replicas_draining<const N: usize>(drain: Duration) -> [Self; N] {
        let url = crate::postgres::database().await;
        let urls = [(); N].map(|()| url.as_str());
        Self::apart(urls, |site| site.drain = drain).await
    }

    /// The same, which reach one another through a door.
    pub(super) async fn replicas_behind<const N: usize>(door: &watch::Sender<Door>) -> [Self; N] {
        let url = crate::postgres::database().await;
        let urls = [(); N].map(|()| url.as_str());
        Self::apart(urls, |site| site.between = Some(door.subscribe())).await
    }

    /// The same, each of which reaches the database by its own URL.
    pub(super) async fn reaching<const N: usize>(urls: [&str; N]) -> [Self; N] {
        Self::apart(urls, |_| {}).await
    }

    async fn apart<const N: usize>(urls: [&str; N], change: impl FnOnce(&mut Site)) -> [Self; N] {
        let outside = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut site = Site::new(&outside, hub::store::Records::File);
        change(&mut site);
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
        self.cluster_id = join(&self.hub, name(), &identity()).await;
        self.token = ada(&self.hub).await;
    }

    /// A hub without a door.
    async fn at(site: &Site, peer: Option<TcpListener>) -> Self {
        drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
        let Site {
            data,
            url,
            records,
            bounds,
            drain,
            between,
        } = site.clone();
        let mut tasks = JoinSet::new();
        let bind = || TcpListener::bind("127.0.0.1:0");
        let peer_at = reached(peer.as_ref(), between, &mut tasks).await;
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
            drain,
            git_over_line: hub::gitline::Allowed::Auto,
            audit: hub::AuditConfig::default(),
            notify: hub::notify::Config::default(),
            oidc: None,
            grants: hub::access::GrantRules::default(),
            sessions: hub::oidc::Lifetimes::default(),
            peer: peer_at,
        };
        let stop = CancellationToken::new();
        let (hub, chain) = hub::start(config, stop.clone()).await.unwrap();
        let running = hub::serve::run(listeners, hub.clone(), chain);
        let over = CancellationToken::new();
        let ended = over.clone();
        tasks.spawn(async move {
            drop(running.await);
            ended.cancel();
        });
        Self {
            hub,
            token: String::new(),
            door: watch::Sender::default(),
            to: watch::Sender::new(https),
            https,
            cluster_id: String::new(),
            over,
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

    /// Waits until the hub has a line, or none.
    pub(super) async fn has_line(&self, wanted: bool) {
        has_line(&self.hub, &name(), wanted).await;
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

/// Where the others reach a replica: by the door between them, where there is one.
async fn reached(
    peer: Option<&TcpListener>,
    between: Option<watch::Receiver<Door>>,
    tasks: &mut JoinSet<()>,
) -> Option<hub::PeerConfig> {
    let listen = peer?.local_addr().unwrap();
    let mut address = listen;
    if let Some(door) = between {
        let outside = TcpListener::bind("127.0.0.1:0").await.unwrap();
        address = outside.local_addr().unwrap();
        tasks.spawn(relay(outside, watch::channel(listen).1, door));
    }
    let url = address.to_string();
    Some(hub::PeerConfig { listen, url })
}

async fn has_line(hub: &Hub, cluster: &ClusterName, wanted: bool) {
    let mut changes = hub.tunnels.changes();
    let seen = async {
        while hub.tunnels.get(cluster).is_some() != wanted {
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
    pub(super) fn connector(&self, alpn: &[&[u8]]) -> TlsConnector {
        connector(&self.reference.ca, alpn)
    }

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

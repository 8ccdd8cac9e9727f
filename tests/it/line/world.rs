//! A hub with one registered cluster, reached through a relay that can be cut.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use linesman::clock;
use linesman::hub::tls::TlsSource;
use linesman::hub::{Hub, HubConfig, Listeners, assignment, serve};
use linesman::keys::KeyPair;
use linesman::tunnel::Line;
use linesman::wire::api::{Assignment, GitRoute};
use linesman::wire::id::ClusterName;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tokio_util::sync::CancellationToken;

use super::real::{self, Nginx};
use crate::joined;

mod agent;

pub(super) use agent::Agent;

pub(super) const PATIENCE: Duration = Duration::from_secs(30);

pub(super) struct World {
    pub(super) hub: Arc<Hub>,
    pub(super) cluster: ClusterName,
    pub(super) identity: KeyPair,
    pub(super) deploy: KeyPair,
    /// Dropping the connections that stand: send anything.
    pub(super) cut: watch::Sender<u32>,
    /// Holding the connections that stand, open and silent: send anything.
    pub(super) freeze: watch::Sender<u32>,
    /// Whether the relay closes what is new.
    pub(super) shut: watch::Sender<bool>,
    /// Connections that the relay took.
    pub(super) dials: Arc<AtomicU64>,
    /// Of the balancer, where there is one.
    pub(super) ca: Option<String>,
    _nginx: Option<Nginx>,
    stop: CancellationToken,
    tasks: JoinSet<()>,
    data: PathBuf,
}

/// Of a hub that serves HTTPS, health and Git, and that agents reach by a relay.
fn config(
    data: PathBuf,
    [https, health, git, relay]: [SocketAddr; 4],
    dialled: Option<SocketAddr>,
    nginx: bool,
) -> HubConfig {
    let prefix = if nginx { real::PREFIX } else { "" };
    let names = nginx.then(|| real::HUB.to_owned());
    HubConfig {
        trusted_proxies: [].into(),
        records: linesman::hub::store::Records::File,
        keys: linesman::hub::rotation::KeyPolicy::default(),
        bounds: linesman::hub::Bounds::default(),
        data,
        url: format!("https://{relay}{prefix}"),
        listen: https,
        health_listen: health,
        git_listen: dialled.unwrap_or(git),
        git_url: format!("ssh://git@{git}"),
        tls: TlsSource::Own {
            names: names.into_iter().collect(),
        },
        agent_image: "lab.invalid/linesman:test".to_owned(),
        offline_after: Duration::from_secs(45),
        drain: Duration::from_secs(2),
        git_over_line: linesman::hub::gitline::Allowed::Auto,
        audit: linesman::hub::AuditConfig::default(),
        notify: linesman::hub::notify::Config::default(),
        oidc: None,
        grants: linesman::hub::access::GrantRules::default(),
        sessions: linesman::hub::oidc::Lifetimes::default(),
        peer: None,
    }
}

impl World {
    pub(super) async fn new() -> Self {
        Self::made(Way::default(), None).await
    }

    /// Whose cluster has this identity key.
    pub(super) async fn known(identity: KeyPair) -> Self {
        let way = Way {
            identity: Some(identity),
            ..Way::default()
        };
        Self::made(way, None).await
    }

    /// Where a test may keep files.
    pub(super) fn directory(&self) -> &Path {
        &self.data
    }

    /// Behind something that ends every connection at this age.
    pub(super) async fn cutting(life: Duration) -> Self {
        let way = Way {
            life: Some(life),
            ..Way::default()
        };
        Self::made(way, None).await
    }

    /// With a balancer before the hub that ends TLS, with a certificate of its own.
    pub(super) async fn behind(front: Front) -> Self {
        let way = Way {
            front: Some(front),
            ..Way::default()
        };
        Self::made(way, None).await
    }

    /// Where agents reach the hub by what this makes of its address.
    pub(super) async fn reached_by(detour: fn(SocketAddr) -> SocketAddr) -> Self {
        let way = Way {
            detour: Some(detour),
            ..Way::default()
        };
        Self::made(way, None).await
    }

    /// With nginx before the hub.
    pub(super) async fn behind_nginx() -> Self {
        let way = Way {
            nginx: true,
            ..Way::default()
        };
        Self::made(way, None).await
    }

    /// Whose hub believes that its Git server listens there.
    pub(super) async fn dialling(git: SocketAddr) -> Self {
        Self::made(Way::default(), Some(git)).await
    }

    async fn made(way: Way, dialled: Option<SocketAddr>) -> Self {
        drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
        let data = std::env::temp_dir().join(format!("linesman-line-{}", clock::id()));
        let bind = || TcpListener::bind("127.0.0.1:0");
        let (https, git, health, relay) = (
            bind().await.unwrap(),
            bind().await.unwrap(),
            bind().await.unwrap(),
            bind().await.unwrap(),
        );
        let at = |listener: &TcpListener| listener.local_addr().unwrap();
        let served = [&https, &health, &git, &relay].map(at);
        let config = config(data.clone(), served, dialled, way.nginx);
        let stop = CancellationToken::new();
        let (hub, chain) = serve::start(config, stop.clone()).await.unwrap();
        let (cut, cuts) = watch::channel(0);
        let (freeze, freezes) = watch::channel(0);
        let (shut, is_shut) = watch::channel(false);
        let mut tasks = JoinSet::new();
        let nginx = way
            .nginx
            .then(|| Nginx::before(at(&https), &hub.reference().ca));
        let ca = way.front.as_ref().map(|front| front.ca.clone());
        let ca = ca.or_else(|| nginx.as_ref().map(|nginx| nginx.ca.clone()));
        let dials = Arc::new(AtomicU64::new(0));
        let to = nginx
            .as_ref()
            .map_or_else(|| at(&https), |nginx| nginx.address);
        let relayed = Relay {
            to: way.detour.map_or(to, |detour| detour(to)),
            cuts,
            freezes,
            shut: is_shut,
            front: way
                .front
                .map(|front| (front.acceptor, trusting(&hub.reference().ca))),
            life: way.life,
            dials: dials.clone(),
        };
        tasks.spawn(relayed.run(relay));
        let listeners = Listeners {
            https,
            git,
            health,
            peer: None,
        };
        let running = hub.clone();
        tasks.spawn(async move { serve::run(listeners, running, chain).await.unwrap() });
        let identity = way.identity;
        let identity = identity.unwrap_or_else(|| KeyPair::from_seed(&clock::random()));
        let cluster = "eu1".parse().unwrap();
        let deploy = KeyPair::from_seed(&clock::random());
        let world = Self {
            hub,
            cluster,
            identity,
            deploy,
            cut,
            freeze,
            shut,
            dials,
            ca,
            _nginx: nginx,
            stop,
            tasks,
            data,
        };
        world.register().await;
        world
    }

    async fn register(&self) {
        let store = &self.hub.store;
        joined::bundle(store).await;
        joined::join(store, &self.cluster, &self.identity, &self.deploy).await;
        assert_eq!(
            store
                .cluster_keys(&store.cluster(&self.cluster).await.unwrap().unwrap().id)
                .await
                .unwrap()
                .len(),
            2
        );
    }

    /// How the cluster reaches the Git host.
    pub(super) async fn route(&self, route: GitRoute) -> Assignment {
        let record = self
            .hub
            .store
            .cluster(&self.cluster)
            .await
            .unwrap()
            .unwrap();
        let chosen = (route, false);
        self.hub
            .store
            .set_git_route(record.revision(), chosen, clock::now())
            .await
            .unwrap();
        let record = self.hub.store.cluster(&self.cluster).await.unwrap();
        assignment::of(&self.hub, &record.unwrap()).await.unwrap()
    }

    /// The hub's end of the newest line, once it has this epoch at least.
    pub(super) async fn line(&self, epoch: u64) -> Line {
        let mut changes = self.hub.tunnels.changes();
        let found = async {
            loop {
                changes.borrow_and_update();
                if let Some(line) = self
                    .hub
                    .tunnels
                    .get(&self.cluster)
                    .filter(|line| line.facts().epoch >= epoch)
                {
                    return line;
                }
                changes.changed().await.unwrap();
            }
        };
        timeout(PATIENCE, found).await.expect("the hub has a line")
    }

    /// Ends the hub and waits for it.
    pub(super) async fn end(mut self) {
        self.stop.cancel();
        timeout(PATIENCE, async { self.tasks.join_next().await })
            .await
            .expect("the hub ends");
        drop(std::fs::remove_dir_all(&self.data));
    }
}

/// A balancer's certificate.
pub(super) struct Front {
    ca: String,
    acceptor: TlsAcceptor,
}

impl Front {
    pub(super) fn new() -> Self {
        let (acceptor, ca) = crate::tls::loopback();
        Self { ca, acceptor }
    }
}

pub(super) fn trusting(ca: &str) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca.as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let config = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

/// What stands before the hub.
#[derive(Default)]
struct Way {
    front: Option<Front>,
    nginx: bool,
    life: Option<Duration>,
    identity: Option<KeyPair>,
    detour: Option<fn(SocketAddr) -> SocketAddr>,
}

struct Relay {
    to: SocketAddr,
    cuts: watch::Receiver<u32>,
    freezes: watch::Receiver<u32>,
    shut: watch::Receiver<bool>,
    front: Option<(TlsAcceptor, TlsConnector)>,
    life: Option<Duration>,
    dials: Arc<AtomicU64>,
}

impl Relay {
    async fn run(self, listener: TcpListener) {
        let mut open = JoinSet::new();
        while let Ok((mut client, _)) = listener.accept().await {
            self.dials.fetch_add(1, Ordering::Relaxed);
            if *self.shut.borrow() {
                continue;
            }
            let mut cut = self.cuts.clone();
            cut.mark_unchanged();
            let mut freeze = self.freezes.clone();
            freeze.mark_unchanged();
            let (to, front, life) = (self.to, self.front.clone(), self.life);
            open.spawn(async move {
                let Ok(mut server) = TcpStream::connect(to).await else {
                    return;
                };
                let relayed = async {
                    let Some((acceptor, connector)) = front else {
                        return drop(tokio::io::copy_bidirectional(&mut client, &mut server).await);
                    };
                    let name = ServerName::from(to.ip());
                    if let (Ok(mut client), Ok(mut server)) =
                        tokio::join!(acceptor.accept(client), connector.connect(name, server))
                    {
                        drop(tokio::io::copy_bidirectional(&mut client, &mut server).await);
                    }
                };
                let old = async {
                    match life {
                        Some(life) => tokio::time::sleep(life).await,
                        None => std::future::pending().await,
                    }
                };
                let frozen = async {
                    tokio::select! {
                        () = relayed => {}
                        _ = freeze.changed() => std::future::pending().await,
                    }
                };
                tokio::select! {
                    () = frozen => {}
                    _ = cut.changed() => {}
                    () = old => {}
                }
            });
        }
    }
}

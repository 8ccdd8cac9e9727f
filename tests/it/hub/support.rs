//! A real hub on port 0, and agents that speak to it over HTTPS.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use linesman::clock;
use linesman::hub::gitline::Allowed;
use linesman::hub::store::NewBundle;
use linesman::hub::tls::TlsSource;
use linesman::hub::{
    AuditConfig, Hub, HubConfig, Listeners, PeerConfig, notify, oidc, serve, start,
};
use linesman::wire::api::EngineKind;
use linesman::wire::id::Digest;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

mod agent;
mod calls;
mod place;

pub(crate) use agent::{Agent, Call, signature};
pub(crate) use calls::{api_token, token_of};
use place::{CHOSEN, SEVERAL, choose_postgres, records, several_listener, shared_urls};

/// A file of the data directory: the hub recovers no identities.
const MANUAL: &str = "recovery.manual";

pub(crate) struct TestHub {
    pub(crate) hub: Arc<Hub>,
    pub(crate) admin: String,
    data: PathBuf,
    address: SocketAddr,
    client: reqwest::Client,
    tasks: JoinSet<anyhow::Result<()>>,
}

impl TestHub {
    pub(crate) async fn start(name: &str) -> Self {
        Self::with_audit(name, AuditConfig::default()).await
    }

    /// With its records in a PostgreSQL database of its own; gives its URL too.
    pub(crate) async fn on_postgres(name: &str) -> (Self, String) {
        let data = std::env::temp_dir().join(format!("linesman-hub-{name}-{}", std::process::id()));
        drop(std::fs::remove_dir_all(&data));
        let url = choose_postgres(&data).await;
        (Self::open(name, data).await.with_bundle().await, url)
    }

    /// One that lets no cluster recover a lost identity by itself.
    pub(crate) async fn manual(name: &str) -> Self {
        let data = std::env::temp_dir().join(format!("linesman-hub-{name}-{}", std::process::id()));
        drop(std::fs::remove_dir_all(&data));
        std::fs::create_dir_all(&data).unwrap();
        std::fs::write(data.join(MANUAL), "").unwrap();
        Self::open(name, data).await.with_bundle().await
    }

    /// Two replicas of one hub, on one database and one data directory; gives the database's URL too.
    pub(crate) async fn replicas(name: &str) -> ([Self; 2], String) {
        let data = std::env::temp_dir().join(format!("linesman-hub-{name}-{}", std::process::id()));
        drop(std::fs::remove_dir_all(&data));
        let url = choose_postgres(&data).await;
        std::fs::write(data.join(SEVERAL), "").unwrap();
        let first = Self::open(name, data.clone()).await.with_bundle().await;
        let second = Self::open(name, data).await;
        ([first, second], url)
    }

    /// Two replicas of one hub that tell these of troubles.
    pub(crate) async fn replicas_notifying(name: &str, notify: &notify::Config) -> [Self; 2] {
        let data = std::env::temp_dir().join(format!("linesman-hub-{name}-{}", std::process::id()));
        drop(std::fs::remove_dir_all(&data));
        choose_postgres(&data).await;
        std::fs::write(data.join(SEVERAL), "").unwrap();
        let first = Self::open_notifying(data.clone(), notify.clone()).await;
        let second = Self::open_notifying(data, notify.clone()).await;
        [first.with_bundle().await, second]
    }

    /// The same with an identity provider, which is made for their common URL.
    pub(crate) async fn replicas_with_oidc(
        name: &str,
        oidc: impl FnOnce(&str) -> oidc::Config,
    ) -> [Self; 2] {
        let data = std::env::temp_dir().join(format!("linesman-hub-{name}-{}", std::process::id()));
        drop(std::fs::remove_dir_all(&data));
        choose_postgres(&data).await;
        std::fs::write(data.join(SEVERAL), "").unwrap();
        let mut made = None;
        let none = Default::default();
        let first = Self::open_all(data.clone(), none, Allowed::Auto, |url| {
            made = Some(oidc(url));
            made.clone()
        })
        .await;
        let none = Default::default();
        let second = Self::open_all(data, none, Allowed::Auto, |_| made).await;
        [first, second]
    }

    /// Dies in the middle of everything; the data directory stays.
    pub(crate) async fn die(mut self) {
        self.tasks.shutdown().await;
    }

    /// Ends as a signal would; the data directory stays, for another replica has it.
    pub(crate) async fn leave(mut self) {
        self.hub.stop.cancel();
        self.tasks.join_next().await.unwrap().unwrap().unwrap();
    }

    /// Ends as a signal would, and goes on with what it left.
    pub(crate) async fn restart(self) -> Self {
        let data = self.left().await;
        Self::open("restart", data).await
    }

    /// The same with an identity provider.
    pub(crate) async fn restart_with(self, oidc: oidc::Config) -> Self {
        let data = self.left().await;
        let none = Default::default();
        Self::open_all(data, none, Allowed::Auto, |_| Some(oidc)).await
    }

    async fn left(mut self) -> PathBuf {
        self.hub.stop.cancel();
        self.tasks.join_next().await.unwrap().unwrap().unwrap();
        self.data
    }

    pub(crate) async fn with_audit(name: &str, audit: AuditConfig) -> Self {
        Self::with(name, audit, notify::Config::default(), Allowed::Auto).await
    }

    pub(crate) async fn allowing(name: &str, git_over_line: Allowed) -> Self {
        let none = notify::Config::default();
        Self::with(name, AuditConfig::default(), none, git_over_line).await
    }

    /// Telling these of troubles.
    pub(crate) async fn notifying(name: &str, notify: notify::Config) -> Self {
        Self::with(name, AuditConfig::default(), notify, Allowed::Auto).await
    }

    pub(crate) async fn open_notifying(data: PathBuf, notify: notify::Config) -> Self {
        let told = (AuditConfig::default(), notify);
        Self::open_all(data, told, Allowed::Auto, |_| None).await
    }

    /// The same as one of several replicas; gives the database's URL too.
    pub(crate) async fn replica_notifying(name: &str, notify: notify::Config) -> (Self, String) {
        let data = std::env::temp_dir().join(format!("linesman-hub-{name}-{}", std::process::id()));
        drop(std::fs::remove_dir_all(&data));
        let url = choose_postgres(&data).await;
        std::fs::write(data.join(SEVERAL), "").unwrap();
        let hub = Self::open_notifying(data, notify).await;
        (hub.with_bundle().await, url)
    }

    async fn with(
        name: &str,
        audit: AuditConfig,
        notify: notify::Config,
        git_over_line: Allowed,
    ) -> Self {
        let data = std::env::temp_dir().join(format!("linesman-hub-{name}-{}", std::process::id()));
        drop(std::fs::remove_dir_all(&data));
        Self::open_all(data, (audit, notify), git_over_line, |_| None)
            .await
            .with_bundle()
            .await
    }

    /// With an engine that clusters can be added for.
    async fn with_bundle(self) -> Self {
        let bundle = NewBundle {
            digest: Digest::from_bytes([1; 32]),
            engine: EngineKind::Flux,
            version: "2.9.5".to_owned(),
            objects: 1,
            images: vec![],
            data: vec![1],
            imported_by: "admin".to_owned(),
            origin: None,
        };
        self.hub
            .store
            .add_bundle(bundle, clock::now())
            .await
            .unwrap();
        self
    }

    /// With an identity provider, which is made for the hub's URL.
    pub(crate) async fn with_oidc(name: &str, oidc: impl FnOnce(&str) -> oidc::Config) -> Self {
        let data = std::env::temp_dir().join(format!("linesman-hub-{name}-{}", std::process::id()));
        drop(std::fs::remove_dir_all(&data));
        let none = Default::default();
        Self::open_all(data, none, Allowed::Auto, |url| Some(oidc(url)))
            .await
            .with_bundle()
            .await
    }

    pub(crate) async fn open(name: &str, data: PathBuf) -> Self {
        Self::open_with(name, data, AuditConfig::default()).await
    }

    pub(crate) async fn open_with(_name: &str, data: PathBuf, audit: AuditConfig) -> Self {
        let told = (audit, notify::Config::default());
        Self::open_all(data, told, Allowed::Auto, |_| None).await
    }

    async fn open_all(
        data: PathBuf,
        (audit, notify): (AuditConfig, notify::Config),
        git_over_line: Allowed,
        oidc: impl FnOnce(&str) -> Option<oidc::Config>,
    ) -> Self {
        drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
        let listeners = Listeners {
            https: TcpListener::bind("127.0.0.1:0").await.unwrap(),
            git: TcpListener::bind("127.0.0.1:0").await.unwrap(),
            health: TcpListener::bind("127.0.0.1:0").await.unwrap(),
            peer: several_listener(&data).await,
        };
        let several = listeners.peer.is_some();
        let address = listeners.https.local_addr().unwrap();
        let git = listeners.git.local_addr().unwrap();
        let (url, git_url) = shared_urls(&data, address.port(), git.port());
        let config = HubConfig {
            trusted_proxies: [].into(),
            records: records(&data).await,
            keys: linesman::hub::rotation::KeyPolicy {
                quiet: time::Duration::seconds(1),
                recovery: !data.join(MANUAL).exists(),
                ..Default::default()
            },
            bounds: linesman::hub::Bounds::default(),
            data: data.clone(),
            oidc: oidc(&url),
            grants: linesman::hub::access::GrantRules::default(),
            sessions: oidc::Lifetimes::default(),
            peer: listeners.peer.as_ref().map(|peer| {
                let listen = peer.local_addr().unwrap();
                PeerConfig {
                    listen,
                    url: listen.to_string(),
                }
            }),
            notify,
            url,
            listen: address,
            health_listen: listeners.health.local_addr().unwrap(),
            git_listen: git,
            git_url,
            tls: TlsSource::Own { names: vec![] },
            agent_image: "lab.invalid/linesman:dev".to_owned(),
            offline_after: Duration::from_secs(45),
            drain: Duration::from_secs(if several { 20 } else { 2 }),
            git_over_line,
            audit,
        };
        let (hub, chain) = start(config, CancellationToken::new()).await.unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(serve::run(listeners, hub.clone(), chain));
        let ca = std::fs::read(data.join("ca.crt")).unwrap();
        let client = reqwest::Client::builder()
            .tls_certs_only([reqwest::Certificate::from_pem(&ca).unwrap()])
            .resolve("localhost", address)
            .no_proxy()
            .build()
            .unwrap();
        Self {
            admin: admin_token(&data),
            hub,
            data,
            address,
            client,
            tasks,
        }
    }

    /// Ends as a signal would, and leaves nothing behind.
    pub(crate) async fn stop(mut self) {
        self.hub.stop.cancel();
        self.tasks.join_next().await.unwrap().unwrap().unwrap();
        std::fs::remove_dir_all(&self.data).unwrap();
    }

    /// Ends in the middle of everything; gives a copy of the data directory as a killed process leaves it.
    pub(crate) async fn crash(mut self) -> PathBuf {
        let copy = self.data.with_extension(clock::id());
        copy_tree(&self.data, &copy);
        self.hub.stop.cancel();
        self.tasks.join_next().await.unwrap().unwrap().unwrap();
        std::fs::remove_dir_all(&self.data).unwrap();
        copy
    }

    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    /// Changes the database behind the hub's back, in the words of either.
    pub(crate) async fn execute(&self, sqlite: &'static str, postgres: &str) {
        use sqlx::Connection as _;
        if let Some(url) = self.postgres() {
            return crate::postgres::execute(&url, postgres).await;
        }
        let url = format!("sqlite://{}", self.data.join("hub.db").display());
        let mut connection = sqlx::SqliteConnection::connect(&url).await.unwrap();
        let done = sqlx::query(sqlite).execute(&mut connection).await;
        done.unwrap();
        connection.close().await.unwrap();
    }

    /// What the database has of logins, as it has it.
    pub(crate) async fn stored(&self) -> Vec<u8> {
        match self.postgres() {
            Some(url) => crate::postgres::dump(&url, "session, session_token").await,
            None => std::fs::read(self.data.join("hub.db-wal")).unwrap(),
        }
    }

    pub(crate) fn postgres(&self) -> Option<String> {
        std::fs::read_to_string(self.data.join(CHOSEN)).ok()
    }
}

fn admin_token(data: &Path) -> String {
    let text = std::fs::read_to_string(data.join("admin.token")).unwrap();
    text.trim().to_owned()
}

fn copy_tree(from: &Path, to: &Path) {
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

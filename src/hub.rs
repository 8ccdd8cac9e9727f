//! The hub: wires its parts and owns their tasks.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_lc_rs::signature::Ed25519KeyPair;
use time::OffsetDateTime;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, broadcast, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::keys::KeyPair;
use crate::tunnel::session::UNREAD_LONG;
use crate::wire::api::{HubKey, HubRef, Order};
use crate::wire::id::ClusterName;

pub mod access;
pub mod adoption;
pub mod api;
pub mod assertion;
pub mod assignment;
pub mod audit;
pub mod auth;
pub mod catalog;
pub mod diagnoses;
pub mod directory;
pub mod fleet;
pub mod git;
pub mod githost;
pub mod gitline;
pub mod grants;
pub mod image;
pub mod incident;
pub mod login;
pub mod lookups;
pub mod lost;
pub mod notify;
pub mod oidc;
pub mod peers;
pub mod presence;
pub mod proxy;
pub mod registration;
pub mod replica;
pub mod rotation;
pub mod running;
pub mod safe_heals;
pub mod selector;
pub mod serve;
pub mod signers;
pub mod store;
pub mod story;
pub mod tls;
pub mod trust;
pub mod tunnels;
pub mod twin;
pub mod unknown;
mod whole;

pub use presence::Presence;
pub use serve::{serve, start};

/// The repository's name on the built-in Git server and in the data directory.
pub const CATALOG: &str = "catalog.git";

/// Everything that the hub is told at its start.
#[derive(Debug, Clone)]
pub struct HubConfig {
    /// Keys, certificates, the catalog's repository, and the database where `records` says so.
    pub data: PathBuf,
    pub records: store::Records,
    /// `https://hub.example:8443`, as clusters and people reach it; a path prefix is kept.
    pub url: String,
    pub listen: SocketAddr,
    /// Proxies before the hub whose `X-Forwarded-For` counts.
    pub trusted_proxies: Arc<[serve::Cidr]>,
    pub health_listen: SocketAddr,
    pub git_listen: SocketAddr,
    /// `ssh://git@host:port`, as clusters and people reach the built-in Git server.
    pub git_url: String,
    pub tls: tls::TlsSource,
    /// The agent's image in adoption YAML that names no other.
    pub agent_image: String,
    /// After this long without a word from an agent that has no line, the cluster is offline.
    pub offline_after: Duration,
    /// How long running requests have to end after a stop.
    pub drain: Duration,
    /// Which clusters may take Git over their lines.
    pub git_over_line: gitline::Allowed,
    /// How long the audit is kept, and who else gets it.
    pub audit: AuditConfig,
    pub keys: rotation::KeyPolicy,
    /// The identity provider that people log in with; None = tokens and codes that an admin gives.
    pub oidc: Option<oidc::Config>,
    /// How long sessions hold where there is no provider, which else says so.
    pub sessions: oidc::Lifetimes,
    /// Whom the hub tells of troubles.
    pub notify: notify::Config,
    /// How other replicas of the hub reach this one; None = it is alone.
    pub peer: Option<PeerConfig>,
    pub bounds: Bounds,
}

/// How much connections and requests may take. The defaults are the product's.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    pub connections: serve::Connections,
    pub patience: proxy::Patience,
    /// An answer that is not read for so long makes room for others on a line that was full.
    pub unread_long: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections: serve::Connections::default(),
            patience: proxy::Patience::default(),
            unread_long: UNREAD_LONG,
        }
    }
}

/// One of several replicas of a hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerConfig {
    pub listen: SocketAddr,
    /// `host:port`
    pub url: String,
}

/// What becomes of audit records.
#[derive(Debug, Clone, Default)]
pub struct AuditConfig {
    pub durability: audit::Durability,
    pub retention: audit::retain::Retention,
    pub sinks: Vec<audit::sink::Sink>,
}

/// Sockets that the caller bound.
pub struct Listeners {
    pub https: TcpListener,
    pub git: TcpListener,
    pub health: TcpListener,
    /// For other replicas, where the hub is one of several.
    pub peer: Option<TcpListener>,
}

/// All that handlers share.
pub struct Hub {
    pub config: HubConfig,
    pub id: String,
    /// This process among several of the hub; None = it is alone.
    pub replica: Option<replica::Own>,
    /// Lines to the others.
    pub peers: Option<peers::Peers>,
    pub started: OffsetDateTime,
    pub store: store::Store,
    /// Of the store, what each request is judged by.
    pub lookups: lookups::Lookups,
    pub tunnels: tunnels::Tunnels,
    pub audit: audit::Audit,
    pub audit_readers: api::audit::Readers,
    /// Changes when its key or CA is replaced; whoever follows the files in the data directory sets it, and nobody else.
    pub said: watch::Sender<Arc<trust::Said>>,
    pub orders: Orders,
    pub diagnoses: diagnoses::Diagnoses,
    /// Rung when a grant or a user changed.
    pub access_changed: tokio::sync::Notify,
    pub catalog: CatalogHost,
    /// The keys that clusters know the catalog's host by.
    pub git_keys: githost::HostKeys,
    /// Heals that closed, to be told of.
    pub notices: notify::Ended,
    pub presence: Presence,
    /// What many clusters have in common now.
    pub incident: safe_heals::Standing,
    pub tls: tls::Tls,
    pub metrics: crate::telemetry::HubMetrics,
    pub oidc: Option<oidc::Provider>,
    pub logins: login::Logins,
    /// Kubernetes requests that run now.
    pub requests: Arc<running::Requests>,
    /// Joins in progress.
    pub joins: Arc<Semaphore>,
    /// Work that finishes although its caller went away.
    pub work: TaskTracker,
    /// Signs of life of its tasks.
    pub hearts: crate::lifetime::hearts::Hearts,
    /// Cancelled when the hub begins to stop.
    pub stop: CancellationToken,
}

impl Hub {
    /// How clusters find and trust this hub.
    pub fn reference(&self) -> HubRef {
        self.says().reference(&self.id)
    }

    /// Its keys, and what it says of itself, as of now.
    pub fn says(&self) -> Arc<trust::Said> {
        self.said.borrow().clone()
    }
}

/// The hub's Ed25519 signing keys.
#[derive(Debug, Clone)]
pub struct HubKeys {
    /// The newest.
    active: KeyPair,
    /// What signs now, at the provider that TLS has, whose arithmetic is assembly: each request is signed for. It is the key
    /// before while the newest is only told.
    signer: Arc<Ed25519KeyPair>,
    /// Of the key that signs now.
    kid: String,
    former: Vec<HubKey>,
}

impl HubKeys {
    pub fn new(active: KeyPair) -> Self {
        let kid = kid(active.public());
        let signer = Ed25519KeyPair::from_seed_unchecked(active.seed().expose());
        Self {
            active,
            signer: Arc::new(signer.expect("32 bytes are a seed")),
            kid,
            former: Vec::new(),
        }
    }

    /// The public halves of the keys before, each with its end.
    #[must_use]
    pub fn with_former(self, former: Vec<HubKey>) -> Self {
        Self { former, ..self }
    }

    /// The same keys, of which this one signs.
    #[must_use]
    fn signed_by(self, signs: &KeyPair) -> Self {
        let Self { signer, kid, .. } = Self::new(signs.clone());
        Self {
            signer,
            kid,
            ..self
        }
    }

    /// The id of the key that signs now.
    pub fn kid(&self) -> &str {
        &self.kid
    }

    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        let signature = self.signer.sign(message);
        let signature = signature.as_ref().try_into();
        signature.expect("an Ed25519 signature has 64 bytes")
    }

    /// By the newest key, for what outlives the one before.
    pub fn vouch(&self, message: &[u8]) -> [u8; 64] {
        self.active.sign(message)
    }

    /// The newest key.
    pub fn public(&self) -> crate::keys::Public {
        self.active.public()
    }

    /// The newest key, as a cluster's owner pins it.
    pub fn pin(&self) -> HubKey {
        HubKey {
            kid: kid(self.active.public()),
            key: self.active.public().to_base64(),
            not_after: None,
        }
    }

    /// What agents check signatures with; `now` is unix seconds. A key before counts until its end: until the newest is told to
    /// all, it signs.
    pub fn keyset(&self, now: i64) -> Vec<HubKey> {
        let valid = |key: &&HubKey| key.not_after.is_some_and(|end| now < end);
        let former = self.former.iter().filter(valid).cloned();
        std::iter::once(self.pin()).chain(former).collect()
    }

    /// Every key that ever signed or is to sign, base64url, the newest first.
    pub fn all(&self) -> Vec<String> {
        let former = self.former.iter().map(|key| key.key.clone());
        std::iter::once(self.pin().key).chain(former).collect()
    }
}

/// The id of one of the hub's keys.
pub fn kid(key: crate::keys::Public) -> String {
    cut(&crate::keys::sha256_hex(&key.0), 16).to_owned()
}

/// The catalog's repository and how it is reached.
#[derive(Debug, Clone)]
pub struct CatalogHost {
    /// The bare repository in the hub's data directory.
    pub repo: PathBuf,
    /// `ssh://git@host:port/catalog.git`
    pub url: String,
    pub branch: String,
    /// Where streams of agents that take Git over the line are led to: there and nowhere else.
    pub dial: gitline::GitTarget,
}

/// Orders to the agents' open streams. A receiver that falls behind is told so, and starts from the present state.
#[derive(Default)]
pub struct Orders {
    clusters: Mutex<BTreeMap<ClusterName, broadcast::Sender<Order>>>,
}

impl Orders {
    const ROOM: usize = 64;

    pub fn subscribe(&self, cluster: &ClusterName) -> broadcast::Receiver<Order> {
        let mut clusters = self.lock();
        // Clusters whose last stream ended leave no trace.
        clusters.retain(|_, sender| sender.receiver_count() > 0);
        clusters
            .entry(cluster.clone())
            .or_insert_with(|| broadcast::channel(Self::ROOM).0)
            .subscribe()
    }

    /// To the cluster's agent, if it listens now: an agent that does not will start from the present state.
    pub fn send(&self, cluster: &ClusterName, order: Order) {
        if let Some(sender) = self.lock().get(cluster) {
            // An error says that nobody listens.
            let _listeners = sender.send(order);
        }
    }

    /// Ends the streams of the cluster's agent. It may ask for another, which is judged anew.
    pub fn end(&self, cluster: &ClusterName) {
        self.lock().remove(cluster);
    }

    /// The clusters whose agents listen now.
    pub fn listening(&self) -> Vec<ClusterName> {
        let clusters = self.lock();
        let live = clusters
            .iter()
            .filter(|(_, sender)| sender.receiver_count() > 0);
        live.map(|(name, _)| name.clone()).collect()
    }

    /// Whether the cluster's agent listens now.
    pub fn listens(&self, cluster: &ClusterName) -> bool {
        let clusters = self.lock();
        clusters
            .get(cluster)
            .is_some_and(|sender| sender.receiver_count() > 0)
    }

    pub fn send_all(&self, order: &Order) {
        for sender in self.lock().values() {
            let _listeners = sender.send(order.clone());
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<ClusterName, broadcast::Sender<Order>>> {
        self.clusters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// At most `max` bytes of a text, cut between characters.
pub(crate) fn cut(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

/// Without NUL, which PostgreSQL's texts cannot hold.
pub(crate) fn clean(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// An error with its causes on one line.
pub(crate) fn chain_of(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// L52: both ways to sign make the same signature, which is what agents verify.
    #[test]
    fn the_hubs_signature_is_the_key_pairs_own() {
        let pair = KeyPair::from_seed(&[7; 32]);
        let keys = HubKeys::new(pair.clone());
        for message in [&b""[..], b"a request", &[0xff; 5000]] {
            assert_eq!(keys.sign(message), pair.sign(message));
            assert!(keys.public().verify(message, &keys.sign(message)));
        }
    }
}

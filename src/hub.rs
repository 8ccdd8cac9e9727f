//! The hub: wires its parts and owns their tasks.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use time::OffsetDateTime;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) use crate::telemetry::{chain_of, chain_of_any};
use crate::tunnel::session::UNREAD_LONG;
use crate::wire::api::HubRef;

pub mod access;
pub mod adoption;
pub mod api;
pub mod assertion;
pub mod assignment;
pub mod audit;
pub mod auth;
pub mod catalog;
pub mod conflict;
pub mod diagnoses;
pub mod directory;
pub mod fleet;
pub mod git;
pub mod githost;
pub mod gitline;
pub mod gitroute;
pub mod grants;
pub mod image;
pub mod incident;
mod keys;
pub mod login;
pub mod lookups;
pub mod lost;
pub mod notify;
pub mod oidc;
mod orders;
pub mod pace;
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
pub mod tried;
pub mod trust;
pub mod tunnels;
pub mod twin;
pub mod unknown;
mod whole;

pub use keys::{HubKeys, kid};
pub use orders::Orders;
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
    /// What grants have to have that people give.
    pub grants: access::GrantRules,
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
    pub requests: proxy::limits::Requests,
    /// An answer that is not read for so long makes room for others on a line that was full.
    pub unread_long: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections: serve::Connections::default(),
            patience: proxy::Patience::default(),
            requests: proxy::limits::Requests::default(),
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
    pub commands: audit::Commands,
    pub retention: audit::retain::Retention,
    pub sinks: Vec<audit::sink::Sink>,
    /// Whether the hub's own starts and stops are recorded, as `linesman hub` has it.
    pub lives: bool,
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
    /// Bodies of calls whose callers are not known yet.
    pub strangers: api::strangers::Strangers,
    /// Changes when its key or CA is replaced; whoever follows the files in the data directory sets it, and nobody else.
    pub said: watch::Sender<Arc<trust::Said>>,
    /// Why the data directory is not what it was, as the same one finds.
    pub data_gone: watch::Sender<Option<String>>,
    pub orders: Orders,
    pub diagnoses: diagnoses::Diagnoses,
    /// Rung when a grant or a user changed.
    pub access_changed: tokio::sync::Notify,
    pub catalog: CatalogHost,
    /// The keys that clusters know the catalog's host by.
    pub git_keys: githost::HostKeys,
    /// Heals that closed, to be told of.
    pub notices: notify::Ended,
    /// How the last tries with its receivers ended.
    pub tried: tried::Tried,
    pub presence: Presence,
    /// How often agents may do what changes records.
    pub paces: pace::Paces,
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

/// At most `max` bytes of a text, cut between characters.
pub(crate) fn cut(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

/// Without NUL, which PostgreSQL's texts cannot hold.
pub(crate) fn clean(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

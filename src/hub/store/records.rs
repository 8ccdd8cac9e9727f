//! The records as the hub's parts see them, free of any database: clusters, their keys and tokens, and what is reported of
//! them.

use std::collections::BTreeMap;
use std::fmt;

use time::OffsetDateTime;

use crate::keys::Public;
use crate::wire::api::{
    AdoptionOptions, AgentBuild, BundleOrigin, EngineKind, GitRoute, HostKeysReport, Policy,
    ShownKey, Via,
};
use crate::wire::id::{ClusterName, Digest};
use crate::wire::report::{Condition, Facts, HealRecord, LaterCondition, StepReport};

pub(super) mod adoption;
pub mod audit;
pub mod logins;
pub mod replicas;
pub mod unknown;
pub mod users;

/// A record as it was seen: a change that was judged by that is made of no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Revision<'a> {
    pub id: &'a str,
    pub rev: i64,
}

/// What `--within` is where nobody says it, in seconds: of each new cluster, and of each new registry.
pub const WITHIN: u32 = 300;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    pub id: String,
    pub name: ClusterName,
    pub labels: BTreeMap<String, String>,
    pub engine: EngineKind,
    pub engine_version: String,
    pub bundle: Digest,
    /// The number of the last wish for another version or registry.
    pub engine_change: u64,
    /// Seconds in which the engine has to work after it; [`WITHIN`] where nobody said.
    pub engine_within: u32,
    /// Takes the place of the registries of the engine's images; empty = theirs, absent = the hub's default.
    pub image_registry: Option<String>,
    /// The Secret of the engine's namespace that they are pulled with, said with the registry.
    pub image_pull_secret: Option<String>,
    pub catalog_path: String,
    pub git_route: GitRoute,
    /// Its agent found no route to the Git host, and [`GitRoute::Auto`] let the line be taken for it.
    pub git_no_route: bool,
    pub adoption: AdoptionOptions,
    pub policy: Policy,
    pub desired_image: Option<String>,
    /// The number of that wish.
    pub image_wish: u64,
    /// UID of the namespace `kube-system`; absent until the first join.
    pub incarnation: Option<String>,
    pub epoch: u64,
    pub agent_version: Option<String>,
    pub synced_revision: Option<String>,
    pub assignment_revision: u64,
    pub joined_at: Option<OffsetDateTime>,
    pub last_seen: Option<OffsetDateTime>,
    pub removed_at: Option<OffsetDateTime>,
    pub created_at: OffsetDateTime,
    pub rev: i64,
}

/// Whence an engine's images come, for one cluster or for all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Images {
    /// Takes the place of the registries that the images name; empty = theirs.
    pub registry: String,
    /// Name of the Secret in the engine's namespace that they are pulled with; None = none of the hub's.
    pub pull_secret: Option<String>,
}

impl fmt::Display for Images {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.registry)?;
        match &self.pull_secret {
            Some(secret) => write!(f, " with Secret {secret}"),
            None => Ok(()),
        }
    }
}

impl Cluster {
    /// Whence its engine's images come; None = as the hub says for all.
    pub fn images(&self) -> Option<Images> {
        Some(Images {
            registry: self.image_registry.clone()?,
            pull_secret: self.image_pull_secret.clone(),
        })
    }

    pub fn revision(&self) -> Revision<'_> {
        Revision {
            id: &self.id,
            rev: self.rev,
        }
    }

    /// The way to the Git host that is in force.
    pub fn via(&self) -> Via {
        match (self.git_route, self.git_no_route) {
            (GitRoute::Line, _) | (GitRoute::Auto, true) => Via::Line,
            (GitRoute::Direct, _) | (GitRoute::Auto, false) => Via::Direct,
        }
    }
}

/// A cluster that an agent has joined from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joined {
    pub id: String,
    pub name: ClusterName,
    pub epoch: u64,
    pub last_seen: Option<OffsetDateTime>,
}

#[derive(Debug, Clone)]
pub struct NewClusterRow {
    pub name: ClusterName,
    pub labels: BTreeMap<String, String>,
    pub engine: EngineKind,
    pub engine_version: String,
    pub bundle: Digest,
    pub catalog_path: String,
    pub git_route: GitRoute,
    pub adoption: AdoptionOptions,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyKind {
    Identity,
    Deploy,
}

impl KeyKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Deploy => "deploy",
        }
    }

    /// How the audit calls the end of a key.
    pub fn dropped(self) -> &'static str {
        match self {
            Self::Identity => "cluster.identity.drop",
            Self::Deploy => "cluster.deploy-key.drop",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyState {
    /// Not yet known to the Git host.
    Pending,
    Active,
    /// Replaced; still valid until its successor was used.
    Retiring,
    Revoked,
}

impl KeyState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Active => "active",
            Self::Retiring => "retiring",
            Self::Revoked => "revoked",
        }
    }

    /// Whether its holder may act.
    pub fn is_valid(self) -> bool {
        matches!(self, Self::Active | Self::Retiring)
    }
}

/// A public key with the cluster that it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterKey {
    pub cluster_id: String,
    pub cluster: ClusterName,
    /// The cluster was removed: its agent hears 410.
    pub removed: bool,
    pub kind: KeyKind,
    pub public: Public,
    pub fingerprint: String,
    pub state: KeyState,
    pub created_at: OffsetDateTime,
    /// An operator wants another one in its place.
    pub replace: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    Join,
    Readopt,
}

/// A join token; its secret is stored as SHA-256 only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinToken {
    pub id: String,
    pub cluster_id: String,
    pub hash: [u8; 32],
    pub kind: TokenKind,
    pub new_cluster: bool,
    pub adoption: AdoptionOptions,
    pub issued_by: String,
    pub expires_at: OffsetDateTime,
    pub redeemed: Option<Redemption>,
    pub revoked_at: Option<OffsetDateTime>,
    pub created_at: OffsetDateTime,
}

/// Who redeemed a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redemption {
    pub at: OffsetDateTime,
    pub fingerprint: String,
    pub incarnation: String,
    pub addr: String,
}

/// What reports said of one cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Details {
    pub facts: Facts,
    pub steps: Vec<StepReport>,
    pub conditions: Vec<Condition>,
    /// Those with words that this build does not know.
    pub later: Vec<LaterCondition>,
    pub open_heals: u32,
    pub keys: Vec<ClusterKey>,
}

/// A report after its bounds were checked.
#[derive(Debug, Clone, Default)]
pub struct Reported {
    pub agent: AgentBuild,
    pub facts: Option<Facts>,
    pub steps: Vec<StepReport>,
    pub conditions: Option<Vec<Condition>>,
    /// More of them, in words that this build does not know.
    pub later: Vec<LaterCondition>,
    pub heals: Vec<HealRecord>,
    /// Those of which an end is still to come; None = not said.
    pub open_heals: Option<Vec<String>>,
    pub revision: Option<String>,
    pub host_keys: Option<HostKeysReport>,
}

/// What became of the heals of a report.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stored {
    /// Those that it ended: said again, it is no news.
    pub ended: Vec<HealRecord>,
    /// The ids of those that opened and found no room.
    pub left_out: Vec<String>,
}

/// What a cluster says of its Git host's keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostKeysOf {
    pub cluster: ClusterName,
    /// Fingerprints of the keys that its engine has.
    pub trusted: Vec<String>,
    /// Since when it says just these.
    pub trusted_at: OffsetDateTime,
    /// What the host showed its agent last.
    pub shown: Option<ShownKey>,
    pub at: OffsetDateTime,
}

/// Living clusters that a bundle is kept for, each once, in the order of their names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BundleUse {
    /// They are to run it.
    pub wished: Vec<ClusterName>,
    /// They are to run another one, but it is in force still, or is what they go back to, as their agents said last.
    pub kept: Vec<ClusterName>,
}

#[derive(Debug, Clone)]
pub struct NewBundle {
    pub digest: Digest,
    pub engine: EngineKind,
    pub version: String,
    pub objects: u32,
    pub images: Vec<String>,
    /// zstd, as served.
    pub data: Vec<u8>,
    pub imported_by: String,
    pub origin: Option<BundleOrigin>,
}

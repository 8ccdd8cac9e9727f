//! The records as the hub's parts see them, free of any database.

use std::collections::{BTreeMap, BTreeSet};

use time::OffsetDateTime;

use crate::keys::Public;
use crate::wire::api::{
    AdoptionOptions, AgentBuild, EngineKind, GitRoute, HostKeysReport, Policy, ShownKey, Via,
};
use crate::wire::id::{ClusterName, Digest};
use crate::wire::report::{Condition, Facts, HealRecord, LaterCondition, StepReport};

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
    /// Seconds in which the engine has to work after it.
    pub engine_within: u32,
    /// Takes the place of the registries of the engine's images; empty = theirs, absent = the hub's default.
    pub image_registry: Option<String>,
    pub catalog_path: String,
    pub git_route: GitRoute,
    /// Its agent found no route to the Git host, and [`GitRoute::Auto`] let the line be taken for it.
    pub git_no_route: bool,
    pub adoption: AdoptionOptions,
    pub policy: Policy,
    pub desired_image: Option<String>,
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

impl Cluster {
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserRow {
    pub id: String,
    pub name: String,
    pub roles: Vec<String>,
    /// Groups that grants can name.
    pub groups: Vec<String>,
    pub disabled: bool,
    /// Whose word the groups are; None = a local user's, who is changed here.
    pub provider: Option<Provided>,
    pub rev: i64,
}

/// Who a user is at an identity provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provided {
    pub issuer: String,
    pub subject: String,
}

/// Someone whom an identity provider vouches for.
#[derive(Debug, Clone)]
pub struct Arrival {
    /// For one who is new.
    pub id: String,
    pub issuer: String,
    pub subject: String,
    pub name: String,
    pub groups: BTreeSet<String>,
}

/// What the store makes of them.
#[derive(Debug)]
pub enum Known {
    User {
        user: Box<UserRow>,
        /// As they were; None = they are new.
        before: Option<Box<UserRow>>,
    },
    /// An admin removed them.
    Removed,
    /// Someone else has the name.
    Taken,
}

/// A login with an identity provider.
#[derive(Debug, Clone)]
pub struct Session {
    pub id: String,
    pub user_id: String,
    /// The provider's refresh token, sealed.
    pub sealed: Option<Vec<u8>>,
    pub asked_at: OffsetDateTime,
    pub idle_until: OffsetDateTime,
    pub expires_at: OffsetDateTime,
    pub ended: bool,
}

/// A pair of tokens as it is stored.
#[derive(Debug, Clone)]
pub struct Pair {
    pub id: String,
    pub access_hash: [u8; 32],
    pub refresh_hash: [u8; 32],
    pub access_until: OffsetDateTime,
}

/// A stored pair with what became of it.
#[derive(Debug, Clone)]
pub struct SessionToken {
    pub id: String,
    pub session_id: String,
    pub access_hash: [u8; 32],
    pub refresh_hash: [u8; 32],
    pub access_until: OffsetDateTime,
    /// When the refresh token was first used.
    pub used_at: Option<OffsetDateTime>,
}

/// A hub token; its secret is stored as SHA-256 only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiToken {
    pub id: String,
    pub user_id: String,
    pub hash: [u8; 32],
    pub title: String,
    /// What it may be used for ([`crate::hub::auth::Scope`]); none = all that its user may.
    pub scopes: Vec<String>,
    /// The clusters that it reaches; None = all.
    pub clusters: Option<BTreeSet<ClusterName>>,
    /// The name of the user who made it; `hub` for the first.
    pub created_by: String,
    pub created_at: OffsetDateTime,
    pub expires_at: Option<OffsetDateTime>,
    pub revoked_at: Option<OffsetDateTime>,
}

/// How the end of a token or user went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    Done,
    /// It was gone before, or never there.
    Unknown,
    /// Nothing was done: nobody could administer the hub any more.
    LastAdmin,
}

/// A person's SSH key for the built-in Git server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshKey {
    pub id: String,
    pub user_id: String,
    pub public: Public,
    pub title: String,
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
}

/// One row of the audit chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRow {
    pub seq: i64,
    /// UTC milliseconds since 1970.
    pub at: i64,
    /// `open`, `close` or `event`.
    pub stage: String,
    pub actor: String,
    pub action: String,
    /// Whom a Kubernetes request went as, where that is not the actor.
    pub acted_as: Option<String>,
    pub cluster: Option<String>,
    pub target: String,
    pub request_id: String,
    /// `allow` or `deny`.
    pub verdict: String,
    pub reason: Option<String>,
    /// Of a close: the `seq` of its open.
    pub opened: Option<i64>,
    pub code: Option<u16>,
    pub bytes: Option<u64>,
    pub millis: Option<u64>,
    pub remote: String,
    pub prev: [u8; 32],
    pub hash: [u8; 32],
}

/// Which records of the audit are asked for; what is None does not narrow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditQuery {
    /// Behind this `seq`.
    pub after: Option<i64>,
    /// Before this `seq`.
    pub before: Option<i64>,
    /// `user:ada`, `agent:eu1` …
    pub actor: Option<String>,
    pub cluster: Option<String>,
    /// `allow` or `deny`.
    pub verdict: Option<String>,
    /// Unix milliseconds: from the first on, up to but not with the second.
    pub since: Option<i64>,
    pub until: Option<i64>,
    /// The newest ones, in falling order; else the oldest, in rising order.
    pub newest: bool,
    pub limit: u32,
}

/// The hub's signature under the chain as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anchor {
    /// The last record below it, and that record's hash.
    pub seq: i64,
    pub hash: [u8; 32],
    /// UTC milliseconds since 1970.
    pub at: i64,
    pub sig: Vec<u8>,
    /// The records up to here were removed: the chain begins behind it.
    pub start: bool,
}

/// A process of the hub that others can reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replica {
    /// UUID, new with each start.
    pub id: String,
    /// `host:port`
    pub peer: String,
    /// Of the certificate that it shows and asks with.
    pub cert_sha256: [u8; 32],
}

/// A cluster's line at a replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineRow {
    pub cluster_id: String,
    pub replica: String,
    pub epoch: u64,
    pub session: String,
    pub instance: String,
    pub remote: String,
    pub since: OffsetDateTime,
    /// What the clock of the line, the hub's own, shows now.
    pub hub_clock: OffsetDateTime,
}

/// A line and how its replica is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    pub line: LineRow,
    pub peer: Replica,
}

/// How often each kind of record has changed, ever; zero where no replica needs to know.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Changes {
    /// Users, tokens, sessions and grants.
    pub access: i64,
    /// What a cluster is told, and its removal.
    pub clusters: i64,
    /// What all clusters are told.
    pub common: i64,
    pub pushes: i64,
}

/// What one replica leaves for the others to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Noted {
    /// The incident that stands.
    Incident,
    /// The last push to the catalog.
    Push,
}

impl Noted {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Incident => "incident",
            Self::Push => "push",
        }
    }
}

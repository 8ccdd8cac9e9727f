//! HTTP bodies between agent, hub and operator (`docs/protocol.md`), and the bytes that are signed.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::Protocol;
use super::id::{ClusterName, Digest};
use super::report::{Condition, Facts, HealRecord, Phase, StepReport};

mod access;
mod doctor;
mod githost;
mod line;
mod login;
mod signer;

pub use access::{
    AnchorView, ApiTokenAnswer, ApiTokenView, AuditView, ClusterChoice, GrantCheck, GrantOpinion,
    GrantView, NewApiToken, NewGrant, NewUser, UserChange, UserView, WhoAmI,
};

pub use doctor::{Component, Diagnosis, DiagnosisAnswer, Verdict};
pub use githost::{
    AcceptHostKey, DropHostKey, GitHostCluster, GitHostView, HostKeyView, HostKeysReport,
    MAX_HOST_KEY, MAX_HOST_KEYS, OfferedKey, RotateHostKey, ShownKey,
};
pub use line::{LineClass, LineDetail};
pub use login::{DeviceLogin, EndSession, SessionAnswer, TokenRequest};
pub use signer::{DropSigner, NewSigner, SignerRef, SignerView, SignersView};

/// `POST` bodies are refused above this many bytes, bundle uploads excepted.
pub const MAX_BODY: usize = 1 << 20;
/// A bundle upload (multi-document YAML, possibly compressed) is refused above this many bytes.
pub const MAX_BUNDLE: usize = 16 << 20;
/// The header that carries an agent's signature.
pub const SIGNATURE_HEADER: &str = "linesman-signature";
/// Seconds that a signature's time may differ from the hub's clock.
pub const SIGNATURE_WINDOW: i64 = 120;

/// The bytes an agent signs for one HTTP call: everything that decides what the call does.
///
/// `time` is unix seconds on the hub's clock, `body_sha256` 64 lower-case hex digits.
pub fn signing_input(
    hub_id: &str,
    method: &str,
    path_and_query: &str,
    time: i64,
    body_sha256: &str,
) -> String {
    format!("linesman/http/v1\n{hub_id}\n{method}\n{path_and_query}\n{time}\n{body_sha256}")
}

/// The bytes that the deploy key signs at a join, to prove that the agent holds its private half.
pub fn deploy_proof_input(hub_id: &str, cluster: &str, identity_key: &str) -> String {
    format!("linesman/deploy-key/v1\n{hub_id}\n{cluster}\n{identity_key}")
}

/// The bytes that the old and the new identity key sign when one takes the other's place. Keys are base64url.
pub fn identity_change_input(hub_id: &str, cluster: &str, old_key: &str, new_key: &str) -> String {
    format!("linesman/identity/v1\n{hub_id}\n{cluster}\n{old_key}\n{new_key}")
}

/// The bytes that the deploy key signs for a cluster that lost its identity key. Keys are base64url.
pub fn recovery_input(hub_id: &str, cluster: &str, incarnation: &str, new_key: &str) -> String {
    format!("linesman/recover/v1\n{hub_id}\n{cluster}\n{incarnation}\n{new_key}")
}

/// `GET /v1/hub`, without authentication.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HubInfo {
    pub hub_id: String,
    pub version: String,
    pub protocol: Protocol,
    /// Unix seconds on the hub's clock.
    pub time: i64,
    pub trust: Option<TrustBundle>,
    /// Whether people log in with an identity provider.
    #[serde(default)]
    pub oidc: bool,
}

/// CA, URLs and keys of the hub, signed by a key of the set that the agent already holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TrustBundle {
    pub version: u64,
    pub urls: Vec<String>,
    /// PEM, empty where the certificate is publicly trusted.
    pub ca: String,
    pub keyset: Vec<HubKey>,
    /// base64url, Ed25519 over the canonical JSON of the other fields.
    pub sig: String,
}

/// One of the hub's Ed25519 signing keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HubKey {
    pub kid: String,
    /// base64url, 32 bytes.
    pub key: String,
    /// Unix seconds; absent = no end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_after: Option<i64>,
}

/// `POST /v1/join`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JoinRequest {
    pub protocol: Protocol,
    pub token: String,
    pub cluster: ClusterName,
    /// UID of the namespace `kube-system`.
    pub incarnation: String,
    /// base64url, the 32 bytes of the Ed25519 public key.
    pub identity_key: String,
    /// `ssh-ed25519 AAAA…`, one line.
    pub deploy_key: String,
    /// base64url, the deploy key's Ed25519 signature of [`deploy_proof_input`].
    pub deploy_proof: String,
    pub agent: AgentBuild,
    pub facts: Facts,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentBuild {
    pub version: String,
    pub image: String,
    pub arch: String,
    #[serde(default)]
    pub features: Vec<String>,
}

/// The answer to a join, `GET /v1/clusters/{name}/assignment` ever after: all that a cluster is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Assignment {
    pub cluster: ClusterRef,
    pub hub: HubRef,
    pub catalog: CatalogRef,
    pub engine: EngineRef,
    #[serde(default)]
    pub policy: Policy,
    /// Keys that the cluster has to replace.
    #[serde(default, skip_serializing_if = "RotateWish::is_empty")]
    pub rotate: RotateWish,
    /// The image that the hub wants the agent to run; absent = leave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_image: Option<String>,
    /// Rises with each change of this record.
    pub revision: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterRef {
    pub name: ClusterName,
    /// UUID.
    pub id: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HubRef {
    pub id: String,
    pub urls: Vec<String>,
    /// PEM, empty where the certificate is publicly trusted.
    pub ca: String,
    pub keyset: Vec<HubKey>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CatalogRef {
    /// `ssh://user@host[:port]/path`
    pub url: String,
    /// The same repository at the agent's Service `linesman-git`, for [`Via::Line`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line_url: Option<String>,
    pub via: Via,
    pub branch: String,
    /// The directory that this cluster follows, `clusters/<name>`.
    pub path: String,
    /// known_hosts lines, un-hashed, one key a line; of [`Via::Line`] under both names.
    pub known_hosts: String,
    pub deploy_key: DeployKeyStatus,
    /// Of these keys one has to have signed the head; none = nothing is verified.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signers: Vec<SignerRef>,
}

impl CatalogRef {
    /// Where the engine gets the catalog from.
    pub fn source(&self) -> &str {
        match (self.via, &self.line_url) {
            (Via::Line, Some(url)) => url,
            (Via::Direct | Via::Line, _) => &self.url,
        }
    }
}

/// How the cluster reaches the catalog's Git host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Via {
    Direct,
    Line,
}

/// What the operator chose for a cluster's way to the Git host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GitRoute {
    /// Directly, and over the line where the agent finds no route and the hub allows it.
    #[default]
    Auto,
    Direct,
    Line,
}

/// `PUT /v1/clusters/{name}/git-route`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GitRouteRequest {
    pub route: GitRoute,
}

/// The answer, and a part of [`ClusterView`]: what was chosen, and what is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GitRouteView {
    pub route: GitRoute,
    pub via: Via,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeployKeyStatus {
    pub state: DeployKeyState,
    #[serde(default)]
    pub reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeployKeyState {
    Registered,
    Pending,
    Refused,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EngineRef {
    pub kind: EngineKind,
    pub version: String,
    pub bundle: Digest,
    /// Bytes of the bundle as it is served (zstd).
    pub size: u64,
    /// `registry.example.org[:5000][/path]`: takes the place of the registries that the bundle's images name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registry: Option<String>,
    /// Seconds in which the engine has to work after a change, or what was before comes back.
    #[serde(default = "five_minutes")]
    pub within: u32,
    /// Rises with each wish of an operator for another engine version or registry: one that failed is tried again when
    /// it is wished again.
    #[serde(default)]
    pub change: u64,
}

fn five_minutes() -> u32 {
    300
}

/// `PUT /v1/clusters/{name}/engine`: version or bundle, neither = the newest that was imported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EngineRequest {
    pub engine: EngineKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundle: Option<Digest>,
    /// Seconds in which the engine has to work with it: 30 to 3,600.
    #[serde(default = "five_minutes")]
    pub within: u32,
    /// The cluster may have the other engine: it takes that one's place.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replace: bool,
    /// The catalog's path for an engine that takes the other one's place; absent = the hub looks for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// The answer: what the agent is told from now on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EngineView {
    pub engine: EngineKind,
    pub version: String,
    pub bundle: Digest,
    /// The number that condition `EngineCurrent` tells of it with.
    pub change: u64,
    /// The catalog's path that the engine follows.
    #[serde(default)]
    pub path: String,
}

/// `PUT /v1/clusters/{name}/image-registry` and `PUT /v1/hub/image-registry`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RegistryRequest {
    /// Empty = the images' own registries; absent = the hub's default, for the hub none.
    pub registry: Option<String>,
}

/// The answer: what is in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RegistryView {
    /// Empty = the images' own registries.
    pub registry: String,
    /// Of a cluster: the number that condition `EngineCurrent` tells of it with.
    pub change: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineKind {
    Flux,
    Argocd,
}

impl EngineKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Flux => "flux",
            Self::Argocd => "argocd",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        let mut all = [Self::Flux, Self::Argocd].into_iter();
        all.find(|kind| kind.as_str() == text)
    }

    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Flux => Self::Argocd,
            Self::Argocd => Self::Flux,
        }
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What the hub asks of the watchdog; the cluster owner's own policy can only narrow it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Policy {
    /// Seconds of unbroken health before a snapshot is taken.
    pub snapshot_after: u32,
    /// Seconds between freshness probes.
    pub probe_every: u32,
    /// RFC 3339; until then the watchdog only looks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused_until: Option<String>,
    /// Who paused it and why, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause_reason: Option<String>,
    /// RFC 3339; until then only what is missing is put back, because many clusters fail alike.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub safe_heals_until: Option<String>,
    /// What was seen in the fleet, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub safe_heals_reason: Option<String>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            snapshot_after: 600,
            probe_every: 300,
            paused_until: None,
            pause_reason: None,
            safe_heals_until: None,
            safe_heals_reason: None,
        }
    }
}

/// `POST /v1/clusters/{name}/deploy-keys`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeployKeyRequest {
    pub public_key: String,
    pub proof: String,
    /// The public key that this one takes the place of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<String>,
    /// The engine was seen to fetch with this key: every other deploy key of the cluster ends, also at the Git host.
    #[serde(default, skip_serializing_if = "is_false")]
    pub in_use: bool,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde asks for a reference"
)]
fn is_false(flag: &bool) -> bool {
    !*flag
}

/// The fingerprints (`SHA256:…`) of keys that a cluster has to replace: the very keys, so that a wish that was
/// fulfilled is over by itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RotateWish {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deploy_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
}

impl RotateWish {
    pub fn is_empty(&self) -> bool {
        self.deploy_key.is_none() && self.identity.is_none()
    }
}

/// `POST /v1/clusters/{name}/rotate`: which keys the cluster shall replace now. The answer names them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RotateRequest {
    pub deploy_key: bool,
    pub identity: bool,
}

/// `POST /v1/clusters/{name}/identity`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IdentityRequest {
    /// base64url, the 32 bytes of the Ed25519 public key.
    pub new_key: String,
    /// base64url, of [`identity_change_input`], by the key that ends.
    pub sig_old: String,
    /// The same by the new one.
    pub sig_new: String,
}

/// `POST /v1/recover`, signed by the new identity key; answered with the [`Assignment`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecoverRequest {
    pub cluster: ClusterName,
    /// UID of the namespace `kube-system`.
    pub incarnation: String,
    /// base64url, the 32 bytes of the Ed25519 public key.
    pub new_identity_key: String,
    /// `ssh-ed25519 AAAA…`, one line: a deploy key that the hub has of this cluster.
    pub deploy_key: String,
    /// base64url, its signature of [`recovery_input`].
    pub sig: String,
}

/// `POST /v1/clusters/{name}/reports`. Every part is optional; each report says what changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Report {
    pub agent: AgentBuild,
    /// The whole set, replacing the one before; absent = unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub facts: Option<Facts>,
    pub steps: Vec<StepReport>,
    /// The whole set of conditions; absent = unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<Condition>>,
    /// In the order in which they happened. The hub stores each id once.
    pub heals: Vec<HealRecord>,
    /// The root revision that the engine last applied, `main@sha1:…`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The Git host's keys; absent = unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_keys: Option<HostKeysReport>,
}

/// The answer: the ids of heals that are stored for good, so that the agent may forget them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportAck {
    pub heals: Vec<String>,
    /// The assignment's revision, so that an agent that missed an order notices.
    pub assignment_revision: u64,
}

/// One line of `GET /v1/clusters/{name}/orders` (NDJSON, open as long as the line is).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum Order {
    /// Sent first, and every 15 s, so that a dead peer shows.
    Beat,
    /// The catalog's branch moved: ask the engine to reconcile now.
    CatalogHead { revision: String },
    /// The assignment changed: fetch it.
    Assignment { revision: u64 },
    /// Users and groups that grants give on this cluster, all of them, without the `linesman:` prefix.
    Subjects {
        users: Vec<String>,
        groups: Vec<String>,
    },
    /// Look at everything now, and answer by `POST /v1/clusters/{name}/diagnoses` with this id.
    Diagnose { id: String },
    /// The cluster was removed at the hub: remove the agent, leave engine and workloads.
    Removed,
    /// An order of a newer hub.
    #[serde(other)]
    Unknown,
}

/// `POST /v1/clusters`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewCluster {
    pub name: ClusterName,
    #[serde(default = "flux")]
    pub engine: EngineKind,
    /// Absent = the newest imported bundle of the engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundle: Option<Digest>,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub git_route: GitRoute,
    #[serde(default)]
    pub adoption: AdoptionOptions,
}

fn flux() -> EngineKind {
    EngineKind::Flux
}

/// What the cluster's owner may choose about the generated YAML.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AdoptionOptions {
    /// The agent's image; empty = the hub's default.
    pub image: String,
    /// The most that access groups get in the cluster.
    pub access: AccessLevel,
    /// Seconds that the join token lives: 300 to 604,800.
    pub token_ttl: u32,
    pub image_pull_secret: String,
    pub https_proxy: String,
    pub no_proxy: String,
}

impl Default for AdoptionOptions {
    fn default() -> Self {
        Self {
            image: String::new(),
            access: AccessLevel::Admin,
            token_ttl: 86_400,
            image_pull_secret: String::new(),
            https_proxy: String::new(),
            no_proxy: String::new(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessLevel {
    Off,
    View,
    Edit,
    Admin,
}

/// The answer to `POST /v1/clusters` and to `POST /v1/clusters/{name}/join-tokens`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdoptionAnswer {
    pub cluster: ClusterView,
    /// The whole YAML, ready for `kubectl apply -f -`. It holds the join token.
    pub yaml: String,
    /// RFC 3339.
    pub token_expires_at: String,
    /// `https://…/adopt/<token>.yaml`: the same YAML.
    pub adopt_url: String,
    /// The branch with the cluster's files, where they wait for somebody to sign them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposed: Option<String>,
}

/// `POST /v1/clusters/{name}/join-tokens`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NewJoinToken {
    pub adoption: AdoptionOptions,
    /// Accept another incarnation (UID of `kube-system`) than the one on record.
    pub new_cluster: bool,
}

/// `POST /v1/clusters/{name}/pause`: a maintenance window from now on, in place of one that is open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PauseRequest {
    /// 60 to 86,400.
    pub seconds: u32,
    /// At most 200 characters in one line.
    pub reason: String,
}

/// One cluster as `GET /v1/clusters` and `GET /v1/clusters/{name}` show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterView {
    pub name: ClusterName,
    pub id: String,
    pub phase: Phase,
    pub engine: EngineKind,
    pub engine_version: String,
    pub labels: BTreeMap<String, String>,
    /// Whether the line is up at this moment.
    pub line: LineView,
    /// RFC 3339; absent = never seen.
    pub last_seen: Option<String>,
    pub revision: Option<String>,
    pub agent_version: Option<String>,
    pub catalog_path: String,
    pub git: GitRouteView,
    pub created_at: String,
    /// The adoption's steps, in order.
    pub steps: Vec<StepReport>,
    pub conditions: Vec<Condition>,
    pub facts: Facts,
    /// Public keys of the cluster with their fingerprints and states.
    pub keys: Vec<KeyView>,
    pub rev: i64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LineView {
    pub up: bool,
    pub epoch: u64,
    pub since: Option<String>,
    pub remote: Option<String>,
    pub rtt_micros: Option<u64>,
    pub streams: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeyView {
    /// `identity` or `deploy`.
    pub kind: String,
    /// `SHA256:…`
    pub fingerprint: String,
    pub public: String,
    /// `pending`, `active`, `retiring` or `revoked`.
    pub state: String,
    /// RFC 3339; of a cluster's keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<String>,
}

/// A page of a list; `cursor` is absent on the last one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Page<T> {
    pub items: Vec<T>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// `GET /v1/bundles`, and the answer to an upload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BundleView {
    pub digest: Digest,
    pub engine: EngineKind,
    pub version: String,
    pub objects: u32,
    pub images: Vec<String>,
    /// Bytes as served (zstd).
    pub size: u64,
    /// The lowest Kubernetes that the engine's project makes it for, `1.33`; absent = not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<String>,
    pub imported_at: String,
}

/// `GET /v1/heals`: one heal with the cluster it happened in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HealView {
    pub cluster: ClusterName,
    #[serde(flatten)]
    pub heal: HealRecord,
    #[serde(default)]
    pub took: Took,
    /// The commit that brought the bad version, where the hub's catalog has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<CommitView>,
    /// What happened, in order; of `GET /v1/heals/{id}` only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub story: Vec<StoryLine>,
}

/// How long the parts of a heal took, in milliseconds; absent = not known, or not over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Took {
    /// From the fault, as far as the cluster told when that was, to its detection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detect_ms: Option<u64>,
    /// From there to the first step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub act_ms: Option<u64>,
    /// From there, or from the detection where nothing was done, to the proof of function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore_ms: Option<u64>,
}

/// Who made a commit of the catalog, as the commit says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CommitView {
    pub id: String,
    /// `Ann <ann@example.com>`
    pub author: String,
    /// RFC 3339.
    pub at: String,
    /// The first line of its message.
    pub subject: String,
}

/// One thing that happened in the course of a heal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoryLine {
    /// RFC 3339.
    pub at: String,
    /// For people.
    pub text: String,
}

/// `GET /v1/catalog`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CatalogView {
    pub url: String,
    pub branch: String,
    /// Commit id of the branch; absent in an empty repository.
    pub head: Option<String>,
    pub known_hosts: String,
}

/// `POST /v1/catalog/ssh-keys`: lets the caller push with this key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewSshKey {
    /// `ssh-ed25519 AAAA… comment`
    pub public_key: String,
    #[serde(default)]
    pub title: String,
}

/// `GET /v1/hub/checks`: what `linesman doctor` shows of the hub's end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    pub name: String,
    pub ok: bool,
    pub found: String,
    /// The next action where `ok` is false.
    pub fix: String,
}

/// RFC 9457 problem details.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// `urn:linesman:problem:<slug>`
    #[serde(rename = "type")]
    pub kind: String,
    pub title: String,
    pub status: u16,
    pub detail: String,
    pub hop: String,
    /// What to do next, in words.
    pub next: String,
    pub request_id: String,
    /// More members that one slug defines, such as `now` of `stale-signature`.
    #[serde(flatten)]
    pub more: BTreeMap<String, String>,
}

//! HTTP bodies between agent, hub and operator (`docs/protocol.md`), and the bytes that are signed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Protocol;
use super::id::ClusterName;
use super::report::{self, Condition, Facts, HealRecord, StepReport};

mod access;
mod assignment;
mod cluster;
mod doctor;
mod engine;
mod githost;
mod heal;
mod keys;
mod line;
mod login;
mod signer;
mod told;
mod unknown;

pub use access::{
    AnchorView, ApiTokenAnswer, ApiTokenView, AuditView, ClusterChoice, GrantCheck, GrantOpinion,
    GrantView, NewApiToken, NewGrant, NewUser, RoleByGroup, UserChange, UserView, WhoAmI,
};
pub use assignment::{
    Assignment, CatalogRef, ClusterRef, DeployKeyState, DeployKeyStatus, EngineRef, HubRef, Order,
    Policy, Via,
};
pub use cluster::{
    AccessLevel, AdoptionAnswer, AdoptionChanges, AdoptionOptions, AgentCopyRequest,
    AgentCopyStanding, AgentCopyView, AgentImageRequest, AgentImageView, ClusterView, GitRoute,
    GitRouteRequest, GitRouteView, KeyView, LabelsRequest, LabelsView, LiftRequest, LineView,
    NewCluster, NewJoinToken, OtherWay, PauseRequest, ScopeOptions,
};
pub use doctor::{Component, Diagnosis, DiagnosisAnswer, Verdict};
pub use engine::{
    BundleOrigin, BundleView, EngineKind, EngineRequest, EngineView, RegistryRequest, RegistryView,
};
pub use githost::{
    AcceptHostKey, DropHostKey, GitHostCluster, GitHostView, HostKeyView, HostKeysReport,
    MAX_HOST_KEY, MAX_HOST_KEYS, OfferedKey, RotateHostKey, ShownKey,
};
pub use heal::{CommitView, HealCloseRequest, HealView, HubWrite, StoryLine, Took};
pub use keys::{
    DeployKeyRequest, IdentityRequest, RecoverRequest, Revocation, RevokeRequest, RotateRequest,
    RotateWish,
};
pub use line::{LineClass, LineDetail};
pub use login::{DeviceLogin, EndSession, LoginCode, SessionAnswer, TokenRequest};
pub use signer::{DropSigner, NewSigner, SignerRef, SignerView, SignersView};
pub use told::{
    ToldAdoption, ToldBundle, ToldCluster, ToldCondition, ToldGitHost, ToldGitHostCluster,
    ToldGitRoute, ToldHeal, ToldHealRecord, ToldStep,
};
pub use unknown::{AcceptRequest, Acceptance, UnknownAgentView};

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
    #[serde(default, deserialize_with = "report::known_part")]
    pub trust: Option<TrustBundle>,
    /// As in [`Assignment::trust_chain`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trust_chain: Vec<TrustBundle>,
    /// Whether people log in with an identity provider.
    #[serde(default)]
    pub oidc: bool,
}

/// The bytes that the hub signs of a trust bundle. No URL, id or key has white space or control characters in it.
pub fn trust_input(hub_id: &str, bundle: &TrustBundle) -> String {
    let mut text = format!("linesman/trust/v1\n{hub_id}\n{}\n", bundle.version);
    for url in &bundle.urls {
        text.push_str("url ");
        text.push_str(url);
        text.push('\n');
    }
    for HubKey {
        kid,
        key,
        not_after,
    } in &bundle.keyset
    {
        let end = not_after.map_or_else(|| "-".to_owned(), |end| end.to_string());
        text.extend(["key ", kid, " ", key, " ", &end, "\n"]);
    }
    text.push_str("ca\n");
    text.push_str(&bundle.ca);
    text
}

/// CA, URLs and keys of the hub, signed by a key of the set that the agent already holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TrustBundle {
    /// Rises with each change of the other fields.
    pub version: u64,
    /// In the order in which they are dialled.
    pub urls: Vec<String>,
    /// PEM, empty where the certificate is publicly trusted.
    pub ca: String,
    pub keyset: Vec<HubKey>,
    /// base64url, Ed25519 over [`trust_input`].
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
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    #[serde(deserialize_with = "report::texts")]
    pub facts: Facts,
}

/// Among [`AgentBuild::features`]: the hub's keys that it keeps count on a line that is up, as soon as it keeps them.
pub const FOLLOWS_KEYS: &str = "follows-keys";

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentBuild {
    pub version: String,
    pub image: String,
    pub arch: String,
    #[serde(default)]
    pub features: Vec<String>,
}

/// `POST /v1/clusters/{name}/reports`. Every part is optional; each report says what changed. Of an agent of a later build, steps,
/// conditions and heals with words that are not known are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Report {
    pub agent: AgentBuild,
    /// The whole set, replacing the one before; absent = unchanged.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "report::texts_if_any"
    )]
    pub facts: Option<Facts>,
    #[serde(deserialize_with = "report::known")]
    pub steps: Vec<StepReport>,
    /// The whole set of conditions; absent = unchanged.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "report::known_if_any"
    )]
    pub conditions: Option<Vec<Condition>>,
    /// In the order in which they happened. The hub stores each id once.
    #[serde(deserialize_with = "report::known")]
    pub heals: Vec<HealRecord>,
    /// Ids of all heals that the agent will still tell the end of; others of its cluster that are open at the hub are over.
    /// Absent = it does not know them all yet, or nothing changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_heals: Option<Vec<String>>,
    /// The root revision that the engine last applied, `main@sha1:…`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The Git host's keys; absent = unchanged.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "report::known_part"
    )]
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

/// A page of a list; `cursor` is absent on the last one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Page<T> {
    pub items: Vec<T>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
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

/// `GET /v1/catalog/ssh-keys`: a key of somebody's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SshKeyView {
    pub id: String,
    pub user: String,
    /// `SHA256:…`
    pub fingerprint: String,
    pub title: String,
    /// RFC 3339.
    pub created_at: String,
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
    #[serde(flatten, deserialize_with = "report::texts")]
    pub more: BTreeMap<String, String>,
}

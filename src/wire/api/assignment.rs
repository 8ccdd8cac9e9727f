//! What the hub tells a cluster to be: its catalog, its engine, its rules, its orders.

use serde::{Deserialize, Serialize};

use super::super::id::{ClusterName, Digest};
use super::engine::{EngineKind, five_minutes};
use super::keys::RotateWish;
use super::{HubKey, SignerRef, TrustBundle};

/// The answer to a join, `GET /v1/clusters/{name}/assignment` ever after: all that a cluster is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Assignment {
    pub cluster: ClusterRef,
    pub hub: HubRef,
    /// What makes `hub` believed; absent = the hub signs nothing of itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust: Option<TrustBundle>,
    /// The sets with which the hub's key changed, oldest first, each signed by a key of the one before: from what an agent
    /// trusts to what signed `trust`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trust_chain: Vec<TrustBundle>,
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
    /// The number of that wish: it rises whenever the image is another one, or none.
    #[serde(default, skip_serializing_if = "is_unnumbered")]
    pub agent_image_wish: u64,
    /// Rises with each change of this record.
    pub revision: u64,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_unnumbered(wish: &u64) -> bool {
    *wish == 0
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

impl Via {
    /// As it is on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Line => "line",
        }
    }
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
    /// The Secret of the engine's namespace that its images are pulled with, beside those that the bundle names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull_secret: Option<String>,
    /// Seconds in which the engine has to work after a change, or what was before comes back.
    #[serde(default = "five_minutes")]
    pub within: u32,
    /// Rises with each wish of an operator for another engine version or registry: one that failed is tried again when
    /// it is wished again.
    #[serde(default)]
    pub change: u64,
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
    /// RFC 3339; what was held back from Git by then is given back once, whatever its commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lift_before: Option<String>,
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
            lift_before: None,
        }
    }
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
    /// Users and groups that grants give on this cluster, the first ones where a line has not room for all, without the `linesman:`
    /// prefix. Where an agent has not room for all users, it takes the first ones, too.
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

//! Git hosts and the keys that they show.

use serde::{Deserialize, Serialize};

use super::super::id::ClusterName;
use super::{GitRoute, GitRouteView, Via};

/// The longest host key that is reported and kept: `type base64`, an RSA key of 16,384 bits included.
pub const MAX_HOST_KEY: usize = 4096;
/// Keys of one Git host, old ones included.
pub const MAX_HOST_KEYS: usize = 16;

/// A part of [`super::Report`]: the Git host's keys as the cluster has and meets them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HostKeysReport {
    /// Fingerprints (`SHA256:…`) of the keys that the engine was given and has now.
    pub trusted: Vec<String>,
    /// What the host showed the agent's own probe last; absent = it got no host key yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shown: Option<ShownKey>,
}

/// The key of a Git host at a probe. A key that is not known was offered no credential.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ShownKey {
    /// `type base64`, at most [`MAX_HOST_KEY`] bytes.
    pub key: String,
    pub fingerprint: String,
    /// Whether the cluster was told that the host may show it.
    pub known: bool,
    /// RFC 3339, by the agent's clock: since when it shows this one.
    pub since: String,
}

/// `GET /v1/githosts/{name}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GitHostView<R = GitRoute, V = Via> {
    pub name: String,
    /// `builtin`: served by the hub itself.
    pub kind: String,
    pub url: String,
    /// As clusters are told, one un-hashed line a key.
    pub known_hosts: String,
    pub keys: Vec<HostKeyView>,
    /// Keys that the host shows and clusters do not know; accept one by its fingerprint.
    pub offered: Vec<OfferedKey>,
    /// The clusters that the rotation of the hub's own key waits for now, at most 500.
    #[serde(default)]
    pub waits_for: Vec<ClusterName>,
    /// At most 500, those that meet another key first.
    pub clusters: Vec<GitHostCluster<R, V>>,
    pub clusters_total: u64,
}

/// One key that the clusters are told of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostKeyView {
    /// `ssh-ed25519` and so on.
    #[serde(rename = "type")]
    pub kind: String,
    pub fingerprint: String,
    /// `type base64`
    pub key: String,
    /// `current`; `next`: the hub will show it when clusters know it; `old`: replaced, and still told until it is dropped.
    pub state: String,
    /// The hub's built-in Git server shows this one.
    pub served: bool,
    /// `hub`, `cluster NAME` or `file`.
    pub source: String,
    pub added_by: String,
    /// RFC 3339.
    pub added_at: String,
}

/// A key that was met and is not trusted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OfferedKey {
    #[serde(rename = "type")]
    pub kind: String,
    pub fingerprint: String,
    pub key: String,
    /// `hub` (its own server's key), or the clusters that met it.
    pub seen_by: Vec<String>,
    /// RFC 3339: since when, as far as is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
}

/// A cluster that follows a catalog on the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GitHostCluster<R = GitRoute, V = Via> {
    pub name: ClusterName,
    pub git: GitRouteView<R, V>,
    /// Fingerprints of the keys that its engine has.
    pub trusted: Vec<String>,
    /// The fingerprint of the key that the host showed its agent last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<String>,
    /// The host shows it another key than it knows.
    pub mismatch: bool,
    /// RFC 3339: when the cluster said so last; absent = never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported_at: Option<String>,
}

/// `POST /v1/githosts/{name}/host-keys`: trust a key that was offered, or those of a known_hosts file. Exactly one is
/// given. Repeatable.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AcceptHostKey {
    /// `SHA256:…` of a key that a cluster met, or that the hub's own server shows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// The content of a known_hosts file; of its lines, those that speak of the host count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub known_hosts: Option<String>,
    /// Drop all other keys at once, instead of telling them as old ones beside it.
    pub replace: bool,
}

/// `POST /v1/githosts/{name}/host-keys/drop`: tell this key no longer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DropHostKey {
    pub fingerprint: String,
}

/// `POST /v1/githosts/{name}/rotate-host-key`: let the hub's own Git server show another key, without a fetch that fails.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RotateHostKey {
    /// Show the next key now, whoever knows it.
    pub now: bool,
}

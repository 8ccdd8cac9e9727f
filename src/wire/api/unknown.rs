//! Agents that sign well by keys that the hub does not know.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::super::id::{ClusterName, Digest};
use super::EngineKind;

/// `GET /v1/unknown-agents`: one of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnknownAgentView {
    pub fingerprint: String,
    /// The name that it claims.
    pub cluster: ClusterName,
    /// The slug of the problem that it was refused with.
    pub reason: String,
    pub address: String,
    /// UID of its namespace `kube-system`, where it said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<String>,
    /// RFC 3339.
    pub first_seen: String,
    pub last_seen: String,
}

/// `POST /v1/unknown-agents/accept`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AcceptRequest {
    pub fingerprint: String,
    /// Why, one line.
    pub reason: String,
    /// Another identity that the cluster has ends; where it is in another place than on record, the deploy key too.
    pub replace: bool,
    /// Of a cluster that the hub has no record of; absent = Flux.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<EngineKind>,
    /// Absent = the newest imported bundle of the engine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bundle: Option<Digest>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Acceptance {
    pub cluster: ClusterName,
    /// The hub had no record of the cluster.
    pub created: bool,
    /// It had been let in before: nothing was changed.
    pub already: bool,
    /// The fingerprints of the cluster's keys that ended.
    pub ended: Vec<String>,
    /// Whether the catalog has the cluster's directory.
    pub catalog: bool,
}

//! The story of a heal.

use serde::{Deserialize, Serialize};

use super::super::id::ClusterName;
use super::super::report::{HealRecord, HealResult};

/// `GET /v1/heals`: one heal with the cluster it happened in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HealView<R = HealResult> {
    pub cluster: ClusterName,
    #[serde(flatten)]
    pub heal: HealRecord<R>,
    #[serde(default)]
    pub took: Took,
    /// The commit that brought the bad version, where the hub's catalog has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<CommitView>,
    /// Who wrote to its object through the hub from two minutes before the fault on, the oldest first; of `GET /v1/heals/{id}` only, and
    /// absent for who may not read the audit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub through_hub: Option<Vec<HubWrite>>,
    /// What happened, in order; of `GET /v1/heals/{id}` only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub story: Vec<StoryLine>,
}

/// `POST /v1/heals/{id}/close`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HealCloseRequest {
    /// At most 200 characters in one line.
    pub reason: String,
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

/// A request that the hub carried, and that its cluster did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HubWrite {
    /// RFC 3339: when it was answered.
    pub at: String,
    /// As the audit has it: `user:ada`.
    pub actor: String,
    /// `kube.patch` …
    pub action: String,
    /// The request's path.
    pub target: String,
    pub request_id: String,
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

//! What the hub tells of one cluster's line.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// `GET /v1/clusters/{name}/line`: the line as this hub sees it now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LineDetail {
    pub up: bool,
    /// No new streams: agent or hub is leaving.
    pub draining: bool,
    /// Id of the hub that holds the line.
    #[serde(default)]
    pub replica: String,
    /// Number of the newest line.
    pub epoch: u64,
    /// RFC 3339: since when it is up or down; absent = this hub knows of none.
    pub since: Option<String>,
    pub remote: Option<String>,
    /// UUID of the agent's process.
    pub instance: Option<String>,
    /// The age at which something between agent and hub ends lines; the agent renews them before it. Absent = none is known.
    #[serde(default)]
    pub cap_seconds: Option<u64>,
    pub rtt_micros: Option<u64>,
    /// Streams that are open, by kind.
    pub streams: BTreeMap<String, u64>,
    /// Streams ever opened on this line.
    pub opened: u64,
    /// What the hub sent and received by the scheduler's class: `sparse`, `bulk`, `background`.
    #[serde(default)]
    pub classes: BTreeMap<String, LineClass>,
    /// Bytes of frames, from the hub's side.
    pub sent: u64,
    pub received: u64,
    /// Bytes that arrived and were not read yet.
    pub unread: u64,
    /// How often a writer of the hub met a window without credit.
    pub credit_stalls: u64,
    /// Requests that wait for the next line.
    pub parked: u64,
    /// Kubernetes requests that were refused since the hub began, by rule; `agent:` stands before the agent's own.
    #[serde(default)]
    pub denied: BTreeMap<String, u64>,
    /// Why a line of the cluster ended last; absent = that was at another replica, or before this hub began.
    pub last_cause: Option<String>,
}

/// What the hub sent and received on a line in one class of its scheduler.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LineClass {
    /// Bytes of streams, since the line began.
    pub sent: u64,
    /// The same of what arrived; a hub of an earlier version says 0.
    #[serde(default)]
    pub received: u64,
    /// How long a stream with something to send waited for its turn, smoothed over the last turns; absent = none had one.
    pub queue_micros: Option<u64>,
}

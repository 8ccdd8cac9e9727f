//! The audit chain: its rows, what is asked of them, and the signatures under it.

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
    /// Of a session in a container, as far as its query says so: where, and what was run.
    pub container: Option<String>,
    pub command: Option<String>,
    /// Of a port-forward, as far as its query says so.
    pub ports: Option<String>,
    pub request_id: String,
    /// `allow` or `deny`.
    pub verdict: String,
    pub reason: Option<String>,
    /// Of a close: the `seq` of its open. Of an open that retention carried on: the `seq` that it began with.
    pub opened: Option<i64>,
    /// Of a close, and of a refusal: that of the answer.
    pub code: Option<u16>,
    /// Of a session's close: with which code its command ended, where the API server said so.
    pub exit: Option<i32>,
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
    /// One of `open`, `close` and `event`; none = all.
    pub stages: Vec<String>,
    /// One of these; none = all.
    pub actions: Vec<OfAction>,
    /// Kubernetes requests in this namespace of a cluster, by their paths.
    pub namespace: Option<String>,
    pub request: Option<OfRequest>,
    /// Unix milliseconds: from the first on, up to but not with the second.
    pub since: Option<i64>,
    pub until: Option<i64>,
    /// The newest ones, in falling order; else the oldest, in rising order.
    pub newest: bool,
    pub limit: u32,
}

/// An action that is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OfAction {
    /// `kube.exec`
    Only(String),
    /// All that begin so: `kube.`
    Below(String),
}

/// The records of one request. No index knows them, which every request would have to be written into: where they begin is
/// found by the index of times, for a request's id has the time of its making.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfRequest {
    pub id: String,
    /// Unix milliseconds: no record of it is older.
    pub from: i64,
}

/// The reason of a request that was to change nothing: of what was let through, as its query says.
pub const DRY_RUN: &str = "asked for as a dry run";

/// Requests that wrote to something in a cluster, and that it did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditWrites {
    pub cluster: String,
    /// What they wrote to is called so, or was deleted with all of its kind.
    pub name: String,
    /// Unix milliseconds: from the first on, up to but not with the second.
    pub since: i64,
    pub until: i64,
}

/// Records that a page looks at, at most, where what it is asked for is not found by an index alone.
pub const LOOKED_AT: i64 = 50_000;

/// What a query found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditPage {
    pub rows: Vec<AuditRow>,
    /// The last record that was looked at, where fewer were found than asked for and there are others behind it, in the order of
    /// the query. None = the rows say where to go on; fewer than asked for are the last ones.
    pub looked: Option<i64>,
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

/// What a step of pruning did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pruned {
    pub removed: u64,
    /// Opens of requests that still run, written again at the chain's end.
    pub carried: Vec<AuditRow>,
}

#[cfg(test)]
impl AuditRow {
    /// What happened at that time, chained to nothing yet.
    pub(crate) fn event(at: i64) -> Self {
        Self {
            seq: 0,
            at,
            stage: "event".to_owned(),
            actor: "user:ada".to_owned(),
            action: "grant.add".to_owned(),
            acted_as: None,
            cluster: None,
            target: String::new(),
            container: None,
            command: None,
            ports: None,
            request_id: String::new(),
            verdict: "allow".to_owned(),
            reason: None,
            opened: None,
            code: None,
            exit: None,
            bytes: None,
            millis: None,
            remote: String::new(),
            prev: [0; 32],
            hash: [0; 32],
        }
    }
}

//! The hub's routes about the audit.

use std::time::Duration;

use super::{Client, Error};
use crate::wire::api::{AnchorView, AuditView, Page};
use crate::wire::id::ClusterName;

/// Records in one answer; the hub gives no more.
const PAGE: usize = 500;

/// Which records; what is None does not narrow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// A user's name, or an actor: `user:…`, `agent:…`, `hub`, `anyone`.
    pub user: Option<String>,
    pub cluster: Option<ClusterName>,
    /// `allow` or `deny`.
    pub verdict: Option<String>,
    /// One of these, `open`, `close` or `event`; none = all.
    pub stages: Vec<String>,
    /// One of these, `kube.exec` or `kube.*`; none = all.
    pub actions: Vec<String>,
    /// Of Kubernetes requests.
    pub namespace: Option<String>,
    /// A request's id.
    pub request: Option<String>,
    /// RFC 3339.
    pub since: Option<String>,
    pub until: Option<String>,
}

/// Up to where records were read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditPlace {
    /// A record's number.
    After(i64),
    /// The hub's word for it: where a filter lets few records through, it is behind the last one of these.
    Cursor(String),
}

impl AuditPlace {
    fn query(&self) -> (&'static str, String) {
        match self {
            Self::After(seq) => ("after", seq.to_string()),
            Self::Cursor(cursor) => ("cursor", cursor.clone()),
        }
    }
}

impl AuditFilter {
    fn query(&self) -> Vec<(&'static str, String)> {
        let joined = |words: &[String]| (!words.is_empty()).then(|| words.join(","));
        [
            ("user", self.user.clone()),
            ("cluster", self.cluster.as_ref().map(ToString::to_string)),
            ("verdict", self.verdict.clone()),
            ("stage", joined(&self.stages)),
            ("action", joined(&self.actions)),
            ("namespace", self.namespace.clone()),
            ("request", self.request.clone()),
            ("since", self.since.clone()),
            ("until", self.until.clone()),
        ]
        .into_iter()
        .filter_map(|(key, value)| Some((key, value?)))
        .collect()
    }
}

impl Client {
    /// The newest `limit` records, the newest first.
    pub async fn audit(&self, filter: &AuditFilter, limit: usize) -> Result<Vec<AuditView>, Error> {
        self.list(
            "list audit records",
            &["v1", "audit"],
            &filter.query(),
            limit,
        )
        .await
    }

    /// All records behind a place, page by page: the next ones, in order, and the place behind them; None = that was the end.
    pub async fn audit_page(
        &self,
        filter: &AuditFilter,
        place: &AuditPlace,
    ) -> Result<(Vec<AuditView>, Option<AuditPlace>), Error> {
        let mut query = filter.query();
        query.push(place.query());
        query.push(("limit", PAGE.to_string()));
        let page: Page<AuditView> = self.get("read the audit", &["v1", "audit"], &query).await?;
        let next = page.cursor.map(AuditPlace::Cursor);
        Ok((page.items, next.filter(|next| next != place)))
    }

    /// The next records behind a place, in order, and the place behind them; waits that long for one where there is none yet.
    pub async fn audit_after(
        &self,
        filter: &AuditFilter,
        place: &AuditPlace,
        wait: Duration,
    ) -> Result<(Vec<AuditView>, AuditPlace), Error> {
        let mut query = filter.query();
        query.push(place.query());
        query.push(("limit", PAGE.to_string()));
        query.push(("wait", wait.as_secs().to_string()));
        let page: Page<AuditView> = self.get("read the audit", &["v1", "audit"], &query).await?;
        let last = page
            .items
            .last()
            .map(|record| AuditPlace::After(record.seq));
        let next = page.cursor.map(AuditPlace::Cursor).or(last);
        Ok((page.items, next.unwrap_or_else(|| place.clone())))
    }

    /// The chain as it is stored, at most `limit` lines behind `after`; none only at its end.
    pub async fn audit_lines(&self, after: i64, limit: u32) -> Result<Vec<u8>, Error> {
        let query = [("after", after.to_string()), ("limit", limit.to_string())];
        let path = ["v1", "audit", "chain"];
        self.get_bytes("read the audit", &path, &query).await
    }

    /// The number of the last record that retention removed; None = it removed none.
    pub async fn audit_removed(&self) -> Result<Option<i64>, Error> {
        // Where records were removed, the signature of that is the first one.
        let path = ["v1", "audit", "anchors"];
        let first: Vec<AnchorView> = self.list("read the audit's anchors", &path, &[], 1).await?;
        let start = first.into_iter().find(|anchor| anchor.start);
        Ok(start.map(|anchor| anchor.seq))
    }

    /// The hub's signatures under the chain, in the order of their records.
    pub async fn audit_anchors(&self) -> Result<Vec<AnchorView>, Error> {
        let path = ["v1", "audit", "anchors"];
        self.list("read the audit's anchors", &path, &[], usize::MAX)
            .await
    }
}

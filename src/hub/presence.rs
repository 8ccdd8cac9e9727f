//! When each cluster was heard last: kept in memory, flushed to the store in batches.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use time::OffsetDateTime;

/// What this process has heard since its start.
#[derive(Default)]
pub struct Presence {
    clusters: Mutex<BTreeMap<String, Heard>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Heard {
    at: OffsetDateTime,
    /// By a call that did not come over the line.
    https: Option<OffsetDateTime>,
    dirty: bool,
}

impl Presence {
    /// Notes a sign of life of the cluster with this id.
    pub fn heard(&self, cluster_id: &str, now: OffsetDateTime, over_line: bool) {
        let mut clusters = self.clusters.lock().unwrap_or_else(PoisonError::into_inner);
        let heard = clusters.entry(cluster_id.to_owned()).or_insert(Heard {
            at: now,
            https: None,
            dirty: true,
        });
        heard.at = now;
        heard.dirty = true;
        if !over_line {
            heard.https = Some(now);
        }
    }

    /// Last sign of life, and the last one beside the line.
    pub fn last(&self, cluster_id: &str) -> (Option<OffsetDateTime>, Option<OffsetDateTime>) {
        let clusters = self.clusters.lock().unwrap_or_else(PoisonError::into_inner);
        clusters
            .get(cluster_id)
            .map_or((None, None), |h| (Some(h.at), h.https))
    }

    pub fn forget(&self, cluster_id: &str) {
        let mut clusters = self.clusters.lock().unwrap_or_else(PoisonError::into_inner);
        clusters.remove(cluster_id);
    }

    /// What was heard since the last call.
    pub fn take(&self) -> Vec<(String, OffsetDateTime)> {
        let mut clusters = self.clusters.lock().unwrap_or_else(PoisonError::into_inner);
        clusters
            .iter_mut()
            .filter_map(|(id, h)| std::mem::take(&mut h.dirty).then(|| (id.clone(), h.at)))
            .collect()
    }
}

//! Lines that newer ones took over: handed to the one who judges it, and counted.

use std::sync::PoisonError;

use time::OffsetDateTime;
use tokio::sync::mpsc;

use super::Tunnels;
use crate::hub::twin::takeovers::{Holder, Takeover, Takeovers};
use crate::tunnel::Line;
use crate::wire::id::ClusterName;

/// A line that had to give way to a newer one while it was up. It was asked for a sign of life.
#[derive(Debug)]
pub struct Fenced {
    pub cluster: ClusterName,
    pub cluster_id: String,
    pub line: Line,
    /// Who has the newer one; None = that is at another replica, and may be the same process.
    pub by: Option<Holder>,
    pub at: OffsetDateTime,
}

impl Tunnels {
    /// The lines that are taken over from here on, for the one who judges them.
    pub(in crate::hub) fn fenced(&self) -> Option<mpsc::Receiver<Fenced>> {
        let mut judged = self.judged.lock().unwrap_or_else(PoisonError::into_inner);
        judged.take()
    }

    pub(super) fn fence(&self, fenced: Fenced) {
        if let Err(error) = self.fenced.try_send(fenced) {
            let cluster = error.into_inner().cluster;
            tracing::warn!(%cluster, "a takeover is not judged: too many at once");
        }
    }

    /// Counts a takeover of the cluster's line; gives the last ones.
    pub(in crate::hub) fn taken(
        &self,
        (cluster, cluster_id): (&ClusterName, &str),
        takeover: Takeover,
    ) -> Takeovers {
        let mut clusters = self.lock();
        let entry = clusters.get_mut(cluster);
        // Of one that was removed meanwhile none is kept.
        let mut removed = Takeovers::default();
        let takeovers = entry
            .filter(|entry| entry.cluster_id == cluster_id)
            .map_or(&mut removed, |entry| &mut entry.takeovers);
        takeovers.add(takeover);
        takeovers.clone()
    }
}

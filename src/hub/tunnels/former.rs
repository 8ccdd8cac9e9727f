//! Clusters that were removed: their lines end, and nothing stays known of them. Their names are free, and whoever is called so
//! next begins without a past.

use super::{Entry, Tunnels};
use crate::tunnel::Line;
use crate::wire::frame::Code;
use crate::wire::id::ClusterName;

const REMOVED: &str = "the cluster was removed";

impl Tunnels {
    /// The names of which something is known here, each with the id of the cluster that had a line; empty = none had.
    pub(in crate::hub) fn known(&self) -> Vec<(ClusterName, String)> {
        let clusters = self.lock();
        let known = clusters.iter();
        known
            .map(|(name, entry)| (name.clone(), entry.cluster_id.clone()))
            .collect()
    }

    /// Ends the lines of a cluster that was removed; what is known of it goes, with the last of them where there is one. Another
    /// one that has the name by now keeps its own.
    pub(in crate::hub) fn end_removed(&self, cluster: &ClusterName, cluster_id: &str) {
        let of_it = |entry: &&Entry| entry.cluster_id == cluster_id;
        let lines = self
            .lock()
            .get(cluster)
            .filter(of_it)
            .map(|entry| entry.lines.clone())
            .unwrap_or_default();
        close(lines);
        self.forget(cluster, cluster_id);
    }

    /// Nothing is known any more of a cluster that was removed, once it has no line. Requests that wait for one go.
    pub(in crate::hub) fn forget(&self, cluster: &ClusterName, cluster_id: &str) {
        let mut clusters = self.lock();
        let Some(entry) = clusters.get_mut(cluster) else {
            return;
        };
        // One that had no line here is known by its name alone.
        let another = !entry.cluster_id.is_empty() && entry.cluster_id != cluster_id;
        if another || !entry.lines.is_empty() {
            return;
        }
        *entry = entry.anew();
        entry.moved();
        if entry.parked == 0 {
            clusters.remove(cluster);
        }
        drop(clusters);
        self.moved();
    }
}

impl Entry {
    /// Whose line comes has nothing of another that had the name; gives the lines that such a one still has.
    pub(super) fn claim(&mut self, cluster_id: &str) -> Vec<Line> {
        if self.cluster_id == cluster_id {
            return Vec::new();
        }
        let of_another = !self.cluster_id.is_empty();
        let former = of_another.then(|| {
            let anew = self.anew();
            std::mem::replace(self, anew).lines
        });
        cluster_id.clone_into(&mut self.cluster_id);
        former.unwrap_or_default()
    }

    /// Nothing is known, but who waits has its place.
    fn anew(&self) -> Self {
        Self {
            parked: self.parked,
            look: self.look.clone(),
            ..Self::default()
        }
    }

    /// Whether it was forgotten while requests waited, of which none is left.
    pub(super) fn is_left(&self) -> bool {
        self.parked == 0
            && self.cluster_id.is_empty()
            && self.lines.is_empty()
            && self.elsewhere.is_none()
            && self.heard.is_none()
    }
}

pub(super) fn close(lines: Vec<Line>) {
    for line in lines {
        line.close(Code::Revoked, REMOVED);
    }
}

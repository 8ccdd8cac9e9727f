//! What replicas know of one another's lines: those that were seen elsewhere, and what is told of those here.

use time::OffsetDateTime;

use super::park::PARK_AFTER;
use super::{Entry, Fenced, MOVE, Tunnels};
use crate::clock;
use crate::hub::store::LineRow;
use crate::tunnel::Line;
use crate::wire::frame::Code;
use crate::wire::id::ClusterName;

impl Tunnels {
    /// The cluster's line was seen at another replica: older ones here give way.
    pub(in crate::hub) fn seen_elsewhere(
        &self,
        cluster: &ClusterName,
        epoch: u64,
        at: OffsetDateTime,
    ) {
        let mut clusters = self.lock();
        let entry = clusters.entry(cluster.clone()).or_default();
        entry.seen_elsewhere(epoch, at);
        drop(clusters);
        self.superseded(cluster, epoch.saturating_sub(1));
    }

    /// The records had these lines at other replicas then. Of a cluster that never had a line here nothing is noted.
    pub(in crate::hub) fn known_elsewhere<'a>(
        &self,
        lines: impl Iterator<Item = (&'a ClusterName, u64)>,
        at: OffsetDateTime,
    ) {
        let mut clusters = self.lock();
        for (cluster, epoch) in lines {
            if let Some(entry) = clusters.get_mut(cluster) {
                entry.seen_elsewhere(epoch, at);
            }
        }
    }

    /// The cluster was heard then, be it by another replica or by the hub before this one: its line may come back to this one.
    pub(in crate::hub) fn heard_elsewhere(&self, cluster: &ClusterName, at: OffsetDateTime) {
        if clock::now() - at >= PARK_AFTER {
            return;
        }
        let mut clusters = self.lock();
        let entry = clusters.entry(cluster.clone()).or_default();
        entry.heard = entry.heard.max(Some(at));
    }

    /// Newer lines than that of this epoch are at another replica: those here up to it take no more streams.
    pub fn superseded(&self, cluster: &ClusterName, epoch: u64) {
        let (now, clusters) = (clock::now(), self.lock());
        let Some(entry) = clusters.get(cluster) else {
            return;
        };
        let (cluster_id, lines) = (entry.cluster_id.clone(), entry.lines.clone());
        let wait = entry.takeovers.wait(now);
        drop(clusters);
        let lines = lines.into_iter();
        for line in lines.filter(|line| line.facts().epoch <= epoch && line.takes_streams()) {
            let text = "a newer line is at another replica";
            line.ask();
            line.goaway(Code::Superseded, wait, MOVE, text);
            self.fence(Fenced {
                cluster: cluster.clone(),
                cluster_id: cluster_id.clone(),
                line,
                by: None,
                at: now,
            });
        }
    }

    /// The newest line of each cluster here, as other replicas are told of it.
    pub fn held(&self, replica: &str) -> Vec<LineRow> {
        let clusters = self.lock();
        let newest = |entry: &Entry| Some((entry.cluster_id.clone(), entry.lines.last()?.clone()));
        let held: Vec<(String, Line)> = clusters.values().filter_map(newest).collect();
        drop(clusters);
        let held = held.into_iter().filter(|(_, line)| line.takes_streams());
        held.map(|(cluster_id, line)| row(replica, cluster_id, &line))
            .collect()
    }
}

impl Entry {
    fn seen_elsewhere(&mut self, epoch: u64, at: OffsetDateTime) {
        let newest = self.elsewhere.map_or(0, |(newest, _)| newest);
        if newest < epoch {
            self.in_vain = false;
        }
        self.elsewhere = Some((newest.max(epoch), at));
    }
}

/// What other replicas are told of a line.
pub(in crate::hub) fn row(replica: &str, cluster_id: String, line: &Line) -> LineRow {
    let facts = line.facts();
    LineRow {
        cluster_id,
        replica: replica.to_owned(),
        epoch: facts.epoch,
        session: facts.session,
        instance: facts.instance,
        remote: facts.remote,
        since: facts.since,
        hub_clock: line.hub_now(),
    }
}

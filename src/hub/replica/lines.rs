//! Lines of other replicas, as views of clusters show them.

use std::collections::BTreeMap;

use crate::clock;
use crate::hub::Hub;
use crate::hub::store::{Located, StoreError};
use crate::hub::tunnels::LineView;
use crate::tunnel::LineFacts;
use crate::wire::id::ClusterName;

/// Up to which epoch lines of a cluster were counted, of which other replicas may have had some; None = this is the only one.
pub fn counted(hub: &Hub, epoch: u64) -> Option<u64> {
    hub.replica.as_ref().map(|_| epoch)
}

/// The lines that other replicas have.
#[derive(Debug, Default)]
pub struct Elsewhere(BTreeMap<ClusterName, Located>);

impl Elsewhere {
    /// Of all clusters.
    pub async fn all(hub: &Hub) -> Result<Self, StoreError> {
        let Some(own) = &hub.replica else {
            return Ok(Self::default());
        };
        let lines = hub.store.lines().await?.into_iter();
        let others = lines.filter(|(_, located)| located.peer.id != own.record.id);
        Ok(Self(others.collect()).noted(hub))
    }

    /// Of one cluster.
    pub async fn of(hub: &Hub, cluster: &ClusterName) -> Result<Self, StoreError> {
        let Some(own) = &hub.replica else {
            return Ok(Self::default());
        };
        let located = hub.store.line_of(cluster).await?;
        let other = located.filter(|located| located.peer.id != own.record.id);
        let others = Self(
            other
                .map(|located| (cluster.clone(), located))
                .into_iter()
                .collect(),
        );
        Ok(others.noted(hub))
    }

    /// Has them known beside what is here, so that their end is told with its time.
    fn noted(self, hub: &Hub) -> Self {
        let lines = self.0.iter();
        let lines = lines.map(|(cluster, located)| (cluster, located.line.epoch));
        hub.tunnels.known_elsewhere(lines, clock::now());
        self
    }

    /// The cluster's line at another replica.
    pub fn at(&self, cluster: &ClusterName) -> Option<&Located> {
        self.0.get(cluster)
    }

    /// What is known of the cluster's line, given what is known here: the newest counts. What only the replica knows that has
    /// it, such as its load, is left out.
    pub fn view(&self, cluster: &ClusterName, here: LineView) -> LineView {
        let epoch = here.up.as_ref().map(|facts| facts.epoch);
        let Some(other) = self.at(cluster).filter(|o| epoch < Some(o.line.epoch)) else {
            return here;
        };
        let line = &other.line;
        LineView {
            up: Some(LineFacts {
                epoch: line.epoch,
                session: line.session.clone(),
                remote: line.remote.clone(),
                instance: line.instance.clone(),
                since: line.since,
                cap: None,
                rtt: None,
                live: 0,
                opened: 0,
                draining: false,
                sent: 0,
                received: 0,
            }),
            ..here
        }
    }
}

//! Lines of other replicas, as views of clusters show them.

use std::collections::BTreeMap;

use crate::hub::Hub;
use crate::hub::store::{Located, StoreError};
use crate::hub::tunnels::LineView;
use crate::tunnel::LineFacts;
use crate::wire::id::ClusterName;

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
        Ok(Self(others.collect()))
    }

    /// Of one cluster.
    pub async fn of(hub: &Hub, cluster: &ClusterName) -> Result<Self, StoreError> {
        let Some(own) = &hub.replica else {
            return Ok(Self::default());
        };
        let located = hub.store.line_of(cluster).await?;
        let other = located.filter(|located| located.peer.id != own.record.id);
        Ok(Self(
            other
                .map(|located| (cluster.clone(), located))
                .into_iter()
                .collect(),
        ))
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

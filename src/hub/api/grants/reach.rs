//! What a token for some clusters is shown of grants: nothing that says of other clusters.

use std::collections::BTreeMap;

use time::OffsetDateTime;

use crate::hub::Hub;
use crate::hub::access::{Clusters, Grant};
use crate::hub::api::Caller;
use crate::hub::store::StoreError;
use crate::wire::id::ClusterName;

type Labels = BTreeMap<String, String>;

/// The clusters that the token is for, with the labels of those that there are; None = it is for all.
pub(super) struct Reach(Option<BTreeMap<ClusterName, Option<Labels>>>);

impl Reach {
    pub(super) async fn of(hub: &Hub, caller: &Caller) -> Result<Self, StoreError> {
        let Some(names) = &caller.user.clusters else {
            return Ok(Self(None));
        };
        let mut own = BTreeMap::new();
        for name in names {
            let cluster = hub.lookups.cluster(name).await?;
            own.insert(name.clone(), cluster.map(|cluster| cluster.labels.clone()));
        }
        Ok(Self(Some(own)))
    }

    /// A grant as far as it is for these clusters; None = it is for others.
    pub(super) fn shown(&self, grant: Grant, now: OffsetDateTime) -> Option<Grant> {
        let Some(own) = &self.0 else {
            return Some(grant);
        };
        let over = grant.is_over(now);
        let clusters = match grant.clusters {
            Clusters::All => Clusters::All,
            Clusters::Named(mut names) => {
                names.retain(|name| own.contains_key(name));
                if names.is_empty() {
                    return None;
                }
                Clusters::Named(names)
            }
            Clusters::Labelled(selector) => {
                let mut labels = own.values().flatten();
                // What labels they have, one that has ended tells nobody any more.
                if over || !labels.any(|labels| selector.matches(labels)) {
                    return None;
                }
                Clusters::Labelled(selector)
            }
        };
        Some(Grant { clusters, ..grant })
    }
}

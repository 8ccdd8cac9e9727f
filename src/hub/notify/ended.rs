//! Heals that have closed, until the next look tells of them.

use std::sync::{Mutex, PoisonError};

use crate::wire::id::ClusterName;
use crate::wire::report::HealRecord;

/// Heals that closed since the last look, of all clusters and of one.
const MAX_ENDED: usize = 1_000;
const MAX_ENDED_OF_ONE: usize = 100;

/// Heals that have closed, for the next look.
#[derive(Debug, Default)]
pub struct Ended {
    heals: Mutex<Vec<(ClusterName, HealRecord)>>,
}

impl Ended {
    /// What finds no place is in the heals' history, as all are.
    pub fn add(&self, cluster: &ClusterName, heals: &[HealRecord]) {
        if heals.is_empty() {
            return;
        }
        let mut all = self.heals.lock().unwrap_or_else(PoisonError::into_inner);
        let own = all.iter().filter(|(of, _)| of == cluster).count();
        let room = MAX_ENDED.saturating_sub(all.len());
        let room = room.min(MAX_ENDED_OF_ONE.saturating_sub(own));
        let new = heals.iter().take(room);
        all.extend(new.map(|heal| (cluster.clone(), heal.clone())));
        drop(all);
        let untold = heals.len().saturating_sub(room);
        if untold > 0 {
            tracing::warn!(%cluster, untold, "more heals ended since the last look than people are told of; 'heal list' has them");
        }
    }

    pub(super) fn take(&self) -> Vec<(ClusterName, HealRecord)> {
        std::mem::take(&mut self.heals.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What was taken and not told comes first at the next look.
    pub(super) fn put_back(&self, mut heals: Vec<(ClusterName, HealRecord)>) {
        let mut all = self.heals.lock().unwrap_or_else(PoisonError::into_inner);
        let room = MAX_ENDED.saturating_sub(heals.len());
        heals.extend(std::mem::take(&mut *all).into_iter().take(room));
        *all = heals;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heals(ids: std::ops::Range<usize>) -> Vec<HealRecord> {
        let heal = |id| {
            serde_json::json!({"id": format!("h{id}"), "class": "ObjectMissing", "object": "", "evidence": "", "steps": [],
                "detectedAt": "", "result": "healed"})
        };
        ids.map(|id| serde_json::from_value(heal(id)).unwrap())
            .collect()
    }

    fn ids(taken: &[(ClusterName, HealRecord)]) -> Vec<&str> {
        taken.iter().map(|(_, heal)| heal.id.as_str()).collect()
    }

    /// One that makes up ends without end keeps nobody else's from being told.
    #[test]
    fn a_cluster_has_a_share_of_the_heals_that_are_told() {
        let [eu1, us1] = ["eu1", "us1"].map(|name| name.parse::<ClusterName>().unwrap());
        let ended = Ended::default();
        for _ in 0..20 {
            ended.add(&eu1, &heals(0..60));
        }
        ended.add(&us1, &heals(0..2));
        let taken = ended.take();
        let of = |name: &ClusterName| taken.iter().filter(|(of, _)| of == name).count();
        assert_eq!((of(&eu1), of(&us1)), (MAX_ENDED_OF_ONE, 2));
    }

    #[test]
    fn heals_that_could_not_be_told_come_first_again_and_no_more_than_fit() {
        let eu1: ClusterName = "eu1".parse().unwrap();
        let ended = Ended::default();
        ended.add(&eu1, &heals(0..2));
        let taken = ended.take();
        ended.add(&eu1, &heals(2..3));
        ended.put_back(taken);
        let taken = ended.take();
        assert_eq!(ids(&taken), ["h0", "h1", "h2"]);
        for cluster in 0..10 {
            let first = 3 + cluster * MAX_ENDED_OF_ONE;
            let cluster = format!("c{cluster}").parse().unwrap();
            ended.add(&cluster, &heals(first..first + MAX_ENDED_OF_ONE));
        }
        ended.put_back(taken);
        let taken = ended.take();
        assert_eq!((taken.len(), ids(&taken)[3]), (MAX_ENDED, "h3"));
        assert_eq!(ended.take(), []);
    }
}

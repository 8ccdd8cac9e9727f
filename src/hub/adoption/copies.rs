//! The copies of agents in the catalog, kept as they have to be: after another image of the agent, another engine, and whenever
//! the hub itself has another URL, CA or key.
//!
//! Nobody has to tell that something changed. Each look takes what a copy is made of as it is now, and writes only what differs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::copy::{self, CopyError, Done};
use crate::backoff::Schedule;
use crate::clock;
use crate::hub::store::Cluster;
use crate::hub::{Hub, git};
use crate::manifests::copy::DIRECTORY;
use crate::wire::id::ClusterName;

const LOOK: Duration = Duration::from_secs(30);
/// A copy that could not be written is tried again.
const RETRY: Schedule = Schedule {
    floor: Duration::from_secs(30),
    first: Duration::from_mins(1),
    cap: Duration::from_mins(30),
};

/// Why copies are not renewed, by the cluster's id, as this replica last met it.
#[derive(Debug, Default)]
pub struct Troubles(Mutex<BTreeMap<String, String>>);

impl Troubles {
    pub fn of(&self, cluster_id: &str) -> Option<String> {
        self.all().get(cluster_id).cloned()
    }

    fn all(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Copies that could not be renewed: how often in a row, and when the next try is due.
#[derive(Debug, Default)]
pub struct Failed(BTreeMap<String, (u32, Instant)>);

/// Looks until `stop`.
pub async fn run(hub: Arc<Hub>, stop: CancellationToken) -> Result<()> {
    let mut failed = Failed::default();
    let wait = || stop.run_until_cancelled(tokio::time::sleep(LOOK));
    while wait().await.is_some() {
        let look = Box::pin(look(&hub, &mut failed));
        match stop.run_until_cancelled(look).await {
            None => return Ok(()),
            Some(Ok(())) => {}
            Some(Err(error)) => {
                tracing::error!(
                    error = format!("{error:#}"),
                    "look for copies of agents that are old"
                );
            }
        }
    }
    Ok(())
}

/// One look: each copy that the catalog has is as it has to be afterwards, or it is known why not.
pub async fn look(hub: &Hub, failed: &mut Failed) -> Result<()> {
    let catalog = &hub.catalog;
    let names = git::names(&catalog.repo, &catalog.branch, DIRECTORY).await;
    let mut known = BTreeMap::new();
    for name in names.context("list the copies of agents")? {
        let Ok(name) = name.parse::<ClusterName>() else {
            continue;
        };
        let cluster = hub.store.cluster(&name).await.context("read a cluster")?;
        let Some(cluster) = cluster.filter(|c| c.removed_at.is_none()) else {
            continue;
        };
        let before = failed.0.remove(&cluster.id);
        let due = before.is_none_or(|(_, due)| due <= Instant::now());
        let left = if due {
            renewed(hub, &cluster, before.map_or(0, |(times, _)| times)).await
        } else {
            before
        };
        if let Some(left) = left {
            known.insert(cluster.id, left);
        }
    }
    // Of a copy that is taken out nothing is left to say.
    hub.copies.all().retain(|id, _| known.contains_key(id));
    failed.0 = known;
    Ok(())
}

/// One copy; where it cannot be renewed, when that is tried again.
async fn renewed(hub: &Hub, cluster: &Cluster, times: u32) -> Option<(u32, Instant)> {
    let name = &cluster.name;
    match copy::renew_old(hub, cluster).await {
        Ok(None | Some(Done::InForce(None))) => None,
        Ok(Some(Done::InForce(Some(commit)))) => {
            tracing::info!(cluster = %name, commit, "the copy of the agent in the catalog is renewed");
            None
        }
        Ok(Some(Done::Proposed(branch))) => {
            tracing::info!(cluster = %name, branch, "the agent's copy waits for a signature");
            None
        }
        Err(error) => {
            let (text, wait) = (told(&error), RETRY.full_jitter(times, clock::unit()));
            let again = wait.as_secs();
            tracing::warn!(cluster = %name, error = text, again, "the agent's copy in the catalog is not renewed");
            hub.copies.all().insert(cluster.id.clone(), text);
            Some((times.saturating_add(1), Instant::now() + wait))
        }
    }
}

fn told(error: &CopyError) -> String {
    match error {
        CopyError::HasPassword(refusal) => refusal.to_string(),
        CopyError::Catalog(error) => format!("{error:#}"),
    }
}

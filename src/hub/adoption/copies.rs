//! The copies of agents in the catalog, kept as they have to be: after another image of the agent, another engine, and whenever
//! the hub itself has another URL, CA or key.
//!
//! Nobody has to tell that something changed. Each look takes what a copy is made of as it is now, and writes only what differs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::copy::{self, CopyError, Done};
use crate::backoff::Schedule;
use crate::clock;
use crate::hub::store::Cluster;
use crate::hub::{Hub, chain_of, clean, cut, git};
use crate::manifests::copy::DIRECTORY;
use crate::wire::id::ClusterName;

const LOOK: Duration = Duration::from_secs(30);
/// A copy that could not be written is tried again.
const RETRY: Schedule = Schedule {
    floor: Duration::from_secs(30),
    first: Duration::from_mins(1),
    cap: Duration::from_mins(30),
};

/// Of what is kept about a copy that cannot be renewed; in bytes.
const MAX_TROUBLE: usize = 1 << 10;

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
            Some(Err(_)) if hub.store.is_away() => {}
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

/// One look: each copy that the catalog has is as it has to be afterwards, or it is known why not. Of a look that broke off, what
/// it learnt counts, and the rest stays as it was known.
pub async fn look(hub: &Hub, failed: &mut Failed) -> Result<()> {
    let catalog = &hub.catalog;
    let names = git::names(&catalog.repo, &catalog.branch, DIRECTORY).await;
    let mut there = BTreeSet::new();
    for name in names.context("list the copies of agents")? {
        let Ok(name) = name.parse::<ClusterName>() else {
            continue;
        };
        let cluster = hub.store.cluster(&name).await.context("read a cluster")?;
        let Some(cluster) = cluster.filter(|c| c.removed_at.is_none()) else {
            continue;
        };
        there.insert(cluster.id.clone());
        let before = failed.0.get(&cluster.id).copied();
        if before.is_some_and(|(_, due)| due > Instant::now()) {
            continue;
        }
        let left = renewed(hub, &cluster, before.map_or(0, |(times, _)| times)).await;
        match left {
            Some(left) => failed.0.insert(cluster.id, left),
            None => failed.0.remove(&cluster.id),
        };
    }
    failed.0.retain(|id, _| there.contains(id));
    // Of a copy that was taken out, and of one that is as it has to be, nothing is left to say.
    let told = hub.store.copy_troubles().await;
    for id in told.context("read what copies of agents lack")? {
        if !failed.0.contains_key(&id) {
            let over = hub.store.set_copy_trouble(&id, None).await;
            over.context("forget what a copy of an agent lacked")?;
        }
    }
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
            let text = clean(cut(&text, MAX_TROUBLE));
            let noted = hub.store.set_copy_trouble(&cluster.id, Some(&text)).await;
            if let Err(error) = noted {
                // The next try says it.
                tracing::error!(
                    error = chain_of(&error),
                    "note what a copy of an agent lacks"
                );
            }
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

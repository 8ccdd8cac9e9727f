//! Agents that are not heard any more (F50): looked for again and again, and kept among the heals like any fault.
//!
//! Most of a fleet is heard, and this process knows that without the store: a look reads of it only the faults that are there,
//! and the agents that seem silent or were so.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::api::clusters;
use super::fleet::Beat;
use super::replica::lines::Elsewhere;
use super::store::{Joined, Store, StoreError};
use super::{Hub, chain_of};
use crate::clock;
use crate::heal::{self, AGENT_LOST};
use crate::wire::id::ClusterName;
use crate::wire::report::HealRecord;

pub mod fault;

use fault::Known;

/// With the 25 s until a silent line is dead and the 15 s after it, an agent is called lost 45 s after its end.
const LOOK: Duration = Duration::from_secs(5);
/// Which agents there are is read anew so often: one that has just joined is heard anyhow, and one that was removed is left
/// out of what is read of the silent ones.
const ANEW: Duration = Duration::from_secs(20);

/// The agents that there are, as the store said them lately.
#[derive(Debug, Default)]
pub struct Roll {
    joined: Vec<Joined>,
    read: Option<Instant>,
}

impl Roll {
    async fn read(&mut self, store: &Store) -> Result<&[Joined], StoreError> {
        if self.read.is_none_or(|read| read.elapsed() >= ANEW) {
            self.joined = store.joined().await?;
            self.read = Some(Instant::now());
        }
        Ok(&self.joined)
    }
}

/// Looks until `stop`.
pub async fn run(hub: Arc<Hub>, stop: CancellationToken) -> Result<()> {
    let mut roll = Roll::default();
    let wait = || stop.run_until_cancelled(tokio::time::sleep(LOOK));
    while wait().await.is_some() {
        if let Err(error) = look(&hub, &mut roll).await
            && !hub.store.is_away()
        {
            tracing::error!(error = format!("{error:#}"), "look for lost agents");
        }
    }
    Ok(())
}

/// One look: opens a record for each agent that fell silent, and ends that of one that is heard again.
pub async fn look(hub: &Hub, roll: &mut Roll) -> Result<()> {
    let last = hub.store.last_unrestored(AGENT_LOST).await?;
    let mut last: BTreeMap<ClusterName, HealRecord> = last.into_iter().collect();
    let elsewhere = Elsewhere::all(hub).await?;
    let all = roll.read(&hub.store).await?;
    let now = clock::now();
    let doubtful = |cluster: &&Joined| {
        let open = last.get(&cluster.name).is_some_and(|r| !heal::is_over(r));
        let beating = clusters::beating(hub, now, &elsewhere, (*cluster).clone());
        open || matches!(beating.beat, Beat::Lost { .. })
    };
    let doubtful: Vec<String> = all.iter().filter(doubtful).map(|c| c.id.clone()).collect();
    if doubtful.is_empty() {
        return Ok(());
    }
    // Another replica may have heard it since.
    for cluster in hub.store.joined_of(&doubtful).await? {
        let cluster = clusters::beating(hub, now, &elsewhere, cluster);
        let known = Known {
            now,
            last: last.remove(&cluster.name),
        };
        let id = clock::id;
        let Some(record) = fault::change(known, &cluster, id) else {
            continue;
        };
        tracing::info!(
            cluster = %cluster.name, over = record.restored_at.is_some(), evidence = record.evidence, "agent lost"
        );
        if let Err(error) = hub.store.note_heal(&cluster.id, record, now).await {
            tracing::error!(cluster = %cluster.name, error = %chain_of(&error), "keep that an agent is lost");
        }
    }
    Ok(())
}

//! Agents that are not heard any more (F50): looked for again and again, and kept among the heals like any fault.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tokio_util::sync::CancellationToken;

use super::api::clusters;
use super::{Hub, chain_of};
use crate::clock;
use crate::wire::id::ClusterName;

pub mod fault;

use fault::Known;

/// With the 25 s until a silent line is dead and the 15 s after it, an agent is called lost 45 s after its end.
const LOOK: Duration = Duration::from_secs(5);

/// Looks until `stop`.
pub async fn run(hub: Arc<Hub>, stop: CancellationToken) -> Result<()> {
    let wait = || stop.run_until_cancelled(tokio::time::sleep(LOOK));
    while wait().await.is_some() {
        if let Err(error) = look(&hub).await {
            tracing::error!(error = format!("{error:#}"), "look for lost agents");
        }
    }
    Ok(())
}

/// One look: opens a record for each agent that fell silent, and ends that of one that is heard again.
pub async fn look(hub: &Hub) -> Result<()> {
    let mut open: BTreeMap<ClusterName, _> = BTreeMap::new();
    for (cluster, heal) in hub.store.open_heals_of(crate::heal::AGENT_LOST).await? {
        open.insert(cluster, heal);
    }
    let now = clock::now();
    let mut changes = Vec::new();
    clusters::beats(hub, |cluster| {
        let known = Known {
            now,
            open: open.remove(&cluster.name),
        };
        let id = || uuid::Uuid::now_v7().to_string();
        if let Some(record) = fault::change(known, &cluster, id) {
            changes.push((cluster, record));
        }
    })
    .await?;
    for (cluster, record) in changes {
        tracing::info!(
            cluster = %cluster.name, over = record.restored_at.is_some(), evidence = record.evidence, "agent lost"
        );
        if let Err(error) = hub.store.note_heal(&cluster.id, record, now).await {
            tracing::error!(cluster = %cluster.name, error = %chain_of(&error), "keep that an agent is lost");
        }
    }
    Ok(())
}

//! A cluster is in Conflict where somebody was refused who would have joined as it. Who was refused tries again, every 15 minutes at the
//! latest: where nobody did for longer, nobody is there any more, and a cluster that has its own agent is as well as that says.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

use super::store::StoreError;
use super::{Hub, chain_of};
use crate::clock;

const LOOK: Duration = Duration::from_mins(5);
/// Before the first one: while no hub was there, nobody could try.
const FIRST: Duration = Duration::from_mins(30);
/// After so long without another try it is over.
const OVER: time::Duration = time::Duration::hours(1);

/// Looks until `stop`.
pub async fn run(hub: Arc<Hub>, stop: CancellationToken) -> Result<()> {
    let wait = |time| stop.run_until_cancelled(tokio::time::sleep(time));
    let mut next = FIRST;
    while wait(next).await.is_some() {
        next = LOOK;
        if let Err(error) = look(&hub, clock::now()).await
            && !hub.store.is_away()
        {
            tracing::error!(error = chain_of(&error), "end conflicts that are over");
        }
    }
    Ok(())
}

/// One look. A cluster that has not joined keeps its own: its YAML is somewhere yet.
pub async fn look(hub: &Hub, now: OffsetDateTime) -> Result<(), StoreError> {
    let clusters = hub.store.end_conflicts(now - OVER).await?;
    if clusters > 0 {
        tracing::info!(clusters, "who was refused as these clusters came no more");
    }
    Ok(())
}

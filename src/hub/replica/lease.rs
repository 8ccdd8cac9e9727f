//! A replica says that it lives, and which lines it has.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{Own, TTL, agree};
use crate::hub::store::{LineRow, StoreError};
use crate::hub::{Hub, chain_of, directory};

const RENEW: Duration = Duration::from_secs(5);
/// A renewal that takes longer is tried anew.
const LIMIT: Duration = Duration::from_secs(4);
/// Wishes to count the lines within this time are one.
const COALESCE: Duration = Duration::from_millis(200);

/// Takes the first lease, before anything is done in the replica's name.
pub async fn begin(store: &crate::hub::store::Store, own: &Own) -> Result<()> {
    let begun = store.renew_replica(&own.record, TTL).await;
    begun.context("take the replica's lease")
}

/// Renews the lease until `stop`.
pub async fn keep(hub: Arc<Hub>, stop: CancellationToken) -> Result<()> {
    let Some(own) = &hub.replica else {
        stop.cancelled().await;
        return Ok(());
    };
    let renewing = async {
        loop {
            let renewed = timeout(LIMIT, renew(&hub, own)).await;
            report(&hub, renewed, "renew the replica's lease");
            sleep(RENEW).await;
        }
    };
    let counting = async {
        loop {
            let counted = timeout(LIMIT, count(&hub, own)).await;
            report(&hub, counted, "tell the others which lines are here");
            tokio::select! {
                () = sleep(RENEW) => {}
                () = own.count.notified() => {}
            }
            sleep(COALESCE).await;
        }
    };
    let agreeing = agree::watch(&hub, own);
    let all = async { tokio::join!(renewing, counting, agreeing) };
    stop.run_until_cancelled(Box::pin(all)).await;
    Ok(())
}

fn report(
    hub: &Hub,
    done: Result<Result<(), StoreError>, tokio::time::error::Elapsed>,
    doing: &str,
) {
    match done {
        Ok(Ok(())) => {}
        // That is said once, and not at each try.
        _ if hub.store.is_away() => {}
        Ok(Err(error)) => tracing::error!(error = chain_of(&error), "{doing}"),
        Err(_) => tracing::error!(seconds = LIMIT.as_secs(), "{doing}: no answer in time"),
    }
}

async fn renew(hub: &Hub, own: &Own) -> Result<(), StoreError> {
    hub.store.renew_replica(&own.record, TTL).await
}

/// Compares the lines that are here with what the others are told. An older one than they know gives way to the newer, and
/// that of a cluster that was removed ends.
async fn count(hub: &Hub, own: &Own) -> Result<(), StoreError> {
    let held = hub.tunnels.held(&own.record.id);
    let older = hub.store.keep_lines(&own.record.id, held).await?;
    for LineRow {
        cluster_id, epoch, ..
    } in older
    {
        let Some(cluster) = hub.store.cluster_by_id(&cluster_id).await? else {
            continue;
        };
        if cluster.removed_at.is_some() {
            directory::removed(hub, &cluster.name, &cluster_id);
        } else {
            hub.tunnels.superseded(&cluster.name, epoch);
        }
    }
    Ok(())
}

/// The replica ends: its lines did.
pub async fn end(hub: &Hub) {
    if let Some(own) = &hub.replica {
        let left = timeout(LIMIT, hub.store.leave_replica(&own.record.id)).await;
        report(hub, left, "end the replica's lease");
    }
}

//! Anchors and retention: every hour the hub signs the chain's end, and what is older than it has to be kept goes.

use std::time::Duration;

use anyhow::Result;
use tokio_util::sync::CancellationToken;

use super::Audit;
use crate::clock;
use crate::hub::store::Store;

const ANCHOR: Duration = Duration::from_hours(1);
const RETRY: Duration = Duration::from_mins(1);

/// How long records are kept.
#[derive(Debug, Clone, Copy)]
pub struct Retention {
    pub age: Duration,
    pub records: u64,
    /// Of their JSON, which is about what they take on disk.
    pub bytes: u64,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            age: Duration::from_hours(400 * 24),
            records: 20_000_000,
            bytes: 10 << 30,
        }
    }
}

/// Anchors and prunes every hour until `stop`, first at the start.
pub async fn run(
    store: Store,
    audit: Audit,
    retention: Retention,
    stop: CancellationToken,
) -> Result<()> {
    loop {
        let wait = match round(&store, &audit, retention).await {
            Ok(()) => ANCHOR,
            Err(error) => {
                tracing::error!(error = format!("{error:#}"), "anchor and prune the audit");
                RETRY
            }
        };
        if stop
            .run_until_cancelled(tokio::time::sleep(wait))
            .await
            .is_none()
        {
            return Ok(());
        }
    }
}

/// One round: an anchor at the chain's end, then away with what nobody has to keep.
pub async fn round(store: &Store, audit: &Audit, retention: Retention) -> Result<()> {
    audit.anchor().await?;
    let head = store.audit_head().await?.map_or(0, |row| row.seq);
    let records = i64::try_from(retention.records).unwrap_or(i64::MAX);
    let age = time::Duration::try_from(retention.age).unwrap_or(time::Duration::MAX);
    let before = clock::now().checked_sub(age);
    let by_age = match before {
        Some(before) => store.audit_before(before).await?,
        None => 0,
    };
    let by_size = store.audit_over(retention.bytes).await?;
    let up_to = by_age.max(head.saturating_sub(records)).max(by_size);
    let mut removed = 0;
    loop {
        match audit.prune(up_to).await? {
            0 => break,
            some => removed += some,
        }
    }
    if removed > 0 {
        tracing::info!(removed, up_to, "audit records beyond retention removed");
    }
    Ok(())
}

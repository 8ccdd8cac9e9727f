//! Anchors and retention: every hour the hub signs the chain's end, and what is older than it has to be kept goes.

use std::time::{Duration, Instant};

use anyhow::Result;
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

use super::Audit;
use crate::clock::{self, Steady};
use crate::hub::store::Store;

const ANCHOR: Duration = Duration::from_hours(1);
const RETRY: Duration = Duration::from_mins(1);
/// A clock that went on by so much more than the time since the last look was set.
const AHEAD: time::Duration = time::Duration::days(1);

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
    let mut before: Option<Steady> = None;
    loop {
        let (now, at) = (clock::now(), Instant::now());
        if before.is_some_and(|before| now - before.at(at) > AHEAD) {
            tracing::warn!(
                now = clock::rfc3339(now),
                "the clock was set far ahead; audit records that are too old by it go at the next look, in an hour"
            );
        }
        let wait = match round(&store, &audit, retention, agreed(before, now, at)).await {
            Ok(()) => {
                before = Some(Steady::showing(now, at));
                ANCHOR
            }
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

/// The time as two looks agree on it, so that a clock that is far ahead at one of them makes no record old; None at the first look.
fn agreed(before: Option<Steady>, now: OffsetDateTime, at: Instant) -> Option<OffsetDateTime> {
    before.map(|before| before.at(at).min(now))
}

/// One round: an anchor at the chain's end, then away with what nobody has to keep. By age only where the time is known.
pub async fn round(
    store: &Store,
    audit: &Audit,
    retention: Retention,
    now: Option<OffsetDateTime>,
) -> Result<()> {
    audit.anchor().await?;
    let head = store.audit_head().await?.map_or(0, |row| row.seq);
    let records = i64::try_from(retention.records).unwrap_or(i64::MAX);
    let age = time::Duration::try_from(retention.age).unwrap_or(time::Duration::MAX);
    let by_age = match now.and_then(|now| now.checked_sub(age)) {
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

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    /// H37: at the first look nobody knows whether the clock is right.
    #[test]
    fn a_clock_that_is_wrong_at_one_look_makes_no_record_old() {
        let began = Instant::now();
        let shown = datetime!(2026-01-02 03:04:05 UTC);
        assert_eq!(agreed(None, shown, began), None);
        let before = Some(Steady::showing(shown, began));
        let hour = began + ANCHOR;
        let right = shown + ANCHOR;
        for (now, agrees) in [
            (right, right),
            // It was set ahead, or back, in between.
            (right + time::Duration::days(4_000), right),
            (shown, shown),
        ] {
            assert_eq!(agreed(before, now, hour), Some(agrees), "{now}");
        }
        // It was ahead at the look before, and is right now.
        let ahead = Steady::showing(shown + time::Duration::days(4_000), began);
        assert_eq!(agreed(Some(ahead), right, hour), Some(right));
    }
}

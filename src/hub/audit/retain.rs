//! Anchors and retention: every hour the hub signs the chain's end, and what is older than it has to be kept goes.

use std::time::{Duration, Instant};

use anyhow::Result;
use prometheus_client::metrics::counter::Counter;
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

use super::Audit;
use crate::clock::{self, Steady};
use crate::hub::chain_of_any;
use crate::hub::store::{AuditRow, Store, StoreError};

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

/// What one round removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Removed {
    pub records: u64,
    /// Those among them that are younger than what is kept by age: there were too many, or too many bytes.
    pub early: u64,
}

/// Anchors and prunes every hour until `stop`, first at the start; `early` counts the records that went before their time.
pub async fn run(
    store: Store,
    audit: Audit,
    retention: Retention,
    early: Counter,
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
        // What is gone stays gone, however the round ends.
        let told = |piece| {
            early.inc_by(piece);
        };
        let agreed = agreed(before, now, at);
        let wait = match pieces(&store, &audit, retention, agreed, told).await {
            Ok(_) => {
                before = Some(Steady::showing(now, at));
                ANCHOR
            }
            Err(_) if store.is_away() => RETRY,
            Err(error) => {
                tracing::error!(error = chain_of_any(&error), "anchor and prune the audit");
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
) -> Result<Removed> {
    pieces(store, audit, retention, now, |_| {}).await
}

/// One round; `told` hears of each piece that went how many of it did before their time.
async fn pieces(
    store: &Store,
    audit: &Audit,
    retention: Retention,
    now: Option<OffsetDateTime>,
    mut told: impl FnMut(u64),
) -> Result<Removed> {
    audit.anchor().await?;
    let Some(head) = store.audit_head().await? else {
        return Ok(Removed::default());
    };
    // Only to say what is young, the newest record stands for the time that nobody knows yet.
    let shown = now.or_else(|| made(&head));
    let old = match shown.and_then(|shown| oldest_kept(retention.age, shown)) {
        Some(before) => store.audit_before(before).await?,
        None => 0,
    };
    let by_age = if now.is_some() { old } else { 0 };
    let records = i64::try_from(retention.records).unwrap_or(i64::MAX);
    let by_size = store.audit_over(retention.bytes).await?;
    let up_to = by_age.max(head.seq.saturating_sub(records)).max(by_size);
    let first = store.audit(0, None, 1).await?;
    let first = first.first().map_or(head.seq, |row| row.seq);
    let early = younger(old, (first, up_to.min(head.seq - 1)));
    if early > 0 {
        let begins = store.audit(up_to, None, 1).await?;
        let begins = begins.first().and_then(made).map(clock::rfc3339);
        // What goes before its time may be what somebody wants forgotten: whoever makes records can make many. It is said
        // beforehand, so that no end of the hub in the middle of it keeps it back.
        tracing::warn!(
            early,
            up_to,
            begins = begins.unwrap_or_default(),
            keep_days = days(retention.age),
            max_records = retention.records,
            max_bytes = retention.bytes,
            "audit records younger than --audit-keep go, for there are more than --audit-max-records or --audit-max-bytes; \
             see who makes so many with 'linesman audit list'"
        );
    }
    let mut removed = Removed::default();
    loop {
        let piece = audit.prune(up_to).await?;
        if piece == 0 {
            break;
        }
        let early = of_piece(old, first, (removed.records, piece));
        told(early);
        removed.records += piece;
        removed.early += early;
    }
    if removed.records > 0 {
        let removed = removed.records;
        tracing::info!(removed, up_to, "audit records beyond retention removed");
    }
    Ok(removed)
}

/// How many of a piece are behind those that are old: it follows the `removed` ones, which began with `first`.
fn of_piece(old: i64, first: i64, (removed, piece): (u64, u64)) -> u64 {
    let begins = first.saturating_add_unsigned(removed);
    let last = begins.saturating_add_unsigned(piece) - 1;
    younger(old, (begins, last))
}

/// How many of the records `first` to `last` are behind those that are old.
fn younger(old: i64, (first, last): (i64, i64)) -> u64 {
    u64::try_from(last - old.max(first - 1)).unwrap_or(0)
}

/// What to do where [`outlook`] finds that records go before their time.
pub const NEXT: &str = "see who makes so many with 'linesman audit list'; then raise --audit-max-records and --audit-max-bytes, or ask for less with \
    --audit-keep. What --audit-file and --audit-webhook took stays there";

/// How far back the record goes; an error where it does not go back as far as it is to, because it is at its most.
pub async fn outlook(
    store: &Store,
    retention: Retention,
    now: OffsetDateTime,
) -> Result<Result<String, String>, StoreError> {
    let (first, head) = (store.audit(0, None, 1).await?, store.audit_head().await?);
    let (Some(first), Some(head)) = (first.first(), head) else {
        return Ok(Ok("nothing is on record yet".to_owned()));
    };
    let records = head.seq.saturating_sub(first.seq).saturating_add(1);
    let records = u64::try_from(records).unwrap_or(0);
    let full = records >= nearly(retention.records)
        || store.audit_over(nearly(retention.bytes)).await? >= first.seq;
    let begins = made(first).unwrap_or(now);
    let kept = Kept {
        records,
        begins,
        full,
    };
    Ok(judged(kept, retention.age, now))
}

/// What is on record, and whether there is no room for more of it.
#[derive(Debug, Clone, Copy)]
struct Kept {
    records: u64,
    begins: OffsetDateTime,
    full: bool,
}

fn judged(kept: Kept, age: Duration, now: OffsetDateTime) -> Result<String, String> {
    let Kept {
        records,
        begins,
        full,
    } = kept;
    let since = clock::rfc3339(begins);
    if full && oldest_kept(age, now).is_none_or(|oldest| oldest < begins) {
        let days = days(age);
        return Err(format!(
            "{records} records are as many as are kept, and they begin at {since}; --audit-keep asks for {days} days"
        ));
    }
    Ok(format!("{records} records from {since} on"))
}

/// Between two rounds there is a little less, or more, than what is kept at most.
fn nearly(most: u64) -> u64 {
    most - most / 100
}

fn days(age: Duration) -> u64 {
    age.as_secs() / (24 * 3_600)
}

/// What is older is not kept; None = nothing is that old.
fn oldest_kept(age: Duration, now: OffsetDateTime) -> Option<OffsetDateTime> {
    let age = time::Duration::try_from(age).unwrap_or(time::Duration::MAX);
    now.checked_sub(age)
}

/// None = no clock shows what the record says.
fn made(row: &AuditRow) -> Option<OffsetDateTime> {
    clock::from_nanoseconds(i128::from(row.at) * 1_000_000)
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    /// What goes by age alone is as it should be, however much of it there is.
    #[test]
    fn a_record_that_is_full_before_its_time_is_told() {
        let now = datetime!(2026-11-21 08:00 UTC);
        let age = Duration::from_hours(400 * 24);
        let kept = |days: i64, full| Kept {
            records: 20_000_000,
            begins: now - time::Duration::days(days),
            full,
        };
        for (days, full) in [
            (0, false),
            (3, false),
            (399, false),
            (400, true),
            (401, true),
        ] {
            let found = judged(kept(days, full), age, now);
            assert!(found.is_ok(), "{days} {full}: {found:?}");
        }
        let early = "20000000 records are as many as are kept, and they begin at 2026-11-18T08:00:00.000Z; --audit-keep asks for 400 days";
        assert_eq!(judged(kept(3, true), age, now), Err(early.to_owned()));
        let all = "20000000 records from 2026-11-18T08:00:00.000Z on";
        assert_eq!(judged(kept(3, false), age, now), Ok(all.to_owned()));
        // For ever.
        assert!(judged(kept(401, true), Duration::MAX, now).is_err());
    }

    #[test]
    fn what_goes_before_its_time_is_counted() {
        for (old, ends, count) in [
            // By age alone, or nothing.
            (50, (11, 50), 0),
            (50, (11, 10), 0),
            (0, (11, 10), 0),
            // By number or bytes, too, or alone.
            (50, (11, 70), 20),
            (0, (11, 70), 60),
            (5, (11, 11), 1),
        ] {
            assert_eq!(younger(old, ends), count, "{old} {ends:?}");
        }
    }

    /// A round may break off behind any of them.
    #[test]
    fn what_goes_before_its_time_is_counted_by_the_piece() {
        for (old, count) in [
            (10, [20, 20, 10]),
            (30, [0, 20, 10]),
            (35, [0, 15, 10]),
            (60, [0, 0, 0]),
        ] {
            let pieces = [(0, 20), (20, 20), (40, 10)];
            assert_eq!(pieces.map(|piece| of_piece(old, 11, piece)), count, "{old}");
            assert_eq!(younger(old, (11, 60)), count.iter().sum::<u64>(), "{old}");
        }
    }

    #[test]
    fn what_to_do_about_it_names_the_settings() {
        for flag in [
            "--audit-keep",
            "--audit-max-records",
            "--audit-max-bytes",
            "--audit-file",
            "--audit-webhook",
        ] {
            assert!(NEXT.contains(flag), "{flag}");
        }
    }

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

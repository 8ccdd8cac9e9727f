//! The hub's own starts and stops, on record: a time of which there are no records is told from one in which nobody asked for anything.
//!
//! Neither waits for a database that is away. A start is recorded when that takes it, and a stop is left out then: the next start says
//! that it is not on record.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use time::OffsetDateTime;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::clock;
use crate::hub::audit::Entry;
use crate::hub::store::{AuditQuery, AuditRow, OfAction};
use crate::hub::{Hub, chain_of};

const START: &str = "hub.start";
const STOP: &str = "hub.stop";
/// After a start could not be put on record.
const AGAIN: Duration = Duration::from_secs(5);
/// A stop waits no longer for its record.
const LIMIT: Duration = Duration::from_secs(2);
/// Of the newest starts and stops, those of other replicas among them, so many are looked at for the last of this one.
const LOOKED_AT: u32 = 200;

/// Puts the start on record, once, as soon as the database takes it.
pub(super) async fn begin(hub: Arc<Hub>, stop: CancellationToken) -> Result<()> {
    while let Some(Err(error)) = stop.run_until_cancelled(started(&hub)).await {
        if !hub.store.is_away() {
            tracing::error!(
                error = format!("{error:#}"),
                "put the hub's start on record"
            );
        }
        stop.run_until_cancelled(sleep(AGAIN)).await;
    }
    stop.cancelled().await;
    Ok(())
}

async fn started(hub: &Hub) -> Result<()> {
    let own = entry(hub, START);
    let query = AuditQuery {
        actor: Some(own.actor.clone()),
        actions: [START, STOP]
            .map(|name| OfAction::Only(name.to_owned()))
            .to_vec(),
        newest: true,
        limit: LOOKED_AT,
        ..AuditQuery::default()
    };
    let found = hub.store.audit_query(&query).await?;
    let last = found.rows.iter().find(|row| row.target == own.target);
    // A try of which nobody said that it is stored.
    if last.is_some_and(|row| row.action == START && moment(row) >= hub.started) {
        return Ok(());
    }
    let version = env!("CARGO_PKG_VERSION");
    let started = Entry {
        reason: Some(format!("version {version}; {}", before(last))),
        ..own
    };
    Ok(hub.audit.event(started).await?)
}

/// What is on record of the hub's life before a start.
fn before(last: Option<&AuditRow>) -> String {
    match last {
        None => "no start or stop before it is on record".to_owned(),
        Some(row) if row.action == STOP => {
            format!("stopped in order at {}", clock::rfc3339(moment(row)))
        }
        Some(row) => format!(
            "NOT stopped in order: of what started at {} (record {}) no stop is on record",
            clock::rfc3339(moment(row)),
            row.seq
        ),
    }
}

/// Puts the stop on record, where that takes no time; `ended` is how the hub's parts did.
pub(super) async fn end(hub: &Hub, ended: &Result<()>) {
    if !hub.config.audit.lives || hub.store.is_away() {
        return;
    }
    let why = ended.as_ref().err();
    let entry = Entry {
        reason: why.map(|error| format!("it failed: {error:#}")),
        ..entry(hub, STOP)
    };
    match timeout(LIMIT, hub.audit.event(entry)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(error = chain_of(&error), "put the hub's stop on record"),
        Err(_) => tracing::warn!("put the hub's stop on record: not in time"),
    }
}

/// Of several replicas, each goes by the address that the others know it by.
fn entry(hub: &Hub, action: &str) -> Entry {
    let own = hub.replica.as_ref();
    Entry {
        actor: "hub".to_owned(),
        action: action.to_owned(),
        target: own.map_or_else(
            || "hub".to_owned(),
            |own| format!("replica {}", own.record.peer),
        ),
        ..Entry::default()
    }
}

fn moment(row: &AuditRow) -> OffsetDateTime {
    OffsetDateTime::UNIX_EPOCH + time::Duration::milliseconds(row.at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_says_whether_the_stop_before_it_was_in_order() {
        let at = 1_800_000_000_123;
        let of = |action: &str| AuditRow {
            seq: 7,
            action: action.to_owned(),
            ..AuditRow::event(at)
        };
        assert_eq!(before(None), "no start or stop before it is on record");
        assert_eq!(
            before(Some(&of(STOP))),
            "stopped in order at 2027-01-15T08:00:00.123Z"
        );
        assert_eq!(
            before(Some(&of(START))),
            "NOT stopped in order: of what started at 2027-01-15T08:00:00.123Z (record 7) no stop is on record"
        );
    }
}

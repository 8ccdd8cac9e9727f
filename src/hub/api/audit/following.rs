//! The records that fit a question, page after page, and the next ones, for which a call may wait.

use std::time::Duration;

use tokio::sync::watch;

use crate::hub::Hub;
use crate::hub::api::problem::Problem;
use crate::hub::store::{AuditPage, AuditQuery, AuditRow, StoreError};

/// The longest that a call looks through records of which none fits, before it says how far it came.
pub(super) const SEARCH: Duration = Duration::from_secs(5);
/// Between two looks of a call that waits.
const PAUSE: Duration = Duration::from_millis(50);
/// The same for records of other replicas, where none is made here.
const LOOK: Duration = Duration::from_secs(1);

/// Page after page, until one has records in it, there are no more, or the time is over; the query is where it then goes on.
pub(super) async fn search(
    hub: &Hub,
    query: &mut AuditQuery,
    within: Duration,
) -> Result<AuditPage, Problem> {
    let deadline = tokio::time::Instant::now() + within;
    loop {
        let page = hub.store.audit_query(query).await?;
        let Some(looked) = page.looked.filter(|_| page.rows.is_empty()) else {
            return Ok(page);
        };
        if query.newest {
            query.before = Some(looked);
        } else {
            query.after = Some(looked);
        }
        if hub.stop.is_cancelled() || tokio::time::Instant::now() >= deadline {
            return Ok(page);
        }
    }
}

/// The next records that fit, for which it waits until the deadline; and up to which number none fits, where there are none.
/// Records that others make meanwhile only move that number on.
pub(super) async fn next(
    hub: &Hub,
    query: &mut AuditQuery,
    wait: Duration,
) -> Result<(Vec<AuditRow>, Option<i64>), Problem> {
    let mut head = hub.audit.head();
    let mut there = 0;
    let deadline = tokio::time::Instant::now() + wait;
    loop {
        // Before the question: all up to there is in the store, and in its answer if it fits.
        there = there.max(*head.borrow_and_update());
        let page = search(hub, query, SEARCH.max(wait)).await?;
        if !page.rows.is_empty() {
            return Ok((page.rows, None));
        }
        if page.looked.is_some() {
            // Who does not wait takes no records for the end of them.
            if wait.is_zero() {
                return Err(StoreError::TooLong("read the audit chain").into());
            }
            return Ok((page.rows, page.looked));
        }
        let looked = query.after.unwrap_or(0).max(there);
        if tokio::time::Instant::now() >= deadline {
            return Ok((page.rows, Some(looked)));
        }
        query.after = Some(looked);
        let Some(last) = behind(hub, &mut head, looked, deadline).await else {
            return Ok((page.rows, Some(looked)));
        };
        there = last;
        // Where a thousand records come in a second, they are looked through together.
        let pause = tokio::time::sleep_until(deadline.min(tokio::time::Instant::now() + PAUSE));
        if hub.stop.run_until_cancelled(pause).await.is_none() {
            return Ok((page.rows, Some(looked)));
        }
    }
}

/// The number of the last record, once there is one behind `looked`; None = there is none until the deadline, or the hub stops.
async fn behind(
    hub: &Hub,
    head: &mut watch::Receiver<i64>,
    looked: i64,
    deadline: tokio::time::Instant,
) -> Option<i64> {
    loop {
        // The head is that of the records that are made here: those of other replicas are looked for.
        let until = match &hub.replica {
            Some(_) => deadline.min(tokio::time::Instant::now() + LOOK),
            None => deadline,
        };
        let own = async { head.wait_for(|seq| *seq > looked).await.map(|seq| *seq) };
        let own = tokio::time::timeout_at(until, own);
        if let Ok(own) = hub.stop.run_until_cancelled(own).await? {
            return own.ok();
        }
        if tokio::time::Instant::now() >= deadline {
            return None;
        }
        let last = tokio::time::timeout_at(deadline, hub.store.audit_head());
        match hub.stop.run_until_cancelled(last).await? {
            Ok(Ok(Some(last))) if last.seq > looked => return Some(last.seq),
            // Whoever waits goes on waiting where the store does not answer; the next call says so.
            Ok(_) | Err(_) => {}
        }
    }
}

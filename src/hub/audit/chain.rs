//! The chain itself: what a record hashes to, whether records follow on one another, and what an anchor says.
//! Pure; the hub appends by it, `linesman audit verify` checks by it.

use time::{Duration, OffsetDateTime};

use crate::clock;
use crate::hub::store::{Anchor, AuditRow};
use crate::keys;
use crate::wire::api::{AnchorView, AuditView};

mod follow;
mod hashed;

pub use follow::{Broken, Follower, signer, unproven_start, verify};
pub use hashed::Hashed;

/// Number and hash of a record, or of what comes before the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    pub seq: i64,
    pub hash: [u8; 32],
}

/// What the first record is chained to.
pub fn genesis(hub_id: &str) -> Head {
    Head {
        seq: 0,
        hash: keys::sha256(hub_id.as_bytes()),
    }
}

/// Makes a record the next one.
pub fn link(head: Head, row: &mut AuditRow) -> Head {
    row.seq = head.seq + 1;
    row.prev = head.hash;
    row.hash = hash(row);
    Head {
        seq: row.seq,
        hash: row.hash,
    }
}

/// The record of a request that still runs, as it is written again where retention removes it.
pub fn carried(open: AuditRow, at: i64) -> AuditRow {
    let reason = match open.opened {
        Some(_) => open.reason,
        None => Some(format!(
            "goes on from record {} of {}",
            open.seq,
            rfc3339(open.at)
        )),
    };
    AuditRow {
        at,
        opened: open.opened.or(Some(open.seq)),
        reason,
        ..open
    }
}

/// The end of a request whose beginning the database lost names none, for its number is another record's, or will be.
pub fn orphan(close: &mut AuditRow) {
    const WHY: &str = "the database lost the record of its beginning";
    close.opened = None;
    close.reason = Some(match close.reason.take() {
        Some(reason) => format!("{reason}; {WHY}"),
        None => WHY.to_owned(),
    });
}

/// Bytes that count as a record's: of its JSON, which is what it takes on disk with its hashes and indexes.
pub fn size(row: &AuditRow) -> u64 {
    canonical(row).len() as u64
}

/// The bytes that the hub signs at this time (unix milliseconds): up to this record the chain was so, and where it is a
/// `start`, retention removed all up to there. None of the one can be taken for the other.
pub fn anchor_input(hub_id: &str, head: Head, at: i64, start: bool) -> String {
    let what = if start { "audit-start" } else { "audit-anchor" };
    signed_of(&format!("linesman/{what}/v2"), hub_id, head, at)
}

/// What hubs of before signed for either.
fn old_anchor_input(hub_id: &str, head: Head, at: i64) -> String {
    signed_of("linesman/audit-anchor/v1", hub_id, head, at)
}

fn signed_of(what: &str, hub_id: &str, head: Head, at: i64) -> String {
    let (seq, hash) = (head.seq, keys::hex(&head.hash));
    format!("{what}\n{hub_id}\n{seq}\n{hash}\n{at}")
}

/// The hash that a row must have, given its own fields and `prev`.
pub fn hash(row: &AuditRow) -> [u8; 32] {
    let mut input = row.prev.to_vec();
    input.extend_from_slice(canonical(row).as_bytes());
    keys::sha256(&input)
}

/// RFC 8785 JSON: members in the order of their names, integers and strings only.
pub(super) fn canonical(row: &AuditRow) -> String {
    #[derive(serde::Serialize)]
    struct Record<'a> {
        // Left out where there is none: records from before it hash to what they say.
        #[serde(rename = "actedAs", skip_serializing_if = "Option::is_none")]
        acted_as: Option<&'a str>,
        action: &'a str,
        actor: &'a str,
        at: i64,
        bytes: Option<u64>,
        cluster: Option<&'a str>,
        code: Option<u16>,
        #[serde(skip_serializing_if = "Option::is_none")]
        command: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        container: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        exit: Option<i32>,
        millis: Option<u64>,
        opened: Option<i64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        ports: Option<&'a str>,
        reason: Option<&'a str>,
        remote: &'a str,
        #[serde(rename = "requestId")]
        request_id: &'a str,
        seq: i64,
        stage: &'a str,
        target: &'a str,
        verdict: &'a str,
    }
    let record = Record {
        acted_as: row.acted_as.as_deref(),
        action: &row.action,
        actor: &row.actor,
        at: row.at,
        bytes: row.bytes,
        cluster: row.cluster.as_deref(),
        code: row.code,
        command: row.command.as_deref(),
        container: row.container.as_deref(),
        exit: row.exit,
        millis: row.millis,
        opened: row.opened,
        ports: row.ports.as_deref(),
        reason: row.reason.as_deref(),
        remote: &row.remote,
        request_id: &row.request_id,
        seq: row.seq,
        stage: &row.stage,
        target: &row.target,
        verdict: &row.verdict,
    };
    serde_json::to_string(&record).expect("strings and integers are always JSON")
}

/// A record as the API and the sinks tell it.
pub fn view(row: &AuditRow) -> AuditView {
    AuditView {
        seq: row.seq,
        at: rfc3339(row.at),
        stage: row.stage.clone(),
        actor: row.actor.clone(),
        action: row.action.clone(),
        acted_as: row.acted_as.clone(),
        cluster: row.cluster.clone(),
        target: row.target.clone(),
        container: row.container.clone(),
        command: row.command.clone(),
        ports: row.ports.clone(),
        request_id: row.request_id.clone(),
        verdict: row.verdict.clone(),
        reason: row.reason.clone(),
        opened: row.opened,
        code: row.code,
        exit: row.exit,
        bytes: row.bytes,
        millis: row.millis,
        remote: row.remote.clone(),
        prev: keys::hex(&row.prev),
        hash: keys::hex(&row.hash),
    }
}

fn rfc3339(ms: i64) -> String {
    clock::rfc3339(OffsetDateTime::UNIX_EPOCH + Duration::milliseconds(ms))
}

/// The record behind a view; None where it is not one that a hub wrote.
pub fn record(view: AuditView) -> Option<AuditRow> {
    let at = clock::parse_rfc3339(&view.at)?.unix_timestamp_nanos() / 1_000_000;
    Some(AuditRow {
        seq: view.seq,
        at: i64::try_from(at).ok()?,
        stage: view.stage,
        actor: view.actor,
        action: view.action,
        acted_as: view.acted_as,
        cluster: view.cluster,
        target: view.target,
        container: view.container,
        command: view.command,
        ports: view.ports,
        request_id: view.request_id,
        verdict: view.verdict,
        reason: view.reason,
        opened: view.opened,
        code: view.code,
        exit: view.exit,
        bytes: view.bytes,
        millis: view.millis,
        remote: view.remote,
        prev: keys::unhex(&view.prev)?,
        hash: keys::unhex(&view.hash)?,
    })
}

/// The anchor behind a view.
pub fn anchor(view: &AnchorView) -> Option<Anchor> {
    Some(Anchor {
        seq: view.seq,
        hash: keys::unhex(&view.hash)?,
        at: view.at,
        sig: keys::decode(&view.sig)?,
        start: view.start,
    })
}

#[cfg(test)]
mod tests;

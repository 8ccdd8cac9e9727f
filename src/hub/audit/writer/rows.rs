//! What is stored of what somebody does: one row as it begins or happens, one as it ends.

use crate::clock;
use crate::hub::audit::{Closing, Entry, Verdict};
use crate::hub::store::AuditRow;

/// The most bytes of a free text in a record.
const MAX_TEXT: usize = 1024;

#[derive(Clone, Copy)]
pub(super) enum Stage {
    Open,
    Event,
}

pub(super) fn row(stage: Stage, entry: &Entry) -> AuditRow {
    AuditRow {
        seq: 0,
        at: millis(clock::now()),
        stage: match stage {
            Stage::Open => "open",
            Stage::Event => "event",
        }
        .to_owned(),
        actor: bounded(&entry.actor),
        action: bounded(&entry.action),
        acted_as: entry.acted_as.as_deref().map(bounded),
        cluster: entry.cluster.as_deref().map(bounded),
        target: bounded(&entry.target),
        container: entry.container.as_deref().map(bounded),
        command: entry.command.as_deref().map(bounded),
        ports: entry.ports.as_deref().map(bounded),
        request_id: bounded(&entry.request_id),
        verdict: word(entry.verdict),
        reason: entry.reason.as_deref().map(bounded),
        opened: None,
        code: entry.code,
        exit: None,
        bytes: None,
        millis: None,
        remote: bounded(&entry.remote),
        prev: [0; 32],
        hash: [0; 32],
    }
}

fn word(verdict: Verdict) -> String {
    match verdict {
        Verdict::Allow => "allow",
        Verdict::Deny => "deny",
    }
    .to_owned()
}

pub(super) fn close_row(closing: &Closing) -> AuditRow {
    AuditRow {
        stage: "close".to_owned(),
        opened: Some(closing.opened),
        verdict: word(closing.verdict),
        reason: closing.reason.as_deref().map(bounded),
        code: closing.code,
        exit: closing.exit,
        // SQLite's integers end at i64::MAX.
        bytes: Some(closing.bytes.min(i64::MAX.unsigned_abs())),
        millis: Some(closing.millis.min(i64::MAX.unsigned_abs())),
        ..row(Stage::Event, &closing.entry)
    }
}

pub(super) fn interrupted(open: &AuditRow) -> AuditRow {
    AuditRow {
        stage: "close".to_owned(),
        at: millis(clock::now()),
        opened: Some(open.seq),
        reason: Some("interrupted: the hub ended".to_owned()),
        ..open.clone()
    }
}

pub(super) fn millis(at: time::OffsetDateTime) -> i64 {
    i64::try_from(at.unix_timestamp_nanos() / 1_000_000).unwrap_or(i64::MAX)
}

fn bounded(text: &str) -> String {
    crate::hub::clean(crate::hub::cut(text, MAX_TEXT))
}

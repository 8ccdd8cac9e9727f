//! What Applications below the root say of what they brought, and what makes some of them.

use serde_json::Value;
use time::OffsetDateTime;

use super::operation::{ANEW, is_at_it, lasting, waits};
use super::{class, differs, text};
use crate::clock::parse_rfc3339;

/// The reason of an operation that failed.
pub const SYNC_ERROR: &str = "SyncError";

/// What is wrong, by its own words: reason and message.
pub fn trouble(fields: &Value) -> Option<(String, String)> {
    wrong(fields)
        .or_else(|| failed(fields))
        .or_else(|| degraded(fields))
}

/// What an operation that is at work says, where it differs from what the cluster has to be; empty = it has only begun, without a word or
/// with these. While it says no more than that, or what the try before said, that one's end still stands.
pub fn at_work(fields: &Value) -> Option<&str> {
    let message = text(fields, "/status/operationState/message");
    let says = if message.starts_with(ANEW) {
        ""
    } else {
        lasting(message)
    };
    let tries = is_at_it(fields) && differs(fields) && wrong(fields).is_none();
    tries.then_some(says)
}

/// Whether it has not come to an end with what it is told to be: an operation goes on or was asked for, or its source is another one since
/// the last look.
pub fn is_pending(fields: &Value) -> bool {
    let asked = fields.get("operation").is_some_and(Value::is_object);
    let works = asked || is_at_it(fields);
    works && differs(fields) || has_another_source(fields)
}

/// When its last sync ended, or began where it goes on, where what it applied is neither up nor called broken: a Deployment whose Pods
/// cannot start is called that after its `progressDeadlineSeconds`, which are ten minutes.
pub fn rolls(fields: &Value) -> Option<OffsetDateTime> {
    let state = |field: &str| text(fields, &format!("/status/operationState/{field}"));
    let at = match state("finishedAt") {
        "" => state("startedAt"),
        ended => ended,
    };
    let is = text(fields, "/status/health/status") == "Progressing";
    parse_rfc3339(at).filter(|_| is)
}

/// Whether it was looked at with another source than it has. Where it has several, the one says nothing (`BuildComparedToStatus`).
fn has_another_source(fields: &Value) -> bool {
    let several = fields.pointer("/spec/sources").filter(|all| !is_empty(all));
    let (name, wanted) = match several {
        Some(all) => ("sources", Some(all)),
        None => ("source", fields.pointer("/spec/source")),
    };
    let seen = fields.pointer("/status/sync/comparedTo");
    let both = wanted.zip(seen);
    both.is_some_and(|(wanted, seen)| !is_same(wanted, seen.get(name).unwrap_or(&Value::Null)))
}

/// Whether they say the same: what is empty, Argo CD leaves out.
fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => one.keys().chain(other.keys()).all(|name| {
            let [one, other] = [one, other].map(|all| all.get(name).unwrap_or(&Value::Null));
            is_same(one, other)
        }),
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => one
            .iter()
            .zip(other)
            .all(|(one, other)| is_same(one, other)),
        _ => one == other || is_empty(one) && is_empty(other),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(all) => all.is_empty(),
        Value::Object(all) => all.values().all(is_empty),
    }
}

fn wrong(fields: &Value) -> Option<(String, String)> {
    let conditions = fields.pointer("/status/conditions");
    let mut conditions = conditions.and_then(Value::as_array).into_iter().flatten();
    conditions.find_map(|c| {
        let kind = text(c, "/type");
        let bad = kind == "ErrorOccurred" && text(c, "/status") == "True";
        let bad = bad || class(kind, "").is_some();
        bad.then(|| (kind.to_owned(), text(c, "/message").to_owned()))
    })
}

/// Also where it will be tried again: with no limit to its tries it never says anything else.
fn failed(fields: &Value) -> Option<(String, String)> {
    let phase = text(fields, "/status/operationState/phase");
    let fails = matches!(phase, "Failed" | "Error") || waits(fields);
    let message = lasting(text(fields, "/status/operationState/message"));
    (fails && differs(fields)).then(|| (SYNC_ERROR.to_owned(), message.to_owned()))
}

fn degraded(fields: &Value) -> Option<(String, String)> {
    let message = text(fields, "/status/health/message");
    let is = text(fields, "/status/health/status") == "Degraded";
    is.then(|| ("HealthCheckFailed".to_owned(), message.to_owned()))
}

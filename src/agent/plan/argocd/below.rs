//! What Applications below the root say of what they brought, and what makes some of them.

use serde_json::Value;

use super::{ANEW, class, differs, is_at_it, lasting, text, waits};

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

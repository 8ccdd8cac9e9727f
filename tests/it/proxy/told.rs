//! What a user is told, whole: each row of the table of errors is compared to the last field.

use ::http::Response;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::{Value, json};

/// Hop, code, reason, what is wrong, what to do, and `Retry-After`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row<'a> {
    pub(super) hop: &'static str,
    pub(super) code: u16,
    pub(super) reason: &'static str,
    pub(super) what: &'a str,
    pub(super) next: &'static str,
    pub(super) after: Option<u32>,
}

/// The `Status` of the request with this id.
pub(super) fn status(id: &str, row: Row<'_>) -> Value {
    let Row {
        hop,
        code,
        reason,
        what,
        next,
        after,
    } = row;
    let kind = match code {
        400 => "BadRequest",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "",
    };
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": format!("{hop}: {what}; {next} (request {id})"),
        "reason": kind,
        "details": {
            "causes": [{"reason": reason, "message": what, "field": hop}],
            "retryAfterSeconds": after.unwrap_or(0),
        },
        "code": code,
    })
}

/// Checks an answer against its row.
pub(super) async fn told(response: Response<Incoming>, row: Row<'_>) {
    let header = |name| {
        let value = response.headers().get(name);
        value.map(|value| value.to_str().unwrap().to_owned())
    };
    let (id, after) = (header("x-request-id").unwrap(), header("retry-after"));
    assert!(!id.is_empty());
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let said: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(said, status(&id, row));
    assert_eq!(after, row.after.map(|after| after.to_string()), "{row:?}");
}

//! What the REST API's writes share: revisions, keys of repeated calls, cursors.

use http::{HeaderMap, HeaderName, header};
use serde::Serialize;

use super::Caller;
use super::problem::{Problem, Slug};
use crate::hub::Hub;
use crate::hub::store::StoreError;
use crate::{clock, keys};

const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// The header that says a record's revision.
pub type Tag = [(HeaderName, String); 1];

pub fn tag(rev: i64) -> Tag {
    [(header::ETAG, format!("\"{rev}\""))]
}

/// That `If-Match` names this revision; `*` is any.
pub fn matches(headers: &HeaderMap, rev: i64, what: &str) -> Result<(), Problem> {
    let Some(wanted) = headers.get(header::IF_MATCH) else {
        return Err(Problem::new(
            Slug::PreconditionRequired,
            format!("changing {what} needs the header If-Match"),
            "send the record's ETag",
        ));
    };
    if wanted == "*" || wanted.as_bytes() == format!("\"{rev}\"").as_bytes() {
        return Ok(());
    }
    Err(Problem::new(
        Slug::PreconditionFailed,
        format!("{what} changed since you looked at it"),
        "look again, then decide",
    ))
}

/// The call's Idempotency-Key, where it has one.
pub fn key(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let Some(key) = headers.get(IDEMPOTENCY_KEY) else {
        return Ok(None);
    };
    let key = key.to_str().unwrap_or_default();
    if key.is_empty() || key.len() > 200 {
        return Err(Problem::new(
            Slug::BadRequest,
            "the Idempotency-Key is not 1 to 200 visible characters",
            "send a UUID",
        ));
    }
    Ok(Some(key))
}

/// Whether this very call came before, by its Idempotency-Key.
pub async fn repeated<T: Serialize>(
    hub: &Hub,
    caller: &Caller,
    headers: &HeaderMap,
    path: &str,
    body: &T,
) -> Result<bool, Problem> {
    let Some(key) = key(headers)? else {
        return Ok(false);
    };
    let mut call = serde_json::to_vec(body).expect("a body has string keys");
    call.extend_from_slice(path.as_bytes());
    let digest = keys::sha256(&call);
    let before = hub
        .store
        .idempotent(&caller.user.id, key, digest, clock::now());
    match before.await? {
        None => Ok(false),
        Some(known) if known == digest => Ok(true),
        Some(_) => Err(Problem::new(
            Slug::IdempotencyMismatch,
            "this Idempotency-Key came with another call before",
            "send a new key",
        )),
    }
}

/// Where what stands under a call's key is not its own.
pub fn taken(error: StoreError) -> Problem {
    match error {
        StoreError::Exists(what) => Problem::new(
            Slug::Exists,
            format!("{what} already exists"),
            "send a new Idempotency-Key",
        ),
        other => other.into(),
    }
}

/// What a list's cursor stands for.
pub fn cursor(text: &str) -> Result<String, Problem> {
    keys::decode(text)
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .ok_or_else(|| {
            Problem::new(
                Slug::BadRequest,
                "the cursor is not one that a list gave",
                "start the list again without a cursor",
            )
        })
}

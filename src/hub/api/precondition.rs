//! What the REST API's writes share: revisions, keys of repeated calls, cursors.

use http::{HeaderMap, HeaderName, header};
use serde::{Deserialize, Serialize};

use super::Caller;
use super::problem::{Problem, Slug};
use crate::hub::Hub;
use crate::hub::store::{Call, StoreError};
use crate::wire::api::Page;
use crate::{clock, keys};

const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// How often a change is tried that others are quicker than.
const TRIES: usize = 5;

/// The header that says a record's revision.
pub type Tag = [(HeaderName, String); 1];

pub fn tag(rev: i64) -> Tag {
    [(header::ETAG, format!("\"{rev}\""))]
}

/// The same of a value that has no revision: by what it is.
pub fn tag_of(value: &str) -> Tag {
    [(header::ETAG, quoted(&hashed(value)))]
}

/// That `If-Match` names this revision; `*` is any. Every PUT, PATCH and DELETE of people asks it.
pub fn matches(headers: &HeaderMap, rev: i64, what: &str) -> Result<(), Problem> {
    matches_tag(headers, &rev.to_string(), what)
}

/// The same of a value that has no revision.
pub fn matches_value(headers: &HeaderMap, value: &str, what: &str) -> Result<(), Problem> {
    matches_tag(headers, &hashed(value), what)
}

/// The same of what never changes, whose `ETag` is its name.
pub fn matches_name(headers: &HeaderMap, name: &str, what: &str) -> Result<(), Problem> {
    matches_tag(headers, name, what)
}

fn hashed(value: &str) -> String {
    keys::encode(&keys::sha256(value.as_bytes()))
}

fn quoted(tag: &str) -> String {
    format!("\"{tag}\"")
}

fn matches_tag(headers: &HeaderMap, tag: &str, what: &str) -> Result<(), Problem> {
    let Some(wanted) = headers.get(header::IF_MATCH) else {
        return Err(Problem::new(
            Slug::PreconditionRequired,
            format!("changing {what} needs the header If-Match"),
            "send the record's ETag, or * for whatever it is now",
        ));
    };
    if wanted == "*" || wanted.as_bytes() == quoted(tag).as_bytes() {
        return Ok(());
    }
    Err(Problem::new(
        Slug::PreconditionFailed,
        format!("{what} changed since you looked at it"),
        "look again, then decide",
    ))
}

/// Looks, judges and writes until nobody was quicker: `attempt` gives None where the record was of another revision when it was
/// to be written. It asks [`matches`] each time, so that a call that names a revision is refused at its second look; only `*`
/// goes on with what is there by then.
///
/// What `attempt` put on record before it found out that somebody was quicker, or that it is refused, is followed by the record
/// that it was not made.
pub async fn written<T, W>(
    (hub, caller): (&Hub, &Caller),
    what: &str,
    attempt: impl Fn() -> W,
) -> Result<T, Problem>
where
    W: Future<Output = Result<Option<T>, Problem>>,
{
    for _ in 0..TRIES {
        if let Some(done) = caller.outcome(hub, attempt().await).await? {
            return Ok(done);
        }
        caller.lost(hub).await?;
    }
    Err(Problem::new(
        Slug::PreconditionFailed,
        format!("others change {what} at the same time"),
        "try again",
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
    let Some(call) = call(caller, headers, path, body)? else {
        return Ok(false);
    };
    let before = hub
        .store
        .idempotent(&call.user_id, &call.key, call.digest, clock::now());
    match before.await.map_err(not_noted)? {
        None => Ok(false),
        Some(known) if known == call.digest => Ok(true),
        Some(_) => Err(mismatch()),
    }
}

/// What a call is known by when it comes again, where it has a key.
pub fn call<T: Serialize>(
    caller: &Caller,
    headers: &HeaderMap,
    path: &str,
    body: &T,
) -> Result<Option<Call>, Problem> {
    let Some(key) = key(headers)? else {
        return Ok(None);
    };
    let mut text = serde_json::to_vec(body).expect("a body has string keys");
    text.extend_from_slice(path.as_bytes());
    Ok(Some(Call {
        user_id: caller.user.id.clone(),
        key: key.to_owned(),
        digest: keys::sha256(&text),
    }))
}

/// Where a call could not be noted under its key.
pub fn not_noted(error: StoreError) -> Problem {
    match error {
        StoreError::Full(what) => Problem::new(
            Slug::Full,
            what,
            "send it without the header Idempotency-Key, or later",
        ),
        other => other.into(),
    }
}

/// Another call under the same key.
pub fn mismatch() -> Problem {
    Problem::new(
        Slug::IdempotencyMismatch,
        "this Idempotency-Key came with another call before",
        "send a new key",
    )
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

/// The most of a list in one answer, and what comes where nothing is said.
pub const MAX_PAGE: u32 = 500;

/// Which part of a list.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Part {
    pub limit: Option<u32>,
    pub cursor: Option<String>,
}

/// That part of a list which is read as a whole, in the order of `key`, which each has for itself.
pub fn page<T>(
    mut items: Vec<T>,
    part: &Part,
    key: impl Fn(&T) -> String,
) -> Result<Page<T>, Problem> {
    let after = part.cursor.as_deref().map(cursor).transpose()?;
    let limit = part.limit.unwrap_or(MAX_PAGE).clamp(1, MAX_PAGE) as usize;
    items.sort_by_cached_key(&key);
    items.retain(|item| after.as_ref().is_none_or(|after| key(item) > *after));
    let more = items.len() > limit;
    items.truncate(limit);
    let last = items.last().filter(|_| more);
    let cursor = last.map(|item| keys::encode(key(item).as_bytes()));
    Ok(Page { items, cursor })
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

#[cfg(test)]
mod tests {
    use super::*;

    /// H57
    #[test]
    fn a_revision_is_asked_for_and_compared() {
        let told = |tag: Option<&str>| {
            let mut headers = HeaderMap::new();
            if let Some(tag) = tag {
                headers.insert(header::IF_MATCH, tag.parse().unwrap());
            }
            matches(&headers, 7, "it").map_err(|problem| problem.slug)
        };
        assert_eq!(told(None), Err(Slug::PreconditionRequired));
        for stale in ["\"6\"", "7", "\"77\"", "", "W/\"7\""] {
            assert_eq!(told(Some(stale)), Err(Slug::PreconditionFailed), "{stale}");
        }
        assert_eq!((told(Some("\"7\"")), told(Some("*"))), (Ok(()), Ok(())));
    }

    #[test]
    fn a_list_is_read_page_by_page_to_its_end() {
        let all: Vec<String> = (0..1_001).map(|n| format!("{n:04}")).collect();
        let mut shuffled = all.clone();
        shuffled.reverse();
        for limit in [None, Some(1), Some(7), Some(500), Some(9_999)] {
            let (mut read, mut cursor, mut most) = (Vec::new(), None, 0);
            loop {
                let part = Part { limit, cursor };
                let page = page(shuffled.clone(), &part, String::clone).unwrap();
                most = most.max(page.items.len());
                read.extend(page.items);
                cursor = page.cursor;
                if cursor.is_none() {
                    break;
                }
            }
            assert_eq!(read, all);
            assert_eq!(most, limit.unwrap_or(500).min(500) as usize);
        }
        let part = Part {
            limit: None,
            cursor: Some("not one".to_owned()),
        };
        let refused = page(shuffled, &part, String::clone);
        assert_eq!(refused.unwrap_err().slug, Slug::BadRequest);
    }
}

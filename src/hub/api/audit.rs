//! Reading the audit. Without `after` the newest records come first; reading is itself granted and on record.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::{Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use serde::Deserialize;
use uuid::Uuid;

use super::precondition::MAX_PAGE;
use super::problem::{Problem, Slug};
use super::{Caller, precondition};
use crate::clock;
use crate::hub::Hub;
use crate::hub::audit::{AuditError, chain};
use crate::hub::auth::Role;
use crate::hub::store::{AuditQuery, AuditRow, OfRequest, patience};
use crate::keys;
use crate::wire::api::{AnchorView, AuditView, Page};
use following::{SEARCH, next, search};

mod following;
mod narrow;

const DEFAULT_LIMIT: u32 = 100;
/// Of one page, as stored. JSON may write a byte of it as six, and who asks takes no more than 16 MiB.
const PAGE_BYTES: usize = 2 << 20;
/// The longest that a call waits for the next record.
const MAX_WAIT: u64 = 25;
/// Someone who reads on and on is on record this often.
const AGAIN: Duration = Duration::from_mins(1);
const READERS: usize = 1_000;
/// Bytes of a name that is asked for: no user, agent or cluster has a longer one. What is asked for is on record.
const MAX_NAME: usize = 256;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Wanted {
    /// A user's name, or an actor: `user:…`, `agent:…`, `hub`, `anyone`.
    user: Option<String>,
    cluster: Option<String>,
    verdict: Option<String>,
    /// `open`, `close`, `event`, several with commas between.
    stage: Option<String>,
    /// `kube.exec`, `kube.*`, several with commas between.
    action: Option<String>,
    /// Of Kubernetes requests, as their paths name it.
    namespace: Option<String>,
    /// RFC 3339.
    since: Option<String>,
    until: Option<String>,
    /// The id of a request, as its answer's `x-request-id` has it, and every refusal.
    request: Option<String>,
    limit: Option<u32>,
    /// With it records come in order, those behind this `seq`: what an export reads.
    after: Option<i64>,
    /// With `after`: seconds to wait where there is none yet. The answer has a cursor then, be there records in it or not.
    wait: Option<u64>,
    cursor: Option<String>,
}

/// Who has read lately, by what question.
#[derive(Default)]
pub struct Readers {
    last: Mutex<HashMap<String, Instant>>,
    /// Whoever puts a reading on record.
    turn: tokio::sync::Mutex<()>,
}

impl Readers {
    /// Whether this reading is not on record yet.
    fn is_new(&self, reading: &str, now: Instant) -> bool {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.get(reading)
            .is_none_or(|at| now.duration_since(*at) >= AGAIN)
    }

    /// It is by now.
    fn recorded(&self, reading: String, now: Instant) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.len() >= READERS {
            last.retain(|_, at| now.duration_since(*at) < AGAIN);
        }
        // A flood of different questions is on record one by one.
        if last.len() < READERS {
            last.insert(reading, now);
        }
    }
}

pub fn routes() -> Router<Arc<Hub>> {
    Router::new()
        .route("/v1/audit", get(list))
        .route("/v1/audit/chain", get(lines))
        .route("/v1/audit/anchors", get(anchors))
}

async fn list(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    Query(wanted): Query<Wanted>,
) -> Result<Json<Page<AuditView>>, Problem> {
    caller.require(&hub, Role::Auditor, "audit.read").await?;
    let mut query = query(&wanted)?;
    on_record(&hub, &caller, wanted.cluster.as_deref(), &described(&query)).await?;
    let follows = wanted.wait.filter(|_| !query.newest);
    let (mut rows, looked) = if let Some(wait) = follows {
        next(&hub, &mut query, Duration::from_secs(wait.min(MAX_WAIT))).await?
    } else {
        let page = search(&hub, &mut query, SEARCH).await?;
        (page.rows, page.looked)
    };
    let fit = fitting(&rows);
    let whole = fit == rows.len();
    rows.truncate(fit);
    let last = rows.last().map(|row| row.seq);
    let last = match follows {
        Some(_) => last.or(looked),
        None if whole && fit < query.limit as usize => looked,
        None => last,
    };
    let order = if query.newest { 'n' } else { 'o' };
    let cursor = last.map(|seq| keys::encode(format!("{order}{seq}").as_bytes()));
    let items = rows.iter().map(chain::view).collect();
    Ok(Json(Page { items, cursor }))
}

/// How many of these records make a page: the first one whatever its length.
fn fitting(rows: &[AuditRow]) -> usize {
    let mut bytes = 0;
    let beyond = rows.iter().position(|row| {
        let optional = [
            &row.acted_as,
            &row.cluster,
            &row.container,
            &row.command,
            &row.ports,
            &row.reason,
        ];
        let optional: usize = optional.into_iter().flatten().map(String::len).sum();
        bytes += optional + row.target.len() + row.actor.len() + row.request_id.len();
        bytes > PAGE_BYTES
    });
    beyond.map_or(rows.len(), |at| at.max(1))
}

/// Reading is on record itself, once in a while for the same question.
#[expect(
    clippy::await_holding_invalid_type,
    reason = "nobody reads before the reading is on record, and it is put there once"
)]
pub(super) async fn on_record(
    hub: &Hub,
    caller: &Caller,
    cluster: Option<&str>,
    asked: &str,
) -> Result<(), Problem> {
    let (reading, now) = (format!("{} {asked}", caller.user.name), Instant::now());
    if !hub.audit_readers.is_new(&reading, now) {
        return Ok(());
    }
    // Who verifies the chain asks for several pages at once: the first is on record, and the others wait until it is.
    let turn = patience::as_caller(hub.audit_readers.turn.lock()).await;
    let _turn = turn.ok_or(AuditError)?;
    if hub.audit_readers.is_new(&reading, now) {
        caller.record(hub, "audit.read", cluster, asked).await?;
        // Not before: where that fails, who asks again is refused again.
        hub.audit_readers.recorded(reading, now);
    }
    Ok(())
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Behind {
    /// Behind this `seq`.
    #[serde(default)]
    after: i64,
    limit: Option<u32>,
}

/// The chain as it is stored, for whoever verifies it: each line is number, `prev`, hash and what was hashed behind `prev`.
async fn lines(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    Query(behind): Query<Behind>,
) -> Result<impl IntoResponse, Problem> {
    caller.require(&hub, Role::Auditor, "audit.read").await?;
    on_record(&hub, &caller, None, "all").await?;
    let limit = behind.limit.unwrap_or(MAX_PAGE).clamp(1, MAX_PAGE);
    let lines = hub.store.audit_lines(behind.after, limit).await?;
    Ok(([(CONTENT_TYPE, "text/plain; charset=utf-8")], lines))
}

fn query(wanted: &Wanted) -> Result<AuditQuery, Problem> {
    let bad = |what: &str, next: &str| Problem::new(Slug::BadRequest, what, next);
    let time = |text: &Option<String>| -> Result<Option<i64>, Problem> {
        let Some(text) = text else { return Ok(None) };
        let at = clock::parse_rfc3339(text)
            .ok_or_else(|| bad("a time is not RFC 3339", "write it as 2026-11-21T08:00:00Z"))?;
        Ok(i64::try_from(at.unix_timestamp_nanos() / 1_000_000).ok())
    };
    let mut names = [&wanted.user, &wanted.cluster].into_iter().flatten();
    if names.any(|name| name.len() > MAX_NAME) {
        return Err(bad(
            "a user's or cluster's name has more than 256 bytes",
            "nobody has such a name: correct it",
        ));
    }
    let mut query = AuditQuery {
        after: wanted.after,
        before: None,
        actor: wanted.user.as_deref().map(actor),
        cluster: wanted.cluster.clone(),
        verdict: wanted.verdict.clone(),
        stages: narrow::stages(wanted.stage.as_deref())?,
        actions: narrow::actions(wanted.action.as_deref())?,
        namespace: narrow::namespace(wanted.namespace.as_deref())?,
        request: wanted.request.as_deref().map(of_request).transpose()?,
        since: time(&wanted.since)?,
        until: time(&wanted.until)?,
        newest: wanted.after.is_none(),
        limit: wanted.limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_PAGE),
    };
    if query
        .verdict
        .as_deref()
        .is_some_and(|v| !matches!(v, "allow" | "deny"))
    {
        return Err(bad("a verdict is allow or deny", "correct it"));
    }
    if let Some(text) = &wanted.cursor {
        let cursor = precondition::cursor(text)?;
        let seq = cursor.get(1..).and_then(|seq| seq.parse().ok());
        let seq: i64 =
            seq.ok_or_else(|| bad("the cursor is not one that a list gave", "start again"))?;
        query.newest = cursor.starts_with('n');
        if query.newest {
            query.before = Some(seq);
        } else {
            query.after = Some(seq);
        }
    }
    Ok(query)
}

/// Whom a name means: an actor as records have it, else a user, whose name may have colons (`--oidc-username-prefix`). One that reads
/// like an actor is asked for as `user:NAME`.
fn actor(name: &str) -> String {
    let kinds = ["user:", "agent:"];
    if matches!(name, "hub" | "anyone") || kinds.iter().any(|kind| name.starts_with(kind)) {
        return name.to_owned();
    }
    format!("user:{name}")
}

/// The hub makes ids that say when, by the clock that dates its records.
fn of_request(id: &str) -> Result<OfRequest, Problem> {
    /// That clock may be set back in between.
    const SLACK: i64 = 60_000;
    let parsed = Uuid::try_parse(id).ok();
    let parsed = parsed.filter(|id| id.get_version_num() == 7);
    let parsed = parsed.ok_or_else(|| {
        Problem::new(
            Slug::BadRequest,
            format!("'{}' is not the id of a request", crate::hub::cut(id, 60)),
            "give the UUID that stands behind 'request' in the refusal, or in the answer's header x-request-id",
        )
    })?;
    // RFC 9562: the first 48 bits are Unix milliseconds.
    let made = i64::try_from(parsed.as_u128() >> 80).unwrap_or(i64::MAX);
    Ok(OfRequest {
        id: parsed.to_string(),
        from: made - SLACK,
    })
}

/// What was asked for, without the place in the list.
fn described(query: &AuditQuery) -> String {
    let at = |ms: i64| {
        clock::rfc3339(time::OffsetDateTime::UNIX_EPOCH + time::Duration::milliseconds(ms))
    };
    let one_of = |words: &[String]| (!words.is_empty()).then(|| words.join(","));
    let words = [
        ("by", query.actor.clone()),
        ("cluster", query.cluster.clone()),
        ("verdict", query.verdict.clone()),
        ("stage", one_of(&query.stages)),
        ("action", narrow::shown(&query.actions)),
        ("namespace", query.namespace.clone()),
        ("request", query.request.as_ref().map(|r| r.id.clone())),
        ("since", query.since.map(at)),
        ("until", query.until.map(at)),
    ];
    let words: Vec<String> = words
        .into_iter()
        .filter_map(|(key, value)| Some(format!("{key} {}", value?)))
        .collect();
    if words.is_empty() {
        "all".to_owned()
    } else {
        words.join(", ")
    }
}

async fn anchors(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    Query(part): Query<precondition::Part>,
) -> Result<Json<Page<AnchorView>>, Problem> {
    caller.require(&hub, Role::Auditor, "audit.read").await?;
    let known: Vec<_> = hub
        .says()
        .keys
        .all()
        .iter()
        .filter_map(|key| keys::Public::from_base64(key).ok())
        .collect();
    let anchors = hub.store.audit_anchors().await?;
    let anchors = precondition::page(anchors, &part, |anchor| format!("{:020}", anchor.seq))?;
    let view = |anchor: crate::hub::store::Anchor| AnchorView {
        seq: anchor.seq,
        hash: keys::hex(&anchor.hash),
        at: anchor.at,
        sig: keys::encode(&anchor.sig),
        start: anchor.start,
        // One that nobody signed is shown as the present key's, which it will not verify by.
        key: chain::signer(&hub.id, &anchor, &known)
            .unwrap_or_else(|| hub.says().keys.public())
            .to_base64(),
    };
    Ok(Json(Page {
        items: anchors.items.into_iter().map(view).collect(),
        cursor: anchors.cursor,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_nobody_has_is_neither_looked_for_nor_kept() {
        let asked = |user: usize, cluster: usize| {
            let name = |bytes| Some("x".repeat(bytes));
            let wanted = Wanted {
                user: name(user),
                cluster: name(cluster),
                ..Wanted::default()
            };
            query(&wanted).map(drop).map_err(|problem| problem.slug)
        };
        assert_eq!(asked(MAX_NAME, MAX_NAME), Ok(()));
        let refused = Err(Slug::BadRequest);
        assert_eq!(asked(MAX_NAME + 1, 1), refused);
        assert_eq!(asked(1, MAX_NAME + 1), refused);
    }
}

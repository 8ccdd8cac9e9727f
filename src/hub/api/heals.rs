//! Heals, newest first, and the end of one by hand.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use uuid::Uuid;

use super::problem::{Problem, Slug};
use super::{Caller, UserBody, audit, clusters};
use crate::clock;
use crate::heal::{AGENT_LOST, DUPLICATE_AGENT};
use crate::hub::auth::Role;
use crate::hub::git::{self, Made};
use crate::hub::store::StoreError;
use crate::hub::story::through::Object;
use crate::hub::{Hub, story};
use crate::wire::api::{HealCloseRequest, HealView, HubWrite, Page};
use crate::wire::id::ClusterName;
use crate::wire::report::{HealRecord, HealResult};

const DEFAULT_LIMIT: u32 = 100;
const MAX_LIMIT: u32 = 500;
/// Of one page, in JSON. Who asks takes no more than 16 MiB.
const PAGE_BYTES: usize = 4 << 20;
const MAX_REASON: usize = 200;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Wanted {
    cluster: Option<ClusterName>,
    /// Those alone that are not over, in clusters that were not removed.
    open: bool,
    /// RFC 3339: those that began from then on, and before then.
    since: Option<String>,
    until: Option<String>,
    limit: Option<u32>,
    /// The id of the last heal on the page before.
    cursor: Option<String>,
}

pub fn routes() -> Router<Arc<Hub>> {
    Router::new()
        .route("/v1/heals", get(list))
        .route("/v1/heals/{id}", get(show))
        .route("/v1/heals/{id}/close", post(close))
        .route("/v1/clusters/{name}/heals", get(of_cluster))
}

async fn list(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    Query(wanted): Query<Wanted>,
) -> Result<Json<Page<HealView>>, Problem> {
    caller.require(&hub, Role::Viewer, "heal.list").await?;
    page(&hub, wanted).await.map(Json)
}

async fn of_cluster(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    Path(name): Path<ClusterName>,
    Query(wanted): Query<Wanted>,
) -> Result<Json<Page<HealView>>, Problem> {
    caller.require(&hub, Role::Viewer, "heal.list").await?;
    let cluster = Some(name);
    page(&hub, Wanted { cluster, ..wanted }).await.map(Json)
}

async fn show(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<HealView>, Problem> {
    caller.require(&hub, Role::Viewer, "heal.show").await?;
    let found = find(&hub, &id).await?;
    let through_hub = writes(&hub, &caller, &found).await;
    let told = whole(&hub, found).await;
    Ok(Json(HealView {
        through_hub,
        ..told
    }))
}

/// Who wrote to the heal's object through the hub shortly before, for who may read the audit. Where that cannot be read, the heal is
/// told without it.
async fn writes(
    hub: &Hub,
    caller: &Caller,
    (cluster, heal): &(ClusterName, HealRecord),
) -> Option<Vec<HubWrite>> {
    if !caller.user.is(Role::Auditor) {
        return None;
    }
    let object = Object::of(heal)?;
    let asked = object.asked(cluster.as_str(), heal)?;
    let read = async {
        let what = format!("writes to {} before heal {}", heal.object, heal.id);
        audit::on_record(hub, caller, Some(cluster.as_str()), &what).await?;
        Ok::<_, Problem>(hub.store.audit_writes(&asked).await?)
    };
    match read.await {
        Ok(rows) => Some(object.writes(rows)),
        Err(problem) => {
            let error = problem.detail;
            tracing::warn!(
                heal = heal.id,
                error,
                "who wrote to it is not read from the audit"
            );
            None
        }
    }
}

/// Ends a heal whose end no agent will tell any more. One that is over is left as it is.
async fn close(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    Path(id): Path<String>,
    UserBody(asked): UserBody<HealCloseRequest>,
) -> Result<Json<HealView>, Problem> {
    caller.require(&hub, Role::Operator, "heal.close").await?;
    let reason = reason(&asked)?;
    let (cluster, heal) = find(&hub, &id).await?;
    let (target, name) = (format!("{id}: {reason}"), cluster.as_str());
    if is_open(&heal) {
        caller
            .record(&hub, "heal.close", Some(name), &target)
            .await?;
        let closed = closed(heal, &caller.user.name, reason);
        hub.store.close_heal(closed, clock::now()).await?;
    }
    let now = find(&hub, &id).await?;
    Ok(Json(whole(&hub, now).await))
}

/// Closes that the agent of a cluster is not heard, where that is open: it was revoked, and nobody waits for it.
pub(super) async fn close_silence(
    hub: &Hub,
    cluster: &ClusterName,
    by: &str,
    reason: &str,
) -> Result<(), StoreError> {
    let silent = hub.store.last_unrestored(AGENT_LOST).await?;
    let own = |(of, heal): &(ClusterName, HealRecord)| of == cluster && is_open(heal);
    for (_, heal) in silent.into_iter().filter(own) {
        let closed = closed(heal, by, reason);
        hub.store.close_heal(closed, clock::now()).await?;
    }
    Ok(())
}

fn closed(heal: HealRecord, by: &str, reason: &str) -> HealRecord {
    HealRecord {
        result: HealResult::Failed,
        next: format!("nothing{}; closed by {by}: {reason}", until(&heal.class)),
        ..heal
    }
}

/// How long what is closed stays so: another heal tells of what is found anew.
fn until(class: &str) -> &'static str {
    match class {
        AGENT_LOST => " until the agent is heard and lost again",
        DUPLICATE_AGENT => " until three more takeovers are seen within ten minutes",
        _ => "",
    }
}

/// Whether more is to be told of it.
fn is_open(heal: &HealRecord) -> bool {
    match heal.result {
        HealResult::Open | HealResult::Reported => heal.restored_at.is_none(),
        HealResult::Healed | HealResult::Failed => false,
    }
}

fn reason(asked: &HealCloseRequest) -> Result<&str, Problem> {
    let reason = asked.reason.trim();
    let fits = reason.chars().count() <= MAX_REASON && !reason.chars().any(char::is_control);
    if reason.is_empty() || !fits {
        let what = "a heal is closed with a reason of one line, at most 200 characters";
        let next = "say in a few words why";
        return Err(Problem::new(Slug::BadRequest, what.to_owned(), next));
    }
    Ok(reason)
}

async fn find(hub: &Hub, id: &str) -> Result<(ClusterName, HealRecord), Problem> {
    let found = hub.store.heal(id).await?;
    found.ok_or_else(|| Problem::not_found(&format!("heal {id}")))
}

/// With its story.
async fn whole(hub: &Hub, found: (ClusterName, HealRecord)) -> HealView {
    let (cluster, heal) = found;
    let made = made(hub, story::commits(&heal)).await;
    story::told(story::view(cluster, heal, &made), &made)
}

/// With the authors of the commits that brought what was wrong.
async fn views(hub: &Hub, rows: Vec<(ClusterName, HealRecord)>) -> Vec<HealView> {
    let ids = rows
        .iter()
        .filter_map(|(_, heal)| story::commit_id(&heal.commit));
    let made = made(hub, ids).await;
    let all = rows.into_iter();
    all.map(|(cluster, heal)| story::view(cluster, heal, &made))
        .collect()
}

/// What the catalog has of these commits. One that cannot be read hides no heal.
async fn made(hub: &Hub, ids: impl Iterator<Item = &str>) -> BTreeMap<String, Made> {
    let ids: BTreeSet<String> = ids.map(str::to_owned).collect();
    if ids.is_empty() {
        return BTreeMap::new();
    }
    git::authors(&hub.catalog.repo, ids)
        .await
        .unwrap_or_else(|error| {
            let error = format!("{error:#}");
            tracing::warn!(error, "authors of commits not read from the catalog");
            BTreeMap::new()
        })
}

async fn page(hub: &Hub, wanted: Wanted) -> Result<Page<HealView>, Problem> {
    let cluster = match &wanted.cluster {
        Some(name) => Some(clusters::find(hub, name.as_str()).await?.id),
        None => None,
    };
    let limit = wanted.limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_LIMIT);
    let since = wanted.since.as_deref().map(first_of).transpose()?;
    let until = wanted.until.as_deref().map(first_of).transpose()?;
    let before = [wanted.cursor, until].into_iter().flatten().min();
    let (of, before) = (cluster.as_deref(), before.as_deref());
    let mut rows: Vec<(ClusterName, HealRecord)> = if wanted.open {
        hub.store.heals_not_over(of, before, limit).await?
    } else {
        hub.store.heals(of, before, limit).await?
    };
    let full = rows.len() == limit as usize;
    let young = rows
        .iter()
        .take_while(|(_, heal)| since.as_ref().is_none_or(|since| heal.id >= *since));
    let young = young.count();
    let full = full && young == rows.len();
    rows.truncate(young);
    let fit = fitting(&rows);
    let more = fit < rows.len() || full;
    rows.truncate(fit);
    let cursor = rows.last().filter(|_| more).map(|(_, h)| h.id.clone());
    Ok(Page {
        items: views(hub, rows).await,
        cursor,
    })
}

/// The least id that a heal of that time may have: heals have ids by when they began (UUIDv7).
fn first_of(time: &str) -> Result<String, Problem> {
    let at = clock::parse_rfc3339(time).ok_or_else(|| {
        let next = "write it as 2026-11-21T08:00:00Z";
        Problem::new(Slug::BadRequest, "a time is not RFC 3339", next)
    })?;
    let millis = u64::try_from(at.unix_timestamp_nanos() / 1_000_000).unwrap_or_default();
    Ok(Uuid::from_u128(u128::from(millis) << 80).to_string())
}

/// How many of these heals make a page: the first one whatever its length.
fn fitting(rows: &[(ClusterName, HealRecord)]) -> usize {
    let mut bytes = 0;
    let beyond = rows.iter().position(|(_, heal)| {
        bytes += serde_json::to_vec(heal).map_or(0, |json| json.len());
        bytes > PAGE_BYTES
    });
    beyond.map_or(rows.len(), |at| at.max(1))
}

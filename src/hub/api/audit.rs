//! Reading the audit. The newest records come first; a cursor leads to older ones.

use std::sync::Arc;

use axum::extract::{Query, State};
use axum::routing::get;
use axum::{Json, Router};
use serde::Deserialize;
use time::{Duration, OffsetDateTime};

use super::Caller;
use super::problem::Problem;
use crate::clock;
use crate::hub::Hub;
use crate::hub::auth::Role;
use crate::hub::store::AuditRow;
use crate::keys;
use crate::wire::api::{AuditView, Page};

const DEFAULT_LIMIT: u32 = 100;
const MAX_LIMIT: u32 = 500;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Wanted {
    cluster: Option<String>,
    limit: Option<u32>,
    /// With it records come in order, those behind this `seq`: what an export reads.
    #[serde(alias = "cursor")]
    after: Option<i64>,
}

pub fn routes() -> Router<Arc<Hub>> {
    Router::new().route("/v1/audit", get(list))
}

async fn list(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    Query(wanted): Query<Wanted>,
) -> Result<Json<Page<AuditView>>, Problem> {
    caller.require(&hub, Role::Auditor, "audit.list").await?;
    let limit = wanted.limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_LIMIT);
    let cluster = wanted.cluster.as_deref();
    let rows = if let Some(after) = wanted.after {
        hub.store.audit(after, cluster, limit).await?
    } else {
        let mut rows = hub.store.audit_tail(cluster, limit).await?;
        rows.reverse();
        rows
    };
    let full = rows.len() == limit as usize && wanted.after.is_some();
    let cursor = rows.last().filter(|_| full).map(|r| r.seq.to_string());
    Ok(Json(Page {
        items: rows.into_iter().map(view).collect(),
        cursor,
    }))
}

fn view(row: AuditRow) -> AuditView {
    let at = OffsetDateTime::UNIX_EPOCH + Duration::milliseconds(row.at);
    AuditView {
        seq: row.seq,
        at: clock::rfc3339(at),
        stage: row.stage,
        actor: row.actor,
        action: row.action,
        cluster: row.cluster,
        target: row.target,
        request_id: row.request_id,
        verdict: row.verdict,
        reason: row.reason,
        code: row.code,
        bytes: row.bytes,
        millis: row.millis,
        remote: row.remote,
        prev: keys::hex(&row.prev),
        hash: keys::hex(&row.hash),
    }
}

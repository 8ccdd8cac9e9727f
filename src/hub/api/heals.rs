//! Heals, newest first.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::routing::get;
use axum::{Json, Router};
use serde::Deserialize;

use super::Caller;
use super::problem::Problem;
use crate::hub::auth::Role;
use crate::hub::{Hub, git, story};
use crate::wire::api::{HealView, Page};
use crate::wire::id::ClusterName;
use crate::wire::report::HealRecord;

const DEFAULT_LIMIT: u32 = 100;
const MAX_LIMIT: u32 = 500;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Wanted {
    cluster: Option<ClusterName>,
    limit: Option<u32>,
    /// The id of the last heal on the page before.
    cursor: Option<String>,
}

pub fn routes() -> Router<Arc<Hub>> {
    Router::new()
        .route("/v1/heals", get(list))
        .route("/v1/heals/{id}", get(show))
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
    let found = hub.store.heal(&id).await?;
    let found = found.ok_or_else(|| Problem::not_found(&format!("heal {id}")))?;
    let mut views = views(&hub, vec![found]).await;
    let view = views.pop().expect("one heal makes one view");
    Ok(Json(story::told(view)))
}

/// With the authors of the commits that brought what was wrong. A catalog that cannot be read hides no heal.
async fn views(hub: &Hub, rows: Vec<(ClusterName, HealRecord)>) -> Vec<HealView> {
    let ids = rows
        .iter()
        .filter_map(|(_, heal)| story::commit_id(&heal.commit));
    let ids: BTreeSet<String> = ids.map(str::to_owned).collect();
    let made = if ids.is_empty() {
        BTreeMap::new()
    } else {
        git::authors(&hub.catalog.repo, ids)
            .await
            .unwrap_or_else(|error| {
                let error = format!("{error:#}");
                tracing::warn!(error, "authors of commits not read from the catalog");
                BTreeMap::new()
            })
    };
    let view = |(cluster, heal): (ClusterName, HealRecord)| {
        let by = story::commit_id(&heal.commit).and_then(|id| made.get(id));
        story::view(cluster, heal, by)
    };
    rows.into_iter().map(view).collect()
}

async fn page(hub: &Hub, wanted: Wanted) -> Result<Page<HealView>, Problem> {
    let cluster = match &wanted.cluster {
        Some(name) => {
            let found = hub.store.cluster(name).await?;
            let missing = || Problem::not_found(&format!("cluster {name}"));
            Some(found.ok_or_else(missing)?.id)
        }
        None => None,
    };
    let limit = wanted.limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_LIMIT);
    let rows: Vec<(ClusterName, HealRecord)> = hub
        .store
        .heals(cluster.as_deref(), wanted.cursor.as_deref(), limit)
        .await?;
    let full = rows.len() == limit as usize;
    let cursor = rows.last().filter(|_| full).map(|(_, h)| h.id.clone());
    Ok(Page {
        items: views(hub, rows).await,
        cursor,
    })
}

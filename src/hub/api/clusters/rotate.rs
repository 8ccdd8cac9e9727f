//! Keys of a cluster that it shall replace: named by an operator, or too old.

use std::sync::Arc;

use anyhow::Result;
use axum::Json;
use axum::extract::{Path, State};
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

use super::super::problem::{Problem, Slug};
use super::super::{Caller, UserBody};
use super::{find, pause};
use crate::clock;
use crate::hub::auth::Role;
use crate::hub::store::KeyKind;
use crate::hub::{Hub, assignment};
use crate::wire::api::{RotateRequest, RotateWish};

/// Between looks at the age of keys.
const LOOK: std::time::Duration = std::time::Duration::from_mins(10);

/// Names the present keys, and lets the agent replace them now.
pub(super) async fn ask(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    Path(name): Path<String>,
    UserBody(asked): UserBody<RotateRequest>,
) -> Result<Json<RotateWish>, Problem> {
    caller
        .require(&hub, Role::Operator, "cluster.rotate")
        .await?;
    let kinds = [
        (asked.deploy_key, KeyKind::Deploy),
        (asked.identity, KeyKind::Identity),
    ];
    let kinds: Vec<KeyKind> = kinds
        .iter()
        .filter(|(is, _)| *is)
        .map(|(_, k)| *k)
        .collect();
    if kinds.is_empty() {
        let next = "say deployKey, identity, or both";
        return Err(Problem::new(Slug::BadRequest, "no key is named", next));
    }
    let cluster = find(&hub, &name).await?;
    let words: Vec<&str> = kinds.iter().map(|k| k.as_str()).collect();
    caller
        .record(&hub, "cluster.rotate", Some(&name), &words.join(" "))
        .await?;
    let mut wish = RotateWish::default();
    for kind in kinds {
        let key = ask_for(&hub, &cluster.id, kind, clock::now()).await?;
        let Some(fingerprint) = key else {
            let text = format!("cluster {name} has no {} key in force", kind.as_str());
            let next = format!("wait until it has joined; see: linesman cluster show {name}");
            let refused = Err(Problem::new(Slug::NotFound, text, next));
            // Where the other key is asked for by now, it is made in part.
            return if wish == RotateWish::default() {
                caller.outcome(&hub, refused).await
            } else {
                refused
            };
        };
        match kind {
            KeyKind::Deploy => wish.deploy_key = Some(fingerprint),
            KeyKind::Identity => wish.identity = Some(fingerprint),
        }
    }
    pause::announce(&hub, &cluster).await?;
    Ok(Json(wish))
}

async fn ask_for(
    hub: &Hub,
    cluster_id: &str,
    kind: KeyKind,
    now: OffsetDateTime,
) -> Result<Option<String>, Problem> {
    let key = hub.store.ask_to_replace(cluster_id, kind, now).await?;
    Ok(key.map(|key| key.fingerprint))
}

/// Tells the agents that listen when a key of theirs has become too old. Those that do not listen now hear it when
/// they begin to.
pub async fn announce_old(hub: Arc<Hub>, stop: CancellationToken) -> Result<()> {
    let look = || stop.run_until_cancelled(tokio::time::sleep(LOOK));
    while look().await.is_some() {
        announce_changed(&hub).await;
    }
    Ok(())
}

/// Tells each agent that listens and whose assignment is another than it was last.
pub async fn announce_changed(hub: &Hub) {
    for name in hub.orders.listening() {
        let told = async {
            if let Some(cluster) = hub.store.cluster(&name).await?
                && assignment::of(hub, &cluster).await?.revision != cluster.assignment_revision
            {
                pause::announce(hub, &cluster).await?;
            }
            Ok::<(), Problem>(())
        };
        if let Err(problem) = told.await {
            tracing::error!(cluster = %name, error = problem.detail, "tell of a changed assignment");
        }
    }
}

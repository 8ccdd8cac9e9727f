//! A cluster whose keys count for nothing any more. Record, history and grants stay, and so does what the agent does alone.

use std::sync::Arc;

use anyhow::Context as _;
use axum::Json;
use axum::extract::{Path, State};
use time::OffsetDateTime;

use super::super::problem::{Problem, Slug};
use super::super::{Caller, UserBody, heals};
use super::{find, pause};
use crate::clock;
use crate::hub::auth::Role;
use crate::hub::store::{Cluster, KeyKind, patience};
use crate::hub::{Hub, chain_of, registration};
use crate::wire::api::{Revocation, RevokeRequest};
use crate::wire::frame::Code;
use crate::wire::id::ClusterName;
use crate::wire::report::{Condition, ConditionType, Status};

pub(super) async fn revoke(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    Path(name): Path<String>,
    UserBody(asked): UserBody<RevokeRequest>,
) -> Result<Json<Revocation>, Problem> {
    caller
        .require(&hub, Role::Operator, "cluster.revoke")
        .await?;
    let reason = asked.reason.trim().to_owned();
    if !reason.is_empty() && !pause::is_one_line(&reason) {
        return Err(Problem::new(
            Slug::BadRequest,
            "a reason is one line of at most 200 characters",
            "say in a few words why",
        ));
    }
    let cluster = find(&hub, &name).await?;
    let keys = hub.store.cluster_keys(&cluster.id).await?;
    if !keys.iter().any(|k| k.kind == KeyKind::Identity) {
        let text = format!("cluster {name} has not joined: there is no key to revoke");
        let next = format!(
            "its unused join token ends with: linesman cluster readopt {name}, or linesman cluster remove {name}"
        );
        return Err(Problem::new(Slug::NotFound, text, next));
    }
    if registration::is_revoked(&keys) {
        return Ok(Json(revocation(&cluster, Vec::new(), true)));
    }
    // What was begun is finished, although the caller went away.
    let work = hub.clone();
    let done = hub.work.spawn(patience::carried(async move {
        end(&work, &caller, cluster, &reason).await
    }));
    done.await.context("revoke a cluster")?.map(Json)
}

async fn end(
    hub: &Hub,
    caller: &Caller,
    cluster: Cluster,
    reason: &str,
) -> Result<Revocation, Problem> {
    let name = cluster.name.as_str();
    let because = (!reason.is_empty()).then(|| reason.to_owned());
    let mut entry = caller.entry("cluster.revoke", Some(name), "");
    entry.reason.clone_from(&because);
    hub.audit.change(entry).await?;
    let now = clock::now();
    let condition = condition(&cluster.name, &caller.user.name, reason, now);
    let ended = hub
        .store
        .revoke_cluster(&cluster.id, condition, now)
        .await?;
    cut_off(hub, &cluster.name);
    tracing::warn!(
        cluster = name,
        by = caller.user.name,
        reason,
        "cluster revoked"
    );
    for key in &ended {
        let mut entry = caller.entry(key.kind.dropped(), Some(name), &key.fingerprint);
        entry.reason.clone_from(&because);
        hub.audit.event(entry).await?;
    }
    let by = &caller.user.name;
    let closed = heals::close_silence(hub, &cluster.name, by, "the cluster was revoked").await;
    if let Err(error) = closed {
        tracing::error!(cluster = name, error = %chain_of(&error), "close that its agent is lost");
    }
    // Somebody else was quicker.
    let already = ended.is_empty();
    let keys = ended.into_iter().map(|k| k.fingerprint).collect();
    Ok(revocation(&cluster, keys, already))
}

/// Ends what the agent of a cluster that was revoked has open at this replica.
pub fn cut_off(hub: &Hub, cluster: &ClusterName) {
    hub.tunnels
        .close(cluster, Code::Revoked, "the cluster's keys were revoked");
    hub.orders.end(cluster);
}

fn revocation(cluster: &Cluster, keys: Vec<String>, already: bool) -> Revocation {
    Revocation {
        keys,
        already,
        next: format!("linesman cluster readopt {}", cluster.name),
        cluster: cluster.name.clone(),
    }
}

fn condition(cluster: &ClusterName, by: &str, reason: &str, now: OffsetDateTime) -> Condition {
    let why = if reason.is_empty() { "" } else { ": " };
    Condition {
        kind: ConditionType::IdentityRevoked,
        status: Status::True,
        reason: "Revoked".to_owned(),
        message: format!(
            "by {by}{why}{reason}; the hub takes nothing from the cluster; the way back: linesman cluster readopt {cluster}"
        ),
        since: clock::rfc3339(now),
    }
}

//! Maintenance windows: for a while the agent of a cluster only looks.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use http::{HeaderMap, StatusCode};
use time::{Duration, OffsetDateTime};

use super::super::problem::{Problem, Slug};
use super::super::{Caller, UserBody, precondition};
use super::find;
use crate::clock;
use crate::hub::auth::Role;
use crate::hub::store::Cluster;
use crate::hub::{Hub, assignment};
use crate::wire::api::{Order, PauseRequest, Policy};

const MAX_REASON: usize = 200;

pub(super) async fn pause(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    Path(name): Path<String>,
    UserBody(asked): UserBody<PauseRequest>,
) -> Result<Json<Policy>, Problem> {
    caller
        .require(&hub, Role::Operator, "cluster.pause")
        .await?;
    let what = format!("cluster {name}");
    let paused = precondition::written((&hub, &caller), &what, || async {
        let cluster = find(&hub, &name).await?;
        let policy = paused(&cluster, &asked, caller.user.name.as_str(), clock::now())?;
        caller
            .record(&hub, "cluster.pause", Some(&name), asked.reason.trim())
            .await?;
        tell(&hub, cluster, policy).await
    });
    paused.await.map(Json)
}

pub(super) async fn resume(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    caller
        .require(&hub, Role::Operator, "cluster.resume")
        .await?;
    let what = format!("cluster {name}");
    let resumed = precondition::written((&hub, &caller), &what, || async {
        let cluster = find(&hub, &name).await?;
        precondition::matches(&headers, cluster.rev, &what)?;
        let policy = Policy {
            paused_until: None,
            pause_reason: None,
            ..cluster.policy.clone()
        };
        caller
            .record(&hub, "cluster.resume", Some(&name), "")
            .await?;
        tell(&hub, cluster, policy).await
    });
    resumed.await.map(|_| StatusCode::NO_CONTENT)
}

fn paused(
    cluster: &Cluster,
    asked: &PauseRequest,
    by: &str,
    now: OffsetDateTime,
) -> Result<Policy, Problem> {
    let reason = asked.reason.trim();
    let one_line = is_one_line(reason);
    let wrong = |what: &str, next: &str| Problem::new(Slug::BadRequest, what.to_owned(), next);
    if !(60..=86_400).contains(&asked.seconds) {
        return Err(wrong(
            "a cluster is paused for one minute to one day",
            "give seconds between 60 and 86400; pause it again where that is too short",
        ));
    }
    if !one_line {
        return Err(wrong(
            "a pause needs a reason of one line, at most 200 characters",
            "say in a few words why",
        ));
    }
    Ok(Policy {
        paused_until: Some(clock::rfc3339(
            now + Duration::seconds(asked.seconds.into()),
        )),
        pause_reason: Some(format!("{reason} ({by})")),
        ..cluster.policy.clone()
    })
}

/// Whether a reason is one that tables and logs can show.
pub(in crate::hub::api) fn is_one_line(reason: &str) -> bool {
    !reason.is_empty()
        && reason.chars().count() <= MAX_REASON
        && !reason.chars().any(char::is_control)
}

/// Keeps the policy and lets the agent fetch it now; one that is away fetches it when it is back. None = the cluster was
/// changed meanwhile.
pub(super) async fn tell(
    hub: &Hub,
    mut cluster: Cluster,
    policy: Policy,
) -> Result<Option<Policy>, Problem> {
    let kept = hub
        .store
        .set_policy(cluster.revision(), policy.clone(), clock::now());
    if !kept.await? {
        return Ok(None);
    }
    cluster.policy = policy.clone();
    announce(hub, &cluster).await?;
    Ok(Some(policy))
}

/// Tells the agent that its assignment is another now.
pub(in crate::hub::api) async fn announce(hub: &Hub, cluster: &Cluster) -> Result<(), Problem> {
    let revision = assignment::of(hub, cluster).await?.revision;
    hub.orders
        .send(&cluster.name, Order::Assignment { revision });
    Ok(())
}

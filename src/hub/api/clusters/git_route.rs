//! How a cluster reaches the catalog's Git host.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use http::HeaderMap;

use super::super::problem::Problem;
use super::super::{Caller, UserBody, precondition};
use super::{find, pause};
use crate::clock;
use crate::hub::auth::Role;
use crate::hub::store::Cluster;
use crate::hub::{Hub, gitroute};
use crate::wire::api::{GitRoute, GitRouteRequest, GitRouteView, OtherWay};
use crate::wire::report::Facts;

/// Chooses, and lets the agent fetch it now. `auto` begins with the direct way again.
pub(super) async fn choose(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    Path(name): Path<String>,
    headers: HeaderMap,
    UserBody(asked): UserBody<GitRouteRequest>,
) -> Result<Json<GitRouteView>, Problem> {
    caller.require(&hub, Role::Operator, "cluster.git").await?;
    let word = match asked.route {
        GitRoute::Auto => "auto",
        GitRoute::Direct => "direct",
        GitRoute::Line => "line",
    };
    let what = format!("cluster {name}");
    let chosen = precondition::written((&hub, &caller), &what, || async {
        let mut cluster = find(&hub, &name).await?;
        precondition::matches(&headers, cluster.rev, &what)?;
        caller
            .record(&hub, "cluster.git", Some(&name), word)
            .await?;
        let chosen = (asked.route, false);
        let store = &hub.store;
        if !store
            .set_git_route(cluster.revision(), chosen, clock::now())
            .await?
        {
            return Ok(None);
        }
        (cluster.git_route, cluster.git_no_route) = chosen;
        pause::announce(&hub, &cluster).await?;
        Ok(Some(view(&cluster)))
    });
    chosen.await.map(Json)
}

pub(in crate::hub::api) fn view(cluster: &Cluster) -> GitRouteView {
    GitRouteView {
        route: cluster.git_route,
        via: cluster.via(),
    }
}

/// What the catalog has of the other way; that it cannot be told keeps nobody from the rest of what is known of a cluster.
pub(super) async fn other_way(hub: &Hub, cluster: &Cluster, facts: &Facts) -> Option<OtherWay> {
    let told = gitroute::other_way(hub, cluster, facts).await;
    told.unwrap_or_else(|error| {
        let error = format!("{error:#}");
        tracing::error!(cluster = %cluster.name, error, "look for the other way to Git in the catalog");
        None
    })
}

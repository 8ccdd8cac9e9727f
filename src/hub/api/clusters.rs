//! Clusters: add, list, show, remove, readopt.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::routing::{get, patch, post, put};
use axum::{Json, Router};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;

use super::problem::{Problem, Slug};
use super::{Caller, precondition};
use crate::clock;
use crate::hub::adoption::copy::{self, Done};
use crate::hub::auth::Role;
use crate::hub::store::Cluster;
use crate::hub::{Hub, adoption, directory, registration};
use crate::keys;
use crate::manifests::{self, scope};
use crate::wire::api::{AdoptionAnswer, AdoptionOptions, ClusterView, Order, Page};
use crate::wire::id::ClusterName;

mod add;
mod agent_copy;
mod agent_image;
mod diagnosis;
mod engine;
mod git_route;
mod labels;
mod lift;
mod line;
mod pause;
mod readopt;
mod removed;
mod revoke;
mod rotate;
mod view;

pub(super) use add::{check, choose};
pub(super) use git_route::view as git_route;
pub(super) use pause::{announce, is_one_line};
pub use revoke::cut_off;
pub use rotate::{announce_changed, announce_old};
pub use view::{beating, count, each, pages};

const MAX_PAGE: u32 = 500;

pub fn routes() -> Router<Arc<Hub>> {
    Router::new()
        .route("/v1/clusters", get(list).post(add::add))
        .route("/v1/clusters/{name}", get(show).delete(remove))
        .route("/v1/clusters/{name}/join-tokens", post(readopt::readopt))
        .route("/v1/clusters/{name}/line", get(line::show))
        .route("/v1/clusters/{name}/diagnosis", get(diagnosis::ask))
        .route("/v1/clusters/{name}/git-route", put(git_route::choose))
        .route("/v1/clusters/{name}/labels", patch(labels::change))
        .route("/v1/clusters/{name}/agent-image", put(agent_image::choose))
        .route("/v1/clusters/{name}/agent-copy", put(agent_copy::choose))
        .route("/v1/clusters/{name}/engine", put(engine::set))
        .route(
            "/v1/clusters/{name}/image-registry",
            put(engine::registry).get(engine::registry_shown),
        )
        .route(
            "/v1/hub/image-registry",
            put(engine::default_registry).get(engine::default_registry_shown),
        )
        .route("/v1/clusters/{name}/rotate", post(rotate::ask))
        .route("/v1/clusters/{name}/revoke", post(revoke::revoke))
        .route(
            "/v1/clusters/{name}/pause",
            post(pause::pause).delete(pause::resume),
        )
        .route("/v1/clusters/{name}/lift", post(lift::lift))
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Wanted {
    limit: Option<u32>,
    cursor: Option<String>,
}

async fn list(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    Query(wanted): Query<Wanted>,
) -> Result<Json<Page<ClusterView>>, Problem> {
    caller.require(&hub, Role::Viewer, "cluster.list").await?;
    let limit = wanted.limit.unwrap_or(100).clamp(1, MAX_PAGE);
    let after = wanted
        .cursor
        .as_deref()
        .map(precondition::cursor)
        .transpose()?;
    let clusters = hub.store.clusters(after.as_deref(), limit).await?;
    let full = clusters.len() == limit as usize;
    let last = clusters.last().filter(|_| full);
    let cursor = last.map(|c| keys::encode(c.name.as_str().as_bytes()));
    let items = view::of(&hub, clusters).await?;
    Ok(Json(Page { items, cursor }))
}

async fn show(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<(precondition::Tag, Json<ClusterView>), Problem> {
    caller.require(&hub, Role::Viewer, "cluster.show").await?;
    let cluster = find(&hub, &name).await?;
    let agent_copy = Some(agent_copy::standing(&hub, &cluster).await);
    let view = view::one(&hub, cluster.clone()).await?;
    let view = ClusterView {
        agent_copy,
        other_way: git_route::other_way(&hub, &cluster, &view.facts).await,
        ..view
    };
    Ok((precondition::tag(view.rev), Json(view)))
}

pub(super) async fn find(hub: &Hub, name: &str) -> Result<Cluster, Problem> {
    let unknown = || {
        let name = crate::hub::cut(name, 60);
        Problem::new(
            Slug::NotFound,
            format!("there is no cluster '{name}'"),
            "see: linesman cluster list",
        )
    };
    let name: ClusterName = name.parse().map_err(|_| unknown())?;
    hub.store.cluster(&name).await?.ok_or_else(unknown)
}

fn check_options(options: &AdoptionOptions) -> Result<(), Problem> {
    let bad = |what: &str, next: &str| Err(Problem::new(Slug::BadRequest, what, next));
    if !registration::TOKEN_TTL.contains(&options.token_ttl) {
        return bad(
            "tokenTtl is not between 300 and 604800 seconds",
            "choose a life between 5 minutes and 7 days",
        );
    }
    let engines = adoption::engines(options);
    let scope = options.scope.as_ref();
    if let Some(Err(wrong)) = scope.map(|asked| scope::check(asked, &engines)) {
        return bad(&wrong.to_string(), "correct the list of namespaces");
    }
    let texts = [
        &options.image,
        &options.image_pull_secret,
        &options.https_proxy,
        &options.no_proxy,
    ];
    if texts
        .iter()
        .any(|t| t.len() > 2048 || t.chars().any(char::is_control))
    {
        return bad(
            "an adoption option has a control character or more than 2048 bytes",
            "correct the option",
        );
    }
    if let Err(wrong) = adoption::values::check(options) {
        return bad(&wrong.to_string(), wrong.next());
    }
    if !options.engine_namespace.is_empty()
        && let Err(what) = manifests::engine_namespace(&options.engine_namespace)
    {
        return bad(&format!("engineNamespace: {what}"), "choose another name");
    }
    Ok(())
}

/// A token, its YAML and the cluster as it stands; and the token's id.
async fn adopt(
    hub: &Hub,
    caller: &Caller,
    cluster: Cluster,
    options: AdoptionOptions,
    new_cluster: bool,
) -> Result<(AdoptionAnswer, String), Problem> {
    let by = &caller.user.name;
    let issued = adoption::issue(hub, &cluster, options.clone(), new_cluster, by).await?;
    let answer = AdoptionAnswer {
        yaml: adoption::yaml(hub, &cluster, &options, &issued.token),
        token_expires_at: clock::rfc3339(issued.expires_at),
        adopt_url: adoption::url(hub, &issued.token),
        proposed: None,
        cluster: view::one(hub, cluster).await?,
    };
    Ok((answer, issued.token.id))
}

async fn remove(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    caller
        .require(&hub, Role::Operator, "cluster.remove")
        .await?;
    let what = format!("cluster {name}");
    let claimed = precondition::written((&hub, &caller), &what, || async {
        let cluster = find(&hub, &name).await?;
        precondition::matches(&headers, cluster.rev, &what)?;
        caller
            .record(&hub, "cluster.remove", Some(&name), "")
            .await?;
        agent_copy::claim(&hub, cluster).await
    });
    let cluster = claimed.await?;
    // Before the agent goes: what stays in the catalog would bring it back.
    match copy::take_out(&hub, &cluster).await? {
        Done::Proposed(branch) => {
            let stays = Err(agent_copy::stays(&name, &branch));
            return caller.outcome(&hub, stays).await;
        }
        Done::InForce(Some(commit)) => copy::applied(&hub, &cluster, &commit).await?,
        Done::InForce(None) => {}
    }
    let ended = hub.store.remove_cluster(&cluster.id, clock::now()).await?;
    hub.presence.forget(&cluster.id);
    hub.paces.forget(&cluster.id);
    hub.orders.send(&cluster.name, Order::Removed);
    // The agent hears the order over its line before that ends.
    let work = hub.clone();
    hub.work.spawn(async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        directory::removed(&work, &cluster.name, &cluster.id);
    });
    if let Some(ended) = ended {
        removed::access_over(&hub, &caller, &name, &ended).await;
    }
    Ok(StatusCode::NO_CONTENT)
}

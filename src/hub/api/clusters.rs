//! Clusters: add, list, show, remove, readopt.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::routing::{get, patch, post, put};
use axum::{Json, Router};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;

use super::problem::{Problem, Slug};
use super::{Caller, UserBody, precondition};
use crate::bundle::release;
use crate::clock;
use crate::hub::adoption::copy::{self, Done};
use crate::hub::auth::Role;
use crate::hub::catalog::{Start, Unsuited};
use crate::hub::store::{Cluster, NewClusterRow};
use crate::hub::{Hub, adoption, assignment, catalog, directory, git, registration};
use crate::keys;
use crate::manifests::{self, scope};
use crate::wire::api::{
    AdoptionAnswer, AdoptionOptions, BundleView, ClusterView, EngineKind, NewCluster, Order, Page,
};
use crate::wire::id::ClusterName;

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

pub(super) use git_route::view as git_route;
pub(super) use pause::{announce, is_one_line};
pub use revoke::cut_off;
pub use rotate::{announce_changed, announce_old};
pub use view::{beating, count, each, pages};

const MAX_PAGE: u32 = 500;
/// Looks at the catalog for one new cluster, where somebody changes what was found.
const LOOKS: u32 = 3;

pub fn routes() -> Router<Arc<Hub>> {
    Router::new()
        .route("/v1/clusters", get(list).post(add))
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

async fn add(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    headers: HeaderMap,
    UserBody(new): UserBody<NewCluster>,
) -> Result<(StatusCode, Json<AdoptionAnswer>), Problem> {
    caller.require(&hub, Role::Operator, "cluster.add").await?;
    check(&new)?;
    let repeated = precondition::repeated(&hub, &caller, &headers, "/v1/clusters", &new).await?;
    let known = hub.store.cluster(&new.name).await?;
    let (cluster, proposed) = match known {
        Some(cluster) if repeated && cluster.joined_at.is_none() => {
            let start = start(&hub, &new).await?;
            let (_, proposed) = deliver(&hub, &caller, &new, start).await?;
            (cluster, proposed)
        }
        Some(_) => {
            let next = format!(
                "choose another name, or run: linesman cluster readopt {}",
                new.name
            );
            let text = format!("cluster {} already exists", new.name);
            return Err(Problem::new(Slug::Exists, text, next));
        }
        None => {
            let made = create(&hub, &caller, &new).await;
            caller.outcome(&hub, made).await?
        }
    };
    let (answer, _) = adopt(&hub, &caller, cluster, new.adoption, false).await?;
    let answer = AdoptionAnswer { proposed, ..answer };
    Ok((StatusCode::CREATED, Json(answer)))
}

/// The catalog's files first: they are made again without harm, a cluster without them would not be.
async fn create(
    hub: &Hub,
    caller: &Caller,
    new: &NewCluster,
) -> Result<(Cluster, Option<String>), Problem> {
    let bundle = choose(hub, new).await?;
    let start = start(hub, new).await?;
    caller
        .record(hub, "cluster.add", Some(new.name.as_str()), "")
        .await?;
    let (catalog_path, proposed) = deliver(hub, caller, new, start).await?;
    let row = NewClusterRow {
        name: new.name.clone(),
        labels: new.labels.clone(),
        engine: new.engine,
        engine_version: bundle.version,
        bundle: bundle.digest,
        catalog_path,
        git_route: new.git_route,
        adoption: new.adoption.clone(),
    };
    let cluster = hub.store.create_cluster(row, clock::now()).await?;
    tracing::info!(cluster = %cluster.name, by = caller.user.name, "cluster added");
    Ok((cluster, proposed))
}

/// What the catalog has to know of a new cluster.
fn described(hub: &Hub, new: &NewCluster) -> catalog::ClusterRecord {
    catalog::ClusterRecord {
        name: new.name.clone(),
        engine: new.engine,
        labels: new.labels.clone(),
        engines: adoption::engines(&new.adoption),
        url: assignment::source(hub, new.git_route),
        branch: hub.catalog.branch.clone(),
    }
}

/// Where a new cluster begins, by what the catalog has for it. What is written for the other engine would be applied and do nothing.
async fn start(hub: &Hub, new: &NewCluster) -> Result<Start, Problem> {
    let (name, engine) = (&new.name, new.engine);
    let places = catalog::places(name, engine).to_vec();
    let there = git::below(&hub.catalog.repo, &hub.catalog.branch, places).await?;
    catalog::start(&there, &described(hub, new)).map_err(|unsuited| {
        let why = match unsuited {
            Unsuited::Empty => format!("clusters/{name} holds no manifests"),
            Unsuited::Other { file, other } => format!("{file} is written for {other}"),
        };
        let detail = format!("the catalog has nothing for {engine} in cluster {name}: {why}");
        let next = format!(
            "commit what {engine} is to follow to {}, or choose another name; or, where no cluster follows clusters/{name}, take it out \
             of the catalog (git rm -r clusters/{name}), push, and run this again",
            catalog::directory(name, engine)
        );
        Problem::new(Slug::OtherEngine, detail, next)
    })
}

/// Puts the cluster's files into the catalog; gives the directory that it follows, and the branch on which they wait, where clusters
/// verify the head: a commit of the hub would stop them all.
async fn deliver(
    hub: &Hub,
    caller: &Caller,
    new: &NewCluster,
    mut found: Start,
) -> Result<(String, Option<String>), Problem> {
    let (repo, base) = (&hub.catalog.repo, &hub.catalog.branch);
    let is_signed = !hub.store.signers().await?.is_empty();
    for _ in 0..LOOKS {
        let (path, over) = (found.path.clone(), found.over.clone());
        let change = change(hub, caller, new, found)?;
        if is_signed {
            let branch = format!("linesman/{}", new.name);
            let made = git::propose(repo, base, &branch, change).await?;
            return Ok((path, made.map(|_| branch)));
        }
        let made = git::commit_instead(repo, base, change, &over).await?;
        if let Some(head) = &made {
            crate::hub::serve::note(&hub.store, head).await;
        }
        if made.is_some() || over.is_empty() {
            return Ok((path, None));
        }
        // Somebody changed what was to give way.
        found = start(hub, new).await?;
    }
    let text = "the catalog changed each time that the hub was about to write to it";
    Err(Problem::new(Slug::Unavailable, text, "try again").retry_after(2))
}

/// The commit that a new cluster begins with.
fn change(
    hub: &Hub,
    caller: &Caller,
    new: &NewCluster,
    start: Start,
) -> Result<git::Change, Problem> {
    let Start {
        path,
        mut files,
        over,
    } = start;
    if new.agent_copy {
        let whose = copy::Whose {
            name: &new.name,
            engine: new.engine,
            options: &new.adoption,
            route: new.git_route,
            follows: &path,
        };
        let copied = copy::files(hub, whose, None).map_err(|e| agent_copy::password(&e))?;
        files.extend(copied);
    }
    Ok(git::Change {
        files,
        only_missing: over.is_empty(),
        gone: BTreeSet::new(),
        author: git::Author::hub(),
        message: format!(
            "Add cluster {}\n\nAsked for by {}.",
            new.name, caller.user.name
        ),
    })
}

pub(super) async fn choose(hub: &Hub, new: &NewCluster) -> Result<BundleView, Problem> {
    let engine = new.engine;
    let Some(digest) = &new.bundle else {
        let held = release::newest_first(hub.store.bundles().await?, engine);
        return held.into_iter().next().ok_or_else(|| {
            Problem::new(
                Slug::NoBundle,
                format!("the hub has no bundle of {engine}"),
                format!("run: linesman engine import {engine} VERSION"),
            )
        });
    };
    let bundle = hub.store.bundle(digest).await?;
    let fits = bundle.filter(|b| b.engine == new.engine);
    fits.ok_or_else(|| {
        Problem::new(
            Slug::BundleUnknown,
            format!("the hub has no bundle {digest} of {engine}"),
            "see: linesman engine list",
        )
    })
}

pub(super) fn check(new: &NewCluster) -> Result<(), Problem> {
    check_options(&new.adoption)?;
    if !new.adoption.engine_namespace.is_empty() && new.engine != EngineKind::Argocd {
        return Err(Problem::new(
            Slug::BadRequest,
            "engineNamespace is for Argo CD: Flux lives in flux-system, as its manifest has it",
            "leave engineNamespace out, or choose engine argocd",
        ));
    }
    labels::check(&new.labels)
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

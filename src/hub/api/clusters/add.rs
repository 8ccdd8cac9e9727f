//! A new cluster: its files in the catalog, its record, and the YAML that adopts it.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use http::{HeaderMap, StatusCode};

use super::super::problem::{Problem, Slug};
use super::super::{Caller, UserBody, precondition};
use super::{adopt, agent_copy, check_options, labels};
use crate::bundle::release;
use crate::clock;
use crate::hub::adoption::copy;
use crate::hub::auth::Role;
use crate::hub::catalog::{Start, Unsuited};
use crate::hub::store::{Cluster, NewClusterRow};
use crate::hub::{Hub, adoption, assignment, catalog, git, signers};
use crate::wire::api::{AdoptionAnswer, BundleView, EngineKind, NewCluster};

/// Looks at the catalog for one new cluster, where somebody changes what was found.
const LOOKS: u32 = 3;

pub(super) async fn add(
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
    signers::suit(&hub.store.signers().await?, engine)?;
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

pub(in crate::hub::api) async fn choose(
    hub: &Hub,
    new: &NewCluster,
) -> Result<BundleView, Problem> {
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

pub(in crate::hub::api) fn check(new: &NewCluster) -> Result<(), Problem> {
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

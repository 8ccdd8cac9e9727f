//! Which engine a cluster runs, in which version, and whence the images come.

mod images;
mod replace;

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use http::HeaderMap;

use super::super::problem::{Problem, Slug};
use super::super::{Caller, UserBody, precondition};
use super::{find, pause};
use crate::bundle::release;
use crate::clock;
use crate::hub::Hub;
use crate::hub::auth::Role;
use crate::hub::store::{Cluster, Details};
use crate::wire::api::{BundleView, EngineKind, EngineRequest, EngineView};
use crate::wire::report::{ConditionType, Status};

pub(super) use images::{default_registry, default_registry_shown, registry, registry_shown};

/// Versions that a refusal names.
const NAMED: usize = 12;
/// Seconds that a change may be given.
const WITHIN: std::ops::RangeInclusive<u32> = 30..=3600;

/// Lets the agent change to another version of the engine that the cluster has.
pub(super) async fn set(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    Path(name): Path<String>,
    headers: HeaderMap,
    UserBody(asked): UserBody<EngineRequest>,
) -> Result<Json<EngineView>, Problem> {
    caller.require(&hub, Role::Operator, "engine.set").await?;
    let what = format!("cluster {name}");
    let put = precondition::written((&hub, &caller), &what, || async {
        let cluster = find(&hub, &name).await?;
        precondition::matches(&headers, cluster.rev, &what)?;
        put(&hub, &caller, cluster, &asked).await
    });
    put.await.map(Json)
}

/// None = the cluster was changed meanwhile.
async fn put(
    hub: &Hub,
    caller: &Caller,
    mut cluster: Cluster,
    asked: &EngineRequest,
) -> Result<Option<EngineView>, Problem> {
    let replaces = asked.engine != cluster.engine;
    if replaces && !asked.replace {
        return Err(another_engine(&cluster, asked.engine));
    }
    if asked.path.is_some() && !asked.replace {
        let text = "a path is chosen for an engine that takes another one's place";
        return Err(Problem::new(Slug::BadRequest, text, "leave 'path' out"));
    }
    if !WITHIN.contains(&asked.within) {
        let text = "an engine has between 30 and 3600 seconds to work after a change";
        let next = "give 'within' in that range";
        return Err(Problem::new(Slug::BadRequest, text, next));
    }
    let bundle = choose(hub, asked).await?;
    let details = hub.store.details(std::slice::from_ref(&cluster.id)).await?;
    let details = details.into_iter().next().unwrap_or_default();
    fits(&cluster, &bundle, &details)?;
    let change = if asked.replace {
        if replaces {
            replace::knows_how(&cluster, &details)?;
        }
        let path = replace::path(hub, &cluster, &details, asked).await?;
        let record = format!(
            "{} by {} {} {} at {path}",
            cluster.engine, bundle.engine, bundle.version, bundle.digest
        );
        caller
            .record(hub, "engine.replace", Some(cluster.name.as_str()), &record)
            .await?;
        let to = (&bundle, path.as_str());
        let change = hub
            .store
            .replace_engine(cluster.revision(), to, asked.within, clock::now())
            .await?;
        (cluster.engine, cluster.catalog_path) = (bundle.engine, path);
        change
    } else {
        let record = format!("{} {} {}", bundle.engine, bundle.version, bundle.digest);
        caller
            .record(hub, "engine.set", Some(cluster.name.as_str()), &record)
            .await?;
        hub.store
            .set_engine(cluster.revision(), &bundle, asked.within, clock::now())
            .await?
    };
    let Some(change) = change else {
        return Ok(None);
    };
    cluster.engine_change = change;
    cluster.engine_within = asked.within;
    cluster.engine_version.clone_from(&bundle.version);
    cluster.bundle = bundle.digest.clone();
    pause::announce(hub, &cluster).await?;
    Ok(Some(EngineView {
        engine: bundle.engine,
        version: bundle.version,
        bundle: bundle.digest,
        change,
        path: cluster.catalog_path,
    }))
}

/// One engine's sync objects mean nothing to the other, and each would prune what the other applied: nothing that
/// happens by the way.
fn another_engine(cluster: &Cluster, asked: EngineKind) -> Problem {
    let (name, has) = (&cluster.name, cluster.engine);
    let detail = format!(
        "cluster {name} is assigned {has}; {asked} takes its place only where that is said, for the catalog's path {} is \
         written for {has}, and two engines that follow one path prune each other's work",
        cluster.catalog_path
    );
    let next = format!(
        "commit what {asked} is to follow to {}, then: linesman cluster engine {name} {asked} --replace",
        crate::hub::catalog::directory(name, asked)
    );
    Problem::new(Slug::OtherEngine, detail, next)
}

async fn choose(hub: &Hub, asked: &EngineRequest) -> Result<BundleView, Problem> {
    let engine = asked.engine;
    let held = release::newest_first(hub.store.bundles().await?, engine);
    let version = asked.version.as_deref();
    let version = version.map(|v| v.strip_prefix('v').unwrap_or(v));
    let wanted = |b: &&BundleView| {
        version.is_none_or(|v| v == b.version)
            && asked.bundle.as_ref().is_none_or(|d| *d == b.digest)
    };
    if let Some(found) = held.iter().find(wanted) {
        return Ok(found.clone());
    }
    let mut versions: Vec<&str> = held.iter().map(|b| b.version.as_str()).collect();
    versions.dedup();
    versions.truncate(NAMED);
    let version = version.map(|v| crate::hub::cut(v, 60));
    let import = format!(
        "run: linesman engine import {engine} {}",
        version.unwrap_or("VERSION")
    );
    let what = match (version, &asked.bundle) {
        (Some(version), _) => version.to_owned(),
        (None, bundle) => bundle.as_ref().map(ToString::to_string).unwrap_or_default(),
    };
    let (detail, next) = match versions.as_slice() {
        [] => (format!("no version of {engine} is imported"), import),
        some => (
            format!(
                "{engine} {what} is not imported; imported are {}",
                some.join(", ")
            ),
            format!("choose one of those, or {import}"),
        ),
    };
    Err(Problem::new(Slug::BundleUnknown, detail, next))
}

/// What the cluster last said of itself speaks against no change.
fn fits(cluster: &Cluster, bundle: &BundleView, details: &Details) -> Result<(), Problem> {
    let name = &cluster.name;
    let said = |kind| {
        let mut all = details.conditions.iter();
        all.find(|c| c.kind == kind && c.status == Status::True)
    };
    if let Some(condition) = said(ConditionType::EngineFromGit) {
        let detail = format!(
            "the catalog itself installs the engine of cluster {name} ({}), so Git would undo the change",
            condition.message
        );
        let next = format!(
            "if the catalog still has it, change the version there, by a commit; the agent leaves an upgrade by Git alone; if not, see how its hold ends: linesman cluster show {name}"
        );
        return Err(Problem::new(Slug::EngineFromGit, detail, next));
    }
    if let Some(condition) = said(ConditionType::ObserveOnly) {
        let detail = format!(
            "somebody else manages the engine of cluster {name}: {}",
            condition.message
        );
        let next = "change the version there";
        return Err(Problem::new(Slug::EngineFromGit, detail, next));
    }
    let has = details.facts.get("kubernetes.minor");
    let has: Option<u32> = has.and_then(|minor| minor.parse().ok());
    let needs = release::kubernetes(bundle.engine, &bundle.version);
    match (has, needs) {
        (Some(has), Some(needs)) if has < needs => {
            let detail = format!(
                "{} {} needs Kubernetes 1.{needs}, and cluster {name} has 1.{has}",
                bundle.engine, bundle.version
            );
            let next = "upgrade the cluster first, or choose an older version of the engine";
            Err(Problem::new(Slug::KubernetesTooOld, detail, next))
        }
        _ => Ok(()),
    }
}

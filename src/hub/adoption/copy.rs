//! The copy of a cluster's agent in the catalog: written with what the cluster's owner applied last, and taken out
//! before the cluster is let go. That there is one is read off the catalog itself, and nowhere else.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::time::{Instant, sleep};

use super::{chosen, engines};
use crate::hub::git::{self, Author, Change, Files};
use crate::hub::replica::lines::Elsewhere;
use crate::hub::store::Cluster;
use crate::hub::{Hub, assignment, catalog, replica};
use crate::manifests::AdoptionValues;
use crate::manifests::copy::{self, HasPassword};
use crate::wire::api::{AdoptionOptions, EngineKind, GitRoute, Order, Via};
use crate::wire::id::ClusterName;
use crate::wire::report::Condition;

mod image;

use image::{image, is_changing};

/// How long the removal of a cluster waits for its engine.
const APPLIED: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(250);

/// What became of a change of the catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Done {
    /// The catalog's head is as it has to be, since this commit where it was not.
    InForce(Option<String>),
    /// Clusters verify the head, so the change waits on this branch for a signature.
    Proposed(String),
}

/// Why a copy is not written.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    #[error(transparent)]
    HasPassword(#[from] HasPassword),
    #[error(transparent)]
    Catalog(#[from] anyhow::Error),
}

/// Whose agent is copied.
#[derive(Debug, Clone, Copy)]
pub struct Whose<'a> {
    pub name: &'a ClusterName,
    pub engine: EngineKind,
    pub options: &'a AdoptionOptions,
    pub route: GitRoute,
    /// The directory that the cluster follows.
    pub follows: &'a str,
}

impl<'a> Whose<'a> {
    fn of(cluster: &'a Cluster) -> Self {
        Self {
            name: &cluster.name,
            engine: cluster.engine,
            options: &cluster.adoption,
            route: match cluster.via() {
                Via::Line => GitRoute::Line,
                Via::Direct => GitRoute::Direct,
            },
            follows: &cluster.catalog_path,
        }
    }
}

/// The files of a copy; `image` is what the agent is to run, where that is not as its YAML says.
pub fn files(hub: &Hub, whose: Whose<'_>, image: Option<String>) -> Result<Files, HasPassword> {
    let values = chosen(hub, (whose.name, whose.engine), whose.options);
    let values = AdoptionValues {
        image: image.unwrap_or_else(|| values.image.clone()),
        ..values
    };
    let manifests = copy::to_yaml(&copy::copy(&values)?);
    Ok(catalog::copy::files(&catalog::copy::Copied {
        name: whose.name,
        engine: whose.engine,
        engines: &engines(whose.options),
        follows: whose.follows,
        url: &assignment::source(hub, whose.route),
        branch: &hub.catalog.branch,
        manifests: &manifests,
    }))
}

/// How the catalog's copy of a cluster's agent stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// There is none, or not all of it: who takes a part out wants no copy.
    None,
    Current,
    /// As it has to be now it waits on this branch for a signature.
    Proposed(String),
    /// What it is made of has changed since.
    Old,
}

/// Writes the cluster's copy as it has to be now.
pub async fn write(hub: &Hub, cluster: &Cluster) -> Result<Done, CopyError> {
    write_over(hub, cluster, None).await
}

/// The same for a cluster that has a copy: its YAML is another now.
pub async fn renew(hub: &Hub, cluster: &Cluster) -> Result<Option<Done>, CopyError> {
    if held(hub, cluster).await?.is_empty() {
        return Ok(None);
    }
    let over = catalog::copy::manifest(&cluster.name);
    write_over(hub, cluster, Some(&over)).await.map(Some)
}

/// The same where something else changed that the copy is made of. While the agent changes to another image it is left alone:
/// it is not known yet which of the two stays. So it is while its end waits for a signature.
pub async fn renew_old(hub: &Hub, cluster: &Cluster) -> Result<Option<Done>, CopyError> {
    let said = said(hub, cluster).await?;
    if is_changing(cluster.desired_image.as_deref(), cluster.image_wish, &said) {
        return Ok(None);
    }
    if standing(hub, cluster).await? != Standing::Old || ends(hub, cluster).await? {
        return Ok(None);
    }
    renew(hub, cluster).await
}

/// How the copy stands at this moment.
pub async fn standing(hub: &Hub, cluster: &Cluster) -> Result<Standing, CopyError> {
    let held = held(hub, cluster).await?;
    if !held.contains(&catalog::copy::manifest(&cluster.name)) || held.len() < 2 {
        return Ok(Standing::None);
    }
    let (repo, base) = (&hub.catalog.repo, &hub.catalog.branch);
    let (files, gone) = wanted(hub, cluster).await?;
    if git::is_as(repo, base, files.clone(), gone.clone()).await? {
        return Ok(Standing::Current);
    }
    let branch = branch(&cluster.name);
    let proposed = is_signed(hub).await? && git::is_as(repo, &branch, files, gone).await?;
    Ok(if proposed {
        Standing::Proposed(branch)
    } else {
        Standing::Old
    })
}

/// Whether it was asked to be taken out, which waits for a signature.
async fn ends(hub: &Hub, cluster: &Cluster) -> Result<bool> {
    let (repo, branch) = (&hub.catalog.repo, branch(&cluster.name));
    if !is_signed(hub).await? {
        return Ok(false);
    }
    let Some(proposed) = git::head(repo, &branch).await? else {
        return Ok(false);
    };
    // What was merged waits no more: the copy that is there came later.
    if git::contains(repo, &hub.catalog.branch, &proposed).await? {
        return Ok(false);
    }
    let kept = git::held(repo, &branch, paths(cluster)).await?;
    Ok(kept.is_empty())
}

async fn is_signed(hub: &Hub) -> Result<bool> {
    let signers = hub.store.signers().await.context("read the signers")?;
    Ok(!signers.is_empty())
}

/// What waits for a signature lies there.
fn branch(name: &ClusterName) -> String {
    format!("linesman-agent/{name}")
}

/// The files of the copy as it has to be now, and the paths that are to be gone.
async fn wanted(hub: &Hub, cluster: &Cluster) -> Result<(Files, BTreeSet<String>), CopyError> {
    let image = image(cluster, &said(hub, cluster).await?);
    let files = files(hub, Whose::of(cluster), image)?;
    let gone = paths(cluster)
        .into_iter()
        .filter(|path| !files.contains_key(path))
        .collect();
    Ok((files, gone))
}

async fn write_over(hub: &Hub, cluster: &Cluster, over: Option<&str>) -> Result<Done, CopyError> {
    let all = wanted(hub, cluster).await?;
    let message = format!("Keep a copy of the agent of cluster {}", cluster.name);
    Ok(change(hub, &cluster.name, all, message, over).await?)
}

/// Renews the copy of a cluster that has just joined with what its owner applied, unless its end waits for a signature; what
/// goes wrong is logged, for the cluster has joined all the same.
pub async fn renew_joined(hub: &Hub, cluster_id: &str) {
    let renewed = async {
        let cluster = hub.store.cluster_by_id(cluster_id).await;
        let cluster = cluster.context("read the cluster that joined")?;
        let Some(cluster) = cluster.filter(|c| c.removed_at.is_none()) else {
            return Ok(None);
        };
        if ends(hub, &cluster).await? {
            return Ok(None);
        }
        renew(hub, &cluster).await
    };
    match renewed.await {
        Ok(None | Some(Done::InForce(_))) => {}
        Ok(Some(Done::Proposed(branch))) => {
            tracing::info!(cluster_id, branch, "the agent's copy waits for a signature");
        }
        Err(error) => {
            tracing::warn!(cluster_id, error = %error, "the agent's copy in the catalog not renewed");
        }
    }
}

/// Takes the copy out of the catalog, where there is one, and what was proposed of one.
pub async fn take_out(hub: &Hub, cluster: &Cluster) -> Result<Done> {
    let held = held(hub, cluster).await?;
    if held.is_empty() {
        git::withdraw(&hub.catalog.repo, &branch(&cluster.name)).await?;
        return Ok(Done::InForce(None));
    }
    let message = format!("Take the copy of the agent of cluster {} out", cluster.name);
    change(hub, &cluster.name, (Files::new(), held), message, None).await
}

/// Waits until the cluster's engine has applied this commit, while its agent is there to say so: afterwards the engine
/// reads the catalog no more. Bounded by [`APPLIED`].
pub async fn applied(hub: &Hub, cluster: &Cluster, commit: &str) -> Result<()> {
    let until = Instant::now() + APPLIED;
    while Instant::now() < until {
        let elsewhere = Elsewhere::of(hub, &cluster.name).await?;
        let here = hub.tunnels.view_of(&cluster.name, &cluster.id);
        let line = elsewhere.view(&cluster.name, here);
        let now = hub.store.cluster_by_id(&cluster.id).await?;
        let (Some(_), Some(now)) = (line.up, now) else {
            return Ok(());
        };
        if let Some(id) = synced(&now)
            && git::includes(&hub.catalog.repo, id, commit).await?
        {
            return Ok(());
        }
        if hub.stop.run_until_cancelled(sleep(LOOK)).await.is_none() {
            return Ok(());
        }
    }
    tracing::warn!(cluster = %cluster.name, commit, "the engine has not applied yet that no copy of the agent is kept");
    Ok(())
}

/// Whether the cluster's engine has applied what the catalog's head has of a copy, be that nothing.
pub async fn is_applied(hub: &Hub, cluster: &Cluster) -> Result<bool> {
    let Some(id) = synced(cluster) else {
        return Ok(false);
    };
    let catalog = &hub.catalog;
    git::has_same(&catalog.repo, &catalog.branch, id, paths(cluster)).await
}

/// The commit that the cluster's engine has applied: `main@sha1:<id>` of Flux, `<id>` of Argo CD.
fn synced(cluster: &Cluster) -> Option<&str> {
    let id = cluster.synced_revision.as_deref()?.rsplit(':').next()?;
    let is_commit = id.len() == 40 && id.bytes().all(|b| b.is_ascii_hexdigit());
    is_commit.then_some(id)
}

async fn held(hub: &Hub, cluster: &Cluster) -> Result<BTreeSet<String>> {
    git::held(&hub.catalog.repo, &hub.catalog.branch, paths(cluster)).await
}

/// Wherever the cluster may have been told to follow one.
fn paths(cluster: &Cluster) -> BTreeSet<String> {
    let name = &cluster.name;
    let first = format!("clusters/{name}");
    let others = [EngineKind::Flux, EngineKind::Argocd].map(|kind| catalog::directory(name, kind));
    let follows = others.iter().chain([&first, &cluster.catalog_path]);
    catalog::copy::paths(name, follows.map(String::as_str))
}

/// What the cluster's agent last said.
async fn said(hub: &Hub, cluster: &Cluster) -> Result<Vec<Condition>> {
    let details = hub.store.details(std::slice::from_ref(&cluster.id)).await;
    let details = details.context("read what the cluster last said")?;
    let said = details.into_iter().flat_map(|details| details.conditions);
    Ok(said.collect())
}

/// One commit; the cluster's engine looks at once.
async fn change(
    hub: &Hub,
    name: &ClusterName,
    (files, gone): (Files, BTreeSet<String>),
    message: String,
    over: Option<&str>,
) -> Result<Done> {
    let (repo, base) = (&hub.catalog.repo, &hub.catalog.branch);
    let change = Change {
        files,
        only_missing: false,
        gone,
        author: Author::hub(),
        message,
    };
    if is_signed(hub).await? {
        let branch = branch(name);
        let made = git::propose(repo, base, &branch, change).await?;
        return Ok(made.map_or(Done::InForce(None), |_| Done::Proposed(branch)));
    }
    let commit = git::commit_over(repo, base, change, over).await?;
    if let Some(revision) = commit.clone() {
        crate::hub::serve::note(&hub.store, &revision).await;
        let only = [name.clone()].into();
        replica::follow::pushed(hub, &revision, Some(&only)).await;
        hub.orders.send(name, Order::CatalogHead { revision });
    }
    Ok(Done::InForce(commit))
}

//! Where a cluster's catalog keeps a copy of its agent, and the object by which the engine follows that.
//!
//! The copy lies outside `clusters/<name>/`: what is in there the root applies itself, and one object of the agent that the
//! API server refuses would stop all of it. By an object of its own it fails alone, prunes nothing, and looks every minute.

use std::collections::BTreeSet;

use crate::hub::git::Files;
use crate::manifests::EngineNamespaces;
use crate::manifests::copy::DIRECTORY;
use crate::wire::api::EngineKind;
use crate::wire::id::ClusterName;

/// The object that follows the copy.
const FLUX: &str = include_str!("copy/flux.yaml");
const ARGOCD: &str = include_str!("copy/argocd.yaml");

/// What decides on a copy's files.
#[derive(Debug, Clone)]
pub struct Copied<'a> {
    pub name: &'a ClusterName,
    pub engine: EngineKind,
    pub engines: &'a EngineNamespaces,
    /// The directory that the cluster follows.
    pub follows: &'a str,
    /// Where this cluster reads the catalog.
    pub url: &'a str,
    pub branch: &'a str,
    /// The agent's manifests.
    pub manifests: &'a str,
}

/// The files of a copy.
pub fn files(of: &Copied<'_>) -> Files {
    let text = match of.engine {
        EngineKind::Flux => FLUX.to_owned(),
        EngineKind::Argocd => ARGOCD
            .replace("NAMESPACE", of.engines.of(EngineKind::Argocd))
            .replace("CATALOG", of.url)
            .replace("BRANCH", of.branch),
    };
    let sync = text.replace("CLUSTER", of.name.as_str());
    [
        (manifest(of.name), of.manifests.as_bytes().to_vec()),
        (sync_of(of.follows), sync.into_bytes()),
    ]
    .into()
}

/// The paths of a copy, in whichever of these directories the cluster may have followed it.
pub fn paths<'a>(
    name: &ClusterName,
    follows: impl IntoIterator<Item = &'a str>,
) -> BTreeSet<String> {
    let sync = follows.into_iter().map(sync_of);
    sync.chain([manifest(name)]).collect()
}

/// The agent's manifests.
pub fn manifest(name: &ClusterName) -> String {
    format!("{DIRECTORY}/{name}/agent.yaml")
}

fn sync_of(follows: &str) -> String {
    let follows = follows.trim_start_matches("./").trim_matches('/');
    if follows.is_empty() {
        "linesman.yaml".to_owned()
    } else {
        format!("{follows}/linesman.yaml")
    }
}

#[cfg(test)]
mod tests;

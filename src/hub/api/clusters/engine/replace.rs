//! What speaks against one engine in the other's place, as far as the hub can see: an agent that does not know how, a
//! catalog that has nothing for it.

use crate::hub::api::problem::{Problem, Slug};
use crate::hub::catalog::{self, Unsuited};
use crate::hub::store::{Cluster, Details};
use crate::hub::{Hub, git};
use crate::wire::api::{EngineKind, EngineRequest};
use crate::wire::report::REPLACES_ENGINES;

/// An agent of before would run both engines at once.
pub(super) fn knows_how(cluster: &Cluster, details: &Details) -> Result<(), Problem> {
    if details.facts.contains_key(REPLACES_ENGINES) {
        return Ok(());
    }
    let detail = format!(
        "the agent of cluster {} has not said that it can put one engine in the other's place",
        cluster.name
    );
    let next =
        "adopt the cluster first, or give it an agent of this version: 'linesman cluster readopt'";
    Err(Problem::new(Slug::OtherEngine, detail, next))
}

/// The catalog's path that the engine is to follow: the one that was asked for, else the first of the usual ones
/// that holds something for it.
pub(super) async fn path(
    hub: &Hub,
    cluster: &Cluster,
    asked: &EngineRequest,
) -> Result<String, Problem> {
    let engine = asked.engine;
    // What Flux refuses to apply unsigned, Argo CD would apply.
    if engine == EngineKind::Argocd && !hub.store.signers().await?.is_empty() {
        let text = "the catalog has signers, and Linesman sets up no verification in Argo CD";
        let next = "keep Flux, or drop the signers first: linesman catalog signer --help";
        return Err(Problem::new(Slug::OtherEngine, text, next));
    }
    let usual = catalog::directory(&cluster.name, engine);
    let candidates = match &asked.path {
        Some(path) => vec![checked(path)?],
        None => vec![
            usual.clone(),
            cluster.catalog_path.clone(),
            format!("clusters/{}", cluster.name),
        ],
    };
    let files = git::files(&hub.catalog.repo, &hub.catalog.branch).await?;
    let mut why = Vec::new();
    for path in candidates {
        match catalog::suits(&files, &path, engine) {
            Ok(()) => return Ok(path),
            Err(unsuited) => {
                let told = match unsuited {
                    Unsuited::Empty => format!("{path} holds no manifests"),
                    Unsuited::Other { file, other } => format!("{file} is written for {other}"),
                };
                if !why.contains(&told) {
                    why.push(told);
                }
            }
        }
    }
    let detail = format!(
        "the catalog has nothing for {engine} in cluster {}: {}",
        cluster.name,
        why.join("; ")
    );
    let next = format!(
        "commit what {engine} is to follow, with all that {} brings now, to {usual}, or name another path with --path",
        cluster.engine
    );
    Err(Problem::new(Slug::OtherEngine, detail, next))
}

fn checked(path: &str) -> Result<String, Problem> {
    let plain = path.trim_start_matches("./").trim_matches('/');
    let word = |part: &str| {
        let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        !part.is_empty() && part != "." && part != ".." && part.chars().all(fits)
    };
    if plain.len() <= 200 && plain.split('/').all(word) {
        return Ok(plain.to_owned());
    }
    let text = format!(
        "'{}' is not a path in the catalog",
        crate::hub::cut(path, 60)
    );
    let next = "give a directory of the catalog, such as clusters/eu1.argocd";
    Err(Problem::new(Slug::BadRequest, text, next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_stays_in_the_catalog() {
        for (given, plain) in [
            ("clusters/eu1.argocd", "clusters/eu1.argocd"),
            ("./a/b_c/", "a/b_c"),
        ] {
            assert_eq!(checked(given).ok().as_deref(), Some(plain));
        }
        for bad in ["", "/", "..", "a/../b", "a//b", "a b", "a/./b", "a\nb"] {
            assert!(checked(bad).is_err(), "{bad:?}");
        }
    }
}

//! What speaks against one engine in the other's place, as far as the hub can see: an agent that does not know how, a
//! catalog that has nothing for it.

use crate::hub::api::problem::{Problem, Slug};
use crate::hub::catalog::{self, Unsuited};
use crate::hub::git::Files;
use crate::hub::store::{Cluster, Details};
use crate::hub::{Hub, git, signers};
use crate::wire::api::{EngineKind, EngineRequest};
use crate::wire::report::{ENGINE_IN_FORCE, Facts, PATHS_IN_FORCE, REPLACES_ENGINES, VERIFIES};

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

/// The catalog's path that the engine is to follow: the one that it follows, or followed before the attempt that this ends, for led elsewhere it
/// prunes what that place lacks. One that comes new follows what was asked for, else the first of the usual ones that holds something for it.
pub(super) async fn path(
    hub: &Hub,
    cluster: &Cluster,
    details: &Details,
    asked: &EngineRequest,
) -> Result<String, Problem> {
    let engine = asked.engine;
    // What Flux refuses to apply unsigned, Argo CD would apply.
    let verifies = engine != EngineKind::Argocd || details.facts.contains_key(VERIFIES);
    let signers = hub.store.signers().await?;
    let in_force = details.facts.get(ENGINE_IN_FORCE);
    if in_force.is_none_or(|kind| kind != engine.as_str()) {
        signers::suit(&signers, engine)?;
    }
    if !verifies && !signers.is_empty() {
        let text = format!(
            "the catalog has signers, and the agent of cluster {} has not said that it has Argo CD verify",
            cluster.name
        );
        let next = "upgrade the agent ('linesman cluster upgrade'), keep Flux, or drop the signers first: linesman catalog signer --help";
        return Err(Problem::new(Slug::OtherEngine, text, next));
    }
    let named = asked.path.as_deref().map(checked).transpose()?;
    let candidates = match known(cluster, &details.facts, engine) {
        Known::Follows(path) => return stays(cluster, (engine, path.as_str()), named),
        Known::Followed(path) => vec![stays(cluster, (engine, path.as_str()), named)?],
        Known::Unsaid => vec![named.ok_or_else(|| unsaid(cluster, engine))?],
        Known::Nothing => match named {
            Some(path) => vec![path],
            None => usual(cluster, engine),
        },
    };
    // Nothing else: what a catalog has beside them may be large.
    let places = candidates.iter().map(|path| path.trim_matches('/'));
    let places = places.map(str::to_owned).collect();
    let files = git::below(&hub.catalog.repo, &hub.catalog.branch, places).await?;
    suited(&files, cluster, engine, &candidates)
}

/// What is known of the path that an engine follows.
#[derive(Debug, PartialEq, Eq)]
enum Known {
    /// It is in force, and does.
    Follows(String),
    /// It did, and comes back: the other one's attempt ends.
    Followed(String),
    /// It is in force, against the hub's word, and its agent, one of before, does not say what it follows.
    Unsaid,
    /// It comes new.
    Nothing,
}

/// By what the agent says is in force; while it says nothing, what the hub named last is.
fn known(cluster: &Cluster, facts: &Facts, engine: EngineKind) -> Known {
    let in_force = facts.get(ENGINE_IN_FORCE);
    let in_force = in_force.and_then(|kind| EngineKind::parse(kind));
    let told = facts.get(PATHS_IN_FORCE).map_or("", String::as_str);
    let told = told.split(',').filter_map(|one| one.split_once('='));
    let mut told = told.filter(|(kind, _)| *kind == engine.as_str());
    let told = told.next().and_then(|(_, path)| checked(path).ok());
    let is_in_force = in_force.unwrap_or(cluster.engine) == engine;
    match told {
        Some(path) if is_in_force => Known::Follows(path),
        Some(path) => Known::Followed(path),
        None if is_in_force && cluster.engine == engine => {
            Known::Follows(cluster.catalog_path.clone())
        }
        None if is_in_force => Known::Unsaid,
        None => Known::Nothing,
    }
}

/// Where one looks for what a cluster follows, in this order. An attempt that is repeated goes on where it was.
fn usual(cluster: &Cluster, engine: EngineKind) -> Vec<String> {
    let own = catalog::directory(&cluster.name, engine);
    let first = format!("clusters/{}", cluster.name);
    let last = cluster.catalog_path.clone();
    if cluster.engine == engine {
        vec![last, own, first]
    } else {
        vec![own, last, first]
    }
}

/// That path, where nobody names another one. The agent's word alone leads the hub nowhere but where clusters usually look: what the hub
/// writes of a cluster goes there, too.
fn stays(
    cluster: &Cluster,
    (engine, path): (EngineKind, &str),
    named: Option<String>,
) -> Result<String, Problem> {
    let name = &cluster.name;
    let usual = usual(cluster, engine).iter().any(|usual| usual == path);
    let (detail, next) = match named {
        Some(named) if named == path => return Ok(named),
        None if usual => return Ok(path.to_owned()),
        Some(named) => (
            format!(
                "{engine} follows {path} in cluster {name}, and led to {named} it would prune what that lacks"
            ),
            format!("leave the path out, and commit to {path} what the cluster is to have"),
        ),
        None => (
            format!(
                "the agent of cluster {name} says that {engine} follows {path} there, which the hub did not name"
            ),
            format!("if it is right, say so with --path {path}"),
        ),
    };
    Err(Problem::new(Slug::OtherEngine, detail, next))
}

fn unsaid(cluster: &Cluster, engine: EngineKind) -> Problem {
    let detail = format!(
        "the agent of cluster {} does not say what {engine} follows there, and led elsewhere it would prune what that place lacks",
        cluster.name
    );
    let next = "name what it follows with --path, as its root has it: spec.path of Kustomization flux-system, spec.source.path of \
                Application linesman";
    Problem::new(Slug::OtherEngine, detail, next)
}

/// The first of them that holds something for the engine.
fn suited(
    files: &Files,
    cluster: &Cluster,
    engine: EngineKind,
    candidates: &[String],
) -> Result<String, Problem> {
    let mut why = Vec::new();
    for path in candidates {
        match catalog::suits(files, path, engine) {
            Ok(()) => return Ok(path.clone()),
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
    let place = if let [only] = candidates {
        only.clone()
    } else {
        let own = catalog::directory(&cluster.name, engine);
        format!("{own}, or name another path with --path")
    };
    let other = engine.other();
    let next =
        format!("commit what {engine} is to follow, with all that {other} brings now, to {place}");
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

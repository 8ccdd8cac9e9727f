//! A cluster's record to its catalog files, and the catalog that a new hub starts with.
//!
//! What a cluster's directory holds is read off the shipped example: the directory of `eu1`, with the name put
//! in its place. So what the README describes and what `cluster add` writes cannot drift apart.

use std::collections::BTreeMap;
use std::path::Path;

use rust_embed::RustEmbed;

use serde_json::Value;

use super::git::Files;
use crate::manifests::EngineNamespaces;
use crate::wire::api::EngineKind;
use crate::wire::id::ClusterName;
use crate::yaml;

pub mod copy;
pub mod url;

/// The catalog a platform team starts from; it is also what a new hub commits first.
#[derive(RustEmbed)]
#[folder = "catalog-example/"]
struct Example;

/// The example cluster from which a new one's files are made.
const MODEL: &str = "eu1";

/// What a cluster with Argo CD follows: an Application has to name the repository that it reads.
const APPLICATIONS: [(&str, &str); 2] = [
    ("apps.yaml", include_str!("catalog/argocd/apps.yaml")),
    ("base.yaml", include_str!("catalog/argocd/base.yaml")),
];

/// What the catalog has to know of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterRecord {
    pub name: ClusterName,
    pub engine: EngineKind,
    pub engines: EngineNamespaces,
    pub labels: BTreeMap<String, String>,
    /// Where this cluster reads the catalog.
    pub url: String,
    pub branch: String,
}

/// All files of the first commit.
pub fn template() -> Files {
    let file = |path: std::borrow::Cow<'static, str>| {
        let content = Example::get(&path)?.data.into_owned();
        Some((path.into_owned(), content))
    };
    Example::iter().filter_map(file).collect()
}

/// The files of one cluster: `clusters/<name>/` and its overlay of the example app. `cluster add` commits
/// those that are missing.
pub fn files(record: &ClusterRecord) -> Files {
    let name = record.name.as_str();
    let overlay = like_the_model(name, "apps/hello/overlays/eu1/");
    let cluster = match record.engine {
        EngineKind::Flux => like_the_model(name, "clusters/eu1/"),
        EngineKind::Argocd => applications(record),
    };
    overlay.into_iter().chain(cluster).collect()
}

/// Where a new cluster begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// The directory that it follows.
    pub path: String,
    pub files: Files,
    /// What gives way to them, as it was found. Where that is nothing, all that is there already stays as it is.
    pub over: Files,
}

/// The directories that decide on a [`Start`], and hold what it writes.
pub fn places(name: &ClusterName, engine: EngineKind) -> [String; 3] {
    [
        directory(name, engine),
        format!("clusters/{name}"),
        format!("apps/hello/overlays/{name}"),
    ]
}

/// Where a new cluster begins, by what is `there` of its [`places`]: in the directory of its engine, if it holds something for that, else in
/// its own. What the example has there for the other engine, and nobody has touched, gives way to what it has for this one.
pub fn start(there: &Files, record: &ClusterRecord) -> Result<Start, Unsuited> {
    let engine = record.engine;
    let [of_engine, path, _] = places(&record.name, engine);
    if suits(there, &of_engine, engine).is_ok() {
        return Ok(Start {
            path: of_engine,
            files: Files::new(),
            over: Files::new(),
        });
    }
    let example = files(&ClusterRecord {
        engine: engine.other(),
        ..record.clone()
    });
    let mut files = files(record);
    let gives_way = |path: &String| {
        let live = there.get(path);
        live.is_some() && live == example.get(path) && live != files.get(path)
    };
    let mut over = example.clone();
    over.retain(|path, _| gives_way(path));
    let mut rest = there.clone();
    rest.retain(|path, _| !over.contains_key(path));
    match suits(&rest, &path, engine) {
        Ok(()) | Err(Unsuited::Empty) => {}
        Err(other) => return Err(other),
    }
    if !over.is_empty() {
        files.retain(|path, _| !rest.contains_key(path));
    }
    Ok(Start { path, files, over })
}

/// Where a cluster finds what an engine is to follow that takes the place of the one that it was added with. No other
/// cluster's name has a dot.
pub fn directory(name: &ClusterName, engine: EngineKind) -> String {
    format!("clusters/{name}.{engine}")
}

/// Why a directory is not one for an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unsuited {
    /// Nothing there, or nothing that is a manifest.
    Empty,
    /// A file has sync objects of the other engine.
    Other { file: String, other: EngineKind },
}

/// Whether an engine can follow what is below `path`: manifests, and among them none of the other engine's own kinds,
/// which would be applied and do nothing.
pub fn suits(files: &Files, path: &str, engine: EngineKind) -> Result<(), Unsuited> {
    let mut manifests = 0_usize;
    for (file, document) in documents(files, path) {
        let Some(version) = document.get("apiVersion").and_then(Value::as_str) else {
            continue;
        };
        manifests += 1;
        let kind = document.get("kind").and_then(Value::as_str);
        if speaks_for(version, kind.unwrap_or_default()).is_some_and(|of| of != engine) {
            return Err(Unsuited::Other {
                file: file.clone(),
                other: engine.other(),
            });
        }
    }
    if manifests == 0 {
        return Err(Unsuited::Empty);
    }
    Ok(())
}

/// What the manifests below `path` hold. What cannot be read says nothing of an engine; applying it is its own story.
fn documents<'a>(files: &'a Files, path: &str) -> impl Iterator<Item = (&'a String, Value)> {
    let below = format!("{}/", path.trim_matches('/'));
    let is_manifest = move |file: &str| {
        let ending = Path::new(file).extension();
        file.starts_with(&below) && ending.is_some_and(|e| e == "yaml" || e == "yml")
    };
    let manifests = files.iter().filter(move |(file, _)| is_manifest(file));
    manifests.flat_map(|(file, content)| {
        let text = String::from_utf8_lossy(content);
        let all = yaml::documents(&text).unwrap_or_default();
        all.into_iter().map(move |document| (file, document))
    })
}

/// The engine whose own kind it is. Argo's Rollouts and Workflows are of the same group, and go with either.
fn speaks_for(api_version: &str, kind: &str) -> Option<EngineKind> {
    let (group, _) = api_version.split_once('/')?;
    if group == "argoproj.io" {
        let own = matches!(kind, "Application" | "ApplicationSet" | "AppProject");
        own.then_some(EngineKind::Argocd)
    } else if group.ends_with(".toolkit.fluxcd.io") || group.ends_with(".extensions.fluxcd.io") {
        Some(EngineKind::Flux)
    } else {
        None
    }
}

fn like_the_model(name: &str, directory: &str) -> Files {
    template()
        .into_iter()
        .filter(|(path, _)| path.starts_with(directory))
        .map(|(path, content)| {
            let text = String::from_utf8_lossy(&content).into_owned();
            (
                path.replace(MODEL, name),
                text.replace(MODEL, name).into_bytes(),
            )
        })
        .collect()
}

fn applications(record: &ClusterRecord) -> Files {
    let file = |(file, text): (&str, &str)| {
        let text = text
            .replace("NAMESPACE", record.engines.of(EngineKind::Argocd))
            .replace("CLUSTER", record.name.as_str())
            .replace("CATALOG", &record.url)
            .replace("BRANCH", &record.branch);
        (
            format!("clusters/{}/{file}", record.name),
            text.into_bytes(),
        )
    };
    APPLICATIONS.into_iter().map(file).collect()
}

#[cfg(test)]
mod tests;

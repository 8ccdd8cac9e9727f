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
    let below = format!("{}/", path.trim_matches('/'));
    let mut manifests = 0_usize;
    for (file, content) in files.iter().filter(|(file, _)| file.starts_with(&below)) {
        let ending = Path::new(file).extension();
        if !ending.is_some_and(|ending| ending == "yaml" || ending == "yml") {
            continue;
        }
        // What cannot be read says nothing of an engine; applying it is its own story.
        let text = String::from_utf8_lossy(content);
        for document in yaml::documents(&text).unwrap_or_default() {
            let version = document.get("apiVersion").and_then(Value::as_str);
            let Some(version) = version else { continue };
            manifests += 1;
            if speaks_for(version).is_some_and(|of| of != engine) {
                return Err(Unsuited::Other {
                    file: file.clone(),
                    other: engine.other(),
                });
            }
        }
    }
    if manifests == 0 {
        return Err(Unsuited::Empty);
    }
    Ok(())
}

/// The engine whose own kinds an API group has.
fn speaks_for(api_version: &str) -> Option<EngineKind> {
    let (group, _) = api_version.split_once('/')?;
    if group == "argoproj.io" {
        Some(EngineKind::Argocd)
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
mod tests {
    use super::*;

    fn record(name: &str) -> ClusterRecord {
        ClusterRecord {
            name: name.parse().unwrap(),
            engine: EngineKind::Flux,
            engines: EngineNamespaces::default(),
            labels: BTreeMap::new(),
            url: "ssh://git@hub.example.com:2222/catalog.git".to_owned(),
            branch: "main".to_owned(),
        }
    }

    fn under(name: &str) -> Files {
        let own = |path: &String| {
            path.starts_with(&format!("clusters/{name}/"))
                || path.starts_with(&format!("apps/hello/overlays/{name}/"))
        };
        template().into_iter().filter(|(p, _)| own(p)).collect()
    }

    #[test]
    fn the_example_is_what_cluster_add_writes() {
        for name in ["eu1", "us1"] {
            let files = files(&record(name));
            assert_eq!(files, under(name));
            assert!(files.contains_key(&format!("clusters/{name}/apps.yaml")));
        }
    }

    #[test]
    fn a_directory_is_for_the_engine_whose_kinds_it_has_or_for_both() {
        let record = |engine| ClusterRecord {
            engine,
            ..record("eu1")
        };
        let (flux, argocd) = (EngineKind::Flux, EngineKind::Argocd);
        let plain = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n".to_vec();
        let own: Files = [
            ("both/a.yaml".to_owned(), plain.clone()),
            ("none/README.md".to_owned(), plain.clone()),
            ("none/empty.yaml".to_owned(), b"# nothing\n".to_vec()),
            ("clusters/eu1-2/a.yaml".to_owned(), plain),
        ]
        .into();
        let other = |file: &str, other| {
            Err(Unsuited::Other {
                file: file.to_owned(),
                other,
            })
        };
        for (files, path, engine, expected) in [
            (&files(&record(flux)), "clusters/eu1", flux, Ok(())),
            (
                &files(&record(flux)),
                "clusters/eu1",
                argocd,
                other("clusters/eu1/apps.yaml", flux),
            ),
            (&files(&record(argocd)), "clusters/eu1/", argocd, Ok(())),
            (
                &files(&record(argocd)),
                "clusters/eu1",
                flux,
                other("clusters/eu1/apps.yaml", argocd),
            ),
            (&own, "both", flux, Ok(())),
            (&own, "both", argocd, Ok(())),
            (&own, "none", argocd, Err(Unsuited::Empty)),
            (&own, "clusters/eu1", argocd, Err(Unsuited::Empty)),
        ] {
            assert_eq!(suits(files, path, engine), expected, "{path} {engine}");
        }
    }

    #[test]
    fn a_new_cluster_is_named_nowhere_else() {
        let files = files(&record("ap-southeast-7"));
        assert_eq!(files.len(), under("eu1").len());
        for (path, content) in files {
            assert!(path.contains("/ap-southeast-7/"), "{path}");
            assert!(
                !String::from_utf8(content).unwrap().contains("eu1"),
                "{path}"
            );
        }
    }

    #[test]
    fn a_cluster_with_argo_cd_gets_applications_of_the_same_paths() {
        let record = ClusterRecord {
            engine: EngineKind::Argocd,
            ..record("ap1")
        };
        let elsewhere = ClusterRecord {
            engines: EngineNamespaces::new("gitops".to_owned()),
            ..record.clone()
        };
        let (files, moved) = (files(&record), files(&elsewhere));
        for path in ["clusters/ap1/apps.yaml", "clusters/ap1/base.yaml"] {
            let text = |files: &Files| String::from_utf8(files[path].clone()).unwrap();
            let usual = "\n  namespace: argocd\n";
            assert!(text(&files).contains(usual), "{path}");
            let there = text(&files).replace(usual, "\n  namespace: gitops\n");
            assert_eq!(text(&moved), there);
        }
        let paths: Vec<&str> = files.keys().map(String::as_str).collect();
        assert_eq!(
            paths,
            [
                "apps/hello/overlays/ap1/index.html",
                "apps/hello/overlays/ap1/kustomization.yaml",
                "clusters/ap1/apps.yaml",
                "clusters/ap1/base.yaml",
            ]
        );
        for (file, path) in [("apps", "apps/hello/overlays/ap1"), ("base", "base")] {
            let text = &files[&format!("clusters/ap1/{file}.yaml")];
            let text = std::str::from_utf8(text).unwrap();
            let application = yaml::documents(text).unwrap().remove(0);
            assert_eq!(
                application["spec"]["source"],
                serde_json::json!({"repoURL": record.url, "targetRevision": "main", "path": path})
            );
        }
    }

    #[test]
    fn the_template_holds_the_shipped_files() {
        let template = template();
        for path in [
            "README.md",
            "base/kustomization.yaml",
            "clusters/us1/base.yaml",
        ] {
            let shipped = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("catalog-example")
                .join(path);
            assert_eq!(template.get(path), std::fs::read(shipped).ok().as_ref());
        }
    }
}

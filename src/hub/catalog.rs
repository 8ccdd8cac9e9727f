//! A cluster's record to its catalog files, and the catalog that a new hub starts with.
//!
//! What a cluster's directory holds is read off the shipped example: the directory of `eu1`, with the name put
//! in its place. So what the README describes and what `cluster add` writes cannot drift apart.

use std::collections::BTreeMap;

use rust_embed::RustEmbed;

use super::git::Files;
use crate::wire::api::EngineKind;
use crate::wire::id::ClusterName;

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
        let files = files(&record);
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
            let application = crate::yaml::documents(text).unwrap().remove(0);
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
            let shipped = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("catalog-example")
                .join(path);
            assert_eq!(template.get(path), std::fs::read(shipped).ok().as_ref());
        }
    }
}

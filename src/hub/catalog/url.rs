//! By which URL the Applications of a cluster name the catalog. Argo CD has the key for one: that of the way by which it reads it.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{ClusterRecord, applications, documents, speaks_for};
use crate::hub::git::Files;
use crate::wire::api::EngineKind;

/// The Applications that a cluster begins with, by another URL of the catalog and by the one that it has to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    pub from: Files,
    pub to: Files,
}

impl Turn {
    /// Of a cluster that is to read the catalog as `record` says.
    pub fn of(record: &ClusterRecord, other: &str) -> Self {
        let before = ClusterRecord {
            url: other.to_owned(),
            ..record.clone()
        };
        Self {
            from: applications(&before),
            to: applications(record),
        }
    }

    /// Of these files alone: in the others somebody has a hand. None = there are none.
    pub fn only(mut self, paths: &BTreeSet<String>) -> Option<Self> {
        self.from.retain(|path, _| paths.contains(path));
        self.to.retain(|path, _| paths.contains(path));
        (!self.from.is_empty()).then_some(self)
    }
}

/// The files below `path` in which an Application or what makes some reads this URL.
pub fn readers(files: &Files, path: &str, url: &str) -> BTreeSet<String> {
    let found = documents(files, path).filter(|(_, document)| {
        let text = |key: &str| {
            document
                .get(key)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let of = speaks_for(text("apiVersion"), text("kind"));
        of == Some(EngineKind::Argocd) && reads(document, url)
    });
    found.map(|(file, _)| file.clone()).collect()
}

/// Whether a `repoURL` in it, of the source, of one of several or of a generator, is this one.
fn reads(value: &Value, url: &str) -> bool {
    match value {
        Value::Object(fields) => fields.iter().any(|(key, value)| {
            let is_source = key == "repoURL" && value.as_str() == Some(url);
            is_source || reads(value, url)
        }),
        Value::Array(items) => items.iter().any(|item| reads(item, url)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::manifests::EngineNamespaces;

    const DIRECT: &str = "ssh://git@hub.example.com:2222/catalog.git";
    const LINE: &str = "ssh://git@linesman-git.linesman.svc/catalog.git";
    const APPS: &str = "clusters/ap1/apps.yaml";
    const BASE: &str = "clusters/ap1/base.yaml";

    fn record(url: &str) -> ClusterRecord {
        ClusterRecord {
            name: "ap1".parse().unwrap(),
            engine: EngineKind::Argocd,
            engines: EngineNamespaces::new("gitops".to_owned()),
            labels: BTreeMap::new(),
            url: url.to_owned(),
            branch: "main".to_owned(),
        }
    }

    #[test]
    fn what_a_cluster_begins_with_differs_in_the_url_alone() {
        for (to, from) in [(LINE, DIRECT), (DIRECT, LINE)] {
            let turn = Turn::of(&record(to), from);
            let paths: Vec<&str> = turn.from.keys().map(String::as_str).collect();
            assert_eq!(paths, [APPS, BASE]);
            let mut expected = turn.from.clone();
            for text in expected.values_mut() {
                let turned = std::str::from_utf8(text).unwrap().replace(from, to);
                *text = turned.into_bytes();
            }
            assert_ne!(expected, turn.from);
            assert_eq!(turn.to, expected);
            // It is what `cluster add` writes.
            let added = super::super::files(&record(from));
            assert!(
                turn.from
                    .iter()
                    .all(|(path, text)| added.get(path) == Some(text))
            );
        }
    }

    #[test]
    fn only_files_that_are_as_they_were_written_are_turned() {
        let turn = Turn::of(&record(LINE), DIRECT);
        let paths = |all: &[&str]| -> BTreeSet<String> {
            all.iter().map(|path| (*path).to_owned()).collect()
        };
        assert_eq!(turn.clone().only(&paths(&[])), None);
        assert_eq!(turn.clone().only(&paths(&["clusters/us1/apps.yaml"])), None);
        let one = turn.clone().only(&paths(&[BASE])).unwrap();
        assert_eq!(
            one.from,
            [(BASE.to_owned(), turn.from[BASE].clone())].into()
        );
        assert_eq!(one.to, [(BASE.to_owned(), turn.to[BASE].clone())].into());
        assert_eq!(turn.clone().only(&paths(&[APPS, BASE])), Some(turn));
    }

    #[test]
    fn whatever_has_argo_cd_read_the_other_url_is_found_and_nothing_else() {
        let at = |version: &str, kind: &str, spec: &str| {
            format!("apiVersion: {version}\nkind: {kind}\nspec:\n  {spec}\n")
        };
        let own = "argoproj.io/v1alpha1";
        let template = format!("template: {{spec: {{source: {{repoURL: {LINE}}}}}}}");
        let generator = format!("generators: [{{git: {{repoURL: {LINE}}}}}]");
        let several = format!("sources: [{{repoURL: {DIRECT}}}, {{repoURL: {LINE}}}]");
        let one = |url: &str| format!("source: {{repoURL: {url}}}");
        let both =
            at(own, "Application", &one(DIRECT)) + "---\n" + &at(own, "Application", &one(LINE));
        let all = [
            ("c/set.yaml", at(own, "ApplicationSet", &template), true),
            (
                "c/generator.yaml",
                at(own, "ApplicationSet", &generator),
                true,
            ),
            ("c/d/several.yml", at(own, "Application", &several), true),
            ("c/both.yaml", both, true),
            ("c/right.yaml", at(own, "Application", &one(DIRECT)), false),
            ("c/rollout.yaml", at(own, "Rollout", &one(LINE)), false),
            (
                "c/other.yaml",
                at("example.org/v1", "Application", &one(LINE)),
                false,
            ),
            ("c/notes.txt", at(own, "Application", &one(LINE)), false),
            ("c/broken.yaml", format!("{{repoURL: {LINE}"), false),
            (
                "c.argocd/one.yaml",
                at(own, "Application", &one(LINE)),
                false,
            ),
        ];
        let expected: BTreeSet<String> = all
            .iter()
            .filter(|(_, _, found)| *found)
            .map(|(path, _, _)| (*path).to_owned())
            .collect();
        let files = all.map(|(path, text, _)| (path.to_owned(), text.into_bytes()));
        let files: Files = files.into();
        assert_eq!(readers(&files, "c", LINE), expected);
    }
}

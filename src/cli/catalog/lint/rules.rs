//! What a catalog must not hold. Pure: file names and texts in, findings out.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

use crate::wire::id::ClusterName;

/// One thing to mend.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct Finding {
    pub file: String,
    pub message: String,
    pub fix: String,
}

mod argo;
mod engines;
mod refused;

type Files = BTreeMap<String, String>;

/// A parsed document and the file that it stands in.
struct Document<'a> {
    file: &'a str,
    value: Value,
}

/// All findings, by file.
pub(super) fn lint(files: &Files) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut documents = Vec::new();
    for (file, text) in files.iter().filter(|(file, _)| is_yaml(file)) {
        match crate::yaml::documents(text) {
            Ok(values) => {
                documents.extend(values.into_iter().map(|value| Document { file, value }));
            }
            Err(e) => findings.push(finding(
                file,
                &format!("does not parse: {e}"),
                "mend the YAML",
            )),
        }
    }
    cluster_names(files, &mut findings);
    let patches = refused::patches(&documents);
    for document in &documents {
        if is_kustomization(document.file) {
            kustomization(files, document, &mut findings);
        } else {
            object(document, &mut findings);
            if !patches.contains(document.file) {
                refused::object(document, &mut findings);
            }
            flux_kustomization(files, document, &documents, &mut findings);
            argo::application(files, document, &mut findings);
        }
    }
    argo::misspelt(&documents, &mut findings);
    engines::mixed(&documents, &mut findings);
    unnamed_files(files, &documents, &mut findings);
    twice(&documents, &mut findings);
    findings.sort();
    findings.dedup();
    findings
}

fn finding(file: &str, message: &str, fix: &str) -> Finding {
    Finding {
        file: file.to_owned(),
        message: message.to_owned(),
        fix: fix.to_owned(),
    }
}

fn is_yaml(file: &str) -> bool {
    file.rsplit_once('.')
        .is_some_and(|(_, end)| end == "yaml" || end == "yml")
}

fn is_kustomization(file: &str) -> bool {
    matches!(
        file.rsplit('/').next(),
        Some("kustomization.yaml" | "kustomization.yml" | "Kustomization")
    )
}

fn directory(file: &str) -> &str {
    file.rsplit_once('/').map_or("", |(directory, _)| directory)
}

fn text<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    path.iter()
        .fold(value, |value, key| &value[*key])
        .as_str()
        .unwrap_or_default()
}

fn cluster_names(files: &Files, findings: &mut Vec<Finding>) {
    let inside = files
        .keys()
        .filter_map(|f| f.strip_prefix("clusters/")?.split_once('/'));
    for name in inside.map(|(name, _)| name).collect::<BTreeSet<_>>() {
        if let Err(e) = engines::cluster_of(name).parse::<ClusterName>() {
            findings.push(finding(
                &format!("clusters/{name}"),
                &e.to_string(),
                "rename the directory",
            ));
        }
    }
}

/// Every path that a kustomization names has to be there, inside the repository.
fn kustomization(files: &Files, document: &Document<'_>, findings: &mut Vec<Finding>) {
    for (field, path) in references(&document.value) {
        if path.contains("://") || path.contains('\n') || path.contains("github.com") {
            continue;
        }
        let fault = match resolve(directory(document.file), &path) {
            None => "leaves the repository",
            Some(target) if exists(files, &target, field) => continue,
            Some(_) => "is not there",
        };
        let message = format!("{field} '{path}' {fault}");
        findings.push(finding(
            document.file,
            &message,
            "name a file, or a directory that holds a kustomization.yaml",
        ));
    }
}

/// The paths that a kustomization names, with the field that does.
fn references(kustomization: &Value) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    for field in [
        "resources",
        "components",
        "bases",
        "crds",
        "configurations",
        "patchesStrategicMerge",
    ] {
        let items = kustomization[field]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str);
        found.extend(items.map(|path| (field, path.to_owned())));
    }
    for patch in kustomization["patches"].as_array().into_iter().flatten() {
        found.extend(
            patch["path"]
                .as_str()
                .map(|path| ("patches", path.to_owned())),
        );
    }
    found
}

/// A directory counts for what can be a directory, and only with a kustomization in it.
fn exists(files: &Files, target: &str, field: &str) -> bool {
    let inside = |name: &str| {
        if target.is_empty() {
            name.to_owned()
        } else {
            format!("{target}/{name}")
        }
    };
    let directory = ["kustomization.yaml", "kustomization.yml", "Kustomization"]
        .iter()
        .any(|n| files.contains_key(&inside(n)));
    files.contains_key(target)
        || (directory && matches!(field, "resources" | "components" | "bases"))
}

/// `path` seen from `base`, without `.` and `..`; None where it leaves the repository.
fn resolve(base: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = if path.starts_with('/') {
        return None;
    } else {
        base.split('/').collect()
    };
    parts.retain(|part| !part.is_empty());
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// What holds for each Kubernetes object.
fn object(document: &Document<'_>, findings: &mut Vec<Finding>) {
    let Document { file, value } = document;
    if value.is_null() {
        return;
    }
    let (kind, name) = (text(value, &["kind"]), text(value, &["metadata", "name"]));
    if kind.is_empty() || text(value, &["apiVersion"]).is_empty() {
        // Values files and the like lie beside charts; only what a cluster's directory holds is applied as it is.
        if file.starts_with("clusters/") {
            findings.push(finding(
                file,
                "is no Kubernetes object: no apiVersion or kind",
                "move it out of clusters/",
            ));
        }
        return;
    }
    let generated =
        !text(value, &["metadata", "generateName"]).is_empty() || kind.ends_with("List");
    if name.is_empty() && !generated {
        findings.push(finding(
            file,
            &format!("{kind} without metadata.name"),
            "name it",
        ));
    }
    let clear = ["data", "stringData"]
        .iter()
        .any(|f| value[*f].as_object().is_some_and(|o| !o.is_empty()));
    if kind == "Secret" && clear && value["sops"].is_null() {
        let message =
            format!("Secret {name} in clear text: everyone who reads the catalog reads it");
        findings.push(finding(
            file,
            &message,
            "encrypt it with SOPS, or keep it in a secrets manager",
        ));
    }
}

/// A Flux Kustomization's path and dependencies have to be there.
fn flux_kustomization(
    files: &Files,
    document: &Document<'_>,
    all: &[Document<'_>],
    findings: &mut Vec<Finding>,
) {
    let Document { file, value } = document;
    if !is_flux(value) {
        return;
    }
    let name = text(value, &["metadata", "name"]);
    source(document, all, findings);
    // Of another repository nothing is known here.
    let ours = matches!(
        text(value, &["spec", "sourceRef", "name"]),
        "" | "flux-system"
    );
    let path = text(value, &["spec", "path"]);
    if ours && !path.is_empty() {
        match resolve("", path.trim_start_matches('/')) {
            Some(target) if is_directory(files, &target) => {}
            _ => {
                let message = format!("Kustomization {name}: spec.path '{path}' is not there");
                findings.push(finding(
                    file,
                    &message,
                    "name a directory of this repository",
                ));
            }
        }
    }
    for needed in value["spec"]["dependsOn"].as_array().into_iter().flatten() {
        let wanted = text(needed, &["name"]);
        let found = all.iter().any(|d| {
            is_flux(&d.value)
                && text(&d.value, &["metadata", "name"]) == wanted
                && cluster(d.file) == cluster(file)
        });
        if !found {
            let message = format!(
                "Kustomization {name} depends on '{wanted}', which this cluster does not have"
            );
            findings.push(finding(
                file,
                &message,
                "correct spec.dependsOn: it would wait for ever",
            ));
        }
    }
}

/// A Kustomization's source is the catalog itself, or one that the catalog defines.
fn source(document: &Document<'_>, all: &[Document<'_>], findings: &mut Vec<Finding>) {
    const FIX: &str = "the catalog itself is sourceRef: {kind: GitRepository, name: flux-system}";
    let Document { file, value } = document;
    let name = text(value, &["metadata", "name"]);
    let field = |key| text(value, &["spec", "sourceRef", key]);
    let (kind, wanted) = (field("kind"), field("name"));
    if kind.is_empty() || wanted.is_empty() {
        let message = format!("Kustomization {name} has no spec.sourceRef with kind and name");
        findings.push(finding(file, &message, FIX));
        return;
    }
    let ours = kind == "GitRepository" && wanted == "flux-system";
    let defined = all.iter().any(|d| {
        text(&d.value, &["kind"]) == kind && text(&d.value, &["metadata", "name"]) == wanted
    });
    if !ours && !defined {
        let message = format!(
            "Kustomization {name}: the catalog defines no {kind} '{wanted}' to take it from"
        );
        findings.push(finding(file, &message, FIX));
    }
}

fn is_flux(value: &Value) -> bool {
    text(value, &["kind"]) == "Kustomization"
        && text(value, &["apiVersion"]).starts_with("kustomize.toolkit.fluxcd.io/")
}

fn is_directory(files: &Files, target: &str) -> bool {
    target.is_empty()
        || files.keys().any(|f| {
            f.strip_prefix(target)
                .is_some_and(|rest| rest.starts_with('/'))
        })
}

/// The cluster whose directory holds the file.
fn cluster(file: &str) -> Option<&str> {
    Some(file.strip_prefix("clusters/")?.split_once('/')?.0)
}

/// Beside a kustomization.yaml, a file that it does not name is never applied.
fn unnamed_files(files: &Files, documents: &[Document<'_>], findings: &mut Vec<Finding>) {
    for document in documents.iter().filter(|d| is_kustomization(d.file)) {
        let base = directory(document.file);
        // Generators and transformers name files in many ways; where they are used, nothing can be said.
        if [
            "configMapGenerator",
            "secretGenerator",
            "helmCharts",
            "generators",
            "transformers",
            "replacements",
        ]
        .iter()
        .any(|field| !document.value[*field].is_null())
        {
            continue;
        }
        let named: BTreeSet<_> = references(&document.value)
            .iter()
            .filter_map(|(_, p)| resolve(base, p))
            .collect();
        let beside = files
            .keys()
            .filter(|f| directory(f) == base && is_yaml(f) && !is_kustomization(f));
        for file in beside.filter(|f| !named.contains(*f)) {
            let fix = format!("add it to {}", document.file);
            findings.push(finding(
                file,
                "is applied to no cluster: the kustomization.yaml beside it does not name it",
                &fix,
            ));
        }
    }
}

/// A cluster's own directory must not give it one object twice: the engine would refuse or flap.
fn twice(documents: &[Document<'_>], findings: &mut Vec<Finding>) {
    let mut seen: BTreeMap<(&str, &str, &str, &str, &str), &str> = BTreeMap::new();
    for Document { file, value } in documents.iter().filter(|d| !is_kustomization(d.file)) {
        let Some(cluster) = cluster(file) else {
            continue;
        };
        let group = text(value, &["apiVersion"])
            .rsplit_once('/')
            .map_or("", |(group, _)| group);
        let (kind, name) = (text(value, &["kind"]), text(value, &["metadata", "name"]));
        let key = (
            cluster,
            group,
            kind,
            text(value, &["metadata", "namespace"]),
            name,
        );
        if kind.is_empty() || name.is_empty() {
            continue;
        }
        if let Some(first) = seen.insert(key, file) {
            let message = if first == *file {
                format!("{kind} {name} stands in this file twice")
            } else {
                format!("{kind} {name} stands in {first} as well")
            };
            findings.push(finding(file, &message, "keep one of them"));
        }
    }
}

#[cfg(test)]
mod tests;

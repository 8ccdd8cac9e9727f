//! What holds for Argo CD's Applications.

use std::collections::BTreeSet;

use serde_json::Value;
use strsim::osa_distance;

use super::{Document, Files, Finding, finding, is_directory, resolve, text};

/// The name of the one repository that a hub serves.
const CATALOG: &str = "catalog";
/// So many slips of the keyboard make a name that nobody meant.
const SLIPS: usize = 2;

/// The path of an Application that reads the catalog has to be there. Which repository that is, only the root knows:
/// a cluster's own Applications read it unless they say a Helm chart.
pub(super) fn application(files: &Files, document: &Document<'_>, findings: &mut Vec<Finding>) {
    let Document { file, value } = document;
    if !is_application(value) {
        return;
    }
    let name = text(value, &["metadata", "name"]);
    let source = |key| text(value, &["spec", "source", key]);
    let many = !value["spec"]["sources"].is_null();
    if source("repoURL").is_empty() && !many {
        findings.push(finding(
            file,
            &format!("Application {name} has no spec.source.repoURL"),
            "name the repository that it reads; for the catalog, the URL of the cluster's other Applications",
        ));
    }
    let path = source("path");
    let ours = source("repoURL")
        .trim_end_matches(".git")
        .ends_with("/catalog");
    if ours && !path.is_empty() {
        match resolve("", path.trim_start_matches('/')) {
            Some(target) if is_directory(files, &target) => {}
            _ => findings.push(finding(
                file,
                &format!("Application {name}: spec.source.path '{path}' is not there"),
                "name a directory of this repository",
            )),
        }
    }
}

fn is_application(value: &Value) -> bool {
    text(value, &["apiVersion"]).starts_with("argoproj.io/")
        && text(value, &["kind"]) == "Application"
}

/// A repository that nobody serves: at the hub of another Application's catalog there is no other one, and its name is nearly
/// the catalog's. Of other servers and names nothing is known here.
pub(super) fn misspelt(documents: &[Document<'_>], findings: &mut Vec<Finding>) {
    let applications = || documents.iter().filter(|d| is_application(&d.value));
    let all = applications().flat_map(|d| repositories(&d.value));
    let hubs: BTreeSet<&str> = all
        .filter_map(served)
        .filter_map(|(server, name)| (name == CATALOG).then_some(server))
        .collect();
    for Document { file, value } in applications() {
        for url in repositories(value) {
            let nearly = served(url).is_some_and(|(server, name)| {
                let near = name != CATALOG && osa_distance(name, CATALOG) <= SLIPS;
                near && hubs.contains(server)
            });
            if nearly {
                let name = text(value, &["metadata", "name"]);
                let message = format!(
                    "Application {name} reads {url}, and the hub serves no repository but '{CATALOG}.git'"
                );
                let fix = "give it the URL of the cluster's other Applications";
                findings.push(finding(file, &message, fix));
            }
        }
    }
}

/// The repositories that an Application reads.
fn repositories(value: &Value) -> impl Iterator<Item = &str> {
    let spec = &value["spec"];
    let many = spec["sources"].as_array().into_iter().flatten();
    let all = std::iter::once(&spec["source"]).chain(many);
    all.filter_map(|source| source["repoURL"].as_str())
}

/// Server and name of a repository, where its URL has the form of the hub's: `ssh://git@hub:2222/catalog.git`.
fn served(url: &str) -> Option<(&str, &str)> {
    let (server, name) = url.strip_prefix("ssh://")?.split_once('/')?;
    let name = name.strip_suffix(".git").unwrap_or(name);
    (!name.contains('/')).then_some((server, name))
}

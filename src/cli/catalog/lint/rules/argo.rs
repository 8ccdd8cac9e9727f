//! What holds for Argo CD's Applications.

use super::{Document, Files, Finding, finding, is_directory, resolve, text};

/// The path of an Application that reads the catalog has to be there. Which repository that is, only the root knows:
/// a cluster's own Applications read it unless they say a Helm chart.
pub(super) fn application(files: &Files, document: &Document<'_>, findings: &mut Vec<Finding>) {
    let Document { file, value } = document;
    let argo = text(value, &["apiVersion"]).starts_with("argoproj.io/");
    if !argo || text(value, &["kind"]) != "Application" {
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

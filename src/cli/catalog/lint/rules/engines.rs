//! Which engine a cluster's directory is for. A cluster has one; what the other is to follow once it takes its place stands in
//! a directory of its own, with the engine's name behind the cluster's.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Document, Finding, cluster, finding, text};
use crate::wire::api::EngineKind;

/// The cluster of a directory below `clusters/`, be it `eu1` or `eu1.argocd`.
pub(super) fn cluster_of(directory: &str) -> &str {
    named(directory).map_or(directory, |(cluster, _)| cluster)
}

fn named(directory: &str) -> Option<(&str, EngineKind)> {
    let (cluster, engine) = directory.rsplit_once('.')?;
    Some((cluster, EngineKind::parse(engine)?))
}

/// One engine's own kinds beside the other's: they would be applied and do nothing, and the hub gives such a directory to
/// neither in a hand-over.
pub(super) fn mixed(documents: &[Document<'_>], findings: &mut Vec<Finding>) {
    let mut first: BTreeMap<&str, (EngineKind, &str)> = BTreeMap::new();
    for Document { file, value } in documents {
        let (Some(directory), Some(engine)) = (cluster(file), speaks_for(value)) else {
            continue;
        };
        let own = named(directory).map(|(_, engine)| (engine, directory));
        let begun = own.unwrap_or((engine, *file));
        let (other, beside) = *first.entry(directory).or_insert(begun);
        if other == engine {
            continue;
        }
        let (kind, name) = (text(value, &["kind"]), text(value, &["metadata", "name"]));
        let message = format!(
            "{kind} {name} is for {engine}, and {beside} for {other}: a cluster has one engine"
        );
        let fix = format!(
            "keep here what {other} reads; what {engine} is to follow in its place stands in clusters/{}.{engine}",
            cluster_of(directory)
        );
        findings.push(finding(file, &message, &fix));
    }
}

/// The engine whose own object it is. Rollouts and workflows are of Argo CD's group, and need no Argo CD.
fn speaks_for(value: &Value) -> Option<EngineKind> {
    let (group, _) = text(value, &["apiVersion"]).split_once('/')?;
    let kind = text(value, &["kind"]);
    if group == "argoproj.io" && matches!(kind, "Application" | "ApplicationSet" | "AppProject") {
        Some(EngineKind::Argocd)
    } else if group.ends_with(".toolkit.fluxcd.io") {
        Some(EngineKind::Flux)
    } else {
        None
    }
}

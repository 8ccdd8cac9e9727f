//! The agent's manifests as the catalog may keep them, so that the engine brings back what was deleted of them.
//!
//! Public by nature: no token, no key, no password. Nothing of it is for what is there already: both engines leave an
//! object alone that exists, whatever it holds, for the agent and the cluster's owner change theirs.

use serde_json::{Value, json};

use super::{
    ACCESS_GROUPS, AdoptionValues, HUB_MAP, JOIN_SECRET, adoption, hub_key_lines, metadata,
};
use crate::manifests::proxy;
use crate::yaml;

/// The Kustomization, in Flux' namespace, that follows the copy.
pub const FLUX_SYNC: &str = "linesman";
/// The Application that does. The root Application has the product's name.
pub const ARGOCD_SYNC: &str = "linesman-agent";
/// The directory of the catalog with a directory for each cluster's copy.
pub const DIRECTORY: &str = "linesman";
/// What Flux and Argo CD read on each object: make it where it is missing, never change it, never prune it.
const MARKS: [(&str, &str); 3] = [
    ("kustomize.toolkit.fluxcd.io/ssa", "IfNotPresent"),
    ("kustomize.toolkit.fluxcd.io/prune", "disabled"),
    ("argocd.argoproj.io/sync-options", "Prune=false"),
];
const HEAD: &str = "\
# Written by Linesman's hub, which writes it anew: edits here are lost. The engine makes an object of these only where it is
# missing. No key, token or password is in here.
";

/// Why a cluster's agent cannot be kept in Git.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the agent's proxy takes a password, and what is in the catalog is read by many")]
pub struct HasPassword;

/// The objects, in the order in which they are to be applied; the token of `values` is not among them.
///
/// What people may do in the cluster is its owner's to give and to take: the bindings of the access groups are left out.
///
/// # Errors
/// The way to the hub needs a password.
pub fn copy(values: &AdoptionValues) -> Result<Vec<Value>, HasPassword> {
    let proxy = Some(&values.https_proxy).filter(|url| !url.is_empty());
    if proxy.is_some_and(|url| proxy::parse(url).map_or(true, |p| p.credentials.is_some())) {
        return Err(HasPassword);
    }
    let kept = adoption(values).into_iter().filter(|o| !is_access(o));
    let mut objects: Vec<Value> = kept
        .map(|object| match object["metadata"]["name"].as_str() {
            Some(JOIN_SECRET) => hub_map(values),
            _ => object,
        })
        .collect();
    for object in &mut objects {
        for (key, value) in MARKS {
            object["metadata"]["annotations"][key] = json!(value);
        }
    }
    Ok(objects)
}

/// The file's text.
pub fn to_yaml(objects: &[Value]) -> String {
    let text = yaml::print_all(objects).expect("JSON values can be written as YAML");
    format!("{HEAD}{text}")
}

/// A group of people is bound to a role in the whole cluster.
fn is_access(object: &Value) -> bool {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let named = |group: &str| group.replace(':', "-") == name;
    object["kind"] == "ClusterRoleBinding" && ACCESS_GROUPS.iter().any(|(_, group, _)| named(group))
}

/// What an agent without the adoption YAML's Secret has to know of its hub, all of it public.
fn hub_map(values: &AdoptionValues) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(HUB_MAP),
        "data": {
            "hub": values.hub_url,
            "hub-key": hub_key_lines(&values.hub_keys),
            "ca.crt": values.hub_ca,
            "cluster": values.cluster.as_str(),
            "proxy": values.https_proxy,
            "no-proxy": values.no_proxy,
        },
    })
}

#[cfg(test)]
mod tests;

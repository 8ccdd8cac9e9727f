//! What an Application lists of what it brought, and of what it would prune of that.

use std::collections::BTreeSet;

use serde_json::Value;

use super::place;
use crate::agent::engine::argocd::ROOT;
use crate::bundle::{Kind, ObjectId};

/// So many objects of known kinds may one Application say it would prune.
pub const MAX_EXTRA: usize = 4096;

/// Resources that an Application would prune, by its status.
pub fn pruned(status: &Value) -> impl Iterator<Item = ObjectId> {
    let all = status.get("resources").and_then(Value::as_array);
    all.into_iter().flatten().filter_map(extra_of)
}

/// Of them those that may be the engine's.
pub(super) fn extra(namespace: &str, status: &Value) -> BTreeSet<ObjectId> {
    let ours = |id: &ObjectId| {
        let root = id.kind == Kind::Application && id.name == ROOT;
        is_near(namespace, id) || root && id.namespace == namespace
    };
    pruned(status).filter(ours).take(MAX_EXTRA).collect()
}

/// All of them that may be the engine's; none where there are none at all, or more than are read.
pub(super) fn lists(namespace: &str, status: &Value) -> Option<BTreeSet<ObjectId>> {
    let all = status.get("resources").and_then(Value::as_array);
    let all = all.filter(|all| !all.is_empty() && all.len() < MAX_EXTRA)?;
    let near = all.iter().filter_map(|resource| near(namespace, resource));
    Some(near.collect())
}

/// One entry of that list, if it may be an object of the engine in that namespace.
pub fn near(namespace: &str, resource: &Value) -> Option<ObjectId> {
    listed(resource).filter(|id| is_near(namespace, id))
}

/// Whether what is read of an Application's list tells of an object; `namespace` is the engine's.
pub fn is_near(namespace: &str, id: &ObjectId) -> bool {
    let here = id.namespace.is_empty() || id.namespace == namespace;
    here && id.kind.installable()
}

fn listed(resource: &Value) -> Option<ObjectId> {
    let text = |name| {
        let text = resource.get(name).and_then(Value::as_str);
        text.unwrap_or_default()
    };
    place(text("group"), text("kind"), text("namespace"), text("name"))
}

/// One entry of an Application's long list of resources, if it is there no more in Git, and of a kind that is known here.
/// Where the catalog could not be read all of them would be pruned, and are `Unknown`.
pub fn extra_of(resource: &Value) -> Option<ObjectId> {
    let status = resource.get("status").and_then(Value::as_str);
    let pruned = resource.get("requiresPruning") == Some(&Value::Bool(true));
    let is_extra = pruned && status == Some("OutOfSync");
    is_extra.then(|| listed(resource)).flatten()
}

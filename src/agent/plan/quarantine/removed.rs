//! What the catalog no longer has: the engine prunes it, or has done so.

use serde_json::Value;
use time::OffsetDateTime;

use super::{owner, shield};
use crate::agent::engine::{GIT_OWNER, Install, Wanted};
use crate::agent::plan::state::{Object, Observed};
use crate::bundle::{Kind, ObjectId};
use crate::clock::parse_rfc3339;
use crate::wire::api::EngineKind;

/// Whether the catalog no longer has an object that it brought: the engine prunes it, or has done so.
pub fn removed(install: &Install, observed: &Observed, id: &ObjectId) -> bool {
    // The Namespace is never left to Git, but Flux would try to prune it.
    let brought = |wanted: &Wanted| wanted.git_owned || id.kind == Kind::Namespace;
    let ours = |wanted: &Wanted| brought(wanted) && id.kind.installable();
    if !install.wanted.get(id).is_some_and(ours) {
        return false;
    }
    match install.traits.kind {
        EngineKind::Argocd => {
            let owner = owner(install, observed, id);
            let said = shield::said(install, observed, &owner);
            said.is_some_and(|said| said.extra.contains(id))
        }
        EngineKind::Flux => left_inventory(install, observed, id),
    }
}

/// Flux lists what a Kustomization applied; the root has to be the one that applied it.
fn left_inventory(install: &Install, observed: &Observed, id: &ObjectId) -> bool {
    let live = observed.objects.get(id).map(|live| &live.fields);
    let known = install.wanted.get(id).map(|w| w.expect.as_ref());
    let marked = |fields: &Value| {
        let labels = fields.pointer("/metadata/labels");
        let label = labels.and_then(|all| all.get(GIT_OWNER));
        label.and_then(Value::as_str) == Some(&install.sync.name)
    };
    let was_its = known.is_some_and(marked);
    let by_root = was_its || live.is_some_and(marked);
    let root = observed.objects.get(&install.sync);
    // What the guard keeps stays listed, and the root not Ready, for as long as Flux tries.
    let tried = root.and_then(|root| root.condition("Ready"));
    let refused = format!("{}/{} delete failed", id.kind, id.name);
    if tried.is_some_and(|(_, reason, text)| reason == "PruneFailed" && text.contains(&refused)) {
        return by_root;
    }
    // What it has just taken over is listed when it is done with all of its commit.
    let written = observed.objects.get(id).and_then(|live| live.written);
    let done = was_its || root.is_some_and(|root| is_done_since(root, written));
    let entries = root.and_then(|root| root.fields.pointer("/status/inventory/entries"));
    let entries = entries
        .and_then(Value::as_array)
        .filter(|_| by_root && done);
    let is = |entry: &Value| {
        let text = entry.get("id").and_then(Value::as_str);
        text.and_then(inventoried).as_ref() == Some(id)
    };
    entries.is_some_and(|all| !all.is_empty() && !all.iter().any(is))
}

/// Whether a Kustomization has come to the end of a commit since then. It is `Ready: Unknown` while it is at one.
fn is_done_since(root: &Object, then: Option<OffsetDateTime>) -> bool {
    let conditions = root.fields.pointer("/status/conditions");
    let all = conditions.and_then(Value::as_array).into_iter().flatten();
    let text = |condition: &Value, name: &str| {
        let text = condition.get(name).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    let mut ready = all.filter(|c| text(c, "type") == "Ready" && text(c, "status") == "True");
    let since = ready
        .next()
        .map(|ready| parse_rfc3339(&text(ready, "lastTransitionTime")));
    match (since, then) {
        (None, _) => false,
        (Some(Some(since)), Some(then)) => since > then,
        (Some(_), _) => true,
    }
}

/// An entry of Flux' inventory: `NAMESPACE_NAME_GROUP_KIND`, with `__` for the colons of a role's name.
pub fn inventoried(entry: &str) -> Option<ObjectId> {
    let (rest, kind) = entry.rsplit_once('_')?;
    let (rest, group) = rest.rsplit_once('_')?;
    let (namespace, name) = rest.split_once('_')?;
    shield::place(group, kind, namespace, &name.replace("__", ":"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_fluxs_inventory_are_read() {
        for (entry, id) in [
            (
                "flux-system_x-y_apps_Deployment",
                Some(ObjectId::new(Kind::Deployment, "flux-system", "x-y")),
            ),
            (
                "_crd-controller_rbac.authorization.k8s.io_ClusterRole",
                Some(ObjectId::new(Kind::ClusterRole, "", "crd-controller")),
            ),
            (
                "_system__x_rbac.authorization.k8s.io_ClusterRole",
                Some(ObjectId::new(Kind::ClusterRole, "", "system:x")),
            ),
            ("default_web_batch_Job", None),
            ("junk", None),
            ("", None),
        ] {
            assert_eq!(inventoried(entry), id, "{entry}");
        }
    }
}

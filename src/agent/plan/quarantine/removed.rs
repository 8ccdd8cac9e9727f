//! What the catalog no longer has: the engine prunes it, or has done so.

use std::collections::BTreeMap;

use serde_json::Value;
use time::OffsetDateTime;

use super::{Held, Hold, owner, shield};
use crate::agent::engine::compare::drift;
use crate::agent::engine::{GIT_OWNER, Install, Wanted, is_workload};
use crate::agent::plan::state::{Object, Observed};
use crate::agent::plan::steps::Action;
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
    by_root && done && is_listed(install, observed, id) == Some(false)
}

/// Whether the inventory of Flux' root has an object; none where there is no inventory.
fn is_listed(install: &Install, observed: &Observed, id: &ObjectId) -> Option<bool> {
    let root = observed.objects.get(&install.sync)?;
    let entries = root.fields.pointer("/status/inventory/entries")?;
    let entries = entries.as_array().filter(|all| !all.is_empty())?;
    let is = |entry: &Value| {
        let text = entry.get("id").and_then(Value::as_str);
        text.and_then(inventoried).as_ref() == Some(id)
    };
    Some(entries.iter().any(is))
}

/// Whether Flux has begun with a commit and is not done with it: what leaves the catalog is pruned when all else of a commit is
/// applied, and the root names the commit as applied after that.
pub fn is_at_work(install: &Install, observed: &Observed) -> bool {
    let root = observed.objects.get(&install.sync);
    let [tried, applied] = ["Attempted", "Applied"].map(|which| {
        let field = format!("/status/last{which}Revision");
        root.map_or("", |root| root.text(&field))
    });
    install.traits.kind == EngineKind::Flux && !tried.is_empty() && tried != applied
}

/// Whether something is held because the commit that Flux tried last removed it.
pub fn has_removed(
    install: &Install,
    observed: &Observed,
    held: &BTreeMap<ObjectId, Held>,
) -> bool {
    removals(install, observed, held).next().is_some()
}

fn removals<'a>(
    install: &Install,
    observed: &'a Observed,
    held: &'a BTreeMap<ObjectId, Held>,
) -> impl Iterator<Item = (&'a ObjectId, &'a Hold)> + use<'a> {
    let root = observed.objects.get(&install.sync);
    let tried = root.map_or("", |root| root.text("/status/lastAttemptedRevision"));
    let holds = held.iter().map(|(id, held)| (id, &held.hold));
    holds.filter(move |(_, hold)| hold.removal && hold.revision == tried)
}

/// What controllers run by, held before Flux gets to it: it prunes that after the controllers. With another account they lose their
/// tokens, and a Lease that they could not give up for that keeps the next Pods waiting. By then Flux has applied all of the commit:
/// what that still has loses nothing, and is given back with the others when Flux is done.
pub(super) fn ahead<'a>(
    install: &'a Install,
    observed: &'a Observed,
    held: &'a BTreeMap<ObjectId, Held>,
) -> impl Iterator<Item = (Action, &'a ObjectId)> {
    let mut pruned = removals(install, observed, held).filter(|(id, _)| is_workload(id.kind));
    let pruned = pruned.next().filter(|_| is_at_work(install, observed));
    let note = pruned.map(|(id, first)| {
        let kept = Hold {
            reason: format!("is kept while the engine prunes {id} with a commit"),
            ..first.clone()
        };
        kept.text()
    });
    let at_risk = |id: &ObjectId, wanted: &Wanted| {
        let needed = id.kind == Kind::ServiceAccount || id.kind.is_rbac() || is_workload(id.kind);
        needed && wanted.git_owned && !held.contains_key(id)
    };
    // What the commit changed is in it.
    let same = |live: &Object, wanted: &Wanted| {
        live.deleting.is_none() && drift(&wanted.expect, &live.fields).is_empty()
    };
    note.into_iter().flat_map(move |note| {
        let all = install.wanted.iter().filter(move |(id, wanted)| {
            let live = observed.objects.get(*id);
            at_risk(id, wanted) && live.is_some_and(|live| same(live, wanted))
        });
        all.map(move |(id, _)| (Action::Hold { note: note.clone() }, id))
    })
}

/// Whether an object was held for a commit that removed others, and Flux, which is done with that commit (`seen`), lists it: the
/// catalog never lost it.
pub(super) fn is_still_there(
    install: &Install,
    observed: &Observed,
    (id, hold): (&ObjectId, &Hold),
    seen: &str,
) -> bool {
    hold.removal && hold.revision == seen && is_listed(install, observed, id) == Some(true)
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

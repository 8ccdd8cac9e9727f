//! What a Kustomization says of the engine's objects that it brings: what it applied last, by which it prunes, and how far it is
//! with a commit.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;
use time::OffsetDateTime;

use super::shield::{self, MAX_EXTRA};
use crate::agent::engine::{GIT_OWNER, GIT_OWNER_NAMESPACE, Install, flux};
use crate::agent::plan::state::Observed;
use crate::bundle::{Kind, ObjectId};
use crate::clock::parse_rfc3339;

/// How the definitions of Flux' kinds end, and its roles and bindings for the whole cluster.
const OF_FLUX: [(Kind, &str); 3] = [
    (Kind::CustomResourceDefinition, ".toolkit.fluxcd.io"),
    (Kind::ClusterRole, "-flux-system"),
    (Kind::ClusterRoleBinding, "-flux-system"),
];

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Brings {
    /// Of its inventory, what may be an object of the engine; none where it has no inventory.
    listed: Option<BTreeSet<ObjectId>>,
    tried: String,
    applied: String,
    /// Its condition `Ready`: status and reason.
    ready: [String; 2],
    /// Since when it has been so.
    since: Option<OffsetDateTime>,
    /// What it could not prune, in its own words.
    refused: String,
}

impl Brings {
    /// Of a Kustomization's status.
    pub fn of(status: &Value) -> Self {
        let entries = status.pointer("/inventory/entries");
        let entries = entries.and_then(Value::as_array);
        let listed = entries.map(|all| {
            let ids = all.iter().filter_map(|e| e.get("id")?.as_str());
            // A root's are read for each object of the engine, and may have thousands of these.
            let ids = ids.filter(|id| !is_sync(id));
            let ids = ids.filter_map(inventoried).filter(is_near);
            ids.take(MAX_EXTRA).collect()
        });
        let conditions = status.get("conditions").and_then(Value::as_array);
        let mut conditions = conditions.into_iter().flatten();
        let ready = conditions.find(|c| text(c, "type") == "Ready");
        let ready = ready.unwrap_or(&Value::Null);
        let said = ["status", "reason"].map(|name| text(ready, name).to_owned());
        let refused = said[1] == "PruneFailed";
        Self {
            listed,
            tried: text(status, "lastAttemptedRevision").to_owned(),
            applied: text(status, "lastAppliedRevision").to_owned(),
            ready: said,
            since: parse_rfc3339(text(ready, "lastTransitionTime")),
            refused: Some(text(ready, "message"))
                .filter(|_| refused)
                .unwrap_or_default()
                .to_owned(),
        }
    }

    /// Whether it has, or had a moment ago, anything of the engine.
    pub fn is_any(&self) -> bool {
        self.listed.as_ref().is_some_and(|all| !all.is_empty())
    }

    /// Whether it lists an object; none where it has no inventory, or where that is not kept of such an object: of a bundle of one's
    /// own, say, whose roles have other names.
    pub fn lists(&self, id: &ObjectId) -> Option<bool> {
        let listed = self.listed.as_ref().filter(|_| is_near(id));
        listed.map(|all| all.contains(id))
    }

    /// The revision that it tried last.
    pub fn tried(&self) -> &str {
        &self.tried
    }

    /// The revision that it is done with; none while it is at one.
    pub fn done(&self) -> Option<&str> {
        (!self.applied.is_empty() && self.tried == self.applied).then_some(&self.applied)
    }

    /// Whether it has begun with a commit and is not done with it: what leaves the catalog is pruned when all else of a commit is
    /// applied, and it names the commit as applied after that.
    pub fn is_at_work(&self) -> bool {
        !self.tried.is_empty() && self.tried != self.applied
    }

    /// Whether it may have pruned something of that commit. What fails before that takes nothing away.
    pub fn may_have_pruned(&self) -> bool {
        let [status, reason] = &self.ready;
        self.is_at_work() && (status != "False" || reason == "PruneFailed")
    }

    /// Whether it tries in vain to prune an object.
    pub fn is_refused(&self, id: &ObjectId) -> bool {
        let text = format!("{}/{} delete failed", id.kind, id.name);
        self.refused.contains(&text)
    }

    /// Whether it has come to the end of a commit since then. It is `Ready: Unknown` while it is at one.
    pub fn is_done_since(&self, then: Option<OffsetDateTime>) -> bool {
        let later = match (self.since, then) {
            (Some(since), Some(then)) => since > then,
            _ => true,
        };
        self.ready[0] == "True" && later
    }
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Whether an object may be one of the engine. Others of a catalog are many, and nobody asks for them.
pub fn is_near(id: &ObjectId) -> bool {
    let of_flux = || {
        let mut all = OF_FLUX.iter();
        all.any(|(kind, end)| id.kind == *kind && id.name.ends_with(end))
    };
    let home = id.kind == Kind::Namespace && id.name == flux::NAME;
    id.kind.installable() && (id.namespace == flux::NAME || home || of_flux())
}

/// An entry of Flux' inventory: `NAMESPACE_NAME_GROUP_KIND`, with `__` for the colons of a role's name.
pub fn inventoried(entry: &str) -> Option<ObjectId> {
    let (rest, kind) = entry.rsplit_once('_')?;
    let (rest, group) = rest.rsplit_once('_')?;
    let (namespace, name) = rest.split_once('_')?;
    shield::place(group, kind, namespace, &name.replace("__", ":"))
}

/// Whether an entry is of a sync object, which is none of the engine.
fn is_sync(entry: &str) -> bool {
    let mut kinds = [Kind::Kustomization, Kind::HelmRelease].into_iter();
    kinds.any(|kind| entry.ends_with(kind.as_str()))
}

/// The Kustomization that an object says it comes from.
pub(super) fn labelled(install: &Install, fields: &Value) -> Option<ObjectId> {
    let labels = fields.pointer("/metadata/labels")?;
    let text = |label: &str| labels.get(label).and_then(Value::as_str);
    let space = text(GIT_OWNER_NAMESPACE).unwrap_or(&install.namespace);
    Some(ObjectId::new(Kind::Kustomization, space, text(GIT_OWNER)?))
}

/// What the root or a Kustomization below it says; none of one that is not known.
pub(super) fn said(install: &Install, observed: &Observed, by: &ObjectId) -> Option<Arc<Brings>> {
    if *by == install.sync {
        let root = observed.objects.get(by)?;
        let status = root.fields.get("status").unwrap_or(&Value::Null);
        return Some(Arc::new(Brings::of(status)));
    }
    observed.children.get(by)?.brings.clone()
}

/// Whether it is being deleted, and takes with it what it brought.
pub(super) fn takes_all(observed: &Observed, by: &ObjectId) -> bool {
    let child = observed.children.get(by);
    child.is_some_and(|child| child.fate.dying && child.fate.prunes)
}

/// Whether one below the root is known not to be there.
pub(super) fn is_gone(install: &Install, observed: &Observed, by: &ObjectId) -> bool {
    let unknown = observed.awaited.contains(&by.kind) || observed.cut.contains(&by.kind);
    *by != install.sync && !unknown && !observed.children.contains_key(by)
}

/// The Kustomizations below the root that bring something of the engine.
pub(super) fn below(observed: &Observed) -> impl Iterator<Item = (&ObjectId, &Brings)> {
    observed.children.iter().filter_map(|(id, child)| {
        let brings = child.brings.as_deref().filter(|brings| brings.is_any());
        Some((id, brings?))
    })
}

/// The root or the Kustomization below it that lists an object.
pub fn lister(install: &Install, observed: &Observed, id: &ObjectId) -> Option<ObjectId> {
    let mut below = below(observed).filter(|(_, said)| said.lists(id) == Some(true));
    let below = below.next().map(|(by, _)| by.clone());
    let root = || lists(install, observed, &install.sync, id).then(|| install.sync.clone());
    below.or_else(root)
}

fn lists(install: &Install, observed: &Observed, by: &ObjectId, id: &ObjectId) -> bool {
    said(install, observed, by).and_then(|said| said.lists(id)) == Some(true)
}

/// What applies an object from Git: what its labels name, or, where that has it no more, whatever else lists it.
pub(super) fn owner(install: &Install, observed: &Observed, id: &ObjectId) -> ObjectId {
    if install.roots().any(|root| root == id) {
        return install.sync.clone();
    }
    let live = observed.objects.get(id).map(|live| &live.fields);
    let known = install.wanted.get(id).map(|w| w.expect.as_ref());
    let mut all = [live, known].into_iter().flatten();
    match all.find_map(|fields| labelled(install, fields)) {
        Some(named) if lists(install, observed, &named, id) => named,
        named => {
            let other = lister(install, observed, id);
            other.or(named).unwrap_or_else(|| install.sync.clone())
        }
    }
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

    /// Of a catalog with thousands of objects nothing but the engine's is kept.
    #[test]
    fn only_what_may_be_the_engines_is_kept_of_an_inventory() {
        let entries = [
            "flux-system_source-controller_apps_Deployment",
            "_flux-system__Namespace",
            "_helmreleases.helm.toolkit.fluxcd.io_apiextensions.k8s.io_CustomResourceDefinition",
            "_crd-controller-flux-system_rbac.authorization.k8s.io_ClusterRole",
            "_shop__Namespace",
            "_certificates.cert-manager.io_apiextensions.k8s.io_CustomResourceDefinition",
            "_edit-shop_rbac.authorization.k8s.io_ClusterRole",
            "shop_web_apps_Deployment",
            "flux-system_apps_kustomize.toolkit.fluxcd.io_Kustomization",
        ];
        let all = entries.map(|id| serde_json::json!({"id": id, "v": "v1"}));
        let brings = Brings::of(&serde_json::json!({"inventory": {"entries": all}}));
        let kept = entries.iter().filter_map(|entry| inventoried(entry));
        let kept: BTreeSet<ObjectId> = kept.take(4).collect();
        let all = entries.iter().filter_map(|entry| inventoried(entry));
        let said: Vec<_> = all.map(|id| brings.lists(&id)).collect();
        let none = [None; 5];
        assert_eq!(said, [&[Some(true); 4][..], &none[..]].concat());
        let other = ObjectId::new(Kind::Deployment, flux::NAME, "helm-controller");
        assert_eq!(brings.lists(&other), Some(false));
        assert_eq!(brings.listed, Some(kept));
        assert!(brings.is_any());
        for none in [
            serde_json::json!({}),
            serde_json::json!({"inventory": {"entries": null}}),
        ] {
            let brings = Brings::of(&none);
            assert_eq!((&brings.listed, brings.is_any()), (&None, false), "{none}");
        }
    }

    /// With what it is done, and with what it has begun.
    #[test]
    fn how_far_it_is_is_told_by_both_of_its_revisions() {
        for (tried, applied, done, at_work) in [
            ("2", "2", Some("2"), false),
            ("2", "1", None, true),
            ("2", "", None, true),
            ("", "1", None, false),
            ("", "", None, false),
        ] {
            let brings = Brings::of(&serde_json::json!({
                "lastAttemptedRevision": tried, "lastAppliedRevision": applied,
            }));
            let said = (brings.done(), brings.is_at_work());
            assert_eq!(said, (done, at_work), "{tried} {applied}");
        }
    }

    /// Both times are told in whole seconds: what came in the same one may have come after it.
    #[test]
    fn what_was_written_in_the_second_of_its_word_is_not_in_its_list_yet() {
        let at = |second: i64| format!("2026-01-02T03:04:0{second}Z");
        for (status, since, written, done) in [
            ("True", Some(5), Some(4), true),
            ("True", Some(5), Some(5), false),
            ("True", Some(5), Some(6), false),
            ("True", Some(5), None, true),
            ("True", None, Some(4), true),
            ("Unknown", Some(5), Some(4), false),
            ("False", Some(5), Some(4), false),
        ] {
            let ready = serde_json::json!({
                "type": "Ready", "status": status, "lastTransitionTime": since.map(at),
            });
            let brings = Brings::of(&serde_json::json!({"conditions": [ready]}));
            let then = written.and_then(|second| parse_rfc3339(&at(second)));
            let said = brings.is_done_since(then);
            assert_eq!(said, done, "{status} {since:?} {written:?}");
        }
    }
}

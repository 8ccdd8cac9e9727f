//! Holds under Argo CD: what makes the Application that owns an object leave it alone.
//!
//! Argo CD reads no such wish from the object itself. So its Application ignores every field of it but the metadata
//! (`ignoreDifferences`, with `RespectIgnoreDifferences` so that a sync does, too), and the object asks not to be
//! pruned. Where the Application comes from the catalog as well, whatever brings it leaves just these two settings of it
//! alone, and so on up to the root.
//! What is held, and what the Application said before, stands in an annotation of the Application: so a hold outlives
//! the object that it is on, too.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Hold;
use crate::agent::engine::{Install, TRACKING};
use crate::agent::plan::state::{Object, Observed};
use crate::bundle::{Kind, ObjectId};
use crate::wire::api::EngineKind;

mod heard;
mod parents;
mod patch;
mod resources;

pub use heard::Owner;
pub(super) use parents::chain;
pub use parents::shields;
pub use patch::Shield;
pub use resources::{MAX_EXTRA, extra_of, is_near, near, pruned};

/// What an Application holds back, as JSON of [`Record`].
pub const HOLDS: &str = "linesman.dev/holds";
/// Argo CD's own word on one object, a list.
pub const OPTIONS: &str = "argocd.argoproj.io/sync-options";
const KEEP: &str = "Prune=false";
const RESPECT: &str = "RespectIgnoreDifferences=true";
const SERVER_SIDE: &str = "ServerSideApply=true";

/// The annotation of an Application.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Record {
    held: Vec<Entry>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    below: Vec<Left>,
    former: Former,
}

/// An Application whose settings are left alone.
#[derive(Debug, Serialize, Deserialize)]
struct Left {
    namespace: String,
    name: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    group: String,
    kind: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    namespace: String,
    name: String,
    #[serde(flatten)]
    hold: Hold,
}

/// What the Application's spec said before the first hold; null = nothing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Former {
    ignore_differences: Value,
    sync_options: Value,
}

impl Former {
    fn of(spec: &Value) -> Self {
        let at = |pointer| spec.pointer(pointer).cloned().unwrap_or_default();
        Self {
            ignore_differences: at("/ignoreDifferences"),
            sync_options: at("/syncPolicy/syncOptions"),
        }
    }
}

impl Left {
    fn id(&self) -> ObjectId {
        ObjectId::new(Kind::Application, &self.namespace, &self.name)
    }
}

impl Entry {
    fn id(&self) -> Option<ObjectId> {
        place(&self.group, &self.kind, &self.namespace, &self.name)
    }
}

pub(super) fn place(group: &str, kind: &str, namespace: &str, name: &str) -> Option<ObjectId> {
    let mut kinds = Kind::ALL.into_iter();
    let kind = kinds.find(|k| k.as_str() == kind && k.resource().0 == group)?;
    Some(ObjectId::new(kind, namespace, name))
}

fn record(annotation: Option<&str>) -> Record {
    let record = annotation.and_then(|text| serde_json::from_str(text).ok());
    record.unwrap_or_default()
}

fn items(list: Option<&Value>) -> Vec<Value> {
    list.and_then(Value::as_array).cloned().unwrap_or_default()
}

/// The other way round; null = nothing.
fn list(items: Vec<Value>) -> Value {
    if items.is_empty() {
        Value::Null
    } else {
        Value::Array(items)
    }
}

/// The Application that applies an object, by the annotation that Argo CD puts onto it:
/// `APPLICATION:GROUP/KIND:NAMESPACE/NAME`, and `NAMESPACE_APPLICATION` for one in another namespace than Argo CD's.
pub fn owner(home: &str, fields: &Value) -> Option<ObjectId> {
    let id = fields.pointer("/metadata/annotations")?.get(TRACKING)?;
    tracked(home, id.as_str()?)
}

/// The Application that a tracking id names.
pub fn tracked(home: &str, id: &str) -> Option<ObjectId> {
    let name = id.split(':').next()?;
    let (namespace, name) = name.split_once('_').unwrap_or((home, name));
    let some = !namespace.is_empty() && !name.is_empty();
    some.then(|| ObjectId::new(Kind::Application, namespace, name))
}

/// The Applications that are known, the root first.
pub fn owners<'a>(
    install: &'a Install,
    observed: &'a Observed,
) -> impl Iterator<Item = (&'a ObjectId, Arc<Owner>)> {
    let children = observed.children.iter();
    let children = children.filter_map(|(id, child)| Some((id, Arc::clone(child.owner.as_ref()?))));
    root(install, observed).into_iter().chain(children)
}

fn root<'a>(install: &'a Install, observed: &Observed) -> Option<(&'a ObjectId, Arc<Owner>)> {
    let argocd = install.traits.kind == EngineKind::Argocd;
    let live = observed.objects.get(&install.sync).filter(|_| argocd)?;
    Some((
        &install.sync,
        Arc::new(Owner::of_root(&install.namespace, live)),
    ))
}

/// Whether it is not known yet what Applications hold back: an object that lost its own word with its life would be made
/// again without its hold, and the root would take back what it lets others do.
pub fn unread(observed: &Observed) -> bool {
    observed.awaited.contains(&Kind::Application)
}

/// What one Application says, if it is known.
pub fn said(install: &Install, observed: &Observed, id: &ObjectId) -> Option<Arc<Owner>> {
    if *id == install.sync {
        return root(install, observed).map(|(_, said)| said);
    }
    observed.children.get(id)?.owner.clone()
}

/// The entry of `ignoreDifferences` that leaves an object to us: all of it but its metadata.
fn ignored(id: &ObjectId) -> Value {
    let pointers: &[&str] = match id.kind {
        Kind::ClusterRole | Kind::Role => &["/rules", "/aggregationRule"],
        Kind::ClusterRoleBinding | Kind::RoleBinding => &["/roleRef", "/subjects"],
        Kind::ConfigMap | Kind::Secret => &["/data", "/binaryData", "/stringData"],
        Kind::ServiceAccount => &[
            "/automountServiceAccountToken",
            "/imagePullSecrets",
            "/secrets",
        ],
        Kind::Namespace
        | Kind::CustomResourceDefinition
        | Kind::ResourceQuota
        | Kind::Service
        | Kind::NetworkPolicy
        | Kind::Deployment
        | Kind::StatefulSet
        | Kind::GitRepository
        | Kind::Kustomization
        | Kind::HelmRepository
        | Kind::OciRepository
        | Kind::Bucket
        | Kind::HelmChart
        | Kind::HelmRelease
        | Kind::AppProject
        | Kind::Application
        | Kind::ApplicationSet
        | Kind::Receiver
        | Kind::ImageRepository
        | Kind::ImageUpdateAutomation
        | Kind::ValidatingAdmissionPolicy
        | Kind::ValidatingAdmissionPolicyBinding => &["/spec"],
    };
    entry(id, pointers)
}

/// What is left alone of an Application that is told something by whatever brings it.
fn parent(child: &ObjectId) -> Value {
    entry(
        child,
        &["/spec/ignoreDifferences", "/spec/syncPolicy/syncOptions"],
    )
}

fn entry(id: &ObjectId, pointers: &[&str]) -> Value {
    let mut entry =
        json!({"kind": id.kind.as_str(), "name": id.name.as_str(), "jsonPointers": pointers});
    for (field, value) in [
        ("group", id.kind.resource().0),
        ("namespace", &id.namespace),
    ] {
        if !value.is_empty() {
            entry[field] = json!(value);
        }
    }
    entry
}

/// Whether a sync of an Application with these options has to leave alone what is ignored. Together with `ServerSideApply` that
/// freezes what the Applications below say of their operations (Argo CD before 3.4.5): those are left alone but for syncs then.
fn respects(
    options: &[Value],
    held: &BTreeMap<ObjectId, Hold>,
    below: &BTreeSet<ObjectId>,
) -> bool {
    !held.is_empty() || !below.is_empty() && !options.contains(&json!(SERVER_SIDE))
}

/// An object's own list of options, with the wish not to be pruned or without; none = nothing is left of it.
pub fn options(live: Option<&str>, kept: bool) -> Option<String> {
    let all = live.unwrap_or_default().split(',').map(str::trim);
    let others = all.filter(|o| !o.is_empty() && *o != KEEP);
    let list: Vec<&str> = others.chain(kept.then_some(KEEP)).collect();
    (!list.is_empty()).then(|| list.join(","))
}

/// Whether an object asks Argo CD not to prune it.
pub fn is_kept(live: &Object) -> bool {
    let all = live.annotation(OPTIONS).unwrap_or_default().split(',');
    all.map(str::trim).any(|option| option == KEEP)
}

/// The install as it has to be while something is held back: the root leaves that alone.
pub fn shielded<'a>(install: &'a Install, observed: &Observed) -> Cow<'a, Install> {
    if install.traits.kind != EngineKind::Argocd {
        return Cow::Borrowed(install);
    }
    let shields = shields(install, observed, &super::holds(install, observed));
    let base = install.base(&install.sync).cloned();
    let (Some(shield), Some(mut body)) = (shields.get(&install.sync), base) else {
        return Cow::Borrowed(install);
    };
    let former = Former::of(body.get("spec").unwrap_or(&Value::Null));
    body["spec"]["ignoreDifferences"] = shield.differences(&former.ignore_differences);
    Cow::Owned(install.with(&install.sync, body))
}

#[cfg(test)]
mod tests;

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
use crate::agent::plan::argocd::{self, head};
use crate::agent::plan::state::{Object, Observed};
use crate::bundle::{Kind, ObjectId};
use crate::clock::parse_rfc3339;
use crate::wire::api::EngineKind;

mod parents;
mod resources;

pub(super) use parents::chain;
pub use parents::shields;
pub use resources::{MAX_EXTRA, extra_of, near, pruned};
use resources::{extra, lists};

/// What an Application holds back, as JSON of [`Record`].
pub const HOLDS: &str = "linesman.dev/holds";
/// Argo CD's own word on one object, a list.
pub const OPTIONS: &str = "argocd.argoproj.io/sync-options";
const KEEP: &str = "Prune=false";
const RESPECT: &str = "RespectIgnoreDifferences=true";
const SERVER_SIDE: &str = "ServerSideApply=true";

/// What an Application says of the engine's own objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owner {
    /// The commit that was applied last, whether that went well or not.
    pub tried: String,
    /// The commit that was looked at last; empty where that failed.
    pub seen: String,
    /// Whether an operation goes on that applies another commit than that.
    pub behind: bool,
    /// Whether it is done with that commit, and has nothing left to apply.
    pub rests: bool,
    /// What Argo CD was refused for want of rights when it applied that commit.
    pub refused: Option<String>,
    /// What it brought once, and what is in Git no longer.
    pub extra: BTreeSet<ObjectId>,
    /// Of all that it brings what may be the engine's, be it there or not; none where it lists nothing, or more than is read.
    pub lists: Option<BTreeSet<ObjectId>>,
    /// What our annotation says.
    pub held: BTreeMap<ObjectId, Hold>,
    /// The same of the Applications whose settings it leaves alone. Of the root that is no matter of an annotation.
    pub below: BTreeSet<ObjectId>,
    /// Whether its spec does what the annotation says.
    pub in_force: bool,
}

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

impl Owner {
    /// Reads an Application of this namespace, as it is or as it is observed.
    pub fn of(namespace: &str, annotation: Option<&str>, spec: &Value, status: &Value) -> Self {
        let seen = head(status);
        let operation = |field| {
            let at = status.pointer(&format!("/operationState/{field}"));
            at.and_then(Value::as_str).unwrap_or_default()
        };
        let applies = operation("operation/sync/revision");
        let runs = operation("phase") == "Running";
        let behind = runs && !applies.is_empty() && applies != seen;
        let synced = status.pointer("/sync/status").and_then(Value::as_str) == Some("Synced");
        let done = synced && looked_since(status) || operation("syncResult/revision") == seen;
        // An operation that has just begun has no result yet, or that of the one before.
        let mut tried = [operation("syncResult/revision"), applies];
        if runs {
            tried.reverse();
        }
        let tried = tried.into_iter().find(|revision| !revision.is_empty());
        let Record { held, below, .. } = record(annotation);
        let held = held.into_iter();
        let held: BTreeMap<ObjectId, Hold> = held.filter_map(|e| Some((e.id()?, e.hold))).collect();
        let below: BTreeSet<ObjectId> = below.iter().map(Left::id).collect();
        let differences = items(spec.get("ignoreDifferences"));
        let options = items(spec.pointer("/syncPolicy/syncOptions"));
        let in_force = held.keys().all(|id| differences.contains(&ignored(id)))
            && below.iter().all(|id| differences.contains(&parent(id)))
            && (!respects(&options, &held, &below) || options.contains(&json!(RESPECT)));
        Self {
            tried: tried.unwrap_or(seen).to_owned(),
            seen: seen.to_owned(),
            behind,
            rests: done && !runs && !seen.is_empty(),
            refused: refused(status),
            extra: extra(namespace, status),
            lists: lists(namespace, status),
            held,
            below,
            in_force,
        }
    }

    /// Whether it knew no more of an object when it looked at Git last. What is in Git and not there is listed, too.
    pub fn lacks(&self, id: &ObjectId) -> bool {
        let lists = self.lists.as_ref().filter(|_| !self.seen.is_empty());
        lists.is_some_and(|all| !all.contains(id))
    }

    fn of_root(namespace: &str, root: &Object) -> Self {
        let part = |name| root.fields.get(name).unwrap_or(&Value::Null);
        Self::of(
            namespace,
            root.annotation(HOLDS),
            part("spec"),
            part("status"),
        )
    }
}

fn refused(status: &Value) -> Option<String> {
    let operation = status.get("operationState")?;
    let kept = operation.get("refused").and_then(Value::as_str);
    kept.map(str::to_owned)
        .or_else(|| argocd::refused(operation))
}

/// Whether Argo CD has compared since its operation ended: what it says of before is of another commit.
fn looked_since(status: &Value) -> bool {
    let at = |pointer| parse_rfc3339(status.pointer(pointer)?.as_str()?);
    match (at("/reconciledAt"), at("/operationState/finishedAt")) {
        (Some(looked), Some(ended)) => looked >= ended,
        _ => true,
    }
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

/// What an Application is to hold back, and which Applications below it do so.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shield {
    pub held: BTreeMap<ObjectId, Hold>,
    /// Applications that it brings, and whose settings it leaves alone.
    pub below: BTreeSet<ObjectId>,
    /// What was one of these until now: where our word is lost, nothing else tells what is in its spec for that.
    pub ended: BTreeSet<ObjectId>,
}

impl Shield {
    /// The same, said to an Application that was to say `was`.
    #[must_use]
    pub fn after(&self, was: &Self) -> Self {
        let held = was.held.keys().filter(|id| !self.held.contains_key(*id));
        let below = was.below.difference(&self.below);
        Self {
            ended: held.chain(below).cloned().collect(),
            ..self.clone()
        }
    }

    fn entries(&self) -> impl Iterator<Item = Value> {
        let below = self.below.iter().map(parent);
        below.chain(self.held.keys().map(ignored))
    }

    /// What an Application said before, where our word is not on it: not on it yet, or lost with its annotations, which an
    /// `ApplicationSet` takes away. With an entry of ours [`RESPECT`] is taken for ours, too, though a user may have set it before:
    /// nothing tells any more.
    fn before(&self, spec: &Value) -> Former {
        let former = Former::of(spec);
        let held = self.held.keys().chain(&self.ended);
        let held: Vec<Value> = held.map(ignored).collect();
        let below = self.below.iter().chain(&self.ended);
        let below: Vec<Value> = below.map(parent).collect();
        let mut differences = items(Some(&former.ignore_differences));
        let has = |ours: &[Value]| differences.iter().any(|entry| ours.contains(entry));
        let (holds, lets) = (has(&held), has(&below));
        if !holds && !lets {
            return former;
        }
        differences.retain(|entry| !held.contains(entry) && !below.contains(entry));
        let mut options = items(Some(&former.sync_options));
        // As in `respects`: it is not ours where nothing was held.
        if holds || !options.contains(&json!(SERVER_SIDE)) {
            options.retain(|option| *option != RESPECT);
        }
        Former {
            ignore_differences: list(differences),
            sync_options: list(options),
        }
    }

    fn differences(&self, former: &Value) -> Value {
        let mut all = items(Some(former));
        all.extend(self.entries());
        if all.is_empty() {
            former.clone()
        } else {
            json!(all)
        }
    }

    /// The merge patch that makes an Application hold back just this; `ours` is the spec of one that we made.
    pub fn patch(&self, live: &Value, ours: Option<&Value>) -> Value {
        let at = |pointer| live.pointer(pointer).unwrap_or(&Value::Null);
        let annotation = at("/metadata/annotations")
            .get(HOLDS)
            .and_then(Value::as_str);
        let former = match (ours, annotation) {
            (Some(spec), _) => Former::of(spec),
            (None, Some(_)) => record(annotation).former,
            (None, None) => self.before(at("/spec")),
        };
        let mut options = items(Some(&former.sync_options));
        let respects = respects(&options, &self.held, &self.below);
        if respects && !options.contains(&json!(RESPECT)) {
            options.push(json!(RESPECT));
        }
        let options = if options.is_empty() {
            former.sync_options.clone()
        } else {
            json!(options)
        };
        let mut spec = json!({"ignoreDifferences": self.differences(&former.ignore_differences)});
        if *at("/spec/syncPolicy/syncOptions") != options {
            spec["syncPolicy"] = json!({"syncOptions": options});
        }
        let held = self.held.iter().map(|(id, hold)| Entry {
            group: id.kind.resource().0.to_owned(),
            kind: id.kind.as_str().to_owned(),
            namespace: id.namespace.clone(),
            name: id.name.clone(),
            hold: hold.clone(),
        });
        let told = told_to(at("/status/operationState"), respects);
        // What the root leaves alone is part of what it is to be.
        let below = self.below.iter().filter(|_| ours.is_none());
        let below = below.map(|id| Left {
            namespace: id.namespace.clone(),
            name: id.name.clone(),
        });
        let record = Record {
            held: held.collect(),
            below: below.collect(),
            former,
        };
        let note = serde_json::to_string(&record).ok();
        let note = note.filter(|_| !record.held.is_empty() || !record.below.is_empty());
        let mut patch = json!({
            "metadata": {
                "annotations": {HOLDS: note},
                "resourceVersion": at("/metadata/resourceVersion"),
            },
            "spec": spec,
        });
        if let Some(options) = told {
            patch["status"]["operationState"]["operation"]["sync"]["syncOptions"] = options;
        }
        patch
    }
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

/// The options of an operation that was begun before the hold, with which it leaves alone what is held when it is tried again:
/// Argo CD takes what is to be ignored from the Application each time, and the options from the operation (`controller/sync.go`).
fn told_to(operation: &Value, respects: bool) -> Option<Value> {
    let runs = operation.get("phase").and_then(Value::as_str) == Some("Running");
    let sync = operation
        .pointer("/operation/sync")
        .filter(|sync| runs && respects && sync.is_object())?;
    let mut options = items(sync.get("syncOptions"));
    if options.contains(&json!(RESPECT)) {
        return None;
    }
    options.push(json!(RESPECT));
    Some(json!(options))
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

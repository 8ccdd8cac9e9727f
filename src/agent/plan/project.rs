//! API objects to what the planner keeps of them: fields without bookkeeping, their last writer, no schema, no
//! secret value.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, Time};
use kube::core::DynamicObject;
use serde_json::{Map, Value, json};
use time::OffsetDateTime;

use super::applied::{self, LAST_APPLIED};
use super::burst::{MAX_LISTED, is_listed};
use super::displaced::emptied;
use super::quarantine::shield::{HOLDS, MAX_EXTRA, Owner, extra_of, near};
use super::quarantine::{self, Brings, inventoried, is_near};
use super::state::{Child, Object};
use super::undecodable::aside::Suspect;
use super::{argocd, claims, evidence, undecodable};
use crate::agent::engine::argocd::{SKIP, TRAITS};
use crate::agent::engine::fields::TRANSIENT;
use crate::agent::engine::flux;
use crate::agent::engine::{GIT_OWNER, GUARD, KEPT, MANAGER, TRACKING, comparable};
use crate::bundle::{Kind, ObjectId};
use crate::clock;

mod lease;
mod pod;

pub use lease::{lease, lease_of, led_by};
pub use pod::pod;

/// Status fields that the planner reads; of `history`, which can be large, the last time.
const STATUS: [&str; 20] = [
    "conditions",
    "replicas",
    "observedGeneration",
    "availableReplicas",
    "updatedReplicas",
    "unavailableReplicas",
    "storedVersions",
    "artifact",
    "lastAppliedRevision",
    "lastAttemptedRevision",
    "lastHandledReconcileAt",
    "phase",
    "updateRevision",
    "sync",
    "health",
    "reconciledAt",
    "operationState",
    "resources",
    "inventory",
    "history",
];

/// Argo CD writes roles and bindings twice: as `kubectl auth reconcile` does, by the name of its program, before it applies
/// them like all else (gitops-engine, `resource_ops.go`). What the first has set is the first's.
const RECONCILER: &str = "argocd-application-controller";

pub fn object(kind: Kind, live: DynamicObject) -> Object {
    let meta = live.metadata;
    let entries = meta.managed_fields.unwrap_or_default();
    let last = last(kind, &entries);
    let mut annotations = meta.annotations.unwrap_or_default();
    let applied = annotations.remove(LAST_APPLIED);
    let mut fields = match live.data {
        Value::Object(map) => map,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Map::new()
        }
    };
    if let Some(status) = fields.get_mut("status").and_then(Value::as_object_mut) {
        let reached = argocd::reached(status);
        status.retain(|key, _| STATUS.contains(&key.as_str()));
        if let Some(operation) = status.get_mut("operationState") {
            *operation = outline(operation);
            operation["reached"] = json!(reached);
        }
        let resources = status.get_mut("resources").and_then(Value::as_array_mut);
        if let Some(resources) = resources {
            let home = meta.namespace.as_deref().unwrap_or_default();
            let of_engine = |resource: &Value| near(home, resource).is_some();
            resources.retain(|resource| extra_of(resource).is_some() || of_engine(resource));
            resources.truncate(MAX_EXTRA);
        }
        if let Some(history) = status.get_mut("history") {
            *history = evidence::latest(history);
        }
        let inventory = status.get_mut("inventory");
        if let Some(entries) = inventory.and_then(|all| all.get_mut("entries")) {
            *entries = kept_of(entries);
        }
        if let Some(compared) = status.get_mut("sync").and_then(|s| s.get_mut("comparedTo")) {
            *compared = followed(compared);
        }
    }
    fields.remove("operation");
    let mut owners = meta.owner_references.into_iter().flatten();
    let controller = owners.find(|owner| owner.controller == Some(true));
    fields.insert(
        "metadata".to_owned(),
        json!({"labels": meta.labels.unwrap_or_default(), "annotations": annotations}),
    );
    Object {
        uid: meta.uid.unwrap_or_default(),
        version: meta
            .resource_version
            .and_then(|v| v.parse().ok())
            .unwrap_or_default(),
        generation: meta.generation.unwrap_or_default(),
        created: meta.creation_timestamp.as_ref().and_then(at),
        deleting: meta.deletion_timestamp.as_ref().and_then(at),
        finalizers: meta.finalizers.unwrap_or_default(),
        writer: last.map(|e| writer(kind, e)).unwrap_or_default(),
        written: last.and_then(|e| e.time.as_ref()).and_then(at),
        ours: entries
            .iter()
            .any(|e| matches!(e.manager.as_deref(), Some(MANAGER | KEPT | GUARD))),
        claim: claims::of(kind, &entries),
        marked: entries.iter().any(marks),
        stopped: stopper(&entries),
        applied: applied::of(kind, applied.as_deref(), &entries),
        emptied: emptied(kind, &entries),
        pulls: claims::pulls(&entries),
        controller: controller
            .map(|owner| format!("{} {}", owner.kind, owner.name))
            .unwrap_or_default(),
        fields: comparable(kind, Value::Object(fields)),
    }
}

/// The last write of anything but the status.
fn last(kind: Kind, entries: &[ManagedFieldsEntry]) -> Option<&ManagedFieldsEntry> {
    let deciding = entries.iter().filter(|e| decides(kind, e));
    // Times are in whole seconds. Of a second in which somebody else wrote, too, his write tells more.
    deciding.max_by_key(|e| (e.time.as_ref().map(|t| t.0), !by_us(e) && !holds(e)))
}

/// When anything but the status was written last.
pub fn written(kind: Kind, live: &DynamicObject) -> Option<OffsetDateTime> {
    let entries = live.metadata.managed_fields.as_deref().unwrap_or_default();
    last(kind, entries)?.time.as_ref().and_then(at)
}

/// Who set last what stops a root, and when.
fn stopper(entries: &[ManagedFieldsEntry]) -> Option<(String, Option<OffsetDateTime>)> {
    let stops = |entry: &&ManagedFieldsEntry| {
        let fields = entry.fields_v1.as_ref().map(|set| &set.0);
        let suspends = fields.is_some_and(|set| set.pointer("/f:spec/f:suspend").is_some());
        suspends || sets(entry, "f:annotations", SKIP)
    };
    let last = entries.iter().filter(stops);
    let last = last.max_by_key(|entry| entry.time.as_ref().map(|t| t.0))?;
    let at = last.time.as_ref().and_then(at);
    Some((last.manager.clone().unwrap_or_default(), at))
}

/// Of all that a Kustomization applied, what may be an object of the engine, and the sync objects.
fn kept_of(entries: &Value) -> Value {
    let all = |which: fn(&ObjectId) -> bool| {
        let all = entries.as_array().into_iter().flatten();
        all.filter(move |entry| {
            let id = entry.get("id").and_then(Value::as_str);
            id.and_then(inventoried).as_ref().is_some_and(which)
        })
    };
    let near = all(is_near).take(MAX_EXTRA);
    near.chain(all(is_listed).take(MAX_LISTED))
        .cloned()
        .collect()
}

/// Of an Application's operation, which lists each object that it applied, what the planner reads.
fn outline(operation: &Value) -> Value {
    let at = |pointer: &str| operation.pointer(pointer).cloned().unwrap_or_default();
    let message = operation.get("message").and_then(Value::as_str);
    json!({
        "phase": at("/phase"), "retryCount": at("/retryCount"),
        "startedAt": at("/startedAt"), "finishedAt": at("/finishedAt"),
        "message": short(message.unwrap_or_default()),
        "syncResult": {"revision": at("/syncResult/revision")},
        "operation": {
            "sync": {"revision": at("/operation/sync/revision")},
            "retry": {"refresh": at("/operation/retry/refresh")},
        },
        "refused": argocd::refused(operation),
        "unapplied": argocd::unapplied(operation),
    })
}

/// Of what an Application was compared with, where that comes from.
fn followed(compared: &Value) -> Value {
    let source = compared.get("source");
    let field = |name: &str| {
        source
            .and_then(|s| s.get(name))
            .cloned()
            .unwrap_or_default()
    };
    json!({"source": {
        "repoURL": field("repoURL"), "targetRevision": field("targetRevision"), "path": field("path"),
    }})
}

/// Whether an entry of `managedFields` speaks of what someone wants: `kubectl scale` writes by the subresource
/// `scale`, while `status` only says what is.
fn decides(kind: Kind, entry: &ManagedFieldsEntry) -> bool {
    let wants = matches!(entry.subresource.as_deref(), None | Some("" | "scale"));
    let fields = entry.fields_v1.as_ref().and_then(|set| set.0.as_object());
    // An Application's status has no subresource.
    let spec = || fields.is_some_and(|fields| fields.contains_key("f:spec"));
    // What we ask of an engine is an annotation; what we apply is an entry of its own.
    let asks = by_us(entry)
        && entry.operation.as_deref() == Some("Update")
        && fields.is_some_and(|fields| fields.keys().all(|key| key == "f:metadata"));
    wants && !asks && (kind != Kind::Application || spec())
}

/// Whether it is an engine's own mark of what it brings from Git: written by what applies the catalog's objects.
pub fn marks(entry: &ManagedFieldsEntry) -> bool {
    match entry.manager.as_deref() {
        Some(manager) if manager == flux::TRAITS.applier => {
            entry.operation.as_deref() == Some("Apply") && sets(entry, "f:labels", GIT_OWNER)
        }
        Some(manager) if [TRAITS.applier, RECONCILER].contains(&manager) => {
            sets(entry, "f:annotations", TRACKING)
        }
        _ => false,
    }
}

/// The same, or a mark that we put back as a snapshot had it.
pub fn vouches(entry: &ManagedFieldsEntry) -> bool {
    let marked = sets(entry, "f:labels", GIT_OWNER) || sets(entry, "f:annotations", TRACKING);
    marks(entry) || by_us(entry) && marked
}

pub(super) fn sets(entry: &ManagedFieldsEntry, part: &str, name: &str) -> bool {
    let fields = entry.fields_v1.as_ref().map(|set| &set.0);
    let part = fields.and_then(|set| set.get("f:metadata")?.get(part));
    part.is_some_and(|names| names.get(format!("f:{name}")).is_some())
}

fn by_us(entry: &ManagedFieldsEntry) -> bool {
    matches!(entry.manager.as_deref(), Some(MANAGER | KEPT))
}

fn writer(kind: Kind, entry: &ManagedFieldsEntry) -> String {
    match &entry.manager {
        // Put back by us, whoever had it first.
        Some(manager) if manager == KEPT => MANAGER.to_owned(),
        Some(manager) if manager == RECONCILER && kind.is_rbac() => TRAITS.applier.to_owned(),
        manager => manager.clone().unwrap_or_default(),
    }
}

/// Whether it is what a hold left.
fn holds(entry: &ManagedFieldsEntry) -> bool {
    entry.manager.as_deref() == Some(quarantine::MANAGER)
}

/// What a sync object says of itself; none = it is at work and says nothing yet.
/// `home` is the engine's namespace: an Application may be in another one.
pub fn child(home: &str, kind: Kind, live: &DynamicObject) -> Option<Child> {
    if matches!(
        kind,
        Kind::Application | Kind::ApplicationSet | Kind::AppProject
    ) {
        let trouble = argocd::trouble(&live.data).map(|(r, m)| (short(&r), short(&m)));
        let finalizers = live.metadata.finalizers.iter().flatten();
        return Some(Child {
            trouble,
            prunes: finalizers.into_iter().any(|f| TRAITS.is_finalizer(f)),
            keepsake: keepsake(&kind.api_version(), kind.as_str(), live).map(Arc::new),
            owner: (kind == Kind::Application).then(|| Arc::new(owner(home, live))),
            rolls: argocd::rolls(&live.data),
            ..Child::default()
        });
    }
    // Of a source nothing but whether it can be read. What follows it says so where it has brought nothing yet; where it is not
    // fetched any more, that stays as ready as it was, and nobody is told.
    if kind.is_source() {
        let unread = live.data.get("spec").and_then(undecodable::why);
        return Some(Child {
            trouble: unread.map(|why| (undecodable::REASON.to_owned(), short(&why))),
            suspect: Suspect::of(live).map(Arc::new),
            ..Child::default()
        });
    }
    let tried = live.data.pointer("/status/lastAttemptedRevision");
    let tried = tried.filter(|_| kind == Kind::Kustomization);
    let suspect = Suspect::of(live).map(Arc::new);
    let trouble = match flux_trouble(live) {
        Some(trouble) => trouble,
        // What it says of itself of old counts, but for whether it can be read.
        None if suspect.is_some() => None,
        None => return None,
    };
    Some(Child {
        trouble,
        tried: short(tried.and_then(Value::as_str).unwrap_or_default()),
        suspended: is_suspended(live),
        suspect,
        ..Child::default()
    })
}

/// How the last try of a Kustomization that is at work ended, where it failed; of others nothing says so.
pub fn before(kind: Kind, live: &DynamicObject) -> Option<(String, String)> {
    let history = live.data.pointer("/status/history");
    let (reason, at) = evidence::failed(history.filter(|_| kind == Kind::Kustomization)?)?;
    let at = clock::rfc3339(at);
    let text = format!("so its last try ended, at {at}; another one is under way");
    Some((reason.to_owned(), text))
}

/// What an Application says while it is at work; none = it is not.
pub fn at_work(kind: Kind, live: &DynamicObject) -> Option<String> {
    let is = kind == Kind::Application;
    argocd::at_work(&live.data).filter(|_| is).map(short)
}

/// What a Kustomization says of the engine's objects, also while it is at work.
pub fn brings(kind: Kind, live: &DynamicObject) -> Option<Arc<Brings>> {
    let status = live
        .data
        .get("status")
        .filter(|_| kind == Kind::Kustomization);
    status.map(|status| Arc::new(Brings::of(status)))
}

/// Why a sync object of Flux is not Ready, if it says anything.
#[expect(
    clippy::option_option,
    reason = "nothing said is another thing than nothing wrong"
)]
fn flux_trouble(live: &DynamicObject) -> Option<Option<(String, String)>> {
    // Suspended or not, it is read with the others.
    if let Some(why) = live.data.get("spec").and_then(undecodable::why) {
        return Some(Some((undecodable::REASON.to_owned(), short(&why))));
    }
    if is_suspended(live) || live.metadata.deletion_timestamp.is_some() {
        return Some(None);
    }
    let conditions = live.data.pointer("/status/conditions")?.as_array()?;
    let text =
        |c: &Value, name: &str| short(c.get(name).and_then(Value::as_str).unwrap_or_default());
    let ready = conditions.iter().find(|c| text(c, "type") == "Ready")?;
    match text(ready, "status").as_str() {
        "True" => Some(None),
        "False" => Some(Some((text(ready, "reason"), text(ready, "message")))),
        _ => None,
    }
}

fn is_suspended(live: &DynamicObject) -> bool {
    live.data.pointer("/spec/suspend") == Some(&Value::Bool(true))
}

fn owner(home: &str, live: &DynamicObject) -> Owner {
    let annotations = live.metadata.annotations.as_ref();
    let said = annotations.and_then(|all| all.get(HOLDS));
    let part = |name| live.data.get(name).unwrap_or(&Value::Null);
    let said = said.map(String::as_str);
    Owner::of(home, said, part("spec"), part("status"))
}

/// What is needed to make an object anew; none where Git or an `ApplicationSet` makes it, or where we do.
pub fn keepsake(api_version: &str, kind: &str, live: &DynamicObject) -> Option<Value> {
    let meta = &live.metadata;
    let labels = meta.labels.clone().unwrap_or_default();
    let mut annotations = meta.annotations.clone().unwrap_or_default();
    let mut managers = meta.managed_fields.iter().flatten();
    let from_git = labels.contains_key(GIT_OWNER) || annotations.contains_key(TRACKING);
    let owned = meta.owner_references.iter().flatten().next().is_some();
    if from_git || owned || managers.any(|e| e.manager.as_deref() == Some(MANAGER)) {
        return None;
    }
    annotations.retain(|key, _| {
        !TRANSIENT.contains(&key.as_str()) && !key.starts_with("kubectl.kubernetes.io/")
    });
    let mut object = json!({
        "apiVersion": api_version, "kind": kind,
        "metadata": {
            "name": meta.name, "namespace": meta.namespace,
            "labels": labels, "annotations": annotations,
        },
        "spec": live.data.get("spec"),
    });
    // Flux puts its finalizer on by itself; Argo CD's is what its owner wants of the Application's end.
    let all = meta.finalizers.iter().flatten();
    let wanted: Vec<&String> = all.filter(|f| TRAITS.is_finalizer(f)).collect();
    if !wanted.is_empty() {
        object["metadata"]["finalizers"] = json!(wanted);
    }
    Some(object)
}

/// What a Kustomization has brought, by which it prunes what leaves the catalog; none where it has brought nothing.
pub fn inventory(plural: &str, live: &DynamicObject) -> Option<Value> {
    let all = live.data.pointer("/status/inventory")?;
    let some = all.get("entries").and_then(Value::as_array);
    let some = some.is_some_and(|entries| !entries.is_empty());
    (plural == Kind::Kustomization.resource().2 && some).then(|| all.clone())
}

pub fn at(time: &Time) -> Option<OffsetDateTime> {
    clock::from_nanoseconds(time.0.as_nanosecond())
}

fn short(text: &str) -> String {
    text.chars().take(500).collect()
}

#[cfg(test)]
mod tests;

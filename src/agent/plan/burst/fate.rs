//! What the end of a sync object means: whose it is, what it takes with it, and when it was done last.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use kube::core::DynamicObject;
use serde_json::Value;
use time::OffsetDateTime;

use super::MAX_KEPT;
use crate::agent::engine::{GIT_OWNER, GIT_OWNER_NAMESPACE, TRACKING, argocd, flux};
use crate::agent::plan::project;
use crate::agent::plan::quarantine::{inventoried, shield};
use crate::agent::plan::state::Object;
use crate::bundle::{Kind, ObjectId};
use crate::clock::parse_rfc3339;

/// So many of an inventory are known. Of one beyond that it is not known that its Kustomization has not taken it away.
pub const MAX_LISTED: usize = MAX_KEPT;

/// What the end of a Kustomization, a HelmRelease or an Application means.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is read by itself, and any of them may go with any other"
)]
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fate {
    pub dying: bool,
    /// When its end began, as the API server says.
    pub began: Option<OffsetDateTime>,
    /// Whether the engine's finalizer is on it.
    pub pinned: bool,
    /// Whether its end takes with it what it brought.
    pub prunes: bool,
    /// The Kustomization or Application that brought it from Git.
    pub owner: Option<ObjectId>,
    /// The `ApplicationSet` that made an Application, or the Application that brought a set: by it an object hangs on the root. It
    /// says nothing of whose wish an end is.
    pub made_from: Option<ObjectId>,
    /// A Kustomization that is at work on a revision or a spec that is new to it.
    pub moving: bool,
    /// Applications that an Application brought, and says that it will prune.
    pub takes: BTreeSet<ObjectId>,
    /// Sync objects that a Kustomization lists as what it has brought; none while it is at work on something new, or where that is not known.
    /// What it prunes it lists no more from the moment on in which it says that it is done (kustomize-controller,
    /// `kustomization_controller.go`).
    pub holds: Option<Arc<BTreeSet<ObjectId>>>,
    /// Another one each time it has been at work on a revision or a spec that is new to it.
    pub done: u64,
    /// When it was done last.
    pub done_at: Option<OffsetDateTime>,
}

impl Fate {
    /// Of one sync object; `home` is the engine's namespace.
    pub fn of(home: &str, kind: Kind, live: &DynamicObject) -> Self {
        match kind {
            Kind::Kustomization | Kind::HelmRelease => Self::of_flux(kind, live),
            Kind::Application => Self::of_application(home, live),
            Kind::ApplicationSet => Self {
                made_from: tracked(home, live),
                ..Self::default()
            },
            // What these bring hangs on objects of the kinds above.
            _ => Self::default(),
        }
    }

    /// Of a root, as far as it says what becomes of what it brought, but for what it [`lists`]. Its own end is judged by itself.
    pub(super) fn of_root(kind: Kind, live: &Object) -> Self {
        let application = kind == Kind::Application;
        let (done, done_at) = course(kind, &live.fields);
        Self {
            moving: !application && moving(live.generation, &live.fields),
            takes: taken(live.fields.get("status").filter(|_| application)).collect(),
            done,
            done_at,
            ..Self::default()
        }
    }

    /// Whether a Kustomization is done with its work and lists an object after that: it has not taken it away.
    pub(super) fn holds(&self, id: &ObjectId) -> bool {
        self.holds.as_ref().is_some_and(|all| all.contains(id))
    }

    fn of_application(home: &str, live: &DynamicObject) -> Self {
        let meta = &live.metadata;
        // What an ApplicationSet made it takes away as well.
        let by_git = meta.owner_references.iter().flatten().next().is_none();
        let mut finalizers = meta.finalizers.iter().flatten();
        let (done, done_at) = course(Kind::Application, &live.data);
        Self {
            dying: meta.deletion_timestamp.is_some(),
            began: meta.deletion_timestamp.as_ref().and_then(project::at),
            pinned: finalizers.clone().any(|f| argocd::TRAITS.is_finalizer(f)),
            prunes: finalizers.any(|f| f.starts_with(argocd::PRUNES)),
            owner: tracked(home, live).filter(|_| by_git),
            made_from: set_of(live),
            moving: false,
            takes: taken(live.data.get("status")).collect(),
            holds: None,
            done,
            done_at,
        }
    }

    fn of_flux(kind: Kind, live: &DynamicObject) -> Self {
        let meta = &live.metadata;
        let label = |name: &str| Some(meta.labels.as_ref()?.get(name)?.as_str());
        let owner = label(GIT_OWNER).zip(label(GIT_OWNER_NAMESPACE));
        let mut finalizers = meta.finalizers.iter().flatten();
        let (done, done_at) = course(Kind::Kustomization, &live.data);
        Self {
            dying: meta.deletion_timestamp.is_some(),
            began: meta.deletion_timestamp.as_ref().and_then(project::at),
            pinned: finalizers.any(|f| flux::TRAITS.is_finalizer(f)),
            prunes: prunes(&live.data),
            owner: owner.map(|(name, space)| ObjectId::new(Kind::Kustomization, space, name)),
            made_from: None,
            moving: moving(meta.generation.unwrap_or_default(), &live.data),
            takes: BTreeSet::new(),
            holds: held(kind, meta.generation.unwrap_or_default(), &live.data),
            done,
            done_at,
        }
    }
}

/// The Application that a sync object of Argo CD says it comes from.
fn tracked(home: &str, live: &DynamicObject) -> Option<ObjectId> {
    let id = live.metadata.annotations.as_ref()?.get(TRACKING)?;
    shield::tracked(home, id)
}

/// The `ApplicationSet` that made an Application, which is beside it.
fn set_of(live: &DynamicObject) -> Option<ObjectId> {
    let kind = Kind::ApplicationSet;
    let (group, ..) = kind.resource();
    let mut owners = live.metadata.owner_references.iter().flatten();
    let set = owners.find(|owner| {
        let of_argocd = owner.api_version.split('/').next() == Some(group);
        of_argocd && owner.kind == kind.as_str()
    })?;
    let namespace = live.metadata.namespace.as_deref()?;
    Some(ObjectId::new(kind, namespace, &set.name))
}

/// What of an object changes each time it has been at work on something new, and when it was done last.
pub(super) fn course(kind: Kind, data: &Value) -> (u64, Option<OffsetDateTime>) {
    let application = kind == Kind::Application;
    let of: &[&str] = if application {
        &["/status/sync/revision", "/status/sync/revisions"]
    } else {
        &[
            "/status/observedGeneration",
            "/status/lastAttemptedRevision",
            "/status/lastAppliedRevision",
        ]
    };
    let mut mark = DefaultHasher::new();
    for pointer in of {
        data.pointer(pointer).map(Value::to_string).hash(&mut mark);
    }
    let at = if application {
        data.pointer("/status/operationState/finishedAt")
    } else {
        ready(data).and_then(|ready| ready.get("lastTransitionTime"))
    };
    let at = at.and_then(|at| parse_rfc3339(at.as_str()?));
    (mark.finish(), at)
}

/// What a sync object of Flux says of being ready.
pub(in crate::agent::plan) fn ready(data: &Value) -> Option<&Value> {
    let conditions = data.pointer("/status/conditions")?.as_array()?;
    let mut conditions = conditions.iter();
    conditions.find(|c| c.get("type").and_then(Value::as_str) == Some("Ready"))
}

/// The Applications that an Application says it will prune, before it does.
pub(super) fn taken(status: Option<&Value>) -> impl Iterator<Item = ObjectId> {
    let all = status.into_iter().flat_map(shield::pruned);
    all.filter(|id| id.kind == Kind::Application).take(MAX_KEPT)
}

/// What a Kustomization lists once it is done.
fn held(kind: Kind, generation: i64, data: &Value) -> Option<Arc<BTreeSet<ObjectId>>> {
    if kind != Kind::Kustomization || moving(generation, data) {
        return None;
    }
    let entries = data.pointer("/status/inventory/entries")?.as_array()?;
    let ids = entries.iter().filter_map(|entry| entry.get("id")?.as_str());
    let ids = ids.filter_map(inventoried).filter(is_listed);
    let all: BTreeSet<ObjectId> = ids.take(MAX_LISTED).collect();
    Some(Arc::new(all))
}

/// The same of one object and a root, whose list may be long, and which each of many asks that go.
pub(super) fn lists(root: &Object, id: &ObjectId) -> bool {
    let (group, ..) = id.kind.resource();
    let entry = format!("{}_{}_{group}_{}", id.namespace, id.name, id.kind);
    let entries = root.fields.pointer("/status/inventory/entries");
    let mut entries = entries.and_then(Value::as_array).into_iter().flatten();
    !moving(root.generation, &root.fields)
        && entries.any(|e| e.get("id").and_then(Value::as_str) == Some(entry.as_str()))
}

/// Whether an object of an inventory is one whose end is judged here.
pub fn is_listed(id: &ObjectId) -> bool {
    matches!(id.kind, Kind::Kustomization | Kind::HelmRelease)
}

/// Whether the end of a Kustomization or HelmRelease takes what it brought with it.
pub(super) fn prunes(data: &Value) -> bool {
    let at = |pointer: &str| data.pointer(pointer).and_then(Value::as_str);
    // A HelmRelease has neither field; `prune` is required of a Kustomization.
    let kept = matches!(at("/spec/deletionPolicy"), Some("Orphan"))
        || data.pointer("/spec/prune") == Some(&Value::Bool(false))
            && matches!(at("/spec/deletionPolicy"), None | Some("MirrorPrune"));
    !kept && data.pointer("/spec/suspend") != Some(&Value::Bool(true))
}

/// A Kustomization says so before it applies, and says what came of it after it has pruned.
fn moving(generation: i64, data: &Value) -> bool {
    let at = |pointer: &str| data.pointer(pointer).and_then(Value::as_str);
    let at_work = ready(data).and_then(|c| c.get("status")?.as_str()) == Some("Unknown");
    let seen = data.pointer("/status/observedGeneration");
    let anew = seen.and_then(Value::as_i64) != Some(generation)
        || at("/status/lastAttemptedRevision") != at("/status/lastAppliedRevision");
    at_work && anew
}

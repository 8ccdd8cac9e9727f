//! What to install and what healthy means, per engine.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use time::OffsetDateTime;

use super::Desired;
use crate::bundle::{Bundle, Kind, ObjectId};
use crate::keys::sha256_hex;
use crate::wire::id::Digest;

pub mod compare;
pub mod fields;
pub mod flux;
pub mod guard;

/// The label of an object that the engine itself applies from Git.
pub const GIT_OWNER: &str = "kustomize.toolkit.fluxcd.io/name";
/// The field manager of what we own.
pub const MANAGER: &str = "linesman";
/// The field manager of what the guard does, so that it is told from a person's doing.
pub const GUARD: &str = "linesman-guard";
/// Asks Flux to look at an object now; its controller copies the value into `status.lastHandledReconcileAt`.
pub const REQUESTED_AT: &str = "reconcile.fluxcd.io/requestedAt";

/// All that has to be true in the cluster: the planner's half of [`Desired`].
#[derive(Debug, Clone)]
pub struct Install {
    pub wanted: BTreeMap<ObjectId, Wanted>,
    pub namespace: String,
    pub source: ObjectId,
    pub sync: ObjectId,
    pub secret: ObjectId,
    /// The binding that gives the agent its rights in the engine's namespace; it goes first.
    pub rights: ObjectId,
    pub policy: Policy,
    /// Name of the cluster: the seed of all jitter.
    pub cluster: String,
    pub bundle: Arc<Bundle>,
    /// The same text for the same install: what an episode of adoption is about.
    pub digest: Digest,
    desired: Desired,
}

/// One object as it has to be.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The fields that are compared with the live object, in the form of [`comparable`].
    pub expect: Arc<Value>,
    /// Applied by the engine from Git: healed for function only, never compared while the engine works.
    pub git_owned: bool,
    body: Body,
}

#[derive(Debug, Clone)]
enum Body {
    Bundle(usize),
    Own(Arc<Value>),
    Secret,
}

#[derive(Debug, Clone)]
pub struct Policy {
    pub probe_every: time::Duration,
    pub snapshot_after: time::Duration,
    pub paused_until: Option<OffsetDateTime>,
    /// Who paused it and why.
    pub pause_reason: String,
}

impl Install {
    /// `snapshot` is the last known good of the Git-owned objects, by their place.
    pub fn new(
        desired: &Desired,
        snapshot: &BTreeMap<ObjectId, Value>,
        paused_until: Option<OffsetDateTime>,
    ) -> Self {
        let mut install = flux::install(desired, paused_until);
        for (id, fields) in snapshot {
            let from_git = is_git_owned(fields) && !always_ours(id, &install);
            if from_git && let Some(wanted) = install.wanted.get_mut(id) {
                wanted.expect = Arc::new(comparable(id.kind, fields.clone()));
                wanted.body = Body::Own(Arc::new(fields.clone()));
                wanted.git_owned = true;
            }
        }
        install
    }

    /// What is sent to the API server to bring one object about.
    pub fn body(&self, id: &ObjectId) -> Option<Value> {
        let wanted = self.wanted.get(id)?;
        match &wanted.body {
            Body::Bundle(index) => {
                let object = self.bundle.objects.get(*index)?.clone();
                Some(flux::adjusted(&self.bundle, object))
            }
            Body::Own(value) => Some(value.as_ref().clone()),
            Body::Secret => Some(flux::git_secret(&self.desired)),
        }
    }
}

/// What is never left to Git, whatever labels it wears.
fn always_ours(id: &ObjectId, install: &Install) -> bool {
    let roots = [
        &install.secret,
        &install.source,
        &install.sync,
        &install.rights,
    ];
    id.kind == Kind::Namespace || id.kind.optional() || roots.contains(&id)
}

pub fn is_git_owned(fields: &Value) -> bool {
    fields
        .pointer("/metadata/labels")
        .and_then(|labels| labels.get(GIT_OWNER))
        .is_some()
}

/// The form in which an object is kept and compared: schemas and secret values only as their digests, so that an
/// agent of a few MiB can hold it and nothing secret is in it.
pub fn comparable(kind: Kind, mut object: Value) -> Value {
    match kind {
        Kind::CustomResourceDefinition => {
            let versions = object
                .pointer_mut("/spec/versions")
                .and_then(Value::as_array_mut);
            for version in versions.into_iter().flatten() {
                if let Some(schema) = version.get_mut("schema") {
                    let text = crate::bundle::sorted(schema.take()).to_string();
                    *schema = json!(sha256_hex(text.as_bytes()));
                }
            }
        }
        Kind::Secret => {
            let data = object.get_mut("data").and_then(Value::as_object_mut);
            for value in data.into_iter().flat_map(serde_json::Map::values_mut) {
                *value = json!(sha256_hex(value.as_str().unwrap_or_default().as_bytes()));
            }
        }
        Kind::Namespace
        | Kind::ClusterRole
        | Kind::ServiceAccount
        | Kind::ClusterRoleBinding
        | Kind::Role
        | Kind::RoleBinding
        | Kind::ResourceQuota
        | Kind::ConfigMap
        | Kind::Service
        | Kind::NetworkPolicy
        | Kind::Deployment
        | Kind::StatefulSet
        | Kind::GitRepository
        | Kind::Kustomization
        | Kind::HelmRelease
        | Kind::ValidatingAdmissionPolicy
        | Kind::ValidatingAdmissionPolicyBinding => {}
    }
    object
}

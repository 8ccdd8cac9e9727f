//! One object of an install as it has to be: what is expected of it, and what is sent to bring it about.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::{adjusted, compare, place};
use crate::agent::Desired;
use crate::bundle::{Kind, ObjectId};
use crate::keys::sha256_hex;

/// One object as it has to be.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The fields that are compared with the live object, in the form of [`comparable`].
    pub expect: Arc<Value>,
    /// Applied by the engine from Git: healed for function only, never compared while the engine works.
    pub git_owned: bool,
    /// Git took it over, and no snapshot has that yet: what is expected is what was in force before, which says nothing of
    /// what Git wants.
    pub taken: bool,
    /// The data of a ConfigMap when the engine last worked with it, whoever wrote it.
    pub known: Option<Arc<Value>>,
    /// What others had set on an object of ours when the engine last worked with it.
    pub added: Option<Arc<Value>>,
    pub(super) body: Body,
}

impl Wanted {
    /// What is expected, and what others had added when the engine last worked.
    pub fn whole(&self) -> Cow<'_, Value> {
        match &self.added {
            Some(added) => Cow::Owned(compare::merged(&self.expect, added)),
            None => Cow::Borrowed(&self.expect),
        }
    }

    /// Whether all that it had when the engine last worked is known, so that what it has beside that was added later. Of what
    /// Git owns only a snapshot says what Git adds to the bundle's form.
    pub fn is_known_whole(&self) -> bool {
        !self.git_owned || !self.taken && matches!(self.body, Body::Own(_))
    }
}

/// What is sent for it.
#[derive(Debug, Clone)]
pub(super) enum Body {
    Bundle(usize),
    Own(Arc<Value>),
    /// Made as given; later only `keys` of it are kept, for the rest is other people's.
    Shared {
        whole: Arc<Value>,
        keys: Arc<Value>,
    },
    Secret,
}

impl Body {
    pub(super) fn own(&self) -> Option<&Arc<Value>> {
        match self {
            Self::Own(body) => Some(body),
            Self::Bundle(_) | Self::Shared { .. } | Self::Secret => None,
        }
    }
}

/// The bundle's objects, each with the install values.
pub(super) fn of_bundle(desired: &Desired) -> BTreeMap<ObjectId, Wanted> {
    let objects = desired.install.bundle.objects.iter().enumerate();
    let placed = objects.filter_map(|(index, o)| {
        let id = place(o.head())?;
        let object = o.whole().into_owned();
        let expect = comparable(id.kind, adjusted(desired, object));
        Some((id, entry(expect, Body::Bundle(index))))
    });
    placed.collect()
}

pub(super) fn entry(expect: Value, body: Body) -> Wanted {
    Wanted {
        expect: Arc::new(expect),
        git_owned: false,
        taken: false,
        known: None,
        added: None,
        body,
    }
}

/// An object of our own making.
pub(super) fn own(object: Value) -> Wanted {
    entry(object.clone(), Body::Own(Arc::new(object)))
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
        | Kind::ValidatingAdmissionPolicyBinding => {}
    }
    object
}

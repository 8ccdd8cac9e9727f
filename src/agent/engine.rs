//! What to install and what healthy means, per engine.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use time::OffsetDateTime;

use super::gate::policy::Mending;
use super::plan::change::{Change, Form};
use super::{Desired, Engine};
use crate::bundle::{Bundle, Kind, ObjectId};
use crate::clock;
use crate::keys::{sha256, sha256_hex};
use crate::manifests::{self, EngineNamespaces};
use crate::wire::api::{self, EngineKind};
use crate::wire::id::Digest;

pub mod argocd;
pub mod compare;
pub mod fields;
pub mod flux;
pub mod guard;
pub mod images;

/// The label of an object that Flux itself applies from Git.
pub const GIT_OWNER: &str = "kustomize.toolkit.fluxcd.io/name";
/// The label with the namespace of that Kustomization.
pub const GIT_OWNER_NAMESPACE: &str = "kustomize.toolkit.fluxcd.io/namespace";
/// The annotation of an object that Argo CD itself applies from Git.
pub const TRACKING: &str = "argocd.argoproj.io/tracking-id";
/// The field manager of what we own.
pub const MANAGER: &str = "linesman";
/// The field manager of what others had set on an object of ours and what we put back with it: so it stays although we do
/// not want it ourselves.
pub const KEPT: &str = "linesman-kept";
/// The field manager of what the guard does, so that it is told from a person's doing.
pub const GUARD: &str = "linesman-guard";
/// Asks Flux to look at an object now; its controller copies the value into `status.lastHandledReconcileAt`.
pub const REQUESTED_AT: &str = "reconcile.fluxcd.io/requestedAt";
/// When Kubernetes was last made to look at a controller whose Pods had been refused.
pub const RETRIED_AT: &str = "linesman.dev/retried-at";

/// All that has to be true in the cluster: the planner's half of [`Desired`].
#[derive(Debug, Clone)]
pub struct Install {
    pub traits: &'static Traits,
    pub wanted: BTreeMap<ObjectId, Wanted>,
    pub namespace: String,
    /// What fetches the catalog, and what applies it; Argo CD has one object for both.
    pub source: ObjectId,
    pub sync: ObjectId,
    pub secret: ObjectId,
    /// The binding that gives the agent its rights in the engine's namespace; it goes first.
    pub rights: ObjectId,
    pub policy: Policy,
    /// Name of the cluster: the seed of all jitter.
    pub cluster: String,
    pub bundle: Arc<Bundle>,
    /// A change of it is under way: objects change stage by stage, and what differs meanwhile is no fault.
    pub changing: bool,
    /// The same text for the same install: what an episode of adoption is about.
    pub digest: Digest,
    desired: Desired,
    /// What [`Install::with`] replaced.
    base: Option<(ObjectId, Arc<Value>)>,
}

/// What is fixed about an engine, for what is done in the same way for each.
#[derive(Debug)]
pub struct Traits {
    pub kind: EngineKind,
    /// The field manager of what it applies from Git.
    pub applier: &'static str,
    /// `app.kubernetes.io/part-of` of its workloads.
    pub part_of: &'static str,
    /// The bindings that let it change (and prune) the whole cluster.
    pub rights: &'static [&'static str],
    /// The controllers that prune.
    pub pruners: &'static [(Kind, &'static str)],
    /// CRDs whose deletion makes a controller prune what their objects brought.
    pub pruning_crds: &'static [&'static str],
    /// How its finalizers begin.
    pub finalizers: &'static [&'static str],
    /// Kinds of the sync objects that the catalog brings.
    pub children: &'static [Kind],
    /// What a controller cannot start without, beside its account and its rights.
    pub before_pods: &'static [Kind],
    /// The controllers of source and sync object.
    pub controllers: [(Kind, &'static str); 2],
    /// Where source and sync object say what they follow.
    pub follows: [&'static str; 2],
}

/// One of the engines and where it lives.
#[derive(Debug, Clone)]
pub struct Site {
    pub traits: &'static Traits,
    pub namespace: String,
}

impl Site {
    pub fn of(kind: EngineKind, engines: &EngineNamespaces) -> Self {
        Self {
            traits: traits_of(kind),
            namespace: engines.of(kind).to_owned(),
        }
    }
}

impl Traits {
    /// Whether a finalizer is the engine's.
    pub fn is_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|f| finalizer.starts_with(f))
    }
}

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
    body: Body,
}

impl Wanted {
    /// What is expected, and what others had added when the engine last worked.
    pub fn whole(&self) -> Cow<'_, Value> {
        match &self.added {
            Some(added) => Cow::Owned(compare::merged(&self.expect, added)),
            None => Cow::Borrowed(&self.expect),
        }
    }
}

#[derive(Debug, Clone)]
enum Body {
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
    fn own(&self) -> Option<&Arc<Value>> {
        match self {
            Self::Own(body) => Some(body),
            Self::Bundle(_) | Self::Shared { .. } | Self::Secret => None,
        }
    }
}

/// What hub and owner say on the watchdog's work; what of it is in force at a time, [`super::plan::window`] tells.
#[derive(Debug, Clone)]
pub struct Policy {
    pub probe_every: time::Duration,
    pub snapshot_after: time::Duration,
    pub paused_until: Option<OffsetDateTime>,
    /// Who paused it and why.
    pub pause_reason: String,
    /// Until then only what is missing is put back, by the hub's wish.
    pub safe_until: Option<OffsetDateTime>,
    /// What the hub saw in the fleet.
    pub safe_reason: String,
    /// What was held back from Git by then is given back once.
    pub lift_before: Option<OffsetDateTime>,
    /// None = the owner's policy was not read yet.
    pub owner: Option<Mending>,
}

impl Policy {
    pub fn of(hub: &api::Policy, owner: Option<Mending>) -> Self {
        let time = |text: &Option<String>| text.as_deref().and_then(clock::parse_rfc3339);
        Self {
            probe_every: time::Duration::seconds(hub.probe_every.max(30).into()),
            snapshot_after: time::Duration::seconds(hub.snapshot_after.into()),
            paused_until: time(&hub.paused_until),
            pause_reason: hub.pause_reason.clone().unwrap_or_default(),
            safe_until: time(&hub.safe_heals_until),
            safe_reason: hub.safe_heals_reason.clone().unwrap_or_default(),
            lift_before: time(&hub.lift_before),
            owner,
        }
    }
}

/// What an engine makes of [`Desired`].
struct Parts {
    traits: &'static Traits,
    wanted: BTreeMap<ObjectId, Wanted>,
    source: ObjectId,
    sync: ObjectId,
    secret: ObjectId,
}

impl Install {
    /// `snapshot` is the last known good of the Git-owned objects and of the ConfigMaps, by their place.
    pub fn new(
        desired: &Desired,
        snapshot: &BTreeMap<ObjectId, Value>,
        owner: Option<Mending>,
    ) -> Self {
        let parts = match &desired.engine {
            Engine::Flux => flux::parts(desired),
            Engine::Argocd(keys) => argocd::parts(desired, keys),
        };
        let mut install = Self::of(parts, desired, owner);
        for (id, fields) in snapshot {
            let from_git = is_git_owned(fields) && !always_ours(id, &install);
            let Some(wanted) = install.wanted.get_mut(id) else {
                continue;
            };
            if id.kind == Kind::ConfigMap && !argocd::is_ours(id) {
                let data = fields.get("data").cloned();
                wanted.known = Some(Arc::new(data.unwrap_or_else(|| json!({}))));
            }
            if !from_git {
                continue;
            }
            wanted.git_owned = true;
            // Of what others write, too, it stays with our keys.
            if !matches!(wanted.body, Body::Shared { .. }) {
                wanted.expect = Arc::new(comparable(id.kind, fields.clone()));
                wanted.body = Body::Own(Arc::new(fields.clone()));
            }
        }
        install
    }

    fn of(parts: Parts, desired: &Desired, owner: Option<Mending>) -> Self {
        let Parts {
            traits,
            mut wanted,
            source,
            sync,
            secret,
        } = parts;
        let namespace = desired.install.bundle.namespace.clone();
        let rights = ObjectId::new(Kind::RoleBinding, &namespace, manifests::ENGINE_ROLE);
        wanted.insert(rights.clone(), own(agent_rights(&namespace)));
        let [_, (_, applier)] = traits.controllers;
        let guard = guard::objects(wanted.keys(), [&source, &sync], applier, &labels());
        wanted.extend(guard.map(|(id, object)| (id, own(object))));
        let known: String = wanted.values().map(|w| w.expect.to_string()).collect();
        Self {
            traits,
            wanted,
            namespace,
            source,
            sync,
            secret,
            rights,
            policy: Policy::of(&desired.assignment.policy, owner),
            cluster: desired.assignment.cluster.name.as_str().to_owned(),
            digest: Digest::from_bytes(sha256(known.as_bytes())),
            bundle: Arc::clone(&desired.install.bundle),
            changing: desired.install.change.as_ref().is_some_and(Change::is_open),
            desired: desired.clone(),
            base: None,
        }
    }

    /// Where the engine reads the catalog.
    pub fn catalog(&self) -> &api::CatalogRef {
        &self.desired.assignment.catalog
    }

    /// Git's object, for which no snapshot is of use: it is healed as the bundle has it, and left to Git otherwise.
    pub fn leave_to_git(&mut self, id: &ObjectId) {
        let ours = always_ours(id, self);
        if let Some(wanted) = self.wanted.get_mut(id).filter(|_| !ours) {
            wanted.git_owned = true;
        }
    }

    /// Git's from now on, although no snapshot says so yet.
    pub fn take_over(&mut self, id: &ObjectId) {
        if let Some(wanted) = self.wanted.get_mut(id) {
            wanted.git_owned = true;
            wanted.taken = true;
        }
    }

    /// Whether an object of the install may be Git's at all.
    pub fn may_be_gits(&self, id: &ObjectId) -> bool {
        // What is in a Secret is in no snapshot.
        id.kind.installable() && id.kind != Kind::Secret && !always_ours(id, self)
    }

    /// What is sent to the API server to bring one object about.
    pub fn body(&self, id: &ObjectId) -> Option<Value> {
        let wanted = self.wanted.get(id)?;
        match (&wanted.body, &self.desired.engine) {
            (Body::Bundle(index), _) => {
                let object = self.bundle.objects.get(*index)?.clone();
                Some(adjusted(&self.desired, object))
            }
            (Body::Own(value) | Body::Shared { whole: value, .. }, _) => {
                Some(value.as_ref().clone())
            }
            (Body::Secret, Engine::Flux) => Some(flux::git_secret(&self.desired)),
            (Body::Secret, Engine::Argocd(keys)) => argocd::secret(&self.desired, keys, &id.name),
        }
    }

    /// The same with what others had added to it: for an object that is made again.
    pub fn whole(&self, id: &ObjectId) -> Option<Value> {
        let body = self.body(id)?;
        Some(match &self.wanted.get(id)?.added {
            Some(added) => compare::merged(&body, added),
            None => body,
        })
    }

    /// Objects of ours of which others' additions belong to last known good; `added` is what those were.
    pub fn keep(&mut self, added: &BTreeMap<ObjectId, Value>) {
        for (id, fields) in added {
            let ours = |wanted: &&mut Wanted| keeps_additions(id.kind) && !wanted.git_owned;
            if let Some(wanted) = self.wanted.get_mut(id).filter(ours) {
                wanted.added = Some(Arc::new(fields.clone()));
            }
        }
    }

    /// The same with another body for one object of ours.
    #[must_use]
    pub fn with(&self, id: &ObjectId, body: Value) -> Self {
        let mut install = self.clone();
        let base = self.wanted.get(id).and_then(|wanted| wanted.body.own());
        install.base = base.map(|body| (id.clone(), Arc::clone(body)));
        install.wanted.insert(id.clone(), own(body));
        install
    }

    /// What we want of an object of ours while nothing is held back.
    pub fn base(&self, id: &ObjectId) -> Option<&Value> {
        let replaced = self.base.as_ref().filter(|(of, _)| of == id);
        match replaced {
            Some((_, body)) => Some(body),
            None => self.wanted.get(id)?.body.own().map(AsRef::as_ref),
        }
    }

    /// For an object that is there and that others write, too: the merge patch of just our keys.
    pub fn keys_of(&self, id: &ObjectId) -> Option<&Value> {
        match &self.wanted.get(id)?.body {
            Body::Shared { keys, .. } => Some(keys),
            Body::Bundle(_) | Body::Own(_) | Body::Secret => None,
        }
    }

    /// Whether the root takes away what the catalog no longer has.
    pub fn prunes(&self) -> bool {
        self.desired.prunes
    }

    /// Version, bundle and registry that are in force.
    pub fn form(&self) -> &Form {
        &self.desired.install.form
    }

    /// A change of it that is under way or was undone.
    pub fn change(&self) -> Option<&Change> {
        self.desired.install.change.as_ref()
    }

    /// What the hub wishes, with the number of the wish.
    pub fn wish(&self) -> (Form, u64) {
        let engine = &self.desired.assignment.engine;
        (Form::of(engine), engine.change)
    }

    /// The controller of a root object, or of a release.
    pub fn controller(&self, of: &ObjectId) -> ObjectId {
        let [source, sync] = self.traits.controllers;
        let (kind, name) = match of.kind {
            Kind::HelmRelease => (Kind::Deployment, flux::HELM),
            _ if *of == self.source => source,
            _ => sync,
        };
        ObjectId::new(kind, &self.namespace, name)
    }

    /// Whether an object says whom the engine trusts: where the catalog comes from, and who signed it. That is the hub's
    /// word, and nobody else's.
    pub fn trusts(&self, id: &ObjectId) -> bool {
        let host_keys = id.kind == Kind::ConfigMap && argocd::is_ours(id);
        let signers = id.kind == Kind::Secret && id.name == flux::SIGNERS;
        *id == self.secret || (host_keys || signers) && id.namespace == self.namespace
    }

    /// Source and sync object, each once.
    pub fn roots(&self) -> impl Iterator<Item = &ObjectId> {
        let sync = Some(&self.sync).filter(|sync| **sync != self.source);
        std::iter::once(&self.source).chain(sync)
    }

    /// What controllers beside those of the roots are asked with.
    pub fn canaries(&self) -> impl Iterator<Item = &ObjectId> {
        let mut wanted = self.wanted.keys();
        wanted
            .find(|id| id.kind == Kind::HelmRelease && id.name == flux::CANARY)
            .into_iter()
    }

    /// The controllers and what they need.
    pub fn workloads(&self) -> impl Iterator<Item = &ObjectId> {
        self.wanted.keys().filter(|id| is_workload(id.kind))
    }
}

/// Kinds to which people add what their cluster needs: proxies, certificates, nodes, secrets for images.
pub fn keeps_additions(kind: Kind) -> bool {
    is_workload(kind) || kind == Kind::ServiceAccount
}

pub fn is_workload(kind: Kind) -> bool {
    matches!(kind, Kind::Deployment | Kind::StatefulSet)
}

/// An object of the bundle with the install values put in.
fn adjusted(desired: &Desired, object: Value) -> Value {
    let object = match &desired.engine {
        Engine::Flux => flux::adjusted(&desired.install.bundle, object),
        Engine::Argocd(_) => argocd::adjusted(&desired.install.bundle, object),
    };
    match &desired.install.form.registry {
        Some(registry) => images::moved(object, registry),
        None => object,
    }
}

/// The bundle's objects, each with the install values.
fn of_bundle(desired: &Desired) -> BTreeMap<ObjectId, Wanted> {
    let objects = desired.install.bundle.objects.iter().enumerate();
    let placed = objects.filter_map(|(index, o)| {
        let id = place(o)?;
        let expect = comparable(id.kind, adjusted(desired, o.clone()));
        Some((id, entry(expect, Body::Bundle(index))))
    });
    placed.collect()
}

fn entry(expect: Value, body: Body) -> Wanted {
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
fn own(object: Value) -> Wanted {
    entry(object.clone(), Body::Own(Arc::new(object)))
}

/// What is fixed about one of the engines.
fn traits_of(kind: EngineKind) -> &'static Traits {
    match kind {
        EngineKind::Flux => &flux::TRAITS,
        EngineKind::Argocd => &argocd::TRAITS,
    }
}

/// What the agent makes for an engine beside the objects of its bundle, and what goes with the engine.
pub fn extras(site: &Site) -> Vec<ObjectId> {
    let own: &[(Kind, &str)] = match site.traits.kind {
        EngineKind::Flux => &[
            (Kind::Secret, flux::NAME),
            (Kind::Secret, flux::SIGNERS),
            (Kind::GitRepository, flux::NAME),
            (Kind::Kustomization, flux::NAME),
            (Kind::HelmRelease, flux::CANARY),
        ],
        EngineKind::Argocd => &[
            (Kind::ConfigMap, argocd::KNOWN_HOSTS),
            (Kind::Secret, argocd::SESSION),
            (Kind::Secret, argocd::REDIS),
            (Kind::Secret, argocd::REPOSITORY),
            (Kind::AppProject, argocd::PROJECT),
            (Kind::Application, argocd::ROOT),
        ],
    };
    let rights = (Kind::RoleBinding, manifests::ENGINE_ROLE);
    let all = own.iter().copied().chain([rights]);
    all.map(|(kind, name)| ObjectId::new(kind, &site.namespace, name))
        .collect()
}

/// Where an install object lives; none for what is no kind of an install.
pub fn place(object: &Value) -> Option<ObjectId> {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str);
    let kind = Kind::parse(text("/apiVersion")?, text("/kind")?)?;
    let namespace = text("/metadata/namespace").unwrap_or_default();
    Some(ObjectId::new(kind, namespace, text("/metadata/name")?))
}

/// What the agent may do in the engine's namespace; the adoption YAML cannot hold it, because the namespace comes
/// and goes with the install.
fn agent_rights(namespace: &str) -> Value {
    json!({
        "apiVersion": Kind::RoleBinding.api_version(), "kind": Kind::RoleBinding.as_str(),
        "metadata": {"name": manifests::ENGINE_ROLE, "namespace": namespace, "labels": labels()},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": Kind::ClusterRole.as_str(),
            "name": manifests::ENGINE_ROLE,
        },
        "subjects": [{
            "kind": Kind::ServiceAccount.as_str(), "name": manifests::AGENT,
            "namespace": manifests::NAMESPACE,
        }],
    })
}

fn labels() -> Value {
    json!({"app.kubernetes.io/managed-by": "linesman"})
}

/// The hub's host keys without comments: one un-hashed line a key is read alike by both engines.
fn one_key_per_line(known_hosts: &str) -> String {
    let lines = known_hosts.lines().map(str::trim);
    let kept = lines.filter(|l| !l.is_empty() && !l.starts_with('#'));
    kept.fold(String::new(), |text, line| text + line + "\n")
}

/// What is never left to Git, whatever labels it wears.
fn always_ours(id: &ObjectId, install: &Install) -> bool {
    let roots = [
        &install.secret,
        &install.source,
        &install.sync,
        &install.rights,
    ];
    let kinds = matches!(id.kind, Kind::Namespace | Kind::AppProject);
    let canary = install.canaries().any(|canary| canary == id);
    kinds || canary || id.kind.optional() || roots.contains(&id) || install.trusts(id)
}

pub fn is_git_owned(fields: &Value) -> bool {
    let carries = |part: &str, key: &str| {
        fields
            .pointer(&format!("/metadata/{part}"))
            .is_some_and(|map| map.get(key).is_some())
    };
    carries("labels", GIT_OWNER) || carries("annotations", TRACKING)
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
        | Kind::ValidatingAdmissionPolicy
        | Kind::ValidatingAdmissionPolicyBinding => {}
    }
    object
}

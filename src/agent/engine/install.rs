//! All that an engine of a cluster consists of, and what may become of each object of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use super::wanted::{Body, Wanted, comparable, entry, own};
use super::{
    Policy, Traits, adjusted, argocd, compare, flux, guard, is_git_owned, is_workload,
    keeps_additions, labels, place,
};
use crate::agent::gate::policy::Mending;
use crate::agent::plan::change::{Change, Form, Place};
use crate::agent::{Desired, Engine};
use crate::bundle::{Bundle, Kind, ObjectId};
use crate::keys::sha256;
use crate::manifests;
use crate::wire::api;
use crate::wire::id::Digest;

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
    /// What of its bundle Git's version of the engine does without: where it is not there, that is as it has to be.
    pub dropped: BTreeSet<ObjectId>,
    /// A change of it is under way: objects change stage by stage, and what differs meanwhile is no fault.
    pub changing: bool,
    /// The same text for the same install: what an episode of adoption is about.
    pub digest: Digest,
    desired: Desired,
    /// What [`Install::with`] replaced.
    base: Option<(ObjectId, Arc<Value>)>,
}

/// What an engine makes of [`Desired`].
pub(super) struct Parts {
    pub(super) traits: &'static Traits,
    pub(super) wanted: BTreeMap<ObjectId, Wanted>,
    pub(super) source: ObjectId,
    pub(super) sync: ObjectId,
    pub(super) secret: ObjectId,
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
                let known = argocd::signers::known(id, &wanted.expect, fields);
                wanted.known = Some(Arc::new(known));
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
        install.suit_signers();
        install
    }

    /// Git may bring another version of Flux than the bundle has: it is given the signers' keys that it reads.
    fn suit_signers(&mut self) {
        let [(kind, name), _] = self.traits.controllers;
        let controller = ObjectId::new(kind, &self.namespace, name);
        let from_git = self.wanted.get(&controller).filter(|w| w.git_owned);
        let Some(ssh) = from_git.map(|w| flux::reads_ssh(&w.expect)) else {
            return;
        };
        let (id, keys) = flux::signers(&self.desired, ssh);
        if self.wanted.contains_key(&id) {
            self.wanted.insert(id, keys);
        }
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
            dropped: BTreeSet::new(),
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

    /// An object as the bundle has it, whatever a snapshot says of it.
    pub fn bundled(&self, id: &ObjectId) -> Option<Wanted> {
        let mut all = self.bundle.objects.iter().enumerate();
        let (index, object) = all.find(|(_, o)| place(o.head()).as_ref() == Some(id))?;
        let object = adjusted(&self.desired, object.whole().into_owned());
        Some(entry(comparable(id.kind, object), Body::Bundle(index)))
    }

    /// Ours again, as the bundle has it, although a snapshot says that it is Git's.
    pub fn take_back(&mut self, id: &ObjectId) {
        if let Some(bundled) = self.bundled(id) {
            self.wanted.insert(id.clone(), bundled);
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
                let object = self.bundle.objects.get(*index)?.whole().into_owned();
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

    /// What Git's version of the engine did without when it last worked; of no meaning once Git has no engine.
    pub fn do_without(&mut self, dropped: &BTreeSet<ObjectId>) {
        let wanted = &self.wanted;
        let gits = wanted
            .iter()
            .any(|(id, w)| is_workload(id.kind) && w.git_owned);
        let all = dropped.iter().filter(|id| gits && wanted.contains_key(*id));
        self.dropped = all.cloned().collect();
    }

    /// The same with another body for one object of ours. Of several the first one's base counts.
    #[must_use]
    pub fn with(&self, id: &ObjectId, body: Value) -> Self {
        let mut install = self.clone();
        let replaced = self.base.as_ref().filter(|(of, _)| of == id);
        let wanted = || self.wanted.get(id)?.body.own();
        let base = replaced.map(|(_, body)| body).or_else(wanted);
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

    /// The controller of a root object, of a release, or of what people have of those beside them.
    pub fn controller(&self, of: &ObjectId) -> ObjectId {
        let [source, sync] = self.traits.controllers;
        let mut all = self.traits.witnesses.iter();
        let witness = all.find(|(asked, _)| *asked == of.kind);
        let (kind, name) = match (of.kind, witness) {
            (Kind::HelmRelease, _) => (Kind::Deployment, flux::HELM),
            (_, Some((_, name))) => (Kind::Deployment, *name),
            _ if *of == self.source => source,
            _ => sync,
        };
        ObjectId::new(kind, &self.namespace, name)
    }

    /// Whether an object says whom the engine trusts: where the catalog comes from, and who signed it. That is the hub's
    /// word, and nobody else's.
    pub fn trusts(&self, id: &ObjectId) -> bool {
        let host_keys = id.kind == Kind::ConfigMap && argocd::is_ours(id);
        let ring = id.kind == Kind::ConfigMap && id.name == argocd::KEYRING;
        // While nobody signs, it is a ConfigMap like the others.
        let ring = ring && !self.catalog().signers.is_empty();
        let signers = ring || id.kind == Kind::Secret && id.name == flux::SIGNERS;
        *id == self.secret || (host_keys || signers) && id.namespace == self.namespace
    }

    /// Source and sync object, each once.
    pub fn roots(&self) -> impl Iterator<Item = &ObjectId> {
        let sync = Some(&self.sync).filter(|sync| **sync != self.source);
        std::iter::once(&self.source).chain(sync)
    }

    /// What controllers beside those of the roots are asked with as the roots are. Argo CD's is among the [witnesses](Self::witnesses).
    pub fn canaries(&self) -> impl Iterator<Item = &ObjectId> {
        let mut wanted = self.wanted.keys();
        wanted
            .find(|id| id.kind == Kind::HelmRelease && id.name == flux::CANARY)
            .into_iter()
    }

    /// What controllers are asked with that neither roots nor canaries are of, where the install has them.
    pub fn witnesses(&self) -> impl Iterator<Item = Kind> {
        let all = self.traits.witnesses.iter().filter(|(kind, name)| {
            let crd = ObjectId::crd_of(*kind);
            let controller = ObjectId::new(Kind::Deployment, &self.namespace, name);
            self.wanted.contains_key(&crd) && self.wanted.contains_key(&controller)
        });
        all.map(|(kind, _)| *kind)
    }

    /// The CRDs of the install, and those that a part of it which it no longer has may have left: they are never removed, and
    /// nobody is there who would free their objects.
    pub fn crds(&self) -> BTreeSet<ObjectId> {
        let witnesses = self.traits.witnesses.iter().map(|(kind, _)| kind);
        let kinds = self.traits.children.iter().chain(witnesses);
        let known = kinds.map(|kind| ObjectId::crd_of(*kind));
        let open = self.change().into_iter().filter(|change| !change.both);
        let places = open.flat_map(|change| change.objects.iter().filter_map(Place::id));
        let all = self.wanted.keys().cloned().chain(places);
        all.filter(|id| id.kind == Kind::CustomResourceDefinition)
            .chain(known)
            .collect()
    }

    /// The controllers and what they need.
    pub fn workloads(&self) -> impl Iterator<Item = &ObjectId> {
        self.wanted.keys().filter(|id| is_workload(id.kind))
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
    // Of the last kind there is only what we ask with.
    let kinds = matches!(
        id.kind,
        Kind::Namespace | Kind::AppProject | Kind::ApplicationSet
    );
    let canary = install.canaries().any(|canary| canary == id);
    kinds || canary || id.kind.optional() || roots.contains(&id) || install.trusts(id)
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

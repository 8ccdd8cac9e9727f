//! What to install and what healthy means, per engine.

use serde_json::{Value, json};
use time::OffsetDateTime;

use super::gate::policy::Mending;
use super::{Desired, Engine};
use crate::bundle::{Kind, ObjectId};
use crate::clock;
use crate::manifests::{self, EngineNamespaces};
use crate::wire::api::{self, EngineKind};

pub mod alone;
pub mod argocd;
pub mod compare;
pub mod domain;
pub mod fields;
pub mod flux;
pub mod guard;
pub mod images;
mod install;
mod wanted;

pub use install::Install;
pub use wanted::{Wanted, comparable};

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
/// How the API server refuses to apply an object that has a field manager of a version which its CRD no longer has; the version
/// follows (apiextensions-apiserver, `conversion/converter.go`; fluxcd/flux2#5598).
pub const OUTDATED: &str = "request to convert CR to an invalid group/version: ";

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
    /// What these need at work for an answer.
    pub answers_with: &'static [&'static str],
    /// Where source and sync object say what they follow.
    pub follows: [&'static str; 2],
    /// The controllers that are asked with neither a root nor a canary that is asked as a root is: each with the kind that it is asked
    /// with. Of Flux these are people's objects, of Argo CD one of ours.
    pub witnesses: &'static [(Kind, &'static str)],
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
        Engine::Flux => flux::adjusted(&desired.install.bundle, &desired.domain, object),
        // Its parts call each other by the bare names of their Services.
        Engine::Argocd(_) => argocd::adjusted(&desired.install.bundle, object),
    };
    let form = &desired.install.form;
    let object = match &form.registry {
        Some(registry) => images::moved(object, registry),
        None => object,
    };
    match &form.pull_secret {
        Some(secret) => images::pulled_with(object, secret),
        None => object,
    }
}

/// What is fixed about one of the engines.
fn traits_of(kind: EngineKind) -> &'static Traits {
    match kind {
        EngineKind::Flux => &flux::TRAITS,
        EngineKind::Argocd => &argocd::TRAITS,
    }
}

/// Whether a finalizer is of either engine.
pub fn is_engines(finalizer: &str) -> bool {
    let engines = [EngineKind::Flux, EngineKind::Argocd];
    engines
        .iter()
        .any(|kind| traits_of(*kind).is_finalizer(finalizer))
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
            (Kind::ConfigMap, argocd::KEYRING),
            (Kind::Secret, argocd::SESSION),
            (Kind::Secret, argocd::REDIS),
            (Kind::Secret, argocd::REPOSITORY),
            (Kind::AppProject, argocd::PROJECT),
            (Kind::Application, argocd::ROOT),
            (Kind::ApplicationSet, argocd::CANARY),
        ],
    };
    let rights = (Kind::RoleBinding, manifests::ENGINE_ROLE);
    let all = own.iter().copied().chain([rights]);
    all.map(|(kind, name)| ObjectId::new(kind, &site.namespace, name))
        .collect()
}

/// What a controller that no root is of is asked with, where the install has that controller.
pub fn canary(kind: EngineKind, namespace: &str) -> ObjectId {
    match kind {
        EngineKind::Flux => flux::canary(namespace),
        EngineKind::Argocd => argocd::canary(namespace),
    }
}

/// Where an install object lives; none for what is no kind of an install.
pub fn place(object: &Value) -> Option<ObjectId> {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str);
    let kind = Kind::parse(text("/apiVersion")?, text("/kind")?)?;
    let namespace = text("/metadata/namespace").unwrap_or_default();
    Some(ObjectId::new(kind, namespace, text("/metadata/name")?))
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

pub fn is_git_owned(fields: &Value) -> bool {
    let carries = |part: &str, key: &str| {
        fields
            .pointer(&format!("/metadata/{part}"))
            .is_some_and(|map| map.get(key).is_some())
    };
    carries("labels", GIT_OWNER) || carries("annotations", TRACKING)
}

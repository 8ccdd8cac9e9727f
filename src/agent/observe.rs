//! Watches become one observed state on a watch channel.
//!
//! Each kind of the install has its own list and watch, and is listed anew every 60 s as a net below the watch. An
//! object of a list and an event of the watch that runs beside it are put in order by their resourceVersions. The watch is heard
//! while its list is under way, however many pages that has.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind};
use serde_json::Value;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::engine::Install;
use super::plan::barred::Denial;
use super::plan::burst;
use super::plan::doubt;
use super::plan::redis::{Requests, Tally};
use super::plan::{Object, Observed};
use crate::bundle::{Kind, ObjectId};
use crate::clock;
use crate::manifests::ENGINE_ROLE;
use crate::manifests::scope::Extent;
use crate::wire::api::EngineKind;

/// The label that all of an install carries.
const PART_OF: &str = "app.kubernetes.io/part-of";

mod count;
mod found;
mod pages;
mod scope;

use found::{Heard, heard};
pub(super) use pages::{Page, Unread};
use scope::{Scope, Selector, What};

/// Where the observed state is kept and read. Step outcomes are put in directly, so that no plan is made from what
/// a step has just changed. Beside it is whose turn it is to read a large page of a list.
#[derive(Clone)]
pub struct View(Arc<watch::Sender<Observed>>, Arc<Semaphore>);

impl View {
    /// Nothing is known yet.
    pub fn new(install: &Install) -> Self {
        let seen = Observed {
            since: Some(clock::now()),
            awaited: kinds_below(install).collect(),
            ..Observed::default()
        };
        let turn = Semaphore::new(1);
        Self(Arc::new(watch::Sender::new(seen)), Arc::new(turn))
    }

    pub fn subscribe(&self) -> watch::Receiver<Observed> {
        self.0.subscribe()
    }

    /// A Lease that was deleted is not looked at again until the next list.
    pub fn forget_lease(&self, name: &str) {
        self.0
            .send_if_modified(|seen| seen.leases.remove(name).is_some());
    }

    /// What became of the question whether the API server takes a controller's Pods; none = it does. That the same was said
    /// again is no news.
    pub fn denied(&self, id: &ObjectId, denial: Option<Denial>) {
        self.0.send_if_modified(|seen| {
            let before = match denial {
                Some(denial) => seen.denied.insert(id.clone(), denial),
                None => seen.denied.remove(id),
            };
            before.map(|d| d.said) != seen.denied.get(id).map(|d| d.said.clone())
        });
    }

    /// What a controller's Pod counts of its requests to Redis now; those of Pods that are gone are forgotten. That all goes on
    /// as before is no news.
    fn counted(&self, pod: &str, uid: &str, requests: Requests) {
        let now = clock::now();
        self.0.send_if_modified(|seen| {
            let there = &seen.pods;
            seen.requests.retain(|name, _| there.contains_key(name));
            let before = seen.requests.get(pod);
            let next = before.map_or_else(
                || Tally::begin(uid, requests, now),
                |tally| tally.next(uid, requests, now),
            );
            let failed = next.failed > 0 || before.is_some_and(|tally| tally.failed > 0);
            seen.requests.insert(pod.to_owned(), next);
            failed
        });
    }

    /// One object as it is known now.
    pub fn get(&self, id: &ObjectId) -> Option<Arc<Object>> {
        self.0.borrow().objects.get(id).cloned()
    }

    /// What an answer of the API server says of a sync object below the root.
    pub fn heard(&self, home: &str, id: &ObjectId, live: &DynamicObject) {
        let said = Heard::of(home, id.kind, live);
        self.0
            .send_if_modified(|seen| heard(seen, id.clone(), said));
    }

    /// What an answer of the API server to a write says of one object; none = it is gone. It may come after the watch told of
    /// what became of the object since.
    pub fn put(&self, id: &ObjectId, live: Option<Object>) {
        self.0.send_if_modified(|seen| match live {
            Some(live) if is_gone(seen, id, &live) => false,
            Some(live) => insert(seen, id, live),
            None => seen.objects.remove(id).is_some(),
        });
    }
}

/// What a watch tells of one object, in order: it may also be back in what the watch selects.
fn told(seen: &mut Observed, id: &ObjectId, live: Object) -> bool {
    seen.buried.remove(id);
    insert(seen, id, live)
}

/// Whether it was deleted since.
fn is_gone(seen: &Observed, id: &ObjectId, live: &Object) -> bool {
    let listed = seen.listed.get(&id.kind).copied().unwrap_or_default();
    let absent = !seen.objects.contains_key(id) && live.version <= listed;
    absent || seen.buried.get(id) == Some(&live.uid)
}

/// Older news than what is there is dropped.
fn insert(seen: &mut Observed, id: &ObjectId, live: Object) -> bool {
    if let Some(there) = seen.objects.get(id)
        && there.uid == live.uid
        && (there.version > live.version || **there == live)
    {
        return false;
    }
    if id.kind == Kind::Kustomization
        && let Some(before) = seen.objects.get(id)
        && burst::root_moved(id.kind, before, &live)
    {
        burst::moved(seen, id, clock::now());
    }
    if id.kind == Kind::Application
        && let Some(before) = seen.objects.get(id)
        && let Some(told) = doubt::taken_back(before, &live, clock::now())
    {
        seen.taken_back = Some(told);
    }
    seen.objects.insert(id.clone(), Arc::new(live));
    true
}

/// Observes all that `install` wants until `stop`.
pub async fn run(
    kube: kube::Client,
    install: &Install,
    extent: Extent,
    view: View,
    stop: CancellationToken,
) -> Result<()> {
    let mut scopes = JoinSet::new();
    for scope in scopes_of(&kube, install, extent) {
        scopes.spawn(scope.run(view.clone(), stop.clone()));
    }
    if install.traits.kind == EngineKind::Argocd {
        let controller = install.controller(&install.sync).name;
        scopes.spawn(count::run(controller, view, stop));
    }
    while let Some(ended) = scopes.join_next().await {
        ended.context("a watch panicked")?;
    }
    Ok(())
}

fn scopes_of(kube: &kube::Client, install: &Install, extent: Extent) -> Vec<Scope> {
    let kinds: BTreeSet<Kind> = install.wanted.keys().map(|id| id.kind).collect();
    let home = ObjectId::new(Kind::Namespace, "", &install.namespace);
    let bound = ObjectId::new(Kind::RoleBinding, &install.namespace, ENGINE_ROLE);
    let rights = vec![home.clone(), bound];
    let mut scopes: Vec<Scope> = kinds
        .into_iter()
        .map(|kind| {
            let ids = install.wanted.keys().filter(|id| id.kind == kind);
            let api = api(kube, kind, &install.namespace);
            Scope {
                selector: selector(kind, install),
                wanted: if kind == Kind::CustomResourceDefinition {
                    install.crds()
                } else {
                    ids.cloned().collect()
                },
                rights: if kind.namespaced() {
                    rights.clone()
                } else {
                    Vec::new()
                },
                ..Scope::of(What::Objects(kind), api, install)
            }
        })
        .collect();
    let pods = served(("", "v1"), "Pod", "pods");
    scopes.extend(children_of(kube, install));
    scopes.extend(install.witnesses().map(|kind| {
        let all = match install.traits.kind {
            EngineKind::Flux => Api::all_with(kube.clone(), &resource(kind)),
            // By default its controller looks at those beside itself.
            EngineKind::Argocd => api(kube, kind, &install.namespace),
        };
        Scope::of(What::Witnesses(kind), all, install)
    }));
    scopes.push(leases(kube, install));
    // Another install of the engine is not looked for in namespaces that are not covered.
    if extent == Extent::Cluster {
        scopes.push(elsewhere(kube, install));
    }
    let pods = Api::namespaced_with(kube.clone(), &install.namespace, &pods);
    scopes.push(Scope {
        rights: vec![home],
        ..Scope::of(What::Pods, pods, install)
    });
    scopes
}

/// Listed now and then, for faults that do not stop the engine.
fn leases(kube: &kube::Client, install: &Install) -> Scope {
    let leases = served(("coordination.k8s.io", "v1"), "Lease", "leases");
    let leases = Api::namespaced_with(kube.clone(), &install.namespace, &leases);
    Scope::of(What::Leases, leases, install)
}

/// The same of another install of the engine.
fn elsewhere(kube: &kube::Client, install: &Install) -> Scope {
    let part_of = format!("{PART_OF}={}", install.traits.part_of);
    let deployments = Api::all_with(kube.clone(), &resource(Kind::Deployment));
    Scope {
        selector: Selector::Label(part_of),
        ..Scope::of(What::Elsewhere, deployments, install)
    }
}

/// What the catalog brings is told by the sync objects of all namespaces.
fn children_of(kube: &kube::Client, install: &Install) -> Vec<Scope> {
    let scope = |kind| Scope {
        wanted: install.wanted.keys().cloned().collect(),
        ..Scope::of(
            What::Children(kind),
            Api::all_with(kube.clone(), &resource(kind)),
            install,
        )
    };
    kinds_below(install).map(scope).collect()
}

/// The kinds of sync objects that the install brings the definition of.
fn kinds_below(install: &Install) -> impl Iterator<Item = Kind> {
    let kinds = install.traits.children.iter().copied();
    kinds.filter(|kind| {
        let crd = ObjectId::crd_of(*kind);
        install.wanted.contains_key(&crd)
    })
}

/// The API of one kind, in the engine's namespace where it has namespaces.
pub fn api(kube: &kube::Client, kind: Kind, namespace: &str) -> Api<DynamicObject> {
    let resource = resource(kind);
    if kind.namespaced() {
        Api::namespaced_with(kube.clone(), namespace, &resource)
    } else {
        Api::all_with(kube.clone(), &resource)
    }
}

pub fn resource(kind: Kind) -> ApiResource {
    let (group, version, plural) = kind.resource();
    served((group, version), kind.as_str(), plural)
}

/// How objects are asked for that are served like this; the core group has no name.
pub fn served((group, version): (&str, &str), kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

/// Only what we want travels: one object by its name, or the install by the label that all of it carries.
fn selector(kind: Kind, install: &Install) -> Selector {
    let mut wanted = install.wanted.iter().filter(|(id, _)| id.kind == kind);
    let count = wanted.clone().count();
    if let (1, Some((id, _))) = (count, wanted.clone().next()) {
        return Selector::Field(format!("metadata.name={}", id.name));
    }
    let part_of = |fields: &Value| {
        fields
            .pointer("/metadata/labels")?
            .get(PART_OF)?
            .as_str()
            .map(str::to_owned)
    };
    let first = wanted.clone().next().and_then(|(_, w)| part_of(&w.expect));
    match first {
        Some(value)
            if !kind.namespaced()
                && wanted.all(|(_, w)| part_of(&w.expect).as_ref() == Some(&value)) =>
        {
            Selector::Label(format!("{PART_OF}={value}"))
        }
        Some(_) | None => Selector::All,
    }
}

//! Watches become one observed state on a watch channel.
//!
//! Each kind of the install has its own list and watch, and is listed anew every 60 s as a net below the watch. An
//! object of a list and an event of the watch that runs beside it are put in order by their resourceVersions.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, WatchEvent, WatchParams};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::engine::Install;
use super::plan::{Object, Observed, project};
use crate::bundle::{Kind, ObjectId};
use crate::clock;

/// A full list this often, whatever the watch says.
const RELIST: Duration = Duration::from_mins(1);
/// The API server closes watches by itself after 290 s; it is asked to, so that both ends agree.
const WATCH_SECONDS: u32 = 290;
const CALL: Duration = Duration::from_secs(20);

/// Where the observed state is kept and read. Step outcomes are put in directly, so that no plan is made from what
/// a step has just changed.
#[derive(Clone)]
pub struct View(Arc<watch::Sender<Observed>>);

impl View {
    pub fn new() -> Self {
        Self(Arc::new(watch::Sender::new(Observed::default())))
    }

    pub fn subscribe(&self) -> watch::Receiver<Observed> {
        self.0.subscribe()
    }

    /// What an answer of the API server says of one object; none = it is gone.
    pub fn put(&self, id: &ObjectId, live: Option<Object>) {
        self.0.send_if_modified(|seen| match live {
            Some(live) => insert(seen, id, live),
            None => seen.objects.remove(id).is_some(),
        });
    }
}

impl Default for View {
    fn default() -> Self {
        Self::new()
    }
}

/// Older news than what is there is dropped.
fn insert(seen: &mut Observed, id: &ObjectId, live: Object) -> bool {
    if let Some(there) = seen.objects.get(id)
        && there.uid == live.uid
        && (there.version > live.version || **there == live)
    {
        return false;
    }
    seen.objects.insert(id.clone(), Arc::new(live));
    true
}

/// Observes all that `install` wants until `stop`.
pub async fn run(
    kube: kube::Client,
    install: &Install,
    view: View,
    stop: CancellationToken,
) -> Result<()> {
    let mut scopes = JoinSet::new();
    for scope in scopes_of(&kube, install) {
        scopes.spawn(scope.run(view.clone(), stop.clone()));
    }
    while let Some(ended) = scopes.join_next().await {
        ended.context("a watch panicked")?;
    }
    Ok(())
}

/// One list and watch.
struct Scope {
    what: What,
    api: Api<DynamicObject>,
    selector: Selector,
    wanted: BTreeSet<ObjectId>,
}

#[derive(Debug, Clone, Copy)]
enum What {
    Objects(Kind),
    Pods,
}

#[derive(Debug, Clone)]
enum Selector {
    All,
    Field(String),
    Label(String),
}

fn scopes_of(kube: &kube::Client, install: &Install) -> Vec<Scope> {
    let kinds: BTreeSet<Kind> = install.wanted.keys().map(|id| id.kind).collect();
    let mut scopes: Vec<Scope> = kinds
        .into_iter()
        .map(|kind| {
            let ids = install.wanted.keys().filter(|id| id.kind == kind);
            Scope {
                what: What::Objects(kind),
                api: api(kube, kind, &install.namespace),
                selector: selector(kind, install),
                wanted: ids.cloned().collect(),
            }
        })
        .collect();
    let pods = ApiResource {
        group: String::new(),
        version: "v1".to_owned(),
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        plural: "pods".to_owned(),
    };
    scopes.push(Scope {
        what: What::Pods,
        api: Api::namespaced_with(kube.clone(), &install.namespace, &pods),
        selector: Selector::All,
        wanted: BTreeSet::new(),
    });
    scopes
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
    ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: kind.api_version(),
        kind: kind.as_str().to_owned(),
        plural: plural.to_owned(),
    }
}

/// Only what we want travels: one object by its name, or the install by the label that all of it carries.
fn selector(kind: Kind, install: &Install) -> Selector {
    let mut wanted = install.wanted.iter().filter(|(id, _)| id.kind == kind);
    let count = wanted.clone().count();
    if let (1, Some((id, _))) = (count, wanted.clone().next()) {
        return Selector::Field(format!("metadata.name={}", id.name));
    }
    let label = "app.kubernetes.io/part-of";
    let part_of = |fields: &Value| {
        fields
            .pointer("/metadata/labels")?
            .get(label)?
            .as_str()
            .map(str::to_owned)
    };
    let first = wanted.clone().next().and_then(|(_, w)| part_of(&w.expect));
    match first {
        Some(value)
            if !kind.namespaced()
                && wanted.all(|(_, w)| part_of(&w.expect).as_ref() == Some(&value)) =>
        {
            Selector::Label(format!("{label}={value}"))
        }
        Some(_) | None => Selector::All,
    }
}

impl Scope {
    async fn run(self, view: View, stop: CancellationToken) {
        stop.run_until_cancelled(self.observe(&view)).await;
    }

    async fn observe(&self, view: &View) {
        let mut place = Place {
            relist_at: Instant::now(),
            floor: 0,
            resume: String::new(),
            events: None,
            failures: 0,
        };
        loop {
            if Instant::now() >= place.relist_at && !self.relist(view, &mut place).await {
                continue;
            }
            if place.events.is_none() {
                let asked =
                    timeout(CALL, self.api.watch(&self.watch_params(), &place.resume)).await;
                place.events = asked.ok().and_then(Result::ok).map(StreamExt::boxed);
            }
            let Some(events) = place.events.as_mut() else {
                place.relist_at = Instant::now() + Duration::from_millis(300);
                sleep_until(place.relist_at).await;
                continue;
            };
            tokio::select! {
                () = sleep_until(place.relist_at) => {}
                event = events.next() => match event {
                    Some(Ok(WatchEvent::Added(live) | WatchEvent::Modified(live))) => {
                        place.at(self.changed(view, live, place.floor));
                    }
                    Some(Ok(WatchEvent::Deleted(live))) => {
                        place.at(self.deleted(view, live, place.floor));
                    }
                    Some(Ok(WatchEvent::Bookmark(mark))) => {
                        place.at(Some(mark.metadata.resource_version));
                    }
                    Some(Ok(WatchEvent::Error(_)) | Err(_)) => {
                        place.events = None;
                        place.relist_at = Instant::now();
                        tokio::time::sleep(Duration::from_millis(200)).await;
                    }
                    // The usual end of a watch: go on where it stopped.
                    None => place.events = None,
                },
            }
        }
    }

    /// Whether the watch can go on from here.
    async fn relist(&self, view: &View, place: &mut Place) -> bool {
        place.failures = place.failures.saturating_add(1);
        match self.list(view).await {
            Listed::At(version) => {
                place.floor = version.parse().unwrap_or_default();
                if place.events.is_none() {
                    place.resume = version;
                }
                place.failures = 0;
                place.relist_at = Instant::now() + RELIST + RELIST.mul_f64(clock::unit() / 10.0);
                return true;
            }
            Listed::Unserved => {
                place.events = None;
                let wait = if place.failures < 60 { 1 } else { 5 };
                place.relist_at = Instant::now() + Duration::from_secs(wait);
            }
            Listed::Failed => {
                let wait = Duration::from_millis(500) * 2_u32.pow(place.failures.min(4));
                place.relist_at = Instant::now() + wait.mul_f64(0.5 + clock::unit() / 2.0);
                if place.events.is_some() {
                    return true;
                }
            }
        }
        sleep_until(place.relist_at).await;
        false
    }

    async fn list(&self, view: &View) -> Listed {
        let mut params = ListParams::default();
        match &self.selector {
            Selector::All => {}
            Selector::Field(text) => params = params.fields(text),
            Selector::Label(text) => params = params.labels(text),
        }
        match timeout(CALL, self.api.list(&params)).await {
            Ok(Ok(list)) => {
                let version = list.metadata.resource_version.unwrap_or_default();
                self.replace(view, list.items, true);
                Listed::At(version)
            }
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 403 | 404) => {
                self.replace(view, Vec::new(), false);
                Listed::Unserved
            }
            Ok(Err(error)) => {
                debug!(what = ?self.what, %error, "list failed");
                Listed::Failed
            }
            Err(_) => {
                debug!(what = ?self.what, "list timed out");
                Listed::Failed
            }
        }
    }

    fn watch_params(&self) -> WatchParams {
        let params = WatchParams::default().timeout(WATCH_SECONDS);
        match &self.selector {
            Selector::All => params,
            Selector::Field(text) => params.fields(text),
            Selector::Label(text) => params.labels(text),
        }
    }

    /// The answer to a list takes the place of all that was known of the kind.
    fn replace(&self, view: &View, items: Vec<DynamicObject>, served: bool) {
        let now = clock::now();
        match self.what {
            What::Objects(kind) => {
                let listed: Vec<(ObjectId, Object)> = items
                    .into_iter()
                    .filter_map(|live| Some((self.id(kind, &live)?, project::object(kind, live))))
                    .collect();
                view.0.send_if_modified(|seen| {
                    let known = seen.objects.len();
                    seen.objects
                        .retain(|id, _| id.kind != kind || listed.iter().any(|(i, _)| i == id));
                    let mut changed = known != seen.objects.len();
                    for (id, live) in listed {
                        changed |= insert(seen, &id, live);
                    }
                    let scope = seen.scopes.entry(kind).or_default();
                    changed |= scope.answered.is_none() || scope.served != served;
                    scope.answered = Some(now);
                    scope.served = served;
                    changed
                });
            }
            What::Pods => {
                let pods = items.into_iter().filter_map(|live| {
                    let name = live.metadata.name.clone()?;
                    Some((name, Arc::new(project::pod(live.try_parse().ok()?))))
                });
                let pods = pods.take(256).collect();
                view.0.send_if_modified(|seen| {
                    let changed = seen.pods != pods;
                    seen.pods = pods;
                    seen.pods_at = Some(now);
                    changed
                });
            }
        }
    }

    fn id(&self, kind: Kind, live: &DynamicObject) -> Option<ObjectId> {
        let namespace = live.metadata.namespace.as_deref().unwrap_or_default();
        let id = ObjectId::new(kind, namespace, live.metadata.name.as_deref()?);
        self.wanted.contains(&id).then_some(id)
    }

    /// Returns where to resume.
    fn changed(&self, view: &View, live: DynamicObject, floor: u64) -> Option<String> {
        let version = live.metadata.resource_version.clone()?;
        if version.parse::<u64>().is_ok_and(|v| v <= floor) {
            return Some(version);
        }
        match self.what {
            What::Objects(kind) => {
                if let Some(id) = self.id(kind, &live) {
                    view.put(&id, Some(project::object(kind, live)));
                }
            }
            What::Pods => {
                let name = live.metadata.name.clone()?;
                let pod = Arc::new(project::pod(live.try_parse().ok()?));
                view.0.send_if_modified(|seen| {
                    let before = seen.pods.insert(name, Arc::clone(&pod));
                    before != Some(pod)
                });
            }
        }
        Some(version)
    }

    fn deleted(&self, view: &View, live: DynamicObject, floor: u64) -> Option<String> {
        let version = live.metadata.resource_version.clone()?;
        if version.parse::<u64>().is_ok_and(|v| v <= floor) {
            return Some(version);
        }
        match self.what {
            What::Objects(kind) => {
                let uid = live.metadata.uid.clone();
                if let Some(id) = self.id(kind, &live) {
                    view.0.send_if_modified(|seen| {
                        let same = seen
                            .objects
                            .get(&id)
                            .is_some_and(|o| Some(&o.uid) == uid.as_ref());
                        same && seen.objects.remove(&id).is_some()
                    });
                }
            }
            What::Pods => {
                let name = live.metadata.name?;
                view.0
                    .send_if_modified(|seen| seen.pods.remove(&name).is_some());
            }
        }
        Some(version)
    }
}

/// How far one scope has come.
struct Place {
    relist_at: Instant,
    /// Events up to this resourceVersion are older than the last list.
    floor: u64,
    /// Where the next watch goes on.
    resume: String,
    events: Option<BoxStream<'static, kube::Result<WatchEvent<DynamicObject>>>>,
    failures: u32,
}

impl Place {
    fn at(&mut self, version: Option<String>) {
        if let Some(version) = version {
            self.resume = version;
        }
    }
}

enum Listed {
    At(String),
    /// The API server does not know the kind, or does not let us see it.
    Unserved,
    Failed,
}

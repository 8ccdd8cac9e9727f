//! Keeps the bindings in the namespaces that the owner's `ConfigMap` `linesman-scope` names. The list, the namespaces and
//! the bindings are watched: one that appears is covered at once, one that leaves the list is left at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::Result;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream, SelectAll};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use kube::api::{Api, DeleteParams, PartialObjectMeta, Patch, PatchParams};
use kube::runtime::watcher::{Config, Error, Event};
use kube::runtime::{WatchStreamExt as _, watcher};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::engine::MANAGER;
use super::enroll;
use super::gate::Covered;
use super::lease::Term;
use super::plan::coverage::{self, Bound, Plan, Seen, Step};
use crate::lifetime::hearts::Heart;
use crate::manifests::scope::{BINDINGS, SCOPE, Scope, binding};
use crate::manifests::{EngineNamespaces, NAMESPACE};
use crate::wire::api::AccessLevel;
use crate::wire::report::{ConditionType, Status};

/// Events that come together become one look.
const TOGETHER: Duration = Duration::from_millis(100);
/// A look without an event, as a net below the watches.
const EVERY: Duration = Duration::from_mins(1);
/// After something failed.
const AGAIN: Duration = Duration::from_secs(5);
const CALL: Duration = Duration::from_secs(10);
/// How long a watch may fail before that is told.
const PATIENCE: Duration = Duration::from_secs(20);
/// Of a condition's message, so that what to do still fits.
const LONGEST: usize = 800;
const READOPT: &str = "apply the adoption YAML again: 'linesman cluster readopt'";

/// What the keeper of the bindings needs.
pub(super) struct Covering {
    pub(super) context: enroll::Context,
    pub(super) heart: Heart,
    pub(super) term: Term,
    /// Out: where requests of the line may lie.
    pub(super) covered: watch::Sender<Covered>,
}

/// What one of the watches says.
enum News {
    Map(Event<ConfigMap>),
    Namespace(Event<PartialObjectMeta<Namespace>>),
    Binding(usize, Event<RoleBinding>),
}

/// The objects of one watch.
struct Mirror<K, V> {
    now: BTreeMap<K, V>,
    /// Those of a list that is not over.
    next: BTreeMap<K, V>,
    whole: bool,
}

impl<K, V> Default for Mirror<K, V> {
    fn default() -> Self {
        Self {
            now: BTreeMap::new(),
            next: BTreeMap::new(),
            whole: false,
        }
    }
}

impl<K: Ord, V> Mirror<K, V> {
    /// `of` says what is kept of an object; none = it counts as gone.
    fn take<O>(&mut self, event: Event<O>, of: impl Fn(O) -> (K, Option<V>)) {
        match event {
            Event::Init => self.next.clear(),
            Event::InitApply(object) => put(&mut self.next, of(object)),
            Event::InitDone => {
                self.now = std::mem::take(&mut self.next);
                self.whole = true;
            }
            Event::Apply(object) => put(&mut self.now, of(object)),
            Event::Delete(object) => put(&mut self.now, (of(object).0, None)),
        }
    }
}

fn put<K: Ord, V>(all: &mut BTreeMap<K, V>, (key, value): (K, Option<V>)) {
    match value {
        Some(value) => drop(all.insert(key, value)),
        None => drop(all.remove(&key)),
    }
}

/// All that is known.
#[derive(Default)]
struct Known {
    map: Mirror<(), BTreeMap<String, String>>,
    namespaces: Mirror<String, ()>,
    bindings: [Mirror<String, Bound>; BINDINGS.len()],
    engines: EngineNamespaces,
    /// The last that could be read.
    scope: Option<Scope>,
    /// What is wrong with the map.
    wrong: Option<String>,
    /// The last failure of a watch.
    failed: Option<String>,
    /// No binding for the whole cluster is left of an earlier adoption.
    swept: bool,
    told: Option<(Status, &'static str, String)>,
}

impl Covering {
    /// Watches and mends until stopped.
    pub(super) async fn run(self, stop: CancellationToken) -> Result<()> {
        let mut events = self.events();
        let mut known = Known {
            engines: self.context.engines.clone(),
            ..Known::default()
        };
        let mut due = Instant::now() + PATIENCE;
        loop {
            self.heart.beat();
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                event = events.next() => {
                    let Some(event) = event else { return Ok(()) };
                    if known.take(event) {
                        self.publish(&known);
                    }
                    if known.is_whole() {
                        due = due.min(Instant::now() + TOGETHER);
                    }
                }
                () = sleep_until(due) => {
                    let look = Box::pin(self.look(&mut known));
                    let Some(well) = stop.run_until_cancelled(look).await else {
                        return Ok(());
                    };
                    due = Instant::now() + if well { EVERY } else { AGAIN };
                }
            }
        }
    }

    fn events(&self) -> SelectAll<BoxStream<'static, Result<News, Error>>> {
        let kube = &self.context.kube;
        let named = |name: &str| Config::default().fields(&format!("metadata.name={name}"));
        let maps: Api<ConfigMap> = Api::namespaced(kube.clone(), &self.context.namespace);
        let maps = watcher(maps, named(SCOPE)).default_backoff();
        let namespaces = Api::<PartialObjectMeta<Namespace>>::all(kube.clone());
        let namespaces = watcher(namespaces, Config::default()).default_backoff();
        let mut all = vec![
            maps.map(|e| e.map(News::Map)).boxed(),
            namespaces.map(|e| e.map(News::Namespace)).boxed(),
        ];
        for (at, name) in BINDINGS.into_iter().enumerate() {
            // By their names: other bindings are none of the agent's business, nor within its rights.
            let bindings = Api::<RoleBinding>::all(kube.clone());
            let bindings = watcher(bindings, named(name)).default_backoff();
            all.push(
                bindings
                    .map(move |e| e.map(|e| News::Binding(at, e)))
                    .boxed(),
            );
        }
        stream::select_all(all)
    }

    /// The gate holds to the list from now on.
    fn publish(&self, known: &Known) {
        let names = known.scope.as_ref().map(|scope| scope.namespaces.clone());
        let now = Covered::Namespaces(names.unwrap_or_default());
        self.covered.send_if_modified(|covered| {
            let changed = *covered != now;
            *covered = now;
            changed
        });
    }

    /// Puts right what is wrong; says whether all went well.
    async fn look(&self, known: &mut Known) -> bool {
        if !known.is_whole() {
            let why = known
                .failed
                .clone()
                .unwrap_or_else(|| "no answer".to_owned());
            let text = format!("namespaces or bindings cannot be watched: {why}; {READOPT}");
            self.tell(known, (Status::True, "NotWatched", text)).await;
            return false;
        }
        let mut failures = Vec::new();
        if !known.swept {
            match self.sweep().await {
                Ok(()) => known.swept = true,
                Err(why) => failures.push(why),
            }
        }
        let plan = known.plan();
        for step in &plan.steps {
            self.heart.beat();
            if !self.term.holds() {
                return false;
            }
            match self.carry_out(step).await {
                Ok(()) => info!(?step, "coverage"),
                Err(why) => {
                    warn!(?step, why, "coverage");
                    failures.push(why);
                }
            }
        }
        let verdict = verdict(known, &plan, &failures);
        self.tell(known, verdict).await;
        failures.is_empty()
    }

    async fn tell(&self, known: &mut Known, verdict: (Status, &'static str, String)) {
        if known.told.as_ref() == Some(&verdict) {
            return;
        }
        let (status, reason, text) = &verdict;
        self.context
            .condition(ConditionType::Uncovered, *status, reason, text)
            .await;
        known.told = Some(verdict);
    }

    async fn carry_out(&self, step: &Step) -> Result<(), String> {
        let api =
            |namespace: &str| Api::<RoleBinding>::namespaced(self.context.kube.clone(), namespace);
        let (done, what) = match step {
            Step::Apply(namespace, name) => {
                let params = PatchParams::apply(MANAGER).force();
                let patch = Patch::Apply(binding(name, namespace));
                let call = timeout(CALL, api(namespace).patch(name, &params, &patch)).await;
                let what = format!("make RoleBinding {namespace}/{name}");
                (call.map(|done| done.map(drop)), what)
            }
            Step::Delete(namespace, name) => {
                let params = DeleteParams::default();
                let call = timeout(CALL, api(namespace).delete(name, &params)).await;
                let what = format!("delete RoleBinding {namespace}/{name}");
                (call.map(|done| done.map(drop)), what)
            }
        };
        settled(done, &what)
    }

    /// Takes away what an adoption of the whole cluster left.
    async fn sweep(&self) -> Result<(), String> {
        let api = Api::<ClusterRoleBinding>::all(self.context.kube.clone());
        for name in BINDINGS {
            self.heart.beat();
            let what = format!("delete ClusterRoleBinding {name}");
            let found = match timeout(CALL, api.get_metadata_opt(name)).await {
                Ok(Ok(found)) => found,
                Ok(Err(error)) => return settled(Ok(Err(error)), &what),
                Err(late) => return settled(Err(late), &what),
            };
            if !found.is_some_and(|binding| coverage::ours(&binding.metadata)) {
                continue;
            }
            if !self.term.holds() {
                return Err("this replica no longer leads".to_owned());
            }
            let call = timeout(CALL, api.delete(name, &DeleteParams::default())).await;
            settled(call.map(|done| done.map(drop)), &what)?;
            info!(name, "binding for the whole cluster taken away");
        }
        Ok(())
    }
}

/// What is gone already is as it should be: a namespace may end meanwhile.
fn settled(
    done: Result<kube::Result<()>, tokio::time::error::Elapsed>,
    what: &str,
) -> Result<(), String> {
    match done {
        Ok(Ok(())) => Ok(()),
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => Ok(()),
        Ok(Err(error)) => Err(format!("{what}: {error}")),
        Err(_) => Err(format!("{what}: no answer")),
    }
}

impl Known {
    /// Whether the list may have changed.
    fn take(&mut self, event: Result<News, Error>) -> bool {
        match event {
            Ok(News::Map(event)) => {
                self.map.take(event, |map| {
                    ((), map.data.or_else(|| Some(BTreeMap::new())))
                });
                if self.map.whole {
                    self.read();
                }
                return self.map.whole;
            }
            Ok(News::Namespace(event)) => self.namespaces.take(event, |namespace| {
                let metadata = namespace.metadata;
                let stays = metadata.deletion_timestamp.is_none();
                (metadata.name.unwrap_or_default(), stays.then_some(()))
            }),
            Ok(News::Binding(at, event)) => {
                if let Some(mirror) = self.bindings.get_mut(at) {
                    mirror.take(event, bound);
                }
            }
            Err(error) => {
                debug!(%error, "watch of coverage");
                self.failed = Some(error.to_string());
            }
        }
        false
    }

    /// A list that cannot be read leaves the one before it in force.
    fn read(&mut self) {
        let kept = if self.scope.is_some() {
            "the list before it stays in force"
        } else {
            "no namespace is covered"
        };
        let map = self.map.now.get(&());
        let wrong = match map.map(|data| Scope::parse(data, &self.engines)) {
            Some(Ok(scope)) => {
                if self.scope.as_ref() != Some(&scope) {
                    info!(namespaces = scope.namespaces.len(), "scope in force");
                }
                self.scope = Some(scope);
                None
            }
            Some(Err(error)) => Some(format!("ConfigMap {SCOPE}: {error}; {kept}")),
            None => Some(format!("ConfigMap {SCOPE} is missing; {kept}; {READOPT}")),
        };
        self.wrong = wrong;
    }

    fn is_whole(&self) -> bool {
        self.map.whole && self.namespaces.whole && self.bindings.iter().all(|b| b.whole)
    }

    fn plan(&self) -> Plan {
        let [one, other] = self.engines.all();
        let homes = [NAMESPACE, one, other];
        let none = Scope {
            namespaces: BTreeSet::new(),
            strict: true,
            access: AccessLevel::Off,
        };
        let scope = self.scope.as_ref().unwrap_or(&none);
        let mut plan = coverage::plan(scope, &homes, &self.seen());
        if self.wrong.is_some() {
            // A list that is missing or wrong takes nothing away, and the engine is kept all the same.
            let own = |step: &Step| matches!(step, Step::Apply(at, _) if homes.contains(&&**at));
            plan.steps.retain(own);
        }
        plan
    }

    fn seen(&self) -> Seen {
        let of = BINDINGS.iter().zip(&self.bindings);
        let bindings = of.flat_map(|(name, mirror)| {
            let all = mirror.now.iter();
            all.map(|(namespace, bound)| ((namespace.clone(), (*name).to_owned()), bound.clone()))
        });
        Seen {
            namespaces: self.namespaces.now.keys().cloned().collect::<BTreeSet<_>>(),
            bindings: bindings.collect(),
        }
    }
}

fn bound(binding: RoleBinding) -> (String, Option<Bound>) {
    let RoleBinding {
        metadata,
        role_ref,
        subjects,
    } = binding;
    let bound = Bound {
        ours: coverage::ours(&metadata),
        role: json!(role_ref),
        subjects: json!(subjects),
    };
    let namespace = metadata.namespace.unwrap_or_default();
    // What goes is made again when it is gone.
    let stays = metadata.deletion_timestamp.is_none();
    (namespace, stays.then_some(bound))
}

/// The condition `Uncovered`, the worst first.
fn verdict(known: &Known, plan: &Plan, failures: &[String]) -> (Status, &'static str, String) {
    let short = |text: String| text.chars().take(LONGEST).collect::<String>();
    if let Some(wrong) = &known.wrong {
        return (Status::True, "NoScope", wrong.clone());
    }
    if let Some(first) = failures.first() {
        let text = format!("{}; {READOPT}", short(first.clone()));
        return (Status::True, "Refused", text);
    }
    if let Some((namespace, name)) = plan.foreign.first() {
        let text = format!(
            "RoleBinding {namespace}/{name} is somebody else's; delete it, or take {namespace} off the list in ConfigMap {SCOPE}"
        );
        return (Status::True, "Foreign", text);
    }
    let named = |names: &[String]| match names {
        [one] => format!("namespace {one}"),
        all => format!("namespaces {}", all.join(", ")),
    };
    if !plan.missing.is_empty() {
        let text = format!(
            "not there yet, and covered as soon as created: {} of ConfigMap {SCOPE}",
            short(named(&plan.missing))
        );
        return (Status::True, "NamespaceMissing", text);
    }
    let covered = known.scope.iter().flat_map(|scope| &scope.namespaces);
    let covered: Vec<String> = covered.cloned().collect();
    (Status::False, "Covered", short(named(&covered)))
}

#[cfg(test)]
mod tests;

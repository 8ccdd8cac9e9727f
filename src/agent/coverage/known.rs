//! What the watches have told, what it comes to, and what people are told of it.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::PartialObjectMeta;
use kube::runtime::watcher::{Error, Event};
use serde_json::json;
use tracing::{debug, info};

use super::READOPT;
use crate::agent::plan::coverage::{self, Bound, Plan, Seen, Step};
use crate::manifests::scope::{BINDINGS, SCOPE, Scope};
use crate::manifests::{EngineNamespaces, NAMESPACE};
use crate::wire::api::AccessLevel;
use crate::wire::report::Status;

/// Of a condition's message, so that what to do still fits.
const LONGEST: usize = 800;

/// What one of the watches says.
pub(super) enum News {
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
pub(super) struct Known {
    map: Mirror<(), BTreeMap<String, String>>,
    namespaces: Mirror<String, ()>,
    bindings: [Mirror<String, Bound>; BINDINGS.len()],
    engines: EngineNamespaces,
    /// The last that could be read.
    pub(super) scope: Option<Scope>,
    /// What is wrong with the map.
    wrong: Option<String>,
    /// The last failure of a watch.
    pub(super) failed: Option<String>,
    /// No binding for the whole cluster is left of an earlier adoption.
    pub(super) swept: bool,
    pub(super) told: Option<(Status, &'static str, String)>,
}

impl Known {
    pub(super) fn new(engines: EngineNamespaces) -> Self {
        Self {
            engines,
            ..Self::default()
        }
    }

    /// Whether the list may have changed.
    pub(super) fn take(&mut self, event: Result<News, Error>) -> bool {
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

    pub(super) fn is_whole(&self) -> bool {
        self.map.whole && self.namespaces.whole && self.bindings.iter().all(|b| b.whole)
    }

    pub(super) fn plan(&self) -> Plan {
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
pub(super) fn verdict(
    known: &Known,
    plan: &Plan,
    failures: &[String],
) -> (Status, &'static str, String) {
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

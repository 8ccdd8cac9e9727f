//! The answer to one list, in the form in which it is kept.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::api::DynamicObject;
use tracing::warn;

use super::scope::What;
use super::{View, insert};
use crate::agent::plan::burst::{self, Fate};
use crate::agent::plan::busy::{self, Turn};
use crate::agent::plan::state::{Answer, Child, Lease};
use crate::agent::plan::witness::Witness;
use crate::agent::plan::{Object, Observed, Pod, project};
use crate::bundle::{Kind, ObjectId};
use crate::clock;

const MAX_PODS: usize = 256;
const MAX_LEASES: usize = 32;
const MAX_ELSEWHERE: usize = 8;
const MAX_POLICIES: usize = 64;
const MAX_WITNESSES: usize = 1024;
/// Sync objects that are known; the catalog may hold more, and then the rest is not judged.
const MAX_CHILDREN: usize = 4096;
/// How long one that went is remembered, and how many of them: all that are known may go at once.
const LOST: time::Duration = time::Duration::minutes(2);
const MAX_LOST: usize = MAX_CHILDREN;

pub(super) enum Found {
    /// Those of the install, and the names of others of which these are known.
    Objects(Kind, Vec<(ObjectId, Object)>, BTreeSet<String>),
    Children(Kind, BTreeMap<ObjectId, Heard>),
    Witnesses(Kind, BTreeMap<ObjectId, Witness>),
    Pods(BTreeMap<String, Arc<Pod>>),
    Leases(BTreeMap<String, Lease>),
    Elsewhere(BTreeSet<String>),
}

/// What one sync object says.
pub(super) struct Heard {
    /// None = it is at work, and what it said last stands.
    child: Option<Child>,
    fate: Fate,
    turn: Option<Turn>,
    fetch: Option<time::Duration>,
}

impl Heard {
    /// `home` is the engine's namespace.
    pub(super) fn of(home: &str, kind: Kind, live: &DynamicObject) -> Self {
        Self {
            child: project::child(kind, live),
            fate: Fate::of(home, kind, live),
            turn: Turn::of(kind, live),
            fetch: busy::fetch(kind, live),
        }
    }
}

impl Found {
    pub(super) fn nothing(what: What) -> Self {
        match what {
            What::Objects(kind) => Self::Objects(kind, Vec::new(), BTreeSet::new()),
            What::Children(kind) => Self::Children(kind, BTreeMap::new()),
            What::Witnesses(kind) => Self::Witnesses(kind, BTreeMap::new()),
            What::Pods => Self::Pods(BTreeMap::new()),
            What::Leases => Self::Leases(BTreeMap::new()),
            What::Elsewhere => Self::Elsewhere(BTreeSet::new()),
        }
    }

    /// Adds one listed object, if `id` knows it.
    pub(super) fn add(
        &mut self,
        live: DynamicObject,
        home: &str,
        id: impl Fn(Kind, &DynamicObject) -> Option<ObjectId>,
    ) {
        match self {
            Self::Objects(kind, objects, others) => {
                if let Some(id) = id(*kind, &live) {
                    objects.push((id, project::object(*kind, live)));
                } else if *kind == Kind::NetworkPolicy && others.len() < MAX_POLICIES {
                    others.extend(live.metadata.name);
                }
            }
            Self::Children(kind, children) => {
                if children.len() < MAX_CHILDREN
                    && let Some(id) = id(*kind, &live)
                {
                    children.insert(id, Heard::of(home, *kind, &live));
                }
            }
            Self::Witnesses(kind, all) => {
                if all.len() < MAX_WITNESSES
                    && let Some(id) = id(*kind, &live)
                {
                    all.insert(id, Witness::of(*kind, &live));
                }
            }
            Self::Pods(pods) => {
                if pods.len() < MAX_PODS
                    && let Some(name) = live.metadata.name.clone()
                    && let Ok(pod) = live.try_parse()
                {
                    pods.insert(name, Arc::new(project::pod(pod)));
                }
            }
            Self::Leases(leases) => {
                if leases.len() < MAX_LEASES
                    && let Some((controller, lease)) = project::lease(&live, clock::now())
                {
                    leases.insert(controller, lease);
                }
            }
            Self::Elsewhere(namespaces) => {
                if namespaces.len() < MAX_ELSEWHERE
                    && let Some(namespace) = live.metadata.namespace
                {
                    namespaces.insert(namespace);
                }
            }
        }
    }

    pub(super) fn has(&self, id: &ObjectId) -> bool {
        match self {
            Self::Objects(_, objects, _) => objects.iter().any(|(known, _)| known == id),
            Self::Children(_, children) => children.contains_key(id),
            Self::Witnesses(_, all) => all.contains_key(id),
            Self::Pods(_) | Self::Leases(_) | Self::Elsewhere(_) => false,
        }
    }

    /// The agent may not list this: what was known stays, and gets older.
    pub(super) fn refused(what: What, view: &View) {
        let What::Objects(kind) = what else { return };
        view.0.send_if_modified(|seen| {
            let scope = seen.scopes.entry(kind).or_default();
            let before = std::mem::replace(&mut scope.answer, Answer::Refused);
            before != Answer::Refused
        });
    }

    /// Takes the place of all that was known of the kind.
    pub(super) fn put(self, view: &View, answer: Answer) {
        let now = clock::now();
        view.0.send_if_modified(|seen| match self {
            Self::Objects(kind, listed, others) => {
                let known = seen.objects.len();
                seen.objects
                    .retain(|id, _| id.kind != kind || listed.iter().any(|(i, _)| i == id));
                let mut changed = known != seen.objects.len();
                for (id, live) in listed {
                    changed |= insert(seen, &id, live);
                }
                let scope = seen.scopes.entry(kind).or_default();
                changed |= scope.answered.is_none() || scope.answer != answer;
                scope.answered = Some(now);
                scope.answer = answer;
                if kind == Kind::NetworkPolicy && seen.policies != others {
                    seen.policies = others;
                    changed = true;
                }
                changed
            }
            Self::Children(kind, listed) => {
                let of_kind = seen.children.keys().filter(|id| id.kind == kind);
                let over: Vec<ObjectId> = of_kind
                    .filter(|id| !listed.contains_key(*id))
                    .cloned()
                    .collect();
                let mut changed = seen.awaited.remove(&kind);
                for id in over {
                    changed |= gone(seen, &id);
                }
                for (id, said) in listed {
                    changed |= heard(seen, id, said);
                }
                changed
            }
            Self::Witnesses(kind, listed) => {
                let before = seen.witnesses.clone();
                seen.witnesses.retain(|id, _| id.kind != kind);
                seen.witnesses.extend(listed);
                before != seen.witnesses
            }
            Self::Pods(pods) => {
                let changed = seen.pods != pods;
                seen.pods = pods;
                seen.pods_at = Some(now);
                changed
            }
            // Renewed all the time: the next look is soon enough.
            Self::Leases(leases) => {
                seen.leases = leases;
                false
            }
            Self::Elsewhere(namespaces) => {
                let changed = seen.elsewhere != namespaces;
                seen.elsewhere = namespaces;
                changed
            }
        });
    }
}

/// What a watch tells of an object that a controller may be asked with; none = it is gone.
pub(super) fn witness(view: &View, id: ObjectId, said: Option<Witness>) {
    view.0.send_if_modified(|seen| {
        let all = &mut seen.witnesses;
        let Some(said) = said else {
            return all.remove(&id).is_some();
        };
        if all.get(&id) == Some(&said) || all.len() >= MAX_WITNESSES && !all.contains_key(&id) {
            return false;
        }
        // What it does by itself is no reason for another plan.
        let news = all.get(&id).is_none_or(|known| known.asks_otherwise(&said));
        all.insert(id, said);
        news
    });
}

/// A NetworkPolicy of somebody else's came or went: it may be what keeps the engine from the Git host.
pub(super) fn policy(view: &View, name: &str, there: bool) {
    view.0.send_if_modified(|seen| {
        let all = &mut seen.policies;
        if there {
            all.len() < MAX_POLICIES && all.insert(name.to_owned())
        } else {
            all.remove(name)
        }
    });
}

/// What a list said is as of this resourceVersion.
pub(super) fn listed(view: &View, kind: Kind, version: u64) {
    view.0.send_if_modified(|seen| {
        seen.listed.insert(kind, version);
        false
    });
}

/// The API server says that all there was was told: what is known is as good as a new list, if the last one was answered.
pub(super) fn confirmed(what: What, view: &View) {
    let now = clock::now();
    view.0.send_if_modified(|seen| {
        match what {
            What::Objects(kind) => {
                if let Some(scope) = seen.scopes.get_mut(&kind)
                    && scope.answer == Answer::Whole
                    && scope.answered.is_some()
                {
                    scope.answered = Some(now);
                }
            }
            What::Pods => seen.pods_at = seen.pods_at.and(Some(now)),
            What::Children(_) | What::Witnesses(_) | What::Leases | What::Elsewhere => {}
        }
        // Nothing is planned anew for it.
        false
    });
}

/// Takes in what a sync object says. Whether that changed anything.
pub(super) fn heard(seen: &mut Observed, id: ObjectId, said: Heard) -> bool {
    let is_of_use =
        said.fetch.is_some() || said.child.as_ref().is_some_and(|c| c.suspect.is_some());
    if id.kind.is_source() && !is_of_use {
        return gone(seen, &id);
    }
    burst::note(seen, &id, Some(&said.fate), clock::now());
    let known = seen.children.get(&id);
    if known.is_none() && seen.children.len() >= MAX_CHILDREN {
        return false;
    }
    // At work again, it can be read again.
    let before = || Child {
        suspect: None,
        ..known.cloned().unwrap_or_default()
    };
    let mut child = said.child.unwrap_or_else(before);
    (child.fate, child.turn, child.fetch) = (said.fate, said.turn, said.fetch);
    if known == Some(&child) {
        return false;
    }
    // Each has its turn now and then, and the next look is soon enough for that.
    let (turn, fetch) = (child.turn, child.fetch);
    let changed = known.is_none_or(|known| {
        Child {
            turn,
            fetch,
            ..known.clone()
        } != child
    });
    Arc::make_mut(&mut seen.children).insert(id, child);
    changed
}

/// One that nobody would make again is remembered for a while: its CRD may be going with it.
pub(super) fn gone(seen: &mut Observed, id: &ObjectId) -> bool {
    if !seen.children.contains_key(id) {
        return false;
    }
    burst::note(seen, id, None, clock::now());
    let child = Arc::make_mut(&mut seen.children).remove(id);
    if let Some(keepsake) = child.and_then(|c| c.keepsake) {
        let now = clock::now();
        let lost = Arc::make_mut(&mut seen.lost);
        lost.retain(|_, (at, _)| (now - *at).abs() < LOST);
        if lost.len() < MAX_LOST || lost.contains_key(id) {
            lost.insert(id.clone(), (now, keepsake));
        } else {
            warn!(object = %id, "gone, and not remembered: if its CRD goes with it, it is not brought back");
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::plan::{self, children};
    use crate::wire::api::EngineKind;

    /// W21: the list of the root says nothing of the Applications below it.
    #[test]
    fn sync_objects_are_awaited_until_their_own_list_is_whole() {
        let all = [Kind::Application, Kind::ApplicationSet, Kind::AppProject];
        let view = View::new(&plan::tests::install_of(EngineKind::Argocd));
        let awaited = || view.subscribe().borrow().awaited.clone();
        assert_eq!(awaited(), all.into());
        assert!(view.subscribe().borrow().since.is_some());
        Found::nothing(What::Objects(Kind::Application)).put(&view, Answer::Whole);
        assert_eq!(awaited(), all.into());
        let mut seen = view.subscribe();
        seen.mark_unchanged();
        Found::nothing(What::Children(Kind::Application)).put(&view, Answer::Whole);
        assert_eq!(awaited(), all[1..].iter().copied().collect());
        assert!(seen.has_changed().unwrap(), "it is planned anew at once");
    }

    /// W11: where a CRD takes all sync objects along that are known, each is remembered, for it may have to be brought back.
    #[test]
    fn as_many_are_remembered_as_are_known() {
        let mut seen = Observed::default();
        let named = |n: usize| ObjectId::new(Kind::Application, "argocd", &format!("app-{n}"));
        for n in 0..=MAX_CHILDREN {
            let live = serde_json::from_value(serde_json::json!({
                "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
                "metadata": {"name": format!("app-{n}"), "namespace": "argocd"}, "spec": {"n": n},
            }));
            let said = Heard::of("argocd", Kind::Application, &live.unwrap());
            heard(&mut seen, named(n), said);
        }
        for n in 0..MAX_CHILDREN {
            assert!(gone(&mut seen, &named(n)), "{n}");
        }
        assert_eq!(seen.lost.len(), MAX_CHILDREN);
        assert!(seen.children.is_empty());
    }

    /// W12: a source is known for as long as others may have to wait for it, and is none of what is counted.
    #[test]
    fn a_source_is_kept_while_its_fetch_takes_time() {
        let id = ObjectId::new(Kind::GitRepository, "apps", "shop");
        let mut seen = Observed::default();
        for (ready, expected) in [("Unknown", Some(60)), ("True", None), ("Unknown", Some(60))] {
            let live = serde_json::from_value(serde_json::json!({
                "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
                "metadata": {"name": "shop", "namespace": "apps"}, "spec": {},
                "status": {"conditions": [{"type": "Ready", "status": ready, "message": ""}]},
            }));
            let said = Heard::of("flux-system", Kind::GitRepository, &live.unwrap());
            assert!(heard(&mut seen, id.clone(), said), "{ready}");
            let kept = seen.children.get(&id).map(|child| child.fetch);
            let expected = expected.map(|long| Some(time::Duration::seconds(long)));
            assert_eq!(kept, expected, "{ready}");
            assert_eq!(children::count(&seen), (0, 0));
        }
        assert!(seen.deletions.is_empty(), "it was never deleted");
    }
}

//! The answer to one list, in the form in which it is kept.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::api::DynamicObject;
use time::OffsetDateTime;
use tracing::warn;

use super::scope::What;
use super::{View, insert};
use crate::agent::plan::state::{Answer, Lease};
use crate::agent::plan::witness::{Crowd, Witness};
use crate::agent::plan::{Object, Observed, Pod, project};
use crate::bundle::{Kind, ObjectId};
use crate::clock;

mod children;
mod newer;

use children::Listed;
pub(super) use children::{Heard, gone, heard, heard_root};
pub(super) use newer::Newer;

const MAX_PODS: usize = 256;
/// Those of shards are among them.
const MAX_LEASES: usize = 256;
const MAX_ELSEWHERE: usize = 8;
const MAX_POLICIES: usize = 64;
const MAX_WITNESSES: usize = 1024;
pub(super) enum Found {
    /// Those of the install, and the names of others of which these are known.
    Objects(Kind, Vec<(ObjectId, Object)>, BTreeSet<String>),
    Children(Kind, Listed),
    /// And those that are over the bound, if there are any.
    Witnesses(Kind, BTreeMap<ObjectId, Witness>, Option<Crowd>),
    /// And whether there are more.
    Pods(BTreeMap<String, Arc<Pod>>, bool),
    Leases(BTreeMap<String, Lease>),
    Elsewhere(BTreeSet<String>),
}

impl Found {
    pub(super) fn nothing(what: What) -> Self {
        match what {
            What::Objects(kind) => Self::Objects(kind, Vec::new(), BTreeSet::new()),
            What::Children(kind) => Self::Children(kind, Listed::default()),
            What::Witnesses(kind) => Self::Witnesses(kind, BTreeMap::new(), None),
            What::Pods => Self::Pods(BTreeMap::new(), false),
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
            Self::Children(kind, children) => match id(*kind, &live) {
                Some(id) => children.add(id, Heard::of(home, *kind, &live)),
                None => children.add_root(home, *kind, &live),
            },
            Self::Witnesses(kind, all, crowd) => {
                if let Some(id) = id(*kind, &live) {
                    let out = admit_witness(all, id, Witness::of(*kind, &live));
                    *crowd = out
                        .map(|out| crowd.unwrap_or_default().with(&out))
                        .or(*crowd);
                }
            }
            Self::Pods(pods, cut) => {
                if let Some(name) = live.metadata.name.clone() {
                    *cut |= !admit_pod(pods, name, Arc::new(project::pod(live)));
                }
            }
            Self::Leases(leases) => {
                if leases.len() < MAX_LEASES
                    && let Some((name, lease)) = project::lease(&live, clock::now())
                {
                    leases.insert(name, lease);
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
            Self::Children(_, children) => children.has(id),
            Self::Witnesses(_, all, _) => all.contains_key(id),
            Self::Pods(..) | Self::Leases(_) | Self::Elsewhere(_) => false,
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

    /// Whether an object of a list as of this resourceVersion is older than it was known to be by then: the API server's store was put
    /// back from a backup since, be it with numbers that were set ahead for that (`etcdutl snapshot restore --bump-revision`).
    pub(super) fn belies(&self, seen: &Observed, at: u64) -> bool {
        let Self::Objects(_, listed, _) = self else {
            return false;
        };
        listed.iter().any(|(id, live)| {
            let there = seen.objects.get(id).filter(|there| there.uid == live.uid);
            there.is_some_and(|there| live.version < there.version && there.version <= at)
        })
    }

    /// Takes over what a watch told of since the moment that the list is of.
    fn yield_to(&mut self, seen: &Observed, newer: &Newer) {
        match self {
            Self::Objects(kind, listed, others) => {
                // One of them was looked up by its name after that.
                listed.retain(|(id, live)| newer.at(id).is_none_or(|at| at <= live.version));
                let told = seen.objects.iter().filter(|(id, _)| id.kind == *kind);
                for (id, live) in told.filter(|(id, _)| newer.has(id)) {
                    if !listed.iter().any(|(known, _)| known == id) {
                        listed.push((id.clone(), live.as_ref().clone()));
                    }
                }
                for (name, _) in newer.names() {
                    others.remove(name);
                    others.extend(seen.policies.get(name).cloned());
                }
            }
            Self::Witnesses(kind, listed, _) => {
                listed.retain(|id, _| !newer.has(id) || newer.lives(id));
                let told = seen.witnesses.iter().filter(|(id, _)| id.kind == *kind);
                let told = told.filter(|(id, _)| newer.has(id));
                listed.extend(told.map(|(id, said)| (id.clone(), *said)));
            }
            Self::Pods(pods, cut) => {
                for (name, there) in newer.names() {
                    match seen.pods.get(name).filter(|_| there) {
                        Some(pod) => *cut |= !admit_pod(pods, name.to_owned(), Arc::clone(pod)),
                        // The watch had no room for it.
                        None if there => *cut |= !pods.contains_key(name),
                        None => drop(pods.remove(name)),
                    }
                }
            }
            // These do so by themselves; and those are not watched.
            Self::Children(..) | Self::Leases(_) | Self::Elsewhere(_) => {}
        }
    }

    /// Takes the place of all that was known of the kind.
    pub(super) fn put(self, view: &View, answer: Answer) {
        self.put_beside(view, answer, &Newer::default());
    }

    /// The same, but for what a watch told of meanwhile.
    pub(super) fn put_beside(mut self, view: &View, answer: Answer, newer: &Newer) {
        let now = clock::now();
        view.0.send_if_modified(|seen| {
            self.yield_to(seen, newer);
            self.replace(seen, (answer, now), newer)
        });
    }

    /// The same where the store was put back from a backup: what was known of the kind is of a time that never was, however new it
    /// seems.
    pub(super) fn put_anew(self, view: &View) {
        let now = clock::now();
        view.0.send_if_modified(|seen| {
            if let Self::Objects(kind, ..) = &self {
                seen.objects.retain(|id, _| id.kind != *kind);
                seen.buried.retain(|id, _| id.kind != *kind);
            }
            self.replace(seen, (Answer::Whole, now), &Newer::default());
            true
        });
    }

    /// Whether that changed anything that a plan hangs on.
    fn replace(
        self,
        seen: &mut Observed,
        (answer, now): (Answer, OffsetDateTime),
        newer: &Newer,
    ) -> bool {
        match self {
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
            Self::Children(kind, listed) => listed.put(seen, kind, newer),
            Self::Witnesses(kind, listed, crowd) => {
                let before = seen.witnesses.clone();
                seen.witnesses.retain(|id, _| id.kind != kind);
                seen.witnesses.extend(listed);
                seen.crowds.remove(&kind);
                seen.crowds.extend(crowd.map(|crowd| (kind, crowd)));
                before != seen.witnesses
            }
            Self::Pods(pods, cut) => {
                if cut && !seen.pods_cut {
                    warn!(known = MAX_PODS, "there are more Pods than are looked at");
                }
                let changed = seen.pods != pods || seen.pods_cut != cut;
                (seen.pods, seen.pods_cut) = (pods, cut);
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
        }
    }
}

/// What a watch tells of an object that a controller may be asked with; none = it is gone.
pub(super) fn witness(view: &View, id: ObjectId, said: Option<Witness>) {
    view.0.send_if_modified(|seen| {
        let all = &mut seen.witnesses;
        let Some(said) = said else {
            return all.remove(&id).is_some();
        };
        // What it does by itself is no reason for another plan.
        let news = all.get(&id).is_none_or(|known| known.asks_otherwise(&said));
        let kind = id.kind;
        let Some(out) = admit_witness(all, id, said) else {
            return news;
        };
        let crowd = seen.crowds.entry(kind).or_default();
        *crowd = crowd.with(&out);
        out != said
    });
}

/// Takes in an object of which there may be more than are known one by one. The one that is left out: where none may be asked, one of
/// these makes room for one that may.
fn admit_witness(
    all: &mut BTreeMap<ObjectId, Witness>,
    id: ObjectId,
    said: Witness,
) -> Option<Witness> {
    let of_kind = || all.iter().filter(|(known, _)| known.kind == id.kind);
    if all.contains_key(&id) || of_kind().count() < MAX_WITNESSES {
        all.insert(id, said);
        return None;
    }
    let unfit = said.fit && !of_kind().any(|(_, known)| known.fit);
    let Some(first) = of_kind().map(|(id, _)| id.clone()).next().filter(|_| unfit) else {
        return Some(said);
    };
    let out = all.remove(&first);
    all.insert(id, said);
    out
}

/// What a watch tells of a Pod; none = it is gone.
pub(super) fn pod(view: &View, name: &str, pod: Option<Arc<Pod>>) {
    view.0.send_if_modified(|seen| {
        let Some(pod) = pod else {
            return seen.pods.remove(name).is_some();
        };
        let before = seen.pods.get(name).cloned();
        let whole = admit_pod(&mut seen.pods, name.to_owned(), pod);
        let cut = !whole && !std::mem::replace(&mut seen.pods_cut, true);
        cut || before.as_ref() != seen.pods.get(name)
    });
}

/// Takes in a Pod while there is room. One that has failed for good makes room for one that has not: a node under pressure leaves
/// hundreds of those behind (`Evicted`), and they say nothing of the controllers that run. False = one is left out.
fn admit_pod(all: &mut BTreeMap<String, Arc<Pod>>, name: String, pod: Arc<Pod>) -> bool {
    if all.len() < MAX_PODS || all.contains_key(&name) {
        all.insert(name, pod);
        return true;
    }
    let failed = all.iter().find(|(_, known)| known.failed.is_some());
    if let Some(failed) = failed.map(|(name, _)| name.clone())
        && pod.failed.is_none()
    {
        all.remove(&failed);
        all.insert(name, pod);
    }
    false
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

#[cfg(test)]
mod tests;

//! Sync objects that somebody deletes in numbers, and a root that would prune all that it brought: the engine is kept
//! from pruning, as where a CRD dies. See `docs/decisions/0025-deleted-in-numbers.md`.
//!
//! What Git still brings nobody can want pruned for good, so only such objects count, and of them only those that
//! the Kustomization or Application that brought them does not take away itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use time::{Duration, OffsetDateTime};

use super::fault::Class;
use super::find::Finding;
use super::state::{Child, History, Object, Observed};
use super::steps::guarded_down;
use super::window;
use crate::agent::engine::Install;
use crate::agent::engine::guard::ALLOW_DELETE;
use crate::bundle::{Kind, ObjectId};

mod fate;
mod left;
pub mod missed;

pub(super) use fate::ready;
pub use fate::{Fate, MAX_LISTED, is_listed};
use fate::{lists, prunes, taken};

/// So many within [`TOGETHER`] are no single wish.
const MANY: usize = 3;
pub(super) const TOGETHER: Duration = Duration::seconds(10);
/// A commit's deletions may be heard of this long after the Kustomization was done with it.
const LATE: Duration = Duration::seconds(10);
/// How long a deletion is remembered, and that a Kustomization was done.
const KEPT: Duration = Duration::minutes(2);
const MAX_KEPT: usize = 4096;
/// So many are named.
const NAMED: usize = 5;

/// Folds what a watch tells of one sync object; none = it is gone. Before it takes the place of what was known of it.
pub fn note(observed: &mut Observed, id: &ObjectId, fate: Option<&Fate>, now: OffsetDateTime) {
    fold(observed, id, (fate, None), now);
}

/// The same of what a list says, or lacks. `wish`: the one that brought it takes it away ([`missed::wishes`]).
pub fn note_listed(
    observed: &mut Observed,
    id: &ObjectId,
    (fate, wish): (Option<&Fate>, bool),
    now: OffsetDateTime,
) {
    fold(observed, id, (fate, Some(wish)), now);
}

fn fold(
    observed: &mut Observed,
    id: &ObjectId,
    (fate, wish): (Option<&Fate>, Option<bool>),
    now: OffsetDateTime,
) {
    // It is there again, or goes for another reason this time.
    let begins = |known: &Fate| !known.dying;
    let again = fate.is_some_and(|fate| !fate.dying)
        || observed.children.get(id).is_some_and(|c| begins(&c.fate));
    if again && observed.deletions.contains_key(id) {
        Arc::make_mut(&mut observed.deletions).remove(id);
    }
    let Some(known) = observed.children.get(id).map(|child| &child.fate) else {
        return;
    };
    let rests = fate.is_none_or(|fate| !fate.moving);
    // A watch tells of the work itself; what it left behind counts only where there was none.
    let unseen = || fate.is_some_and(|fate| has_moved(id.kind, known, fate));
    if rests && (known.moving || wish.is_some() && unseen()) {
        moved(observed, id, now);
    }
    note_end(observed, id, (fate, wish), now);
}

/// Whether a Kustomization was at work on something new, although nobody saw it at that.
fn has_moved(kind: Kind, before: &Fate, after: &Fate) -> bool {
    kind == Kind::Kustomization && before.done != after.done
}

/// Whether the root was at work on something new, and is done.
pub fn root_moved(kind: Kind, before: &Object, after: &Object) -> bool {
    let [before, after] = [before, after].map(|live| Fate::of_root(kind, live));
    !after.moving && before.moving
}

/// A Kustomization is done with what was new to it.
pub fn moved(observed: &mut Observed, id: &ObjectId, now: OffsetDateTime) {
    observed.moved.retain(|_, at| (now - *at).abs() < KEPT);
    if observed.moved.len() < MAX_KEPT {
        observed.moved.insert(id.clone(), now);
    }
}

fn note_end(
    observed: &mut Observed,
    id: &ObjectId,
    (fate, wish): (Option<&Fate>, Option<bool>),
    now: OffsetDateTime,
) {
    if fate.is_some_and(|fate| !fate.dying) {
        return;
    }
    let Some(owner) = begins(observed, id) else {
        return;
    };
    let began = fate.and_then(|fate| fate.began);
    let wish = wish.unwrap_or_else(|| match owner.kind {
        Kind::Application => gives_up(observed, owner, id),
        _ => takes_away(observed, owner, id, (began, now)),
    });
    if wish {
        return;
    }
    let deletions = Arc::make_mut(&mut observed.deletions);
    deletions.retain(|_, at| (now - *at).abs() < KEPT);
    if deletions.len() < MAX_KEPT {
        deletions.insert(id.clone(), now);
    }
}

/// Who brought an object that begins to go, and whose end would take with it what it brought.
fn begins<'a>(observed: &'a Observed, id: &ObjectId) -> Option<&'a ObjectId> {
    let known = observed.children.get(id).map(|child| &child.fate);
    let known = known.filter(|known| known.pinned && known.prunes && !known.dying);
    known?.owner.as_ref()
}

/// Whether an object that a Kustomization brought goes because of that one: it follows a commit that has it no more, or
/// goes itself. What is heard late, because a watch was cut, is told by when it `began`. What it lists after its work it has not taken.
fn takes_away(
    observed: &Observed,
    owner: &ObjectId,
    id: &ObjectId,
    (began, now): (Option<OffsetDateTime>, OffsetDateTime),
) -> bool {
    let root = observed.objects.get(owner);
    let child = observed.children.get(owner).map(|child| &child.fate);
    let done = observed.moved.get(owner).map(|at| (now - *at).abs());
    let done = done.filter(|ago| {
        let by_child = || child.is_some_and(|child| child.holds(id));
        *ago < KEPT && !root.map_or_else(by_child, |root| lists(root, id))
    });
    if done.is_some_and(|ago| ago < LATE) {
        return true;
    }
    // What is heard at once goes by when it is heard: times of the API server are whole seconds.
    let late = began.is_some_and(|began| now - began > LATE);
    let before = |done_at: Option<OffsetDateTime>| {
        let both = began.zip(done_at);
        let in_time = both.is_some_and(|(began, at)| began <= at + LATE);
        late && done.is_some() && in_time
    };
    if let Some(root) = root {
        let root = Fate::of_root(owner.kind, root);
        return root.moving || before(root.done_at);
    }
    match child {
        Some(owner) => owner.moving || owner.dying || before(owner.done_at),
        // It is gone, unless it is one of those that are not known, or none of its kind is yet.
        None => !observed.cut.contains(&owner.kind) && !observed.awaited.contains(&owner.kind),
    }
}

/// Whether an Application that an Application brought goes because of that one: it says which ones its commit has no
/// more, or goes itself.
fn gives_up(observed: &Observed, owner: &ObjectId, id: &ObjectId) -> bool {
    if let Some(root) = observed.objects.get(owner) {
        return taken(root.fields.get("status")).any(|taken| taken == *id);
    }
    match observed.children.get(owner).map(|owner| &owner.fate) {
        Some(owner) => owner.dying || owner.takes.contains(id),
        None => !observed.cut.contains(&owner.kind),
    }
}

/// The CRDs whose objects are to be let go without a prune.
pub(super) fn found(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    history: &History,
) -> Vec<Finding> {
    let Some(why) = why(install, observed, history) else {
        return Vec::new();
    };
    let namespace = ObjectId::new(Kind::Namespace, "", &install.namespace);
    let allowed = |id: &ObjectId| {
        let live = observed.objects.get(id);
        live.is_some_and(|live| window::until(now, live, ALLOW_DELETE).is_some())
    };
    if allowed(&namespace) {
        return Vec::new();
    }
    let crds = install.traits.pruning_crds.iter();
    let crds = crds.map(|name| ObjectId::new(Kind::CustomResourceDefinition, "", name));
    let crds = crds.filter(|crd| install.wanted.contains_key(crd) && !allowed(crd));
    crds.map(|crd| Finding::new(Class::SyncObjectsDeleted, &crd, why.clone()))
        .collect()
}

/// Whether the engine has to be kept from pruning. What a person has allowed is not kept from anything.
pub fn is_on(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    history: &History,
) -> bool {
    !found(now, install, observed, history).is_empty()
}

fn why(install: &Install, observed: &Observed, history: &History) -> Option<String> {
    if let Some(root) = observed.objects.get(&install.sync)
        && root.deleting.is_some()
        && is_pinned(install, root)
        && (install.sync.kind == Kind::Application || prunes(&root.fields))
    {
        return Some(format!(
            "{} is being deleted, and would prune all that it brought",
            install.sync
        ));
    }
    let dying = |child: &Child| child.fate.dying && child.fate.pinned;
    let mut all = observed.children.iter().filter(|(_, child)| dying(child));
    let first = all.next()?;
    let dying: BTreeMap<&ObjectId, &Child> = std::iter::once(first).chain(all).collect();
    let stopped = install.traits.pruners.iter().any(|(kind, name)| {
        guarded_down(observed, &ObjectId::new(*kind, &install.namespace, name))
    });
    let goes_on = || {
        let all = dying.values().copied();
        left::is_cut(install, observed, history) || left::is_likely(install, observed, history, all)
    };
    let together = burst(observed);
    if !stopped && !together.iter().any(|id| dying.contains_key(id)) && !goes_on() {
        return None;
    }
    let told = if together.is_empty() {
        dying.keys().copied().collect()
    } else {
        together
    };
    let names: Vec<String> = told.iter().take(NAMED).map(ToString::to_string).collect();
    let more = told.len().saturating_sub(NAMED);
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    Some(format!(
        "sync objects that Git still brings are being deleted, and would prune what they brought: {}{more}",
        names.join(", ")
    ))
}

fn is_pinned(install: &Install, live: &Object) -> bool {
    let mut finalizers = live.finalizers.iter();
    finalizers.any(|f| install.traits.is_finalizer(f))
}

/// Those that went together with so many others.
fn burst(observed: &Observed) -> Vec<&ObjectId> {
    let mut all: Vec<(OffsetDateTime, &ObjectId)> = observed
        .deletions
        .iter()
        .map(|(id, at)| (*at, id))
        .collect();
    all.sort();
    let mut within = Vec::new();
    let mut taken = 0;
    for (first, many) in all.windows(MANY).enumerate() {
        let (Some((begin, _)), Some((end, _))) = (many.first(), many.last()) else {
            continue;
        };
        if *end - *begin <= TOGETHER {
            let fresh = first.max(taken)..first + MANY;
            taken = first + MANY;
            within.extend(all.get(fresh).into_iter().flatten().map(|(_, id)| *id));
        }
    }
    within.sort();
    within
}

#[cfg(test)]
mod tests;

//! What the catalog no longer has: the engine prunes it, or has done so.

use std::collections::BTreeMap;

use super::brings;
use super::{Held, Hold, hold, owner, shield};
use crate::agent::engine::compare::drift;
use crate::agent::engine::{Install, Wanted, is_workload};
use crate::agent::plan::health;
use crate::agent::plan::state::{Object, Observed};
use crate::agent::plan::steps::Action;
use crate::bundle::{Kind, ObjectId};
use crate::wire::api::EngineKind;

/// Whether the catalog no longer has an object that it brought: the engine prunes it, or has done so.
pub fn removed(install: &Install, observed: &Observed, id: &ObjectId) -> bool {
    // The Namespace is never left to Git, but Flux would try to prune it.
    let brought = |wanted: &Wanted| wanted.git_owned || id.kind == Kind::Namespace;
    let ours = |wanted: &Wanted| brought(wanted) && id.kind.installable();
    if !install.wanted.get(id).is_some_and(ours) {
        return false;
    }
    match install.traits.kind {
        EngineKind::Argocd => {
            let owner = owner(install, observed, id);
            let said = shield::said(install, observed, &owner);
            let live = observed.objects.get(id);
            // What lost Argo CD's mark since that looked is nothing that it would prune.
            let of = |live: &Object| shield::owner(&install.namespace, &live.fields);
            said.is_some_and(|said| match live {
                Some(live) => said.extra.contains(id) && of(live).is_some(),
                None => said.extra.contains(id) || said.lacks(id),
            })
        }
        EngineKind::Flux => left_inventory(install, observed, id),
    }
}

/// Flux lists what a Kustomization applied; the one that says so has to be the one that applied it.
fn left_inventory(install: &Install, observed: &Observed, id: &ObjectId) -> bool {
    let live = observed.objects.get(id);
    let known = install.wanted.get(id).map(|w| w.expect.as_ref());
    let by = |fields| brings::labelled(install, fields);
    let was = known.and_then(by);
    if was.is_none() && live.and_then(|live| by(&live.fields)).is_none() {
        return false;
    }
    let owner = owner(install, observed, id);
    if brings::takes_all(observed, &owner) {
        return true;
    }
    let Some(said) = brings::said(install, observed, &owner) else {
        // Where it is gone itself, nothing is left that would prune, and what was held for it stays held. What it took with it beside
        // that is looked at when it is gone.
        let kept = |other: &ObjectId| {
            let hold = observed.objects.get(other).and_then(|live| hold(live));
            hold.is_some_and(|hold| hold.removal && hold.lifted.is_none())
        };
        let of_same = |other: &&ObjectId| super::owner(install, observed, other) == owner;
        let with_it = || install.wanted.keys().filter(of_same).any(kept);
        return kept(id)
            || live.is_none() && brings::is_gone(install, observed, &owner) && with_it();
    };
    // What the guard keeps stays listed, and its owner not Ready, for as long as Flux tries.
    if said.is_refused(id) {
        return true;
    }
    // What it has just taken over is listed when it is done with all of its commit. It says that it is Ready in one write, and what
    // it applied and lists in the next.
    let written = live.and_then(|live| live.written);
    let done = !said.is_at_work() && said.is_done_since(written);
    let done = was.as_ref() == Some(&owner) || done;
    done && said.lists(id) == Some(false)
}

/// Whether Flux has begun with a commit of what brings an object and is not done with it, or takes all away that this brought.
pub fn is_under_way(install: &Install, observed: &Observed, id: &ObjectId) -> bool {
    let owner = owner(install, observed, id);
    if owner == install.sync {
        return health::revision(install, observed).is_none();
    }
    let said = brings::said(install, observed, &owner);
    brings::takes_all(observed, &owner) || said.is_some_and(|said| said.is_at_work())
}

/// Whether Flux has begun with a commit and is not done with it, for the root or for what brings the engine below it.
pub fn is_at_work(install: &Install, observed: &Observed) -> bool {
    install.traits.kind == EngineKind::Flux
        && (is_busy(install, observed, &install.sync)
            || brings::below(observed).any(|(by, _)| is_busy(install, observed, by)))
}

fn is_busy(install: &Install, observed: &Observed, by: &ObjectId) -> bool {
    let said = brings::said(install, observed, by);
    brings::takes_all(observed, by) || said.is_some_and(|said| said.is_at_work())
}

/// Whether something is held because the commit that Flux tried last removed it.
pub fn has_removed(
    install: &Install,
    observed: &Observed,
    held: &BTreeMap<ObjectId, Held>,
) -> bool {
    removals(install, observed, held).next().is_some()
}

fn removals<'a>(
    install: &Install,
    observed: &'a Observed,
    held: &'a BTreeMap<ObjectId, Held>,
) -> impl Iterator<Item = (&'a ObjectId, &'a Held)> + use<'a> {
    let of = |held: &Held| brings::said(install, observed, &held.owner);
    let is_of_last = |held: &Held| of(held).is_some_and(|of| of.tried() == held.hold.revision);
    let all = held.iter().filter(|(_, held)| held.hold.removal);
    let all: Vec<_> = all.filter(|(_, held)| is_of_last(held)).collect();
    all.into_iter()
}

/// What controllers run by, held before Flux gets to it: it prunes that after the controllers. With another account they lose their
/// tokens, and a Lease that they could not give up for that keeps the next Pods waiting. By then Flux has applied all of the commit:
/// what that still has loses nothing, and is given back with the others when Flux is done.
pub(super) fn ahead<'a>(
    install: &'a Install,
    observed: &'a Observed,
    held: &'a BTreeMap<ObjectId, Held>,
) -> impl Iterator<Item = (Action, &'a ObjectId)> {
    let mut pruned = removals(install, observed, held).filter(|(id, _)| is_workload(id.kind));
    let pruned = pruned
        .next()
        .filter(|(_, held)| is_busy(install, observed, &held.owner));
    let note = pruned.map(|(id, first)| {
        let kept = Hold {
            reason: format!("is kept while the engine prunes {id} with a commit"),
            ..first.hold.clone()
        };
        (kept.text(), &first.owner)
    });
    let at_risk = |id: &ObjectId, wanted: &Wanted| {
        let needed = id.kind == Kind::ServiceAccount || id.kind.is_rbac() || is_workload(id.kind);
        needed && wanted.git_owned && !held.contains_key(id)
    };
    // What the commit changed is in it.
    let same = |live: &Object, wanted: &Wanted| {
        live.deleting.is_none() && drift(&wanted.expect, &live.fields).is_empty()
    };
    note.into_iter().flat_map(move |(note, by)| {
        let all = install.wanted.iter().filter(move |(id, wanted)| {
            let live = observed.objects.get(*id);
            at_risk(id, wanted)
                && live.is_some_and(|live| same(live, wanted))
                && owner(install, observed, id) == *by
        });
        all.map(move |(id, _)| (Action::Hold { note: note.clone() }, id))
    })
}

/// Whether an object was held for a commit that removed others, and Flux, which is done with that commit (`seen`), lists it: the
/// catalog never lost it.
pub(super) fn is_still_there(
    install: &Install,
    observed: &Observed,
    (id, held): (&ObjectId, &Held),
    seen: &str,
) -> bool {
    let said = brings::said(install, observed, &held.owner);
    let listed = said.and_then(|said| said.lists(id));
    held.hold.removal && held.hold.revision == seen && listed == Some(true)
}

/// The revision that what brings an object of Flux' is done with; none while it is at one.
pub(super) fn seen(install: &Install, observed: &Observed, by: &ObjectId) -> Option<String> {
    if *by == install.sync {
        return health::revision(install, observed);
    }
    let said = brings::said(install, observed, by)?;
    said.done().map(str::to_owned)
}

/// The revision that it tried last; none of one that is not known.
pub(super) fn tried(install: &Install, observed: &Observed, by: &ObjectId) -> Option<String> {
    let said = brings::said(install, observed, by);
    said.map(|said| said.tried().to_owned())
}

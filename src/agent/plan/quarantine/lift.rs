//! The end of a hold: what may be given back to Git, and whose probation is over.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use time::OffsetDateTime;

use super::removed::{is_still_there, seen};
use super::shield::{self, Owner, Shield};
use super::{Held, Hold, PROBATION, brings, hold, holds, is_forsaken, order, removed, root, step};
use crate::agent::engine::compare::drift;
use crate::agent::engine::{Install, is_workload};
use crate::agent::plan::health::works;
use crate::agent::plan::pace;
use crate::agent::plan::state::{History, Object, Observed};
use crate::agent::plan::steps::{Action, Step};
use crate::agent::plan::window::rests;
use crate::bundle::ObjectId;
use crate::clock::{parse_rfc3339, rfc3339};
use crate::wire::api::EngineKind;

/// The first object that may be given back to Git, or whose probation is over. One with which that came to nothing a moment ago
/// keeps no other one waiting.
pub fn lifts(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    history: &History,
) -> Vec<Step> {
    let holds = holds(install, observed);
    let known = (observed, history);
    let given = match install.traits.kind {
        EngineKind::Flux => given_back_by_flux(now, install, known, &holds),
        EngineKind::Argocd => given_back(now, install, known, &holds),
    };
    let in_vain = |id: &ObjectId| pace::rests(history, id, now);
    let back = taken_back(now, install, known, &holds);
    let back = back.min_by_key(|id| in_vain(id));
    let back = back.map(|id| and_told(install, observed, &holds, step(Action::Reclaim, id)));
    let over = install.wanted.keys().filter(|id| {
        let live = observed.objects.get(*id);
        live.is_some_and(|live| is_over(now, id, live)) && !rests(now, observed, id)
    });
    let over = over.min_by_key(|id| in_vain(id));
    let settled = over.map(|id| vec![step(Action::Settle, id)]);
    let all = given.into_iter().chain(back).chain(settled);
    let first = all.min_by_key(|steps| steps.first().is_some_and(|step| in_vain(&step.target)));
    first.unwrap_or_default()
}

/// Whether an object that was given back has worked for long enough.
fn is_over(now: OffsetDateTime, id: &ObjectId, live: &Object) -> bool {
    let lifted = hold(live).and_then(|hold| parse_rfc3339(hold.lifted.as_deref()?));
    lifted.is_some_and(|since| now - since >= PROBATION) && sound(id, live)
}

/// Once what brings it is done with another commit, which need not be when the root is.
fn given_back_by_flux(
    now: OffsetDateTime,
    install: &Install,
    (observed, history): (&Observed, &History),
    holds: &BTreeMap<ObjectId, Held>,
) -> Option<Vec<Step>> {
    let ours = |id: &ObjectId| {
        let root = install.roots().any(|root| root == id);
        !root || root::is_fetched_anew(install, observed)
    };
    let ends = |id: &ObjectId, held: &Held| {
        let ordered = is_ordered(now, install, (observed, history), held);
        let Some(seen) = seen(install, observed, &held.owner) else {
            // Nobody is left who would apply or prune it: that no commit comes to its end is no reason to keep somebody waiting.
            return ordered && brings::is_gone(install, observed, &held.owner);
        };
        let over = held.hold.ends(now, &seen) && ours(id)
            || is_still_there(install, observed, (id, held), &seen);
        ordered || over && !rests(now, observed, id)
    };
    let all = holds.iter();
    // What a Kustomization is done with and no longer lists it tells a moment before it says that it is ready, or after it.
    let unlisted = |id: &ObjectId, held: &Held| {
        let said = brings::said(install, observed, &held.owner);
        said.and_then(|said| said.lists(id)) == Some(false)
    };
    let all = all.filter(|(id, held)| {
        ends(id, held) && !removed(install, observed, id) && !unlisted(id, held)
    });
    let (id, held) = all.min_by_key(|(id, _)| pace::rests(history, id, now))?;
    let lifted = step(lift(now, install, &held.hold), id);
    let asks = !brings::is_gone(install, observed, &held.owner);
    let asked = asks.then(|| step(Action::Nudge, &held.owner));
    Some([lifted].into_iter().chain(asked).collect())
}

/// What a person gives back and the catalog no longer has: it is the agent's again. Without that word it stays held, as long as the
/// catalog may want to have it once more. One whose Application was told in vain a moment ago keeps no other one waiting.
fn taken_back<'a>(
    now: OffsetDateTime,
    install: &'a Install,
    (observed, history): (&'a Observed, &'a History),
    holds: &'a BTreeMap<ObjectId, Held>,
) -> impl Iterator<Item = &'a ObjectId> {
    let ordered = holds.iter().filter(move |(id, held)| {
        held.hold.ordered(now, &install.policy).is_some()
            && !pace::rests(history, &held.owner, now)
            && is_forsaken(install, observed, id)
    });
    ordered.map(|(id, _)| id)
}

/// Whether a person gave it back, and the engine has looked since at what the catalog has.
fn is_ordered(
    now: OffsetDateTime,
    install: &Install,
    known: (&Observed, &History),
    held: &Held,
) -> bool {
    let ordered = held.hold.ordered(now, &install.policy);
    ordered.is_some() && order::is_due(now, install, known, held)
}

fn lift(now: OffsetDateTime, install: &Install, hold: &Hold) -> Action {
    let ordered = hold.ordered(now, &install.policy).map(rfc3339);
    let lifted = Hold {
        lifted: Some(rfc3339(now)),
        order: ordered.or_else(|| hold.order.clone()),
        ..hold.clone()
    };
    let note = lifted.text();
    Action::Lift { note }
}

/// Argo CD prunes at once what it is given back and what is no longer in Git: that is not given back. Nor is what its Application does
/// not list at all: what Git no longer had when that was made again is listed as such with the next look, not before.
fn given_back(
    now: OffsetDateTime,
    install: &Install,
    (observed, history): (&Observed, &History),
    holds: &BTreeMap<ObjectId, Held>,
) -> Option<Vec<Step>> {
    let all = holds.iter().filter(|(id, held)| {
        // One whose Application was told in vain a moment ago keeps no other one waiting.
        if pace::rests(history, &held.owner, now) {
            return false;
        }
        let said = shield::said(install, observed, &held.owner);
        // An operation that began before the hold knows nothing of it, and may yet apply what it was told to.
        let ends = |said: Arc<Owner>| {
            let ours = held.owner != install.sync || root::is_fetched_anew(install, observed);
            // What an operation applies has what its Application leaves alone as it was when it began: the root's own hold,
            // or a commit's host keys.
            let trusted = install.trusts(id);
            let assigned = **id == install.sync || trusted;
            let mended = !trusted || as_assigned(install, observed, id);
            let calm = !assigned || said.rests && mended;
            let ordered = is_ordered(now, install, (observed, history), held);
            let over = held.hold.ends(now, &said.seen) && ours;
            let ends = ordered || over && !rests(now, observed, id);
            let unlisted = shield::is_near(&install.namespace, id) && said.lacks(id);
            let removed = unlisted || said.extra.contains(*id);
            ends && calm && !removed && !said.behind
        };
        observed.objects.contains_key(*id) && said.is_some_and(ends)
    });
    let (id, held) = all.min_by_key(|(id, _)| pace::rests(history, id, now))?;
    let lifted = step(lift(now, install, &held.hold), id);
    let mut steps = and_told(install, observed, holds, lifted);
    steps.push(step(Action::Nudge, &held.owner));
    Some(steps)
}

/// The step that ends a hold, and what Applications are told then.
fn and_told(
    install: &Install,
    observed: &Observed,
    holds: &BTreeMap<ObjectId, Held>,
    end: Step,
) -> Vec<Step> {
    let mut rest = holds.clone();
    rest.remove(&end.target);
    let told = told(install, observed, holds, &rest);
    [end].into_iter().chain(told).collect()
}

/// What Applications are told when just `rest` of what is held stays so; of other holds, which somebody may undo all the time,
/// this is no matter. Nor does it depend on what they say: one that lost its word says nothing of a hold, and its spec does.
fn told(
    install: &Install,
    observed: &Observed,
    holds: &BTreeMap<ObjectId, Held>,
    rest: &BTreeMap<ObjectId, Held>,
) -> Vec<Step> {
    let [before, after] = [holds, rest].map(|holds| shield::shields(install, observed, holds));
    let nothing = Shield::default();
    let told = shield::owners(install, observed).filter_map(|(id, _)| {
        let [was, is] = [&before, &after].map(|all| all.get(id).unwrap_or(&nothing));
        (was != is).then(|| step(Action::Shield(is.after(was)), id))
    });
    let mut told: Vec<Step> = told.collect();
    // The object's Application first: what those above it give back to Git is to be as it was.
    let level = |id: &ObjectId| shield::chain(install, observed, id).len();
    told.sort_by_cached_key(|step| Reverse(level(&step.target)));
    told
}

/// Whether an object says what was assigned: an operation that still wrote a commit's version of it is mended first.
fn as_assigned(install: &Install, observed: &Observed, id: &ObjectId) -> bool {
    let (wanted, live) = (install.wanted.get(id), observed.objects.get(id));
    wanted
        .zip(live)
        .is_some_and(|(wanted, live)| drift(&wanted.expect, &live.fields).is_empty())
}

/// What shows no Pods has no other way to show that it works.
fn sound(id: &ObjectId, live: &Object) -> bool {
    !is_workload(id.kind) || works(live)
}

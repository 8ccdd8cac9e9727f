//! Whose an object of the install is. What Git took over is Git's from the moment on in which the engine applied it, not
//! only once a snapshot has it: until then it would be called altered, and written over. Where it does not work, it is a bad
//! commit like any other, and what was in force before comes back.

use std::borrow::Cow;

use time::OffsetDateTime;

use super::quarantine::{self, shield};
use super::state::{History, Object, Observed};
use crate::agent::engine::{GIT_OWNER, GIT_OWNER_NAMESPACE, Install};
use crate::bundle::{Kind, ObjectId};
use crate::wire::api::EngineKind;

/// From what brought an object up to the root; more levels than any catalog has.
const LEVELS: usize = 16;

/// The install with what Git has taken over since the last snapshot, and without what is no longer Git's.
pub fn taken<'a>(install: &'a Install, observed: &Observed) -> Cow<'a, Install> {
    let wanted = install
        .wanted
        .iter()
        .filter(|(_, wanted)| !wanted.git_owned);
    let taken = wanted.filter(|(id, _)| {
        let is_gits = match observed.objects.get(*id) {
            Some(live) => is_from_catalog(install, observed, live),
            None => is_listed(install, observed, id),
        };
        is_gits && install.may_be_gits(id)
    });
    let taken: Vec<ObjectId> = taken.map(|(id, _)| id.clone()).collect();
    let back = quarantine::regained(install, observed);
    if taken.is_empty() && back.is_empty() {
        return Cow::Borrowed(install);
    }
    let mut install = install.clone();
    for id in &taken {
        install.take_over(id);
    }
    for id in &back {
        install.take_back(id);
    }
    Cow::Owned(install)
}

/// The same without what Git's version of the engine does without.
pub fn in_force<'a>(
    now: OffsetDateTime,
    install: &'a Install,
    observed: &Observed,
    history: &History,
) -> Cow<'a, Install> {
    let taken = taken(install, observed);
    let without = quarantine::let_go(now, &taken, observed, history);
    if without.all.is_empty() && taken.dropped.is_empty() {
        return taken;
    }
    let mut install = taken.into_owned();
    install.wanted.retain(|id, _| !without.all.contains(id));
    install.dropped = without.dropped;
    Cow::Owned(install)
}

/// Whether the engine applied it for the root, or for something that hangs on the root. A mark that somebody else wrote is
/// none: it would be a way to switch healing off.
pub fn is_from_catalog(install: &Install, observed: &Observed, live: &Object) -> bool {
    let from = brought_by(install, live).filter(|_| live.marked);
    from.is_some_and(|from| hangs_on_root(install, observed, from))
}

/// Whether Flux lists an object that is gone among what the root, or something that hangs on the root, brought.
fn is_listed(install: &Install, observed: &Observed, id: &ObjectId) -> bool {
    let flux = install.traits.kind == EngineKind::Flux;
    let by = flux.then(|| quarantine::lister(install, observed, id));
    by.flatten()
        .is_some_and(|by| hangs_on_root(install, observed, by))
}

/// The Kustomization or Application that an object says it comes from.
fn brought_by(install: &Install, live: &Object) -> Option<ObjectId> {
    match install.traits.kind {
        EngineKind::Argocd => shield::owner(&install.namespace, &live.fields),
        EngineKind::Flux => {
            let [name, space] = [GIT_OWNER, GIT_OWNER_NAMESPACE].map(|label| live.label(label));
            Some(ObjectId::new(Kind::Kustomization, space?, name?))
        }
    }
}

fn hangs_on_root(install: &Install, observed: &Observed, from: ObjectId) -> bool {
    let mut at = from;
    for _ in 0..LEVELS {
        if at == install.sync {
            return true;
        }
        let Some(child) = observed.children.get(&at) else {
            // Not heard of yet, or one of more than are known, which is no reason to write over what it brought.
            return observed.awaited.contains(&at.kind) || observed.cut.contains(&at.kind);
        };
        // What an ApplicationSet of the catalog makes is the catalog's as well.
        let fate = &child.fate;
        let Some(from) = fate.owner.as_ref().or(fate.made_from.as_ref()) else {
            return false;
        };
        at = from.clone();
    }
    false
}

#[cfg(test)]
mod tests;

//! What the catalog no longer has and nothing of Flux' lists: with the engine's marks off it is the agent's again, as it was before the
//! catalog had it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{HELD, RECONCILE, brings, owner, removed};
use crate::agent::engine::compare::drift;
use crate::agent::engine::{GIT_OWNER, GIT_OWNER_NAMESPACE, Install, Wanted};
use crate::agent::plan::state::Observed;
use crate::bundle::{Kind, ObjectId};
use crate::wire::api::EngineKind;

/// Takes hold and marks off in one write. Flux prunes nothing that does not carry its labels (`Delete` of `fluxcd/pkg/ssa`), so there
/// is no moment at which it could.
pub fn unmarked() -> Value {
    json!({"metadata": {
        "labels": {GIT_OWNER: null, GIT_OWNER_NAMESPACE: null},
        "annotations": {HELD: null, RECONCILE: null},
    }})
}

/// Whether an object that is held can be the agent's again: nothing of Flux' is about to list it, either.
pub fn is_forsaken(install: &Install, observed: &Observed, id: &ObjectId) -> bool {
    may_be_ours(install, observed, id) && is_calm(install, observed, id)
}

/// Whether it can be once Flux is done with its commit: it is as the bundle has it, and was when the engine last worked, so that
/// nothing but the marks changes, and nothing of Flux' lists it. Of more than are known one may do so for ever.
pub fn may_be_ours(install: &Install, observed: &Observed, id: &ObjectId) -> bool {
    let live = observed.objects.get(id);
    let Some(live) = live.filter(|live| live.deleting.is_none()) else {
        return false;
    };
    let known = install.wanted.get(id).map(|wanted| wanted.expect.as_ref());
    let all = [Some(&live.fields), known];
    install.may_be_gits(id)
        && removed(install, observed, id)
        && is_unlisted(install, observed, id)
        && !observed.cut.contains(&Kind::Kustomization)
        && all
            .into_iter()
            .flatten()
            .all(|f| is_bundled(install, id, f))
}

/// What is the agent's again, although the last snapshot has it as Git's. It shows only while the object is there and the bundle is the
/// same: the snapshot has to say so soon.
pub fn regained(install: &Install, observed: &Observed) -> BTreeSet<ObjectId> {
    let all = install.wanted.iter();
    let back = all.filter(|(id, wanted)| is_back(install, observed, (id, wanted)));
    back.map(|(id, _)| id.clone()).collect()
}

/// Whether the catalog had an object, as a snapshot knows, and has nothing to do with it any more: no mark is on it, and nothing lists it.
/// That stays so while Flux is at another commit: what that brings carries its labels. Of another version than the bundle's it is not.
fn is_back(install: &Install, observed: &Observed, (id, wanted): (&ObjectId, &Wanted)) -> bool {
    let was = wanted.git_owned && brings::labelled(install, &wanted.expect).is_some();
    let Some(live) = observed.objects.get(id).filter(|_| was) else {
        return false;
    };
    let marked = live.label(GIT_OWNER).is_some()
        || [HELD, RECONCILE]
            .iter()
            .any(|name| live.annotation(name).is_some());
    !marked && is_unlisted(install, observed, id) && is_bundled(install, id, &wanted.expect)
}

/// Whether these fields are all as the bundle has them.
fn is_bundled(install: &Install, id: &ObjectId, fields: &Value) -> bool {
    let bundled = install.bundled(id);
    bundled.is_some_and(|bundled| drift(&bundled.expect, fields).is_empty())
}

/// Whether nothing of Flux' that is known lists it: not the root, nor what brought it, if that is there.
fn is_unlisted(install: &Install, observed: &Observed, id: &ObjectId) -> bool {
    if install.traits.kind != EngineKind::Flux {
        return false;
    }
    let of = owner(install, observed, id);
    let left = |by: &ObjectId| match brings::said(install, observed, by) {
        Some(said) => said.lists(id) == Some(false),
        None => brings::is_gone(install, observed, by),
    };
    brings::lister(install, observed, id).is_none() && left(&install.sync) && left(&of)
}

/// Whether all that may list it is known, and done with its commit.
fn is_calm(install: &Install, observed: &Observed, id: &ObjectId) -> bool {
    let known = !observed.awaited.contains(&Kind::Kustomization);
    let of = owner(install, observed, id);
    let rests = |by: &ObjectId| {
        let said = brings::said(install, observed, by);
        said.is_none_or(|said| !said.is_at_work() && !said.is_refused(id))
            && !brings::takes_all(observed, by)
    };
    known && rests(&install.sync) && rests(&of)
}

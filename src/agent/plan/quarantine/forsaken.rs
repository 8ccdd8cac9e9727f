//! What the catalog no longer has and nothing of the engine's lists: with the engine's marks off it is the agent's again, as it was
//! before the catalog had it.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::shield::{self, OPTIONS, Owner};
use super::{HELD, RECONCILE, brings, mark, owner, removed};
use crate::agent::engine::argocd::CONFIG;
use crate::agent::engine::compare::drift;
use crate::agent::engine::{GIT_OWNER, GIT_OWNER_NAMESPACE, Install, TRACKING, Wanted};
use crate::agent::plan::state::{Object, Observed};
use crate::bundle::{Kind, ObjectId};
use crate::wire::api::EngineKind;

/// The label that Argo CD puts onto what it brings where its settings say so, and that they may give another name.
/// <https://argo-cd.readthedocs.io/en/stable/user-guide/resource_tracking/>
const INSTANCE: &str = "app.kubernetes.io/instance";

/// Takes hold and marks off in one write. Neither engine prunes what does not carry its mark: Flux' labels (`Delete` of
/// `fluxcd/pkg/ssa`), Argo CD's tracking id. What Argo CD looked at before that write says `Prune=false` beside the mark, also to an
/// operation that is under way. So there is no moment at which either could.
pub fn unmarked(install: &Install, observed: &Observed, id: &ObjectId) -> Value {
    let live = observed.objects.get(id);
    let said = live.and_then(|live| live.annotation(OPTIONS));
    let mut annotations = mark::annotations(install.traits.kind, said, false, None);
    let labels = match install.traits.kind {
        EngineKind::Flux => vec![GIT_OWNER, GIT_OWNER_NAMESPACE],
        EngineKind::Argocd => {
            annotations.insert(TRACKING.to_owned(), Value::Null);
            let name = setting(install, observed, "application.instanceLabelKey");
            let name = name.unwrap_or(INSTANCE);
            let bundled = install.bundled(id);
            let labels = bundled
                .as_ref()
                .and_then(|b| b.expect.pointer("/metadata/labels"));
            // A chart sets the same label for its own sake.
            let own = labels.is_some_and(|labels| labels.get(name).is_some());
            if own { Vec::new() } else { vec![name] }
        }
    };
    let labels = labels
        .into_iter()
        .map(|name| (name.to_owned(), Value::Null));
    let labels: Map<String, Value> = labels.collect();
    json!({"metadata": {"labels": labels, "annotations": annotations}})
}

/// One of Argo CD's own settings.
fn setting<'a>(install: &Install, observed: &'a Observed, name: &str) -> Option<&'a str> {
    let config = ObjectId::new(Kind::ConfigMap, &install.namespace, CONFIG);
    let config = observed.objects.get(&config)?;
    let said = config.fields.pointer("/data")?.get(name)?.as_str();
    said.filter(|said| !said.is_empty())
}

/// Whether an object that is held can be the agent's again: nothing of the engine's is about to list it, either.
pub fn is_forsaken(install: &Install, observed: &Observed, id: &ObjectId) -> bool {
    may_be_ours(install, observed, id) && is_calm(install, observed, id)
}

/// Whether it can be once the engine is done with its commit: it is as the bundle has it, and was when the engine last worked, so that
/// nothing but the marks changes, and nothing of the engine's lists it. Of more than are known one may do so for ever.
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
        && !observed.cut.contains(&install.sync.kind)
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

/// Whether what an Application remembers as held is no longer its own: the object is there without Argo CD's mark, and Git has it no
/// more. To hold that back would keep it from nobody.
pub(super) fn is_free(install: &Install, observed: &Observed, said: &Owner, id: &ObjectId) -> bool {
    let live = observed.objects.get(id);
    let gone = said.extra.contains(id) || said.lacks(id);
    gone && live.is_some_and(|live| live.annotation(TRACKING).is_none())
        && has_left(install, observed, said, id)
}

/// Whether the catalog had an object, as a snapshot knows, and has nothing to do with it any more: no mark is on it, and nothing lists it.
/// That stays so while the engine is at another commit: what that brings carries its marks. Of another version than the bundle's it is
/// not.
fn is_back(install: &Install, observed: &Observed, (id, wanted): (&ObjectId, &Wanted)) -> bool {
    let was = wanted.git_owned && names_its_owner(install, &wanted.expect);
    let Some(live) = observed.objects.get(id).filter(|_| was) else {
        return false;
    };
    !is_marked(install, live)
        && is_unlisted(install, observed, id)
        && is_bundled(install, id, &wanted.expect)
}

fn names_its_owner(install: &Install, fields: &Value) -> bool {
    match install.traits.kind {
        EngineKind::Flux => brings::labelled(install, fields).is_some(),
        EngineKind::Argocd => shield::owner(&install.namespace, fields).is_some(),
    }
}

fn is_marked(install: &Install, live: &Object) -> bool {
    let by_engine = match install.traits.kind {
        EngineKind::Flux => live.label(GIT_OWNER).is_some() || live.annotation(RECONCILE).is_some(),
        EngineKind::Argocd => live.annotation(TRACKING).is_some(),
    };
    by_engine || live.annotation(HELD).is_some()
}

/// Whether these fields are all as the bundle has them.
fn is_bundled(install: &Install, id: &ObjectId, fields: &Value) -> bool {
    let bundled = install.bundled(id);
    bundled.is_some_and(|bundled| drift(&bundled.expect, fields).is_empty())
}

/// Whether nothing of the engine's that is known lists it: not the root, nor what brought it, if that is there.
fn is_unlisted(install: &Install, observed: &Observed, id: &ObjectId) -> bool {
    let of = owner(install, observed, id);
    let left = |by: &ObjectId| {
        let said = says_left(install, observed, by, id);
        said.unwrap_or_else(|| brings::is_gone(install, observed, by))
    };
    let listed = match install.traits.kind {
        EngineKind::Flux => brings::lister(install, observed, id).is_some(),
        EngineKind::Argocd => shield::owners(install, observed).any(|(_, said)| said.has(id)),
    };
    !listed && left(&install.sync) && left(&of)
}

/// Whether it says that it has the object no more; none of one that is not known.
fn says_left(install: &Install, observed: &Observed, by: &ObjectId, id: &ObjectId) -> Option<bool> {
    match install.traits.kind {
        EngineKind::Flux => {
            let said = brings::said(install, observed, by)?;
            Some(said.lists(id) == Some(false))
        }
        EngineKind::Argocd => {
            let said = shield::said(install, observed, by)?;
            Some(has_left(install, observed, &said, id))
        }
    }
}

/// Whether Git had the object no more when this Application looked. Where Argo CD goes by labels alone, its annotation says nothing of
/// whose an object is.
fn has_left(install: &Install, observed: &Observed, said: &Owner, id: &ObjectId) -> bool {
    let method = setting(install, observed, "application.resourceTrackingMethod");
    let looked = !said.seen.is_empty() && shield::is_near(&install.namespace, id);
    looked && !said.has(id) && method != Some("label")
}

/// Whether all that may list it is known, and done with its commit. An operation of before would apply the object once more, mark and
/// all, and the next one prune it.
fn is_calm(install: &Install, observed: &Observed, id: &ObjectId) -> bool {
    let known = !observed.awaited.contains(&install.sync.kind);
    let of = owner(install, observed, id);
    let rests = |by: &ObjectId| {
        let rests = match install.traits.kind {
            EngineKind::Flux => {
                let said = brings::said(install, observed, by);
                said.is_none_or(|said| !said.is_at_work() && !said.is_refused(id))
            }
            EngineKind::Argocd => {
                let said = shield::said(install, observed, by);
                said.is_none_or(|said| said.rests)
            }
        };
        rests && !brings::takes_all(observed, by)
    };
    known && rests(&install.sync) && rests(&of)
}

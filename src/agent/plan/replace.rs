//! One engine takes the other's place: what has to be true of the one that stands still, before another may work, and
//! before anything of it is removed. Pure.
//!
//! What makes an engine prune is that it has rights, runs, and sees a sync object go that carries its finalizer. Each of
//! the three is taken away, in the order of the cascade guard, before the next engine is installed; so whatever is
//! deleted of the old one afterwards takes no workload with it.

use std::time::Duration;

use time::OffsetDateTime;

use crate::agent::engine::Install;
use crate::agent::engine::argocd::signers;
use crate::bundle::{Bundle, Kind, ObjectId};
use crate::clock::parse_rfc3339;
use crate::wire::api::{Assignment, EngineKind};

use super::change::Change;
use super::state::MAX_LOUD;
use super::{Observed, health};

/// Why this version of Argo CD is put neither in Flux' place nor in that of another version; for people.
pub const UNVERIFIED: &str = "the catalog has signers, and this version of Argo CD would apply what nobody signed (its projects have \
     no signatureKeys): take another version, keep what is in force, or drop the signers (linesman catalog signer), then try again";

/// Whether the engine that is wished would apply commits that the one in force refuses. A signer may have come since it was
/// wished.
pub fn is_unverified(wished: &Assignment, bundle: &Bundle) -> bool {
    let argocd = wished.engine.kind == EngineKind::Argocd;
    argocd && !wished.catalog.signers.is_empty() && !signers::knows(bundle)
}

/// So long an engine's Pods are waited for that have neither rights nor a controller that wants them: as long as the longest
/// of them is given to end, and a little. Whatever lives on after that can do no harm.
pub const ENDS: Duration = Duration::from_secs(75);

/// So long the API server's refusal to free sync objects is waited out on the way back. An engine without rights and Pods prunes
/// nothing, so that what was in force need not wait for them; they are not deleted before they are free.
pub const REFUSED: Duration = ENDS;

/// Since when the API server refuses to free sync objects, after this step; none = it does not.
pub fn refused<T>(next: &Next, since: Option<T>, now: T) -> Option<T> {
    match next {
        Next::Pinned(_) => since.or(Some(now)),
        // Nothing was tried.
        Next::Wait(_) => since,
        Next::Do(_) | Next::Ends(_) | Next::Unpin | Next::Still => None,
    }
}

/// Since when the Pods of the engine that is removed are waited for: as this agent `found`, or, on the way back, since before
/// it. What outlived its time then is not given it once more.
pub fn ending(change: &Change, found: Option<OffsetDateTime>) -> Option<OffsetDateTime> {
    let before = change.ending.as_deref().filter(|_| change.failed.is_some());
    found.or_else(|| parse_rfc3339(before?))
}

/// Whether Pods that end since then had [`ENDS`].
pub fn had_their_time(ending: Option<OffsetDateTime>, now: OffsetDateTime) -> bool {
    ending.is_some_and(|since| now - since >= ENDS)
}

/// Since when its Pods are waited for, after this step; `late`: they had [`ENDS`] before it. That its sync objects are freed comes
/// behind the wait and does not begin it anew; that it had to be stopped again does.
pub fn waits<T>(next: &Next, (since, late): (Option<T>, bool), now: T) -> Option<T> {
    match next {
        Next::Do(_) => None,
        Next::Ends(_) => since.or(Some(now)),
        Next::Wait(_) => since,
        // Where that was not late, they have ended.
        Next::Unpin | Next::Pinned(_) | Next::Still => since.filter(|_| late),
    }
}

/// What is left of an engine that is to do nothing any more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Remains {
    /// Bindings with which it changes the cluster, with their UIDs.
    pub rights: Vec<(ObjectId, String)>,
    /// Controllers that are to have Pods.
    pub running: Vec<ObjectId>,
    /// Pods that have not ended.
    pub pods: Vec<String>,
    /// Sync objects with its finalizers.
    pub pinned: usize,
}

/// One call to the API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    CutRights { binding: ObjectId, uid: String },
    ScaleToZero(ObjectId),
}

/// What comes next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    Do(Vec<Act>),
    /// For what, for people.
    Wait(String),
    /// Its Pods still end, for people.
    Ends(String),
    /// Take its finalizers from its sync objects: nobody puts them back now.
    Unpin,
    /// The API server refused to let one of them go: which, why, and what to do, for people. Only a step itself shows that.
    Pinned(String),
    /// It stands still.
    Still,
}

/// Rights first: without them a controller can do no harm, however long its end takes. `late`: its Pods had [`ENDS`].
pub fn next(remains: &Remains, late: bool) -> Next {
    let Remains {
        rights,
        running,
        pods,
        pinned,
    } = remains;
    if !rights.is_empty() || !running.is_empty() {
        let cuts = rights.iter().map(|(binding, uid)| Act::CutRights {
            binding: binding.clone(),
            uid: uid.clone(),
        });
        return Next::Do(
            cuts.chain(running.iter().cloned().map(Act::ScaleToZero))
                .collect(),
        );
    }
    if let Some(first) = pods.first().filter(|_| !late) {
        return Next::Ends(format!(
            "{} of its Pods still end, {first} first",
            pods.len()
        ));
    }
    if *pinned > 0 {
        return Next::Unpin;
    }
    Next::Still
}

/// For people: what is done about the engine that is to stand still.
pub fn words(next: &Next) -> String {
    match next {
        Next::Do(acts) => format!("its rights and controllers go, {} to do", acts.len()),
        Next::Wait(what) | Next::Ends(what) | Next::Pinned(what) => what.clone(),
        Next::Unpin => "its sync objects are told to take nothing with them".to_owned(),
        Next::Still => "it stands still".to_owned(),
    }
}

/// Why an engine that answers has not taken the other one's place yet; none = it has. What the catalog brings is
/// part of that only on the way there: the way back is to what was in force anyway.
pub fn lacks(change: &Change, install: &Install, observed: &Observed) -> Option<String> {
    if !change.replaces() {
        return None;
    }
    if health::revision(install, observed).is_none() {
        return Some("it has not applied a revision of the catalog".to_owned());
    }
    if change.failed.is_some() {
        return None;
    }
    let below = |kind: &&Kind| !kind.is_source();
    if let Some(kind) = observed.awaited.iter().find(below) {
        let plural = kind.resource().2;
        return Some(format!(
            "it is not known yet which {plural} there are, and whether they work"
        ));
    }
    let mut children = observed.children.iter();
    let fails = children.find_map(|(id, child)| {
        let (reason, message) = child.trouble.as_ref()?;
        Some(format!("{id} fails: {reason}: {message}"))
    });
    // Those that fail are known beyond the bound, too, as long as there is room for them.
    let unknown = || {
        let kind = observed.cut.iter().find(below)?;
        let full = observed.children.len() >= MAX_LOUD;
        full.then(|| {
            format!(
                "there are more {} than are looked at, so that not all are known to work; split the catalog, or keep the engine",
                kind.resource().2
            )
        })
    };
    fails.or_else(unknown)
}

/// The CRDs of the engine that goes: they stay, and what the catalog brought of their kinds does not.
pub fn foreign_crds(change: &Change, install: &Install) -> Vec<ObjectId> {
    let places = change.objects.iter().filter_map(super::change::Place::id);
    let crds = places.filter(|id| id.kind == Kind::CustomResourceDefinition);
    crds.filter(|id| !install.wanted.contains_key(id)).collect()
}

#[cfg(test)]
mod tests;

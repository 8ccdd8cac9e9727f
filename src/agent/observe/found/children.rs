//! Sync objects below the root: what one of them says, and what a list of them makes known.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::api::DynamicObject;
use tracing::warn;

use crate::agent::plan::burst::missed::{self, List};
use crate::agent::plan::burst::{self, Fate};
use crate::agent::plan::busy::{self, Turn};
use crate::agent::plan::state::Child;
use crate::agent::plan::{Observed, project};
use crate::bundle::{Kind, ObjectId};
use crate::clock;

/// Sync objects that are known; the catalog may hold more, and then the rest is not judged.
pub(super) const MAX_CHILDREN: usize = 4096;
/// With those that are being deleted, which are known for as long as there is room: the guard's end hangs on them.
const MAX_DYING: usize = 2 * MAX_CHILDREN;
/// Sources elsewhere that are known; that there are any is what counts.
const MAX_SOURCES: usize = 64;
/// How long one that went is remembered, and how many of them: all that are known may go at once.
const LOST: time::Duration = time::Duration::minutes(2);
const MAX_LOST: usize = MAX_DYING;

/// What one sync object says.
pub(in crate::agent::observe) struct Heard {
    /// None = it is at work, and what it said last stands.
    child: Option<Child>,
    fate: Fate,
    turn: Option<Turn>,
    fetch: Option<time::Duration>,
    /// It is in another namespace than the engine's.
    elsewhere: bool,
}

impl Heard {
    /// `home` is the engine's namespace.
    pub(in crate::agent::observe) fn of(home: &str, kind: Kind, live: &DynamicObject) -> Self {
        Self {
            child: project::child(kind, live),
            fate: Fate::of(home, kind, live),
            turn: Turn::of(kind, live),
            fetch: busy::fetch(kind, live),
            elsewhere: live.metadata.namespace.as_deref() != Some(home),
        }
    }
}

/// One list, as far as it is kept.
#[derive(Default)]
pub(in crate::agent::observe) struct Listed {
    heard: BTreeMap<ObjectId, Heard>,
    /// The roots of the kind, which are none below them.
    roots: BTreeMap<ObjectId, Fate>,
    /// Whether there are more.
    cut: bool,
}

impl Listed {
    pub(super) fn add(&mut self, id: ObjectId, said: Heard) {
        let most = if said.fate.dying {
            MAX_DYING
        } else {
            MAX_CHILDREN
        };
        if self.heard.len() < most {
            self.heard.insert(id, said);
        } else {
            self.cut = true;
        }
    }

    /// The install has only so many of them.
    pub(super) fn add_root(&mut self, home: &str, kind: Kind, live: &DynamicObject) {
        let Some(name) = live.metadata.name.as_deref() else {
            return;
        };
        let namespace = live.metadata.namespace.as_deref().unwrap_or_default();
        let id = ObjectId::new(kind, namespace, name);
        let mut fate = Fate::of(home, kind, live);
        // Its own end has findings of its own, and says nothing of who deletes the others.
        fate.dying = false;
        self.roots.insert(id, fate);
    }

    pub(super) fn has(&self, id: &ObjectId) -> bool {
        self.heard.contains_key(id)
    }

    /// Takes the place of all that was known of the kind, but for what may be among those that are over the bound. Whether that
    /// changed anything.
    pub(super) fn put(self, seen: &mut Observed, kind: Kind) -> bool {
        let Self {
            heard: all,
            roots,
            cut,
        } = self;
        let of_kind = seen.children.keys().filter(|id| id.kind == kind && !cut);
        let over: Vec<ObjectId> = of_kind
            .filter(|id| !all.contains_key(*id))
            .cloned()
            .collect();
        let fate = |id: &ObjectId| all.get(id).map(|h| &h.fate).or_else(|| roots.get(id));
        let list = List {
            kind,
            fate: &fate,
            cut,
        };
        let dying = all.iter().filter(|(_, said)| said.fate.dying);
        let end = over.iter().chain(dying.map(|(id, _)| id));
        let wishes = missed::wishes(seen, &list, end, clock::now());
        let mut changed = seen.awaited.remove(&kind);
        let before = seen.cut.remove(&kind);
        seen.sources
            .retain(|id| id.kind != kind || cut || all.contains_key(id));
        for id in over {
            let wish = wishes.contains(&id);
            changed |= gone_by(seen, &id, Some(wish));
        }
        for (id, said) in all {
            let wish = wishes.contains(&id);
            changed |= heard_by(seen, id, said, Some(wish));
        }
        if cut {
            seen.cut.insert(kind);
        }
        let now = seen.cut.contains(&kind);
        if now && !before {
            warn!(
                kind = kind.as_str(),
                known = MAX_CHILDREN,
                "there are more sync objects than are looked at"
            );
        }
        changed || now != before
    }
}

/// Takes in what a watch tells of a sync object. Whether that changed anything.
pub(in crate::agent::observe) fn heard(seen: &mut Observed, id: ObjectId, said: Heard) -> bool {
    heard_by(seen, id, said, None)
}

/// `wish`: what a list tells of whose wish its end is.
fn heard_by(seen: &mut Observed, id: ObjectId, said: Heard, wish: Option<bool>) -> bool {
    let is_of_use =
        said.fetch.is_some() || said.child.as_ref().is_some_and(|c| c.suspect.is_some());
    let source = id.kind.is_source();
    if source && !is_of_use {
        let changed = gone_by(seen, &id, wish);
        source_of(&mut seen.sources, id, said.elsewhere);
        return changed;
    }
    if source {
        source_of(&mut seen.sources, id.clone(), said.elsewhere);
    }
    let now = clock::now();
    match wish {
        None => burst::note(seen, &id, Some(&said.fate), now),
        Some(wish) => burst::note_listed(seen, &id, (Some(&said.fate), wish), now),
    }
    let known = seen.children.get(&id);
    let most = if said.fate.dying {
        MAX_DYING
    } else {
        MAX_CHILDREN
    };
    if known.is_none() && seen.children.len() >= most {
        return seen.cut.insert(id.kind);
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
    let (done, done_at) = (child.fate.done, child.fate.done_at);
    let changed = known.is_none_or(|known| {
        let mut known = known.clone();
        (known.turn, known.fetch) = (turn, fetch);
        (known.fate.done, known.fate.done_at) = (done, done_at);
        known != child
    });
    Arc::make_mut(&mut seen.children).insert(id, child);
    changed
}

fn source_of(sources: &mut BTreeSet<ObjectId>, id: ObjectId, elsewhere: bool) {
    if elsewhere && sources.len() < MAX_SOURCES {
        sources.insert(id);
    }
}

/// What a watch tells of one that is no more. One that nobody would make again is remembered for a while: its CRD may be going
/// with it.
pub(in crate::agent::observe) fn gone(seen: &mut Observed, id: &ObjectId) -> bool {
    gone_by(seen, id, None)
}

fn gone_by(seen: &mut Observed, id: &ObjectId, wish: Option<bool>) -> bool {
    seen.sources.remove(id);
    if !seen.children.contains_key(id) {
        return false;
    }
    let now = clock::now();
    match wish {
        None => burst::note(seen, id, None, now),
        Some(wish) => burst::note_listed(seen, id, (None, wish), now),
    }
    let child = Arc::make_mut(&mut seen.children).remove(id);
    if let Some(keepsake) = child.and_then(|c| c.keepsake) {
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
mod tests;

//! Sync objects below the root: what one of them says, and what a list of them makes known.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::api::DynamicObject;
use serde_json::Value;
use tracing::warn;

use super::Newer;
use crate::agent::plan::argocd::SYNC_ERROR;
use crate::agent::plan::behind;
use crate::agent::plan::burst::missed::{self, List};
use crate::agent::plan::burst::{self, Fate};
use crate::agent::plan::busy::{self, Turn};
use crate::agent::plan::quarantine::Brings;
use crate::agent::plan::shard::Shard;
use crate::agent::plan::state::{Child, MAX_CHILDREN, MAX_LOUD};
use crate::agent::plan::{Observed, project};
use crate::bundle::{Kind, ObjectId};
use crate::clock;

/// Of one list, so many are known to be there beside those.
const MAX_NAMED: usize = 1 << 16;
/// Sources elsewhere that are known; that there are any is what counts.
const MAX_SOURCES: usize = 64;
/// How long one that went is remembered, and how many of them: all that are known may go at once.
const LOST: time::Duration = time::Duration::minutes(2);
const MAX_LOST: usize = MAX_LOUD;

/// What one sync object says.
pub(in crate::agent::observe) struct Heard {
    /// None = it is at work, and what it said last stands.
    child: Option<Child>,
    /// What stands of one at work that was not heard of before.
    before: Option<(String, String)>,
    /// What an Application says whose operation is under way.
    works: Option<String>,
    fate: Fate,
    turn: Option<Turn>,
    fetch: Option<time::Duration>,
    shard: Shard,
    brings: Option<Arc<Brings>>,
    pending: bool,
    /// It is in another namespace than the engine's.
    elsewhere: bool,
    /// It brings something into the engine's namespace.
    near: bool,
}

impl Heard {
    /// `home` is the engine's namespace.
    pub(in crate::agent::observe) fn of(home: &str, kind: Kind, live: &DynamicObject) -> Self {
        let brings = project::brings(kind, live);
        let application = kind == Kind::Application;
        let mut child = project::child(home, kind, live);
        if let Some(child) = child.as_mut().filter(|_| application) {
            (child.tried, child.suspended) = behind::compared(live);
        }
        Self {
            child,
            before: project::before(kind, live),
            works: project::at_work(kind, live),
            fate: Fate::of(home, kind, live),
            turn: Turn::of(kind, live),
            fetch: busy::fetch(kind, live),
            shard: Shard::of(live),
            pending: behind::is_pending(kind, live),
            elsewhere: live.metadata.namespace.as_deref() != Some(home),
            near: application && is_near(home, &live.data) || is_any(brings.as_ref()),
            brings,
        }
    }

    /// Whether it is known however many there are: the guard's end hangs on what is being deleted; what is held back from Git on
    /// what brings the engine; a controller may be blind for one that it cannot read, or busy with one that
    /// takes its time; and what fails is told.
    fn is_loud(&self) -> bool {
        let works = self.turn.is_some_and(|turn| turn.began < turn.ends);
        let says = self.child.as_ref().is_some_and(says);
        let goes = self.fate.dying || self.fate.moving;
        goes || works || says || self.near || self.fetch.is_some()
    }

    /// As many may be in a list beside it. What one at work said before may stand.
    fn most(&self) -> usize {
        most(self.is_loud() || self.works.is_some())
    }

    /// What an Application said `last` of a failed operation, where that stands while it tries again.
    fn stands(&self, last: Option<&Child>) -> Option<(String, String)> {
        let (works, last) = self.works.as_ref().zip(last?.trouble.as_ref())?;
        let (reason, message) = last;
        let stands = works.is_empty() || works == message;
        (stands && reason == SYNC_ERROR).then(|| last.clone())
    }
}

/// So many are known.
fn most(loud: bool) -> usize {
    if loud { MAX_LOUD } else { MAX_CHILDREN }
}

fn is_any(brings: Option<&Arc<Brings>>) -> bool {
    brings.is_some_and(|brings| brings.is_any())
}

/// Whether it is to be told, or holds something back.
fn says(child: &Child) -> bool {
    let owner = child.owner.as_ref();
    let holds = owner.is_some_and(|o| !o.held.is_empty() || !o.below.is_empty());
    child.trouble.is_some() || child.suspect.is_some() || holds
}

/// Whether an Application brings what may be part of the engine.
fn is_near(home: &str, data: &Value) -> bool {
    let all = data.pointer("/status/resources").and_then(Value::as_array);
    all.into_iter().flatten().any(|resource| {
        let said = |name| resource.get(name).and_then(Value::as_str);
        let is = |kind: &&Kind| Some(kind.as_str()) == said("kind");
        let known = || Kind::ALL.iter().find(is);
        said("namespace") == Some(home) && known().is_some_and(|kind| kind.installable())
    })
}

/// One list, as far as it is kept.
#[derive(Default)]
pub(in crate::agent::observe) struct Listed {
    heard: BTreeMap<ObjectId, Heard>,
    /// The roots of the kind, which are none below them.
    roots: BTreeMap<ObjectId, Fate>,
    /// Others, which are over the bound and say nothing.
    beyond: BTreeSet<ObjectId>,
    /// Whether there are still more.
    endless: bool,
}

impl Listed {
    pub(super) fn add(&mut self, id: ObjectId, said: Heard) {
        if self.heard.len() < said.most() {
            self.heard.insert(id, said);
        } else if self.beyond.len() < MAX_NAMED && !said.is_loud() {
            self.beyond.insert(id);
        } else {
            self.endless = true;
        }
    }

    /// The install has only so many of them.
    pub(super) fn add_root(&mut self, home: &str, kind: Kind, live: &DynamicObject) {
        self.roots.extend(root(home, kind, live));
    }

    pub(super) fn has(&self, id: &ObjectId) -> bool {
        self.heard.contains_key(id)
    }

    fn leave_out(&mut self, newer: &Newer) {
        self.heard.retain(|id, _| !newer.has(id));
        self.roots.retain(|id, _| !newer.has(id));
        self.beyond.retain(|id| !newer.has(id));
    }

    /// Takes the place of all that was known of the kind, but for those that are over the bound, or may be among them, and those of
    /// which the watch told since. Whether that changed anything.
    pub(super) fn put(mut self, seen: &mut Observed, kind: Kind, newer: &Newer) -> bool {
        let cut = self.endless || !self.beyond.is_empty();
        self.leave_out(newer);
        let Self {
            heard: all,
            roots,
            beyond,
            endless,
        } = self;
        let listed = |id: &ObjectId| all.contains_key(id) || beyond.contains(id) || endless;
        let is_there = |id: &ObjectId| listed(id) || newer.has(id);
        let of_kind = seen.children.keys().filter(|id| id.kind == kind);
        let over: Vec<ObjectId> = of_kind.filter(|id| !is_there(id)).cloned().collect();
        let told = |id: &ObjectId| {
            let child = seen.children.get(id).map(|child| &child.fate);
            child
                .or_else(|| seen.roots.get(id))
                .filter(|_| newer.has(id))
        };
        let fate = |id: &ObjectId| {
            let listed = all.get(id).map(|h| &h.fate).or_else(|| roots.get(id));
            listed.or_else(|| told(id))
        };
        let list = List {
            kind,
            fate: &fate,
            cut,
        };
        let dying = all.iter().filter(|(_, said)| said.fate.dying);
        let end = over.iter().chain(dying.map(|(id, _)| id));
        let wishes = missed::wishes(seen, &list, end, clock::now());
        seen.roots
            .retain(|id, _| id.kind != kind || newer.lives(id));
        seen.roots.extend(roots);
        let mut changed = seen.awaited.remove(&kind);
        let was_cut = seen.cut.remove(&kind);
        seen.sources
            .retain(|id| id.kind != kind || cut || all.contains_key(id) || newer.has(id));
        for id in over {
            let wish = wishes.contains(&id);
            changed |= gone_by(seen, &id, Some(wish));
        }
        changed |= forget(seen, &beyond);
        for (id, said) in all {
            let wish = wishes.contains(&id);
            changed |= heard_by(seen, id, said, Some(wish));
        }
        // Nor had the watch room for all that it told of.
        let unknown =
            |id: &ObjectId| !seen.children.contains_key(id) && !seen.roots.contains_key(id);
        if cut || was_cut && newer.living(kind).any(|id| unknown(&id)) {
            seen.cut.insert(kind);
        }
        let now = seen.cut.contains(&kind);
        if now && !was_cut {
            warn!(
                kind = kind.as_str(),
                known = MAX_CHILDREN,
                "there are more sync objects than are looked at"
            );
        }
        changed || now != was_cut
    }
}

/// Drops what was known of objects that said something and say nothing now. Whether there were any.
fn forget(seen: &mut Observed, quiet: &BTreeSet<ObjectId>) -> bool {
    let spoke = |child: &Child| {
        let goes = child.fate.dying || child.fate.moving;
        says(child) || goes || child.fetch.is_some()
    };
    let spoke = |id: &&ObjectId| seen.children.get(*id).is_some_and(spoke);
    let former: Vec<ObjectId> = quiet.iter().filter(spoke).cloned().collect();
    for id in &former {
        let child = Arc::make_mut(&mut seen.children).remove(id);
        Arc::make_mut(&mut seen.deletions).remove(id);
        if child.is_some_and(|child| child.fate.moving) {
            burst::moved(seen, id, clock::now());
        }
    }
    !former.is_empty()
}

/// What a root means for what it brought.
fn root(home: &str, kind: Kind, live: &DynamicObject) -> Option<(ObjectId, Fate)> {
    let namespace = live.metadata.namespace.as_deref().unwrap_or_default();
    let id = ObjectId::new(kind, namespace, live.metadata.name.as_deref()?);
    let mut fate = Fate::of(home, kind, live);
    // Its own end has findings of its own, and says nothing of who deletes the others.
    fate.dying = false;
    Some((id, fate))
}

/// Takes in what the watch of sync objects tells of a root among them.
pub(in crate::agent::observe) fn heard_root(
    seen: &mut Observed,
    home: &str,
    kind: Kind,
    live: &DynamicObject,
) {
    seen.roots.extend(root(home, kind, live));
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
    let stands = said.stands(known);
    let most = most(said.is_loud() || stands.is_some());
    if known.is_none() && seen.children.len() >= most {
        return seen.cut.insert(id.kind);
    }
    // It was known for what it said, and makes room for others that say something.
    let over = seen.cut.contains(&id.kind) && seen.children.len() > most;
    if known.is_some() && over {
        Arc::make_mut(&mut seen.children).remove(&id);
        return true;
    }
    // At work again, it can be read again, and stands still no more.
    let before = || match known {
        Some(known) => Child {
            suspect: None,
            suspended: false,
            ..known.clone()
        },
        None => Child {
            trouble: said.before,
            ..Child::default()
        },
    };
    let mut child = said.child.unwrap_or_else(before);
    child.trouble = stands.or(child.trouble);
    (child.fate, child.turn, child.fetch) = (said.fate, said.turn, said.fetch);
    (child.brings, child.shard, child.pending) = (said.brings, said.shard, said.pending);
    if known == Some(&child) {
        return false;
    }
    // Each has its turn now and then, and the next look is soon enough for that.
    let (turn, fetch) = (child.turn, child.fetch);
    let (done, done_at) = (child.fate.done, child.fate.done_at);
    let changed = known.is_none_or(|known| {
        let mut known = known.clone();
        if !is_any(known.brings.as_ref()) && !is_any(child.brings.as_ref()) {
            known.brings.clone_from(&child.brings);
        }
        (known.turn, known.fetch) = (turn, fetch);
        (known.fate.done, known.fate.done_at) = (done, done_at);
        known.fate.holds.clone_from(&child.fate.holds);
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

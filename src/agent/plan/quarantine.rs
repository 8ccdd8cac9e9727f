//! Objects held back from Git: what a commit broke and the agent mended stays mended until the catalog moves on.
//!
//! A hold stands on the object itself, so it outlives the agent and its memory: [`HELD`] says what is held and why.
//! Flux leaves an object alone that carries its own annotation [`RECONCILE`] with the value `disabled`; for Argo CD
//! the Application that brings the object has to be told ([`shield`]). All else of the commit is delivered. When the
//! catalog has another commit, or somebody says so at the hub, the object is given back; sooner or later, by how often that went
//! wrong before. Once it has worked for [`PROBATION`] the hold is forgotten.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use time::{Duration, OffsetDateTime};

use super::fault::Class;
use super::find::Finding;
use super::state::{Object, Observed};
use super::steps::{Action, Step};
use crate::agent::engine::compare::{additions, drift};
use crate::agent::engine::{Install, Policy, Wanted};
use crate::bundle::ObjectId;
use crate::clock::{parse_rfc3339, rfc3339};
use crate::wire::api::EngineKind;

mod brings;
mod checks;
mod deaf;
mod dropped;
mod forsaken;
mod harm;
mod lift;
pub mod mark;
mod order;
mod removed;
pub mod root;
pub mod shield;
mod undone;
mod unreached;
mod waits;

pub use brings::{Brings, inventoried, is_near, lister};
pub use dropped::{LetGo, let_go};
pub use forsaken::{is_forsaken, may_be_ours, regained, unmarked};
pub use harm::{broken, harms, spoilt, unsettled};
pub use lift::lifts;
pub use order::unlooked;
pub use removed::{has_removed, is_at_work, is_under_way, removed};
use shield::{Owner, Shield};
pub use undone::{Undone, undone};
pub use unreached::astray;
pub use waits::{Wait, waits};

/// Flux neither applies nor prunes an object with this annotation and the value `disabled`.
pub const RECONCILE: &str = "kustomize.toolkit.fluxcd.io/reconcile";
/// What is held and why, as JSON of [`Hold`].
pub const HELD: &str = "linesman.dev/held";
/// The field manager of all that makes a hold.
pub const MANAGER: &str = "linesman-quarantine";

/// An object that has worked for this long since it was given back is as good as any.
const PROBATION: Duration = Duration::minutes(10);
const LONGEST: Duration = Duration::hours(6);
/// Characters of the reason that an object carries.
const MAX_REASON: usize = 500;

/// Why an object is, or was, held back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hold {
    /// The revision that broke it.
    pub revision: String,
    /// RFC 3339.
    pub since: String,
    pub reason: String,
    /// How many commits in a row broke it.
    pub attempt: u32,
    /// When it was given back to Git, RFC 3339; absent = it is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifted: Option<String>,
    /// The hub's last order ([`Policy::lift_before`]) that it was lifted by, or that was there before it, RFC 3339: each is obeyed
    /// once, and by what was held by then, also where the hub's clock is ahead of this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<String>,
    /// Held because it went, or would go, with a commit that removed it; it does no harm.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub removal: bool,
}

impl Hold {
    /// A first hold is lifted by the next commit; each further one doubles the wait. One that began at a time that a clock set
    /// back has yet to reach counts as begun now.
    fn until(&self, now: OffsetDateTime) -> Option<OffsetDateTime> {
        let since = parse_rfc3339(&self.since)?.min(now);
        Some(since + self.wait())
    }

    fn wait(&self) -> Duration {
        let doublings = self.attempt.checked_sub(2);
        let wait = doublings.map_or(Duration::ZERO, |n| {
            PROBATION * 2_i32.saturating_pow(n.min(10))
        });
        wait.min(LONGEST)
    }

    /// The hub's order to give back what was held by then, where this was, and it was not obeyed yet.
    fn ordered(&self, now: OffsetDateTime, policy: &Policy) -> Option<OffsetDateTime> {
        let since = parse_rfc3339(&self.since)?;
        let obeyed = self.order();
        let order = policy.lift_before?;
        // Which of both came first a clock that was set back does not tell.
        let meant = since <= order || since > now;
        (meant && obeyed.is_none_or(|obeyed| obeyed < order)).then_some(order)
    }

    fn order(&self) -> Option<OffsetDateTime> {
        self.order.as_deref().and_then(parse_rfc3339)
    }

    /// Whether the catalog's commit `seen` is a reason to give the object back.
    pub(super) fn ends(&self, now: OffsetDateTime, seen: &str) -> bool {
        let over = || self.until(now).is_some_and(|at| now >= at);
        !seen.is_empty() && seen != self.revision && over()
    }

    /// The same as begun now, where it waits and its beginning is ahead of a clock that was set back: as it is, its wait would begin
    /// anew with each look, until the clock has got there.
    pub(super) fn begun_anew(&self, now: OffsetDateTime) -> Option<Self> {
        let ahead = parse_rfc3339(&self.since).is_some_and(|since| since > now);
        (ahead && self.wait().is_positive()).then(|| Self {
            since: rfc3339(now),
            ..self.clone()
        })
    }

    fn is_recent(&self, now: OffsetDateTime) -> bool {
        parse_rfc3339(&self.since).is_some_and(|since| (now - since).abs() < PROBATION)
    }

    fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// A hold that is in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    pub hold: Hold,
    /// What applies the object from Git, and has to be kept from it.
    pub owner: ObjectId,
}

/// What an object's annotation says; none where there is none, or none of ours.
pub fn hold(live: &Object) -> Option<Hold> {
    serde_json::from_str(live.annotation(HELD)?).ok()
}

/// All that is held. What Applications remember counts for an object that lost its own word, with its former life or
/// otherwise; not where somebody put another word there, or took Argo CD's mark off as well of what left Git, and not what an
/// Application says of an object that another one brings: teams write their own.
pub fn holds(install: &Install, observed: &Observed) -> BTreeMap<ObjectId, Held> {
    let argocd = install.traits.kind == EngineKind::Argocd;
    let of_objects = install.wanted.keys().filter_map(|id| {
        let live = observed.objects.get(id)?;
        let hold = hold(live).filter(|hold| hold.lifted.is_none())?;
        let owner = owner(install, observed, id);
        let disabled = argocd || live.annotation(RECONCILE) == Some("disabled");
        disabled.then(|| (id.clone(), Held { hold, owner }))
    });
    let mut all: BTreeMap<ObjectId, Held> = of_objects.collect();
    for (owner, said) in shield::owners(install, observed) {
        for (id, hold) in &said.held {
            let live = observed.objects.get(id);
            let speaks = live.is_some_and(|live| live.annotation(HELD).is_some());
            let over = speaks || forsaken::is_free(install, observed, &said, id);
            if install.wanted.contains_key(id) && !over && brings(install, observed, owner, id) {
                all.entry(id.clone()).or_insert_with(|| Held {
                    hold: hold.clone(),
                    owner: owner.clone(),
                });
            }
        }
    }
    all
}

/// Whether the Application brings the object, or the root does, which has all of the catalog below it. Of an object that is gone, and
/// of which nobody knows who brought it, one beside the engine may.
fn brings(install: &Install, observed: &Observed, application: &ObjectId, id: &ObjectId) -> bool {
    *application == install.sync
        || match named(install, observed, id) {
            Some(owner) => owner == *application,
            None => {
                !observed.objects.contains_key(id) && application.namespace == install.namespace
            }
        }
}

/// Whether the object is as the engine last applied it from Git.
pub fn is_from_git(install: &Install, wanted: &Wanted, live: &Object) -> bool {
    wanted.git_owned && live.writer == install.traits.applier
}

/// The Application that an object names as its own, or was known to.
fn named(install: &Install, observed: &Observed, id: &ObjectId) -> Option<ObjectId> {
    let live = observed.objects.get(id).map(|live| &live.fields);
    let known = install.wanted.get(id).map(|w| w.expect.as_ref());
    let mut said = [live, known].into_iter().flatten();
    said.find_map(|fields| shield::owner(&install.namespace, fields))
}

/// What applies an object from Git, by the object or by what it was.
fn owner(install: &Install, observed: &Observed, id: &ObjectId) -> ObjectId {
    match install.traits.kind {
        EngineKind::Argocd => named(install, observed, id).unwrap_or_else(|| install.sync.clone()),
        EngineKind::Flux => brings::owner(install, observed, id),
    }
}

/// The revision that was tried last of what an object comes from.
pub fn commit(install: &Install, observed: &Observed, id: &ObjectId) -> String {
    let of = owner(install, observed, id);
    let tried = match install.traits.kind {
        EngineKind::Argocd => shield::said(install, observed, &of).map(|said| said.tried.clone()),
        EngineKind::Flux => {
            let root = || removed::tried(install, observed, &install.sync);
            removed::tried(install, observed, &of).or_else(root)
        }
    };
    tried.unwrap_or_default()
}

/// The revision that no longer has an object. Argo CD says so of the one that it looked at last, before it applies anything of it.
pub fn removal(install: &Install, observed: &Observed, id: &ObjectId) -> String {
    let seen = if install.traits.kind == EngineKind::Argocd {
        let of = owner(install, observed, id);
        shield::said(install, observed, &of).map(|said| said.seen.clone())
    } else {
        None
    };
    let seen = seen.filter(|seen| !seen.is_empty());
    seen.unwrap_or_else(|| commit(install, observed, id))
}

/// The hold on what this commit broke, or broke again.
fn again(
    now: OffsetDateTime,
    policy: &Policy,
    (revision, reason): (String, String),
    before: Option<Hold>,
) -> Hold {
    match before {
        // An operation that began before the hold wrote the same once more: no further commit broke it. Not for ever: where
        // the engine names a wrong commit, it would be lifted and held without end.
        Some(before) if before.revision == revision && before.is_recent(now) => Hold {
            lifted: None,
            ..before
        },
        before => Hold {
            revision,
            since: rfc3339(now),
            reason,
            attempt: (before.as_ref()).map_or(1, |before| before.attempt.saturating_add(1)),
            lifted: None,
            order: before
                .and_then(|before| before.order())
                .max(policy.lift_before)
                .map(rfc3339),
            removal: false,
        },
    }
}

/// What is done about an object that a commit broke: it is held back, then mended.
pub fn holding(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    finding: &Finding,
) -> Vec<(Action, ObjectId)> {
    let id = &finding.object;
    let live = observed.objects.get(id);
    let before = live.and_then(|l| hold(l));
    // One that is not in Git at all is given back when it is there again; how often that happened says nothing.
    let in_git = finding.class != Class::EngineRemovedByCommit;
    let before = before.filter(|before| in_git && !before.removal);
    let reason = brief(&finding.evidence);
    let revision = commit(install, observed, id);
    let mut hold = again(now, &install.policy, (revision, reason), before);
    hold.removal = !in_git;
    let note = hold.text();
    let mut actions = Vec::new();
    if install.traits.kind == EngineKind::Argocd && in_git {
        let owner = owner(install, observed, id);
        let mut holds = holds(install, observed);
        holds.insert(id.clone(), Held { hold, owner });
        actions.extend(shielding(install, observed, &holds));
    }
    let mend = match live {
        None => Action::CreateHeld { note: note.clone() },
        // It is as it has to be: Git does not know it, that is all.
        Some(_) if !in_git => {
            actions.push((Action::Hold { note }, id.clone()));
            return actions;
        }
        // Nothing that many clusters must not do at once.
        Some(_) if finding.class == Class::GitSecretBad => Action::WriteSecret,
        Some(live) => mend(install, id, live),
    };
    if !matches!(mend, Action::CreateHeld { .. }) {
        actions.push((Action::Hold { note }, id.clone()));
    }
    actions.push((mend, id.clone()));
    actions
}

/// Of what is too long, the engine's own words are cut first: the commit and what it changed follow them.
fn brief(evidence: &str) -> String {
    if evidence.chars().nth(MAX_REASON).is_none() {
        return evidence.to_owned();
    }
    let commit = evidence.rfind("; commit ").unwrap_or(evidence.len());
    let (why, commit) = evidence.split_at(commit);
    let commit = cut(commit, MAX_REASON / 2);
    let why = cut(why, MAX_REASON - commit.chars().count());
    why + &commit
}

/// The beginning of a text, and a sign where that is not all of it.
pub fn cut(text: &str, max: usize) -> String {
    if text.chars().nth(max).is_none() {
        return text.to_owned();
    }
    let kept: String = text.chars().take(max.saturating_sub(1)).collect();
    kept + "…"
}

/// What the commit added goes only with the whole of it.
fn mend(install: &Install, id: &ObjectId, live: &Object) -> Action {
    let Some(wanted) = install.wanted.get(id) else {
        return Action::Apply;
    };
    if wanted.known.is_some() {
        return Action::Reset;
    }
    let paths = drift(&wanted.expect, &live.fields);
    if paths.iter().any(|path| path.starts_with("/roleRef")) {
        let uid = live.uid.clone();
        return Action::Recreate { uid };
    }
    let added = additions(&wanted.whole(), &live.fields);
    if added.is_empty() && root::astray(id, live).is_empty() {
        Action::Apply
    } else {
        Action::Replace
    }
}

/// Applications that do not hold back just `holds`, the root first, then what it brings: none must undo what is then said to those
/// below it.
fn shielding(
    install: &Install,
    observed: &Observed,
    holds: &BTreeMap<ObjectId, Held>,
) -> Vec<(Action, ObjectId)> {
    let all = shield::shields(install, observed, holds);
    let before = shield::shields(install, observed, &self::holds(install, observed));
    let nothing = Shield::default();
    let differs = |id: &ObjectId, shield: &Shield, said: &Owner| {
        // The root is as what is held wants it: where it is not, it has drifted.
        let below = if *id == install.sync {
            &before.get(id).unwrap_or(&nothing).below
        } else {
            &said.below
        };
        said.held != shield.held || !said.in_force || *below != shield.below
    };
    let changed = shield::owners(install, observed).filter_map(|(id, said)| {
        let shield = all.get(id).unwrap_or(&nothing);
        let step = || (Action::Shield(shield.clone()), id.clone());
        differs(id, shield, &said).then(step)
    });
    let mut changed: Vec<(Action, ObjectId)> = changed.collect();
    changed.sort_by_cached_key(|(_, id)| shield::chain(install, observed, id).len());
    changed
}

/// What is left to do for holds that are in force or over: someone took a part away, the agent was interrupted, or the clock was set
/// back.
pub fn keeps(now: OffsetDateTime, install: &Install, observed: &Observed) -> Vec<Step> {
    let argocd = install.traits.kind == EngineKind::Argocd;
    let mut holds = holds(install, observed);
    for held in holds.values_mut() {
        // What an order gives back needs no other beginning, by which that order would not mean it.
        let waits = held.hold.ordered(now, &install.policy).is_none();
        if let Some(anew) = held.hold.begun_anew(now).filter(|_| waits) {
            held.hold = anew;
        }
    }
    let mut steps = if argocd {
        shielding(install, observed, &holds)
    } else {
        let ahead = removed::ahead(install, observed, &holds);
        ahead.map(|(action, id)| (action, id.clone())).collect()
    };
    for (id, held) in &holds {
        let Some(live) = observed.objects.get(id) else {
            continue;
        };
        let kept = !argocd || shield::is_kept(live);
        if !kept || hold(live).as_ref() != Some(&held.hold) {
            let note = held.hold.text();
            steps.push((Action::Hold { note }, id.clone()));
        }
    }
    // Another word in its place is somebody's way to end a hold.
    let ended = install.wanted.keys().filter(|id| {
        let live = observed.objects.get(*id).filter(|_| argocd);
        live.is_some_and(|l| l.annotation(HELD).is_some() && hold(l).is_none())
    });
    steps.extend(ended.map(|id| (Action::Settle, id.clone())));
    steps
        .into_iter()
        .map(|(action, id)| step(action, &id))
        .collect()
}

fn step(action: Action, target: &ObjectId) -> Step {
    Step {
        action,
        target: target.clone(),
        cause: None,
    }
}

/// When the engine's own objects were last changed from Git: a question from before that proves nothing.
pub fn changed(install: &Install, observed: &Observed) -> Option<OffsetDateTime> {
    let of = |id: &ObjectId| {
        let (live, wanted) = (observed.objects.get(id)?, install.wanted.get(id)?);
        live.written.filter(|_| is_from_git(install, wanted, live))
    };
    install.wanted.keys().filter_map(of).max()
}

#[cfg(test)]
mod tests;

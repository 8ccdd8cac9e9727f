//! A change of the engine by the hub: another bundle, other install values. What is to be done next, and whether it
//! worked. Pure.
//!
//! The agent keeps what was in force until the engine works with what is new; where it does not in its time, what
//! was comes back, and the hub is told why. Another wish of the hub begins anew.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use time::{Duration, OffsetDateTime};

use super::{Class, Finding, Mode, Object, Observed, Plan, health};
use crate::agent::engine::{self, Install};
use crate::bundle::{Bundle, Kind, ObjectId};
use crate::clock::parse_rfc3339;
use crate::manifests::ENGINE_ROLE;
use crate::wire::api::{EngineKind, EngineRef};
use crate::wire::id::Digest;

mod ailing;
mod before;
mod staged;

pub use ailing::{Ail, Ailing};
pub use before::Before;
pub use staged::{is_at_rest, is_fault, stages, waits};

/// An agent that started meanwhile looks at least this long before it judges, unless a change has less.
const LOOK: Duration = Duration::seconds(60);

/// What of an install the hub may change while it stands.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Form {
    /// Absent in what an agent wrote that knew one engine a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<EngineKind>,
    /// For people; the digest says what it is.
    pub version: String,
    pub bundle: Digest,
    /// The registry that all images come from; absent = those that the bundle names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registry: Option<String>,
    /// The Secret of the engine's namespace that they are pulled with, beside those that the bundle names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull_secret: Option<String>,
    /// The catalog's path that it follows, for when the hub names another engine's; empty = not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
}

impl PartialEq for Form {
    fn eq(&self, other: &Self) -> bool {
        (&self.bundle, &self.registry, &self.pull_secret)
            == (&other.bundle, &other.registry, &other.pull_secret)
    }
}

impl Eq for Form {}

impl Form {
    pub fn of(engine: &EngineRef) -> Self {
        Self {
            kind: Some(engine.kind),
            version: engine.version.clone(),
            bundle: engine.bundle.clone(),
            registry: engine.registry.clone(),
            pull_secret: engine.pull_secret.clone(),
            path: String::new(),
        }
    }

    #[must_use]
    pub fn following(mut self, path: &str) -> Self {
        path.clone_into(&mut self.path);
        self
    }

    /// Whether they are of two engines.
    pub fn is_another(&self, than: &Self) -> bool {
        matches!((self.kind, than.kind), (Some(one), Some(other)) if one != other)
    }

    /// For people: `flux 2.9.5 (sha256:…), images of registry.example.org, pulled with Secret regcred`.
    pub fn words(&self) -> String {
        let engine = self.kind.map_or_else(String::new, |k| format!("{k} "));
        let short = self.bundle.short();
        let images = self.registry.as_deref();
        let images = images.map_or_else(String::new, |r| format!(", images of {r}"));
        let secret = self.pull_secret.as_deref();
        let secret = secret.map_or_else(String::new, |s| format!(", pulled with Secret {s}"));
        format!("{engine}{} ({short}…){images}{secret}", self.version)
    }
}

/// A change under way, or one that was undone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// What the engine worked with last.
    pub from: Form,
    pub to: Form,
    /// The hub's number of it.
    pub number: u64,
    /// RFC 3339: when the agent began.
    pub since: String,
    /// Seconds without function after which what was before comes back.
    pub within: u32,
    /// Something of the other engine is there, or was before: nothing is pruned until all of that is settled.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub both: bool,
    /// All objects of the bundles that it went through; those that are in none that stays are ours to remove.
    pub objects: Vec<Place>,
    /// Why it was undone; absent = it is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// RFC 3339: since when the Pods of the engine that failed were waited for, where they outlived that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<String>,
}

impl Change {
    pub fn limit(&self) -> Duration {
        Duration::seconds(self.within.into())
    }

    /// Whether one engine takes the other's place.
    pub fn replaces(&self) -> bool {
        self.from.is_another(&self.to)
    }

    /// Of its two sides, the one that is not this.
    pub fn other(&self, than: &Form) -> &Form {
        if self.from == *than {
            &self.to
        } else {
            &self.from
        }
    }

    /// Whether something is left to do: it is under way, or what it brought is not gone yet.
    pub fn is_open(&self) -> bool {
        self.failed.is_none() || !self.objects.is_empty()
    }
}

/// An object's place as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place(String, String, String);

impl Place {
    pub fn of(id: &ObjectId) -> Self {
        let kind = id.kind.as_str().to_owned();
        Self(kind, id.namespace.clone(), id.name.clone())
    }

    /// None = a kind of another version of the agent.
    pub fn id(&self) -> Option<ObjectId> {
        let kind = Kind::ALL.iter().find(|k| k.as_str() == self.0)?;
        Some(ObjectId::new(*kind, &self.1, &self.2))
    }
}

/// The places of a bundle's objects.
pub fn places(bundle: &Bundle) -> impl Iterator<Item = Place> + '_ {
    bundle
        .objects
        .iter()
        .filter_map(|object| Some(Place::of(&engine::place(object.head())?)))
}

/// All that a change may leave over: what the bundles of both sides bring, with what a controller is asked with, whether
/// either has it or not: an agent of before left that behind.
pub fn all_places(sides: [&Bundle; 2], extras: &[ObjectId], known: Option<&Change>) -> Vec<Place> {
    let mut all: Vec<Place> = sides.into_iter().flat_map(places).collect();
    let canaries = sides
        .into_iter()
        .map(|b| engine::canary(b.engine, &b.namespace));
    all.extend(canaries.map(|id| Place::of(&id)));
    all.extend(extras.iter().map(Place::of));
    all.extend(known.into_iter().flat_map(|c| c.objects.iter().cloned()));
    all.sort();
    all.dedup();
    all
}

/// What is to be done about the bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    Keep,
    /// Change from `from`, which is in force or is kept as what was before.
    Begin {
        from: Form,
    },
    /// The engine of before is to stand still; then the other one takes its place.
    Switch,
    /// Put back what was before.
    Back,
    /// Nothing is left of a change that failed, and what is in force is wished: it need not be remembered any more.
    Forget,
}

/// From what the hub wants, what is in force, and the change that is remembered.
pub fn next(engine: &EngineRef, in_force: &Form, change: Option<&Change>) -> Next {
    let wanted = Form::of(engine);
    let undone = change.filter(|c| c.failed.is_some());
    if let Some(undone) = undone.filter(|c| c.to == wanted && c.number == engine.change) {
        return if *in_force == undone.from {
            Next::Keep
        } else {
            Next::Back
        };
    }
    if *in_force == wanted {
        // Wished again before it was undone, or before something else was in force, it has its time anew.
        let again = change.filter(|c| {
            let undone = c.failed.is_some();
            (undone && c.to == wanted) || (c.to != wanted && c.from != wanted)
        });
        let begin = |c: &Change| Next::Begin {
            from: c.from.clone(),
        };
        let rest = if change.is_some_and(|c| !c.is_open()) {
            Next::Forget
        } else {
            Next::Keep
        };
        return again.map_or(rest, begin);
    }
    let begun = change.filter(|c| c.failed.is_none() && c.to == wanted);
    if begun.is_some_and(|c| c.number == engine.change && in_force.is_another(&wanted)) {
        return Next::Switch;
    }
    // What was never seen to work is nothing to go back to.
    let from = change.map_or(in_force, |c| &c.from);
    Next::Begin { from: from.clone() }
}

/// Whether the engine in force may take away what the catalog no longer has: not before it has taken another one's
/// place, or has it back.
pub fn prunes(change: Option<&Change>) -> bool {
    !change.is_some_and(|c| c.both && c.is_open())
}

/// Whether a change of what is in force has to do with both engines.
pub fn is_of_both(from: &Form, in_force: &Form, to: &Form, known: Option<&Change>) -> bool {
    let left = known.is_some_and(|c| c.both && c.is_open());
    from.is_another(to) || in_force.is_another(to) || left
}

/// The catalog's path that an engine of this kind is to follow: what it follows, or did before the change that is known began, for an engine
/// that is led elsewhere prunes what that place lacks. Only one that comes new follows what the hub `named`.
pub fn follows<'a>(
    kind: EngineKind,
    in_force: &'a Form,
    change: Option<&'a Change>,
    named: &'a str,
) -> &'a str {
    let before = change.map(|change| &change.from);
    let known = [Some(in_force), before].into_iter().flatten();
    let mut known = known.filter(|form| form.kind == Some(kind) && !form.path.is_empty());
    known.next().map_or(named, |form| form.path.as_str())
}

/// Whether the engine in force has to stand still, because the other one takes its place.
pub fn rests(next: &Next, in_force: &Form, change: Option<&Change>) -> bool {
    match next {
        Next::Switch => true,
        Next::Back => change.is_some_and(|c| in_force.is_another(&c.from)),
        Next::Keep | Next::Begin { .. } | Next::Forget => false,
    }
}

/// Whether the change is one to judge: not one back to what worked.
pub fn is_judged(change: &Change) -> bool {
    change.failed.is_none() && change.from != change.to
}

/// How far a change has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// What is left, for people.
    Going(String),
    /// All is as wanted and every controller runs so, but none was asked yet.
    Rolled,
    Failed(String),
}

/// What the watchdog knows of a change.
pub struct Seen<'a> {
    pub now: OffsetDateTime,
    /// Since when this agent follows it.
    pub followed: OffsetDateTime,
    /// When nothing could be done about it last, or all of it waited.
    pub held: Option<OffsetDateTime>,
    pub install: &'a Install,
    pub observed: &'a Observed,
    pub plan: &'a Plan,
    pub ailing: &'a Ailing,
    /// The engine worked before: there is something to go back to.
    pub adopted: bool,
}

/// What is not as a change wants it yet, or fails. A root that somebody stopped is neither: its controller answers for it all the same.
pub fn left<'a>(
    install: &Install,
    observed: &Observed,
    findings: &'a [Finding],
    ailing: &Ailing,
) -> impl Iterator<Item = &'a Finding> {
    findings.iter().filter(move |f| {
        let apart = f.class.is_beside() || f.class == Class::SuspendedByHuman;
        install.wanted.contains_key(&f.object) && !apart && !ailing.knows(observed, f)
    })
}

/// Judges the install, not yet its function.
pub fn progress(change: &Change, seen: &Seen<'_>) -> Progress {
    let left = left(
        seen.install,
        seen.observed,
        &seen.plan.findings,
        seen.ailing,
    );
    let left: Vec<&Finding> = left.collect();
    let rolls = seen.install.workloads().find(|id| {
        let live = seen.observed.objects.get(*id);
        !live.is_some_and(|live| is_rolled(live))
    });
    let going = match (left.first(), rolls) {
        (Some(first), _) => format!(
            "{} objects differ or fail, {} {}",
            left.len(),
            first.object,
            first.evidence
        ),
        (None, Some(id)) => format!("{id} is not rolled out"),
        (None, None) => return Progress::Rolled,
    };
    if is_late(change, seen) {
        Progress::Failed(going)
    } else {
        Progress::Going(going)
    }
}

/// Since when the engine works as a change wants it, once that is [`Progress::Rolled`]. A root that fails of the catalog as it did before
/// comes no further in any version: it is enough that it answers.
pub fn works_since(seen: &Seen<'_>) -> Option<OffsetDateTime> {
    let (install, observed) = (seen.install, seen.observed);
    if let Some(at) = health::proven_since(install, observed) {
        return Some(at);
    }
    let known = seen.plan.findings.iter();
    let known = known.filter(|f| seen.ailing.knows(observed, f));
    let known: BTreeSet<&ObjectId> = known.map(|f| &f.object).collect();
    if known.is_empty() {
        return None;
    }
    let answered = |id: &ObjectId| {
        let live = observed.objects.get(id)?;
        let probe = live.probe().filter(|probe| probe.answered)?;
        let says = live.is_true("Ready") || known.contains(id);
        (says && live.deleting.is_none()).then_some(probe.sent)
    };
    let answered: Option<Vec<OffsetDateTime>> = install.roots().map(answered).collect();
    let all_work = health::workloads_work(install, observed);
    answered?.into_iter().min().filter(|_| all_work)
}

/// Whether its time is over. None passes while nothing may be done, or where there is nothing to go back to.
pub fn is_late(change: &Change, seen: &Seen<'_>) -> bool {
    let began = parse_rfc3339(&change.since).unwrap_or(seen.followed);
    let limit = change.limit();
    let ends = (began + limit).max(seen.followed + limit.min(LOOK));
    let ends = seen.held.map_or(ends, |held| ends.max(held + limit));
    let acts = seen.plan.mode == Mode::Act;
    acts && seen.adopted && is_judged(change) && seen.now >= ends
}

/// Every Pod of a workload is of the present template and available.
fn is_rolled(live: &Object) -> bool {
    let count = |name: &str| live.number(&format!("/status/{name}"));
    count("observedGeneration") >= live.generation
        && count("updatedReplicas") >= 1
        && count("availableReplicas") >= 1
        && count("updatedReplicas") == count("replicas")
        && count("unavailableReplicas") == 0
}

/// What the form in force has no use for, in the order in which it goes: the reverse of an install's.
pub fn surplus(change: &Change, install: &Install) -> Vec<ObjectId> {
    let ours = |id: &ObjectId| !install.wanted.contains_key(id) && !id.kind.holds_others();
    let mut ids: Vec<ObjectId> = change.objects.iter().filter_map(Place::id).collect();
    ids.retain(ours);
    // With the agent's own rights go those to remove the rest.
    let last = |id: &ObjectId| id.kind == Kind::RoleBinding && id.name == ENGINE_ROLE;
    ids.sort_by(|a, b| {
        let order = last(a).cmp(&last(b));
        order.then_with(|| (b.kind.stage(), b).cmp(&(a.kind.stage(), a)))
    });
    ids.dedup();
    ids
}

#[cfg(test)]
mod tests;

//! What the cascade guard itself took from the engine is given back when nothing dies any more: also where nothing else is
//! mended, as in a maintenance window, beside another manager, or while the API server does not tell of some other kind.
//! See `docs/decisions/0025-deleted-in-numbers.md`.

use std::collections::BTreeSet;

use time::OffsetDateTime;

use super::fault::Class;
use super::find::{self, FRESH, Finding, known, prunes};
use super::pace::allowed;
use super::state::{Answer, History, Object, Observed};
use super::steps::{self, Action, Step, guarded_down};
use super::{Mode, window};
use crate::agent::engine::Install;
use crate::bundle::{Kind, ObjectId};

/// Whether the guard has taken anything that is not back.
pub(super) fn is_due(install: &Install, observed: &Observed, history: &History) -> bool {
    let stopped = install.workloads().any(|id| guarded_down(observed, id));
    stopped || !history.cut.is_empty()
}

/// The kinds of sync objects that would prune, of which no list has come yet.
pub(super) fn unread(install: &Install, observed: &Observed) -> impl Iterator<Item = Kind> {
    let prunes = move |kind: &Kind| {
        let crd = ObjectId::crd_of(*kind);
        install.traits.pruning_crds.contains(&crd.name.as_str())
    };
    observed.awaited.iter().copied().filter(prunes)
}

/// Whether an object by which the engine prunes is not given to it yet: some of what it would prune for may be dying, be it that the
/// guard of an agent before this one let none of that go. Where nothing tells of such a guard, only a right that is missing may be its
/// doing, and a list that is refused, or not answered for long, is not waited for.
pub(super) fn waits(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    history: &History,
    id: &ObjectId,
) -> bool {
    let traits = install.traits;
    let name = id.name.as_str();
    let right = id.kind == Kind::ClusterRoleBinding && traits.rights.contains(&name);
    let pruner = id.namespace == install.namespace && traits.pruners.contains(&(id.kind, name));
    if !right && !pruner || unread(install, observed).next().is_none() {
        return false;
    }
    let missing = right && history.adopted && !observed.objects.contains_key(id);
    is_due(install, observed, history) || missing && !is_late(now, observed)
}

fn is_late(now: OffsetDateTime, observed: &Observed) -> bool {
    observed.since.is_some_and(|since| now - since > FRESH)
}

/// When a list that does not come may be waited for no longer; none = none is waited for, or that is over.
pub(super) fn waits_until(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
) -> Option<OffsetDateTime> {
    unread(install, observed).next()?;
    let over = observed.since? + FRESH + time::Duration::MILLISECOND;
    (over > now).then_some(over)
}

/// The end of what the guard began, where all else is left alone.
pub(super) fn steps(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    history: &History,
    (mode, findings): (Mode, &[Finding]),
) -> Vec<Step> {
    if observed.gate.is_shut() || !is_due(install, observed, history) {
        return Vec::new();
    }
    if findings.iter().any(|f| prunes(install, f)) {
        return match mode {
            Mode::ObserveOnly => releases(now, install, observed, history, findings),
            Mode::Act | Mode::Learning | Mode::Paused(_) => Vec::new(),
        };
    }
    // That nothing dies is a verdict on these, and on the sync objects.
    let mut holders = Kind::ALL.into_iter().filter(|kind| kind.holds_others());
    let told = holders.all(|kind| is_told(now, observed, kind));
    if !told || observed.awaited.iter().any(|kind| !kind.is_source()) {
        return Vec::new();
    }
    let absent = rights(install, observed, history);
    let absent = absent.into_iter().map(|id| (Action::Create, id));
    let stopped = install.workloads().filter(|id| guarded_down(observed, id));
    let stopped = stopped.map(|id| (start(install, id), id.clone()));
    let all = absent.chain(stopped);
    let mut steps: Vec<Step> = all
        .filter(|(_, id)| is_told(now, observed, id.kind))
        .filter_map(|(action, id)| paced(now, install, history, action, id))
        .collect();
    // What it let go comes back where the CRD is there; a CRD that somebody deleted is not the guard's to bring.
    if matches!(mode, Mode::Paused(_)) {
        steps.extend(steps::restores(now, install, observed, history));
    }
    steps
}

/// In a window of its own, a controller is started all the same.
pub(super) fn held(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    history: &History,
    findings: &[Finding],
) -> Vec<Step> {
    let mut all = steps(now, install, observed, history, (Mode::Act, findings));
    all.retain(|step| {
        matches!(step.action, Action::Start { .. }) && window::rests(now, observed, &step.target)
    });
    all
}

/// Without its rights the engine lets nothing go: what dies would do so for ever. Nothing more is taken from it.
fn releases(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    history: &History,
    findings: &[Finding],
) -> Vec<Step> {
    let dying = findings.iter().filter(|f| find::dies(f));
    let crds: BTreeSet<ObjectId> = dying
        .flat_map(|f| steps::releases(install, observed, f))
        .collect();
    let all = crds.into_iter();
    all.filter_map(|crd| paced(now, install, history, Action::Release, crd))
        .collect()
}

fn paced(
    now: OffsetDateTime,
    install: &Install,
    history: &History,
    action: Action,
    target: ObjectId,
) -> Option<Step> {
    let key = (Class::CrdTerminating, target.clone());
    let past = history.faults.get(&key).cloned().unwrap_or_default();
    let at = allowed(key.0, &target, &past, &install.cluster, now);
    at.is_some_and(|at| at <= now).then_some(Step {
        action,
        target,
        cause: Some(key),
    })
}

fn is_told(now: OffsetDateTime, observed: &Observed, kind: Kind) -> bool {
    known(now, observed, kind) && find::answer(observed, kind) == Answer::Whole
}

/// The rights that the guard took and that nobody gave back. It stops no controller before it has cut them, so one that it
/// has stopped says so, too.
fn rights(install: &Install, observed: &Observed, history: &History) -> Vec<ObjectId> {
    let stopped = install.workloads().any(|id| guarded_down(observed, id));
    let all = install.traits.rights.iter();
    let all = all.map(|name| ObjectId::new(Kind::ClusterRoleBinding, "", name));
    let all = all.filter(|id| install.wanted.contains_key(id));
    all.filter(|id| stopped || history.cut.contains_key(id))
        .filter(|id| !observed.objects.contains_key(id))
        .collect()
}

fn start(install: &Install, id: &ObjectId) -> Action {
    let wanted = install.wanted.get(id);
    let replicas = wanted.and_then(|w| w.expect.pointer("/spec/replicas")?.as_i64());
    Action::Start {
        replicas: replicas.unwrap_or(1).max(1),
    }
}

impl History {
    /// Forgets rights that are back, whoever gave them, and those of an engine that another one has replaced: nobody gives these back.
    pub(super) fn saw_rights(&mut self, install: &Install, observed: &Observed) {
        let is_back = |live: &Object, uid: &str| live.deleting.is_none() && live.uid != uid;
        self.cut.retain(|id, uid| {
            let live = observed.objects.get(id);
            install.wanted.contains_key(id) && !live.is_some_and(|live| is_back(live, uid))
        });
        let all = install.traits.rights.iter();
        let all = all.map(|name| ObjectId::new(Kind::ClusterRoleBinding, "", name));
        let mut all = all.filter(|id| install.wanted.contains_key(id));
        self.had_rights |= all.all(|id| {
            let live = observed.objects.get(&id);
            live.is_some_and(|live| live.deleting.is_none())
        });
    }
}

#[cfg(test)]
mod tests;

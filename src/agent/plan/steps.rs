//! What is done about what is wrong: the steps that are allowed now, in the order in which they are safe.

use std::sync::Arc;

use time::OffsetDateTime;

use super::fault::{Class, Key};
use super::find::{self, Finding, dies, prunes};
use super::pace::allowed;
use super::quarantine::{self, root};
use super::state::{History, Object, Observed, Past};
use super::undecodable::aside;
use super::{account, displaced, full, giveback};
use crate::agent::engine::compare::{additions, drift};
use crate::agent::engine::{GUARD, Install, is_workload};
use crate::bundle::{Kind, ObjectId};
use crate::wire::api::EngineKind;

mod action;
mod stages;

pub use action::{Action, Step};
use stages::{asks_signers, ready_for};

/// Steps for the findings, and when the next one that has to wait becomes possible.
pub fn steps(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    history: &History,
    findings: &[Finding],
) -> (Vec<Step>, Option<OffsetDateTime>) {
    let mut steps = Vec::new();
    let mut next = giveback::waits_until(now, install, observed);
    let guarded = findings.iter().any(|f| prunes(install, f));
    for finding in findings.iter().filter(|f| !f.reported && !f.recalled) {
        let key = if guarded_down(observed, &finding.object) {
            (Class::CrdTerminating, finding.object.clone())
        } else {
            (finding.class, finding.object.clone())
        };
        let fresh = Past::default();
        let past = history.faults.get(&key).unwrap_or(&fresh);
        let Some(at) = allowed(key.0, &finding.object, past, &install.cluster, now) else {
            continue;
        };
        if at > now {
            next = Some(next.map_or(at, |n| n.min(at)));
            continue;
        }
        let actions = if guarded || dies(finding) {
            guard(install, observed, finding)
        } else {
            remedy(now, install, (observed, history), (finding, past))
        };
        steps.extend(actions.into_iter().map(|(action, target)| Step {
            action: cleared(observed, history, action, &target),
            target,
            cause: Some(key.clone()),
        }));
    }
    if !guarded {
        steps.extend(restores(now, install, observed, history));
    }
    let mut done: Vec<Step> = Vec::new();
    for step in steps {
        let twin = |s: &Step| s.action == step.action && s.target == step.target;
        if !done.iter().any(twin) {
            done.push(step);
        }
    }
    (done, next)
}

/// A workload that the API server calls invalid as it would be once it is applied may be so by what somebody else put there: a
/// volume has one source, a variable one value, and to apply takes nothing away that others added. Then it is replaced.
fn cleared(observed: &Observed, history: &History, action: Action, target: &ObjectId) -> Action {
    let refused = history.refused.get(target).is_some_and(|r| r.failures > 0);
    let is_there = is_workload(target.kind) && observed.objects.contains_key(target);
    match action {
        Action::Apply | Action::Reinstate { .. } if refused && is_there => Action::Replace,
        action => action,
    }
}

/// Whether it was the guard that stopped this controller. Starting it again is the end of the guard's own work, and
/// counts as that: no budget of another repair may keep it from it.
pub(super) fn guarded_down(observed: &Observed, id: &ObjectId) -> bool {
    let live = observed.objects.get(id);
    is_workload(id.kind)
        && live.is_some_and(|live| live.writer == GUARD && live.number("/spec/replicas") == 0)
}

/// Objects that died with their CRD come back as soon as it serves again.
pub(super) fn restores<'a>(
    now: OffsetDateTime,
    install: &'a Install,
    observed: &'a Observed,
    history: &'a History,
) -> impl Iterator<Item = Step> + 'a {
    let crds = history.saved.keys().filter(move |crd| {
        let served = observed
            .objects
            .get(*crd)
            .is_some_and(|c| c.is_true("Established"));
        let due = history.restore_after.get(*crd).is_none_or(|at| now >= *at);
        served && due && ready_for(now, install, observed, &install.secret)
    });
    crds.map(|crd| Step {
        action: Action::Restore,
        target: crd.clone(),
        cause: Some((Class::CrdTerminating, crd.clone())),
    })
}

/// Findings with spent budgets: nothing but an hourly trial happens, a person has to look.
pub fn open_circuits(history: &History, findings: &[Finding]) -> Vec<Key> {
    let keys = findings.iter().map(|f| (f.class, f.object.clone()));
    keys.filter(|key| history.faults.get(key).is_some_and(|past| past.spent))
        .collect()
}

/// While a Namespace or CRD dies: rights first, so that no controller prunes what its objects brought, then what
/// holds the deletion up. Rights and controllers come back with all else when it is gone.
fn guard(install: &Install, observed: &Observed, finding: &Finding) -> Vec<(Action, ObjectId)> {
    let mut actions = Vec::new();
    if prunes(install, finding) {
        for name in install.traits.rights {
            let id = ObjectId::new(Kind::ClusterRoleBinding, "", name);
            if let Some(live) = observed.objects.get(&id).filter(|o| o.deleting.is_none()) {
                actions.push((
                    Action::CutRights {
                        uid: live.uid.clone(),
                    },
                    id,
                ));
            }
        }
        for (kind, name) in pruners(install, observed) {
            let id = ObjectId::new(*kind, &install.namespace, name);
            let runs = |o: &&Arc<Object>| o.deleting.is_none() && o.number("/spec/replicas") > 0;
            if observed.objects.get(&id).as_ref().is_some_and(runs) {
                actions.push((Action::ScaleToZero, id));
            }
        }
    }
    let released = releases(install, observed, finding).into_iter();
    actions.extend(released.map(|id| (Action::Release, id)));
    actions
}

/// The CRDs whose dying objects are let go, for what is being deleted.
pub(super) fn releases(install: &Install, observed: &Observed, finding: &Finding) -> Vec<ObjectId> {
    match finding.class {
        Class::CrdTerminating | Class::SyncObjectsDeleted => vec![finding.object.clone()],
        Class::NamespaceTerminating => {
            let crds = install.crds().into_iter();
            crds.filter(|id| observed.objects.contains_key(id))
                .collect()
        }
        Class::ObjectMissing
        | Class::ServiceAccountMissing
        | Class::ScaledToZero
        | Class::BadImage
        | Class::RegistryDown
        | Class::CrashLoop
        | Class::ConfigRefMissing
        | Class::OomKilled
        | Class::HalfRolled
        | Class::ReadyButUseless
        | Class::EventSinkMissing
        | Class::QueueWedged
        | Class::LeaderStuck
        | Class::ApiUnhealthy
        | Class::CrdMissing
        | Class::CrdStoredVersion
        | Class::UndecodableObject
        | Class::RbacAltered
        | Class::NamespaceMissing
        | Class::LeftoverFinalizers
        | Class::RootDeleted
        | Class::GitSecretBad
        | Class::HostKeyMismatch
        | Class::KeyRevoked
        | Class::GitUnreachable
        | Class::SourceAltered
        | Class::SuspendedByHuman
        | Class::SignatureFailed
        | Class::ArtifactLost
        | Class::ArtifactUnreachable
        | Class::PolicyBlocks
        | Class::WebhookBlocks
        | Class::QuotaBlocks
        | Class::PodSecurityBlocks
        | Class::Unschedulable
        | Class::BuildFailed
        | Class::ApplyFailed
        | Class::HealthCheckFailed
        | Class::DependencyNotReady
        | Class::PathMissing
        | Class::BadEngineCommit
        | Class::EngineRemovedByCommit
        | Class::EngineUpgradeStuck
        | Class::ForeignManager
        | Class::TwoInstalls
        | Class::ClockSkew
        | Class::AgentDrift
        | Class::AgentLost
        | Class::DuplicateAgent
        | Class::ProjectMissing
        | Class::EngineSecretMissing
        | Class::EngineConfigBroken
        | Class::OperationStuck
        | Class::RedisDown
        | Class::KubernetesUnsupported
        | Class::PodSuperseded
        | Class::ObjectAltered
        | Class::NotAvailable => Vec::new(),
    }
}

/// The controllers that would prune now: Argo CD's only for an Application that says so, and else stay at work,
/// where all of them are known.
fn pruners(install: &Install, observed: &Observed) -> &'static [(Kind, &'static str)] {
    let idle = install.traits.kind == EngineKind::Argocd
        && !observed.cut.contains(&Kind::Application)
        && !observed.children.values().any(|child| child.prunes);
    if idle { &[] } else { install.traits.pruners }
}

/// The step against one finding, if what it stands on is there.
#[expect(
    clippy::too_many_lines,
    reason = "an arm for each class, so that a new one is noticed here"
)]
fn remedy(
    now: OffsetDateTime,
    install: &Install,
    (observed, history): (&Observed, &History),
    (finding, past): (&Finding, &Past),
) -> Vec<(Action, ObjectId)> {
    let id = &finding.object;
    let waits = || giveback::waits(now, install, observed, history, id);
    if !ready_for(now, install, observed, id) || waits() {
        return Vec::new();
    }
    let live = observed.objects.get(id);
    let one = |action| vec![(action, id.clone())];
    let displaced = live.map_or_else(Vec::new, |live| displaced::of(install, id, live));
    match finding.class {
        Class::ServiceAccountMissing => match live.and_then(|l| l.created) {
            Some(made) => {
                let sound = account::sound_from(now, id, observed, history);
                let before = sound.unwrap_or(made);
                one(Action::RestartPods { before })
            }
            None => one(Action::Create),
        },
        Class::SourceAltered | Class::GitSecretBad if !finding.commit.is_empty() => {
            quarantine::holding(now, install, observed, finding)
        }
        Class::GitSecretBad | Class::EngineSecretMissing if install.wanted.contains_key(id) => {
            match id.kind {
                // The root says so; its Secrets have findings of their own.
                Kind::Application => Vec::new(),
                _ => one(Action::WriteSecret),
            }
        }
        Class::ObjectMissing | Class::CrdMissing | Class::NamespaceMissing | Class::RootDeleted => {
            one(Action::Create)
        }
        Class::ProjectMissing if live.is_none() => one(Action::Create),
        // Whose signature counts is the hub's word also while only what is missing is put back, as the keys are.
        Class::ProjectMissing if !asks_signers(install, observed, id) => one(Action::WriteSecret),
        Class::BadEngineCommit | Class::EngineUpgradeStuck | Class::EngineRemovedByCommit => {
            quarantine::holding(now, install, observed, finding)
        }
        Class::SourceAltered if live.is_some_and(|l| !root::astray(id, l).is_empty()) => {
            one(Action::Replace)
        }
        Class::OperationStuck => one(Action::Terminate),
        Class::ArtifactLost => full::against(now, install, observed, finding, past),
        Class::Unschedulable => one(Action::DropFailed),
        Class::UndecodableObject => aside::against(now, install, observed, id),
        Class::CrdStoredVersion => match find::storage(install, observed, id) {
            Some(to) => one(Action::Migrate {
                to,
                named: find::named(install, observed, id),
            }),
            None => Vec::new(),
        },
        Class::RedisDown => one(Action::RestartPods { before: now }),
        Class::PodSuperseded => one(Action::DropSuperseded),
        Class::LeaderStuck => match observed.lease(id) {
            Some(lease) => one(Action::FreeLease {
                name: observed.lease_name(id),
                uid: lease.uid.clone(),
            }),
            None => Vec::new(),
        },
        // To apply leaves in the guard policy what others added, and what they added may be all that it takes to switch it off.
        Class::ObjectAltered if id.kind.optional() && finding.is_at("/spec") => {
            one(Action::Replace)
        }
        Class::ObjectAltered if finding.is_at(account::TOKEN) => one(Action::Replace),
        class if removes(class) && !displaced.is_empty() => {
            one(Action::Reinstate { items: displaced })
        }
        // To apply takes nothing away that others added.
        class if removes(class) && live.is_some_and(|l| added(install, id, l)) => {
            one(Action::Replace)
        }
        Class::EngineConfigBroken if live.is_some_and(|l| others_keys(install, id, l)) => {
            one(Action::Reset)
        }
        // `roleRef` cannot be changed.
        Class::RbacAltered if finding.is_at("/roleRef") => {
            let recreate = |l: &Arc<Object>| one(Action::Recreate { uid: l.uid.clone() });
            live.map(recreate).unwrap_or_default()
        }
        Class::ScaledToZero
        | Class::ProjectMissing
        | Class::EngineConfigBroken
        | Class::BadImage
        | Class::ReadyButUseless
        | Class::EventSinkMissing
        | Class::SourceAltered
        | Class::RbacAltered
        | Class::ObjectAltered => one(Action::Apply),
        Class::QueueWedged => vec![(Action::RestartPods { before: now }, install.controller(id))],
        Class::LeftoverFinalizers => match live.map(|l| (l, without_ours(install, l))) {
            Some((live, keep)) if keep.len() < live.finalizers.len() => one(Action::Unpin { keep }),
            _ => Vec::new(),
        },
        // Fields that are as wanted cannot be mended by applying them again.
        Class::CrashLoop
        | Class::OomKilled
        | Class::NotAvailable
        | Class::HalfRolled
        | Class::TwoInstalls
        | Class::ClockSkew
        | Class::CrdTerminating
        | Class::SyncObjectsDeleted
        | Class::NamespaceTerminating
        | Class::RegistryDown
        | Class::ConfigRefMissing
        | Class::ApiUnhealthy
        | Class::HostKeyMismatch
        | Class::KeyRevoked
        | Class::GitUnreachable
        | Class::PolicyBlocks
        | Class::AgentDrift
        | Class::AgentLost
        | Class::DuplicateAgent
        | Class::KubernetesUnsupported
        | Class::SuspendedByHuman
        | Class::SignatureFailed
        | Class::ArtifactUnreachable
        | Class::WebhookBlocks
        | Class::QuotaBlocks
        | Class::PodSecurityBlocks
        | Class::BuildFailed
        | Class::ApplyFailed
        | Class::HealthCheckFailed
        | Class::DependencyNotReady
        | Class::PathMissing
        | Class::GitSecretBad
        | Class::EngineSecretMissing
        | Class::ForeignManager => Vec::new(),
    }
}

/// The finalizers that are not the engine's.
fn without_ours(install: &Install, live: &Object) -> Vec<String> {
    let ours = |f: &&String| install.traits.is_finalizer(f);
    let others = live.finalizers.iter().filter(|f| !ours(f));
    others.cloned().collect()
}

/// Whether it is other people's keys that differ, and not ours.
fn others_keys(install: &Install, id: &ObjectId, live: &Object) -> bool {
    install.wanted.get(id).is_some_and(|wanted| {
        wanted.known.is_some() && drift(&wanted.expect, &live.fields).is_empty()
    })
}

/// Whether a fault of a controller may be what others added to it.
fn removes(class: Class) -> bool {
    matches!(
        class,
        Class::ObjectAltered | Class::BadImage | Class::ReadyButUseless | Class::EventSinkMissing
    )
}

/// Whether nothing but what others added is not as wanted. One that stands still is started as it is.
fn added(install: &Install, id: &ObjectId, live: &Object) -> bool {
    let runs = live.number("/spec/replicas") > 0;
    install.wanted.get(id).is_some_and(|wanted| {
        runs && drift(&wanted.expect, &live.fields).is_empty()
            && find::still_pulls(wanted, live).is_empty()
            && !additions(&wanted.whole(), &live.fields).is_empty()
    })
}

#[cfg(test)]
mod tests;

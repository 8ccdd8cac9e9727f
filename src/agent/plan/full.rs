//! What was fetched and cannot be stored. source-controller and Argo CD's repo-server keep it in volumes that live as long
//! as their Pod, and kustomize-controller unpacks it in one: asked again they may find room, and where there is none only
//! another Pod has an empty volume.
//!
//! The volume of what fetches may hold the only copy of it, and is given up only where everything can be fetched again.

use time::{Duration, OffsetDateTime};

use super::argocd;
use super::fault::Class;
use super::find::Finding;
use super::state::{Object, Observed, Past};
use super::steps::Action;
use crate::agent::engine::Install;
use crate::agent::engine::argocd::REPO_SERVER;
use crate::bundle::{Kind, ObjectId};

/// What a controller that was asked again has for an answer, before the next attempt.
pub(super) const PATIENCE: Duration = Duration::seconds(60);
/// An attempt of longer ago is one against another fault.
const EPISODE: Duration = Duration::minutes(15);
/// In the words of the operating system, which Go begins with a small letter, and `git` with a large one.
const FULL: &str = "no space left";

/// Whether this says that a volume is full.
pub(super) fn says_so(message: &str) -> bool {
    message.to_ascii_lowercase().contains(FULL)
}

/// The step against it: the question first, another Pod where the answer was the same.
pub(super) fn against(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    finding: &Finding,
    past: &Past,
) -> Vec<(Action, ObjectId)> {
    let root = &finding.object;
    let asked = past.attempts.last().is_some_and(|at| now - *at < EPISODE);
    if !asked || !says_so(&finding.evidence) {
        return vec![(Action::Nudge, root.clone())];
    }
    let Some(live) = observed.objects.get(root) else {
        return Vec::new();
    };
    let answered = live.probe().is_some_and(|probe| probe.answered);
    // What kustomize-controller unpacked source-controller has.
    let is_copied = root.kind == Kind::Kustomization;
    if answered && (is_copied || can_fetch_again(observed, live)) {
        return vec![(Action::RestartPods { before: now }, keeper(install, root))];
    }
    Vec::new()
}

/// Whether the agent reads the catalog with the same key, and the root complains of nothing that would keep a new Pod from it.
fn can_fetch_again(observed: &Observed, live: &Object) -> bool {
    let mut complaints = argocd::faults(live);
    let kept_away = complaints.any(|(class, _)| {
        matches!(
            class,
            Class::GitUnreachable | Class::KeyRevoked | Class::HostKeyMismatch
        )
    });
    observed.own_look.read().is_some() && !kept_away
}

/// Who keeps what this root needs.
fn keeper(install: &Install, root: &ObjectId) -> ObjectId {
    match root.kind {
        Kind::Application => ObjectId::new(Kind::Deployment, &install.namespace, REPO_SERVER),
        _ => install.controller(root),
    }
}

#[cfg(test)]
mod tests;

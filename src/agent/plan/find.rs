//! What is wrong: observed against wanted. Each finding stands for itself; what is done about it, and when, is
//! decided by `steps`.

use std::collections::BTreeSet;

use time::{Duration, OffsetDateTime};

use super::evidence::lacks_a_branch;
use super::exits;
use super::fault::Class;
use super::server::Symptoms;
use super::state::{Answer, History, Object, Observed, Past};
use super::{
    account, burst, children, evidence, foreign, giveback, health, latent, quarantine, redis,
    scene, witness,
};
use crate::agent::engine::argocd::{KEYRING, KNOWN_HOSTS, REDIS, REPOSITORY, SESSION};
use crate::agent::engine::flux::{self, SIGNERS};
use crate::agent::engine::{Install, MANAGER};
use crate::bundle::{Kind, ObjectId};
use crate::wire::api::EngineKind;

mod altered;
mod outdated;
mod stopped;
mod syncwindows;
mod values;

use altered::altered;
pub(super) use altered::{DOWN, still_pulls, storage};
pub use outdated::Named;
pub(super) use outdated::named;
use outdated::outdated;
pub use stopped::as_stopped;

/// An absence counts only if the API server was heard of that kind this recently.
pub(super) const FRESH: Duration = Duration::seconds(90);

/// An object that goes again this soon after it was made went for the same reason.
const AGAIN: Duration = Duration::minutes(5);

/// One thing that is wrong with one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub class: Class,
    pub object: ObjectId,
    /// What was seen, for people. No decision goes by words of ours.
    pub evidence: String,
    /// The fields that are not as wanted, where it is about some.
    pub paths: Vec<String>,
    /// Who wrote the bad version, where known.
    pub writer: String,
    /// The catalog revision that brought it, where it is known to come from Git.
    pub commit: String,
    /// When it broke, as far as the cluster tells.
    pub fault_at: Option<OffsetDateTime>,
    /// No step against it is safe here, whatever is done about others of its class.
    pub reported: bool,
    /// It was said before the try that is under way, which may show that it is over: it is there, and nothing is done about it.
    pub recalled: bool,
}

impl Finding {
    pub fn new(class: Class, object: &ObjectId, evidence: impl Into<String>) -> Self {
        Self {
            class,
            object: object.clone(),
            evidence: evidence.into(),
            paths: Vec::new(),
            writer: String::new(),
            commit: String::new(),
            fault_at: None,
            reported: false,
            recalled: false,
        }
    }

    /// What a person does about it; empty where there is nothing to do.
    pub fn advice(&self) -> &'static str {
        if self.class == Class::GitUnreachable && lacks_a_branch(&self.evidence) {
            return "push the branch to that repository again: clusters follow the one that the message names";
        }
        self.class.advice()
    }

    /// It is about these fields.
    pub(super) fn at(mut self, paths: Vec<String>) -> Self {
        self.paths = paths;
        self
    }

    /// Whether a field at `path`, or below it, is not as wanted.
    pub(super) fn is_at(&self, path: &str) -> bool {
        let below = |at: &String| {
            let rest = at.strip_prefix(path);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.paths.iter().any(below)
    }

    pub(super) fn brought_by(mut self, commit: String) -> Self {
        self.commit = commit;
        self
    }

    /// Our own last write is not what broke it: then neither writer nor time is known.
    pub(super) fn written_by(mut self, live: &Object) -> Self {
        if live.writer == MANAGER {
            return self;
        }
        self.writer.clone_from(&live.writer);
        self.fault_at = live.written;
        self
    }
}

/// All that is wrong now, in the order of the install's stages.
pub fn find(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    history: &History,
) -> Vec<Finding> {
    let mut found = terminating(install, observed);
    let foreign = foreign::foreign(now, install, observed, history);
    // What the guard has begun goes on to its end.
    if foreign.is_none() || giveback::is_due(install, observed, history) {
        found.extend(burst::found(now, install, observed, history));
    }
    if found.iter().any(|f| prunes(install, f)) {
        // What else is missing goes away with them; it is looked at when they are gone.
        found.extend(foreign);
        return found;
    }

    found.extend(stale(now, install, observed, history));
    found.extend(foreign);
    if quarantine::shield::unread(observed) {
        return found;
    }
    let held = quarantine::holds(install, observed);
    let mut wanted: Vec<&ObjectId> = install.wanted.keys().collect();
    wanted.sort_by_key(|id| (id.kind.stage(), *id));
    wanted.retain(|id| known(now, observed, id.kind) && judged(observed, id.kind));
    let is_pruned = |id: &ObjectId| {
        quarantine::removed(install, observed, id)
            || pruned_again(now, install, observed, history, id)
    };
    let gone = |id: &ObjectId| !observed.objects.contains_key(id) && is_pruned(id);
    let prunes = quarantine::is_at_work(install, observed)
        && (quarantine::has_removed(install, observed, &held) || wanted.iter().any(|id| gone(id)));
    for id in wanted {
        match observed.objects.get(id) {
            // What is held keeps its hold.
            None if !held.contains_key(id) && is_pruned(id) => {
                let commit = quarantine::commit(install, observed, id);
                found.push(pruned(id, "was pruned").brought_by(commit));
            }
            // One goes after the other: made without a hold, it would go again.
            None if prunes && !held.contains_key(id) && is_gits(install, id) => {
                let commit = quarantine::commit(install, observed, id);
                found.push(went_along(id).brought_by(commit));
            }
            None => found.push(missing(install, id)),
            Some(live) => {
                let object = (id, live.as_ref(), held.contains_key(id));
                found.extend(altered(now, install, observed, object, history));
                found.extend(outdated(install, observed, history, id));
            }
        }
    }
    health::workloads(now, install, observed, &mut found);
    account::outlived(now, install, observed, history, &mut found);
    health::roots(now, install, observed, history, &mut found);
    found.extend(syncwindows::held_up(install, observed));
    health::canaries(now, install, observed, history, &mut found);
    witness::silent(now, install, observed, &mut found);
    altered::useless(install, observed, history, &mut found);
    exits::failing(now, install, observed, history, &mut found);
    latent::latent(now, install, observed, &mut found);
    children::children(now, install, observed, &mut found);
    redis::down(now, install, observed, &mut found);
    latent::blocked(install, observed, &mut found);
    latent::clocks(install, &mut found);
    evidence::complete(install, observed, &mut found);
    for finding in &mut found {
        // Engines name what they asked by its whole URL.
        finding.evidence = scene::line(&scene::masked(&finding.evidence));
    }
    found
}

/// Whether what is known of a kind is recent enough for a verdict.
pub fn known(now: OffsetDateTime, observed: &Observed, kind: Kind) -> bool {
    let scope = observed.scopes.get(&kind).copied().unwrap_or_default();
    scope.answered.is_some_and(|at| now - at <= FRESH)
}

/// While the API server is not well, it is that alone that is told; and what is being deleted, which cannot wait.
pub(super) fn unjudged(install: &Install, symptoms: &Symptoms, found: &mut Vec<Finding>) {
    found.retain(|f| dies(f) || f.class == Class::ForeignManager);
    let namespace = ObjectId::new(Kind::Namespace, "", &install.namespace);
    found.push(Finding::new(
        Class::ApiUnhealthy,
        &namespace,
        symptoms.text(),
    ));
}

/// What the API server last said of a kind; nothing before it said anything.
pub fn answer(observed: &Observed, kind: Kind) -> Answer {
    let scope = observed.scopes.get(&kind);
    scope.map_or(Answer::Nothing, |scope| scope.answer)
}

/// Whether there is a verdict on objects of the kind.
fn judged(observed: &Observed, kind: Kind) -> bool {
    match answer(observed, kind) {
        Answer::Whole => true,
        Answer::Nothing => !kind.optional(),
        Answer::Refused => false,
    }
}

/// Whether it is the deletion of what holds other objects.
pub fn dies(finding: &Finding) -> bool {
    matches!(
        finding.class,
        Class::NamespaceTerminating | Class::CrdTerminating | Class::SyncObjectsDeleted
    )
}

/// Whether the engine would take workloads away with what is being deleted.
pub fn prunes(install: &Install, finding: &Finding) -> bool {
    matches!(
        finding.class,
        Class::NamespaceTerminating | Class::SyncObjectsDeleted
    ) || finding.class == Class::CrdTerminating
        && install
            .traits
            .pruning_crds
            .contains(&finding.object.name.as_str())
}

fn terminating(install: &Install, observed: &Observed) -> Vec<Finding> {
    let mut found = Vec::new();
    for id in install.wanted.keys().filter(|id| id.kind.holds_others()) {
        let Some(live) = observed.objects.get(id) else {
            continue;
        };
        let class = if id.kind == Kind::Namespace {
            Class::NamespaceTerminating
        } else {
            Class::CrdTerminating
        };
        if let Some(since) = live.deleting {
            let prunes = install.traits.pruning_crds.contains(&id.name.as_str());
            let risk = if prunes {
                "; its objects would prune workloads"
            } else {
                ""
            };
            let held = held_up(live).map_or(String::new(), |by| format!(": {by}"));
            let text = format!("is being deleted{risk}{held}");
            let mut finding = Finding::new(class, id, text);
            finding.fault_at = Some(since);
            found.push(finding);
        }
    }
    found
}

/// What a dying Namespace waits for, in the API server's words.
fn held_up(live: &Object) -> Option<&str> {
    let said = ["NamespaceFinalizersRemaining", "NamespaceContentRemaining"];
    let mut said = said.iter().filter_map(|kind| live.condition(kind));
    let (_, _, message) = said.find(|(status, _, _)| *status == "True")?;
    Some(message)
}

fn stale(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    history: &History,
) -> Option<Finding> {
    let namespace = ObjectId::new(Kind::Namespace, "", &install.namespace);
    let answered = |kind| observed.scopes.get(&kind).and_then(|scope| scope.answered);
    let kinds: BTreeSet<Kind> = install.wanted.keys().map(|id| id.kind).collect();
    let kinds = kinds.into_iter().map(|kind| (answered(kind), kind));
    let unread = quarantine::shield::unread(observed).then_some((None, Kind::Application));
    // Without these the guard does not give back what it took.
    let due = giveback::is_due(install, observed, history);
    let awaited = giveback::unread(install, observed).filter(|_| due);
    // One that it never answered for counts from the beginning.
    let all = kinds.chain(unread).chain(awaited.map(|kind| (None, kind)));
    let all = all.filter_map(|(at, kind)| Some((at.or(observed.since)?, kind)));
    let (since, kind) = all.min()?;
    let (since_when, what) = (crate::clock::rfc3339(since), kind.resource().2);
    let text = match answer(observed, kind) {
        Answer::Refused => {
            format!("the API server refuses the agent to list {what}, since {since_when}")
        }
        Answer::Whole | Answer::Nothing => {
            format!("the API server has not answered since {since_when}, asked for {what}")
        }
    };
    (now - since > FRESH).then(|| Finding::new(Class::ApiUnhealthy, &namespace, text))
}

fn pruned(id: &ObjectId, how: &str) -> Finding {
    let text = format!("{how}: the catalog no longer has it");
    Finding::new(Class::EngineRemovedByCommit, id, text)
}

/// What is missing while Flux prunes others. It is not known whether the commit has it; that shows when Flux is done.
fn went_along(id: &ObjectId) -> Finding {
    let text = "is missing while the engine prunes what a commit removed from the catalog";
    Finding::new(Class::EngineRemovedByCommit, id, text)
}

fn is_gits(install: &Install, id: &ObjectId) -> bool {
    install.wanted.get(id).is_some_and(|w| w.git_owned)
}

/// Whether an object that was made again is gone again because of a commit: the engine prunes itself in the midst of
/// it, and begins anew when it is back. Made once more, it is held at once.
fn pruned_again(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    history: &History,
    id: &ObjectId,
) -> bool {
    let brought = is_gits(install, id);
    let past = |class| history.faults.get(&(class, id.clone()));
    let is_recent = |past: &Past| past.attempts.iter().any(|at| now - *at < AGAIN);
    // What was tried is remembered for an hour, and Git may have the object again by then.
    let removed = past(Class::EngineRemovedByCommit);
    let goes_on = removed.is_some_and(|past| past.since.is_some() || is_recent(past));
    if !brought || goes_on {
        return brought;
    }
    let again = past(missing(install, id).class).is_some_and(is_recent);
    let flux = install.traits.kind == EngineKind::Flux;
    flux && again && quarantine::is_under_way(install, observed, id)
}

fn missing(install: &Install, id: &ObjectId) -> Finding {
    let class = match id.kind {
        Kind::Namespace => Class::NamespaceMissing,
        Kind::CustomResourceDefinition => Class::CrdMissing,
        Kind::ServiceAccount => Class::ServiceAccountMissing,
        // While nobody signs, it is a ConfigMap like the others.
        Kind::ConfigMap if id.name == KEYRING && !install.trusts(id) => Class::ObjectMissing,
        Kind::Secret | Kind::ConfigMap if keeps_secrets(id) => secret_class(id),
        Kind::AppProject => Class::ProjectMissing,
        Kind::GitRepository
        | Kind::Kustomization
        | Kind::HelmRepository
        | Kind::OciRepository
        | Kind::Bucket
        | Kind::HelmChart
        | Kind::Application => Class::RootDeleted,
        Kind::Secret
        | Kind::ClusterRole
        | Kind::ClusterRoleBinding
        | Kind::Role
        | Kind::RoleBinding
        | Kind::ResourceQuota
        | Kind::ConfigMap
        | Kind::Service
        | Kind::NetworkPolicy
        | Kind::Deployment
        | Kind::StatefulSet
        | Kind::HelmRelease
        | Kind::ApplicationSet
        | Kind::Receiver
        | Kind::ImageRepository
        | Kind::ImageUpdateAutomation
        | Kind::ValidatingAdmissionPolicy
        | Kind::ValidatingAdmissionPolicyBinding => Class::ObjectMissing,
    };
    Finding::new(class, id, "is missing")
}

/// What the engine needs to read the catalog, or its parts to speak with each other. Another Secret of an install is an
/// object like the others: what is in it is people's.
fn keeps_secrets(id: &ObjectId) -> bool {
    let of_catalog = [flux::NAME, SIGNERS, REPOSITORY, KNOWN_HOSTS, KEYRING];
    let own = [SESSION, REDIS];
    let name = id.name.as_str();
    of_catalog.contains(&name) || own.contains(&name)
}

fn secret_class(id: &ObjectId) -> Class {
    if [SESSION, REDIS].contains(&id.name.as_str()) {
        Class::EngineSecretMissing
    } else {
        Class::GitSecretBad
    }
}

#[cfg(test)]
mod tests;

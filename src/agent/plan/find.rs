//! What is wrong: observed against wanted. Each finding stands for itself; what is done about it, and when, is
//! decided by `steps`.

use std::collections::BTreeSet;

use serde_json::Value;
use time::{Duration, OffsetDateTime};

use super::fault::Class;
use super::server::Symptoms;
use super::state::{Answer, History, Object, Observed};
use super::{argocd, burst, children, foreign, giveback, health, latent, ownership, quarantine};
use crate::agent::engine::argocd::{KNOWN_HOSTS, REDIS, REPOSITORY, SESSION};
use crate::agent::engine::compare::{additions, drift};
use crate::agent::engine::flux::{self, SIGNERS};
use crate::agent::engine::{GUARD, Install, MANAGER, Wanted, is_workload};
use crate::bundle::{Kind, ObjectId};
use crate::wire::api::EngineKind;

/// An absence counts only if the API server was heard of that kind this recently.
pub(super) const FRESH: Duration = Duration::seconds(90);

/// Where a GitRepository says whose signature it wants.
const VERIFY: &str = "/spec/verify";

/// An object that goes again this soon after it was made went for the same reason.
const AGAIN: Duration = Duration::minutes(5);

/// What others added to a workload after it was last known good counts only when it has not worked for so long: a node may
/// just be drained.
pub(super) const DOWN: Duration = Duration::seconds(30);

/// One thing that is wrong with one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub class: Class,
    pub object: ObjectId,
    /// What was seen, for people.
    pub evidence: String,
    /// Who wrote the bad version, where known.
    pub writer: String,
    /// The catalog revision that brought it, where it is known to come from Git.
    pub commit: String,
    /// When it broke, as far as the cluster tells.
    pub fault_at: Option<OffsetDateTime>,
    /// No step against it is safe here, whatever is done about others of its class.
    pub reported: bool,
}

impl Finding {
    pub fn new(class: Class, object: &ObjectId, evidence: impl Into<String>) -> Self {
        Self {
            class,
            object: object.clone(),
            evidence: evidence.into(),
            writer: String::new(),
            commit: String::new(),
            fault_at: None,
            reported: false,
        }
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
    let foreign = foreign::foreign(install, observed, history);
    // What the guard has begun goes on to its end.
    if foreign.is_none() || giveback::is_due(install, observed, history) {
        found.extend(burst::found(now, install, observed));
    }
    if found.iter().any(|f| prunes(install, f)) {
        // What else is missing goes away with them; it is looked at when they are gone.
        found.extend(foreign);
        return found;
    }

    found.extend(stale(now, install, observed));
    found.extend(foreign);
    if quarantine::shield::unread(observed) {
        return found;
    }
    let held = quarantine::holds(install, observed);
    let mut wanted: Vec<&ObjectId> = install.wanted.keys().collect();
    wanted.sort_by_key(|id| (id.kind.stage(), *id));
    for id in wanted {
        if !known(now, observed, id.kind) || !judged(observed, id.kind) {
            continue;
        }
        match observed.objects.get(id) {
            // What is held keeps its hold.
            None if !held.contains_key(id)
                && (quarantine::removed(install, observed, id)
                    || pruned_again(now, install, observed, history, id)) =>
            {
                let commit = quarantine::commit(install, observed, id);
                found.push(pruned(id, "was pruned").brought_by(commit));
            }
            None => found.push(missing(id)),
            Some(live) => {
                let object = (id, live.as_ref(), held.contains_key(id));
                found.extend(altered(now, install, observed, object, history));
            }
        }
    }
    health::workloads(now, install, observed, &mut found);
    health::roots(now, install, observed, history, &mut found);
    health::canaries(now, install, observed, history, &mut found);
    latent::latent(now, install, observed, &mut found);
    children::children(install, observed, &mut found);
    latent::blocked(install, observed, &mut found);
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
    for id in install.wanted.keys() {
        let Some(live) = observed.objects.get(id) else {
            continue;
        };
        let class = match id.kind {
            Kind::Namespace => Class::NamespaceTerminating,
            Kind::CustomResourceDefinition => Class::CrdTerminating,
            _ => continue,
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

fn stale(now: OffsetDateTime, install: &Install, observed: &Observed) -> Option<Finding> {
    let namespace = ObjectId::new(Kind::Namespace, "", &install.namespace);
    let answered = |kind| observed.scopes.get(&kind).and_then(|scope| scope.answered);
    let kinds: BTreeSet<Kind> = install.wanted.keys().map(|id| id.kind).collect();
    let kinds = kinds.into_iter().map(|kind| (answered(kind), kind));
    let unread = quarantine::shield::unread(observed).then_some((None, Kind::Application));
    // One that it never answered for counts from the beginning.
    let all = kinds.chain(unread);
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

/// Whether an object that was made again is gone again because of a commit: the engine prunes itself in the midst of
/// it, and begins anew when it is back. Made once more, it is held at once.
fn pruned_again(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    history: &History,
    id: &ObjectId,
) -> bool {
    let brought = install.wanted.get(id).is_some_and(|w| w.git_owned);
    let past = |class| history.faults.get(&(class, id.clone()));
    if !brought || past(Class::EngineRemovedByCommit).is_some() {
        return brought;
    }
    let Some(past) = past(missing(id).class) else {
        return false;
    };
    let again = past.attempts.iter().any(|at| now - *at < AGAIN);
    let under_way = health::revision(install, observed).is_none();
    let flux = install.traits.kind == EngineKind::Flux;
    flux && again && under_way
}

fn missing(id: &ObjectId) -> Finding {
    let class = match id.kind {
        Kind::Namespace => Class::NamespaceMissing,
        Kind::CustomResourceDefinition => Class::CrdMissing,
        Kind::ServiceAccount => Class::ServiceAccountMissing,
        Kind::Secret | Kind::ConfigMap if keeps_secrets(id) => secret_class(id),
        Kind::AppProject => Class::ProjectMissing,
        Kind::GitRepository
        | Kind::Kustomization
        | Kind::HelmRepository
        | Kind::OciRepository
        | Kind::Bucket
        | Kind::HelmChart
        | Kind::Application
        | Kind::ApplicationSet => Class::RootDeleted,
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
        | Kind::ValidatingAdmissionPolicy
        | Kind::ValidatingAdmissionPolicyBinding => Class::ObjectMissing,
    };
    Finding::new(class, id, "is missing")
}

/// What the engine needs to read the catalog, or its parts to speak with each other. Another Secret of an install is an
/// object like the others: what is in it is people's.
fn keeps_secrets(id: &ObjectId) -> bool {
    [flux::NAME, SIGNERS, REPOSITORY, SESSION, REDIS, KNOWN_HOSTS].contains(&id.name.as_str())
}

fn secret_class(id: &ObjectId) -> Class {
    if [SESSION, REDIS].contains(&id.name.as_str()) {
        Class::EngineSecretMissing
    } else {
        Class::GitSecretBad
    }
}

/// Who stopped a root, in words that say how.
fn suspended(install: &Install, id: &ObjectId, live: &Object) -> Option<String> {
    if id.kind == Kind::Application {
        return argocd::suspended(live).map(|how| format!("{how} by '{}'", live.writer));
    }
    let flag = live.fields.pointer("/spec/suspend") == Some(&Value::Bool(true));
    // A canary is never anything else.
    let flag = flag && !install.canaries().any(|canary| canary == id);
    (flag && id.namespace == install.namespace)
        .then(|| format!("spec.suspend is set by '{}'", live.writer))
}

/// The same, unless it was a commit.
fn stopped(install: &Install, observed: &Observed, id: &ObjectId, live: &Object) -> Option<String> {
    let commits = quarantine::root::is_stopped_by_a_commit(install, observed, (id, live));
    suspended(install, id, live).filter(|_| !commits)
}

fn altered(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    (id, live, held): (&ObjectId, &Object, bool),
    history: &History,
) -> Vec<Finding> {
    let Some(wanted) = install.wanted.get(id) else {
        return Vec::new();
    };
    if let Some(since) = live.deleting {
        let text = format!("is being deleted, held by {}", live.finalizers.join(", "));
        let finding = Finding::new(Class::LeftoverFinalizers, id, text);
        let guarded = matches!(id.kind, Kind::Namespace | Kind::CustomResourceDefinition);
        let long = now - since > Duration::seconds(60) && !live.finalizers.is_empty() && !guarded;
        return if long { vec![finding] } else { Vec::new() };
    }
    let mut found = Vec::new();
    if let Some(text) = stopped(install, observed, id, live) {
        found.push(Finding::new(Class::SuspendedByHuman, id, text).written_by(live));
    }
    if let Some(finding) = unservable(id, wanted, live) {
        found.push(finding);
        return found;
    }
    if !held && quarantine::removed(install, observed, id) {
        let commit = quarantine::commit(install, observed, id);
        found.push(pruned(id, "would be pruned").brought_by(commit));
        return found;
    }
    if quarantine::is_from_git(install, wanted, live) && !held {
        found.extend(quarantine::broken(
            now,
            install,
            observed,
            (id, wanted, live),
        ));
        return found;
    }
    // What is held is ours for as long.
    let others = (id, wanted, live);
    if let Some(finding) = quarantine::unsettled(now, install, observed, others, held) {
        found.push(finding);
        return found;
    }
    if wanted.git_owned && !held && health::works(live)
        || wanted.taken && !held && !quarantine::harms(now, install, observed, (id, live))
        || id.kind == Kind::Namespace && ownership::is_from_catalog(install, observed, live)
        || history.settled.get(id) == Some(&live.mark())
    {
        return found;
    }
    let down = history.down.get(id).is_some_and(|at| now - *at >= DOWN);
    let paths = differing(wanted, (id, live), !found.is_empty(), down);
    // Held for the commit before, it would be given back at once, and broken a second time.
    let told = held || !quarantine::root::is_untold(now, install, observed, (id, live));
    if !paths.is_empty() && told {
        let class = if posts_in_vain(wanted, live) {
            Class::EventSinkMissing
        } else {
            altered_class(id, &paths, live)
        };
        let text = format!("differs at {}", paths.join(", "));
        let finding = Finding::new(class, id, text).written_by(live);
        found.push(if held {
            finding
        } else {
            quarantine::root::brought(install, observed, (id, live), finding)
        });
    }
    found
}

/// Where an object is not as wanted. What stops a root has a finding of its own; what others added to a workload is looked at
/// where it is `down`.
fn differing(
    wanted: &Wanted,
    (id, live): (&ObjectId, &Object),
    stopped: bool,
    down: bool,
) -> Vec<String> {
    let mut paths = drift(&wanted.expect, &live.fields);
    paths.extend(still_verifies(&wanted.expect, &live.fields).then(|| VERIFY.to_owned()));
    paths.extend(quarantine::root::astray(id, live));
    if id.kind == Kind::Application && stopped {
        paths.retain(|path| !argocd::is_stop(path));
    }
    // Argo CD's manifest leaves the number of Pods to people, but none is no number.
    let none = live.fields.pointer("/spec/replicas") == Some(&Value::from(0));
    if is_workload(id.kind) && none && paths.is_empty() {
        paths.push("/spec/replicas".to_owned());
    }
    let looked_at = down && is_workload(id.kind) && !health::works(live);
    if !wanted.git_owned && paths.is_empty() && looked_at {
        paths = additions(&wanted.whole(), &live.fields);
    }
    paths
}

/// Verification that we set up and that nobody asks for any more. One that an owner added stays.
fn still_verifies(wanted: &Value, live: &Value) -> bool {
    let by = live.pointer("/spec/verify/secretRef/name");
    wanted.pointer(VERIFY).is_none() && by.and_then(Value::as_str) == Some(SIGNERS)
}

/// A CRD that the API server would not let us apply: objects are stored in a version that the bundle lacks.
fn unservable(id: &ObjectId, wanted: &Wanted, live: &Object) -> Option<Finding> {
    if id.kind != Kind::CustomResourceDefinition || wanted.taken {
        return None;
    }
    let versions = wanted.expect.pointer("/spec/versions")?.as_array()?;
    let stored = live.fields.pointer("/status/storedVersions")?.as_array()?;
    let kept = |version: &&Value| versions.iter().any(|v| v.get("name") == Some(*version));
    let lost: Vec<&str> = stored
        .iter()
        .filter(|version| !kept(version))
        .filter_map(Value::as_str)
        .collect();
    (!lost.is_empty()).then(|| {
        let text = format!(
            "stores objects in {}, which the bundle does not have",
            lost.join(", ")
        );
        Finding::new(Class::CrdStoredVersion, id, text)
    })
}

/// The version that a CRD stores new objects in, where the bundle has that, too.
pub(super) fn storage(install: &Install, observed: &Observed, id: &ObjectId) -> Option<String> {
    let versions = |fields: &Value| {
        let all = fields.pointer("/spec/versions").and_then(Value::as_array);
        all.cloned().unwrap_or_default()
    };
    let live = versions(&observed.objects.get(id)?.fields);
    let stores = |v: &&Value| v.get("storage") == Some(&Value::Bool(true));
    let to = live.iter().find(stores)?.get("name")?;
    let kept = versions(&install.wanted.get(id)?.expect);
    let kept = kept.iter().any(|v| v.get("name") == Some(to));
    to.as_str().filter(|_| kept).map(str::to_owned)
}

/// Whether a controller posts events that nobody of the install takes.
fn posts_in_vain(wanted: &Wanted, live: &Object) -> bool {
    const FLAG: &str = "--events-addr=";
    let addresses = |fields: &Value| -> Vec<String> {
        let containers = fields.pointer("/spec/template/spec/containers");
        let containers = containers.and_then(Value::as_array).into_iter().flatten();
        let args = containers.filter_map(|c| c.get("args")?.as_array());
        let args = args.flatten().filter_map(Value::as_str);
        args.filter_map(|a| a.strip_prefix(FLAG).map(str::to_owned))
            .collect()
    };
    let emptied = addresses(&wanted.expect).iter().any(String::is_empty);
    emptied && addresses(&live.fields).iter().any(|a| !a.is_empty())
}

fn altered_class(id: &ObjectId, paths: &[String], live: &Object) -> Class {
    let any = |part: &str| paths.iter().any(|p| p.contains(part));
    match id.kind {
        Kind::Deployment | Kind::StatefulSet => {
            if any("/image") {
                Class::BadImage
            } else if any("/args") || any("/env") || any("/serviceAccountName") {
                Class::ReadyButUseless
            } else if any("/spec/replicas")
                && live.number("/spec/replicas") == 0
                && live.writer != GUARD
            {
                Class::ScaledToZero
            } else {
                Class::ObjectAltered
            }
        }
        Kind::ClusterRole | Kind::ClusterRoleBinding | Kind::Role | Kind::RoleBinding => {
            Class::RbacAltered
        }
        Kind::Secret | Kind::ConfigMap if keeps_secrets(id) => secret_class(id),
        Kind::ConfigMap if id.namespace != flux::NAME => Class::EngineConfigBroken,
        Kind::AppProject => Class::ProjectMissing,
        Kind::GitRepository | Kind::Kustomization | Kind::Application => Class::SourceAltered,
        Kind::Namespace
        | Kind::CustomResourceDefinition
        | Kind::ServiceAccount
        | Kind::ResourceQuota
        | Kind::Secret
        | Kind::ConfigMap
        | Kind::Service
        | Kind::NetworkPolicy
        | Kind::HelmRepository
        | Kind::OciRepository
        | Kind::Bucket
        | Kind::HelmChart
        | Kind::HelmRelease
        | Kind::ApplicationSet
        | Kind::ValidatingAdmissionPolicy
        | Kind::ValidatingAdmissionPolicyBinding => Class::ObjectAltered,
    }
}

#[cfg(test)]
mod tests;

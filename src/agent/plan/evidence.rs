//! What is told of a fault beside what shows it: what people would look at next, as far as the agent knows it. It decides
//! nothing. No word of it changes by the mere passing of time, or each plan would have something new to tell.

use serde_json::Value;
use time::OffsetDateTime;

use super::fault::Class;
use super::find::Finding;
use super::health::{HANDED, works};
use super::state::{HostKeys, Lease, MetKey, Observed, Pod};
use crate::agent::engine::Install;
use crate::agent::engine::argocd::REPO_SERVER;
use crate::bundle::{Kind, ObjectId};
use crate::clock::{parse_rfc3339, rfc3339};
use crate::wire::api::EngineKind;

/// As many of a kind are named.
const NAMED: usize = 5;
/// How a try of a Kustomization failed that it keeps the outcome of (kustomize-controller, `reconcile`).
const FAILED: [&str; 3] = ["ReconciliationFailed", "PruneFailed", "HealthCheckFailed"];

/// Completes what each finding says.
pub(super) fn complete(install: &Install, observed: &Observed, found: &mut [Finding]) {
    for finding in found {
        let more = match finding.class {
            Class::QueueWedged => queue(install, observed, &finding.object),
            Class::EventSinkMissing => pace(install, observed),
            Class::ArtifactUnreachable => behind_the_service(install, observed),
            Class::PolicyBlocks => policies(install, observed),
            Class::GitUnreachable => missing_branch(install, finding),
            Class::LeftoverFinalizers => releaser(install, observed, &finding.object),
            Class::HostKeyMismatch => host_keys(observed),
            Class::ServiceAccountMissing => ages(observed, &finding.object),
            _ => continue,
        };
        if !more.is_empty() {
            finding.evidence.push_str("; ");
            finding.evidence.push_str(&more);
        }
    }
}

/// F12: how the controller looks from outside.
fn queue(install: &Install, observed: &Observed, asked: &ObjectId) -> String {
    let controller = install.controller(asked);
    let run = |pod: &Pod| pod.running.map(|at| format!("runs since {}", rfc3339(at)));
    let mut parts = named(observed, &controller.name, run);
    parts.extend(observed.lease(&controller).map(led));
    parts.join(", ")
}

fn led(lease: &Lease) -> String {
    let Lease {
        holder, renewed, ..
    } = lease;
    if holder.is_empty() {
        format!("the Lease was given back at {}", rfc3339(*renewed))
    } else if lease.seen - *renewed <= HANDED {
        format!("Pod {holder} renews the Lease")
    } else {
        let at = rfc3339(*renewed);
        format!("Pod {holder} holds the Lease, renewed last at {at}")
    }
}

/// F11: how long the root took, which posts its events meanwhile.
fn pace(install: &Install, observed: &Observed) -> String {
    let root = observed.objects.get(&install.sync);
    let last = root.and_then(|root| {
        let last = root
            .fields
            .pointer("/status/history")?
            .as_array()?
            .first()?;
        let text = |name: &str| last.get(name).and_then(Value::as_str);
        Some((text("lastReconciledDuration")?, text("lastReconciled")?))
    });
    last.map_or_else(String::new, |(took, at)| {
        format!(
            "{} took {took} when it was reconciled last, at {at}",
            install.sync
        )
    })
}

/// F32: who would answer.
fn behind_the_service(install: &Install, observed: &Observed) -> String {
    let name = match install.traits.kind {
        EngineKind::Flux => install.controller(&install.source).name,
        EngineKind::Argocd => REPO_SERVER.to_owned(),
    };
    let service = ObjectId::new(Kind::Service, &install.namespace, &name);
    if !observed.objects.contains_key(&service) {
        return format!("{service} is missing");
    }
    let is = |pod: &Pod| {
        Some(
            if pod.ready {
                "is ready"
            } else {
                "is not ready"
            }
            .to_owned(),
        )
    };
    let pods = named(observed, &name, is);
    if pods.is_empty() {
        format!("{service} has no Pod behind it")
    } else {
        format!("behind {service}: {}", pods.join(", "))
    }
}

/// F33: what of Kubernetes' own could be in the way.
fn policies(install: &Install, observed: &Observed) -> String {
    let namespace = &install.namespace;
    let all = &observed.policies;
    if all.is_empty() {
        return format!("namespace {namespace} has no NetworkPolicy of others");
    }
    let first: Vec<&str> = all.iter().take(NAMED).map(String::as_str).collect();
    let first = first.join(", ");
    match all.len().saturating_sub(NAMED) {
        0 => format!("NetworkPolicies of others in {namespace}: {first}"),
        more => format!("NetworkPolicies of others in {namespace}: {first} and {more} more"),
    }
}

/// F22: since when, and who should have let it go.
fn releaser(install: &Install, observed: &Observed, id: &ObjectId) -> String {
    let since = observed.objects.get(id).and_then(|live| live.deleting);
    let mut parts: Vec<String> = since
        .map(|at| format!("since {}", rfc3339(at)))
        .into_iter()
        .collect();
    // What a controller looks after has its finalizer by that.
    if !id.kind.installable() && !id.kind.optional() {
        let controller = install.controller(id);
        let live = observed.objects.get(&controller);
        parts.push(match live.map(|live| works(live)) {
            Some(true) => format!("{controller} runs, and does not let it go"),
            Some(false) => format!("{controller}, which lets it go, is not available"),
            None => format!("{controller}, which lets it go, is missing"),
        });
    }
    parts.join(", ")
}

/// F2: which of the two is older.
fn ages(observed: &Observed, id: &ObjectId) -> String {
    let made = observed.objects.get(id).and_then(|live| live.created);
    let Some(made) = made else {
        return String::new();
    };
    let older = |pod: &Pod| {
        let at = pod.created.filter(|at| *at < made)?;
        Some(format!("is of {}", rfc3339(at)))
    };
    let mut parts = vec![format!("that one is of {}", rfc3339(made))];
    parts.extend(named(observed, &id.name, older));
    parts.join(", ")
}

/// F25: the keys that are known of the host, then the one that it showed: what is learned later stands last.
fn host_keys(observed: &Observed) -> String {
    let HostKeys { known, met } = &observed.host_keys;
    let mut parts = Vec::new();
    let first: Vec<&str> = known.iter().take(NAMED).map(String::as_str).collect();
    if !first.is_empty() {
        parts.push(format!("known of the host: {}", first.join(", ")));
    }
    parts.extend(met.as_ref().map(|MetKey { fingerprint, known }| {
        let one_of_them = if *known { ", which is known" } else { "" };
        format!("it shows the agent {fingerprint}{one_of_them}")
    }));
    parts.join("; ")
}

/// F27: the Git host answers, and the branch that the root follows is not there.
fn missing_branch(install: &Install, finding: &Finding) -> String {
    let root = install.roots().any(|root| *root == finding.object);
    if !root || !lacks_a_branch(&finding.evidence) {
        return String::new();
    }
    let source = install.base(&install.source);
    let text = |pointer: &str| source?.pointer(pointer)?.as_str();
    let [branch, url] = match install.traits.kind {
        EngineKind::Flux => ["/spec/ref/branch", "/spec/url"],
        EngineKind::Argocd => ["/spec/source/targetRevision", "/spec/source/repoURL"],
    }
    .map(text);
    let (Some(branch), Some(url)) = (branch, url) else {
        return String::new();
    };
    format!("repository {url} has no branch '{branch}'")
}

/// Whether the words are those with which go-git, or Argo CD's look at the repository, miss a reference.
pub(super) fn lacks_a_branch(evidence: &str) -> bool {
    [
        "couldn't find remote ref",
        "reference not found",
        "to a commit SHA",
    ]
    .iter()
    .any(|words| evidence.contains(words))
}

/// The first Pods of a controller of which there is something to say, and that.
fn named(observed: &Observed, app: &str, says: impl Fn(&Pod) -> Option<String>) -> Vec<String> {
    let pods = observed.pods.iter();
    let pods = pods.filter(|(_, pod)| pod.app == app && !pod.deleting && pod.failed.is_none());
    let told = pods.filter_map(|(name, pod)| Some(format!("Pod {name} {}", says(pod)?)));
    told.take(NAMED).collect()
}

/// Of what a Kustomization says of all its past, how its last try ended and when, where it failed.
pub(super) fn failed(history: &Value) -> Option<(&str, OffsetDateTime)> {
    let (at, one) = last(history)?;
    let ended = one.get("lastReconciledStatus")?.as_str()?;
    FAILED.contains(&ended).then_some((ended, at))
}

fn last(history: &Value) -> Option<(OffsetDateTime, &Value)> {
    let all = history.as_array().into_iter().flatten();
    let at = |one: &Value| -> Option<OffsetDateTime> {
        parse_rfc3339(one.get("lastReconciled")?.as_str()?)
    };
    all.filter_map(|one| Some((at(one)?, one)))
        .max_by_key(|(at, _)| *at)
}

/// Of what a Kustomization says of all its past, the last time: how long it took, and when that was.
pub(super) fn latest(history: &Value) -> Value {
    let kept = last(history).map(|(_, one)| {
        let field = |name: &str| one.get(name).cloned().unwrap_or_default();
        serde_json::json!({
            "lastReconciled": field("lastReconciled"),
            "lastReconciledDuration": field("lastReconciledDuration"),
        })
    });
    kept.into_iter().collect()
}

#[cfg(test)]
mod tests;

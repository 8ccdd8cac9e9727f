//! Faults that leave the engine at work for now, or that come from around it.

use std::collections::BTreeMap;

use serde_json::Value;
use time::{Duration, OffsetDateTime};

use super::argocd;
use super::fault::Class;
use super::find::Finding;
use super::health::{pod_fault, pods_of, works};
use super::state::{Lease, Object, Observed};
use crate::agent::engine::Install;
use crate::agent::engine::argocd::REPO_SERVER;
use crate::bundle::{Kind, ObjectId, release};
use crate::clock::{parse_rfc3339, rfc3339};

/// Leases are renewed every 5 s and given to another after 35 s.
const STUCK: Duration = Duration::seconds(70);
const SKEW: Duration = Duration::seconds(15);
/// Longer than between two looks of the agent at the catalog while the engine does not reach it: a minute, and a look.
const BETWEEN_LOOKS: Duration = Duration::seconds(90);
/// So many other installs are named.
const NAMED: usize = 5;
/// Kubernetes' times are cut to the second before.
const PRECISION: Duration = Duration::seconds(1);

pub(super) fn latent(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    found: &mut Vec<Finding>,
) {
    for id in install.workloads() {
        if let Some(lease) = observed.lease(id) {
            found.extend(leader(now, id, lease, observed));
        }
        found.extend(half_rolled(id, observed));
    }
    let namespace = ObjectId::new(Kind::Namespace, "", &install.namespace);
    if let Some(text) = unsupported(install, observed) {
        found.push(Finding::new(Class::KubernetesUnsupported, &namespace, text));
    }
    let others = observed.elsewhere.iter();
    let others = others.filter(|ns| **ns != install.namespace);
    let others: Vec<&str> = others.map(String::as_str).take(NAMED).collect();
    if !others.is_empty() {
        let text = format!(
            "controllers of {} run in namespace {}, which is this install, and in {}{}",
            install.traits.kind,
            install.namespace,
            others.join(", "),
            shared(install, observed),
        );
        found.push(Finding::new(Class::TwoInstalls, &namespace, text));
    }
}

/// What the root Application has in common with another one, in Argo CD's words. By itself that says nothing of a second install.
fn shared(install: &Install, observed: &Observed) -> String {
    let root = observed.objects.get(&install.sync);
    let conditions = root.and_then(|root| root.fields.pointer("/status/conditions")?.as_array());
    let text = |c: &Value, name: &str| c.get(name)?.as_str().map(str::to_owned);
    let mut all = conditions.into_iter().flatten();
    let warning = all.find(|c| text(c, "type").as_deref() == Some("SharedResourceWarning"));
    let said = warning.and_then(|c| text(c, "message"));
    said.map_or_else(String::new, |said| format!("; the root says: {said}"))
}

/// A Kubernetes that the engine's version was not made for.
fn unsupported(install: &Install, observed: &Observed) -> Option<String> {
    let version = &install.bundle.version;
    let least = release::kubernetes(install.traits.kind, version)?;
    let minor = observed.kubernetes.filter(|minor| *minor < least)?;
    Some(format!(
        "Kubernetes is 1.{minor}; version {version} of the engine needs 1.{least} or later"
    ))
}

/// F47: who meets a certificate that is not valid yet has a clock that is behind, or whoever made it one that is ahead. What
/// cannot be done for it has a finding of its own.
pub(super) fn clocks(install: &Install, found: &mut Vec<Finding>) {
    let mut behind: BTreeMap<ObjectId, String> = BTreeMap::new();
    for finding in found.iter() {
        if let Some(text) = not_yet_valid(&finding.evidence) {
            let whose = reader(install, finding);
            let said = format!("{} says: {text}", finding.object);
            behind.entry(whose).or_insert(said);
        }
    }
    let known = |id: &ObjectId| {
        let mut all = found.iter();
        all.any(|f| f.class == Class::ClockSkew && f.object == *id)
    };
    let new: Vec<Finding> = behind
        .iter()
        .filter(|(id, _)| !known(id))
        .map(|(id, text)| Finding::new(Class::ClockSkew, id, text))
        .collect();
    found.extend(new);
}

/// Who met what a finding tells of: what reads the object, or that itself.
fn reader(install: &Install, finding: &Finding) -> ObjectId {
    let id = &finding.object;
    if id.kind.installable() {
        id.clone()
    } else if id.kind == Kind::Application && finding.evidence.contains("rpc error: ") {
        ObjectId::new(Kind::Deployment, &install.namespace, REPO_SERVER)
    } else if id.kind.is_source() {
        install.controller(&install.source)
    } else {
        install.controller(id)
    }
}

/// By how much, where Go's `crypto/x509` says what it compared (`verify.go`); it has one name for both ends of a validity.
fn not_yet_valid(message: &str) -> Option<String> {
    const SIGN: &str = "certificate has expired or is not yet valid";
    let (_, said) = message.split_once(SIGN)?;
    let (_, said) = said.split_once("current time ")?;
    let (reads, from) = said.split_once(" is before ")?;
    let first = |text: &str| {
        let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || "-:+.".contains(c)));
        let word = text.get(..end.unwrap_or(text.len()))?;
        parse_rfc3339(word.trim_end_matches(['.', ':']))
    };
    let Some((reads, from)) = parse_rfc3339(reads.trim()).zip(first(from)) else {
        return Some("a certificate is not valid yet".to_owned());
    };
    let behind = (from - reads).whole_seconds();
    Some(format!(
        "a certificate is not valid before {}; the clock that it was met with was {behind} s before that",
        rfc3339(from)
    ))
}

/// Where the agent reads the catalog and the engine beside it does not reach it, the Git host is not at fault.
pub(super) fn blocked(install: &Install, observed: &Observed, found: &mut [Finding]) {
    for finding in &mut *found {
        let parts = finding.class == Class::ArtifactUnreachable;
        if parts && argocd::awaits_git(install, observed, &finding.evidence) {
            finding.class = Class::GitUnreachable;
        }
    }
    let away = found
        .iter_mut()
        .filter(|f| f.class == Class::GitUnreachable);
    for finding in away {
        let live = observed.objects.get(&finding.object);
        let since = live.and_then(|live| complained(live));
        // Had the Git host been away, the agent's own look would have failed, too: the engine tries again much later.
        let read = since.zip(observed.own_look.read());
        // Argo CD complains anew each time it tries, as seldom as the agent looks. The look before will do then, for by
        // the time that this is told the next one has come; were it not to, the class would change with each complaint.
        let read = read
            .is_some_and(|(at, own)| own.since < at + PRECISION && own.last > at - BETWEEN_LOOKS);
        if read && is_network(&finding.evidence) {
            finding.class = Class::PolicyBlocks;
            let text = "the agent reads the catalog, the engine beside it does not reach it";
            finding.evidence = format!("{text}: {}", finding.evidence);
        }
    }
    // What it brought fetches in the same way, and the agent does not read that itself.
    let roots: Vec<&ObjectId> = install.roots().collect();
    let blocks = |f: &Finding| f.class == Class::PolicyBlocks && roots.contains(&&f.object);
    if !found.iter().any(blocks) {
        return;
    }
    for finding in found {
        if finding.class == Class::GitUnreachable && is_network(&finding.evidence) {
            finding.class = Class::PolicyBlocks;
        }
    }
}

/// Whether a root says that the network is in its way.
pub(super) fn awaits_network(install: &Install, observed: &Observed) -> bool {
    let mut all = install.roots().filter_map(|id| observed.objects.get(id));
    all.any(|live| blames_network(live))
}

/// Whether neither the agent nor this root reaches the Git host.
pub(super) fn host_is_away(observed: &Observed, root: &Object) -> bool {
    observed.own_look.read().is_none() && blames_network(root)
}

/// Whether the agent reads the catalog, and did when this root was last seen not to: the host is not what was away.
pub(super) fn reads_beside(observed: &Observed, root: &Object) -> bool {
    let asked = root.probe().filter(|probe| probe.answered);
    let since = complained(root).map(|at| asked.map_or(at, |probe| probe.sent.max(at)));
    observed.own_look.read().is_some_and(|own| {
        // Of one that names no time it is known that it says so now.
        since.is_none_or(|at| own.since < at + PRECISION && own.last >= at)
    })
}

fn blames_network(root: &Object) -> bool {
    let conditions = root.fields.pointer("/status/conditions");
    let mut said = conditions.and_then(Value::as_array).into_iter().flatten();
    said.any(|c| {
        let message = c.get("message").and_then(Value::as_str);
        message.is_some_and(is_network)
    })
}

/// When a root last said that something is wrong, by the newest of what it says. Argo CD gives a complaint the time at which
/// it began to look, and keeps that for as long as the words stay the same, however often it has looked since.
fn complained(live: &Object) -> Option<OffsetDateTime> {
    let conditions = live.fields.pointer("/status/conditions")?.as_array()?;
    let text = |c: &Value, name: &str| c.get(name).and_then(Value::as_str).map(str::to_owned);
    let wrong = conditions.iter().filter(|c| {
        let kind = text(c, "type").unwrap_or_default();
        kind == "Ready" && text(c, "status").as_deref() == Some("False") || kind.ends_with("Error")
    });
    let said = wrong
        .filter_map(|c| parse_rfc3339(&text(c, "lastTransitionTime")?))
        .max()?;
    let looked = parse_rfc3339(live.text("/status/reconciledAt"));
    Some(looked.map_or(said, |looked| looked.max(said)))
}

/// Whether nothing came back, or no connection came about: what a policy does to one.
pub(super) fn is_network(message: &str) -> bool {
    const SIGNS: [&str; 11] = [
        "i/o timeout",
        "connection timed out",
        "connection refused",
        "connection reset",
        "no route to host",
        "network is unreachable",
        "no such host",
        // OpenSSH's word for that, whatever the resolver says of it.
        "could not resolve hostname",
        "server misbehaving",
        "context deadline exceeded",
        // gRPC's own word for it, which goes with others too.
        "code = deadlineexceeded",
    ];
    // Go begins them with a small letter, and `git` and OpenSSH, by which Argo CD fetches, with a large one.
    let said = message.to_ascii_lowercase();
    SIGNS.iter().any(|sign| said.contains(sign))
}

/// A Lease that nobody renews and nobody takes, or that comes from the future.
fn leader(
    now: OffsetDateTime,
    id: &ObjectId,
    lease: &Lease,
    observed: &Observed,
) -> Option<Finding> {
    // It was given back, and is anybody's.
    if lease.holder.is_empty() {
        return None;
    }
    let ahead = lease.renewed - lease.seen;
    if ahead > SKEW {
        let text = format!(
            "Pod {} renewed its Lease {} s in the future",
            lease.holder,
            ahead.whole_seconds()
        );
        return Some(Finding::new(Class::ClockSkew, id, text));
    }
    // One that is not known may be there where not all are.
    let held = observed.pods_cut || observed.pods.contains_key(&lease.holder);
    // One that does not run asks for none.
    let waits =
        pods_of(observed, &id.name).any(|pod| pod.running.is_some_and(|at| now - at > STUCK));
    let stuck = lease.seen - lease.renewed > STUCK && !held && waits;
    stuck.then(|| {
        let text = format!(
            "Pod {} holds the Lease and is gone; renewed last at {}",
            lease.holder,
            rfc3339(lease.renewed)
        );
        Finding::new(Class::LeaderStuck, id, text)
    })
}

/// The old Pod serves, the new one does not come up; or of several of the same version one does not.
fn half_rolled(id: &ObjectId, observed: &Observed) -> Option<Finding> {
    let live = observed.objects.get(id)?;
    if !works(live) || live.number("/status/unavailableReplicas") < 1 {
        return None;
    }
    let why = pods_of(observed, &id.name).find_map(pod_fault);
    let why = why.map_or_else(|| "is not available".to_owned(), |(_, evidence)| evidence);
    // All that there are, of whatever version: where none is of the one before, that one does not serve.
    let has_old = live.number("/status/updatedReplicas") < live.number("/status/replicas");
    let what = if has_old {
        "the new Pod does not come up, an old one serves"
    } else {
        "a Pod is not up, another one of the same version serves"
    };
    let text = format!("{what}: {why}");
    Some(Finding::new(Class::HalfRolled, id, text))
}

#[cfg(test)]
mod tests;

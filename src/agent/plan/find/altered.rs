//! An object of the install that is there, but not as wanted: what of it differs, and which fault that is.

use std::collections::BTreeSet;

use serde_json::Value;
use time::{Duration, OffsetDateTime};

use super::stopped::stopped;
use super::{Finding, keeps_secrets, pruned, secret_class, values};
use crate::agent::engine::argocd::signers;
use crate::agent::engine::compare::{additions, drift};
use crate::agent::engine::flux::{self, SIGNERS};
use crate::agent::engine::{GUARD, Install, Wanted, alone, guard, is_workload};
use crate::agent::plan::displaced::{self, Item};
use crate::agent::plan::fault::Class;
use crate::agent::plan::quarantine::root::SUSPEND;
use crate::agent::plan::state::{History, Object, Observed};
use crate::agent::plan::{argocd, health, ownership, quarantine};
use crate::bundle::{Kind, ObjectId};

/// Where a GitRepository says whose signature it wants.
const VERIFY: &str = "/spec/verify";
/// Where a workload says which Secrets its Pods pull their images with.
const PULLS: &str = "/spec/template/spec/imagePullSecrets";

/// What others added to a workload after it was last known good counts only when it has not worked for so long: a node may
/// just be drained.
pub(in crate::agent::plan) const DOWN: Duration = Duration::seconds(30);

pub(super) fn altered(
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
        return leftover(now, (id, live), since).into_iter().collect();
    }
    let mut found: Vec<Finding> = stopped(now, install, observed, history, (id, live))
        .into_iter()
        .collect();
    let stale = unservable(id, wanted, live).or_else(|| refused(install, observed, (id, live)));
    if let Some(finding) = stale {
        found.push(finding);
        return found;
    }
    if !held && quarantine::removed(install, observed, id) {
        let commit = quarantine::removal(install, observed, id);
        found.push(pruned(id, "would be pruned").brought_by(commit));
        return found;
    }
    if quarantine::is_from_git(install, wanted, live) && !held {
        found.extend(quarantine::broken(
            now,
            install,
            observed,
            history,
            (id, wanted, live),
        ));
        return found;
    }
    // What is held is ours for as long.
    let others = (id, wanted, live, held);
    if let Some(finding) = quarantine::unsettled(now, install, observed, history, others) {
        found.push(finding);
        return found;
    }
    let (works, why) = at_work(now, install, observed, history, others);
    let displaced = displaced::of(install, id, live);
    if works && displaced.is_empty()
        || wanted.taken && !held && !quarantine::harms(now, install, observed, history, (id, live))
        || id.kind == Kind::Namespace && ownership::is_from_catalog(install, observed, live)
        || history.settled.get(id) == Some(&live.mark())
    {
        return found;
    }
    let down = history.down.get(id).is_some_and(|at| now - *at >= DOWN);
    // All else of what Git owns and what works is Git's to put back, once it can.
    let paths = if works {
        displaced.iter().map(Item::path).collect()
    } else {
        differing(wanted, (id, live, held), !found.is_empty(), down)
    };
    // Held for the commit before, it would be given back at once, and broken a second time.
    let told = held || !quarantine::root::is_untold(now, install, observed, history, (id, live));
    if !paths.is_empty() && told {
        let class = if posts_in_vain(wanted, live) {
            Class::EventSinkMissing
        } else {
            altered_class(id, &paths, live)
        };
        let both = (wanted.expect.as_ref(), &live.fields);
        let mut text = format!("{why}differs at {}", values::told(id.kind, &paths, both));
        if !displaced.is_empty() {
            text += "; beside what was put there, server-side apply of the catalog's version is refused";
        }
        let finding = Finding::new(class, id, text).written_by(live).at(paths);
        found.push(if held {
            finding
        } else {
            quarantine::root::brought(install, observed, history, (id, live), finding)
        });
    }
    found
}

/// Whether a controller that Git owns does its work, so that it is Git's to put back, or why it does not, as words to begin with.
fn at_work(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    history: &History,
    (id, wanted, live, held): (&ObjectId, &Wanted, &Object, bool),
) -> (bool, String) {
    if !wanted.git_owned || held || !health::works(live) {
        return (false, String::new());
    }
    let why = quarantine::spoilt(now, install, observed, history, (id, live));
    why.map_or_else(|| (true, String::new()), |why| (false, format!("{why}; ")))
}

/// What is being deleted and does not go, whose end nobody else sees to.
fn leftover(
    now: OffsetDateTime,
    (id, live): (&ObjectId, &Object),
    since: OffsetDateTime,
) -> Option<Finding> {
    let guarded = id.kind.holds_others();
    let long = now - since > Duration::seconds(60) && !live.finalizers.is_empty() && !guarded;
    let text = format!("is being deleted, held by {}", live.finalizers.join(", "));
    long.then(|| Finding::new(Class::LeftoverFinalizers, id, text))
}

/// Where an object is not as wanted. What stops a root has a finding of its own; what others added to a workload is looked at
/// where it is `down`: one that Git owns and that does not run, or is held, nobody else puts back.
fn differing(
    wanted: &Wanted,
    (id, live, held): (&ObjectId, &Object, bool),
    stopped: bool,
    down: bool,
) -> Vec<String> {
    let mut paths = drift(&wanted.expect, &live.fields);
    paths.extend(still_verifies(&wanted.expect, &live.fields).then(|| VERIFY.to_owned()));
    paths.extend(signers::left(id, &wanted.expect, &live.fields));
    paths.extend(alone::surplus(id, &wanted.expect, &live.fields));
    paths.extend(still_pulls(wanted, live));
    paths.extend(quarantine::root::astray(id, live));
    paths.extend(guard::narrowed(id.kind, &live.fields));
    if stopped {
        let application = id.kind == Kind::Application;
        let stops = |path: &str| path == SUSPEND || application && argocd::is_stop(path);
        paths.retain(|path| !stops(path));
    }
    // Argo CD's manifest leaves the number of Pods to people, but none is no number.
    let none = live.fields.pointer("/spec/replicas") == Some(&Value::from(0));
    if is_workload(id.kind) && none && paths.is_empty() {
        paths.push("/spec/replicas".to_owned());
    }
    let looked_at = down && is_workload(id.kind) && !health::works(live);
    let known = held || wanted.is_known_whole();
    if known && paths.is_empty() && looked_at {
        paths = additions(&wanted.whole(), &live.fields);
    }
    paths
}

/// F10: a controller that runs and does not answer, and that somebody changed, does what it was told to. To restart it mends
/// nothing; what Git changed has a finding of its own.
pub(super) fn useless(
    install: &Install,
    observed: &Observed,
    history: &History,
    found: &mut [Finding],
) {
    let held = quarantine::holds(install, observed);
    let named: BTreeSet<ObjectId> = found.iter().map(|f| f.object.clone()).collect();
    let wedged = found.iter_mut().filter(|f| f.class == Class::QueueWedged);
    for finding in wedged {
        let id = install.controller(&finding.object);
        let (Some(wanted), Some(live)) = (install.wanted.get(&id), observed.objects.get(&id))
        else {
            continue;
        };
        let held = held.contains_key(&id);
        let ours =
            held || wanted.is_known_whole() && !quarantine::is_from_git(install, wanted, live);
        let settled = history.settled.get(&id) == Some(&live.mark());
        if !ours || settled || named.contains(&id) {
            continue;
        }
        let mut paths = drift(&wanted.expect, &live.fields);
        if paths.is_empty() {
            paths = additions(&wanted.whole(), &live.fields);
        }
        if !paths.is_empty() {
            let (asked, said) = (&finding.object, &finding.evidence);
            let both = (wanted.expect.as_ref(), &live.fields);
            let text = format!(
                "runs, but {said} from {asked}; differs at {}",
                values::told(id.kind, &paths, both)
            );
            *finding = Finding::new(Class::ReadyButUseless, &id, text)
                .written_by(live)
                .at(paths);
        }
    }
}

/// Verification that we set up and that nobody asks for any more. One that an owner added stays.
fn still_verifies(wanted: &Value, live: &Value) -> bool {
    let by = live.pointer("/spec/verify/secretRef/name");
    wanted.pointer(VERIFY).is_none() && by.and_then(Value::as_str) == Some(SIGNERS)
}

/// Secrets that we had Pods pull with and that nothing names any more: to apply takes them away. Those of others are theirs.
pub(in crate::agent::plan) fn still_pulls(wanted: &Wanted, live: &Object) -> Vec<String> {
    if live.pulls.is_empty() {
        return Vec::new();
    }
    let whole = wanted.whole();
    let named = whole.pointer(PULLS).and_then(Value::as_array);
    let named = named.into_iter().flatten();
    let named: Vec<&str> = named.filter_map(|s| s.get("name")?.as_str()).collect();
    let left = live.pulls.iter().filter(|s| !named.contains(&s.as_str()));
    left.map(|secret| format!("{PULLS}/{secret}")).collect()
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

/// The same for a CRD that the catalog brings in a version which we do not know: the API server named the versions that objects
/// are stored in and that it lacks, and the engine passed that on (apiextensions-apiserver, `validation.go`).
fn refused(
    install: &Install,
    observed: &Observed,
    (id, live): (&ObjectId, &Object),
) -> Option<Finding> {
    let lost = refused_versions(install, observed, (id, live));
    (!lost.is_empty()).then(|| {
        let text = format!(
            "stores objects in {}, which the catalog's version of it does not have",
            lost.join(", ")
        );
        Finding::new(Class::CrdStoredVersion, id, text)
    })
}

/// Empty where the engine says no such thing, or said it of what is mended by now.
fn refused_versions<'a>(
    install: &Install,
    observed: &Observed,
    (id, live): (&ObjectId, &'a Object),
) -> Vec<&'a str> {
    if id.kind != Kind::CustomResourceDefinition {
        return Vec::new();
    }
    let stored = live.fields.pointer("/status/storedVersions");
    let stored = stored.and_then(Value::as_array).into_iter().flatten();
    let said = said(install, observed, |text| {
        text.contains("must remain in spec.versions") && text.contains(&id.name)
    });
    let names = |version: &&str| {
        let named = format!("; {version} was previously a storage version");
        said.iter().any(|text| text.contains(&named))
    };
    stored.filter_map(Value::as_str).filter(names).collect()
}

/// Whether all objects of a CRD are to be written anew for what they are stored in.
pub(super) fn is_stale(
    install: &Install,
    observed: &Observed,
    (id, live): (&ObjectId, &Object),
) -> bool {
    let wanted = install.wanted.get(id);
    let lost = wanted.and_then(|wanted| unservable(id, wanted, live));
    lost.is_some() || !refused_versions(install, observed, (id, live)).is_empty()
}

/// What roots and the sync objects below them say of why something is not applied, as far as it is of that.
fn said(install: &Install, observed: &Observed, is_that: impl Fn(&str) -> bool) -> Vec<String> {
    let roots = install.roots().filter_map(|id| observed.objects.get(id));
    let roots = roots.flat_map(|root| {
        let ready = root
            .condition("Ready")
            .filter(|(status, _, _)| *status == "False");
        let ready = ready.map(|(_, _, message)| message.to_owned());
        let others = argocd::faults(root).map(|(_, text)| text);
        ready.into_iter().chain(others)
    });
    let troubles = observed.children.values().filter_map(|c| {
        let (_, message) = c.trouble.as_ref()?;
        is_that(message).then(|| message.clone())
    });
    roots.filter(|text| is_that(text)).chain(troubles).collect()
}

/// The version that a CRD stores new objects in, where what is to be applied has that, too.
pub(in crate::agent::plan) fn storage(
    install: &Install,
    observed: &Observed,
    id: &ObjectId,
) -> Option<String> {
    let versions = |fields: &Value| {
        let all = fields.pointer("/spec/versions").and_then(Value::as_array);
        all.cloned().unwrap_or_default()
    };
    let live = versions(&observed.objects.get(id)?.fields);
    let stores = |v: &&Value| v.get("storage") == Some(&Value::Bool(true));
    let to = live.iter().find(stores)?.get("name")?.as_str()?;
    let lost = refused_versions(install, observed, (id, observed.objects.get(id)?));
    let kept = if lost.is_empty() {
        let wanted = install.wanted.get(id)?;
        let kept = versions(&wanted.expect);
        // Of what Git took over nothing else is known.
        wanted.taken || kept.iter().any(|v| v.get("name") == Some(&Value::from(to)))
    } else {
        !lost.contains(&to)
    };
    kept.then(|| to.to_owned())
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
            if paths.iter().any(|p| p.ends_with("/image")) {
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
        | Kind::Receiver
        | Kind::ImageRepository
        | Kind::ImageUpdateAutomation
        | Kind::ValidatingAdmissionPolicy
        | Kind::ValidatingAdmissionPolicyBinding => Class::ObjectAltered,
    }
}

#[cfg(test)]
mod tests;

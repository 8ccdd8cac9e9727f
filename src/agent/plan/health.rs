//! Whether the engine works: its controllers, its Pods, and what the root objects say.

use time::{Duration, OffsetDateTime};

use super::argocd;
use super::barred::barred;
use super::fault::Class;
use super::find::Finding;
use super::state::{History, Object, Observed, Pod, Probe};
use super::{
    barred, busy, doubt, failed, latent, quarantine, retry, silence, superseded, undecodable,
};
use crate::agent::engine::Install;
use crate::agent::engine::argocd::SKIP;
use crate::bundle::{Kind, ObjectId};
use crate::wire::api::EngineKind;

mod complaint;

use complaint::complained;
pub(super) use complaint::{complaints, has_ended, root_fault, said};

/// A probe without an answer for this long, while its controller is up, is a wedged queue.
pub(super) const WEDGED: Duration = Duration::seconds(90);
/// The same for an object whose reconciliation makes progress.
const SLOW: Duration = Duration::seconds(330);
/// A controller whose Lease was renewed so long ago is alive: it renews that every few seconds, and the Leases are listed every 66 s.
pub(super) const ALIVE: Duration = Duration::minutes(3);

/// A Lease that is not renewed any more is given to another after so long; it is renewed every 5 s.
pub(super) const HANDED: Duration = Duration::seconds(35);

/// Available at the generation that was asked for.
pub fn works(deployment: &Object) -> bool {
    deployment.number("/status/observedGeneration") >= deployment.generation
        && deployment.number("/status/availableReplicas") >= 1
        && deployment.number("/status/updatedReplicas") >= 1
}

/// Whether a controller should answer: it is available, or it runs and nothing but itself could end it. Argo CD's has
/// no liveness probe, and is no longer ready when it hangs.
pub(super) fn answers(install: &Install, observed: &Observed, controller: &ObjectId) -> bool {
    let up = || observed.objects.get(controller).is_some_and(|d| works(d));
    match install.traits.kind {
        EngineKind::Flux => up(),
        EngineKind::Argocd => pods_of(observed, &controller.name).any(|p| p.running.is_some()),
    }
}

/// Whether the Pod before still leads while it ends: it lets go of its Lease once it is done with what it is at (controller-runtime,
/// `engageStopProcedure`), and until then the Pod after it is available and does nothing. One that does not end in time is no excuse.
pub(super) fn is_led_by_former(
    now: OffsetDateTime,
    observed: &Observed,
    controller: &ObjectId,
) -> bool {
    let lease = observed.lease(controller);
    let renewed = lease.filter(|lease| now - lease.renewed <= ALIVE);
    let holder = renewed.and_then(|lease| observed.pods.get(&lease.holder));
    let ends = holder.and_then(|pod| pod.ends);
    ends.is_some_and(|at| now - at <= HANDED)
}

/// Whether probes make sense: all that is needed for an answer is there. Another part of the install may be broken for long, and the
/// roots' controllers hang meanwhile.
pub fn can_answer(install: &Install, observed: &Observed) -> bool {
    match install.traits.kind {
        EngineKind::Flux => roots_work(install, observed),
        EngineKind::Argocd => {
            let controller = install.controller(&install.sync);
            let mut others = of_roots(install).filter(|id| **id != controller);
            others.all(|id| observed.objects.get(id).is_some_and(|live| works(live)))
                && answers(install, observed, &controller)
        }
    }
}

/// Whether all works that the roots need, whatever becomes of other parts of the install.
pub fn roots_work(install: &Install, observed: &Observed) -> bool {
    of_roots(install).all(|id| observed.objects.get(id).is_some_and(|live| works(live)))
}

/// The controllers of the roots, and what these need for an answer.
pub(super) fn of_roots(install: &Install) -> impl Iterator<Item = &ObjectId> {
    install.workloads().filter(move |id| {
        let asked = install
            .traits
            .controllers
            .contains(&(id.kind, id.name.as_str()));
        asked || install.traits.answers_with.contains(&id.name.as_str())
    })
}

/// Whether every workload of the install works.
pub fn workloads_work(install: &Install, observed: &Observed) -> bool {
    let mut workloads = install.workloads();
    workloads.all(|id| observed.objects.get(id).is_some_and(|live| works(live)))
}

/// The revision that source and sync agree on.
pub fn revision(install: &Install, observed: &Observed) -> Option<String> {
    if install.traits.kind == EngineKind::Argocd {
        let root = observed.objects.get(&install.sync)?;
        return argocd::revision(root).map(str::to_owned);
    }
    let source = observed.objects.get(&install.source)?;
    let sync = observed.objects.get(&install.sync)?;
    let fetched = source.text("/status/artifact/revision");
    let applied = sync.text("/status/lastAppliedRevision");
    (!fetched.is_empty() && fetched == applied).then(|| applied.to_owned())
}

/// Since when function is proven: both roots answered a probe sent then or later, the controllers are up, and what
/// was fetched is what was tried last. A commit that cannot be applied does not unprove it: it reached the cluster.
pub fn proven_since(install: &Install, observed: &Observed) -> Option<OffsetDateTime> {
    answered_since(install, observed).filter(|_| workloads_work(install, observed))
}

/// The same of source and sync object alone, whatever other parts of the install do.
pub fn answered_since(install: &Install, observed: &Observed) -> Option<OffsetDateTime> {
    let source = observed.objects.get(&install.source)?;
    let sync = observed.objects.get(&install.sync)?;
    let tried = match install.traits.kind {
        EngineKind::Flux => {
            let fetched = source.text("/status/artifact/revision");
            let last = sync.text("/status/lastAttemptedRevision");
            !fetched.is_empty() && fetched == last && source.is_true("Ready")
        }
        EngineKind::Argocd => argocd::tried(sync),
    };
    let alive = source.deleting.is_none() && sync.deleting.is_none();
    let asked = [source, sync].map(|o| o.probe().filter(|p| p.answered).map(|p| p.sent));
    let [Some(of_source), Some(of_sync)] = asked else {
        return None;
    };
    (tried && alive).then(|| of_source.min(of_sync))
}

/// Controllers that do not come up although their fields are as wanted.
pub(super) fn workloads(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    found: &mut Vec<Finding>,
) {
    for id in install.workloads() {
        let Some(live) = observed.objects.get(id) else {
            continue;
        };
        found.extend(superseded::found(observed, (id, live)));
        let named = found
            .iter()
            .any(|f| f.object == *id && f.class != Class::SuspendedByHuman);
        if named || works(live) || live.deleting.is_some() {
            continue;
        }
        let pods: Vec<&Pod> = pods_of(observed, &id.name).collect();
        let (class, evidence) = pods
            .iter()
            .find_map(|pod| pod_fault(pod))
            .or_else(|| barred(now, observed, (id, live)))
            .unwrap_or_else(|| {
                let text = if pods.is_empty() && observed.pods_cut {
                    "is not available; its namespace has more Pods than are looked at, and none of those is its own"
                } else {
                    "is not available"
                };
                (Class::NotAvailable, text.to_owned())
            });
        let mut finding = Finding::new(class, id, evidence);
        // Only what failed on a node is dropped.
        finding.reported = class == Class::Unschedulable;
        found.push(finding);
    }
    failed::left(install, observed, found);
}

pub(super) fn pods_of<'a>(observed: &'a Observed, app: &'a str) -> impl Iterator<Item = &'a Pod> {
    observed
        .pods
        .values()
        .map(AsRef::as_ref)
        .filter(move |pod| pod.app == app && !pod.deleting && pod.failed.is_none())
}

pub(super) fn pod_fault(pod: &Pod) -> Option<(Class, String)> {
    if let Some(why) = &pod.unschedulable {
        return Some((Class::Unschedulable, why.clone()));
    }
    let (reason, message) = pod.waiting.as_ref()?;
    let text = format!("{reason}: {message}");
    match reason.as_str() {
        "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull" => {
            Some((Class::RegistryDown, format!("{text} ({})", pod.image)))
        }
        "CrashLoopBackOff" => {
            let (code, why) = pod.ended.clone().unwrap_or_default();
            let class = if why == "OOMKilled" {
                Class::OomKilled
            } else {
                Class::CrashLoop
            };
            Some((
                class,
                format!(
                    "{text}; exit code {code} ({why}), {} restarts",
                    pod.restarts
                ),
            ))
        }
        "CreateContainerConfigError" | "CreateContainerError" => {
            Some((Class::ConfigRefMissing, text))
        }
        _ => None,
    }
}

/// Why the API server takes no Pods of a Deployment.
pub(super) fn refused(live: &Object) -> Option<(Class, String)> {
    let (status, _, message) = live.condition("ReplicaFailure")?;
    if status != "True" {
        return None;
    }
    let class = barred::class(message).unwrap_or(Class::NotAvailable);
    Some((class, message.to_owned()))
}

/// What source and sync say about themselves, and probes that nobody answers.
pub(super) fn roots(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    history: &History,
    found: &mut Vec<Finding>,
) {
    // Then the controller gets the time to answer that it had not.
    let blind = history.blind_until(now);
    let mute = |id: &ObjectId, owed| blind.max(history.working_until(now, id.kind, owed));
    for id in install.roots() {
        let Some(live) = observed.objects.get(id) else {
            continue;
        };
        // Argo CD looks at nothing that says so.
        if live.deleting.is_some() || live.annotation(SKIP) == Some("true") {
            continue;
        }
        complained(now, install, history, (id, live), found);
        found.extend(doubt::found(now, observed, (id, live)));
        found.extend(quarantine::astray(now, install, observed, (id, live)));
        let controller = install.controller(id);
        let up = answers(install, observed, &controller)
            && !is_led_by_former(now, observed, &controller);
        let controller = &controller.name;
        let limit = patience(now, install, observed, (id, live));
        // It cannot answer before that object is gone, and restarted it would not come up.
        let up = up && !undecodable::blinds(observed, id.kind);
        // With the Git host away each fetch takes its whole timeout, and a new Pod would have nothing of what was fetched.
        let fetches = id.kind == Kind::GitRepository;
        let up = up && !(fetches && latent::host_is_away(observed, live));
        let limit = if fetches {
            limit + busy::queue(install, observed)
        } else {
            limit
        };
        // Who takes a question away is at work, whatever his clock says.
        let up = up && !argocd::took_question(live);
        let probe = live.probe().filter(|_| up);
        let unanswered = probe.filter(|p| !silence::is_answered(now, id, live, *p));
        let since = |probe: Probe| {
            let owed = history.ignored_since(id, live, probe);
            owed.max(mute(id, owed).unwrap_or(owed))
        };
        let silent = unanswered.filter(|p| {
            pods_of(observed, controller).any(|pod| is_silent(pod, now - limit, since(*p)))
        });
        found.extend(silent.map(|probe| wedged(id, probe)));
    }
}

/// How long a controller that could answer for a root may take. One that waits within the root's own timeout can say nothing meanwhile,
/// and would begin anew if it were started again; its Lease shows that it is alive.
fn patience(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    (id, live): (&ObjectId, &Object),
) -> Duration {
    let awaits = |(_, said): (Class, String)| argocd::awaits_git(install, observed, &said);
    if !live.is_true("Reconciling") && !argocd::faults(live).any(awaits) {
        return WEDGED;
    }
    let lease = observed.lease(&install.controller(id));
    let leads = lease.is_some_and(|lease| now - lease.renewed <= ALIVE);
    let own = retry::waits(id.kind, live).filter(|_| leads);
    own.map_or(SLOW, |own| own.max(SLOW))
}

/// Controllers that no root is asked of. One that is busy with every worker it has is left alone: a release that is cut in the
/// middle is worse than one that is late.
pub(super) fn canaries(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    history: &History,
    found: &mut Vec<Finding>,
) {
    for id in install.canaries() {
        let controller = install.controller(id);
        let up = answers(install, observed, &controller)
            && !is_led_by_former(now, observed, &controller)
            && !undecodable::blinds(observed, id.kind);
        let live = observed
            .objects
            .get(id)
            .filter(|l| up && l.deleting.is_none());
        let Some((live, probe)) = live.and_then(|l| Some((l, l.probe()?))) else {
            continue;
        };
        let owed = history.owed_since(id, live, probe);
        let working = history.working_until(now, id.kind, owed);
        let busy = history.blind_until(now).max(working);
        let since = owed.max(busy.unwrap_or(owed));
        let mut pods = pods_of(observed, &controller.name);
        if !probe.answered && pods.any(|pod| is_silent(pod, now - WEDGED, since)) {
            found.push(wedged(id, probe));
        }
    }
}

/// Whether a Pod had the time to answer: it runs since before `limit`, and so long ago is the question, too.
pub(super) fn is_silent(pod: &Pod, limit: OffsetDateTime, asked: OffsetDateTime) -> bool {
    let up = pod.running.or(pod.created);
    up.is_some_and(|at| at.max(asked) < limit)
}

pub(super) fn wedged(id: &ObjectId, probe: Probe) -> Finding {
    let sent = crate::clock::rfc3339(probe.sent);
    Finding::new(
        Class::QueueWedged,
        id,
        format!("a probe of {sent} has no answer"),
    )
}

#[cfg(test)]
mod tests;

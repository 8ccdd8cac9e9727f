//! Where a commit's version of an object of the engine shows that it does harm. Until then it is an upgrade, and
//! nobody's business but Git's.

use serde_json::Value;
use time::{Duration, OffsetDateTime};

use super::deaf::deaf;
use super::unreached::unreached;
use super::{checks, commit, owner, shield};
use crate::agent::engine::argocd::{REDIS, REPO_SERVER};
use crate::agent::engine::compare::{additions, drift, settings};
use crate::agent::engine::{Install, Wanted, is_workload};
use crate::agent::plan::barred::{self, barred};
use crate::agent::plan::exits::often;
use crate::agent::plan::fault::Class;
use crate::agent::plan::find::Finding;
use crate::agent::plan::health::{pod_fault, pods_of, works};
use crate::agent::plan::state::{History, Object, Observed, Pod};
use crate::agent::plan::{argocd, health, latent, undecodable, witness};
use crate::bundle::{Kind, ObjectId};
use changed::{can_matter, takes};

mod age;
mod changed;

/// A new version may take so long to come up before it is called stuck: as long as Kubernetes itself waits (a Deployment's
/// `progressDeadlineSeconds` is 600 where nobody says more).
pub(super) const WINDOW: Duration = Duration::minutes(10);
/// A controller that was changed and has owed an answer for this long is useless.
pub(super) const UNANSWERED: Duration = Duration::seconds(30);
/// The same for what a controller only reads; it is asked again when it was changed.
pub(super) const DEAF: Duration = Duration::seconds(45);
/// What a root of Flux says so long after a change is not from before it.
const SAID: Duration = Duration::seconds(5);
/// For so long a new version may fail while a Pod of the old one serves.
const SERVED: Duration = Duration::minutes(1);

/// How the API server says that somebody may not do something (kubernetes, `responsewriters/errors.go`; of who grants more than he has,
/// `registry/rbac/validation`).
const OF_RIGHTS: [&str; 2] = ["forbidden: User ", "forbidden: user "];
/// How admission refuses what anybody may do, beside what [`barred::class`] knows: a namespace that goes, a quota, a limit range, a policy
/// (kubernetes, `plugin/pkg/admission`). To that, too, the API server says `forbidden`.
const OF_ADMISSION: [&str; 6] = [
    "is being terminated",
    "failed quota",
    "unknown for quota",
    " usage per ",
    " limit to request ratio per ",
    "denied request",
];

/// A commit's version of an object of the engine, where it does harm.
pub fn broken(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    history: &History,
    (id, wanted, live): (&ObjectId, &Wanted, &Object),
) -> Option<Finding> {
    let mut paths = drift(&wanted.expect, &live.fields);
    paths.extend(additions(&wanted.whole(), &live.fields));
    // Argo CD's manifest leaves the number of Pods to people, but none is no number.
    let none = live.fields.pointer("/spec/replicas") == Some(&Value::from(0));
    if is_workload(id.kind) && none && paths.is_empty() {
        paths.push("/spec/replicas".to_owned());
    }
    if let Some(known) = &wanted.known {
        // With what Git has in the place of our own settings the engine has worked.
        paths.retain(|path| path != "/data" && !path.starts_with("/data/"));
        paths.extend(settings(known, &live.fields));
    }
    if paths.is_empty() {
        return None;
    }
    let (class, why) = if is_workload(id.kind) {
        harm(now, install, observed, history, (id, live))?
    } else {
        let why = blamed(now, install, observed, history, (id, live.written?))?;
        (Class::BadEngineCommit, why)
    };
    let commit = commit(install, observed, id);
    let text = format!("{why}; commit {commit} changed {}", paths.join(", "));
    let finding = Finding::new(class, id, text).written_by(live);
    Some(finding.brought_by(commit))
}

/// Settings that are not as they were when the engine last worked, where it does not work now, or where they are held.
pub fn unsettled(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    history: &History,
    (id, wanted, live, held): (&ObjectId, &Wanted, &Object, bool),
) -> Option<Finding> {
    let paths = settings(wanted.known.as_ref()?, &live.fields);
    if paths.is_empty() {
        return None;
    }
    let why = if held {
        "is held back from Git".to_owned()
    } else {
        blamed(now, install, observed, history, (id, live.written?))?
    };
    let text = format!("{why}; {} differ from last known good", paths.join(", "));
    Some(Finding::new(Class::EngineConfigBroken, id, text).written_by(live))
}

/// Whether an object that Git owns does harm as it is, whoever wrote it last.
pub fn harms(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    history: &History,
    (id, live): (&ObjectId, &Object),
) -> bool {
    if is_workload(id.kind) {
        harm(now, install, observed, history, (id, live)).is_some()
    } else {
        let blamed = |since| blamed(now, install, observed, history, (id, since));
        live.written.and_then(blamed).is_some()
    }
}

/// Why a controller that is available is of no use as somebody made it. Git, where it owns it, may not get to put it back then.
pub fn spoilt(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    history: &History,
    (id, live): (&ObjectId, &Object),
) -> Option<String> {
    if !is_workload(id.kind) {
        return None;
    }
    let dies = || {
        let since = live.written.map(|at| history.seen_since(id, at));
        let often = often(now, observed, history, (&id.name, since));
        often.filter(|_| !is_proven(observed, history, (id, live)))
    };
    let why = unreached(now, install, observed, history, (id, live));
    let why = why.or_else(|| deaf(install, observed, (id, live)));
    why.or_else(|| dies().map(|(_, text)| text))
}

/// What shows that an object which runs nothing itself keeps the engine from its work: what depends on it complains,
/// and did not before it was changed, or went.
pub(super) fn blamed(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    history: &History,
    (id, since): (&ObjectId, OffsetDateTime),
) -> Option<String> {
    let shown = install.workloads().find_map(|workload| {
        let of = observed.objects.get(workload).filter(|of| !works(of))?;
        let pods = pods_of(observed, &workload.name).filter_map(pod_fault);
        let all: Vec<(Class, String)> = pods.chain(barred(now, observed, (workload, of))).collect();
        let (_, text) = all.into_iter().find(|(class, _)| stops(id.kind, *class))?;
        Some(format!("{workload}: {text}"))
    });
    if shown.is_some() {
        return shown;
    }
    // A controller that does not run says nothing of anything else; one that the roots do not need is none of their trouble.
    if !health::roots_work(install, observed) || !can_matter(install, observed, id) {
        return None;
    }
    let complaint = install.roots().find_map(|root| {
        let said = observed.objects.get(root)?;
        let unread = argocd::unread_settings(said, now).map(str::to_owned);
        let unread = unread.map(|text| (Class::EngineConfigBroken, text));
        let all = health::complaints(install, said).into_iter();
        let mut all = all.chain(unread.filter(|_| root.kind == Kind::Application));
        let (_, text) = all.find(|(class, text)| {
            let of_host = || is_of_host(install, observed, said, (*class, text));
            disturbs(id, *class, text) && !of_host()
        })?;
        let after = match root.kind {
            Kind::Application => argocd::looked(said).is_some_and(|at| at >= since),
            _ => now - history.seen_since(id, since) > SAID,
        };
        after.then(|| format!("{root}: {text}"))
    });
    let complaint = complaint.or_else(|| refused_to_apply(install, observed, id));
    complaint.or_else(|| {
        // Of what it cannot do any more a controller says nothing until its time is over.
        let waits = !takes(install, observed, id);
        let silent = install.roots().find(|root| {
            let owed = owed(now, install, observed, history, (root, Some(since)));
            let late = |at| checks::put_off(now, install, observed, (root, at), DEAF);
            let owed = if waits { owed.map(late) } else { owed };
            owed.is_some_and(|at| now - at > DEAF)
        })?;
        deafens(id.kind).then(|| format!("nobody answers for {silent}"))
    })
}

/// What Argo CD was refused while it applied the commit that brought a role or a binding: it compares by what it has watched so
/// far, so that its answers show nothing of that.
fn refused_to_apply(install: &Install, observed: &Observed, id: &ObjectId) -> Option<String> {
    let owner = owner(install, observed, id);
    let said = shield::said(install, observed, &owner).filter(|_| id.kind.is_rbac())?;
    let text = said.refused.as_ref()?;
    Some(format!("{owner}: {text}"))
}

/// Whether an object of a kind can be why a Pod does not run.
fn stops(kind: Kind, class: Class) -> bool {
    match class {
        Class::CrashLoop => {
            matches!(kind, Kind::ConfigMap | Kind::ServiceAccount) || kind.is_rbac()
        }
        Class::ConfigRefMissing => kind == Kind::ConfigMap,
        Class::QuotaBlocks => kind == Kind::ResourceQuota,
        _ => false,
    }
}

/// Whether a complaint is of the Git host, for all that is known: the agent has not read the catalog beside it, and with the host away
/// any version of the engine complains.
fn is_of_host(
    install: &Install,
    observed: &Observed,
    root: &Object,
    complaint: (Class, &str),
) -> bool {
    is_of_fetch(install, observed, complaint) && !latent::reads_beside(observed, root)
}

fn is_of_fetch(install: &Install, observed: &Observed, (class, text): (Class, &str)) -> bool {
    match class {
        Class::GitUnreachable => true,
        Class::ArtifactUnreachable => argocd::awaits_git(install, observed, text),
        _ => false,
    }
}

/// Whether neither Argo CD nor the agent reaches the Git host: then a look takes minutes, in any version.
fn awaits_host(
    install: &Install,
    observed: &Observed,
    (asked, said): (&ObjectId, &Object),
) -> bool {
    let mut complaints = argocd::faults(said);
    asked.kind == Kind::Application
        && observed.own_look.read().is_none()
        && complaints.any(|(class, text)| is_of_fetch(install, observed, (class, &text)))
}

/// Whether it can be why a root complains.
fn disturbs(id: &ObjectId, class: Class, text: &str) -> bool {
    match class {
        // What the guard policy keeps is no want of rights; rights that are gone show as soon as something is applied.
        Class::ApplyFailed if text.starts_with("PruneFailed") => false,
        Class::ApplyFailed | Class::BuildFailed if text.contains("forbidden") => {
            id.kind.is_rbac() && lacks_rights(text)
        }
        Class::ArtifactUnreachable | Class::RedisDown => matches!(
            id.kind,
            Kind::Service | Kind::NetworkPolicy | Kind::ConfigMap
        ),
        Class::GitUnreachable => id.kind == Kind::NetworkPolicy,
        Class::BuildFailed | Class::EngineSecretMissing | Class::EngineConfigBroken => {
            id.kind == Kind::ConfigMap
        }
        _ => false,
    }
}

/// Whether what is forbidden is so for want of rights, where its words do not say otherwise. Of several refusals one is enough.
fn lacks_rights(text: &str) -> bool {
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    says(&OF_RIGHTS) || barred::class(text).is_none() && !says(&OF_ADMISSION)
}

/// Whether it can be why a controller that runs does not answer.
fn deafens(kind: Kind) -> bool {
    kind.is_rbac() || matches!(kind, Kind::ConfigMap | Kind::NetworkPolicy | Kind::Service)
}

fn harm(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    history: &History,
    (id, live): (&ObjectId, &Object),
) -> Option<(Class, String)> {
    if live.number("/spec/replicas") == 0 {
        let text = "is scaled to 0 by Git".to_owned();
        return Some((Class::BadEngineCommit, text));
    }
    let mut of_version = pods_of(observed, &id.name).filter(|pod| may_be_of(live, pod));
    let of_pods = of_version.find_map(pod_fault);
    let shown = of_pods.filter(|(class, _)| *class != Class::Unschedulable);
    let since = live.written.map(|at| history.seen_since(id, at));
    let older = |age: Duration| since.is_some_and(|at| now - at > age);
    if !works(live) {
        let shown = shown.or_else(|| barred(now, observed, (id, live)));
        let shown = shown.or_else(|| often(now, observed, history, (&id.name, since)));
        if let Some((_, text)) = shown {
            return Some((Class::BadEngineCommit, text));
        }
        let window = window(live);
        let text = format!("has not come up for {} min", window.whole_minutes());
        return older(window).then_some((Class::EngineUpgradeStuck, text));
    }
    let (serve, former) = (live.number("/status/availableReplicas"), former(live));
    let down = all(live) > serve;
    // Where a Pod of the new version is at work and none of the one before is left, it is not that version which another one fails by.
    let how = if serve <= former && older(SERVED) {
        Some("the new Pod does not come up, an old one serves")
    } else if former > 0 && older(window(live)) {
        Some("not all new Pods come up, an old one is left")
    } else {
        None
    };
    if let Some(((_, text), how)) = shown.zip(how).filter(|_| down) {
        return Some((Class::BadEngineCommit, format!("{how}: {text}")));
    }
    let text = silent(now, install, observed, history, (id, live));
    let text = text.or_else(|| spoilt(now, install, observed, history, (id, live)))?;
    Some((Class::BadEngineCommit, text))
}

/// Whether a Pod may be of the version of its controller that is wanted now: of those of a Deployment nothing says so.
fn may_be_of(live: &Object, pod: &Pod) -> bool {
    let update = live.text("/status/updateRevision");
    update.is_empty() || pod.revision.is_empty() || pod.revision == update
}

/// The Pods of a controller, of whatever version. A StatefulSet does not count those that are not available.
fn all(live: &Object) -> i64 {
    let count = |name: &str| live.number(&format!("/status/{name}"));
    count("replicas").max(count("availableReplicas") + count("unavailableReplicas"))
}

/// Those of another version than the one that is wanted now: as many of those that serve may be of it.
fn former(live: &Object) -> i64 {
    all(live) - live.number("/status/updatedReplicas")
}

/// Whether all Pods of a controller are of its new version, and one of them goes on with its work: what another one dies of is not that.
fn is_proven(observed: &Observed, history: &History, (id, live): (&ObjectId, &Object)) -> bool {
    let steady = |pod: &Pod| {
        let exits = history.exits.get(&pod.uid);
        pod.ready && exits.is_none_or(|exits| exits.failed.is_empty())
    };
    former(live) <= 0 && pods_of(observed, &id.name).any(steady)
}

/// How long a commit's version of a controller may take to come up: what the commit itself says, where that is more.
fn window(live: &Object) -> Duration {
    let deadline = live.number("/spec/progressDeadlineSeconds");
    WINDOW.max(Duration::seconds(deadline))
}

/// Since when an answer is owed to a question that was asked after something was `changed`, and could have been given: one with an
/// object for each of its workers has none left for it, and an upgrade that is at work is not to be called off for that.
fn owed(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    history: &History,
    (asked, changed): (&ObjectId, Option<OffsetDateTime>),
) -> Option<OffsetDateTime> {
    let said = observed.objects.get(asked)?;
    let owed = history.owed_after(now, (asked, said), changed);
    let led = health::is_led_by_former(now, observed, &install.controller(asked));
    let owed = owed.filter(|_| !led && !awaits_host(install, observed, (asked, said)))?;
    let working = history.working_until(now, asked.kind, owed);
    // One that could read none of a kind until a moment ago lists it again with a pause that has grown.
    let hidden = || undecodable::blinds(observed, asked.kind);
    let blind = history.blind_until(now);
    let blind = blind.filter(|until| *until < now || hidden());
    Some(working.max(blind).map_or(owed, |until| until.max(owed)))
}

/// A part that runs and does not do its work: nobody answers a question that was asked after the change, or the root
/// complains of it.
fn silent(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    history: &History,
    (id, live): (&ObjectId, &Object),
) -> Option<String> {
    let mut asked = install.roots().chain(install.canaries());
    let asked = asked.find(|asked| {
        let owed = owed(now, install, observed, history, (asked, live.written));
        let late = |at| checks::put_off(now, install, observed, (asked, at), UNANSWERED);
        let owed = owed.map(late);
        install.controller(asked) == *id && owed.is_some_and(|at| now - at > UNANSWERED)
    });
    let asked = asked.or_else(|| witness::owed(now, install, observed, (id, live.written)));
    if let Some(asked) = asked {
        return Some(format!("runs, but does not answer for {asked}"));
    }
    let root = observed.objects.get(&install.sync)?;
    let blames = |class: Class| match class {
        Class::RedisDown => id.name == REDIS,
        Class::ArtifactUnreachable => id.name == REPO_SERVER,
        _ => false,
    };
    let application = install.sync.kind == Kind::Application;
    let settled = live.written.map(|at| at + UNANSWERED);
    let looked = argocd::looked(root);
    let mut faults = argocd::faults(root).filter(|(class, text)| {
        let of_host = || is_of_host(install, observed, root, (*class, text));
        application && blames(*class) && !of_host()
    });
    let (_, text) = faults.find(|_| looked.is_some() && looked >= settled)?;
    Some(format!("runs, but {}: {text}", install.sync))
}

#[cfg(test)]
mod tests;

//! Where a commit's version of an object of the engine shows that it does harm. Until then it is an upgrade, and
//! nobody's business but Git's.

use time::{Duration, OffsetDateTime};

use super::commit;
use crate::agent::engine::argocd::{REDIS, REPO_SERVER};
use crate::agent::engine::compare::{additions, drift};
use crate::agent::engine::{Install, Wanted, is_workload};
use crate::agent::plan::argocd;
use crate::agent::plan::fault::Class;
use crate::agent::plan::find::Finding;
use crate::agent::plan::health::{pod_fault, pods_of, refused, works};
use crate::agent::plan::state::{Object, Observed};
use crate::bundle::{Kind, ObjectId};

/// A new version may take so long to come up before it is called stuck: as long as Kubernetes itself waits.
pub(super) const WINDOW: Duration = Duration::minutes(10);
/// A controller that was changed and has not answered a question for this long is useless.
pub(super) const UNANSWERED: Duration = Duration::seconds(30);
/// For so long a new version may fail while a Pod of the old one serves.
const SERVED: Duration = Duration::minutes(1);

/// A commit's version of an object of the engine, where it does harm.
pub fn broken(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    (id, wanted, live): (&ObjectId, &Wanted, &Object),
) -> Option<Finding> {
    let mut paths = drift(&wanted.expect, &live.fields);
    paths.extend(additions(&wanted.expect, &live.fields));
    if paths.is_empty() || !is_workload(id.kind) {
        return None;
    }
    let (class, why) = harm(now, install, observed, id, live)?;
    let text = format!(
        "{why}; commit {} changed {}",
        commit(install, observed, id),
        paths.join(", ")
    );
    Some(Finding::new(class, id, text).written_by(live))
}

fn harm(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    id: &ObjectId,
    live: &Object,
) -> Option<(Class, String)> {
    if live.number("/spec/replicas") == 0 {
        let text = "is scaled to 0 by Git".to_owned();
        return Some((Class::BadEngineCommit, text));
    }
    let of_pods = pods_of(observed, &id.name).find_map(pod_fault);
    let shown = of_pods.filter(|(class, _)| *class != Class::Unschedulable);
    let older = |age: Duration| live.written.is_some_and(|at| now - at > age);
    if !works(live) {
        if let Some((_, text)) = shown.or_else(|| refused(live)) {
            return Some((Class::BadEngineCommit, text));
        }
        let text = format!("has not come up for {} min", WINDOW.whole_minutes());
        return older(WINDOW).then_some((Class::EngineUpgradeStuck, text));
    }
    let waits = live.number("/status/unavailableReplicas") > 0 && older(SERVED);
    if let Some((_, text)) = shown.filter(|_| waits) {
        let text = format!("the new Pod does not come up, an old one serves: {text}");
        return Some((Class::BadEngineCommit, text));
    }
    silent(now, install, observed, id, live).map(|text| (Class::BadEngineCommit, text))
}

/// A part that runs and does not do its work: nobody answers a question that was asked after the change, or the root
/// complains of it.
fn silent(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    id: &ObjectId,
    live: &Object,
) -> Option<String> {
    let asked = install.roots().find(|root| {
        let probe = observed.objects.get(*root).and_then(|live| live.probe());
        let unanswered = probe.is_some_and(|p| !p.answered && now - p.sent > UNANSWERED);
        let since = probe.map(|p| p.sent) > live.written;
        install.controller(root) == *id && unanswered && since
    });
    if let Some(root) = asked {
        return Some(format!("runs, but does not answer for {root}"));
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
    let mut faults = argocd::faults(root).filter(|(class, _)| application && blames(*class));
    let (_, text) = faults.find(|_| looked.is_some() && looked >= settled)?;
    Some(format!("runs, but {}: {text}", install.sync))
}

//! Objects held back from Git: what a commit broke and the agent mended stays mended until the catalog moves on.
//!
//! A hold stands on the object itself, so it outlives the agent and its memory: Flux leaves an object alone that
//! carries its own annotation [`RECONCILE`] with the value `disabled`, and [`HELD`] says why. All else of the commit
//! is delivered. When the catalog has another commit the object is given back, sooner or later, by how often that
//! went wrong before; once it has worked for [`PROBATION`] the hold is forgotten.

use serde::{Deserialize, Serialize};
use time::{Duration, OffsetDateTime};

use super::fault::Class;
use super::find::Finding;
use super::health::{self, pod_fault, pods_of, refused, works};
use super::state::{Object, Observed};
use super::steps::{Action, Step};
use crate::agent::engine::compare::drift;
use crate::agent::engine::{Install, Wanted, is_workload};
use crate::bundle::ObjectId;
use crate::clock::{parse_rfc3339, rfc3339};
use crate::wire::api::EngineKind;

/// Flux neither applies nor prunes an object with this annotation and the value `disabled`.
pub const RECONCILE: &str = "kustomize.toolkit.fluxcd.io/reconcile";
/// What is held and why, as JSON of [`Hold`].
pub const HELD: &str = "linesman.dev/held";
/// The field manager of both annotations.
pub const MANAGER: &str = "linesman-quarantine";
/// Who applies what is in Git.
const FLUX: &str = "kustomize-controller";

/// A new version may take so long to come up before it is called stuck: as long as Kubernetes itself waits.
const WINDOW: Duration = Duration::minutes(10);
/// A controller that was changed and has not answered a question for this long is useless.
const UNANSWERED: Duration = Duration::seconds(30);
/// An object that has worked for this long since it was given back is as good as any.
const PROBATION: Duration = Duration::minutes(10);
const LONGEST: Duration = Duration::hours(6);

/// Why an object is, or was, held back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hold {
    /// The revision that broke it.
    pub revision: String,
    /// RFC 3339.
    pub since: String,
    pub reason: String,
    /// How many commits in a row broke it.
    pub attempt: u32,
    /// When it was given back to Git, RFC 3339; absent = it is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifted: Option<String>,
}

impl Hold {
    /// A first hold is lifted by the next commit; each further one doubles the wait.
    fn until(&self) -> Option<OffsetDateTime> {
        let since = parse_rfc3339(&self.since)?;
        let doublings = self.attempt.checked_sub(2);
        let wait = doublings.map_or(Duration::ZERO, |n| {
            PROBATION * 2_i32.saturating_pow(n.min(10))
        });
        Some(since + wait.min(LONGEST))
    }

    fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// What an object's annotation says; none where there is none, or none of ours.
pub fn hold(live: &Object) -> Option<Hold> {
    serde_json::from_str(live.annotation(HELD)?).ok()
}

/// Whether Git has no say over the object now, by our doing.
pub fn is_held(live: &Object) -> bool {
    let disabled = live.annotation(RECONCILE) == Some("disabled");
    disabled && hold(live).is_some_and(|hold| hold.lifted.is_none())
}

/// Whether the object is as the engine last applied it from Git.
pub fn is_from_git(wanted: &Wanted, live: &Object) -> bool {
    wanted.git_owned && live.writer == FLUX
}

/// A commit's version of an object of the engine, where it shows that it does harm. Until then it is an upgrade,
/// and nobody's business but Git's.
pub fn broken(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    (id, wanted, live): (&ObjectId, &Wanted, &Object),
) -> Option<Finding> {
    let paths = drift(&wanted.expect, &live.fields);
    if paths.is_empty() || !is_workload(id.kind) {
        return None;
    }
    let (class, why) = harm(now, install, observed, id, live)?;
    let text = format!(
        "{why}; commit {} changed {}",
        commit(install, observed),
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
    if !works(live) {
        let of_pods = pods_of(observed, &id.name).find_map(pod_fault);
        let blamed = |class: &Class| *class != Class::Unschedulable;
        let shown = of_pods.filter(|(class, _)| blamed(class));
        if let Some((_, text)) = shown.or_else(|| refused(live)) {
            return Some((Class::BadEngineCommit, text));
        }
        let stuck = live.written.is_some_and(|at| now - at > WINDOW);
        let text = format!("has not come up for {} min", WINDOW.whole_minutes());
        return stuck.then_some((Class::EngineUpgradeStuck, text));
    }
    let silent = install.roots().find(|root| {
        let probe = observed.objects.get(*root).and_then(|live| live.probe());
        let unanswered = probe.is_some_and(|p| !p.answered && now - p.sent > UNANSWERED);
        let since = probe.map(|p| p.sent) > live.written;
        install.controller(root) == *id && unanswered && since
    })?;
    let text = format!("runs, but does not answer for {silent}");
    Some((Class::BadEngineCommit, text))
}

/// The revision that the engine tried last.
fn commit<'a>(install: &Install, observed: &'a Observed) -> &'a str {
    let sync = observed.objects.get(&install.sync);
    sync.map_or("", |sync| sync.text("/status/lastAttemptedRevision"))
}

/// The word that goes onto an object before it is mended.
pub fn note(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    finding: &Finding,
) -> String {
    let before = observed.objects.get(&finding.object).and_then(|l| hold(l));
    let hold = Hold {
        revision: commit(install, observed).to_owned(),
        since: rfc3339(now),
        reason: finding.evidence.chars().take(500).collect(),
        attempt: before.map_or(1, |before| before.attempt.saturating_add(1)),
        lifted: None,
    };
    hold.text()
}

/// The first object that may be given back to Git, or whose probation is over.
pub fn lifts(now: OffsetDateTime, install: &Install, observed: &Observed) -> Vec<Step> {
    if install.traits.kind != EngineKind::Flux {
        return Vec::new();
    }
    let Some(revision) = health::revision(install, observed) else {
        return Vec::new();
    };
    let step = |action, target: &ObjectId| Step {
        action,
        target: target.clone(),
        cause: None,
    };
    let decided = install.wanted.keys().find_map(|id| {
        let live = observed.objects.get(id)?;
        let hold = hold(live)?;
        if is_held(live) {
            let other = revision != hold.revision && hold.until().is_some_and(|at| now >= at);
            let lifted = Hold {
                lifted: Some(rfc3339(now)),
                ..hold
            };
            return other.then(|| {
                let note = lifted.text();
                vec![
                    step(Action::Lift { note }, id),
                    step(Action::Nudge, &install.sync),
                ]
            });
        }
        let since = parse_rfc3339(hold.lifted.as_deref()?)?;
        (now - since >= PROBATION && works(live)).then(|| vec![step(Action::Settle, id)])
    });
    decided.unwrap_or_default()
}

/// What is held, for people.
pub fn held<'a>(
    install: &'a Install,
    observed: &'a Observed,
) -> impl Iterator<Item = (&'a ObjectId, Hold)> {
    install.wanted.keys().filter_map(|id| {
        let live = observed.objects.get(id).filter(|live| is_held(live))?;
        Some((id, hold(live)?))
    })
}

/// When the engine's own objects were last changed from Git: a question from before that proves nothing.
pub fn changed(install: &Install, observed: &Observed) -> Option<OffsetDateTime> {
    let of = |id: &ObjectId| {
        let (live, wanted) = (observed.objects.get(id)?, install.wanted.get(id)?);
        live.written.filter(|_| is_from_git(wanted, live))
    };
    install.workloads().filter_map(of).max()
}

#[cfg(test)]
mod tests;

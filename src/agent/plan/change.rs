//! A change of the engine by the hub: another bundle, other install values. What is to be done next, and whether it
//! worked. Pure.
//!
//! The agent keeps what was in force until the engine works with what is new; where it does not in its time, what
//! was comes back, and the hub is told why. Another wish of the hub begins anew.

use serde::{Deserialize, Serialize};
use time::{Duration, OffsetDateTime};

use super::fault::Budget;
use super::{Finding, Mode, Object, Observed, Plan, Step};
use crate::agent::engine::{self, Install};
use crate::bundle::{Bundle, Kind, ObjectId};
use crate::clock::parse_rfc3339;
use crate::wire::api::EngineRef;
use crate::wire::id::Digest;

/// An agent that started meanwhile looks at least this long before it judges, unless a change has less.
const LOOK: Duration = Duration::seconds(60);

/// What of an install the hub may change while it stands.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Form {
    /// For people; the digest says what it is.
    pub version: String,
    pub bundle: Digest,
    /// The registry that all images come from; absent = those that the bundle names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registry: Option<String>,
}

impl PartialEq for Form {
    fn eq(&self, other: &Self) -> bool {
        (&self.bundle, &self.registry) == (&other.bundle, &other.registry)
    }
}

impl Eq for Form {}

impl Form {
    pub fn of(engine: &EngineRef) -> Self {
        Self {
            version: engine.version.clone(),
            bundle: engine.bundle.clone(),
            registry: engine.registry.clone(),
        }
    }

    /// For people: `2.9.5 (sha256:…), images of registry.example.org`.
    pub fn words(&self) -> String {
        let short: String = self.bundle.as_str().chars().take(19).collect();
        let images = self.registry.as_deref();
        let images = images.map_or_else(String::new, |r| format!(", images of {r}"));
        format!("{} ({short}…){images}", self.version)
    }
}

/// A change under way, or one that was undone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// What the engine worked with last.
    pub from: Form,
    pub to: Form,
    /// The hub's number of it.
    pub number: u64,
    /// RFC 3339: when the agent began.
    pub since: String,
    /// Seconds without function after which what was before comes back.
    pub within: u32,
    /// All objects of the bundles that it went through; those that are in none that stays are ours to remove.
    pub objects: Vec<Place>,
    /// Why it was undone; absent = it is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

impl Change {
    pub fn limit(&self) -> Duration {
        Duration::seconds(self.within.into())
    }

    /// Whether something is left to do: it is under way, or what it brought is not gone yet.
    pub fn is_open(&self) -> bool {
        self.failed.is_none() || !self.objects.is_empty()
    }
}

/// An object's place as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place(String, String, String);

impl Place {
    /// None = a kind of another version of the agent.
    pub fn id(&self) -> Option<ObjectId> {
        let kind = Kind::ALL.iter().find(|k| k.as_str() == self.0)?;
        Some(ObjectId::new(*kind, &self.1, &self.2))
    }
}

/// The places of a bundle's objects.
pub fn places(bundle: &Bundle) -> impl Iterator<Item = Place> + '_ {
    bundle.objects.iter().filter_map(|object| {
        let id = engine::place(object)?;
        Some(Place(id.kind.as_str().to_owned(), id.namespace, id.name))
    })
}

/// What is to be done about the bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    Keep,
    /// Change from `from`, which is in force or is kept as what was before.
    Begin {
        from: Form,
    },
    /// Put back what was before.
    Back,
}

/// From what the hub wants, what is in force, and the change that is remembered.
pub fn next(engine: &EngineRef, in_force: &Form, change: Option<&Change>) -> Next {
    let wanted = Form::of(engine);
    let undone = change.filter(|c| c.failed.is_some());
    if let Some(undone) = undone.filter(|c| c.to == wanted && c.number == engine.change) {
        return if *in_force == undone.from {
            Next::Keep
        } else {
            Next::Back
        };
    }
    if *in_force == wanted {
        return Next::Keep;
    }
    // What was never seen to work is nothing to go back to.
    let from = match change {
        Some(change) if change.to == *in_force => &change.from,
        Some(_) | None => in_force,
    };
    Next::Begin { from: from.clone() }
}

/// Whether the change is one to judge: not one back to what worked.
pub fn is_judged(change: &Change) -> bool {
    change.failed.is_none() && change.from != change.to
}

/// How far a change has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// What is left, for people.
    Going(String),
    /// All is as wanted and every controller runs so, but none was asked yet.
    Rolled,
    Failed(String),
}

/// What the watchdog knows of a change.
pub struct Seen<'a> {
    pub now: OffsetDateTime,
    /// Since when this agent follows it.
    pub followed: OffsetDateTime,
    /// When nothing could be done about it last.
    pub held: Option<OffsetDateTime>,
    pub install: &'a Install,
    pub observed: &'a Observed,
    pub plan: &'a Plan,
    /// The engine worked before: there is something to go back to.
    pub adopted: bool,
}

/// Judges the install, not yet its function.
pub fn progress(change: &Change, seen: &Seen<'_>) -> Progress {
    let left: Vec<&Finding> = seen
        .plan
        .findings
        .iter()
        .filter(|f| seen.install.wanted.contains_key(&f.object))
        .collect();
    let rolls = seen.install.workloads().find(|id| {
        let live = seen.observed.objects.get(*id);
        !live.is_some_and(|live| is_rolled(live))
    });
    let going = match (left.first(), rolls) {
        (Some(first), _) => format!(
            "{} objects differ or fail, {} {}",
            left.len(),
            first.object,
            first.evidence
        ),
        (None, Some(id)) => format!("{id} is not rolled out"),
        (None, None) => return Progress::Rolled,
    };
    if is_late(change, seen) {
        Progress::Failed(going)
    } else {
        Progress::Going(going)
    }
}

/// Whether its time is over. None passes while nothing may be done, or where there is nothing to go back to.
pub fn is_late(change: &Change, seen: &Seen<'_>) -> bool {
    let began = parse_rfc3339(&change.since).unwrap_or(seen.followed);
    let limit = change.limit();
    let ends = (began + limit).max(seen.followed + limit.min(LOOK));
    let ends = seen.held.map_or(ends, |held| ends.max(held + limit));
    let acts = seen.plan.mode == Mode::Act;
    acts && seen.adopted && is_judged(change) && seen.now >= ends
}

/// Every Pod of a workload is of the present template and available.
fn is_rolled(live: &Object) -> bool {
    let count = |name: &str| live.number(&format!("/status/{name}"));
    count("observedGeneration") >= live.generation
        && count("updatedReplicas") >= 1
        && count("availableReplicas") >= 1
        && count("updatedReplicas") == count("replicas")
        && count("unavailableReplicas") == 0
}

/// While the install is `changing`: leaves the steps of the first stage in which something of the install differs: no controller runs in its new version
/// before all that it stands on is.
pub fn stage(changing: bool, steps: &mut Vec<Step>, findings: &[Finding]) {
    if !changing {
        return;
    }
    let acts = |f: &&Finding| f.object.kind.installable() && f.class.budget() != Budget::Report;
    let first = findings.iter().filter(acts).map(|f| f.object.kind.stage());
    let Some(first) = first.min() else {
        return;
    };
    steps.retain(|s| !s.target.kind.installable() || s.target.kind.stage() <= first);
}

/// What the form in force has no use for, in the order in which it goes: the reverse of an install's.
pub fn surplus(change: &Change, install: &Install) -> Vec<ObjectId> {
    let ours = |id: &ObjectId| {
        !install.wanted.contains_key(id)
            // Their end would take other objects with them.
            && !matches!(id.kind, Kind::CustomResourceDefinition | Kind::Namespace)
    };
    let mut ids: Vec<ObjectId> = change.objects.iter().filter_map(Place::id).collect();
    ids.retain(ours);
    ids.sort_by(|a, b| (b.kind.stage(), b).cmp(&(a.kind.stage(), a)));
    ids.dedup();
    ids
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::plan::tests::{Cluster, Damage};
    use crate::clock::rfc3339;
    use crate::wire::api::EngineKind;

    fn form(n: u8) -> Form {
        Form {
            version: format!("2.9.{n}"),
            bundle: Digest::from_bytes([n; 32]),
            registry: None,
        }
    }

    fn wish(n: u8, change: u64) -> EngineRef {
        EngineRef {
            kind: EngineKind::Flux,
            version: form(n).version,
            bundle: form(n).bundle,
            size: 1,
            registry: None,
            within: 300,
            change,
        }
    }

    fn change(from: u8, to: u8, failed: bool) -> Change {
        Change {
            from: form(from),
            to: form(to),
            number: 7,
            since: "2026-01-02T03:00:00Z".to_owned(),
            within: 300,
            objects: Vec::new(),
            failed: failed.then(|| "x".to_owned()),
        }
    }

    #[test]
    fn a_wish_begins_once_and_one_that_failed_only_when_it_is_wished_again() {
        let begin = |from: u8| Next::Begin { from: form(from) };
        let cases = [
            // Nothing new; something new.
            (wish(1, 0), 1, None, Next::Keep),
            (wish(2, 7), 1, None, begin(1)),
            // Under way, also for an agent that has just started.
            (wish(2, 7), 2, Some(change(1, 2, false)), Next::Keep),
            // It was killed before it kept the new bundle.
            (wish(2, 7), 1, Some(change(1, 2, false)), begin(1)),
            // Yet another wish, and the one back: what worked last is what is gone back to.
            (wish(3, 8), 2, Some(change(1, 2, false)), begin(1)),
            (wish(1, 8), 2, Some(change(1, 2, false)), begin(1)),
            // It failed: back, and not again.
            (wish(2, 7), 2, Some(change(1, 2, true)), Next::Back),
            (wish(2, 7), 1, Some(change(1, 2, true)), Next::Keep),
            (wish(2, 8), 1, Some(change(1, 2, true)), begin(1)),
            (wish(1, 8), 1, Some(change(1, 2, true)), Next::Keep),
            (wish(3, 8), 1, Some(change(1, 2, true)), begin(1)),
            // It failed, it was killed on the way back, and something else is wished.
            (wish(3, 8), 2, Some(change(1, 2, true)), begin(1)),
        ];
        for (wish, in_force, change, expected) in cases {
            let found = next(&wish, &form(in_force), change.as_ref());
            assert_eq!(found, expected, "{wish:?} {in_force} {change:?}");
        }
        let mirrored = EngineRef {
            registry: Some("mirror.lan".to_owned()),
            ..wish(1, 0)
        };
        assert_eq!(next(&mirrored, &form(1), None), begin(1));
    }

    #[test]
    fn what_is_not_as_wanted_is_waited_for_and_then_given_up() {
        let mut cluster = Cluster::working();
        let began = cluster.now;
        let mut running = change(1, 2, false);
        running.since = rfc3339(began);
        let judge = |cluster: &Cluster, running: &Change, adopted: bool| {
            let plan = cluster.plan();
            let observed = cluster.observed();
            let seen = Seen {
                now: cluster.now,
                followed: began,
                held: None,
                install: &cluster.install,
                observed: &observed,
                plan: &plan,
                adopted,
            };
            progress(running, &seen)
        };
        assert_eq!(judge(&cluster, &running, true), Progress::Rolled);
        cluster.damage(&Damage::Image("source-controller"));
        let Progress::Going(text) = judge(&cluster, &running, true) else {
            panic!("it has time");
        };
        assert!(text.contains("source-controller"), "{text}");
        cluster.now += running.limit();
        assert!(matches!(
            judge(&cluster, &running, true),
            Progress::Failed(_)
        ));
        // Nothing worked before; it is the way back itself.
        assert!(matches!(
            judge(&cluster, &running, false),
            Progress::Going(_)
        ));
        let back = Change {
            to: running.from.clone(),
            ..running
        };
        assert!(matches!(judge(&cluster, &back, true), Progress::Going(_)));
    }

    #[test]
    fn what_no_bundle_that_stays_has_goes_in_reverse_but_no_crd_and_no_namespace() {
        let cluster = Cluster::working();
        let place = |kind: Kind, namespace: &str, name: &str| {
            Place(
                kind.as_str().to_owned(),
                namespace.to_owned(),
                name.to_owned(),
            )
        };
        let ours = "flux-system";
        let mut gone = change(1, 2, false);
        gone.objects = places(&cluster.install.bundle).collect();
        gone.objects.extend([
            place(Kind::ServiceAccount, ours, "source-watcher"),
            place(Kind::Deployment, ours, "source-watcher"),
            place(Kind::Namespace, "", "old"),
            place(Kind::CustomResourceDefinition, "", "old.fluxcd.io"),
            Place("Unheard".to_owned(), String::new(), "x".to_owned()),
        ]);
        let names: Vec<String> = surplus(&gone, &cluster.install)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            names,
            [
                "Deployment flux-system/source-watcher",
                "ServiceAccount flux-system/source-watcher"
            ]
        );
    }
}

//! Controllers that neither a root nor a canary that is asked as a root is of: notification-controller and those of images, and Argo
//! CD's of `ApplicationSet`s. That one is asked with a set of ours. Each of the others is asked with an object that people have, where
//! there is one that may be asked; where there is none, nothing is said of them.
//!
//! To ask an object makes its controller look at it now. So only those are asked that look by themselves about as often as
//! they are asked, or that answer and do nothing: nothing is scanned or pushed that would not be.

use std::cmp::Reverse;

use kube::core::DynamicObject;
use serde_json::Value;
use time::{Duration, OffsetDateTime};

use super::fault::Class;
use super::find::Finding;
use super::health::{self, works};
use super::latent;
use super::probes::ROLLED;
use super::shard::{self, Shard};
use super::state::{History, Observed, Probe};
use super::steps::{Action, Step};
use super::undecodable::{self, aside, duration};
use crate::agent::engine::{Install, REQUESTED_AT};
use crate::bundle::{Kind, ObjectId};
use crate::clock::parse_rfc3339;

mod sets;

pub(super) use sets::only_looks;

/// What looks by itself at least so often is asked, too.
const OFTEN: Duration = Duration::minutes(10);
/// Between two questions to one.
const SPACING: Duration = Duration::seconds(5);
/// For a registry, or a Git host, that takes its time.
const PATIENCE: Duration = Duration::seconds(330);
/// What a worker may need beside a scan.
const BESIDE: Duration = Duration::seconds(60);
/// The longest answer that is waited for.
const LONGEST: Duration = Duration::minutes(30);

/// What there is to know of one of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Witness {
    /// It may be asked.
    pub fit: bool,
    pub probe: Option<Probe>,
    /// When its controller last did something for it.
    pub served: Option<OffsetDateTime>,
    /// How long a worker may be with it, where the object says so.
    pub takes: Duration,
    /// Whose it is, where controllers share their objects.
    pub shard: Shard,
    /// The field with which its controller can read none of its kind.
    pub blinds: Option<&'static str>,
}

impl Witness {
    pub fn of(kind: Kind, live: &DynamicObject) -> Self {
        if kind == Kind::ApplicationSet {
            return sets::of(live);
        }
        let text = |pointer| live.data.pointer(pointer).and_then(Value::as_str);
        let suspended = live.data.pointer("/spec/suspend") == Some(&Value::Bool(true));
        let every = text("/spec/interval").and_then(duration);
        let often = every.is_some_and(|every| every <= OFTEN);
        let harmless = match kind {
            // To look at one is to read its Secret.
            Kind::Receiver => true,
            Kind::ImageRepository => often || suspended,
            // Not every version answers for one that is suspended.
            _ => often && !suspended,
        };
        // Without a timeout of its own a scan may take the whole interval (its `GetTimeout`).
        let timeout = text("/spec/timeout").and_then(duration).or(every);
        let scans = kind == Kind::ImageRepository && !suspended;
        let asked = live.metadata.annotations.as_ref();
        let asked = asked.and_then(|all| all.get(REQUESTED_AT));
        let probe = asked.and_then(|asked| {
            let answered = text("/status/lastHandledReconcileAt") == Some(asked.as_str());
            let sent = parse_rfc3339(asked)?;
            Some(Probe { sent, answered })
        });
        let done = [
            "/status/lastScanResult/scanTime",
            "/status/lastAutomationRunTime",
        ];
        Self {
            fit: harmless && live.metadata.deletion_timestamp.is_none(),
            probe,
            served: done
                .into_iter()
                .filter_map(|at| parse_rfc3339(text(at)?))
                .max(),
            takes: timeout.filter(|_| scans).unwrap_or_default(),
            shard: Shard::of(live),
            blinds: live.data.get("spec").and_then(undecodable::field),
        }
    }

    /// Whether more than what its controller does by itself is another.
    pub fn asks_otherwise(&self, other: &Self) -> bool {
        let said = |one: &Self| (one.fit, one.probe, one.shard, one.blinds);
        said(self) != said(other)
    }
}

/// Those of a kind that are over the bound, taken together, of whatever shard: whether their controller is busy is told by them, too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Crowd {
    /// When one of them was served last.
    served: Option<OffsetDateTime>,
    /// How long a worker may be with one of them, at most.
    takes: Duration,
}

impl Crowd {
    /// With one more.
    #[must_use]
    pub fn with(self, one: &Witness) -> Self {
        Self {
            served: self.served.max(one.served),
            takes: self.takes.max(one.takes),
        }
    }
}

/// Those to be asked now, and when the first answer is missed.
pub(super) fn probes(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    history: &History,
) -> (Vec<Step>, Option<OffsetDateTime>) {
    let asked: Vec<(&ObjectId, &Witness)> = chosen(install, observed).collect();
    let due = asked.iter().filter(|(id, witness)| {
        let old = |probe: Probe| probe.answered && now - probe.sent >= install.policy.probe_every;
        let due = |probe: Probe| old(probe) || probe.sent > now;
        let last = history.nudged.get(*id);
        witness.probe.is_none_or(due) && last.is_none_or(|at| now - *at >= SPACING)
    });
    let steps = due.map(|(id, _)| Step {
        action: Action::Nudge,
        target: (*id).clone(),
        cause: None,
    });
    let waits = asked.iter().filter_map(|(id, witness)| {
        let sent = witness.probe.filter(|probe| !probe.answered)?.sent;
        Some(sent + patience(install, observed, id.kind) + Duration::SECOND)
    });
    (steps.collect(), waits.filter(|at| *at > now).min())
}

/// Controllers that do not answer although they run.
pub(super) fn silent(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    found: &mut Vec<Finding>,
) {
    let blind = install.witnesses();
    let blind = blind.filter_map(|kind| unreadable(install, observed, kind));
    found.extend(blind.map(|(id, field)| {
        let name = field.replace('/', ".");
        let text = format!(
            "its controller can read none of its kind: spec{name} is no duration that Go can hold"
        );
        let mut finding = Finding::new(Class::UndecodableObject, id, text);
        // What a stand-in would bring about there is for people to say.
        finding.reported = true;
        finding
    }));
    for (id, probe, since) in unanswered(install, observed) {
        if is_late(now, install, observed, (id, since)) {
            found.push(health::wedged(id, probe));
        }
    }
}

/// One of a kind with which its controller can read none of them, and the field.
fn unreadable<'a>(
    install: &Install,
    observed: &'a Observed,
    kind: Kind,
) -> Option<(&'a ObjectId, &'static str)> {
    let mut all = looked_at(install, observed, kind);
    all.find_map(|(id, one)| Some((id, one.blinds?)))
}

/// What a controller that was `changed` does not answer for, although it would have begun with it.
pub(super) fn owed<'a>(
    now: OffsetDateTime,
    install: &'a Install,
    observed: &'a Observed,
    (controller, changed): (&ObjectId, Option<OffsetDateTime>),
) -> Option<&'a ObjectId> {
    let settled = changed.map(|at| at + ROLLED);
    let mut asked = unanswered(install, observed).filter(|(id, _, since)| {
        let since = settled.map_or(*since, |at| at.max(*since));
        install.controller(id) == *controller && is_late(now, install, observed, (id, since))
    });
    asked.next().map(|(id, _, _)| id)
}

/// Those without an answer, and since when it is waited for.
fn unanswered<'a>(
    install: &'a Install,
    observed: &'a Observed,
) -> impl Iterator<Item = (&'a ObjectId, Probe, OffsetDateTime)> {
    let source = observed.objects.get(&install.source);
    let away = source.is_some_and(|root| latent::host_is_away(observed, root));
    // It cannot answer before that object is mended, and restarted it would not come up.
    let read = chosen(install, observed);
    let read = read.filter(move |(id, _)| unreadable(install, observed, id.kind).is_none());
    read.filter_map(move |(id, witness)| {
        let probe = witness.probe.filter(|probe| !probe.answered)?;
        // Then each look takes its whole time.
        let fetches = id.kind == Kind::ImageUpdateAutomation;
        let since = waited_since(install, observed, id.kind, probe);
        (!away || !fetches).then_some((id, probe, since))
    })
}

/// Whether a Pod of its controller has had the time to answer.
fn is_late(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    (id, since): (&ObjectId, OffsetDateTime),
) -> bool {
    let name = install.controller(id).name;
    let limit = now - patience(install, observed, id.kind);
    let mut pods = health::pods_of(observed, &name);
    pods.any(|pod| health::is_silent(pod, limit, since))
}

/// Since when an answer is waited for: who goes on with others is busy, and comes to this one in its turn.
pub(super) fn waited_since(
    install: &Install,
    observed: &Observed,
    kind: Kind,
    probe: Probe,
) -> OffsetDateTime {
    let all = looked_at(install, observed, kind);
    let served = all.filter_map(|(_, other)| other.served).max();
    let served = served.max(observed.crowds.get(&kind).and_then(|crowd| crowd.served));
    served.map_or(probe.sent, |at| at.max(probe.sent))
}

/// Those of a kind that the install's controller looks at.
pub(super) fn looked_at<'a>(
    install: &Install,
    observed: &'a Observed,
    kind: Kind,
) -> impl Iterator<Item = (&'a ObjectId, &'a Witness)> + use<'a> {
    let controller = install.controller(&ObjectId::new(kind, "", ""));
    let selector = shard::selector_of(observed, &controller);
    let all = observed.witnesses.iter();
    all.filter(move |(id, said)| id.kind == kind && said.shard.is_seen_with(selector))
}

/// Of each controller that runs, what it is asked with: the one that was asked last, for its answer is looked for.
pub(super) fn chosen<'a>(
    install: &'a Install,
    observed: &'a Observed,
) -> impl Iterator<Item = (&'a ObjectId, &'a Witness)> {
    install.witnesses().filter_map(move |kind| {
        let all = looked_at(install, observed, kind);
        let all =
            all.filter(|(id, witness)| witness.fit && aside::is_covered(install, observed, id));
        let last = |(id, witness): &(&ObjectId, &Witness)| {
            (
                Reverse(witness.probe.map(|probe| probe.sent)),
                (*id).clone(),
            )
        };
        let (id, witness) = all.min_by_key(last)?;
        let live = observed.objects.get(&install.controller(id));
        live.is_some_and(|live| works(live) && !only_looks(install, observed, live))
            .then_some((id, witness))
    })
}

/// How long an answer may take: each of the workers may be with another one, or have others before it.
pub(super) fn patience(install: &Install, observed: &Observed, kind: Kind) -> Duration {
    let at_once = match kind {
        Kind::Receiver => true,
        Kind::ApplicationSet => sets::has_worker(install, observed),
        _ => false,
    };
    if at_once {
        return health::WEDGED;
    }
    let all = looked_at(install, observed, kind);
    let crowd = observed.crowds.get(&kind).map(|crowd| crowd.takes);
    let longest = all.map(|(_, witness)| witness.takes).max().max(crowd);
    let turns = match (kind, crowd) {
        // Nobody counts those that are over the bound.
        (Kind::ApplicationSet, Some(_)) => LONGEST,
        (Kind::ApplicationSet, None) => {
            sets::turns(looked_at(install, observed, kind).map(|(_, one)| one))
        }
        _ => Duration::ZERO,
    };
    let longest = longest.unwrap_or_default().saturating_add(turns);
    PATIENCE.max(longest.clamp(Duration::ZERO, LONGEST) + BESIDE)
}

#[cfg(test)]
mod tests;

//! When nothing is written, and what is held back: maintenance windows, by the word of the hub, of the cluster's owner, or
//! of an annotation. Of several the one that lasts longest is in force, so each of them can only narrow.

use std::collections::BTreeSet;
use std::fmt;

use time::{Duration, OffsetDateTime};

use super::fault::Key;
use super::find::{self, Finding, dies};
use super::quarantine::shield;
use super::state::{History, Object, Observed};
use super::steps::{Action, Step};
use super::{Class, Mode, Plan, is_guards};
use crate::agent::engine::guard::ALLOW_DELETE;
use crate::agent::engine::{Install, Policy, is_workload};
use crate::agent::gate::policy::{CONFIG_MAP, Heal};
use crate::bundle::{Kind, ObjectId};
use crate::clock::{parse_rfc3339, rfc3339};

/// The annotation that opens a maintenance window, RFC 3339: on the engine's Namespace for all of it, on one object
/// for that object.
pub const MAINTENANCE: &str = "linesman.dev/maintenance-until";
/// A word that reaches further ahead counts for nothing: what is forgotten ends by itself.
pub const LONGEST: Duration = Duration::hours(24);
/// The hub counts a window by its own clock, which may be ahead of this one.
const AHEAD: Duration = Duration::minutes(5);
/// No hub makes an agent hold back for longer at once.
const SAFE: Duration = Duration::hours(1);
/// The end of a window is told of for so long.
const TOLD: Duration = Duration::hours(1);

/// A time in which the agent holds back; of two, the greater one ends later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Window {
    pub end: End,
    pub by: By,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    At(OffsetDateTime),
    /// When whoever began it says so.
    Open,
}

/// Whose word it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum By {
    Hub,
    /// [`MAINTENANCE`] on the engine's Namespace.
    Namespace,
    /// `pausedUntil` of the owner's policy.
    PausedUntil,
    /// `heal` of the owner's policy.
    Heal,
    /// The owner's policy, of which nothing could be read yet that is valid.
    Invalid,
}

impl Window {
    fn at(end: OffsetDateTime, by: By) -> Self {
        let end = End::At(end);
        Self { end, by }
    }

    /// What is said of that which it keeps from beginning.
    pub fn waits(self) -> String {
        match self.by {
            By::Hub | By::Namespace | By::PausedUntil => {
                "waits for the end of the maintenance window".to_owned()
            }
            By::Heal => format!("waits while {} is off", self.by),
            By::Invalid => format!("waits until ConfigMap {CONFIG_MAP} is valid"),
        }
    }

    /// How somebody ends it before its time.
    pub fn remedy(self, cluster: &str) -> String {
        match self.by {
            By::Hub => format!("end it: linesman cluster resume {cluster}"),
            By::Namespace => {
                format!("end it: take annotation {MAINTENANCE} off the engine's Namespace")
            }
            By::PausedUntil => "ask the cluster's owner to take it away".to_owned(),
            By::Heal => "ask the cluster's owner to set it to on".to_owned(),
            By::Invalid => {
                "ask the cluster's owner to mend it: condition PolicyAccepted says what is wrong"
                    .to_owned()
            }
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(end) => write!(f, "until {}", rfc3339(*end)),
            Self::Open => f.write_str("without an end"),
        }
    }
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hub => f.write_str("the hub"),
            Self::Namespace => write!(f, "annotation {MAINTENANCE} on the engine's Namespace"),
            Self::PausedUntil => write!(f, "key pausedUntil of ConfigMap {CONFIG_MAP}"),
            Self::Heal => write!(f, "key heal of ConfigMap {CONFIG_MAP}"),
            Self::Invalid => write!(f, "ConfigMap {CONFIG_MAP}, which is not valid"),
        }
    }
}

pub(super) fn mode(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    findings: &[Finding],
) -> Mode {
    let mut kinds = install.wanted.keys().map(|id| id.kind);
    if !kinds.all(|kind| find::known(now, observed, kind)) {
        return Mode::Learning;
    }
    // What is about to be pruned does not wait for that: nothing is made anew before it is saved.
    let saving = findings.iter().any(|f| find::prunes(install, f));
    if shield::unread(observed) && !saving {
        return Mode::Learning;
    }
    if findings.iter().any(|f| f.class == Class::ForeignManager) {
        return Mode::ObserveOnly;
    }
    // What the owner lets it do is not known for a moment after the start.
    if observed.gate.is_shut() || install.policy.owner.is_none() {
        return Mode::Learning;
    }
    whole(now, install, observed).map_or(Mode::Act, Mode::Paused)
}

/// The window that is open on all of the engine.
fn whole(now: OffsetDateTime, install: &Install, observed: &Observed) -> Option<Window> {
    let namespace = ObjectId::new(Kind::Namespace, "", &install.namespace);
    let here = observed.objects.get(&namespace);
    let here = here.and_then(|live| until(now, live, MAINTENANCE));
    let here = here.map(|end| Window::at(end, By::Namespace));
    here.max(paused(now, &install.policy))
}

/// The window that hub or owner opened.
pub fn paused(now: OffsetDateTime, policy: &Policy) -> Option<Window> {
    let owner = policy.owner.unwrap_or_default();
    let near = |end: &OffsetDateTime| *end > now && *end - now <= LONGEST + AHEAD;
    let hub = policy.paused_until.filter(near);
    let hub = hub.map(|end| Window::at(end, By::Hub));
    let time = owner.paused_until.filter(|end| counts(now, *end));
    let time = time.map(|end| Window::at(end, By::PausedUntil));
    let by = match owner.heal {
        Heal::On | Heal::Safe => None,
        Heal::Off => Some(By::Heal),
        Heal::Unclear => Some(By::Invalid),
    };
    let end = End::Open;
    hub.max(time).max(by.map(|by| Window { end, by }))
}

/// In which only what is missing is put back, by the word of hub or owner. A hub's that reaches further than [`SAFE`] counts
/// for nothing.
pub fn careful(now: OffsetDateTime, policy: &Policy) -> Option<Window> {
    let near = |until: &OffsetDateTime| *until > now && *until - now <= SAFE + AHEAD;
    let hub = policy.safe_until.filter(near);
    let hub = hub.map(|end| Window::at(end, By::Hub));
    let owner = match policy.owner.unwrap_or_default().heal {
        Heal::Safe => Some(Window {
            end: End::Open,
            by: By::Heal,
        }),
        Heal::On | Heal::Off | Heal::Unclear => None,
    };
    hub.max(owner)
}

/// Whether a finding is about an object with a window of its own. A guarded deletion is never held back.
pub(super) fn held(now: OffsetDateTime, observed: &Observed, finding: &Finding) -> bool {
    !dies(finding) && rests(now, observed, &finding.object)
}

/// Whether somebody is at work on an object, and has opened a window for that.
pub fn rests(now: OffsetDateTime, observed: &Observed, id: &ObjectId) -> bool {
    open_until(now, observed, id).is_some()
}

/// The end of the window that is open on an object alone.
pub(super) fn open_until(
    now: OffsetDateTime,
    observed: &Observed,
    id: &ObjectId,
) -> Option<OffsetDateTime> {
    until(now, observed.objects.get(id)?, MAINTENANCE)
}

/// Leaves out what would be done to an object with a window of its own for a fault of another one, such as the restart of a
/// controller for what it does not answer.
pub(super) fn hold_back(now: OffsetDateTime, observed: &Observed, steps: &mut Vec<Step>) {
    let is_held = |step: &Step| {
        !goes_on(&step.action) && touched(observed, step).any(|id| rests(now, observed, id))
    };
    // An Application that is told nothing would undo what is mended below it.
    let untold = steps
        .iter()
        .filter(|step| step.action.prepares() && is_held(step));
    let untold: BTreeSet<Option<Key>> = untold.map(|step| step.cause.clone()).collect();
    steps.retain(|step| !is_held(step) && !untold.contains(&step.cause));
}

/// What no window of one object holds back: the guard, what ends its work, and questions.
fn goes_on(action: &Action) -> bool {
    is_guards(action)
        || matches!(
            action,
            Action::Start { .. } | Action::Restore | Action::Lock | Action::Nudge
        )
}

/// The object that a step is on, and the controller whose Pods it takes: those are known by the controller's name, also where it
/// is for their account.
fn touched<'a>(observed: &'a Observed, step: &'a Step) -> impl Iterator<Item = &'a ObjectId> {
    let of = &step.target;
    let takes_pods = matches!(step.action, Action::RestartPods { .. });
    let controllers = observed.objects.keys().filter(move |id| {
        let alike = id.name == of.name && id.namespace == of.namespace;
        takes_pods && alike && is_workload(id.kind)
    });
    std::iter::once(of).chain(controllers)
}

/// Whether all that is being deleted was allowed to be.
pub(super) fn allowed_to_die(
    now: OffsetDateTime,
    observed: &Observed,
    findings: &[Finding],
) -> bool {
    findings.iter().filter(|f| dies(f)).all(|f| {
        let live = observed.objects.get(&f.object);
        live.is_some_and(|live| until(now, live, ALLOW_DELETE).is_some())
    })
}

/// The time that an annotation gives, if that is ahead and near enough.
pub(super) fn until(
    now: OffsetDateTime,
    live: &Object,
    annotation: &str,
) -> Option<OffsetDateTime> {
    let until = parse_rfc3339(live.annotation(annotation)?)?;
    counts(now, until).then_some(until)
}

/// Faults that were there when their maintenance window ended by itself, or that of what is now mended for them, and when it
/// did. From then on they are mended, whether or not somebody is still at work.
pub fn overdue(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    history: &History,
    plan: &Plan,
) -> Vec<(Key, OffsetDateTime)> {
    // The one that lasts longest is told of, when it is over.
    if whole(now, install, observed).is_some() {
        return Vec::new();
    }
    let over = |end: &OffsetDateTime| *end <= now && now - *end < TOLD;
    let ended = |id: &ObjectId| {
        let live = observed.objects.get(id)?;
        parse_rfc3339(live.annotation(MAINTENANCE)?).filter(over)
    };
    let namespace = ObjectId::new(Kind::Namespace, "", &install.namespace);
    let policy = &install.policy;
    let said = [
        policy.paused_until,
        policy.owner.and_then(|owner| owner.paused_until),
    ];
    let said = said.into_iter().flatten().filter(over);
    let whole = ended(&namespace).max(said.max());
    let overdue = plan.findings.iter().filter_map(|f| {
        let key = (f.class, f.object.clone());
        let against = plan.steps.iter();
        let against = against.filter(|step| step.cause.as_ref() == Some(&key));
        let others = against.flat_map(|step| touched(observed, step));
        let end = others.filter_map(ended).max().max(ended(&f.object));
        let end = end.max(whole)?;
        let since = history.faults.get(&key)?.since?;
        (since < end).then_some((key, end))
    });
    overdue.collect()
}

pub(super) fn counts(now: OffsetDateTime, until: OffsetDateTime) -> bool {
    until > now && until - now <= LONGEST
}

#[cfg(test)]
mod tests;

//! What the hub is told of the engine: the steps of its adoption and its conditions. Pure.

use time::OffsetDateTime;

use crate::agent::engine::{Install, guard, is_git_owned};
use crate::agent::plan::fault::Budget;
use crate::agent::plan::find::answer;
use crate::agent::plan::state::Answer;
use crate::agent::plan::window::{By, Window, careful};
use crate::agent::plan::{
    Class, Finding, History, Mode, Observed, Plan, children, health, outlook, quarantine, scene,
};
use crate::bundle::ObjectId;
use crate::clock::rfc3339;
use crate::wire::report::{Condition, ConditionType, Status};

mod adoption;
mod brought;
mod current;
mod held;

pub(super) use adoption::steps;
use adoption::{apply, revision};
use brought::ready;
use current::current;
use held::held;

const MAX_TEXT: usize = 1000;
/// Why a condition `Paused` stands that ends by itself.
const WINDOW: &str = "Maintenance";
/// Controllers that are not available; more do not fit into a text.
const MAX_DOWN: usize = 4;

/// What is known at one moment.
pub(super) struct Moment<'a> {
    pub(super) now: OffsetDateTime,
    pub(super) install: &'a Install,
    pub(super) observed: &'a Observed,
    pub(super) history: &'a History,
    pub(super) plan: &'a Plan,
    /// What keeps the change that is under way from its end although all is as wanted.
    pub(super) lacks: Option<&'a str>,
}

/// The engine's words about a key of the Git host that it does not know.
pub(super) fn other_host_key(moment: &Moment<'_>) -> Option<String> {
    named(moment, &[Class::HostKeyMismatch]).map(|(_, text)| text)
}

/// Whether a root does not get at the catalog, so that the agent's own look tells whose fault that is.
pub(super) fn is_kept_out(moment: &Moment<'_>) -> bool {
    let mut away = moment.plan.findings.iter();
    let away = away.any(|f| {
        let kept_out = matches!(f.class, Class::GitUnreachable | Class::PolicyBlocks);
        kept_out && is_of_root(moment, f)
    });
    away || is_revoked(moment)
}

/// Whether it was told that a root's key is refused. Only then the agent's own look has the hub register the key again.
pub(super) fn is_revoked(moment: &Moment<'_>) -> bool {
    ripe(moment).any(|f| f.class == Class::KeyRevoked && is_of_root(moment, f))
}

fn is_of_root(moment: &Moment<'_>, finding: &Finding) -> bool {
    moment.install.roots().any(|root| *root == finding.object)
}

/// All that is told while too little is known: why, once it lasts.
pub(super) fn blind(moment: &Moment<'_>) -> Vec<Condition> {
    let silent = named(moment, &[Class::ApiUnhealthy]);
    let told = silent.map(|(reason, text)| {
        let kind = ConditionType::EngineHealthy;
        condition(moment.now, kind, Status::False, &reason, &text)
    });
    told.into_iter().collect()
}

/// The conditions that the watchdog answers for.
pub(super) fn conditions(moment: &Moment<'_>, snapshot: Option<OffsetDateTime>) -> Vec<Condition> {
    let kept = snapshot.map(|at| ("Kept".to_owned(), format!("of {}", rfc3339(at))));
    let (observe, paused) = match moment.plan.mode {
        Mode::ObserveOnly => (
            Some(("ForeignManager".to_owned(), foreign(moment.plan))),
            None,
        ),
        Mode::Paused(window) => (None, Some(maintenance(moment, window))),
        Mode::Act | Mode::Learning => (None, None),
    };
    let installed = apply(moment).map(|message| ("ObjectsMissing".to_owned(), message));
    let mut all = vec![
        holds(
            moment,
            ConditionType::EngineInstalled,
            installed,
            "Installed",
        ),
        holds(
            moment,
            ConditionType::EngineHealthy,
            sick(moment),
            "Healthy",
        ),
        stands(
            moment,
            ConditionType::EngineFromGit,
            from_git(moment),
            "Agent",
        ),
        holds(moment, ConditionType::Synced, unsynced(moment), "Synced"),
        ready(moment),
        stands(moment, ConditionType::SnapshotFresh, kept, "NoneYet"),
        stands(moment, ConditionType::Quarantined, held(moment), "None"),
        holds(moment, ConditionType::Guarded, unguarded(moment), "Refuses"),
        stands(moment, ConditionType::ObserveOnly, observe, "Acts"),
        stands(moment, ConditionType::Paused, paused, "Acts"),
        stands(
            moment,
            ConditionType::SafeHealsOnly,
            only_safe(moment),
            "MendsAll",
        ),
    ];
    let (wish, _) = moment.install.wish();
    if moment.install.change().is_some() || !wish.is_another(moment.install.form()) {
        all.push(current(moment));
    }
    if moment.observed.objects.contains_key(&moment.install.source) {
        let git = named(
            moment,
            &[
                Class::GitUnreachable,
                Class::PolicyBlocks,
                Class::KeyRevoked,
                Class::HostKeyMismatch,
            ],
        );
        let git = git.or_else(|| keyless(moment));
        all.push(holds(moment, ConditionType::GitReachable, git, "Fetched"));
    }
    all
}

/// Controllers that the catalog itself brings, and those that it brought and that are held since.
fn from_git(moment: &Moment<'_>) -> Because {
    let Moment {
        install, observed, ..
    } = *moment;
    let brought = install.workloads().filter(|id| {
        let wanted = install.wanted.get(*id);
        let live = observed.objects.get(*id);
        wanted.is_some_and(|w| w.git_owned) || live.is_some_and(|l| is_git_owned(&l.fields))
    });
    let (lost, there): (Vec<&ObjectId>, Vec<&ObjectId>) =
        brought.partition(|id| quarantine::removed(install, observed, id));
    let named = |ids: Vec<&ObjectId>| {
        let names: Vec<String> = ids.into_iter().map(ToString::to_string).collect();
        (!names.is_empty()).then(|| names.join(", "))
    };
    let there = named(there).map(|names| format!("the catalog brings {names}"));
    let lost = named(lost).map(|names| {
        format!("the catalog no longer has {names}: condition Quarantined says how its hold ends")
    });
    let texts: Vec<String> = there.into_iter().chain(lost).collect();
    (!texts.is_empty()).then(|| ("FromGit".to_owned(), texts.join("; ")))
}

/// Until when nothing is mended, and by whose word.
fn maintenance(moment: &Moment<'_>, window: Window) -> (String, String) {
    let Window { end, by } = window;
    let remedy = window.remedy(&moment.install.cluster);
    let (reason, text) = match by {
        By::Hub => {
            let reason = &moment.install.policy.pause_reason;
            (WINDOW, format!("{end}: {reason}; {remedy}"))
        }
        By::Namespace => (WINDOW, format!("{end}; {by}")),
        By::PausedUntil => (WINDOW, format!("{end}; {by}; {remedy}")),
        By::Heal => ("HealOff", format!("{by} is off; {remedy}")),
        By::Invalid => ("PolicyInvalid", format!("{by}; {remedy}")),
    };
    (reason.to_owned(), text)
}

/// Until when only what is missing is put back, and why.
fn only_safe(moment: &Moment<'_>) -> Because {
    let window = careful(moment.now, &moment.install.policy)?;
    let Window { end, by } = window;
    let (reason, text) = match by {
        By::Heal => {
            let remedy = window.remedy(&moment.install.cluster);
            ("HealSafe", format!("{by} is safe; {remedy}"))
        }
        By::Hub | By::Namespace | By::PausedUntil | By::Invalid => {
            let reason = &moment.install.policy.safe_reason;
            let text = format!("{end}: {reason}; find out what they have in common");
            ("Incident", text)
        }
    };
    Some((reason.to_owned(), text))
}

type Because = Option<(String, String)>;

/// True unless something is against it.
fn holds(moment: &Moment<'_>, kind: ConditionType, against: Because, good: &str) -> Condition {
    match against {
        None => condition(moment.now, kind, Status::True, good, ""),
        Some((reason, message)) => condition(moment.now, kind, Status::False, &reason, &message),
    }
}

/// False unless something speaks for it.
fn stands(
    moment: &Moment<'_>,
    kind: ConditionType,
    because: Because,
    otherwise: &str,
) -> Condition {
    match because {
        None => condition(moment.now, kind, Status::False, otherwise, ""),
        Some((reason, message)) => condition(moment.now, kind, Status::True, &reason, &message),
    }
}

/// The first of these faults of the engine or its roots, with what a person does about it.
fn named(moment: &Moment<'_>, classes: &[Class]) -> Because {
    let found = of_engine(moment).find(|f| classes.contains(&f.class));
    found.map(|f| (f.class.to_string(), with_advice(f)))
}

/// The source's word that it found no key to offer.
fn keyless(moment: &Moment<'_>) -> Because {
    let source = &moment.install.source;
    let found =
        of_engine(moment).find(|f| f.class == Class::GitSecretBad && f.object == *source)?;
    Some((found.class.to_string(), with_advice(found)))
}

fn sick(moment: &Moment<'_>) -> Because {
    let fault = of_engine(moment)
        .find(|f| !about_catalog(f.class) && f.class != Class::KubernetesUnsupported);
    let fault = fault.map(|f| (f.class.to_string(), with_advice(f)));
    fault.or_else(|| down(moment))
}

/// Controllers that are not available, and what becomes of that.
fn down(moment: &Moment<'_>) -> Because {
    let live = |id: &ObjectId| moment.observed.objects.get(id);
    let works = |id: &ObjectId| live(id).is_some_and(|live| health::works(live));
    let down = moment.install.workloads().filter(|id| !works(id));
    let mut named: Vec<String> = down.map(|id| expected(moment, id)).collect();
    let more = named.len().saturating_sub(MAX_DOWN);
    named.truncate(MAX_DOWN);
    if more > 0 {
        named.push(format!("and {more} more"));
    }
    (!named.is_empty()).then(|| ("NotAvailable".to_owned(), named.join("; ")))
}

/// What is known of a controller that is not available, and until when that is waited for.
fn expected(moment: &Moment<'_>, id: &ObjectId) -> String {
    let mut found = moment.plan.findings.iter();
    let young = found.find(|f| f.object == *id && counts_at(moment, f) > moment.now);
    let Some(finding) = young else {
        return format!("{id} is not available");
    };
    let missing = !moment.observed.objects.contains_key(id);
    let known = (moment.observed, moment.plan.mode);
    let kept = outlook::held_back(moment.now, moment.install, known, (&[id], missing));
    let then = kept.unwrap_or_else(|| outlook::awaited(finding, counts_at(moment, finding)));
    format!("{}; {then}", text(finding))
}

/// Why a deletion of what the engine lives on would not be refused.
fn unguarded(moment: &Moment<'_>) -> Because {
    let mut guards = moment.install.wanted.keys().filter(|id| id.kind.optional());
    let absent = guards.find(|id| !moment.observed.objects.contains_key(id));
    let Some(absent) = absent else {
        return weakened(moment);
    };
    if answer(moment.observed, absent.kind) == Answer::Whole {
        return Some(("Missing".to_owned(), format!("{absent} is missing")));
    }
    let text = "the API server serves the agent no ValidatingAdmissionPolicy; with Kubernetes 1.30 or later, apply the \
                adoption YAML again: 'linesman cluster readopt'";
    Some(("NotServed".to_owned(), text.to_owned()))
}

/// A policy that is there and was changed may refuse nothing.
fn weakened(moment: &Moment<'_>) -> Because {
    let all = moment.install.wanted.iter();
    let mut guards = all.filter(|(id, _)| id.kind.optional());
    guards.find_map(|(id, wanted)| {
        let live = moment.observed.objects.get(id)?;
        let paths = guard::weakened(id.kind, &wanted.expect, &live.fields);
        let text = format!("{id} differs at {}", paths.join(", "));
        (!paths.is_empty()).then(|| ("Altered".to_owned(), text))
    })
}

fn unsynced(moment: &Moment<'_>) -> Because {
    let waits = revision(moment).map(|message| ("NotSynced".to_owned(), message));
    waits.or_else(|| {
        named(
            moment,
            &[
                Class::SuspendedByHuman,
                Class::ApplyFailed,
                Class::BuildFailed,
                Class::PathMissing,
                Class::HealthCheckFailed,
            ],
        )
    })
}

/// Findings about the engine and its roots that are old enough to count.
fn of_engine<'a>(moment: &'a Moment<'a>) -> impl Iterator<Item = &'a Finding> {
    ripe(moment).filter(|f| !children::is_child(moment.observed, f))
}

/// Findings that are old enough to count.
fn ripe<'a>(moment: &'a Moment<'a>) -> impl Iterator<Item = &'a Finding> {
    let all = moment.plan.findings.iter();
    all.filter(move |f| counts_at(moment, f) <= moment.now)
}

fn counts_at(moment: &Moment<'_>, finding: &Finding) -> OffsetDateTime {
    outlook::counts_at(moment.now, moment.history, finding)
}

/// Faults of what the engine follows, not of the engine.
fn about_catalog(class: Class) -> bool {
    class.budget() == Budget::Report
        && matches!(
            class,
            Class::BuildFailed
                | Class::ApplyFailed
                | Class::HealthCheckFailed
                | Class::DependencyNotReady
                | Class::PathMissing
                | Class::SuspendedByHuman
                | Class::SignatureFailed
                | Class::GitUnreachable
                | Class::PolicyBlocks
                | Class::KeyRevoked
                | Class::HostKeyMismatch
        )
}

fn foreign(plan: &Plan) -> String {
    let found = plan
        .findings
        .iter()
        .find(|f| f.class == Class::ForeignManager);
    found.map(text).unwrap_or_default()
}

fn text(finding: &Finding) -> String {
    short(&format!("{} {}", finding.object, finding.evidence))
}

fn with_advice(finding: &Finding) -> String {
    match finding.advice() {
        "" => text(finding),
        advice => short(&format!("{}; {advice}", text(finding))),
    }
}

fn condition(
    now: OffsetDateTime,
    kind: ConditionType,
    status: Status,
    reason: &str,
    message: &str,
) -> Condition {
    Condition {
        kind,
        status,
        reason: reason.to_owned(),
        message: short(message),
        since: rfc3339(now),
    }
}

fn short(text: &str) -> String {
    quarantine::cut(&scene::line(text), MAX_TEXT)
}

#[cfg(test)]
mod tests;

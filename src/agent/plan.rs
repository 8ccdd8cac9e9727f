//! The whole judgement of the watchdog: now, wanted, observed and history to steps and the next look.
//!
//! Level-triggered and total: the same input gives the same plan, a plan is made anew after every event and
//! outcome, and nothing here reads a clock, draws a random number or talks to a cluster. The first install is the
//! same plan as any heal: everything is missing. No step ever deletes a CRD, a Namespace or a volume claim.

use time::{Duration, OffsetDateTime};

use super::engine::Install;

mod account;
pub mod admission;
mod anew;
pub mod applied;
pub mod argocd;
pub mod barred;
pub mod behind;
pub mod burst;
pub mod busy;
pub mod change;
pub mod children;
pub mod claims;
pub mod coverage;
pub mod diagnosis;
pub mod displaced;
pub mod doubt;
mod evidence;
pub mod exits;
pub mod failed;
pub mod fault;
pub mod find;
mod foreign;
mod full;
mod giveback;
pub mod health;
pub mod history;
mod latent;
pub mod outlook;
pub mod own;
pub mod ownership;
pub mod pace;
pub mod pass;
pub mod probes;
pub mod project;
pub mod quarantine;
pub mod redis;
pub mod remade;
pub mod replace;
pub mod retry;
pub mod rights;
pub mod scene;
pub mod server;
pub mod setback;
pub mod settled;
pub mod shard;
pub mod silence;
pub mod state;
pub mod steps;
pub mod superseded;
pub mod undecodable;
pub mod upgrade;
pub mod window;
pub mod witness;

pub use fault::{Class, Key};
pub use find::Finding;
pub use pace::writes_fields;
use server::Gate;
pub use state::{History, Object, Observed, Pod, Scope};
pub use steps::{Action, Step};
pub use window::MAINTENANCE;
use window::{End, Window};

/// The longest time without a look.
const LOOK: Duration = Duration::seconds(60);

/// What is wrong, what to do now, and when to look again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// All that is wrong, younger than their debounce or not.
    pub findings: Vec<Finding>,
    pub steps: Vec<Step>,
    pub next_look: OffsetDateTime,
    /// Faults whose budget is spent.
    pub exhausted: Vec<Key>,
    pub mode: Mode,
}

/// Why nothing is written, if nothing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Act,
    /// The cluster is not known well enough: not yet, or not while its API server has trouble of its own.
    Learning,
    /// Somebody else manages the engine.
    ObserveOnly,
    /// A maintenance window is open, or the owner has all left alone.
    Paused(Window),
}

/// The one entry.
pub fn plan(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    history: &History,
) -> Plan {
    let in_force = ownership::in_force(now, install, observed, history);
    let shielded = quarantine::shield::shielded(&in_force, observed);
    let install = shielded.as_ref();
    let mut findings = find::find(now, install, observed, history);
    let mode = window::mode(now, install, observed, &findings);
    if let Gate::Shut(symptoms) = &observed.gate {
        find::unjudged(install, symptoms, &mut findings);
    }
    let exhausted = steps::open_circuits(history, &findings);
    let guarded = findings.iter().any(find::dies);
    let mut ends = giveback::steps(now, install, observed, history, (mode, &findings));
    quarantine::mark::all(now, install, observed, &mut ends);
    if !acts(now, install, observed, history, (mode, &findings)) {
        let due = giveback::is_due(install, observed, history);
        return Plan {
            findings,
            steps: ends,
            next_look: rests_until(now, mode, due),
            exhausted,
            mode,
        };
    }
    let open = open(now, observed, mode, &findings);
    let (mut steps, waiting) = steps::steps(now, install, observed, history, &open);
    window::hold_back(now, observed, &mut steps);
    match mode {
        Mode::Learning => steps.retain(|step| is_guards(&step.action)),
        Mode::Paused(_) => steps.extend(ends),
        Mode::Act | Mode::ObserveOnly => {
            steps.extend(giveback::held(now, install, observed, history, &findings));
        }
    }
    let known = (observed, history);
    change::stages(now, install, known, &mut steps, (&findings, &open));
    quarantine::mark::all(now, install, observed, &mut steps);
    let safe_only = window::careful(now, &install.policy).is_some();
    if safe_only {
        steps.retain(|step| step.action.is_safe() || steps::guarded_down(observed, &step.target));
    }
    let mut next_look = waiting.unwrap_or(now + LOOK).min(now + LOOK);
    if steps.is_empty() && !guarded {
        let locks = probes::locks(now, install, observed);
        steps = unless_vain(now, history, locks, &mut next_look);
    }
    if steps.is_empty() && !guarded && !safe_only {
        let past = (history, findings.as_slice());
        steps = gits(now, install, observed, past, &mut next_look);
    }
    if steps.is_empty() && !guarded {
        let (questions, at) = questions(now, install, observed, history, &findings);
        steps = questions;
        next_look = next_look.min(at);
    }
    if guarded || !steps.is_empty() {
        next_look = next_look.min(now + Duration::seconds(2));
    }
    let late = behind::until(now, observed, history);
    let looks = ripening(now, history, &findings).chain(late);
    next_look = looks.fold(next_look, OffsetDateTime::min);
    Plan {
        findings,
        steps,
        next_look,
        exhausted,
        mode,
    }
}

/// Whether anything may be done but to give back what the guard took.
fn acts(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    history: &History,
    (mode, findings): (Mode, &[Finding]),
) -> bool {
    // What a dying CRD would take with it is saved in a window, too, unless somebody allowed its deletion; and whatever else
    // is not known, if only it is known whose engine this is.
    let saves = findings.iter().any(find::dies) && !window::allowed_to_die(now, observed, findings);
    let foreign = findings.iter().any(|f| f.class == Class::ForeignManager);
    let judged = || !foreign && foreign::is_judged(now, install, observed, history);
    match mode {
        Mode::Act => true,
        Mode::Paused(_) => saves,
        Mode::Learning => saves && judged(),
        Mode::ObserveOnly => false,
    }
}

/// When to look again while nothing is done; `due` = something is to be given back.
fn rests_until(now: OffsetDateTime, mode: Mode, due: bool) -> OffsetDateTime {
    let at = match mode {
        Mode::Paused(Window {
            end: End::At(end), ..
        }) => end.min(now + LOOK),
        Mode::Learning => now + Duration::seconds(5),
        Mode::Paused(_) | Mode::Act | Mode::ObserveOnly => now + LOOK,
    };
    if due {
        at.min(now + Duration::seconds(2))
    } else {
        at
    }
}

/// The findings that something is done about.
fn open(
    now: OffsetDateTime,
    observed: &Observed,
    mode: Mode,
    findings: &[Finding],
) -> Vec<Finding> {
    let all = findings.iter().filter(|f| match mode {
        Mode::Paused(_) | Mode::Learning => find::dies(f),
        Mode::Act | Mode::ObserveOnly => !window::held(now, observed, f),
    });
    all.cloned().collect()
}

/// What the guard does while something dies.
fn is_guards(action: &Action) -> bool {
    matches!(
        action,
        Action::CutRights { .. } | Action::ScaleToZero | Action::Release
    )
}

/// When findings begin to count.
fn ripening<'a>(
    now: OffsetDateTime,
    history: &'a History,
    findings: &'a [Finding],
) -> impl Iterator<Item = OffsetDateTime> + 'a {
    let found = findings.iter().filter_map(move |f| {
        let past = history.faults.get(&(f.class, f.object.clone()))?;
        Some(past.since? + f.class.debounce())
    });
    let down = history.down.values().map(|since| *since + find::DOWN);
    let restores = history.restore_after.values().copied();
    let all = found.chain(down).chain(restores);
    all.filter(move |at| *at > now)
}

/// What is asked where nothing is to be done, and when the next question is due.
fn questions(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    history: &History,
    findings: &[Finding],
) -> (Vec<Step>, OffsetDateTime) {
    let (mut steps, at) = probes::probes(now, install, observed, history);
    let (witnesses, missed) = witness::probes(now, install, observed, history);
    steps.extend(witnesses);
    let (asks, again) = admission::asks(now, install, observed, history);
    steps.extend(asks);
    let (late, others) = behind::asks(now, install, observed, history);
    let late = late.into_iter().filter(|step| !steps.contains(step));
    let late: Vec<Step> = late.collect();
    steps.extend(late);
    let (tries, due) = anew::asks(now, install, observed, history, findings);
    steps.extend(tries);
    let sooner = missed.into_iter().chain(again).chain(others).chain(due);
    (steps, sooner.fold(at, OffsetDateTime::min))
}

/// Steps against no fault, unless one of them came to nothing a moment ago: they stand or fall together.
fn unless_vain(
    now: OffsetDateTime,
    history: &History,
    steps: Vec<Step>,
    next_look: &mut OffsetDateTime,
) -> Vec<Step> {
    let vain = steps.iter().filter(|step| !step.action.asks());
    let vain = vain.filter_map(|step| pace::again(history.vain.get(&step.target)?, now));
    match vain.max().filter(|at| *at > now) {
        Some(at) => {
            *next_look = at.min(*next_look);
            Vec::new()
        }
        None => steps,
    }
}

/// What is left to do for what is held back from Git, and what is given to it.
fn gits(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    (history, findings): (&History, &[Finding]),
    next_look: &mut OffsetDateTime,
) -> Vec<Step> {
    // Each by itself: a hold that somebody undoes all the time, or that cannot be kept, keeps no other object waiting.
    let mut keeps = quarantine::keeps(now, install, observed);
    keeps.retain(|step| {
        let later = pace::keeps(history, step, now);
        *next_look = later.map_or(*next_look, |at| at.min(*next_look));
        later.is_none()
    });
    if !keeps.is_empty() {
        return keeps;
    }
    let lifts = quarantine::lifts(now, install, observed, history);
    // What cannot be given back keeps nothing else waiting, either.
    let mut steps = unless_vain(now, history, lifts, next_look);
    if steps.is_empty() {
        steps = undecodable::aside::turns(now, install, observed, history);
    }
    if steps.is_empty() {
        steps = claims::refused(now, install, observed, history, findings);
    }
    if steps.is_empty() {
        steps = claims::settled(now, install, observed, findings);
    }
    unless_vain(now, history, steps, next_look)
}

#[cfg(test)]
pub(super) mod tests;

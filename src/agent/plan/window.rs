//! When nothing is written, and what is held back: maintenance windows.

use time::{Duration, OffsetDateTime};

use super::fault::Key;
use super::find::{self, Finding, dies};
use super::quarantine::shield;
use super::state::{History, Object, Observed};
use super::{Class, Mode};
use crate::agent::engine::Install;
use crate::agent::engine::guard::ALLOW_DELETE;
use crate::bundle::{Kind, ObjectId};
use crate::clock::parse_rfc3339;

/// The annotation that opens a maintenance window, RFC 3339: on the engine's Namespace for all of it, on one object
/// for that object.
pub const MAINTENANCE: &str = "linesman.dev/maintenance-until";
/// A word that reaches further ahead counts for nothing: what is forgotten ends by itself.
pub const LONGEST: Duration = Duration::hours(24);
/// No hub makes an agent hold back for longer at once.
const SAFE: Duration = Duration::hours(1);
/// The end of a window is told of for so long.
const TOLD: Duration = Duration::hours(1);

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
    if observed.gate.is_shut() {
        return Mode::Learning;
    }
    let namespace = ObjectId::new(Kind::Namespace, "", &install.namespace);
    let here = observed.objects.get(&namespace);
    let here = here.and_then(|live| until(now, live, MAINTENANCE));
    let hub = install.policy.paused_until;
    let hub = hub.filter(|until| counts(now, *until));
    here.max(hub).map_or(Mode::Act, Mode::Paused)
}

/// Until when only what is missing is put back, by the hub's wish. One that reaches further than [`SAFE`] counts for nothing.
pub fn safe_until(now: OffsetDateTime, install: &Install) -> Option<OffsetDateTime> {
    let until = install.policy.safe_until?;
    (until > now && until - now <= SAFE).then_some(until)
}

/// Whether a finding is about an object with a window of its own. A guarded deletion is never held back.
pub(super) fn held(now: OffsetDateTime, observed: &Observed, finding: &Finding) -> bool {
    let live = observed.objects.get(&finding.object);
    !dies(finding) && live.is_some_and(|live| until(now, live, MAINTENANCE).is_some())
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

/// Faults that were there when their maintenance window ended by itself, and when it did. From then on they are
/// mended, whether or not somebody is still at work.
pub fn overdue(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    history: &History,
    findings: &[Finding],
) -> Vec<(Key, OffsetDateTime)> {
    let over = |end: &OffsetDateTime| *end <= now && now - *end < TOLD;
    let ended = |id: &ObjectId| {
        let live = observed.objects.get(id)?;
        parse_rfc3339(live.annotation(MAINTENANCE)?).filter(over)
    };
    let namespace = ObjectId::new(Kind::Namespace, "", &install.namespace);
    let whole = ended(&namespace).max(install.policy.paused_until.filter(over));
    let overdue = findings.iter().filter_map(|f| {
        let end = ended(&f.object).max(whole)?;
        let key = (f.class, f.object.clone());
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

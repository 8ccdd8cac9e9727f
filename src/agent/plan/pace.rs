//! How soon a fault may be acted upon again.
//!
//! Different faults in a row on one object look like one that comes back, so the first repeats are quick; only what
//! goes on repeating is slowed down. Both forget: a run of attempts ends with five quiet minutes.

use time::{Duration, OffsetDateTime};

use super::fault::{Budget, Class};
use super::full;
use super::state::{History, Past};
use super::steps::Step;
use crate::bundle::ObjectId;
use crate::keys::sha256;

/// Attempts that are remembered for one fault.
pub const MAX_ATTEMPTS: usize = 64;

/// Between two attempts against the same fault, at least.
const SOONEST: Duration = Duration::seconds(2);
/// The same where the engine already follows something else, and prunes by it within a second or two. The write before
/// has been seen by then.
const ASTRAY: Duration = Duration::milliseconds(250);
/// Spacing does not grow beyond this.
const LATEST: Duration = Duration::seconds(30);
/// Repeats within a minute that are only [`SOONEST`] apart.
const BURST: usize = 5;
/// A run of this many attempts is a fight: one attempt every [`LATEST`] until it has been quiet.
const FIGHT: usize = 60;
/// An object that nobody touched for this long has a clean record, as far as spacing goes.
const QUIET: Duration = Duration::minutes(5);
/// Repeats of a step that only writes fields, before the back-off begins.
const QUICK: usize = 3;

/// When the next attempt against a fault is allowed; none = never. A time in the past means now.
pub fn allowed(
    class: Class,
    object: &ObjectId,
    past: &Past,
    seed: &str,
    now: OffsetDateTime,
) -> Option<OffsetDateTime> {
    let budget = class.budget();
    if budget == Budget::Report {
        return None;
    }
    let ripe = past.since.unwrap_or(now) + class.debounce();
    let ripe = served(budget, past, now).map_or(ripe, |at| ripe.max(at));
    let Some(last) = past.attempts.last() else {
        return Some(ripe);
    };
    let next = match budget {
        Budget::Report => return None,
        Budget::Steady => *last + SOONEST,
        Budget::Spaced => *last + spacing(&past.attempts, now),
        Budget::PerHour(limit) => {
            let tries = within(&past.attempts, Duration::hours(1), now);
            if tries == 0 {
                ripe
            } else if past.spent || tries >= limit {
                *last + Duration::hours(1)
            } else {
                *last + back_off(class, object, tries, seed).max(patience(class))
            }
        }
    };
    Some(next.max(ripe))
}

/// What was not done, or could not be made ready, is tried again soon, and less often while that goes on.
fn served(budget: Budget, past: &Past, now: OffsetDateTime) -> Option<OffsetDateTime> {
    match budget {
        Budget::Steady => Some(*past.unserved.last()? + SOONEST),
        Budget::Spaced | Budget::PerHour(_) | Budget::Report => again(&past.unserved, now),
    }
}

/// When what came to nothing at these times is tried again: soon, and less often while that goes on.
pub fn again(vain: &[OffsetDateTime], now: OffsetDateTime) -> Option<OffsetDateTime> {
    Some(*vain.last()? + spacing(vain, now))
}

/// Whether what is against no fault came to nothing at an object a moment ago.
pub fn rests(history: &History, object: &ObjectId, now: OffsetDateTime) -> bool {
    let times = history.vain.get(object);
    times
        .and_then(|times| again(times, now))
        .is_some_and(|at| at > now)
}

/// When what keeps a hold in force may be done: not where it came to nothing a moment ago, nor where somebody undoes it as often
/// as it is done. None = now.
pub fn keeps(history: &History, step: &Step, now: OffsetDateTime) -> Option<OffsetDateTime> {
    let vain = history.vain.get(&step.target);
    let vain = vain.and_then(|times| again(times, now));
    let key = (step.action.as_str(), step.target.clone());
    let same = history.kept.get(&key);
    let same = same.filter(|(action, _)| *action == step.action);
    let undone = same.and_then(|(_, times)| once_more(times, now));
    vain.max(undone).filter(|at| *at > now)
}

/// When what was done at these times, and undone by somebody each time, is done once more.
pub fn once_more(times: &[OffsetDateTime], now: OffsetDateTime) -> Option<OffsetDateTime> {
    let tries = within(times, Duration::hours(1), now);
    let wait = match tries.checked_sub(QUICK + 1) {
        None => SOONEST,
        Some(doublings) => Duration::milliseconds(doubled(doublings)),
    };
    Some(*times.last()? + wait)
}

/// How often somebody undid within an hour what was done at these times, where that goes on and is not just once or twice.
pub fn undone(times: &[OffsetDateTime], now: OffsetDateTime) -> Option<usize> {
    let goes_on = once_more(times, now).is_some_and(|at| at > now);
    let tries = within(times, Duration::hours(1), now);
    (goes_on && tries > QUICK).then(|| tries - 1)
}

/// Whether the budget of a fault is spent by its latest attempts.
pub fn spends(class: Class, attempts: &[OffsetDateTime], now: OffsetDateTime) -> bool {
    match class.budget() {
        Budget::PerHour(limit) => within(attempts, Duration::hours(1), now) >= limit,
        Budget::Spaced | Budget::Steady | Budget::Report => false,
    }
}

/// Takes in that somebody did at an object once more what comes to nothing. Whether people are told of it: at first each time, and less
/// often while it goes on.
pub fn tells(history: &mut History, object: &ObjectId, now: OffsetDateTime) -> bool {
    history.told.retain(|_, times| {
        times.retain(|at| now - *at < Duration::hours(1));
        !times.is_empty()
    });
    let times = history.told.entry(object.clone()).or_default();
    let due = once_more(times, now).is_none_or(|at| at <= now);
    if due {
        times.push(now);
    }
    due
}

fn within(attempts: &[OffsetDateTime], window: Duration, now: OffsetDateTime) -> usize {
    attempts.iter().filter(|at| now - **at < window).count()
}

/// The distance to the last of `attempts`, which are in order. A burst within a minute doubles it, so that a fight is
/// answered about every ten seconds at first, and every 30 s once it has gone on for [`FIGHT`] attempts.
fn spacing(attempts: &[OffsetDateTime], now: OffsetDateTime) -> Duration {
    let run = run(attempts, now);
    if run >= FIGHT {
        return LATEST;
    }
    let minute = within(attempts, Duration::minutes(1), now).min(run);
    let over = u32::try_from(minute.saturating_sub(BURST)).unwrap_or(u32::MAX);
    let factor = 2_i32.saturating_pow(over);
    SOONEST.checked_mul(factor).unwrap_or(LATEST).min(LATEST)
}

/// How many of the latest attempts belong together: none of them is [`QUIET`] after the one before.
fn run(attempts: &[OffsetDateTime], now: OffsetDateTime) -> usize {
    let mut until = now;
    let together = attempts.iter().rev().take_while(|at| {
        let near = until - **at < QUIET;
        until = **at;
        near
    });
    together.count()
}

/// A step that only writes fields may be repeated a few times at once: what it mends can be another field each time.
/// All else, such as a restart, waits 5 s · 2ⁿ up to 10 min, ± 20 % that depend on nothing but the arguments.
fn back_off(class: Class, object: &ObjectId, tries: usize, seed: &str) -> Duration {
    let quick = if writes_fields(class) { QUICK } else { 0 };
    if tries <= quick {
        return match class {
            Class::SourceAltered => ASTRAY,
            _ => SOONEST,
        };
    }
    let ceiling = doubled(tries - quick - 1);
    let hash = sha256(format!("{seed}/{class}/{object}/{tries}").as_bytes());
    let percent = 80 + i64::from(hash[0]) % 41;
    Duration::milliseconds(ceiling * percent / 100)
}

/// 5 s · 2ⁿ up to 10 min, in milliseconds.
fn doubled(doublings: usize) -> i64 {
    let doublings = u32::try_from(doublings).unwrap_or(u32::MAX);
    5_000_i64
        .saturating_mul(2_i64.saturating_pow(doublings.min(20)))
        .min(600_000)
}

/// What a step has to show that it helped, before the next one.
fn patience(class: Class) -> Duration {
    match class {
        Class::ArtifactLost => full::PATIENCE,
        _ => Duration::ZERO,
    }
}

/// Whether it is mended by writing fields again, so that somebody else writes them where it comes back.
pub fn writes_fields(class: Class) -> bool {
    matches!(
        class,
        Class::ScaledToZero
            | Class::BadImage
            | Class::ReadyButUseless
            | Class::EventSinkMissing
            | Class::RbacAltered
            | Class::SourceAltered
            | Class::ObjectAltered
            | Class::UndecodableObject
    )
}

#[cfg(test)]
mod tests;

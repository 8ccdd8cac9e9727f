//! How soon a fault may be acted upon again.
//!
//! Different faults in a row on one object look like one that comes back, so the first repeats are quick; only what
//! goes on repeating is slowed down. Both forget: a run of attempts ends with five quiet minutes.

use time::{Duration, OffsetDateTime};

use super::fault::{Budget, Class};
use super::full;
use super::state::Past;
use crate::bundle::ObjectId;
use crate::keys::sha256;

/// Attempts that are remembered for one fault.
pub const MAX_ATTEMPTS: usize = 64;

/// Between two attempts against the same fault, at least.
const SOONEST: Duration = Duration::seconds(2);
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

/// What the API server did not serve is sent again soon, and less often while that goes on.
fn served(budget: Budget, past: &Past, now: OffsetDateTime) -> Option<OffsetDateTime> {
    let last = *past.unserved.last()?;
    let wait = match budget {
        Budget::Steady => SOONEST,
        Budget::Spaced | Budget::PerHour(_) | Budget::Report => spacing(&past.unserved, now),
    };
    Some(last + wait)
}

/// Whether the budget of a fault is spent by its latest attempts.
pub fn spends(class: Class, attempts: &[OffsetDateTime], now: OffsetDateTime) -> bool {
    match class.budget() {
        Budget::PerHour(limit) => within(attempts, Duration::hours(1), now) >= limit,
        Budget::Spaced | Budget::Steady | Budget::Report => false,
    }
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
        return SOONEST;
    }
    let doublings = u32::try_from(tries - quick - 1).unwrap_or(u32::MAX);
    let ceiling = 5_000_i64
        .saturating_mul(2_i64.saturating_pow(doublings.min(20)))
        .min(600_000);
    let hash = sha256(format!("{seed}/{class}/{object}/{tries}").as_bytes());
    let percent = 80 + i64::from(hash[0]) % 41;
    Duration::milliseconds(ceiling * percent / 100)
}

/// What a step has to show that it helped, before the next one.
fn patience(class: Class) -> Duration {
    match class {
        Class::ArtifactLost => full::PATIENCE,
        _ => Duration::ZERO,
    }
}

fn writes_fields(class: Class) -> bool {
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
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::bundle::Kind;

    fn at(milliseconds: i64) -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap()
            + Duration::milliseconds(milliseconds)
    }

    fn object() -> ObjectId {
        ObjectId::new(Kind::Secret, "flux-system", "flux-system")
    }

    /// Breaks the object `gaps` milliseconds after it was mended, again and again; how long each repair took.
    fn repairs(class: Class, gaps: impl IntoIterator<Item = i64>) -> Vec<Duration> {
        let mut past = Past::default();
        let mut clock = at(0);
        let mut took = Vec::new();
        for gap in gaps {
            let broken = clock + Duration::milliseconds(gap);
            past.since = Some(broken);
            let mut now = broken;
            while let Some(next) = allowed(class, &object(), &past, "eu1", now)
                && next > now
            {
                now = next;
            }
            past.attempts.retain(|at| now - *at < Duration::hours(1));
            past.attempts.push(now);
            let surplus = past.attempts.len().saturating_sub(MAX_ATTEMPTS);
            past.attempts.drain(..surplus);
            past.spent |= spends(class, &past.attempts, now);
            took.push(now - broken);
            clock = now;
        }
        took
    }

    fn seconds(all: &[i64]) -> Vec<Duration> {
        all.iter().map(|s| Duration::seconds(*s)).collect()
    }

    #[test]
    fn the_first_repeats_are_quick_and_only_a_burst_is_slowed_down() {
        assert_eq!(
            repairs(Class::GitSecretBad, [0; 9]),
            seconds(&[0, 2, 2, 2, 2, 2, 4, 8, 16])
        );
    }

    #[test]
    fn a_fight_without_an_end_settles_at_half_a_minute_and_quiet_ends_it() {
        let calm = [6 * 60_000, 0, 0];
        let took = repairs(Class::ObjectMissing, [0; 80].into_iter().chain(calm));
        assert_eq!(took[60..80], [LATEST; 20]);
        assert_eq!(took[80..], seconds(&[0, 2, 2]));
        let whole: Duration = took[..60].iter().sum();
        assert!(whole > Duration::minutes(6), "{whole}");
    }

    /// W41: deleted 50 times in 10 minutes, restored each time.
    #[test]
    fn fifty_deletions_in_ten_minutes_are_each_restored_at_once() {
        assert_eq!(
            repairs(Class::ObjectMissing, [12_000; 50]),
            [Duration::ZERO; 50]
        );
    }

    #[test]
    fn several_wrong_fields_in_a_row_are_mended_quickly_within_the_budget() {
        let took = repairs(Class::ReadyButUseless, [0; 7]);
        assert_eq!(took[..4], seconds(&[0, 2, 2, 2]));
        assert!((4..=6).contains(&took[4].whole_seconds()), "{}", took[4]);
        assert_eq!(took[5..], [Duration::hours(1); 2]);
    }

    #[test]
    fn a_restart_backs_off_from_the_first_repeat() {
        let took = repairs(Class::QueueWedged, [0; 4]);
        assert_eq!(took[0], Duration::ZERO);
        assert!((4..=6).contains(&took[1].whole_seconds()), "{}", took[1]);
        assert!((8..=12).contains(&took[2].whole_seconds()), "{}", took[2]);
        assert_eq!(took[3], Duration::hours(1));
    }

    /// Clusters that the same fault strikes at once do not try again at once.
    #[test]
    fn back_off_is_spread_over_a_fifth_to_both_sides() {
        let wait = |seed: u32| back_off(Class::QueueWedged, &object(), 1, &seed.to_string());
        let waits: Vec<i64> = (0..400)
            .map(|seed| i64::try_from(wait(seed).whole_milliseconds()).unwrap())
            .collect();
        let (least, most) = (waits.iter().min(), waits.iter().max());
        assert_eq!((least, most), (Some(&4_000), Some(&6_000)));
    }

    #[test]
    fn an_attempt_is_over_at_the_end_of_its_window() {
        let attempts = [at(0), at(300_000)];
        let within = |now| within(&attempts, Duration::minutes(5), at(now));
        assert_eq!([299_999, 300_000, 600_000].map(within), [2, 1, 0]);
        let run = |now| run(&attempts, at(now));
        assert_eq!([300_000, 599_999, 600_000].map(run), [1, 1, 0]);
    }

    /// W25: an API server that serves no writes for some minutes, with a fault that may be mended five times an hour.
    #[test]
    fn what_the_api_server_does_not_serve_spends_no_budget() {
        let mut past = Past {
            since: Some(at(0)),
            ..Past::default()
        };
        let mut waits = Vec::new();
        let mut now = at(0);
        while now < at(180_000) {
            past.unserved.push(now);
            let next = allowed(Class::BadImage, &object(), &past, "eu1", now).unwrap();
            waits.push(next - now);
            now = next;
        }
        assert_eq!(waits[..8], seconds(&[2, 2, 2, 2, 2, 4, 8, 16]));
        assert!(waits.iter().all(|w| *w <= LATEST), "{waits:?}");
        past.attempts.push(now);
        assert!(!spends(Class::BadImage, &past.attempts, now));
        let next = allowed(Class::BadImage, &object(), &past, "eu1", now + QUIET);
        assert!(next <= Some(now + QUIET), "it is tried again at once");
    }

    #[test]
    fn the_guard_tries_again_every_two_seconds_whatever_is_served() {
        let mut past = Past::default();
        for n in 0..20 {
            past.unserved.push(at(n * 2_000));
        }
        let now = at(38_000);
        let next = allowed(Class::CrdTerminating, &object(), &past, "eu1", now);
        assert_eq!(next, Some(now + SOONEST));
    }

    #[test]
    fn what_is_only_reported_is_never_acted_upon() {
        let past = Past {
            since: Some(at(0)),
            ..Past::default()
        };
        assert_eq!(
            allowed(Class::GitUnreachable, &object(), &past, "eu1", at(0)),
            None
        );
    }

    proptest! {
        /// Whatever the rhythm: never sooner than 2 s after the last attempt, never later than 30 s, and at most
        /// eleven in any minute.
        #[test]
        fn spacing_is_bounded_both_ways(gaps in prop::collection::vec(0_i64..90_000, 1..120)) {
            let took = repairs(Class::ObjectMissing, gaps.clone());
            let mut clock = Duration::ZERO;
            let mut writes: Vec<Duration> = Vec::new();
            for (gap, took) in gaps.iter().zip(&took) {
                prop_assert!(*took <= LATEST, "{took}");
                clock += Duration::milliseconds(*gap) + *took;
                if let Some(last) = writes.last() {
                    prop_assert!(clock - *last >= SOONEST);
                }
                writes.push(clock);
            }
            for (n, from) in writes.iter().enumerate() {
                let minute = writes[n..].iter().filter(|at| **at - *from < Duration::minutes(1));
                prop_assert!(minute.count() <= 11);
            }
        }

        /// After five quiet minutes the next five faults are mended within 2 s each, whatever came before.
        #[test]
        fn quiet_makes_the_record_clean(gaps in prop::collection::vec(0_i64..20_000, 1..120)) {
            let calm = [300_000, 0, 0, 0, 0];
            let took = repairs(Class::GitSecretBad, gaps.into_iter().chain(calm));
            prop_assert!(took[took.len() - 5..].iter().all(|t| *t <= SOONEST));
        }
    }
}

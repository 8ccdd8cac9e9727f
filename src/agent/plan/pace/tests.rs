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

/// An engine that follows something else prunes by it within a second or two.
#[test]
fn an_engine_led_astray_is_led_back_at_once_and_so_each_of_the_first_times() {
    let took = repairs(Class::SourceAltered, [0; 5]);
    assert_eq!(took[..4], [Duration::ZERO, ASTRAY, ASTRAY, ASTRAY]);
    assert!((4..=6).contains(&took[4].whole_seconds()), "{}", took[4]);
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

#[test]
fn a_write_that_came_to_nothing_rests_until_it_is_tried_again() {
    assert_eq!(again(&[], at(0)), None);
    assert_eq!(again(&[at(0)], at(0)), Some(at(2_000)));
    let history = History {
        vain: [(object(), vec![at(0)])].into(),
        ..History::default()
    };
    let other = ObjectId::new(Kind::Secret, "flux-system", "other");
    for (now, id, expected) in [
        (0, object(), true),
        (1_999, object(), true),
        (2_000, object(), false),
        (0, other, false),
    ] {
        assert_eq!(rests(&history, &id, at(now)), expected, "{id} {now}");
    }
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
        assert!(next > now, "never at once again");
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
    let past = Past {
        attempts: past.unserved,
        ..Past::default()
    };
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

/// W41: what somebody undoes each time is done less and less often, and never in a loop.
#[test]
fn what_is_undone_each_time_is_done_ever_less_often() {
    let mut times = vec![at(0)];
    let mut gaps = Vec::new();
    for _ in 0..11 {
        let last = times[times.len() - 1];
        let next = once_more(&times, last).unwrap();
        gaps.push((next - last).whole_seconds());
        times.push(next);
    }
    assert_eq!(gaps, [2, 2, 2, 5, 10, 20, 40, 80, 160, 320, 600]);
    let last = times[times.len() - 1];
    assert_eq!(undone(&times, last), Some(11));
    assert_eq!(undone(&times, last + Duration::minutes(10)), None);
    assert_eq!(undone(&times[..3], times[2]), None, "that may be chance");
    assert_eq!(once_more(&[], last), None);
    let later = last + Duration::hours(2);
    assert!(once_more(&times, later).unwrap() < later);
}

/// A slip or two is told of each time, a loop is not.
#[test]
fn what_somebody_goes_on_with_in_vain_is_told_less_and_less_often() {
    let mut history = History::default();
    let told = (0..3_600).filter(|second| tells(&mut history, &object(), at(second * 1_000)));
    let told: Vec<i64> = told.collect();
    let expected = [
        0, 2, 4, 6, 11, 21, 41, 81, 161, 321, 641, 1_241, 1_841, 2_441, 3_041,
    ];
    assert_eq!(told, expected);
    let other = ObjectId::new(Kind::Namespace, "", "flux-system");
    assert!(tells(&mut history, &other, at(3_600_000)));
    // It was quiet for an hour.
    assert!(tells(&mut history, &object(), at(6_641_000)));
    let last = [
        (object(), vec![at(6_641_000)]),
        (other, vec![at(3_600_000)]),
    ];
    assert_eq!(history.told, last.into());
}

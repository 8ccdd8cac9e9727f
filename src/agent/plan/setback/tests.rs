use std::collections::BTreeMap;

use proptest::prelude::*;
use time::macros::datetime;

use super::*;
use crate::agent::plan::behind::Followed;
use crate::agent::plan::fault::Budget;
use crate::agent::plan::pace::{MAX_ATTEMPTS, allowed, spends};
use crate::agent::plan::tests::{Cluster, Damage};
use crate::agent::plan::{Action, Class};
use crate::bundle::{Kind, ObjectId};

const NOON: OffsetDateTime = datetime!(2026-01-02 12:00:00 UTC);

fn minutes(minutes: i64) -> OffsetDateTime {
    NOON + Duration::minutes(minutes)
}

fn object() -> ObjectId {
    ObjectId::new(Kind::Deployment, "flux-system", "source-controller")
}

/// All times of a history, each as given.
fn history(at: impl Fn(i64) -> OffsetDateTime, restore_after: OffsetDateTime) -> History {
    let past = Past {
        since: Some(at(-3)),
        attempts: [-50, -2, 0].map(&at).to_vec(),
        unserved: [-1].map(&at).to_vec(),
        spent: true,
        away: Some(at(-22)),
    };
    History {
        faults: [((Class::ScaledToZero, object()), past)].into(),
        adopted: true,
        last_write: Some(at(-2)),
        host_keys: Some(at(-4)),
        head: Some(("abc".to_owned(), at(-5))),
        // The first is the hub's.
        order: Some((NOON, at(-3))),
        restore_after: [(object(), restore_after)].into(),
        nudged: [(object(), at(-6))].into(),
        retried: [(object(), [-40, -7].map(&at).to_vec())].into(),
        blinded: Some(at(-8)),
        at_work: Some(at(-9)),
        releasing: Some(at(-10)),
        operation: Some(("7".to_owned(), at(-11))),
        // The first is the API server's.
        versions: [(object(), (NOON, at(-23)))].into(),
        down: [(object(), at(-12))].into(),
        unready: [(object(), at(-21))].into(),
        without: [(object(), at(-16))].into(),
        vain: [(object(), [-13, -1].map(&at).to_vec())].into(),
        told: [(object(), [-20, -1].map(&at).to_vec())].into(),
        kept: [kept(&at)].into(),
        saved: [(object(), vec![saved(at(-18), at(-19))])].into(),
        silent: [(object(), silence(&at))].into(),
        exits: [("1".to_owned(), exits(&at))].into(),
        followed: Followed {
            revision: "main@sha1:2".to_owned(),
            former: vec![("main@sha1:1".to_owned(), at(-1))],
            blank: false,
        },
        ..History::default()
    }
}

fn kept(
    at: impl Fn(i64) -> OffsetDateTime,
) -> ((&'static str, ObjectId), (Action, Vec<OffsetDateTime>)) {
    let note = String::new();
    let times = [-17, -1].map(at).to_vec();
    (("hold", object()), (Action::Hold { note }, times))
}

fn saved(since: OffsetDateTime, tried: OffsetDateTime) -> Saved {
    Saved {
        tried: Some(tried),
        ..Saved::new(serde_json::json!({}), since)
    }
}

fn silence(at: impl Fn(i64) -> OffsetDateTime) -> Silence {
    Silence {
        uid: "1".to_owned(),
        since: at(-15),
        asked: at(-14),
        said: String::new(),
        seen: Some(at(-1)),
        able: true,
        taken: Some(at(-13)),
    }
}

fn exits(at: impl Fn(i64) -> OffsetDateTime) -> Exits {
    Exits {
        restarts: 2,
        failed: vec![(at(-9), false), (at(-2), true)],
    }
}

/// What is in a history that has a time.
fn told(history: &History) -> String {
    let History {
        settled,
        cut,
        refused,
        ..
    } = history;
    assert!(settled.is_empty() && cut.is_empty() && refused.is_empty());
    format!("{history:#?}")
}

#[test]
fn times_ahead_of_a_clock_that_was_set_back_count_as_now_and_others_stay() {
    let soon = |now| now + AGAIN;
    let before = history(minutes, soon(NOON));
    for (now, after, ahead) in [
        (NOON, before.clone(), Duration::ZERO),
        (
            minutes(-120),
            history(|_| minutes(-120), soon(minutes(-120))),
            Duration::hours(2),
        ),
        (
            minutes(-3),
            history(|at| minutes(at.min(-3)), soon(minutes(-3))),
            Duration::minutes(3),
        ),
    ] {
        let mut history = before.clone();
        assert_eq!(history.set_back(now), ahead);
        assert_eq!(told(&history), told(&after), "{now}");
        assert_eq!(history.set_back(now), Duration::ZERO);
        assert_eq!(told(&history), told(&after), "{now}");
    }
}

/// W25: as many attempts an hour as the budget has, whatever the clock does meanwhile: it is set back after each of them.
#[test]
fn a_clock_that_jumps_to_and_fro_gives_no_budget_anew() {
    for class in Class::ALL {
        let Budget::PerHour(limit) = class.budget() else {
            continue;
        };
        let key = (*class, object());
        let mut history = History::default();
        let mut attempts = 0;
        let mut now = NOON;
        // An hour, less what the set-backs take away.
        for second in 0..3_000 {
            now += Duration::seconds(1);
            let back = Duration::seconds(i64::from(second % 7 == 3) * 600);
            now -= back;
            history.set_back(now);
            let past = history.faults.entry(key.clone()).or_default();
            past.since.get_or_insert(now);
            past.attempts.retain(|at| now - *at < Duration::hours(1));
            if allowed(*class, &key.1, past, "eu1", now).is_some_and(|at| at <= now) {
                past.attempts.push(now);
                assert!(past.attempts.len() <= MAX_ATTEMPTS);
                past.spent |= spends(*class, &past.attempts, now);
                attempts += 1;
            }
            now += back;
        }
        assert!((1..=limit).contains(&attempts), "{class}: {attempts}");
    }
}

/// W7: what is broken again right after the clock was set back by two hours is mended as soon as ever, and proven again.
#[test]
fn a_clock_that_is_set_back_does_not_stop_the_healing() {
    let mut took = BTreeMap::new();
    for back in [0, 2] {
        let mut cluster = Cluster::working();
        cluster.damage(&Damage::Scale("kustomize-controller"));
        cluster.settle(100);
        cluster.now -= Duration::hours(back);
        cluster.damage(&Damage::Scale("kustomize-controller"));
        let broken = cluster.now;
        cluster.steps.clear();
        cluster.settle(100);
        let mut mends = cluster.steps.iter();
        let (at, _) = mends.find(|(_, s)| s.action == Action::Apply).unwrap();
        took.insert(back, [*at - broken, cluster.now - broken]);
    }
    let within = |back: i64| took[&back].map(Duration::whole_minutes);
    assert_eq!((within(0), within(2)), ([0, 1], [0, 1]), "{took:?}");
}

/// What a fault that lasts gets from an agent whose clock is set at these seconds, by so much: the real seconds of
/// the attempts.
fn attempts_of(class: Class, sets: &BTreeMap<u32, i64>, seconds: u32) -> Vec<u32> {
    let key = (class, object());
    let mut history = History::default();
    let mut now = NOON;
    let mut attempts = Vec::new();
    for second in 0..seconds {
        now += Duration::SECOND;
        if let Some(by) = sets.get(&second) {
            let by = Duration::seconds(*by);
            now += by;
            history.set_by(by);
        }
        history.set_back(now);
        let past = history.faults.entry(key.clone()).or_default();
        past.since.get_or_insert(now);
        past.attempts.retain(|at| now - *at < Duration::hours(1));
        if allowed(class, &key.1, past, "eu1", now).is_some_and(|at| at <= now) {
            past.attempts.push(now);
            past.spent |= spends(class, &past.attempts, now);
            attempts.push(second);
        }
    }
    attempts
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, ..ProptestConfig::default() })]

    /// W25: a clock that is set to and fro changes nothing of what is done.
    #[test]
    fn budgets_are_by_the_time_that_passes_whatever_the_clock_shows(
        sets in prop::collection::btree_map(0_u32..8_000, -1_000_000_i64..1_000_000, 0..20),
    ) {
        for class in [Class::ScaledToZero, Class::ObjectMissing] {
            let calm = attempts_of(class, &BTreeMap::new(), 8_000);
            prop_assert_eq!(attempts_of(class, &sets, 8_000), calm, "{}", class);
        }
    }
}

/// A clock that is set forward by an hour or more ended each budget, and one set back held up what is to come.
#[test]
fn all_times_move_with_the_clock() {
    let soon = |now| now + AGAIN;
    for by in [-120, 120] {
        let mut moved = history(minutes, soon(NOON));
        moved.set_by(Duration::minutes(by));
        let expected = history(|at| minutes(at + by), soon(minutes(by)));
        assert_eq!(told(&moved), told(&expected), "{by}");
        assert_eq!(moved.set_back(minutes(by)), Duration::ZERO);
    }
}

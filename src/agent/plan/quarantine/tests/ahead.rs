//! Holds that began at a time that the clock, which was set back, has yet to reach.

use super::ordered::{NAME, held, order, scaled_to_zero};
use super::*;

fn set_back(cluster: &mut Cluster) {
    cluster.now -= Duration::days(1);
    cluster.history.set_back(cluster.now);
}

/// What broke it was not the first commit in a row that did.
fn broken_before(cluster: &mut Cluster) -> Hold {
    let live = cluster.objects.get_mut(&deployment(NAME)).unwrap();
    let again = Hold {
        attempt: 2,
        ..hold(live).unwrap()
    };
    live.fields["metadata"]["annotations"][HELD] = json!(again.text());
    assert_eq!(writes(&cluster.plan()), []);
    again
}

/// W17
#[test]
fn the_next_commit_lifts_a_hold_whose_beginning_is_ahead() {
    let mut cluster = held();
    set_back(&mut cluster);
    assert_eq!(writes(&cluster.plan()), [], "no other commit yet");
    fetched(&mut cluster, "main@sha1:3");
    let plan = cluster.plan();
    assert_eq!(writes(&plan), [("lift", NAME)]);
    do_all(&mut cluster, &plan);
    assert!(!is_held(&cluster, &deployment(NAME)));
}

/// Whatever it waits for; and one order gives it back once.
#[test]
fn an_order_lifts_a_hold_whose_beginning_is_ahead() {
    for waits in [false, true] {
        let mut cluster = held();
        if waits {
            broken_before(&mut cluster);
        }
        set_back(&mut cluster);
        order(&mut cluster, Duration::ZERO);
        let plan = cluster.plan();
        assert_eq!(writes(&plan), [("lift", NAME)], "{waits}");
        do_all(&mut cluster, &plan);
        works(&mut cluster);
        scaled_to_zero(&mut cluster);
        cluster.now += Duration::hours(2);
        assert_eq!(writes(&cluster.plan()), [], "{waits}");
    }
}

/// The times do not tell any more which of both came first.
#[test]
fn an_order_from_before_a_hold_whose_beginning_is_ahead_does_not_mean_it() {
    let mut cluster = owned();
    order(&mut cluster, Duration::ZERO);
    cluster.now += Duration::seconds(1);
    scaled_to_zero(&mut cluster);
    set_back(&mut cluster);
    assert_eq!(writes(&cluster.plan()), []);
    cluster.now += Duration::seconds(1);
    order(&mut cluster, Duration::days(1));
    assert_eq!(writes(&cluster.plan()), [("lift", NAME)], "another one");
}

/// W20: it waits for no longer than it was to, by a single write.
#[test]
fn a_wait_whose_beginning_is_ahead_begins_now() {
    let mut cluster = held();
    let again = broken_before(&mut cluster);
    set_back(&mut cluster);
    fetched(&mut cluster, "main@sha1:3");
    let plan = cluster.plan();
    assert_eq!(writes(&plan), [("hold", NAME)]);
    do_all(&mut cluster, &plan);
    let anew = Hold {
        since: rfc3339(cluster.now),
        ..again
    };
    let id = deployment(NAME);
    assert_eq!(hold(&cluster.objects[&id]), Some(anew));
    assert!(is_held(&cluster, &id));
    assert_eq!(writes(&cluster.plan()), [], "once");
    cluster.now += PROBATION - Duration::seconds(1);
    assert_eq!(writes(&cluster.plan()), []);
    cluster.now += Duration::seconds(1);
    assert_eq!(writes(&cluster.plan()), [("lift", NAME)]);
}

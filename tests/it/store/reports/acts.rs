//! What agents acted on, seen across the fleet, and the incidents that come of it.

use linesman::clock::rfc3339;
use linesman::hub::incident::{self, Acted, Incident, Seen};
use linesman::hub::store::{Reported, Store};
use linesman::wire::report::{HealRecord, HealResult, HealStep};
use time::OffsetDateTime;

use super::super::{at, cluster, on_both};
use super::{heal, heals};

on_both! {
    what_agents_acted_on_is_seen_across_the_fleet,
    acts_count_by_their_own_times_whenever_they_are_told,
    a_cause_that_outlives_an_incident_makes_another,
}

/// An open one with these steps, by milliseconds.
fn acted(id: &str, steps: &[(&str, i64)]) -> HealRecord {
    let step = |(action, ms): &(&str, i64)| HealStep {
        action: (*action).to_owned(),
        object: "Deployment flux-system/source-controller".to_owned(),
        at: rfc3339(at(*ms)),
        outcome: "ok".to_owned(),
    };
    HealRecord {
        steps: steps.iter().map(step).collect(),
        ..heal(id, HealResult::Open)
    }
}

async fn what_agents_acted_on_is_seen_across_the_fleet(store: Store) {
    let (eu1, us1) = (cluster(&store, "eu1").await, cluster(&store, "us1").await);
    cluster(&store, "never-seen").await;
    let mut none = heal("3", HealResult::Open);
    none.steps.clear();
    let nudged = heals(&[acted("2", &[("nudge", 50)]), none]);
    store.report(&us1.id, nudged, at(50)).await.unwrap();
    let made = heals(&[acted("1", &[("create", 50)])]);
    store.report(&eu1.id, made, at(50)).await.unwrap();
    let acted = vec![Acted {
        cluster_id: eu1.id,
        class: "ObjectMissing".to_owned(),
    }];
    assert_eq!(store.acted(at(50)).await.unwrap(), Seen { fleet: 2, acted });
    let later = Seen {
        fleet: 2,
        acted: vec![],
    };
    assert_eq!(store.acted(at(51)).await.unwrap(), later);
}

/// An agent whose hub was away for days tells of them at once; a heal that is open for long is acted on at last.
async fn acts_count_by_their_own_times_whenever_they_are_told(store: Store) {
    const DAY: i64 = 86_400_000;
    let eu1 = cluster(&store, "eu1").await;
    let told = async |steps: &[(&str, i64)], now| {
        let report = heals(&[acted("1", steps)]);
        store.report(&eu1.id, report, at(now)).await.unwrap();
    };
    let since = async |ms| store.acted(at(ms)).await.unwrap().acted.len();
    told(&[("create", 7)], DAY).await;
    assert_eq!((since(8).await, since(7).await), (0, 1));
    let again = DAY + 1_800_000;
    told(&[("create", 7), ("create", again)], again).await;
    assert_eq!((since(again + 1).await, since(again).await), (0, 1));
    // By a clock that is a day ahead it was done when it was told.
    let ahead = again + 2 * DAY;
    told(&[("create", 7), ("create", ahead)], ahead - DAY).await;
    let [after, then] = [since(ahead - DAY + 1).await, since(ahead - DAY).await];
    assert_eq!((after, then), (0, 1));
    // Told again with its end five hours later, it was done then yet.
    let over = HealRecord {
        steps: acted("1", &[("create", 7), ("create", ahead)]).steps,
        ..heal("1", HealResult::Healed)
    };
    let later = ahead - DAY + 5 * 3_600_000;
    let stored = store.report(&eu1.id, heals(&[over]), at(later)).await;
    assert_eq!(stored.unwrap().ended.len(), 1);
    let [after, then] = [since(ahead - DAY + 1).await, since(ahead - DAY).await];
    assert_eq!((after, then), (0, 1));
}

/// W26: what the hub sees of a fleet from minute to minute, of which four of ten clusters have one fault that stays.
async fn a_cause_that_outlives_an_incident_makes_another(store: Store) {
    let mut fleet = Vec::new();
    for n in 0..10 {
        let one = cluster(&store, &format!("c{n}")).await;
        let heard = Reported::default();
        store.report(&one.id, heard, at(0)).await.unwrap();
        fleet.push(one);
    }
    let told = async |acts: &[i64], minute: i64| {
        let steps: Vec<(&str, i64)> = acts.iter().map(|at| ("apply", at * MINUTE)).collect();
        for one in &fleet[..4] {
            let report = heals(&[acted(one.name.as_str(), &steps)]);
            let now = at(minute * MINUTE);
            store.report(&one.id, report, now).await.unwrap();
        }
    };
    let mut standing = None;
    told(&[0], 0).await;
    assert_eq!(look(&store, &mut standing, 1).await, Some((1, 11)));
    assert_eq!(look(&store, &mut standing, 8).await, Some((1, 18)));
    // The agents hold back, and nothing is seen any more.
    assert_eq!(look(&store, &mut standing, 12).await, Some((1, 18)));
    assert_eq!(look(&store, &mut standing, 18).await, None);
    // More is known of it, and nothing was done.
    told(&[0], 19).await;
    assert_eq!(look(&store, &mut standing, 19).await, None);
    told(&[0, 20], 20).await;
    assert_eq!(look(&store, &mut standing, 21).await, Some((21, 31)));
}

const MINUTE: i64 = 60_000;

/// Looks as the hub does; gives the minutes of the incident's beginning and end.
async fn look(store: &Store, standing: &mut Option<Incident>, minute: i64) -> Option<(i64, i64)> {
    let now = at(minute * MINUTE);
    let seen = store.acted(now - incident::WITHIN).await.unwrap();
    *standing = incident::judge(now, seen.fleet, &seen.acted, standing.as_ref());
    let minutes = |of: OffsetDateTime| (of - at(0)).whole_minutes();
    let found = standing.as_ref()?;
    Some((minutes(found.since), minutes(found.until)))
}

//! What agents report, and what becomes of heals.

use futures_util::future::join_all;
use linesman::clock::rfc3339;
use linesman::hub::incident::{self, Acted, Incident, Seen};
use linesman::hub::store::{Cluster, Details, Reported, Store};
use linesman::hub::twin::fault::Unrestored;
use linesman::wire::api::{AgentBuild, HostKeysReport};
use linesman::wire::report::{
    Condition, ConditionType, HealRecord, HealResult, HealStep, LaterCondition, Scene, Status,
    StepName, StepReport, StepState,
};
use time::OffsetDateTime;

use super::{at, cluster, on_both};

on_both! {
    a_report_replaces_what_the_agent_said_before,
    what_the_hub_sees_is_not_for_the_agent_to_say,
    a_heal_ends_once_and_does_not_open_again,
    heals_are_listed_newest_first_behind_an_id,
    heals_that_are_not_over_are_listed_alone,
    every_open_heal_is_seen_in_its_order,
    a_lost_agent_is_the_hubs_own_to_tell,
    of_what_was_not_restored_the_newest_of_a_cluster_counts,
    all_that_is_open_is_listed_with_when_it_was_written,
    what_agents_acted_on_is_seen_across_the_fleet,
    acts_count_by_their_own_times_whenever_they_are_told,
    a_cause_that_outlives_an_incident_makes_another,
    what_clusters_say_of_host_keys_keeps_its_age,
    troubles_are_kept_until_they_are_gone,
}

fn heal(id: &str, result: HealResult) -> HealRecord {
    HealRecord {
        id: id.to_owned(),
        class: "ObjectMissing".to_owned(),
        number: 1,
        meaning: "an object is missing".to_owned(),
        object: "Deployment flux-system/source-controller".to_owned(),
        evidence: "it \"was\" there\n\u{0}".to_owned(),
        writer: String::new(),
        revision: String::new(),
        commit: String::new(),
        steps: vec![HealStep {
            action: "create".to_owned(),
            object: "Deployment flux-system/source-controller".to_owned(),
            at: "2026-01-01T00:00:01.000Z".to_owned(),
            outcome: "ok".to_owned(),
        }],
        fault_at: None,
        detected_at: "2026-01-01T00:00:00.000Z".to_owned(),
        acted_at: None,
        restored_at: (result == HealResult::Healed).then(|| "2026-01-01T00:00:02.000Z".to_owned()),
        result,
        next: String::new(),
        scene: Scene::default(),
    }
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

fn heals(heals: &[HealRecord]) -> Reported {
    Reported {
        heals: heals.to_vec(),
        ..Reported::default()
    }
}

fn condition(kind: ConditionType, status: Status, since: &str) -> Condition {
    Condition {
        kind,
        status,
        reason: "Why".to_owned(),
        message: "because".to_owned(),
        since: since.to_owned(),
    }
}

async fn a_report_replaces_what_the_agent_said_before(store: Store) {
    let (eu1, us1) = (cluster(&store, "eu1").await, cluster(&store, "us1").await);
    let step = |step, state| StepReport {
        step,
        state,
        reason: String::new(),
        at: "2026-01-01T00:00:00.000Z".to_owned(),
    };
    let facts = |value: &str| Some([("kubernetes".to_owned(), value.to_owned())].into());
    let git = |status| condition(ConditionType::GitReachable, status, "t");
    let first = Reported {
        agent: AgentBuild {
            version: "0.1.0".to_owned(),
            ..AgentBuild::default()
        },
        facts: facts("1.33"),
        steps: vec![
            step(StepName::Git, StepState::Running),
            step(StepName::Keys, StepState::Done),
        ],
        conditions: Some(vec![
            git(Status::False),
            condition(ConditionType::EngineHealthy, Status::True, "t"),
        ]),
        revision: Some("abc".to_owned()),
        ..Reported::default()
    };
    store.report(&eu1.id, first, at(1)).await.unwrap();
    let later = LaterCondition {
        kind: "Later".to_owned(),
        status: "True".to_owned(),
        ..LaterCondition::default()
    };
    let second = Reported {
        facts: facts("1.34"),
        steps: vec![step(StepName::Git, StepState::Done)],
        conditions: Some(vec![git(Status::True)]),
        later: vec![later.clone()],
        heals: vec![heal("1", HealResult::Open)],
        ..Reported::default()
    };
    store.report(&eu1.id, second, at(2)).await.unwrap();
    let ids = [us1.id.clone(), eu1.id.clone()];
    let wanted = Details {
        facts: facts("1.34").unwrap(),
        steps: vec![
            step(StepName::Keys, StepState::Done),
            step(StepName::Git, StepState::Done),
        ],
        conditions: vec![git(Status::True)],
        later: vec![later],
        open_heals: 1,
        keys: vec![],
    };
    assert_eq!(
        store.details(&ids).await.unwrap(),
        [Details::default(), wanted]
    );
    let now = store.cluster_by_id(&eu1.id).await.unwrap().unwrap();
    assert_eq!(
        (
            now.agent_version.as_deref(),
            now.synced_revision.as_deref(),
            now.last_seen
        ),
        (Some("0.1.0"), Some("abc"), Some(at(2)))
    );
}

async fn what_the_hub_sees_is_not_for_the_agent_to_say(store: Store) {
    let eu1 = cluster(&store, "eu1").await;
    let mine = |status, since| condition(ConditionType::LineUp, status, since);
    for (status, since) in [
        (Status::True, "t1"),
        (Status::True, "t2"),
        (Status::False, "t3"),
    ] {
        store
            .set_condition(&eu1.id, mine(status, since), at(1))
            .await
            .unwrap();
    }
    let report = Reported {
        conditions: Some(vec![mine(Status::True, "t4")]),
        ..Reported::default()
    };
    store.report(&eu1.id, report, at(2)).await.unwrap();
    let details = store.details(&[eu1.id]).await.unwrap().remove(0);
    assert_eq!(details.conditions, [mine(Status::False, "t3")]);
}

async fn a_heal_ends_once_and_does_not_open_again(store: Store) {
    let eu1 = cluster(&store, "eu1").await;
    let say = |result| store.report(&eu1.id, heals(&[heal("1", result)]), at(1));
    assert_eq!(say(HealResult::Open).await.unwrap(), []);
    assert_eq!(
        store.faults().await.unwrap(),
        [("ObjectMissing".to_owned(), 1)]
    );
    let name = eu1.name.clone();
    let listed = HealRecord {
        steps: vec![],
        ..heal("1", HealResult::Open)
    };
    assert_eq!(store.open_heals().await.unwrap(), [(name.clone(), listed)]);
    // Ten say at once that it is over: one brings news.
    let ends = join_all((0..10).map(|_| say(HealResult::Healed))).await;
    let news: Vec<HealRecord> = ends.into_iter().flat_map(Result::unwrap).collect();
    let over = heal("1", HealResult::Healed);
    assert_eq!(news, std::slice::from_ref(&over));
    assert_eq!(say(HealResult::Open).await.unwrap(), []);
    assert_eq!(store.heal("1").await.unwrap(), Some((name, over.clone())));
    assert_eq!(store.faults().await.unwrap(), []);
    assert!(!store.close_heal(over, at(2)).await.unwrap());
    store
        .report(&eu1.id, heals(&[heal("2", HealResult::Open)]), at(3))
        .await
        .unwrap();
    let closed = heal("2", HealResult::Failed);
    let both = join_all([
        store.close_heal(closed.clone(), at(4)),
        store.close_heal(closed, at(4)),
    ])
    .await;
    assert_eq!(both.into_iter().filter(|c| *c.as_ref().unwrap()).count(), 1);
    assert_eq!(store.open_heals().await.unwrap(), []);
}

async fn heals_are_listed_newest_first_behind_an_id(store: Store) {
    let (eu1, us1) = (cluster(&store, "eu1").await, cluster(&store, "us1").await);
    for (of, id) in [(&eu1, "1"), (&us1, "2"), (&eu1, "3"), (&eu1, "4")] {
        let report = heals(&[heal(id, HealResult::Open)]);
        store.report(&of.id, report, at(1)).await.unwrap();
    }
    let ids = async |of: Option<&str>, before: Option<&str>, limit| {
        let heals = store.heals(of, before, limit).await.unwrap();
        heals
            .into_iter()
            .map(|(_, heal)| heal.id)
            .collect::<Vec<_>>()
    };
    assert_eq!(ids(None, None, 3).await, ["4", "3", "2"]);
    assert_eq!(ids(None, Some("2"), 3).await, ["1"]);
    assert_eq!(ids(Some(&eu1.id), Some("4"), 9).await, ["3", "1"]);
}

/// Those of a cluster that was removed end no more, and are history.
async fn heals_that_are_not_over_are_listed_alone(store: Store) {
    let (eu1, us1) = (cluster(&store, "eu1").await, cluster(&store, "us1").await);
    for (of, id, result) in [
        (&eu1, "1", HealResult::Open),
        (&eu1, "2", HealResult::Healed),
        (&us1, "3", HealResult::Reported),
        (&eu1, "4", HealResult::Failed),
        (&eu1, "5", HealResult::Open),
    ] {
        let report = heals(&[heal(id, result)]);
        store.report(&of.id, report, at(1)).await.unwrap();
    }
    let ids = async |of: Option<&str>, before: Option<&str>, limit| {
        let heals = store.heals_not_over(of, before, limit).await.unwrap();
        heals
            .into_iter()
            .map(|(_, heal)| heal.id)
            .collect::<Vec<_>>()
    };
    assert_eq!(ids(None, None, 2).await, ["5", "3"]);
    assert_eq!(ids(None, Some("3"), 2).await, ["1"]);
    assert_eq!(ids(Some(&eu1.id), None, 9).await, ["5", "1"]);
    store.remove_cluster(&us1.id, at(2)).await.unwrap();
    assert_eq!(ids(None, None, 9).await, ["5", "1"]);
}

/// More than are read at a time.
async fn every_open_heal_is_seen_in_its_order(store: Store) {
    let eu1 = cluster(&store, "eu1").await;
    let ids: Vec<String> = (0..1_001).map(|n| format!("{n:04}")).collect();
    for some in ids.chunks(200) {
        let some: Vec<HealRecord> = some.iter().map(|id| heal(id, HealResult::Open)).collect();
        store.report(&eu1.id, heals(&some), at(1)).await.unwrap();
    }
    let open = store.open_heals().await.unwrap().into_iter();
    let seen: Vec<String> = open.map(|(_, heal)| heal.id).collect();
    assert_eq!(seen, ids);
}

/// F50: what an agent that is back says of its own heals does not end what the hub saw meanwhile.
async fn a_lost_agent_is_the_hubs_own_to_tell(store: Store) {
    let eu1 = cluster(&store, "eu1").await;
    let silence = lost("1");
    store
        .note_heal(&eu1.id, silence.clone(), at(1))
        .await
        .unwrap();
    let others = Reported {
        heals: vec![heal("2", HealResult::Open)],
        open_heals: Some(vec![]),
        ..Reported::default()
    };
    store.report(&eu1.id, others, at(2)).await.unwrap();
    let last = || store.last_unrestored("AgentLost");
    assert_eq!(last().await.unwrap(), [(eu1.name.clone(), silence.clone())]);
    let over = HealRecord {
        restored_at: Some("2026-01-01T00:00:09.000Z".to_owned()),
        ..silence
    };
    store.note_heal(&eu1.id, over.clone(), at(3)).await.unwrap();
    assert_eq!(last().await.unwrap(), []);
    let kept = store.heal("1").await.unwrap();
    assert_eq!(kept, Some((eu1.name, over)));
}

fn lost(id: &str) -> HealRecord {
    HealRecord {
        class: "AgentLost".to_owned(),
        ..heal(id, HealResult::Reported)
    }
}

/// F50: one that was closed by hand is known until there is a newer one.
async fn of_what_was_not_restored_the_newest_of_a_cluster_counts(store: Store) {
    let (eu1, us1) = (cluster(&store, "eu1").await, cluster(&store, "us1").await);
    let gone = cluster(&store, "gone").await;
    for (of, id) in [(&us1, "1"), (&eu1, "2"), (&gone, "3")] {
        store.note_heal(&of.id, lost(id), at(1)).await.unwrap();
    }
    store.remove_cluster(&gone.id, at(2)).await.unwrap();
    let closed = HealRecord {
        result: HealResult::Failed,
        ..lost("2")
    };
    assert!(store.close_heal(closed.clone(), at(3)).await.unwrap());
    let last = || store.last_unrestored("AgentLost");
    let both = |eu1_has: HealRecord| [(eu1.name.clone(), eu1_has), (us1.name.clone(), lost("1"))];
    assert_eq!(last().await.unwrap(), both(closed));
    store.note_heal(&eu1.id, lost("4"), at(4)).await.unwrap();
    assert_eq!(last().await.unwrap(), both(lost("4")));
}

/// F57: an agent's list of its open heals does not end it, and it is known when it was told last.
async fn all_that_is_open_is_listed_with_when_it_was_written(store: Store) {
    let (eu1, us1) = (cluster(&store, "eu1").await, cluster(&store, "us1").await);
    let duplicate = |id: &str| HealRecord {
        class: "DuplicateAgent".to_owned(),
        ..heal(id, HealResult::Reported)
    };
    let closed = |id: &str| HealRecord {
        result: HealResult::Failed,
        ..duplicate(id)
    };
    let told = async |of: &Cluster, record: HealRecord, written| {
        let note = store.note_heal(&of.id, record, at(written));
        note.await.unwrap();
    };
    told(&us1, duplicate("1"), 1).await;
    told(&eu1, closed("2"), 2).await;
    told(&eu1, closed("3"), 3).await;
    told(&eu1, lost("4"), 4).await;
    told(&us1, duplicate("5"), 5).await;
    told(&us1, duplicate("1"), 6).await;
    let none = Reported {
        open_heals: Some(vec![]),
        ..Reported::default()
    };
    store.report(&us1.id, none, at(7)).await.unwrap();
    let one = |of: &Cluster, record: HealRecord, written| Unrestored {
        cluster: of.name.clone(),
        cluster_id: of.id.clone(),
        record,
        written: at(written),
    };
    let all = || store.unrestored("DuplicateAgent");
    let expected = [
        one(&eu1, closed("3"), 3),
        one(&us1, duplicate("1"), 6),
        one(&us1, duplicate("5"), 5),
    ];
    assert_eq!(all().await.unwrap(), expected);
    let over = HealRecord {
        restored_at: Some("2026-01-01T00:00:09.000Z".to_owned()),
        ..duplicate("5")
    };
    told(&us1, over, 8).await;
    store.remove_cluster(&eu1.id, at(9)).await.unwrap();
    assert_eq!(all().await.unwrap(), expected[1..2]);
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
    let ends = store.report(&eu1.id, heals(&[over]), at(later)).await;
    assert_eq!(ends.unwrap().len(), 1);
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

async fn what_clusters_say_of_host_keys_keeps_its_age(store: Store) {
    let eu1 = cluster(&store, "eu1").await;
    let say = |trusted: &str, ms| {
        let host_keys = Some(HostKeysReport {
            trusted: vec![trusted.to_owned()],
            shown: None,
        });
        let report = Reported {
            host_keys,
            ..Reported::default()
        };
        store.report(&eu1.id, report, at(ms))
    };
    for (trusted, ms, since) in [("a", 1, 1), ("a", 2, 1), ("b", 3, 3)] {
        say(trusted, ms).await.unwrap();
        let said = store.host_key_reports().await.unwrap().remove(0);
        assert_eq!((said.trusted_at, said.at), (at(since), at(ms)));
        assert_eq!(
            (said.trusted.as_slice(), said.shown),
            ([trusted.to_owned()].as_slice(), None)
        );
    }
}

async fn troubles_are_kept_until_they_are_gone(store: Store) {
    let key = |name: &str| (name.parse().unwrap(), "ObjectMissing".to_owned());
    let put = |name: &str, record: &str| vec![(key(name), record.to_owned())];
    store
        .change_troubles(put("eu1", "{}"), vec![])
        .await
        .unwrap();
    store
        .change_troubles(put("eu1", "{\"a\":1}"), vec![key("none")])
        .await
        .unwrap();
    assert_eq!(store.troubles().await.unwrap(), put("eu1", "{\"a\":1}"));
    store
        .change_troubles(put("us1", "{}"), vec![key("eu1")])
        .await
        .unwrap();
    assert_eq!(store.troubles().await.unwrap(), put("us1", "{}"));
}

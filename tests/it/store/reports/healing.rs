//! Heals: how they end, how they are listed, and which of them are not over.

use futures_util::future::join_all;
use linesman::hub::store::{Cluster, Reported, Store};
use linesman::hub::twin::fault::Unrestored;
use linesman::wire::report::{HealRecord, HealResult};

use super::super::{at, cluster, on_both};
use super::{heal, heals};

on_both! {
    a_heal_ends_once_and_does_not_open_again,
    heals_are_listed_newest_first_behind_an_id,
    heals_that_are_not_over_are_listed_alone,
    every_open_heal_is_seen_in_its_order,
    a_lost_agent_is_the_hubs_own_to_tell,
    of_what_was_not_restored_the_newest_of_a_cluster_counts,
    all_that_is_open_is_listed_with_when_it_was_written,
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

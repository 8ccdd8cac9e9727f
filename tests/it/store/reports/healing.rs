//! Heals: how they end, how they are listed, and which of them are not over.

use futures_util::future::join_all;
use linesman::hub::store::{Cluster, Reported, Store, Stored};
use linesman::hub::twin::fault::Unrestored;
use linesman::wire::report::{Condition, ConditionType, HealRecord, HealResult, Status};

use super::super::{at, cluster, on_both};
use super::{heal, heals};

on_both! {
    a_heal_ends_once_and_does_not_open_again,
    heals_are_listed_newest_first_behind_an_id,
    heals_that_are_not_over_are_listed_alone,
    what_is_open_in_a_cluster_ends_with_its_removal,
    every_open_heal_is_seen_in_its_order,
    a_cluster_has_so_many_open_heals_and_says_where_there_are_more,
    of_a_clusters_heals_that_are_over_the_newest_are_kept,
    what_another_cluster_tells_of_a_heal_counts_for_nothing,
    a_lost_agent_is_the_hubs_own_to_tell,
    of_what_was_not_restored_the_newest_of_a_cluster_counts,
    all_that_is_open_is_listed_with_when_it_was_written,
}

async fn a_heal_ends_once_and_does_not_open_again(store: Store) {
    let eu1 = cluster(&store, "eu1").await;
    let say = |result| store.report(&eu1.id, heals(&[heal("1", result)]), at(1));
    assert_eq!(say(HealResult::Open).await.unwrap(), Stored::default());
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
    let news = ends.into_iter().flat_map(|stored| stored.unwrap().ended);
    let news: Vec<HealRecord> = news.collect();
    let over = heal("1", HealResult::Healed);
    assert_eq!(news, std::slice::from_ref(&over));
    assert_eq!(say(HealResult::Open).await.unwrap(), Stored::default());
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

/// Nobody tells the end of it any more. What was over stays as it was, and so does what is another cluster's.
async fn what_is_open_in_a_cluster_ends_with_its_removal(store: Store) {
    let (eu1, us1) = (cluster(&store, "eu1").await, cluster(&store, "us1").await);
    for (of, id, result) in [
        (&eu1, "1", HealResult::Open),
        (&eu1, "2", HealResult::Healed),
        (&eu1, "3", HealResult::Reported),
        (&us1, "4", HealResult::Open),
    ] {
        let report = heals(&[heal(id, result)]);
        store.report(&of.id, report, at(1)).await.unwrap();
    }
    store.remove_cluster(&eu1.id, at(2)).await.unwrap();
    let all = store.heals(None, None, 9).await.unwrap().into_iter();
    let all: Vec<(String, HealResult, bool)> = all
        .map(|(_, heal)| {
            let told = heal.next == "nothing: the cluster was removed";
            (heal.id, heal.result, told)
        })
        .collect();
    let expected = [
        ("4", HealResult::Open, false),
        ("3", HealResult::Failed, true),
        ("2", HealResult::Healed, false),
        ("1", HealResult::Failed, true),
    ];
    assert_eq!(
        all,
        expected.map(|(id, result, told)| (id.to_owned(), result, told))
    );
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

/// So many with these numbers.
fn many(numbers: std::ops::Range<u32>, result: HealResult) -> Vec<HealRecord> {
    numbers.map(|n| heal(&format!("{n:04}"), result)).collect()
}

fn ids(heals: &[HealRecord]) -> Vec<String> {
    heals.iter().map(|heal| heal.id.clone()).collect()
}

/// An agent that lies, or goes mad, takes no more; what it tells beyond that is counted, and people see it.
async fn a_cluster_has_so_many_open_heals_and_says_where_there_are_more(store: Store) {
    let (eu1, us1) = (cluster(&store, "eu1").await, cluster(&store, "us1").await);
    let tell = |told: Vec<HealRecord>, ms| store.report(&eu1.id, heals(&told), at(ms));
    let conditions = async || {
        let details = store.details(std::slice::from_ref(&eu1.id)).await.unwrap();
        details.into_iter().next().unwrap().conditions
    };
    let open = HealResult::Open;
    for first in (0..1_000).step_by(200) {
        let stored = tell(many(first..first + 200, open), 1).await.unwrap();
        assert_eq!(stored, Stored::default());
    }
    let stored = tell(many(1_000..1_030, HealResult::Reported), 2).await;
    assert_eq!(stored.unwrap().left_out, ids(&many(1_024..1_030, open)));
    let full = Condition {
        kind: ConditionType::HealsTaken,
        status: Status::False,
        reason: "TooMany".to_owned(),
        message: "the hub keeps 1024 open heals of a cluster; 6 more in the agent's last report are left out, which it offers again".to_owned(),
        since: linesman::clock::rfc3339(at(2)),
    };
    assert_eq!(conditions().await, std::slice::from_ref(&full));
    assert_eq!(store.heal("1024").await.unwrap(), None);
    // What is known goes on, what is over is history, and another cluster has room of its own.
    let mut known = many(0..2, open);
    known.extend(many(2_000..2_002, HealResult::Failed));
    let stored = tell(known, 3).await.unwrap();
    assert_eq!((stored.left_out, stored.ended.len()), (vec![], 2));
    assert_eq!(conditions().await, std::slice::from_ref(&full));
    let again = tell(many(2_000..2_002, HealResult::Reported), 3).await;
    assert_eq!(again.unwrap().left_out, ["2000", "2001"]);
    let other = store.report(&us1.id, heals(&many(3_000..3_001, open)), at(3));
    assert_eq!(other.await.unwrap(), Stored::default());
    // The end of one makes room for one.
    let mut next = many(7..8, HealResult::Healed);
    next.extend(many(1_024..1_026, open));
    let left_out = tell(next, 4).await.unwrap().left_out;
    assert_eq!(left_out, ids(&many(1_024..1_026, open)));
    assert_eq!(
        tell(many(1_024..1_025, open), 5).await.unwrap(),
        Stored::default()
    );
    // As soon as the agent names what it knows, the others are over.
    let named = Reported {
        heals: many(1_025..1_026, open),
        open_heals: Some(ids(&many(0..2, open))),
        ..Reported::default()
    };
    let stored = store.report(&eu1.id, named, at(6)).await.unwrap();
    assert_eq!((stored.left_out, stored.ended.len()), (vec![], 1_000));
    assert_eq!(conditions().await, []);
}

async fn of_a_clusters_heals_that_are_over_the_newest_are_kept(store: Store) {
    let eu1 = cluster(&store, "eu1").await;
    let tell = async |told: Vec<HealRecord>| {
        let stored = store.report(&eu1.id, heals(&told), at(1)).await;
        assert_eq!(stored.unwrap().left_out, Vec::<String>::new());
    };
    tell(many(0..1, HealResult::Open)).await;
    for first in (1..2_001).step_by(200) {
        tell(many(first..first + 200, HealResult::Healed)).await;
    }
    let is_there = async |id: &str| store.heal(id).await.unwrap().is_some();
    assert!(is_there("0001").await);
    tell(many(2_001..2_003, HealResult::Failed)).await;
    let there = [is_there("0001").await, is_there("0002").await];
    assert_eq!((there, is_there("0003").await), ([false; 2], true));
    // One that is open is as old as it is.
    assert!(is_there("0000").await);
    store.note_heal(&eu1.id, lost("2003"), at(2)).await.unwrap();
    assert!(is_there("0003").await);
    let over = HealRecord {
        result: HealResult::Failed,
        ..lost("2003")
    };
    store.note_heal(&eu1.id, over, at(3)).await.unwrap();
    assert!(!is_there("0003").await && is_there("0004").await);
}

async fn what_another_cluster_tells_of_a_heal_counts_for_nothing(store: Store) {
    let (eu1, us1) = (cluster(&store, "eu1").await, cluster(&store, "us1").await);
    let told = heal("1", HealResult::Open);
    let report = heals(std::slice::from_ref(&told));
    store.report(&eu1.id, report, at(1)).await.unwrap();
    let over = heals(&[heal("1", HealResult::Healed)]);
    let stored = store.report(&us1.id, over, at(2)).await.unwrap();
    assert_eq!(stored, Stored::default());
    let kept = store.heal("1").await.unwrap();
    assert_eq!(kept, Some((eu1.name, told)));
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

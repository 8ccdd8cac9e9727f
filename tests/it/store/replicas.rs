//! Replicas, their leases, and where lines are.

use std::time::Duration;

use futures_util::future::join_all;
use linesman::hub::store::{LineRow, Located, Reach, Replica, Store};

use super::{at, cluster, new, on_both};

on_both! {
    a_replica_is_there_while_its_lease_holds,
    how_a_replica_is_reached_is_there_while_its_lease_holds,
    a_line_is_where_the_newest_epoch_is,
    of_many_lines_at_once_the_newest_stays,
    a_line_goes_with_its_replica_and_with_its_cluster,
    what_could_not_be_noted_is_made_good,
    of_many_lines_what_was_stored_stays,
}

const TTL: Duration = Duration::from_mins(1);

fn replica(n: u8) -> Replica {
    Replica {
        id: format!("r{n}"),
        peer: format!("10.0.0.{n}:8444"),
        cert_sha256: [n; 32],
    }
}

fn line(cluster: &str, replica: &str, epoch: u64) -> LineRow {
    LineRow {
        cluster_id: cluster.to_owned(),
        replica: replica.to_owned(),
        epoch,
        session: format!("s{epoch}"),
        instance: "i".to_owned(),
        remote: "192.0.2.1:4000".to_owned(),
        since: at(7),
        hub_clock: at(9),
    }
}

/// The clock of a line goes on; the rest is as it was put.
fn without_clock(located: Option<Located>) -> Option<(LineRow, Replica)> {
    let located = located?;
    let past = located.line.hub_clock - at(9);
    assert!(
        past >= time::Duration::ZERO && past < time::Duration::minutes(1),
        "{past}"
    );
    let line = LineRow {
        hub_clock: at(9),
        ..located.line
    };
    Some((line, located.peer))
}

async fn a_replica_is_there_while_its_lease_holds(store: Store) {
    assert_eq!(store.replicas().await.unwrap(), []);
    for n in [2, 1] {
        store.renew_replica(&replica(n), TTL).await.unwrap();
    }
    assert_eq!(store.replicas().await.unwrap(), [replica(1), replica(2)]);
    // One that is back at another address, one whose lease is over, and one that went.
    let moved = Replica {
        peer: "10.0.0.9:8444".to_owned(),
        ..replica(1)
    };
    store.renew_replica(&moved, TTL).await.unwrap();
    store
        .renew_replica(&replica(2), Duration::ZERO)
        .await
        .unwrap();
    assert_eq!(store.replicas().await.unwrap(), [moved]);
    store.renew_replica(&replica(2), TTL).await.unwrap();
    store.leave_replica("r1").await.unwrap();
    assert_eq!(store.replicas().await.unwrap(), [replica(2)]);
}

async fn how_a_replica_is_reached_is_there_while_its_lease_holds(store: Store) {
    let reach = |n: u8, urls: &str| Reach {
        id: replica(n).id,
        peer: replica(n).peer,
        urls: urls.to_owned(),
    };
    for n in [1, 2] {
        store.renew_replica(&replica(n), TTL).await.unwrap();
    }
    store.tell_urls("r1", "https://h ssh://g").await.unwrap();
    // What was told stays while the lease is renewed.
    store.renew_replica(&replica(1), TTL).await.unwrap();
    let both = [reach(1, "https://h ssh://g"), reach(2, "")];
    assert_eq!(store.reaches().await.unwrap(), both);
    store
        .renew_replica(&replica(1), Duration::ZERO)
        .await
        .unwrap();
    assert_eq!(store.reaches().await.unwrap(), [reach(2, "")]);
}

async fn a_line_is_where_the_newest_epoch_is(store: Store) {
    let eu1 = cluster(&store, "eu1").await;
    for n in [1, 2] {
        store.renew_replica(&replica(n), TTL).await.unwrap();
    }
    assert_eq!(store.line_of(&eu1.name).await.unwrap(), None);
    let (old, new) = (line(&eu1.id, "r1", 4), line(&eu1.id, "r2", 5));
    assert!(store.put_line(&new).await.unwrap());
    assert!(!store.put_line(&old).await.unwrap(), "the older one");
    assert!(store.put_line(&new).await.unwrap(), "the same again");
    let stolen = line(&eu1.id, "r1", 5);
    assert!(!store.put_line(&stolen).await.unwrap(), "another's epoch");
    // The end of the older one is none of the newer one.
    store.drop_line(&eu1.id, 4).await.unwrap();
    let found = store.line_of(&eu1.name).await.unwrap();
    assert_eq!(without_clock(found), Some((new.clone(), replica(2))));
    let lines = store.lines().await.unwrap();
    let lines: Vec<_> = lines
        .into_iter()
        .map(|(name, located)| (name, without_clock(Some(located))))
        .collect();
    assert_eq!(lines, [(eu1.name.clone(), Some((new, replica(2))))]);
    store.drop_line(&eu1.id, 5).await.unwrap();
    assert_eq!(store.line_of(&eu1.name).await.unwrap(), None);
}

async fn of_many_lines_at_once_the_newest_stays(store: Store) {
    let eu1 = cluster(&store, "eu1").await;
    store.renew_replica(&replica(1), TTL).await.unwrap();
    let lines: Vec<_> = (1..=12)
        .map(|epoch| line(&eu1.id, "r1", epoch * 5 % 13))
        .collect();
    let put = join_all(lines.iter().map(|line| store.put_line(line))).await;
    assert!(put.iter().all(Result::is_ok), "{put:?}");
    let found = store.line_of(&eu1.name).await.unwrap().unwrap();
    assert_eq!(found.line.epoch, 12);
}

async fn a_line_goes_with_its_replica_and_with_its_cluster(store: Store) {
    let eu1 = cluster(&store, "eu1").await;
    let us1 = store.create_cluster(new("us1"), at(0)).await.unwrap();
    store.renew_replica(&replica(1), TTL).await.unwrap();
    for (id, epoch) in [(&eu1.id, 1), (&us1.id, 2)] {
        assert!(store.put_line(&line(id, "r1", epoch)).await.unwrap());
    }
    let epochs = async || {
        let lines = store.lines().await.unwrap();
        lines
            .iter()
            .map(|(_, l)| l.line.epoch)
            .collect::<Vec<u64>>()
    };
    assert_eq!(epochs().await, [1, 2]);
    store.remove_cluster(&us1.id, at(1)).await.unwrap();
    assert_eq!(epochs().await, [1]);
    assert!(
        !store.put_line(&line(&us1.id, "r1", 3)).await.unwrap(),
        "a removed cluster has no line"
    );
    // A lease that is over hides the line, and one that is renewed shows it.
    store
        .renew_replica(&replica(1), Duration::ZERO)
        .await
        .unwrap();
    assert_eq!(epochs().await, [0; 0]);
    store.renew_replica(&replica(1), TTL).await.unwrap();
    assert_eq!(epochs().await, [1]);
    store.leave_replica("r1").await.unwrap();
    store.renew_replica(&replica(1), TTL).await.unwrap();
    assert_eq!(epochs().await, [0; 0]);
}

async fn what_could_not_be_noted_is_made_good(store: Store) {
    let eu1 = cluster(&store, "eu1").await;
    let us1 = store.create_cluster(new("us1"), at(0)).await.unwrap();
    for n in [1, 2] {
        store.renew_replica(&replica(n), TTL).await.unwrap();
    }
    let (kept, lost) = (line(&eu1.id, "r1", 3), line(&us1.id, "r1", 1));
    let held = vec![kept.clone(), lost.clone()];
    assert_eq!(store.keep_lines("r1", held.clone()).await.unwrap(), []);
    assert_eq!(store.keep_lines("r1", held.clone()).await.unwrap(), []);
    // The other replica has a newer one: the replica is told, and does not take it back.
    let newer = line(&us1.id, "r2", 2);
    assert!(store.put_line(&newer).await.unwrap());
    assert_eq!(store.keep_lines("r1", held).await.unwrap(), [lost]);
    let found = store.line_of(&us1.name).await.unwrap();
    assert_eq!(without_clock(found), Some((newer, replica(2))));
    // What came a moment ago may have come while the replica counted its lines.
    assert_eq!(store.keep_lines("r1", vec![]).await.unwrap(), []);
    let found = store.line_of(&eu1.name).await.unwrap();
    assert_eq!(without_clock(found), Some((kept, replica(1))));
}

/// After a database that was away for long a replica has thousands to store, in a time that is bounded: each look has to bring it further.
async fn of_many_lines_what_was_stored_stays(store: Store) {
    let mut ids = vec![cluster(&store, "eu1").await.id];
    for n in 1..120 {
        let made = store.create_cluster(new(&format!("c{n}")), at(0)).await;
        ids.push(made.unwrap().id);
    }
    ids.sort();
    store.renew_replica(&replica(1), TTL).await.unwrap();
    let mut held: Vec<_> = ids.iter().map(|id| line(id, "r1", 1)).collect();
    // In the last part, PostgreSQL does not take it.
    "\0".clone_into(&mut held[119].session);
    let kept = store.keep_lines("r1", held).await;
    let stored = store.lines().await.unwrap().len();
    let expected = match store {
        Store::Postgres(_) => (false, 100),
        Store::Sqlite(_) => (true, 120),
    };
    assert_eq!((kept.is_ok(), stored), expected);
}

//! A session with the records that is lost in the middle of a change: the server does not know, and keeps its locks.

use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use linesman::clock;
use linesman::hub::audit::Entry;
use linesman::hub::store::Store;
use sqlx::Connection as _;
use tokio::time::timeout;

use super::cutoff::{Site, Way, ready};
use super::world::{PATIENCE, everywhere};
use crate::wait::until;

/// From the moment when the session does nothing any more, be the way back or not.
const OTHERS: Duration = Duration::from_secs(8);
/// From the moment when the way is back: a record that is under way is given up after 15 s, its connection after 2 s more.
const ITSELF: Duration = Duration::from_secs(20);
/// Connections that a replica reads by; one that was idle for a second is tried before it is used.
const READERS: usize = 6;

async fn give(store: &Store, id: &str) -> Result<(), String> {
    let grant = everywhere(id, "ada", &["view"]);
    let given = store.add_grant(grant, None, clock::now()).await;
    given.map(drop).map_err(|error| format!("{error:?}"))
}

/// Until so many sessions wait for the lock of a table.
async fn wait(connection: &mut sqlx::PgConnection, sessions: usize) {
    const WAITING: &str = "SELECT count(*) >= $1 FROM pg_locks
        WHERE NOT granted AND relation = 'access_grant'::regclass";
    let wait = async || {
        sqlx::query_scalar::<_, bool>(WAITING)
            .bind(i64::try_from(sessions).unwrap())
            .fetch_one(&mut *connection)
            .await
            .unwrap()
    };
    until("they wait for the lock", PATIENCE, wait).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_was_cut_off_in_its_middle_holds_up_others_for_seconds_only() {
    let site = Site::new().await;
    let (a, b) = (&site.a.hub.store, &site.b.hub.store);
    let mut other = sqlx::PgConnection::connect(&site.url).await.unwrap();
    let mut change = other.begin().await.unwrap();
    sqlx::raw_sql("LOCK TABLE access_grant IN SHARE MODE")
        .execute(&mut *change)
        .await
        .unwrap();
    let mut watching = sqlx::PgConnection::connect(&site.url).await.unwrap();
    {
        // Has the lock of all records, and waits for the table.
        let mut cut = pin!(give(a, "cut"));
        tokio::select! {
            given = &mut cut => panic!("{given:?}"),
            () = wait(&mut watching, 1) => {}
        }
        site.way.send_replace(Way::Lost);
        change.rollback().await.unwrap();
        let began = Instant::now();
        give(b, "other").await.unwrap();
        let took = began.elapsed();
        eprintln!("others wait for {took:?}");
        assert!(took < OTHERS, "{took:?}");
    }
    site.way.send_replace(Way::Open);
    let back = Instant::now();
    while let Err(error) = give(a, "itself").await {
        assert!(back.elapsed() < ITSELF, "{error}");
    }
    assert!(back.elapsed() < OTHERS, "{:?}", back.elapsed());
}

/// Every pool has a connection of which nobody says that it is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_lost_its_connections_unheard_goes_on_with_new_ones() {
    let site = Site::new().await;
    let hub = &site.a.hub;
    assert_eq!(ready(&site.a).await, 200);
    hub.audit.event(Entry::default()).await.unwrap();
    site.way.send_replace(Way::Lost);
    let event = timeout(Duration::from_secs(2), hub.audit.event(Entry::default()));
    let (ready_meanwhile, event) = tokio::join!(ready(&site.a), event);
    assert_eq!((ready_meanwhile, event.is_err()), (503, true));

    site.way.send_replace(Way::Open);
    let back = Instant::now();
    let again = async {
        while ready(&site.a).await != 200 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        while hub.audit.event(Entry::default()).await.is_err() {}
        give(&hub.store, "itself").await
    };
    assert_eq!(timeout(ITSELF, again).await, Ok(Ok(())));
    eprintln!("goes on after {:?}", back.elapsed());
}

/// What comes back to a pool is tried there; a way that breaks just then takes the connection, and not its place. Each pool waits then
/// until it is known that the connection is lost, and a balancer that asks meanwhile may well hear so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_lost_on_its_way_back_leaves_its_place() {
    let site = Site::new().await;
    let hub = &site.a.hub;
    assert_eq!(ready(&site.a).await, 200);
    site.way.send_replace(Way::Returned);
    for _ in 0..4 {
        hub.audit.event(Entry::default()).await.unwrap();
        give(&hub.store, "meanwhile").await.unwrap();
        let reached = timeout(OTHERS, hub.store.check()).await;
        assert!(matches!(reached, Ok(Ok(()))), "{reached:?}");
    }
    // Of the record, of changes, of reads, and of the hold on the database.
    let returned = site.returned.load(Ordering::SeqCst);
    assert!(returned >= 4, "{returned}");
    site.way.send_replace(Way::Open);
    let stored = timeout(OTHERS, hub.audit.event(Entry::default())).await;
    assert!(matches!(stored, Ok(Ok(()))), "{stored:?}");
}

/// A statement that was given up, and which the server refuses a moment later: on a way that is well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_that_nobody_waits_for_costs_no_connection() {
    const CANCEL: &str = "SELECT count(pg_cancel_backend(pid)) FROM pg_locks
        WHERE NOT granted AND relation = 'access_grant'::regclass";
    let site = Site::new().await;
    let store = &site.a.hub.store;
    let mut other = sqlx::PgConnection::connect(&site.url).await.unwrap();
    let mut watching = sqlx::PgConnection::connect(&site.url).await.unwrap();
    for _ in 0..12 {
        let mut change = other.begin().await.unwrap();
        sqlx::raw_sql("LOCK TABLE access_grant IN ACCESS EXCLUSIVE MODE")
            .execute(&mut *change)
            .await
            .unwrap();
        {
            let asked = (0..READERS / 2).map(|_| store.grants(None, 1));
            let asked = pin!(futures_util::future::join_all(asked));
            tokio::select! {
                read = asked => panic!("{read:?}"),
                () = wait(&mut watching, READERS / 2) => {}
            }
        }
        let cancel = async {
            let mut cancelled = 0;
            while cancelled < READERS / 2 {
                let now: i64 = sqlx::query_scalar(CANCEL)
                    .fetch_one(&mut watching)
                    .await
                    .unwrap();
                cancelled += usize::try_from(now).unwrap();
            }
        };
        timeout(PATIENCE, cancel).await.expect("they are cancelled");
        change.rollback().await.unwrap();
        let read = timeout(OTHERS, store.grants(None, 1)).await;
        assert!(matches!(read, Ok(Ok(_))), "{read:?}");
        assert_eq!(ready(&site.a).await, 200);
    }
}

/// H12: the record's own upkeep waits no longer for a connection that is lost than a record does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signature_that_was_cut_off_holds_up_no_record_for_longer_than_another_record_would() {
    let site = Site::new().await;
    let hub = &site.a.hub;
    hub.audit.event(Entry::default()).await.unwrap();
    for _ in 0..5 {
        // None of them is tried before it is used: the signature takes one that is lost, where nobody else did meanwhile.
        let fresh = (0..READERS).map(|_| hub.store.audit_head());
        futures_util::future::try_join_all(fresh).await.unwrap();
        site.way.send_replace(Way::Lost);
        let mut signed = pin!(hub.audit.anchor());
        let cut = timeout(Duration::from_secs(2), &mut signed).await;
        assert!(cut.is_err(), "{cut:?}");
        site.way.send_replace(Way::Open);
        let back = Instant::now();
        let stored = timeout(ITSELF, hub.audit.event(Entry::default())).await;
        assert!(matches!(stored, Ok(Ok(()))), "{stored:?}");
        eprintln!("goes on after {:?}", back.elapsed());
        let signed = signed.await;
        hub.audit.anchor().await.unwrap();
        if signed.is_err() {
            return;
        }
    }
    panic!("no signature was cut off");
}

use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::hub::api::problem::Problem;
use crate::hub::audit::chain::{self, Head};
use crate::hub::store::{AuditQuery, AuditRow, Store};

fn directory(name: &str) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("linesman-store-{name}-{}", std::process::id()));
    drop(std::fs::remove_dir_all(&path));
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// A power cut cannot be made here; what SQLite says it does about one can be asked.
#[tokio::test]
async fn audit_rows_wait_for_the_disk_where_they_shall() {
    let data = directory("durability");
    let store = Store::Sqlite(Sqlite::open(&data).await.unwrap());
    assert_eq!(store.audit_durability().await.unwrap(), Durability::Crash);
    let store = store.audit_survives(Durability::Crash);
    assert_eq!(store.audit_durability().await.unwrap(), Durability::Crash);
    let store = store.audit_survives(Durability::Fsync);
    assert_eq!(store.audit_durability().await.unwrap(), Durability::Fsync);
    std::fs::remove_dir_all(data).unwrap();
}

/// In a directory that others may enter, each of them could read it.
#[tokio::test]
async fn the_database_is_not_for_others_whatever_it_was_before() {
    let data = directory("mode");
    let modes = || {
        let files = ["hub.db", "hub.db-wal", "hub.db-shm"];
        files.map(|name| {
            let found = std::fs::metadata(data.join(name)).unwrap();
            found.permissions().mode() & 0o777
        })
    };
    let store = Sqlite::open(&data).await.unwrap();
    assert_eq!(modes(), [0o600; 3]);
    store.writer.close().await;
    store.audit.close().await;
    store.readers.close().await;
    drop(store);
    let of_before = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(data.join("hub.db"), of_before).unwrap();
    let _store = Sqlite::open(&data).await.unwrap();
    // Whoever backs it up may read it by its group.
    assert_eq!(
        (modes()[0], modes().map(|mode| mode & 0o007)),
        (0o640, [0; 3])
    );
    std::fs::remove_dir_all(data).unwrap();
}

/// Whoever starts a hub is told which of the two it is.
#[tokio::test]
async fn a_full_disk_is_told_from_other_errors_of_the_database() {
    let data = directory("full");
    let store = Sqlite::open(&data).await.unwrap();
    let run = async |statement: &'static str| {
        let done = sqlx::query(statement).execute(&store.writer).await;
        done.map(drop).map_err(db("fill it"))
    };
    // As many as there are: it takes no more, as on a disk without room.
    run("PRAGMA max_page_count = 1").await.unwrap();
    let full = run("CREATE TABLE filler AS SELECT zeroblob(1048576) AS data").await;
    let full = full.unwrap_err();
    assert!(full.is_of_disk(), "{full:?}");
    // So is whoever calls it.
    let told = Problem::from(full);
    assert!(told.detail.contains("is full or failing"), "{told:?}");
    let other = run("SELECT data FROM nowhere").await.unwrap_err();
    assert!(!other.is_of_disk(), "{other:?}");
    drop(store);
    std::fs::remove_dir_all(data).unwrap();
}

/// L52: none of them asks the pool, which would ask the connection first, and none is less durable for that.
#[tokio::test]
async fn records_go_over_one_connection_that_is_as_durable_as_they_shall_be() {
    let data = directory("kept");
    let store = Sqlite::open(&data).await.unwrap();
    let id = store.hub_id().await.unwrap();
    let mut head = chain::genesis(&id);
    // The first one reads where the chain ends.
    put(&store, &mut head).await;
    assert_eq!(synchronous(&store).await, None);
    for _ in 0..3 {
        put(&store, &mut head).await;
        assert_eq!(synchronous(&store).await, Some(1));
    }
    let synced = store.clone().syncing_audit();
    put(&synced, &mut head).await;
    assert_eq!(synchronous(&synced).await, Some(2));
    // A statement that fails takes its connection with it; the next one has another.
    move_last(&store, 1).await;
    assert!(store.append_audit(&[row(head)]).await.is_err());
    move_last(&store, -1).await;
    assert_eq!(synchronous(&store).await, None);
    put(&store, &mut head).await;
    put(&store, &mut head).await;
    assert_eq!(synchronous(&store).await, Some(1));
    let last = store.audit_head().await.unwrap().unwrap();
    assert_eq!((last.seq, last.hash), (head.seq, head.hash));
    drop((store, synced));
    std::fs::remove_dir_all(data).unwrap();
}

/// A record behind this one.
fn row(head: Head) -> AuditRow {
    let mut row = AuditRow::event(1);
    chain::link(head, &mut row);
    row
}

/// Puts the last record elsewhere.
async fn move_last(store: &Sqlite, by: i64) {
    sqlx::query("UPDATE audit SET seq = seq + $1 WHERE seq = (SELECT max(seq) FROM audit)")
        .bind(by)
        .execute(&store.writer)
        .await
        .unwrap();
}

async fn put(store: &Sqlite, head: &mut Head) {
    let row = row(*head);
    store
        .append_audit(std::slice::from_ref(&row))
        .await
        .unwrap();
    *head = Head {
        seq: row.seq,
        hash: row.hash,
    };
}

/// How the connection that is kept waits for the disk (1 NORMAL, 2 FULL); None = there is none.
async fn synchronous(store: &Sqlite) -> Option<i64> {
    let mut kept = store.audit_kept.take()?;
    let level = sqlx::query_scalar("PRAGMA synchronous")
        .fetch_one(&mut kept)
        .await;
    store.audit_kept.put(kept);
    Some(level.unwrap())
}

#[tokio::test]
async fn the_hub_keeps_its_id_and_a_second_hub_is_refused() {
    let data = directory("id");
    let store = Store::Sqlite(Sqlite::open(&data).await.unwrap());
    let id = store.hub_id().await.unwrap();
    let second = Sqlite::open(&data).await.err().unwrap().to_string();
    assert!(second.contains("another hub"), "{second}");
    drop(store);
    let again = Sqlite::open(&data).await.unwrap();
    assert_eq!(again.hub_id().await.unwrap(), id);
    std::fs::remove_dir_all(data).unwrap();
}

/// How the database goes about it.
async fn plan(store: &Sqlite, select: &str) -> String {
    let explain = sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {select}"));
    let steps: Vec<(i64, i64, i64, String)> = sqlx::query_as(explain)
        .fetch_all(&store.readers)
        .await
        .unwrap();
    let steps: Vec<String> = steps.into_iter().map(|(.., step)| step).collect();
    steps.join("; ")
}

/// A fleet has many heals that are over, and few that are not.
#[tokio::test]
async fn heals_that_are_not_over_are_listed_by_an_index() {
    let data = directory("heals-plan");
    let store = Sqlite::open(&data).await.unwrap();
    assert_eq!(
        plan(&store, Sqlite::HEALS_NOT_OVER).await,
        "SCAN h USING INDEX heal_not_over; SEARCH c USING INDEX sqlite_autoindex_cluster_1 (id=?)"
    );
    std::fs::remove_dir_all(data).unwrap();
}

/// Each report that changes anything looks for those that nobody tells the end of: not through all that the cluster ever had.
#[tokio::test]
async fn heals_of_one_cluster_that_are_not_over_are_found_by_an_index() {
    let data = directory("heals-of-one-plan");
    let store = Sqlite::open(&data).await.unwrap();
    let plan = plan(&store, Sqlite::HEALS_NOT_NAMED).await;
    let by_index = "SEARCH heal USING INDEX heal_cluster_not_over (cluster_id=?)";
    assert_eq!(plan.split("; ").next(), Some(by_index), "{plan}");
    assert!(!plan.contains("ORDER BY"), "{plan}");
    std::fs::remove_dir_all(data).unwrap();
}

/// Who asks for one user's or one cluster's records does not have all of them looked through.
#[tokio::test]
async fn a_narrowed_read_of_the_record_goes_by_an_index() {
    let data = directory("plans");
    let store = Sqlite::open(&data).await.unwrap();
    let text = |text: &str| Some(text.to_owned());
    let plan = async |query: AuditQuery| {
        let select = Sqlite::audit_select(&query).into_string();
        plan(&store, &select).await
    };
    for newest in [true, false] {
        let query = || AuditQuery {
            newest,
            limit: 100,
            ..AuditQuery::default()
        };
        let of_user = AuditQuery {
            actor: text("user:ada"),
            since: Some(1),
            ..query()
        };
        let of_cluster = AuditQuery {
            cluster: text("eu1"),
            verdict: text("deny"),
            before: Some(9),
            ..query()
        };
        let lately = AuditQuery {
            since: Some(1),
            ..query()
        };
        assert_eq!(
            plan(of_user).await,
            "SEARCH audit USING INDEX audit_actor (actor=? AND seq>?)"
        );
        assert_eq!(
            plan(of_cluster).await,
            "SEARCH audit USING INDEX audit_cluster (cluster=? AND seq>? AND seq<?)"
        );
        let refused = AuditQuery {
            verdict: text("deny"),
            before: Some(9),
            ..query()
        };
        assert_eq!(
            plan(refused).await,
            "SEARCH audit USING INDEX audit_denied (verdict=? AND seq>? AND seq<?)"
        );
        let long_ago = AuditQuery {
            until: Some(1),
            after: Some(9),
            ..query()
        };
        assert_eq!(
            plan(long_ago).await,
            "SEARCH audit USING INTEGER PRIMARY KEY (rowid>?)"
        );
        assert_eq!(
            plan(lately).await,
            "SEARCH audit USING INTEGER PRIMARY KEY (rowid>?)"
        );
    }
    std::fs::remove_dir_all(data).unwrap();
}

/// A read of the record that takes too long ends, and so does one whose reader left.
#[tokio::test]
async fn a_long_read_of_the_record_ends_at_its_deadline() {
    const ENDLESS: &str =
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n";
    let data = directory("long-read");
    let store = Sqlite::open(&data).await.unwrap();
    let until = |ms| store.audit_reader_until(Instant::now() + Duration::from_millis(ms), "read");
    let mut reader = until(50).await.unwrap();
    let endless = sqlx::query(ENDLESS).execute(reader.connection()).await;
    let endless = endless.map_err(contract::in_time("read the record"));
    assert_eq!(
        endless.unwrap_err().to_string(),
        "read the record: there is too much to look through"
    );
    drop(reader);
    // More than there are connections leave in the middle; then there is one for the next.
    for _ in 0..3 * AUDITORS {
        let mut reader = until(600_000).await.unwrap();
        let endless = sqlx::query(ENDLESS).execute(reader.connection());
        let left = tokio::time::timeout(Duration::from_millis(20), endless).await;
        assert!(left.is_err());
    }
    let query = AuditQuery {
        limit: 1,
        ..AuditQuery::default()
    };
    assert_eq!(store.audit_query(&query).await.unwrap().rows, []);
    std::fs::remove_dir_all(data).unwrap();
}

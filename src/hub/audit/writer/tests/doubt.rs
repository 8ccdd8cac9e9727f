//! What became of a batch is not known when its connection breaks, or its commit comes late.

use sqlx::Connection as _;

use super::*;

/// A database that is lost while it takes records leaves two things open: whether it has them, and what is owed to the
/// requests that ended meanwhile.
#[tokio::test]
async fn a_lost_database_is_asked_what_it_has_and_nothing_stays_open() {
    let fixture = Fixture::new("doubt");
    let store = fixture.store().await;
    let (_audit, mut chain) = start(store.clone(), "hub-1", keys(), None).await.unwrap();
    let opened = |n| row(Stage::Open, &entry(["kube.exec", "kube.get"][n]));
    let close = |opened| AuditRow {
        stage: "close".to_owned(),
        opened: Some(opened),
        code: Some(200),
        ..row(Stage::Event, &entry("kube.exec"))
    };
    assert_eq!(chain.store(vec![opened(0)]).await.unwrap(), [1]);
    let url = format!("sqlite://{}", fixture.data.join("hub.db").display());
    let mut behind = sqlx::SqliteConnection::connect(&url).await.unwrap();
    let mut execute = async |statement: &'static str| {
        sqlx::query(statement).execute(&mut behind).await.unwrap();
    };
    // It refuses: the close is owed, the new request was not carried out.
    execute("CREATE TRIGGER full BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'full'); END")
        .await;
    assert!(chain.store(vec![opened(1), close(1)]).await.is_err());
    assert!(chain.store(vec![opened(1)]).await.is_err());
    execute("DROP TRIGGER full").await;
    assert_eq!(chain.store(vec![opened(1)]).await.unwrap(), [2]);
    // It took them, and its answer got lost.
    let mut lost = vec![close(2), opened(1)];
    for row in &mut lost {
        let before = store.audit_head().await.unwrap().unwrap();
        (row.seq, row.prev) = (before.seq + 1, before.hash);
        row.hash = hash(row);
        store.append_audit(std::slice::from_ref(row)).await.unwrap();
    }
    chain.doubt = lost;
    assert_eq!(chain.store(vec![opened(0)]).await.unwrap(), [6]);
    let rows = store.audit(0, None, 99).await.unwrap();
    assert_eq!(
        stages(&rows),
        [
            ("open", None, None, None),
            ("open", None, None, None),
            ("close", Some(1), Some(200), None),
            ("close", Some(2), Some(200), None),
            ("open", None, None, None),
            ("open", None, None, None),
            ("close", Some(5), None, Some("interrupted: not carried out")),
        ]
    );
    assert_eq!(verify(genesis("hub-1").hash, 0, &rows), Ok(()));
    assert!(chain.doubt.is_empty() && chain.late.is_empty());
}

/// A commit that outlasts its deadline may still be on its way when the next batch comes: nobody says then that nothing was stored.
#[tokio::test]
async fn a_commit_that_comes_late_is_waited_for_and_nothing_stays_open() {
    let fixture = Fixture::new("late");
    let store = fixture.store().await;
    let (_audit, mut chain) = start(store.clone(), "hub-1", keys(), None).await.unwrap();
    let opened = || row(Stage::Open, &entry("kube.get"));
    assert_eq!(chain.store(vec![opened()]).await.unwrap(), [1]);
    let mut lost = opened();
    chain::link(chain.head, &mut lost);
    let url = format!("sqlite://{}", fixture.data.join("hub.db").display());
    let mut behind = sqlx::SqliteConnection::connect(&url).await.unwrap();
    let mut execute = async |statement: &'static str| {
        sqlx::query(statement).execute(&mut behind).await.unwrap();
    };
    // The same record under another number, so that it goes by the statement of an append.
    store
        .append_audit(std::slice::from_ref(&lost))
        .await
        .unwrap();
    execute("CREATE TEMP TABLE kept AS SELECT * FROM audit WHERE seq = 2").await;
    execute("DELETE FROM audit WHERE seq = 2").await;
    execute("BEGIN IMMEDIATE").await;
    execute("INSERT INTO audit SELECT * FROM kept").await;
    chain.doubt = vec![lost];
    let mut next = Box::pin(chain.store(vec![opened()]));
    let moment = Duration::from_millis(200);
    let early = tokio::time::timeout(moment, &mut next).await;
    assert!(early.is_err(), "stored beside a commit: {early:?}");
    execute("COMMIT").await;
    assert_eq!(next.await.unwrap(), [3]);
    let rows = store.audit(0, None, 99).await.unwrap();
    assert_eq!(
        stages(&rows),
        [
            ("open", None, None, None),
            ("open", None, None, None),
            ("open", None, None, None),
            ("close", Some(2), None, Some("interrupted: not carried out")),
        ]
    );
    assert_eq!(verify(genesis("hub-1").hash, 0, &rows), Ok(()));
}

use futures_util::FutureExt as _;

use super::*;
use crate::hub::HubKeys;
use crate::hub::audit::{Entry, hash, verify};
use crate::hub::store::sqlite::Sqlite;
use crate::wire::api::TrustBundle;

mod doubt;

struct Fixture {
    data: std::path::PathBuf,
}

impl Fixture {
    fn new(name: &str) -> Self {
        let data =
            std::env::temp_dir().join(format!("linesman-audit-{name}-{}", std::process::id()));
        drop(std::fs::remove_dir_all(&data));
        std::fs::create_dir_all(&data).unwrap();
        Self { data }
    }

    async fn store(&self) -> Store {
        Store::Sqlite(Sqlite::open(&self.data).await.unwrap())
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.data));
    }
}

fn keys() -> watch::Receiver<Arc<Said>> {
    let keys = HubKeys::new(crate::keys::KeyPair::from_seed(&[5; 32]));
    let trust = TrustBundle {
        version: 1,
        urls: vec![],
        ca: String::new(),
        keyset: keys.keyset(0),
        sig: String::new(),
    };
    let chain = vec![];
    watch::Sender::new(Arc::new(Said { keys, trust, chain })).subscribe()
}

fn entry(action: &str) -> Entry {
    Entry {
        actor: "user:admin".to_owned(),
        action: action.to_owned(),
        request_id: "r1".to_owned(),
        ..Entry::default()
    }
}

type Shown<'a> = (&'a str, Option<i64>, Option<u16>, Option<&'a str>);

fn stages(rows: &[AuditRow]) -> Vec<Shown<'_>> {
    rows.iter()
        .map(|r| (r.stage.as_str(), r.opened, r.code, r.reason.as_deref()))
        .collect()
}

/// Its caller was refused, for the database did not say in time what it has, or left before it heard that the record is stored.
#[tokio::test]
async fn a_change_that_was_announced_and_not_made_is_denied() {
    let fixture = Fixture::new("not-made");
    let store = fixture.store().await;
    let (audit, mut chain) = start(store.clone(), "hub-1", keys(), None).await.unwrap();
    let event = |action: &str, request: &str| AuditRow {
        request_id: request.to_owned(),
        ..row(Stage::Event, &entry(action))
    };
    // The second one tells of what was over by then, and the hub's own changes are nobody's request.
    let mut lost = vec![
        event("cluster.remove", "r2"),
        event("line.takeover", ""),
        event("githost.drop-host-key", ""),
    ];
    let mut head = chain.head;
    for row in &mut lost {
        head = chain::link(head, row);
    }
    store.append_audit(&lost).await.unwrap();
    (chain.doubt, chain.announced) = (lost, BTreeSet::from([0, 2]));
    let next = chain.store(vec![event("cluster.add", "r4")]).await;
    assert_eq!(next.unwrap(), [4]);
    let left = audit.change(entry("cluster.label")).now_or_never();
    assert!(left.is_none());
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(chain.run(CancellationToken::new()));
    audit.change(entry("cluster.revoke")).await.unwrap();
    drop(audit);
    tasks.join_next().await.unwrap().unwrap().unwrap();
    let rows = store.audit(0, None, 99).await.unwrap();
    let told = rows
        .iter()
        .map(|r| (r.action.as_str(), r.verdict.as_str(), r.reason.as_deref()));
    let why = Some("not made: nobody heard in time that it is on record");
    assert_eq!(
        told.collect::<Vec<_>>(),
        [
            ("cluster.remove", "allow", None),
            ("line.takeover", "allow", None),
            ("githost.drop-host-key", "allow", None),
            ("cluster.add", "allow", None),
            ("cluster.remove", "deny", why),
            ("githost.drop-host-key", "deny", why),
            ("cluster.label", "allow", None),
            ("cluster.revoke", "allow", None),
            ("cluster.label", "deny", why),
        ]
    );
    assert_eq!(verify(genesis("hub-1").hash, 0, &rows), Ok(()));
}

#[tokio::test]
async fn what_an_agent_had_no_room_for_is_no_denial() {
    let fixture = Fixture::new("no-room");
    let store = fixture.store().await;
    let (audit, chain) = start(store.clone(), "hub-1", keys(), None).await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(chain.run(CancellationToken::new()));
    let rules = [
        ("agent:Busy", 429),
        ("agent:ReadOnly", 403),
        ("agent:Offline", 503),
    ];
    for (rule, code) in rules {
        let mut opened = audit.open(entry("kube.get")).await.unwrap();
        opened.refused(rule, http::StatusCode::from_u16(code).unwrap());
        opened.close(code, 0, 0);
    }
    drop(audit);
    tasks.join_next().await.unwrap().unwrap().unwrap();
    let rows = store.audit(0, None, 9).await.unwrap();
    let closes = rows.iter().filter(|row| row.stage == "close");
    let told = closes.map(|row| (row.verdict.as_str(), row.reason.as_deref(), row.code));
    assert_eq!(
        told.collect::<Vec<_>>(),
        [
            ("allow", Some("agent:Busy"), Some(429)),
            ("deny", Some("agent:ReadOnly"), Some(403)),
            ("allow", Some("agent:Offline"), Some(503)),
        ]
    );
}

/// Its request never ran, be it gone before its record was stored or before it heard so.
#[tokio::test]
async fn who_leaves_while_the_record_is_stored_has_it_closed() {
    let fixture = Fixture::new("left");
    let store = fixture.store().await;
    let (audit, chain) = start(store.clone(), "hub-1", keys(), None).await.unwrap();
    assert!(audit.open(entry("kube.get")).now_or_never().is_none());
    let mut unheard = Box::pin(audit.open(entry("kube.list")));
    assert!(unheard.as_mut().now_or_never().is_none());
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(chain.run(CancellationToken::new()));
    audit.event(entry("cluster.add")).await.unwrap();
    drop(unheard);
    drop(audit);
    tasks.join_next().await.unwrap().unwrap().unwrap();
    let rows = store.audit(0, None, 9).await.unwrap();
    let left = Some("interrupted");
    assert_eq!(
        stages(&rows),
        [
            ("open", None, None, None),
            ("open", None, None, None),
            ("event", None, None, None),
            ("close", Some(1), None, left),
            ("close", Some(2), None, left),
        ]
    );
}

#[tokio::test]
async fn records_are_chained_and_a_flipped_byte_is_named() {
    let fixture = Fixture::new("chain");
    let store = fixture.store().await;
    let (audit, chain) = start(store.clone(), "hub-1", keys(), None).await.unwrap();
    let stop = CancellationToken::new();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(chain.run(stop.clone()));
    for _ in 0..50 {
        audit.event(entry("cluster.add")).await.unwrap();
    }
    let opened = audit.open(entry("kube.get")).await.unwrap();
    opened.close(200, 17, 3);
    drop(audit.open(entry("kube.watch")).await.unwrap());
    stop.cancel();
    tasks.join_next().await.unwrap().unwrap().unwrap();
    let mut rows = store.audit(0, None, 500).await.unwrap();
    assert_eq!(
        stages(&rows[50..]),
        [
            ("open", None, None, None),
            ("close", Some(51), Some(200), None),
            ("open", None, None, None),
            ("close", Some(53), None, Some("interrupted")),
        ]
    );
    let genesis = genesis("hub-1").hash;
    assert_eq!(verify(genesis, 0, &rows), Ok(()));
    assert_eq!(verify([0; 32], 0, &rows), Err(1));
    rows[20].target = "x".to_owned();
    assert_eq!(verify(genesis, 0, &rows), Err(21));
    rows.remove(20);
    assert_eq!(verify(genesis, 0, &rows), Err(21));
    assert!(audit.event(entry("late")).await.is_err());
}

#[tokio::test]
async fn what_a_crash_left_open_is_marked_at_the_next_start() {
    let fixture = Fixture::new("crash");
    {
        let store = fixture.store().await;
        let (audit, chain) = start(store, "hub-1", keys(), None).await.unwrap();
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(chain.run(CancellationToken::new()));
        let opened = audit.open(entry("kube.exec")).await.unwrap();
        // The process dies here: neither close nor drop comes to pass.
        tasks.shutdown().await;
        drop(opened);
    }
    let store = loop {
        // The pool lets go of its connections in the background.
        match Sqlite::open(&fixture.data).await {
            Ok(store) => break Store::Sqlite(store),
            Err(_) => tokio::task::yield_now().await,
        }
    };
    let (_audit, _chain) = start(store.clone(), "hub-1", keys(), None).await.unwrap();
    let rows = store.audit(0, None, 10).await.unwrap();
    let why = Some("interrupted: the hub ended");
    assert_eq!(
        stages(&rows),
        [("open", None, None, None), ("close", Some(1), None, why)]
    );
    assert_eq!(verify(genesis("hub-1").hash, 0, &rows), Ok(()));
}

#[test]
fn a_record_has_one_canonical_form() {
    let mut row = row(Stage::Event, &entry("a\u{1}\"b"));
    (row.seq, row.at) = (7, 1_700_000_000_123);
    assert_eq!(
        chain::canonical(&row),
        r#"{"action":"a\u0001\"b","actor":"user:admin","at":1700000000123,"bytes":null,"cluster":null,"code":null,"millis":null,"opened":null,"reason":null,"remote":"","requestId":"r1","seq":7,"stage":"event","target":"","verdict":"allow"}"#
    );
}

/// What the database writes as a record's line is byte for byte what its hash was made of, whatever the texts hold.
#[tokio::test]
async fn the_stored_lines_are_what_was_hashed() {
    let fixture = Fixture::new("lines");
    let store = fixture.store().await;
    let every: String = (0..0x2100).filter_map(char::from_u32).collect();
    let texts = [
        "",
        "/api/v1/pods",
        "\"\\/'`,\"seq\":9,",
        "\u{0}\u{1f}\u{7f}\n\r\t\u{8}\u{c}",
        "\u{2028}\u{fffd}\u{1f6a2}%s%d",
        &every,
    ];
    let mut head = genesis("hub-1");
    let mut rows = Vec::new();
    for (n, text) in texts.iter().cycle().take(1_000).enumerate() {
        let text = || (*text).to_owned();
        let some = |nth: usize| (n % nth == 0).then(text);
        let number = [None, Some(0), Some(7), Some(i64::MAX.unsigned_abs())][n % 4];
        let mut row = AuditRow {
            seq: head.seq + 1,
            at: 1_790_000_000_000 - i64::try_from(n).unwrap(),
            stage: ["open", "close", "event"][n % 3].to_owned(),
            actor: text(),
            action: text(),
            acted_as: some(3),
            cluster: some(5),
            target: text(),
            container: some(2),
            command: some(11),
            ports: some(13),
            request_id: text(),
            verdict: ["allow", "deny"][n % 2].to_owned(),
            reason: some(7),
            opened: (n % 2 == 1).then_some(i64::MAX - head.seq),
            code: number.map(|_| 599),
            exit: [None, Some(0), Some(i32::MIN), Some(i32::MAX)][n / 4 % 4],
            bytes: number,
            millis: number,
            remote: text(),
            prev: head.hash,
            hash: [0; 32],
        };
        row.hash = hash(&row);
        (head.seq, head.hash) = (row.seq, row.hash);
        rows.push(row);
    }
    store.append_audit(&rows).await.unwrap();
    let (mut lines, mut answers) = (String::new(), 0);
    loop {
        let after = i64::try_from(lines.lines().count()).unwrap();
        let next = store.audit_lines(after, 2_000).await.unwrap();
        if next.is_empty() {
            break;
        }
        lines += std::str::from_utf8(&next).unwrap();
        answers += 1;
    }
    assert!(answers > 1, "answers are bounded by their bytes too");
    for (row, line) in rows.iter().zip(lines.lines()) {
        let (prev, hash) = (crate::keys::hex(&row.prev), crate::keys::hex(&row.hash));
        let json = chain::canonical(row);
        assert_eq!(line, format!("{} {prev} {hash} {json}", row.seq));
    }
    assert_eq!(lines.lines().count(), rows.len());
    // Those behind a number, at most so many; a gap does not end them.
    let behind = store.audit_lines(998, 1).await.unwrap();
    let behind = String::from_utf8(behind).unwrap();
    assert_eq!(
        behind.lines().collect::<Vec<_>>(),
        [lines.lines().nth(998).unwrap()]
    );
}

/// A copy of a database from before a column can still be verified.
#[tokio::test]
async fn the_lines_of_an_older_database_are_what_was_hashed() {
    use sqlx::Connection as _;
    let fixture = Fixture::new("older");
    let store = fixture.store().await;
    let mut row = row(Stage::Event, &entry("kube.get"));
    (row.seq, row.prev) = (1, genesis("hub-1").hash);
    row.hash = hash(&row);
    store
        .append_audit(std::slice::from_ref(&row))
        .await
        .unwrap();
    let lines = store.audit_lines(0, 9).await.unwrap();
    let url = format!("sqlite://{}", fixture.data.join("hub.db").display());
    let mut connection = sqlx::SqliteConnection::connect(&url).await.unwrap();
    for columns in [
        &["container", "command", "ports"][..],
        &["exit"],
        &["acted_as"],
    ] {
        for column in columns {
            let drop = format!("ALTER TABLE audit DROP COLUMN {column}");
            sqlx::query(sqlx::AssertSqlSafe(drop))
                .execute(&mut connection)
                .await
                .unwrap();
        }
        let older = Store::Sqlite(Sqlite::open_read_only(&fixture.data).unwrap());
        assert_eq!(older.audit_lines(0, 9).await.unwrap(), lines);
        assert_eq!(older.audit(0, None, 9).await.unwrap(), [row.clone()]);
    }
    assert!(lines.ends_with(format!("{}\n", chain::canonical(&row)).as_bytes()));
}

/// A forward of weeks keeps neither the records behind its own nor the disk.
#[tokio::test]
async fn a_session_that_runs_is_carried_on_past_what_retention_removes() {
    let fixture = Fixture::new("carried");
    let store = fixture.store().await;
    let (_audit, mut chain) = start(store.clone(), "hub-1", keys(), None).await.unwrap();
    let open = AuditRow {
        reason: None,
        ..row(Stage::Open, &entry("kube.portforward"))
    };
    let event = || row(Stage::Event, &entry("cluster.add"));
    chain
        .store(vec![open.clone(), event(), event()])
        .await
        .unwrap();
    assert_eq!(chain.prune(i64::MAX).await.unwrap(), 2);
    chain.store(vec![event()]).await.unwrap();
    // Again, and no more than was asked for.
    assert_eq!(chain.prune(4).await.unwrap(), 2);
    assert_eq!(chain.prune(4).await.unwrap(), 0);
    let close = AuditRow {
        stage: "close".to_owned(),
        opened: Some(1),
        code: Some(101),
        ..row(Stage::Event, &entry("kube.portforward"))
    };
    chain.store(vec![close]).await.unwrap();
    let rows = store.audit(0, None, 99).await.unwrap();
    let since = format!(
        "goes on from record 1 of {}",
        clock::rfc3339(time::OffsetDateTime::UNIX_EPOCH + time::Duration::milliseconds(open.at))
    );
    assert_eq!(
        stages(&rows),
        [
            ("event", None, None, None),
            ("open", Some(1), None, Some(since.as_str())),
            ("close", Some(6), Some(101), None),
        ]
    );
    assert_eq!(rows.iter().map(|r| r.seq).collect::<Vec<_>>(), [5, 6, 7]);
    assert_eq!(store.audit_open().await.unwrap(), []);
    let anchors = store.audit_anchors().await.unwrap();
    let mut follower =
        chain::Follower::new("hub-1", anchors, &[keys().borrow().keys.public()]).unwrap();
    for row in &rows {
        follower.follow(row).unwrap();
    }
    assert_eq!(follower.end().unwrap().0.seq, 7);
    assert!(chain.carried.is_empty());
}

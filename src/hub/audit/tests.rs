use super::*;
use crate::hub::store::sqlite::Sqlite;

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

fn keys() -> HubKeys {
    HubKeys::new(crate::keys::KeyPair::from_seed(&[5; 32]))
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

#[tokio::test]
async fn records_are_chained_and_a_flipped_byte_is_named() {
    let fixture = Fixture::new("chain");
    let store = fixture.store().await;
    let (audit, chain) = start(store.clone(), "hub-1", keys()).await.unwrap();
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
        let (audit, chain) = start(store, "hub-1", keys()).await.unwrap();
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
    let (_audit, _chain) = start(store.clone(), "hub-1", keys()).await.unwrap();
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

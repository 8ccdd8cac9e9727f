//! `linesman audit verify` over a long record: a figure, not a test of `make test`.

use std::path::Path;
use std::time::{Duration, Instant};

use linesman::hub::audit::chain::{self, Head};
use linesman::hub::store::sqlite::Sqlite;
use linesman::hub::store::{AuditRow, Store};

use super::Home;
use super::hub::Hub;

const RECORDS: i64 = 1_000_000;
/// hub.md §9, of the built program: this one is built for debugging.
const BAR: Duration = Duration::from_secs(10);

/// Requests of many users on many clusters, each with its open and its close.
async fn fill(data: &Path) {
    let store = Store::Sqlite(Sqlite::open(data).await.unwrap());
    let id = store.hub_id().await.unwrap();
    let last = store.audit_head().await.unwrap();
    let mut head = last.map_or_else(
        || chain::genesis(&id),
        |row| Head {
            seq: row.seq,
            hash: row.hash,
        },
    );
    while head.seq < RECORDS {
        let mut batch = Vec::with_capacity(10_000);
        while batch.len() < 10_000 && head.seq < RECORDS {
            let row = next(head);
            head = Head {
                seq: row.seq,
                hash: row.hash,
            };
            batch.push(row);
        }
        store.append_audit(&batch).await.unwrap();
    }
}

fn next(head: Head) -> AuditRow {
    let seq = head.seq + 1;
    let closes = seq % 2 == 0;
    let mut row = AuditRow {
        seq,
        at: 1_790_000_000_000 + seq * 7,
        stage: if closes { "close" } else { "open" }.to_owned(),
        actor: format!("user:person-{}@example.org", seq / 2 % 97),
        action: "kube.list".to_owned(),
        acted_as: None,
        cluster: Some(format!("cluster-{}", seq / 2 % 41)),
        target: format!("/api/v1/namespaces/team-{}/pods", seq / 2 % 13),
        request_id: format!("0197a1b2-c3d4-7e5f-8a9b-{:012x}", seq / 2),
        verdict: "allow".to_owned(),
        reason: None,
        opened: closes.then_some(head.seq),
        code: closes.then_some(200),
        bytes: closes.then_some(12_345),
        exit: None,
        millis: closes.then_some(17),
        remote: "192.0.2.17:40512".to_owned(),
        prev: head.hash,
        hash: [0; 32],
    };
    row.hash = chain::hash(&row);
    row
}

fn size(data: &Path) -> u64 {
    let files = ["hub.db", "hub.db-wal"];
    let sizes = files.map(|name| std::fs::metadata(data.join(name)).map_or(0, |m| m.len()));
    sizes.iter().sum()
}

/// hub.md §9: a million records are verified within 10 s, in the database and through the hub.
#[test]
#[ignore = "a figure: cargo test --test it -- --ignored --nocapture a_million"]
fn a_million_records_are_verified() {
    let home = Home::new();
    let data = {
        let hub = Hub::start(&home);
        hub.data().to_owned()
    };
    let begun = Instant::now();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(fill(&data));
    println!(
        "{RECORDS} records made in {:.1?}, {} bytes on disk",
        begun.elapsed(),
        size(&data)
    );
    let verify = |how: &str, args: &[&str]| {
        let begun = Instant::now();
        let ran = home.run(&[&["audit", "verify"], args].concat());
        let took = begun.elapsed();
        assert!(
            ran.code == 0 && ran.out.starts_with("the audit is whole: "),
            "{ran:?}"
        );
        println!(
            "figure | audit verify, {how} | ≤ {} s | {:.1} s",
            BAR.as_secs(),
            took.as_secs_f64()
        );
    };
    verify("the database", &["--data", data.to_str().unwrap()]);
    let hub = Hub::start(&home);
    hub.log_in(&home);
    verify("through the hub", &[]);
}

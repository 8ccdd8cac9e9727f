//! The hub's own starts and stops.

use std::time::Duration;

use linesman::clock;
use linesman::hub::AuditConfig;
use linesman::hub::store::AuditRow;
use time::OffsetDateTime;

use crate::hub::support::TestHub;
use crate::wait::until;

const PATIENCE: Duration = Duration::from_secs(10);

fn recorded() -> AuditConfig {
    AuditConfig {
        lives: true,
        ..AuditConfig::default()
    }
}

async fn lives(hub: &TestHub) -> Vec<AuditRow> {
    let rows = hub.hub.store.audit_tail(None, 100).await.unwrap();
    let own = rows.into_iter().filter(|row| row.actor == "hub");
    own.filter(|row| row.action == "hub.start" || row.action == "hub.stop")
        .collect()
}

/// As soon as there are so many.
async fn lived(hub: &TestHub, count: usize) -> Vec<AuditRow> {
    let there = async || lives(hub).await.len() == count;
    until("the start is on record", PATIENCE, there).await;
    lives(hub).await
}

/// A gap in the record is a time in which there was no hub, and one that was killed does not look like one that was stopped.
#[tokio::test]
async fn each_start_and_stop_is_on_record_and_a_start_tells_of_a_stop_that_is_not() {
    let hub = TestHub::with_audit("record-lives", recorded()).await;
    lived(&hub, 1).await;
    let data = hub.data().to_owned();
    hub.leave().await;
    let hub = TestHub::open_with("record-lives", data, recorded()).await;
    let mut rows = lived(&hub, 3).await;
    // Of a file there is a copy from before the end; a server has what was written at it.
    let killed = hub.postgres().is_none();
    let hub = if killed {
        let data = hub.crash().await;
        let hub = TestHub::open_with("record-lives", data, recorded()).await;
        rows = lived(&hub, 4).await;
        hub
    } else {
        hub
    };
    let version = env!("CARGO_PKG_VERSION");
    let at = |n: usize| {
        let since = time::Duration::milliseconds(rows[n].at);
        clock::rfc3339(OffsetDateTime::UNIX_EPOCH + since)
    };
    let started = |before: String| ("hub.start", Some(format!("version {version}; {before}")));
    let told: Vec<_> = rows
        .iter()
        .map(|row| (row.action.as_str(), row.reason.clone()))
        .collect();
    let mut expected = vec![
        started("no start or stop before it is on record".to_owned()),
        ("hub.stop", None),
        started(format!("stopped in order at {}", at(1))),
    ];
    expected.extend(killed.then(|| {
        started(format!(
            "NOT stopped in order: of what started at {} (record {}) no stop is on record",
            at(2),
            rows[2].seq
        ))
    }));
    assert_eq!(told, expected);
    assert!(rows.iter().all(|row| row.target == "hub"), "{rows:?}");
    hub.stop().await;
}

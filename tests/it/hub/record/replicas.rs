//! The record of several replicas, read at one of them.

use std::time::{Duration, Instant};

use linesman::hub::audit::Entry;
use serde_json::json;

use crate::hub::support::TestHub;
use crate::wait::until;

const PATIENCE: Duration = Duration::from_secs(30);
/// Before the call ends that waits (25 s), which finds them at its next turn in any case.
const SOON: Duration = Duration::from_secs(15);

fn of(actor: &str) -> Entry {
    Entry {
        actor: actor.to_owned(),
        action: "test".to_owned(),
        ..Entry::default()
    }
}

/// Who follows the record hears of what another replica did while the call waits, among what it did for others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_hears_of_records_that_another_replica_makes() {
    const OTHERS: usize = 50;
    let ([a, b], _) = TestHub::replicas("record-replicas").await;
    let made = async {
        // Nothing more is made where it is read.
        let read = async || {
            let rows = b.hub.store.audit_tail(None, 100).await.unwrap();
            rows.iter()
                .any(|row| row.action == "audit.read" && row.target == "by agent:eu1")
        };
        until("the reading is on record", PATIENCE, read).await;
        for _ in 0..OTHERS {
            b.hub.audit.event(of("agent:us1")).await.unwrap();
        }
        b.hub.audit.event(of("agent:eu1")).await.unwrap();
        Instant::now()
    };
    let waits = async {
        let read = a.get("/v1/audit?after=0&user=agent:eu1&wait=25").await;
        (read, Instant::now())
    };
    let (((code, page), heard), made) = tokio::join!(waits, made);
    let item = &page["items"][0];
    assert_eq!((code, &item["actor"]), (200, &json!("agent:eu1")), "{page}");
    let took = heard.saturating_duration_since(made);
    assert!(took < SOON, "{took:?}");
    a.leave().await;
    b.stop().await;
}

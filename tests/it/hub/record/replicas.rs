//! The record of several replicas, read at one of them.

use std::time::{Duration, Instant};

use linesman::hub::AuditConfig;
use linesman::hub::audit::Entry;
use linesman::hub::audit::sink::{AuditFile, Sink};
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

/// How far a sink is behind is told of all records, wherever they were made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quiet_replica_says_how_far_a_sink_is_behind_the_others_records() {
    let ([a, b], _) = TestHub::replicas("record-behind").await;
    let data = b.data().to_owned();
    b.leave().await;
    let leads = async || a.hub.replica.as_ref().unwrap().leads();
    until("it delivers nothing, for the other leads", PATIENCE, leads).await;
    let file = data.join("audit.log");
    let sink = Sink::File(AuditFile::new(file));
    let name = sink.name();
    let config = AuditConfig {
        sinks: vec![sink],
        ..AuditConfig::default()
    };
    let b = TestHub::open_with("record-behind", data, config).await;
    for _ in 0..5 {
        a.hub.audit.event(of("agent:eu1")).await.unwrap();
    }
    let last = b.hub.store.audit_head().await.unwrap().unwrap().seq;
    // A position goes forward only.
    for behind in [2, 0] {
        let taken = last - behind;
        b.hub.store.set_audit_position(&name, taken).await.unwrap();
        let (_, checks) = b.get("/v1/hub/checks").await;
        let mut checks = checks.as_array().unwrap().iter();
        let found = json!({
            "name": "audit sinks",
            "ok": true,
            "found": format!("{name} is {behind} records behind"),
            "fix": "",
        });
        let sinks = checks.find(|check| check["name"] == found["name"]);
        assert_eq!(sinks, Some(&found));
    }
    b.leave().await;
    a.stop().await;
}

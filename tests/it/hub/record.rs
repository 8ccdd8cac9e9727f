//! The audit as auditors and SIEMs read it, and what happens where it cannot be written.

use std::time::Duration;

use linesman::hub::audit::Entry;
use linesman::hub::audit::chain::{self, Follower};
use linesman::hub::audit::retain::{self, Retention};
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::slug;
use super::support::TestHub;
use crate::wait::until;

mod commands;
mod kept;
mod limits;
mod lived;
mod lost;
mod read;
mod replicas;
mod request;
mod sinks;

/// For retention, whose clock two looks agree on.
fn now() -> OffsetDateTime {
    linesman::clock::now()
}

/// Whoever makes users makes records.
async fn records(hub: &TestHub, count: usize) {
    for n in 0..count {
        let user = json!({"name": format!("user-{n}")});
        assert_eq!(hub.post("/v1/users", &user).await.0, 201);
    }
}

fn actions(page: &Value) -> Vec<&str> {
    let items = page["items"].as_array().unwrap();
    items
        .iter()
        .map(|a| a["action"].as_str().unwrap())
        .collect()
}

/// Follows the chain as `linesman audit verify` does; gives the number of its first and last record.
async fn verified(hub: &TestHub) -> (i64, i64) {
    let store = &hub.hub.store;
    let anchors = store.audit_anchors().await.unwrap();
    let mut follower =
        Follower::new(&hub.hub.id, anchors, &[hub.hub.says().keys.public()]).unwrap();
    let rows = store.audit(0, None, 5_000).await.unwrap();
    for row in &rows {
        follower.follow(row).unwrap();
    }
    (rows[0].seq, follower.end().unwrap().0.seq)
}

/// Retention keeps the chain verifiable, and carries a running request's record on.
#[tokio::test]
async fn what_is_pruned_leaves_a_signed_anchor() {
    let hub = TestHub::start("audit-prune").await;
    records(&hub, 10).await;
    let keep = |records| Retention {
        records,
        ..Retention::default()
    };
    retain::round(&hub.hub.store, &hub.hub.audit, keep(4), Some(now()))
        .await
        .unwrap();
    let (first, last) = verified(&hub).await;
    assert_eq!(last - first, 3);
    let anchors = hub.get("/v1/audit/anchors").await.1;
    let views: Vec<linesman::wire::api::AnchorView> =
        serde_json::from_value(anchors["items"].clone()).unwrap();
    let starts: Vec<_> = views.iter().map(|a| (a.seq, a.start)).collect();
    assert_eq!(starts, [(first - 1, true), (last, false)]);
    assert!(views.iter().all(|view| chain::anchor(view).is_some()));
    // All would be too old, but the last one is what the next is chained to.
    let nothing = Retention {
        age: Duration::ZERO,
        records: 0,
        bytes: u64::MAX,
    };
    let opened = hub.hub.audit.open(Entry::default()).await.unwrap();
    records_after(&hub).await;
    retain::round(&hub.hub.store, &hub.hub.audit, nothing, Some(now()))
        .await
        .unwrap();
    let (first, last) = verified(&hub).await;
    let rows = hub.hub.store.audit(0, None, 9).await.unwrap();
    let rows: Vec<_> = rows
        .iter()
        .map(|r| (r.seq, r.stage.as_str(), r.opened))
        .collect();
    let goes_on = (last, "open", Some(opened.seq()));
    assert_eq!((first, rows), (last, vec![goes_on]));
    opened.close(200, 0, 0);
    hub.post("/v1/users", &json!({"name": "after"})).await;
    retain::round(&hub.hub.store, &hub.hub.audit, nothing, Some(now()))
        .await
        .unwrap();
    let (first, last) = verified(&hub).await;
    assert_eq!(first, last);
    // It goes on after a restart, from the anchor.
    let data = hub.crash().await;
    let hub = TestHub::open("audit-prune", data).await;
    hub.post("/v1/users", &json!({"name": "again"})).await;
    assert_eq!(verified(&hub).await, (first, last + 1));
    hub.stop().await;
}

/// By bytes: the newest that fit stay, whole, and the chain begins at a signed anchor.
#[tokio::test]
async fn what_is_kept_fits_into_its_bytes() {
    let hub = TestHub::start("audit-bytes").await;
    records(&hub, 30).await;
    let rows = hub.hub.store.audit_tail(None, 500).await.unwrap();
    let newest = |n: usize| rows.iter().rev().take(n).map(chain::size).sum::<u64>();
    let (store, audit) = (&hub.hub.store, &hub.hub.audit);
    let last = rows.last().unwrap().seq;
    for (bytes, kept) in [
        (u64::MAX, rows.len()),
        (newest(rows.len()), rows.len()),
        (newest(20) + 1, 20),
        (newest(20), 20),
        (newest(20) - 1, 19),
        // The last one stays: the next is chained to it.
        (0, 1),
    ] {
        let keep = Retention {
            bytes,
            ..Retention::default()
        };
        retain::round(store, audit, keep, Some(now()))
            .await
            .unwrap();
        let first = last - i64::try_from(kept).unwrap() + 1;
        assert_eq!(verified(&hub).await, (first, last), "{bytes} bytes");
    }
    records_after(&hub).await;
    assert_eq!(verified(&hub).await, (last, last + 3));
    hub.stop().await;
}

async fn records_after(hub: &TestHub) {
    for n in 0..3 {
        hub.post("/v1/users", &json!({"name": format!("more-{n}")}))
            .await;
    }
}

/// A full disk makes SQLite give a transaction up by itself, on the connection of the records and on that of the audit. When
/// there is room again, the hub goes on without being started anew.
#[tokio::test]
async fn a_hub_whose_disk_was_full_goes_on_when_there_is_room() {
    let hub = TestHub::start("disk-full").await;
    for (table, full, refuse) in [
        (
            "user",
            "CREATE TRIGGER refuse BEFORE INSERT ON user BEGIN SELECT RAISE(ROLLBACK, 'the disk is full'); END",
            r#"ALTER TABLE "user" ADD CONSTRAINT refuse CHECK (false) NOT VALID"#,
        ),
        (
            "audit",
            "CREATE TRIGGER refuse BEFORE INSERT ON audit BEGIN SELECT RAISE(ROLLBACK, 'the disk is full'); END",
            "ALTER TABLE audit ADD CONSTRAINT refuse CHECK (false) NOT VALID",
        ),
    ] {
        hub.execute(full, refuse).await;
        for _ in 0..2 {
            let name = format!("no-{table}");
            let (code, problem) = hub.post("/v1/users", &json!({"name": name})).await;
            assert_eq!((code, slug(&problem)), (503, "unavailable"), "{problem}");
        }
        let again = format!("ALTER TABLE \"{table}\" DROP CONSTRAINT refuse");
        hub.execute("DROP TRIGGER refuse", &again).await;
        let name = format!("after-{table}");
        let (code, made) = hub.post("/v1/users", &json!({"name": name})).await;
        assert_eq!(code, 201, "{made}");
    }
    // Whoever asks whether it is ready hears of it, too, and not only whoever changes something.
    let full = "CREATE TRIGGER refuse BEFORE INSERT ON lease BEGIN SELECT RAISE(ROLLBACK, 'the disk is full'); END";
    let refuse = "ALTER TABLE lease ADD CONSTRAINT refuse CHECK (false) NOT VALID";
    hub.execute(full, refuse).await;
    assert!(hub.hub.store.check().await.is_err(), "it is not ready");
    let again = "ALTER TABLE lease DROP CONSTRAINT refuse";
    hub.execute("DROP TRIGGER refuse", again).await;
    hub.hub.store.check().await.unwrap();
    verified(&hub).await;
    hub.stop().await;
}

/// What is open goes on; Git, which is served from it, does not.
#[tokio::test]
async fn a_hub_whose_volume_is_gone_knows_it() {
    let hub = TestHub::start("volume-gone").await;
    // What else is in it this hub has open.
    let key = hub.hub.config.data.join("hub.key");
    let aside = key.with_extension("aside");
    let within = Duration::from_secs(30);
    std::fs::rename(&key, &aside).unwrap();
    let gone = async || hub.hub.data_gone.borrow().is_some();
    until("it is gone", within, gone).await;
    let (_, checks) = hub.get("/v1/hub/checks").await;
    let all = checks.as_array().unwrap().iter();
    let failed = all.filter(|check| check["ok"] == false);
    let failed: Vec<&Value> = failed.map(|check| &check["name"]).collect();
    assert!(failed.contains(&&json!("data directory")), "{checks}");
    std::fs::rename(&aside, &key).unwrap();
    let back = async || hub.hub.data_gone.borrow().is_none();
    until("it is back", within, back).await;
    hub.stop().await;
}

/// H37, L48: what cannot be put on record is not done.
#[tokio::test]
async fn nothing_is_done_that_cannot_be_put_on_record() {
    let hub = TestHub::start("audit-closed").await;
    hub.add("eu1").await;
    let eve = hub.user("eve", &[], &[]).await;
    let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'the disk is full'); END";
    let no_more = "ALTER TABLE audit ADD CONSTRAINT refuse CHECK (false) NOT VALID";
    hub.execute(refuse, no_more).await;
    let (code, problem) = hub.post("/v1/users", &json!({"name": "ada"})).await;
    assert_eq!((code, slug(&problem)), (503, "unavailable"));
    let response = hub.raw_as("GET", "/clusters/eu1/version").await;
    assert_eq!(response.status(), 503);
    assert_eq!(response.headers()["retry-after"], "1");
    let status: Value = response.json().await.unwrap();
    assert_eq!(
        status["details"]["causes"][0]["reason"], "Audit",
        "{status}"
    );
    // Nor is anybody refused: not who has no grant, nor whom nobody knows.
    for token in [eve.as_str(), "lm_at_nobody"] {
        let call = ("GET", "/clusters/eu1/version");
        let (code, status) = hub.call_as(token, call, &[], &Value::Null).await;
        let cause = &status["details"]["causes"][0]["reason"];
        assert_eq!((code, cause), (503, &json!("Audit")), "{status}");
    }
    // Nor is the record read, however often it is asked for.
    for _ in 0..2 {
        let (code, problem) = hub.get("/v1/audit").await;
        assert_eq!((code, slug(&problem)), (503, "unavailable"), "{problem}");
    }
    assert!(hub.hub.store.user("ada").await.unwrap().is_none());
    let again = "ALTER TABLE audit DROP CONSTRAINT refuse";
    hub.execute("DROP TRIGGER refuse", again).await;
    assert_eq!(hub.post("/v1/users", &json!({"name": "ada"})).await.0, 201);
    verified(&hub).await;
    hub.stop().await;
}

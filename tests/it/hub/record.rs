//! The audit as auditors and SIEMs read it, and what happens where it cannot be written.

use std::collections::BTreeSet;
use std::time::Duration;

use linesman::hub::audit::Entry;
use linesman::hub::audit::chain::{self, Follower};
use linesman::hub::audit::retain::{self, Retention};
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::slug;
use super::support::TestHub;

mod kept;
mod limits;
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

#[tokio::test]
async fn records_are_found_by_who_where_when_and_how() {
    let hub = TestHub::start("audit-filter").await;
    hub.add("eu1").await;
    let ada = hub.user("ada", &["viewer"], &[]).await;
    let body = json!({"name": "x"});
    let denied = hub.call_as(&ada, ("POST", "/v1/users"), &[], &body);
    assert_eq!(denied.await.0, 403);
    let asked = async |query: &str| hub.get(&format!("/v1/audit?{query}")).await.1;
    assert_eq!(actions(&asked("user=ada").await), ["user.add"]);
    assert_eq!(actions(&asked("verdict=deny").await), ["user.add"]);
    assert_eq!(
        actions(&asked("user=user:admin&cluster=eu1").await),
        ["audit.read", "cluster.add"]
    );
    for actor in ["user:corp:ada", "agent:eu1", "hub", "anyone", "user:hub"] {
        let entry = Entry {
            actor: actor.to_owned(),
            action: format!("of {actor}"),
            ..Entry::default()
        };
        hub.hub.audit.event(entry).await.unwrap();
    }
    for (name, actor) in [
        // With a prefix of the identity provider's.
        ("corp:ada", "user:corp:ada"),
        ("user:corp:ada", "user:corp:ada"),
        ("agent:eu1", "agent:eu1"),
        ("hub", "hub"),
        ("anyone", "anyone"),
        ("user:hub", "user:hub"),
    ] {
        let found = asked(&format!("user={name}")).await;
        assert_eq!(actions(&found), [format!("of {actor}")], "{name}");
    }
    assert_eq!(actions(&asked("since=2100-01-01T00:00:00Z").await), [""; 0]);
    assert_eq!(actions(&asked("until=2020-01-01T00:00:00Z").await), [""; 0]);
    // Page by page, the newest first, then in order: each record once.
    let all = asked("limit=500").await;
    let mut walked = Vec::new();
    let mut page = asked("limit=2").await;
    loop {
        walked.extend(
            page["items"]
                .as_array()
                .unwrap()
                .iter()
                .map(|a| a["seq"].clone()),
        );
        let Some(cursor) = page["cursor"].as_str() else {
            break;
        };
        page = asked(&format!("limit=2&cursor={cursor}")).await;
    }
    let seqs: Vec<Value> = all["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|a| a["seq"].clone())
        .collect();
    assert_eq!(walked, seqs);
    for bad in [
        "verdict=maybe",
        "since=yesterday",
        "cursor=x",
        "colour=blue",
    ] {
        assert_eq!(hub.get(&format!("/v1/audit?{bad}")).await.0, 400, "{bad}");
    }
    hub.stop().await;
}

/// Reading is granted by a role, and on record, though not with each page.
#[tokio::test]
async fn reading_the_audit_is_granted_and_on_record() {
    let hub = TestHub::start("audit-read").await;
    let ada = hub.user("ada", &["operator"], &[]).await;
    let eve = hub.user("eve", &["auditor"], &[]).await;
    let read =
        async |token: &str, path: &str| hub.call_as(token, ("GET", path), &[], &Value::Null).await;
    assert_eq!(read(&ada, "/v1/audit").await.0, 403);
    assert_eq!(read(&ada, "/v1/audit/anchors").await.0, 403);
    assert_eq!(read(&ada, "/v1/audit/chain").await.0, 403);
    for path in [
        "/v1/audit?cluster=eu1",
        "/v1/audit?cluster=eu1&after=0",
        "/v1/audit",
    ] {
        assert_eq!(read(&eve, path).await.0, 200);
    }
    let rows = hub.hub.store.audit_tail(None, 100).await.unwrap();
    let seen: Vec<String> = rows
        .iter()
        .map(|r| format!("{} {} {}", r.actor, r.verdict, r.target))
        .collect();
    assert_eq!(
        seen,
        [
            "user:ada deny ",
            "user:ada deny ",
            "user:ada deny ",
            "user:eve allow cluster eu1",
            "user:eve allow all"
        ]
    );
    hub.stop().await;
}

/// Records of any length: a page ends where the next one would be too much, and says where to go on.
#[tokio::test]
async fn a_page_of_long_records_is_cut_and_goes_on() {
    const RECORDS: usize = 1_100;
    let hub = TestHub::start("audit-long").await;
    let before = hub.hub.audit.head();
    let first = *before.borrow();
    let long = "\u{1}".repeat(2048);
    let entry = |n: usize| Entry {
        action: "test".to_owned(),
        target: format!("{n:04}{long}"),
        reason: Some(long.clone()),
        ..Entry::default()
    };
    let written = (0..RECORDS).map(|n| hub.hub.audit.event(entry(n)));
    futures_util::future::try_join_all(written).await.unwrap();
    let mut seen = Vec::new();
    let (mut pages, mut place) = (0, format!("after={first}"));
    loop {
        let (code, page) = hub.get(&format!("/v1/audit?limit=2000&{place}")).await;
        assert_eq!(code, 200);
        let length = page.to_string().len();
        assert!(length < 16 << 20, "{length} bytes in one page");
        let items = page["items"].as_array().unwrap().iter();
        let long = items.filter(|i| i["action"] == "test");
        seen.extend(long.map(|i| i["target"].as_str().unwrap()[..4].to_owned()));
        pages += 1;
        let Some(cursor) = page["cursor"].as_str() else {
            break;
        };
        place = format!("cursor={cursor}");
    }
    let all: Vec<String> = (0..RECORDS).map(|n| format!("{n:04}")).collect();
    assert_eq!(seen, all);
    assert!(pages > 1, "{pages}");
    hub.stop().await;
}

/// A page has 500 records at most, whatever was asked for, and whoever goes on reads all of them.
#[tokio::test]
async fn a_page_of_the_record_is_as_long_as_that_of_any_list() {
    const RECORDS: usize = 1_100;
    let hub = TestHub::start("audit-pages").await;
    let first = *hub.hub.audit.head().borrow();
    let entry = |n: usize| Entry {
        action: "test".to_owned(),
        target: n.to_string(),
        ..Entry::default()
    };
    let written = (0..RECORDS).map(|n| hub.hub.audit.event(entry(n)));
    futures_util::future::try_join_all(written).await.unwrap();
    let (mut lengths, mut place) = (Vec::new(), format!("after={first}"));
    let mut seen = BTreeSet::new();
    loop {
        let (code, page) = hub.get(&format!("/v1/audit?limit=2000&{place}")).await;
        assert_eq!(code, 200);
        let items = page["items"].as_array().unwrap();
        lengths.push(items.len());
        let tests = items.iter().filter(|i| i["action"] == "test");
        seen.extend(tests.map(|i| i["target"].as_str().unwrap().parse::<usize>().unwrap()));
        let Some(cursor) = page["cursor"].as_str() else {
            break;
        };
        place = format!("cursor={cursor}");
    }
    assert_eq!(&lengths[..2], [500, 500], "{lengths:?}");
    assert_eq!(seen, (0..RECORDS).collect());
    let chain = hub.raw_as("GET", "/v1/audit/chain?limit=2000").await;
    let lines = chain.text().await.unwrap().lines().count();
    assert_eq!(lines, 500);
    hub.stop().await;
}

#[tokio::test]
async fn a_reader_waits_for_the_next_record() {
    let hub = TestHub::start("audit-wait").await;
    records(&hub, 1).await;
    // That of this very reading.
    let last = hub.get("/v1/audit?limit=1").await.1["items"][0]["seq"]
        .as_i64()
        .unwrap();
    let path = format!("/v1/audit?after={last}&wait=20");
    let late = json!({"name": "late"});
    let (waited, made) = tokio::join!(hub.get(&path), hub.post("/v1/users", &late));
    assert_eq!((made.0, actions(&waited.1)), (201, vec!["user.add"]));
    hub.stop().await;
}

/// Who follows few records among many of others has one answer for one question, and goes on behind what was looked through.
#[tokio::test]
async fn a_reader_of_few_records_is_not_woken_by_those_of_others() {
    let hub = TestHub::start("audit-few").await;
    let ada = hub.user("ada", &["viewer"], &[]).await;
    records(&hub, 3).await;
    let others_then_ada = async {
        for n in 0..5 {
            let user = json!({"name": format!("other-{n}")});
            assert_eq!(hub.post("/v1/users", &user).await.0, 201);
        }
        let hers = json!({"name": "hers"});
        hub.call_as(&ada, ("POST", "/v1/users"), &[], &hers).await.0
    };
    let path = "/v1/audit?after=0&user=ada&wait=20";
    let (waited, refused) = tokio::join!(hub.get(path), others_then_ada);
    let actors: Vec<&Value> = waited.1["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| &item["actor"])
        .collect();
    assert_eq!((refused, actors), (403, vec![&json!("user:ada")]));
    // Where none fits, the cursor stands behind all that did not.
    let (_, none) = hub.get("/v1/audit?after=0&user=nobody&wait=0").await;
    let cursor = none["cursor"].as_str().unwrap();
    assert_eq!(actions(&none), [""; 0]);
    let (_, behind) = hub.get(&format!("/v1/audit?cursor={cursor}&wait=0")).await;
    assert_eq!(actions(&behind), ["audit.read"]);
    hub.stop().await;
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

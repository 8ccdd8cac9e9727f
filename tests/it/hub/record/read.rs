//! The record as it is read: by filters, page by page, and by those who wait for the next one.

use std::collections::BTreeSet;

use linesman::hub::audit::Entry;
use serde_json::{Value, json};

use super::{actions, records};
use crate::hub::support::TestHub;

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

/// Who verifies the chain asks for several pages at once, and had a record for each.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn pages_that_are_asked_for_at_once_are_one_reading() {
    let hub = TestHub::start("audit-read-at-once").await;
    let page = async || hub.raw_as("GET", "/v1/audit/chain?after=0").await.status();
    let (first, second, third, fourth) = tokio::join!(page(), page(), page(), page());
    assert_eq!([first, second, third, fourth], [200; 4]);
    let rows = hub.hub.store.audit_tail(None, 100).await.unwrap();
    let readings = rows.iter().filter(|row| row.action == "audit.read");
    assert_eq!(readings.count(), 1);
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

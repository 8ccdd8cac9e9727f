//! What keeps the record from being pushed out, and who hears of it where it is.

use std::time::Duration;

use futures_util::future::join_all;
use linesman::hub::audit::retain::{self, Removed, Retention};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{now, records};
use crate::hub::support::TestHub;
use crate::proxy::record::{Log, logged};
use crate::wait::until;

const PATIENCE: Duration = Duration::from_secs(30);

/// Whoever has a token and may do nothing can ask as often as they like: the first refusals are a record each, and of the others
/// there is the number.
#[tokio::test]
async fn the_flood_of_a_user_who_is_refused_is_counted() {
    const ROUNDS: u64 = 14;
    const EACH: u64 = 50;
    let hub = TestHub::start("audit-flood").await;
    let eve = hub.user("eve", &[], &[]).await;
    let call = ("GET", "/clusters/eu1/version");
    for _ in 0..ROUNDS {
        let calls = (0..EACH).map(|_| hub.call_as(&eve, call, &[], &Value::Null));
        for (code, status) in join_all(calls).await {
            assert_eq!(code, 403, "{status}");
        }
    }
    // What was counted is told at the end.
    let hub = hub.restart().await;
    let rows = hub.hub.store.audit_tail(None, 1_000).await.unwrap();
    let (mut records, mut refusals) = (0, 0);
    for row in rows.iter().filter(|row| row.actor == "user:eve") {
        let reason = row.reason.as_deref().unwrap();
        let counted = reason.strip_prefix("eve has no grant on cluster eu1");
        let counted = counted.and_then(|rest| rest.strip_prefix(" ("));
        let counted = counted.and_then(|rest| rest.split(' ').next());
        records += 1;
        refusals += counted.map_or(1, |number| number.parse::<u64>().unwrap());
    }
    assert_eq!(refusals, ROUNDS * EACH);
    // Three hundred, and what is earned while they come.
    assert!((301..450).contains(&records), "{records}");
    hub.stop().await;
}

/// Whoever makes more records than are kept has others forgotten before their time: the log says so, a metric counts them, and the
/// doctor finds it.
#[tokio::test]
async fn records_that_go_before_their_time_are_told_of() {
    let log = Log::default();
    let writer = log.clone();
    let _logging = logged(move || writer.clone());
    let hub = TestHub::start("audit-early").await;
    let (_, checks) = hub.get("/v1/hub/checks").await;
    let checks = checks.as_array().unwrap();
    let fresh = checks.iter().find(|c| c["name"] == "audit retention");
    let fresh = fresh.map(|check| (&check["ok"], &check["fix"]));
    assert_eq!(fresh, Some((&json!(true), &json!(""))));
    records(&hub, 10).await;
    let (store, audit) = (&hub.hub.store, &hub.hub.audit);
    let keep = |records| Retention {
        records,
        ..Retention::default()
    };
    let last = *audit.head().borrow();
    let gone = u64::try_from(last).unwrap() - 4;
    let round = retain::round(store, audit, keep(4), Some(now())).await;
    let early = Removed {
        records: gone,
        early: gone,
    };
    assert_eq!(round.unwrap(), early);
    let found = async |keep: Retention| retain::outlook(store, keep, now()).await.unwrap();
    let full = found(keep(4)).await.unwrap_err();
    assert!(
        full.starts_with("4 records are as many as are kept, and they begin at ")
            && full.ends_with("; --audit-keep asks for 400 days"),
        "{full}"
    );
    let roomy = found(Retention::default()).await.unwrap();
    assert!(roomy.starts_with("4 records from "), "{roomy}");
    // At the start nobody knows the time, and they are told of all the same.
    let (counter, stop) = (hub.hub.metrics.audit_early(), CancellationToken::new());
    let (store, audit) = (store.clone(), audit.clone());
    let run = retain::run(store, audit, keep(2), counter.clone(), stop.clone());
    let seen = async {
        until("they are counted", PATIENCE, async || counter.get() == 2).await;
        stop.cancel();
    };
    let (ended, ()) = tokio::join!(run, seen);
    ended.unwrap();
    let said = String::from_utf8_lossy(&log.0.lock().unwrap()).into_owned();
    let warned = said.lines().filter(|line| {
        line.contains(" WARN ") && line.contains("audit records younger than --audit-keep go")
    });
    let warned: Vec<&str> = warned.collect();
    let has = |line: &str, early: u64| line.contains(&format!(" early={early} "));
    assert!(
        warned.len() == 2 && has(warned[0], gone) && has(warned[1], 2),
        "{warned:?}"
    );
    hub.stop().await;
}

/// What is too old goes as it should, however much of it there is.
#[tokio::test]
async fn records_that_go_by_their_age_are_not_before_their_time() {
    let hub = TestHub::start("audit-due").await;
    records(&hub, 10).await;
    let (store, audit) = (&hub.hub.store, &hub.hub.audit);
    let later = now() + time::Duration::days(401);
    let last = *audit.head().borrow();
    let keep = Retention {
        records: 4,
        ..Retention::default()
    };
    let round = retain::round(store, audit, keep, Some(later)).await;
    let due = Removed {
        records: u64::try_from(last).unwrap() - 1,
        early: 0,
    };
    assert_eq!(round.unwrap(), due);
    hub.stop().await;
}

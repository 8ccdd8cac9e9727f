//! A hub whose records are in PostgreSQL.

use std::time::Duration;

use linesman::hub::audit::{Entry, chain};
use linesman::hub::store::away::MEANWHILE;
use linesman::hub::store::postgres::Target;
use linesman::hub::store::{Records, Share, Store};
use serde_json::json;

use super::support::{Agent, TestHub};
use crate::postgres;
use crate::wait::{until, until_some};

/// The whole chain, as it is stored.
async fn verified(hub: &TestHub) -> usize {
    let rows = hub.hub.store.audit(0, None, 10_000).await.unwrap();
    let genesis = chain::genesis(&hub.hub.id).hash;
    assert_eq!(chain::verify(genesis, 0, &rows), Ok(()));
    rows.len()
}

#[tokio::test]
async fn a_hub_goes_on_with_its_records_after_a_restart() {
    let (hub, url) = TestHub::on_postgres("pg-restart").await;
    let token = hub.add("eu1").await;
    let agent = Agent::new(1);
    let (code, first) = agent.join(&hub, "eu1", &token).await;
    assert_eq!(code, 200, "{first}");
    let before = (hub.hub.id.clone(), hub.admin.clone(), verified(&hub).await);
    assert!(!hub.data().join("hub.db").exists());
    let noted = std::fs::read_to_string(hub.data().join("database")).unwrap();
    assert_eq!(noted.trim(), Target::parse(&url).unwrap().to_string());
    // Another hub does not get the database, and this data directory has no other one.
    let second = Records::Server(Target::parse(&url).unwrap());
    let other = std::env::temp_dir().join(format!("linesman-hub-pg-other-{}", std::process::id()));
    std::fs::create_dir_all(&other).unwrap();
    let refused = Store::open(&other, &second, Share::Alone)
        .await
        .err()
        .unwrap();
    assert!(
        refused.to_string().contains("another hub runs"),
        "{refused}"
    );
    std::fs::remove_dir_all(other).unwrap();
    let refused = Store::open(hub.data(), &Records::File, Share::Alone)
        .await
        .err()
        .unwrap();
    assert!(
        refused.to_string().contains("--database-url-file"),
        "{refused}"
    );

    let hub = hub.restart().await;
    assert_eq!((&hub.hub.id, &hub.admin), (&before.0, &before.1));
    let (code, again) = agent.join(&hub, "eu1", &token).await;
    assert_eq!((code, &again["cluster"]), (200, &first["cluster"]));
    let (code, view) = hub.get("/v1/clusters/eu1").await;
    assert_eq!((code, &view["name"]), (200, &json!("eu1")));
    assert!(verified(&hub).await > before.2);
    hub.stop().await;
}

#[tokio::test]
async fn a_hub_without_its_database_does_nothing_and_comes_back_with_it() {
    let (hub, url) = TestHub::on_postgres("pg-away").await;
    hub.add("eu1").await;
    let (server, name) = url.rsplit_once('/').unwrap();
    let admin = format!("{server}/postgres");
    let closed = format!("ALTER DATABASE {name} ALLOW_CONNECTIONS false");
    postgres::execute(&admin, &closed).await;
    let cut =
        format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'");
    postgres::execute(&admin, &cut).await;
    let (code, problem) = hub.post("/v1/clusters", &json!({"name": "us1"})).await;
    assert!(code >= 500, "{problem}");
    assert!(hub.hub.store.check().await.is_err(), "it is not ready");
    // Once that is known, whoever asks hears since when, and what goes on.
    let known = async || hub.hub.store.away().ok_or("not known");
    let since = until_some("it is away", Duration::from_secs(30), known).await;
    let (code, problem) = hub.get("/v1/clusters").await;
    let said = format!("the hub's database is away since {since}: {MEANWHILE}");
    assert_eq!((code, &problem["detail"]), (503, &json!(said)), "{problem}");
    let (code, status) = hub.get("/clusters/eu1/api/v1/pods").await;
    let said = format!("the hub's database is away since {since}");
    let cause = &status["details"]["causes"][0]["message"];
    assert_eq!((code, cause), (503, &json!(said)), "{status}");
    let refused = hub.hub.store.check().await.unwrap_err().to_string();
    assert_eq!(refused, format!("the database is away since {since}"));
    let back = format!("ALTER DATABASE {name} ALLOW_CONNECTIONS true");
    postgres::execute(&admin, &back).await;
    let check = async || hub.hub.store.check().await;
    until_some("the database answers", Duration::from_secs(30), check).await;
    let back = async || !hub.hub.store.is_away();
    until("it is away no more", Duration::from_secs(30), back).await;
    hub.add("us1").await;
    verified(&hub).await;
    let rows = hub.hub.store.audit_open().await.unwrap();
    assert_eq!(rows, []);
    hub.stop().await;
}

/// As after a failover, where the server that answers takes no writes any more: a session that was begun with it stays so.
#[tokio::test]
async fn a_hub_that_comes_to_a_server_without_writes_goes_on_with_one_that_takes_them() {
    let (hub, url) = TestHub::on_postgres("pg-standby").await;
    hub.add("eu1").await;
    let (server, name) = url.rsplit_once('/').unwrap();
    let admin = format!("{server}/postgres");
    let closed = format!("ALTER DATABASE {name} SET default_transaction_read_only = on");
    postgres::execute(&admin, &closed).await;
    // It waits until they have ended.
    let cut = format!(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '{name}'"
    );
    postgres::execute(&admin, &cut).await;
    let us1 = json!({"name": "us1"});
    let stored = hub.hub.audit.event(Entry::default());
    let (stored, (code, problem)) = tokio::join!(stored, hub.post("/v1/clusters", &us1));
    assert!(stored.is_err(), "nothing is put on record");
    assert_eq!(code, 503, "{problem}");
    let back = format!("ALTER DATABASE {name} RESET default_transaction_read_only");
    postgres::execute(&admin, &back).await;
    hub.add("us1").await;
    let check = async || hub.hub.store.check().await;
    until_some("it is ready", Duration::from_secs(30), check).await;
    verified(&hub).await;
    hub.stop().await;
}

/// The server's texts hold no NUL; what people and agents send may.
#[tokio::test]
async fn a_nul_in_a_text_hurts_nobody() {
    let (hub, _) = TestHub::on_postgres("pg-nul").await;
    let token = hub.add("eu1").await;
    let agent = Agent::new(1);
    agent.join(&hub, "eu1", &token).await;
    let report = json!({
        "facts": {"kubernetes.version": "v1\0"},
        "conditions": [{"type": "EngineHealthy", "status": "True", "reason": "a\0", "message": "b\0", "since": "t"}],
        "heals": [{"id": "01900000-0000-7000-8000-000000000001", "class": "ObjectMissing", "object": "Deployment x/y",
            "evidence": "gone\0", "steps": [{"action": "create\0", "object": "x", "at": "t", "outcome": "ok"}],
            "detectedAt": "2026-11-21T05:00:00.000Z", "result": "open"}],
    });
    let path = "/v1/clusters/eu1/reports";
    let (code, ack) = agent.call(&hub, "POST", path, &report.to_string()).await;
    assert_eq!(code, 200, "{ack}");
    let seen = hub
        .hub
        .store
        .acted(linesman::clock::now() - time::Duration::hours(1));
    assert_eq!(seen.await.unwrap().acted.len(), 1);
    let grant = json!({"subject": "user:ada", "clusters": "all", "groups": ["edit"], "lasts": 7200, "reason": "a\0b"});
    let (code, problem) = hub.post("/v1/grants", &grant).await;
    assert_eq!(
        (code, super::slug(&problem)),
        (400, "bad-request"),
        "{problem}"
    );
    verified(&hub).await;
    hub.stop().await;
}

//! What is revoked at one replica ends at the others, and nothing else does.

use std::time::Duration;

use linesman::hub::audit::Entry;
use linesman::hub::running::By;
use linesman::hub::store::Ended;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::super::support::TestHub;
use super::{BAR, OVER, PATIENCE, end, eu1};
use crate::postgres;
use crate::wait::{measured, until};

/// What stays is looked at for so long when what ends has ended.
const STAYS: Duration = Duration::from_secs(2);

/// A user's token and grant, and by what a request of theirs runs.
async fn granted(hub: &TestHub, name: &str) -> By {
    let token = hub.user(name, &[], &["sre"]).await;
    let grant = json!({"subject": format!("user:{name}"), "clusters": "all", "groups": ["edit"], "lasts": 7200, "reason": "r"});
    let (code, grant) = hub.post("/v1/grants", &grant).await;
    assert_eq!(code, 201, "{grant}");
    let (code, me) = hub
        .call_as(&token, ("GET", "/v1/whoami"), &[], &Value::Null)
        .await;
    assert_eq!(code, 200, "{me}");
    let id = token.split('.').nth(1).unwrap_or_default().to_owned();
    By {
        user_id: format!("id-{name}"),
        token_id: id,
        cluster_id: None,
        grants: vec![grant["id"].as_str().unwrap().to_owned()],
        until: None,
    }
}

/// H17: on each replica, within 2 s, with and without the connection that bells come by.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_revoked_at_one_replica_ends_at_the_others() {
    let ([a, b], url) = TestHub::replicas("replicas-revoked").await;
    let (ada, bob, cid) = (
        granted(&a, "ada").await,
        granted(&a, "bob").await,
        granted(&a, "cid").await,
    );
    let enter = |by: &By| b.hub.requests.enter(by.clone(), b.hub.requests.now());
    let seats = [&ada, &bob, &cid].map(enter);
    // Judged before it was revoked, and running only after that was seen.
    let judged = b.hub.requests.now();
    let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%LISTEN%' AND pid <> pg_backend_pid()
        AND datname = current_database()";
    // There is something to cut.
    let listening = "pg_stat_activity WHERE query LIKE '%LISTEN%' AND pid <> pg_backend_pid() AND datname = current_database()";
    assert!(!postgres::dump(&url, listening).await.is_empty());
    for (seat, revoke) in seats.iter().zip([
        format!("/v1/api-tokens/{}", ada.token_id),
        format!("/v1/grants/{}", bob.grants[0]),
        "/v1/users/cid".to_owned(),
    ]) {
        postgres::execute(&url, cut).await;
        let code = a.delete(&revoke, Some("*")).await;
        assert_eq!(code, 204, "{revoke}");
        let what = format!("{revoke} deleted → request at another replica over");
        measured(("H17", &what, BAR), OVER, seat.over()).await;
    }
    let late = b.hub.requests.enter(ada, judged);
    let over = timeout(OVER, late.over()).await;
    assert!(over.is_ok(), "it came late");
    end([a, b]).await;
}

/// H17 where a replica drains: what still runs there ends with what it runs by, and the others do not take it for dead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_drains_is_one_of_them_to_its_end() {
    let ([a, b], _) = TestHub::replicas("replicas-drain").await;
    let ada = granted(&a, "ada").await;
    let seat = b.hub.requests.enter(ada.clone(), b.hub.requests.now());
    let opened = b.hub.audit.open(Entry::default()).await.unwrap();
    let running = b.hub.work.token();
    let own = b.hub.replica.as_ref().unwrap().record.clone();
    b.hub.stop.cancel();
    let store = a.hub.store.clone();
    store.renew_replica(&own, Duration::ZERO).await.unwrap();
    let alive = async || store.replicas().await.unwrap().contains(&own);
    until("its lease is renewed", PATIENCE, alive).await;
    let revoke = format!("/v1/api-tokens/{}", ada.token_id);
    assert_eq!(a.delete(&revoke, Some("*")).await, 204);
    let row = ("H17", "revoked → over at a replica that drains", BAR);
    measured(row, OVER, seat.over()).await;
    assert_eq!(store.audit_abandoned().await.unwrap(), []);
    opened.close(200, 1, 1);
    drop(running);
    b.leave().await;
    assert!(!store.replicas().await.unwrap().contains(&own));
    assert_eq!(store.audit_open().await.unwrap(), []);
    a.stop().await;
}

/// What runs by something that stays goes on, whatever else is revoked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_revoked_goes_on() {
    let ([a, b], _) = TestHub::replicas("replicas-stays").await;
    let (ada, bob) = (granted(&a, "ada").await, granted(&a, "bob").await);
    let stays = b.hub.requests.enter(ada, b.hub.requests.now());
    let ends = b.hub.requests.enter(bob.clone(), b.hub.requests.now());
    let path = format!("/v1/api-tokens/{}", bob.token_id);
    assert_eq!(a.delete(&path, Some("*")).await, 204);
    assert!(timeout(OVER, ends.over()).await.is_ok());
    assert!(timeout(STAYS, stays.over()).await.is_err());
    end([a, b]).await;
}

/// H17: a group that one user is not in any more ends what that user runs by it, and nothing of the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_that_one_user_loses_ends_nothing_of_the_others() {
    let ([a, b], _) = TestHub::replicas("replicas-group").await;
    a.add("eu1").await;
    let cluster = a.hub.store.cluster(&eu1()).await.unwrap().unwrap();
    let grant = json!({"subject": "group:sre", "clusters": "all", "groups": ["edit"]});
    let (code, grant) = a.post("/v1/grants", &grant).await;
    assert_eq!(code, 201, "{grant}");
    let by_group = async |name| By {
        cluster_id: Some(cluster.id.clone()),
        grants: vec![grant["id"].as_str().unwrap().to_owned()],
        ..granted(&a, name).await
    };
    let [ada, bob] = [by_group("ada").await, by_group("bob").await];
    let [ends, stays] = [ada, bob].map(|by| b.hub.requests.enter(by, b.hub.requests.now()));
    let mut user = a.hub.store.user("ada").await.unwrap().unwrap();
    user.groups.clear();
    let set = a.hub.store.set_user(user, linesman::clock::now()).await;
    assert_eq!(set.unwrap(), Ended::Done);
    assert!(timeout(OVER, ends.over()).await.is_ok());
    assert!(timeout(STAYS, stays.over()).await.is_err());
    end([a, b]).await;
}

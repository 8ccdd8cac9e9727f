//! Several replicas of one hub: what one changes, the others keep to.

use std::time::Duration;

use futures_util::future::join_all;
use linesman::hub::audit::{Entry, chain};
use linesman::hub::incident::Incident;
use linesman::hub::running::By;
use linesman::hub::safe_heals;
use linesman::hub::store::postgres::Target;
use linesman::hub::store::{Ended, Noted, Records, Share, Store};
use linesman::wire::api::Order;
use linesman::wire::id::ClusterName;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::support::{Agent, TestHub, token_of};
use crate::postgres;
use crate::wait::{measured, until, until_some};

/// H17, L41: what is revoked ends everywhere.
const BAR: &str = "≤ 2 s";
/// Before the lease of a replica is over (15 s): nothing has to wait for that.
const OVER: Duration = Duration::from_secs(10);
/// What stays is looked at for so long when what ends has ended.
const STAYS: Duration = Duration::from_secs(2);
/// For what has no bar of its own.
const PATIENCE: Duration = Duration::from_secs(30);

fn eu1() -> ClusterName {
    "eu1".parse().unwrap()
}

fn leads(hub: &TestHub) -> bool {
    hub.hub.replica.as_ref().unwrap().leads()
}

async fn verified(hub: &TestHub) -> usize {
    let rows = hub.hub.store.audit(0, None, 10_000).await.unwrap();
    let genesis = chain::genesis(&hub.hub.id).hash;
    assert_eq!(chain::verify(genesis, 0, &rows), Ok(()));
    rows.len()
}

async fn end([a, b]: [TestHub; 2]) {
    a.leave().await;
    b.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_share_a_hub_and_one_that_is_alone_does_not() {
    let ([a, b], url) = TestHub::replicas("replicas-share").await;
    assert_eq!((&a.hub.id, &a.admin), (&b.hub.id, &b.admin));
    assert_eq!(a.hub.reference(), b.hub.reference());
    let live = a.hub.store.replicas().await.unwrap();
    let own = |hub: &TestHub| hub.hub.replica.as_ref().unwrap().record.clone();
    assert_eq!(live, [own(&a), own(&b)]);
    // A cluster that one adds, the other knows.
    a.add("eu1").await;
    let (code, view) = b.get("/v1/clusters/eu1").await;
    assert_eq!((code, &view["name"]), (200, &json!("eu1")));
    // Whoever wants the records alone does not get them, by the directory as by the database.
    let target = Target::parse(&url).unwrap();
    let records = Records::Server(target.clone());
    let refused = async |data: &std::path::Path, share| {
        let opened = Store::open(data, &records, share).await;
        opened.err().expect("it is refused").to_string()
    };
    let why = refused(a.data(), Share::Alone).await;
    assert!(
        why.ends_with("another hub runs on this data directory; stop it first"),
        "{why}"
    );
    let other = std::env::temp_dir().join(format!("linesman-replicas-{}", std::process::id()));
    std::fs::create_dir_all(&other).unwrap();
    let why = refused(&other, Share::Alone).await;
    assert_eq!(
        why,
        format!("another hub runs on the database {target}; stop it first")
    );
    let why = Store::open(&other, &Records::File, Share::Several).await;
    let why = why.err().unwrap().to_string();
    assert!(why.contains("--database-url-file"), "{why}");
    let data = a.data().to_owned();
    a.leave().await;
    assert_eq!(b.hub.store.replicas().await.unwrap(), [own(&b)]);
    b.leave().await;
    // And the other way round.
    // The pools let go of their connections in the background.
    let open = async || Store::open(&data, &records, Share::Alone).await;
    let alone = until_some("the records are free", PATIENCE, open).await;
    let why = refused(&other, Share::Several).await;
    assert_eq!(
        why,
        format!(
            "a hub that is alone runs on the database {target}; stop it first, or start it with --peer-listen as well"
        )
    );
    drop(alone);
    std::fs::remove_dir_all(other).unwrap();
    std::fs::remove_dir_all(data).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chain_that_two_replicas_write_at_once_holds() {
    let ([a, b], _) = TestHub::replicas("replicas-chain").await;
    let entry = |n: usize| Entry {
        actor: format!("user:{n}"),
        action: "test".to_owned(),
        ..Entry::default()
    };
    let write = async |hub: &TestHub| {
        for round in 0..10 {
            let opened = join_all((0..20).map(|n| hub.hub.audit.open(entry(round * 20 + n)))).await;
            for opened in opened {
                opened.unwrap().close(200, 1, 1);
            }
        }
    };
    tokio::join!(write(&a), write(&b));
    let ended = async || a.hub.store.audit_open().await.unwrap().is_empty();
    until("every request has its end", PATIENCE, ended).await;
    assert!(verified(&b).await >= 800);
    for hub in [&a, &b] {
        hub.hub.audit.anchor().await.unwrap();
    }
    end([a, b]).await;
}

/// What a replica that starts finds open is a running request of another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_replica_does_now_is_not_interrupted() {
    let ([a, b], _) = TestHub::replicas("replicas-open").await;
    let opened = a.hub.audit.open(Entry::default()).await.unwrap();
    let data = b.data().to_owned();
    b.leave().await;
    let b = TestHub::open("replicas-open", data).await;
    let open = b.hub.store.audit_open().await.unwrap();
    assert_eq!(
        open.iter().map(|r| r.seq).collect::<Vec<_>>(),
        [opened.seq()]
    );
    assert_eq!(b.hub.store.audit_abandoned().await.unwrap(), []);
    // It is forgotten: whoever leads closes what it left, and its own late close is left out.
    let id = a.hub.replica.as_ref().unwrap().record.id.clone();
    b.hub.store.leave_replica(&id).await.unwrap();
    let abandoned = b.hub.store.audit_abandoned().await.unwrap();
    assert_eq!(abandoned, open);
    b.hub.audit.interrupt(abandoned).await.unwrap();
    opened.close(200, 1, 1);
    a.hub.audit.event(Entry::default()).await.unwrap();
    let rows = b.hub.store.audit(0, None, 1_000).await.unwrap();
    let closes = rows.iter().filter(|r| r.opened == Some(open[0].seq));
    let closes: Vec<_> = closes.map(|r| r.reason.clone()).collect();
    assert_eq!(closes, [Some("interrupted: the hub ended".to_owned())]);
    verified(&b).await;
    end([a, b]).await;
}

/// H54
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_replica_leads_and_another_one_when_it_dies() {
    let ([a, b], _) = TestHub::replicas("replicas-leader").await;
    until("one leads", PATIENCE, async || leads(&a) || leads(&b)).await;
    assert!(!(leads(&a) && leads(&b)));
    let (leading, other) = if leads(&a) { (a, b) } else { (b, a) };
    let data = other.data().to_owned();
    leading.die().await;
    let row = ("H54", "leader killed → another one leads", "≤ 20 s");
    let leads = until("the other leads", PATIENCE, async || leads(&other));
    measured(row, PATIENCE, leads).await;
    other.leave().await;
    std::fs::remove_dir_all(data).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_lock_breaks_leads_again_or_no_longer() {
    let ([a, b], url) = TestHub::replicas("replicas-lock").await;
    until("one leads", PATIENCE, async || leads(&a) || leads(&b)).await;
    let cut = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND pid <> pg_backend_pid()
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    postgres::execute(&url, cut).await;
    // Two may believe so for a look, not longer.
    let has = async |hub: &TestHub| hub.hub.store.leads().await.unwrap_or_default();
    until("who leads has the lock", PATIENCE, async || {
        let has = (has(&a).await, has(&b).await);
        has.0 != has.1 && has == (leads(&a), leads(&b))
    })
    .await;
    // Connections that broke with it are made anew, and with them the shared lock.
    until("both are ready", PATIENCE, async || {
        a.hub.store.check().await.is_ok() && b.hub.store.check().await.is_ok()
    })
    .await;
    end([a, b]).await;
}

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

/// L41, H17: orders of one replica reach agents that listen at another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_hear_of_changes_wherever_they_listen() {
    let ([a, b], _) = TestHub::replicas("replicas-orders").await;
    a.add("eu1").await;
    let mut orders = b.hub.orders.subscribe(&eu1(), None).unwrap();
    let mut next = async |wanted: &str| {
        let within = async {
            loop {
                let order = orders.recv().await.unwrap();
                let text = serde_json::to_string(&order).unwrap();
                if text.contains(wanted) {
                    return order;
                }
            }
        };
        let what = format!("changed → order with {wanted:?} at another replica");
        measured(("L41", &what, BAR), OVER, within).await
    };
    let pause = json!({"seconds": 600, "reason": "work"});
    let (code, paused) = a.post("/v1/clusters/eu1/pause", &pause).await;
    assert_eq!(code, 200, "{paused}");
    next("ssignment").await;
    let registry = json!({"registry": "mirror.example.org"});
    let (code, set) = a
        .call_as(
            &a.admin,
            ("PUT", "/v1/hub/image-registry"),
            &[("if-match", "*")],
            &registry,
        )
        .await;
    if code < 300 {
        next("ssignment").await;
    } else {
        panic!("{set}");
    }
    linesman::hub::replica::follow::pushed(&a.hub, "abc123", Some(&[eu1()].into())).await;
    let push = next("abc123").await;
    assert_eq!(
        push,
        Order::CatalogHead {
            revision: "abc123".to_owned()
        }
    );
    assert_eq!(a.delete("/v1/clusters/eu1", Some("*")).await, 204);
    assert_eq!(next("emoved").await, Order::Removed);
    end([a, b]).await;
}

/// L41: whoever has the former key does not listen on at a replica that had no part in its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_orders_of_a_key_that_is_replaced_at_one_replica_end_at_another() {
    let ([a, b], _) = TestHub::replicas("replicas-former").await;
    let token = a.add("eu1").await;
    let (old, new) = (Agent::new(1), Agent::new(2));
    assert_eq!(old.join(&a, "eu1", &token).await.0, 200);
    let call = a.call("GET", "/v1/clusters/eu1/orders", "");
    let mut orders = call.stream(&old.identity).await;
    assert!(orders.chunk().await.unwrap().is_some());
    let (code, answer) = b.post("/v1/clusters/eu1/join-tokens", &json!({})).await;
    assert_eq!(code, 201, "{answer}");
    let ended = async {
        let joined = new.join(&b, "eu1", &token_of(&answer)).await;
        assert_eq!(joined.0, 200, "{}", joined.1);
        while orders.chunk().await.is_ok_and(|chunk| chunk.is_some()) {}
    };
    let what = "key replaced → its orders by HTTPS at another replica over";
    measured(("L41", what, BAR), OVER, ended).await;
    // The key that took its place listens there.
    let mut orders = call.stream(&new.identity).await;
    assert!(orders.chunk().await.unwrap().is_some());
    end([a, b]).await;
}

/// What all clusters are told is the same at each replica: the Git host's keys, and what holds agents back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_git_hosts_keys_and_an_incident_are_the_same_everywhere() {
    let ([a, b], _) = TestHub::replicas("replicas-common").await;
    until("one leads", PATIENCE, async || leads(&a) || leads(&b)).await;
    let before = a.hub.git_keys.served();
    assert_eq!(b.hub.git_keys.served(), before);
    // Begun at either, gone on with by the one that leads: no cluster has to be waited for.
    let path = "/v1/githosts/builtin/rotate-host-key";
    let (code, view) = b.post(path, &json!({"now": false})).await;
    assert_eq!(code, 200, "{view}");
    until("each has the new key", PATIENCE, async || {
        [&a, &b].iter().all(|hub| {
            let keys = &hub.hub.git_keys;
            let trusted = keys.trusted();
            keys.served() != before && trusted.len() == 1 && trusted[0].key == keys.served()
        })
    })
    .await;
    assert_eq!(a.hub.git_keys.served(), b.hub.git_keys.served());
    let (leading, other) = if leads(&a) { (&a, &b) } else { (&b, &a) };
    let now = linesman::clock::now().truncate_to_millisecond();
    let incident = Incident {
        class: "BadImage".to_owned(),
        clusters: 8,
        fleet: 10,
        since: now,
        until: now + time::Duration::minutes(10),
    };
    // As one that is gone left it: the one that leads goes on with it, and ends it.
    let (text, store) = (incident.text(), &leading.hub.store);
    store.note(Noted::Incident, Some(text)).await.unwrap();
    let over = incident.until;
    for (at, standing) in [(now, Some(incident)), (over, None)] {
        safe_heals::look(&leading.hub, at).await;
        assert_eq!(*leading.hub.incident.borrow(), standing);
        until("the other holds back, too", PATIENCE, async || {
            *other.hub.incident.borrow() == standing
        })
        .await;
    }
    assert_eq!(store.noted(Noted::Incident).await.unwrap(), None);
    end([a, b]).await;
}

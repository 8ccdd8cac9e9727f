//! Several replicas of one hub: what one changes, the others keep to.

use std::time::Duration;

use futures_util::future::join_all;
use linesman::hub::audit::{Entry, chain};
use linesman::hub::incident::Incident;
use linesman::hub::safe_heals;
use linesman::hub::store::postgres::Target;
use linesman::hub::store::{Noted, Records, Replica, Share, Store};
use linesman::wire::api::Order;
use linesman::wire::id::ClusterName;
use serde_json::json;

use super::support::{Agent, TestHub, token_of};
use crate::postgres;
use crate::wait::{measured, until, until_some};

mod revoked;
mod taken_over;

/// H17, L41: what is revoked ends everywhere.
const BAR: &str = "≤ 2 s";
/// Before the lease of a replica is over (15 s): nothing has to wait for that.
const OVER: Duration = Duration::from_secs(10);
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

/// Agents were given another address by turns, and nobody was told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_with_flags_that_do_not_fit_are_told_by_the_doctor() {
    let (both, _) = TestHub::replicas("replicas-flags").await;
    let look = async || {
        let (_, checks) = both[0].get("/v1/hub/checks").await;
        let checks = checks.as_array().unwrap().clone();
        let own = checks.into_iter().find(|check| check["name"] == "replicas");
        let own = own.expect("replicas are looked at");
        (own["ok"].clone(), own["found"].clone())
    };
    let store = &both[0].hub.store;
    until_some("both say how they are reached", PATIENCE, async || {
        let all = store.reaches().await.unwrap();
        let said = all.iter().filter(|reach| !reach.urls.is_empty()).count();
        (said == 2).then_some(()).ok_or("not yet")
    })
    .await;
    assert_eq!(look().await, (json!(true), json!("2 live")));
    let first = both[0].hub.replica.as_ref().unwrap().record.clone();
    let slip = Replica {
        id: "slip".to_owned(),
        ..first.clone()
    };
    store.renew_replica(&slip, PATIENCE).await.unwrap();
    let urls = "https://other ssh://git@other";
    store.tell_urls("slip", urls).await.unwrap();
    let (ok, found) = look().await;
    let found = found.as_str().unwrap();
    assert_eq!(ok, json!(false));
    let twice = format!("several replicas have --peer-url {}", first.peer);
    assert!(found.contains(urls) && found.ends_with(&twice), "{found}");
    store.leave_replica("slip").await.unwrap();
    end(both).await;
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
    postgres::cut_locks(&url).await;
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

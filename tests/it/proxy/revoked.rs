//! What is taken away at one replica of a hub ends what runs by it at the others, which learn of it from the records alone.

use std::time::Duration;

use http_body_util::BodyExt as _;
use linesman::clock;
use linesman::hub::Hub;
use linesman::hub::access::{Clusters, Grant};
use linesman::hub::store::{KeyKind, Revision};
use linesman::keys::KeyPair;
use linesman::wire::api::Order;
use linesman::wire::report::{Condition, ConditionType, Status};
use tokio::sync::watch;
use tokio::time::timeout;

use super::apiserver::ApiServer;
use super::world::{PATIENCE, World, get, held, identity, name, readopt};
use crate::wait::{measured, until, until_some};

/// H17, L41: on each replica.
const BAR: &str = "≤ 2 s";

/// Two, of which the first has the line, and the second knows it.
async fn two(server: &ApiServer) -> [World; 2] {
    let [mut a, b] = World::replicas().await;
    a.agent(server).await;
    let located = async {
        while b.hub.store.line_of(&name()).await.unwrap().is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, located)
        .await
        .expect("it is in the records");
    [a, b]
}

/// H17
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_at_one_replica_ends_with_the_token_that_another_one_revokes() {
    let server = ApiServer::start().await;
    let [a, b] = two(&server).await;
    let mut body = b.send(get("/api/v1/pods?watch=1")).await.into_body();
    server.event("event\n");
    let frame = timeout(PATIENCE, body.frame()).await.unwrap();
    assert_eq!(frame.unwrap().unwrap().into_data().unwrap(), "event\n");
    let token = b.token.split('.').nth(1).unwrap();
    let ended = async {
        let revoked = a.hub.store.revoke_api_token(token, clock::now());
        revoked.await.unwrap();
        while let Some(Ok(_)) = body.frame().await {}
    };
    let row = ("H17", "token revoked → watch at another replica over", BAR);
    measured(row, PATIENCE, ended).await;
    server.no_watches().await;
    assert_eq!(b.send(get("/api/v1/pods")).await.status(), 401);
}

/// H17: a grant that chooses clusters by a label ends with the label, at each replica.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_at_one_replica_ends_with_the_label_that_another_one_takes_away() {
    let server = ApiServer::start().await;
    let [a, b] = two(&server).await;
    let cluster = b.hub.store.cluster(&name()).await.unwrap().unwrap();
    let labelled = [("env".to_owned(), "prod".to_owned())].into();
    let relabel = a
        .hub
        .store
        .relabel(cluster.revision(), &labelled, clock::now());
    assert!(relabel.await.unwrap());
    // The only grant there is is for clusters with the label from now on.
    for grant in a.hub.store.grants(None, 100).await.unwrap() {
        let by_label = Grant {
            id: format!("{}-by-label", grant.id),
            clusters: Clusters::Labelled("env=prod".parse().unwrap()),
            ..grant.clone()
        };
        let added = a.hub.store.add_grant(by_label, None, clock::now());
        added.await.unwrap();
        let seen = Revision {
            id: &grant.id,
            rev: grant.rev,
        };
        let revoked = a.hub.store.revoke_grant(seen, "admin", clock::now());
        revoked.await.unwrap();
    }
    let watch = async || {
        let answer = b.send(get("/api/v1/pods?watch=1")).await;
        match answer.status().as_u16() {
            200 => Ok(answer.into_body()),
            other => Err(other),
        }
    };
    let mut body = until_some("the label lets in", PATIENCE, watch).await;
    server.event("event\n");
    let frame = timeout(PATIENCE, body.frame()).await.unwrap();
    assert_eq!(frame.unwrap().unwrap().into_data().unwrap(), "event\n");
    let now = b.hub.store.cluster(&name()).await.unwrap().unwrap();
    let ended = async {
        let store = &a.hub.store;
        let relabel = store.relabel(now.revision(), &cluster.labels, clock::now());
        assert!(relabel.await.unwrap());
        while let Some(Ok(_)) = body.frame().await {}
    };
    let row = ("H17", "label removed → watch at another replica over", BAR);
    measured(row, PATIENCE, ended).await;
    server.no_watches().await;
    assert_eq!(b.send(get("/api/v1/pods")).await.status(), 403);
}

/// L41
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_one_replica_removes_loses_its_line_at_another() {
    let server = ApiServer::start().await;
    let [a, b] = two(&server).await;
    assert!(a.hub.tunnels.view(&name()).up.is_some());
    let closed = async {
        let removed = b.hub.store.remove_cluster(&b.cluster_id, clock::now());
        assert!(removed.await.unwrap().is_some());
        while a.hub.tunnels.view(&name()).up.is_some() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let row = ("L41", "cluster removed → line at another replica over", BAR);
    measured(row, PATIENCE, closed).await;
    assert_eq!(b.hub.store.line_of(&name()).await.unwrap(), None);
}

/// H17, L41: line, requests on it from any replica, and the next handshake.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_one_replica_revokes_loses_its_line_at_another() {
    let server = ApiServer::start().await;
    let [a, b] = two(&server).await;
    let mut body = b.send(get("/api/v1/pods?watch=1")).await.into_body();
    server.event("event\n");
    let frame = timeout(PATIENCE, body.frame()).await.unwrap();
    assert_eq!(frame.unwrap().unwrap().into_data().unwrap(), "event\n");
    let condition = Condition {
        kind: ConditionType::IdentityRevoked,
        status: Status::True,
        reason: "Revoked".to_owned(),
        message: String::new(),
        since: clock::rfc3339(clock::now()),
    };
    let closed = async {
        let store = &b.hub.store;
        let ended = store.revoke_cluster(&b.cluster_id, condition, clock::now());
        assert_eq!(ended.await.unwrap().len(), 2);
        while a.hub.tunnels.view(&name()).up.is_some() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        while let Some(Ok(_)) = body.frame().await {}
    };
    let row = ("L41", "cluster revoked → line at another replica over", BAR);
    measured(row, PATIENCE, closed).await;
    assert_eq!(b.hub.store.line_of(&name()).await.unwrap(), None);
    let refused = async {
        while a
            .hub
            .store
            .audit_tail(Some("eu1"), 50)
            .await
            .unwrap()
            .iter()
            .all(|row| {
                row.reason
                    .as_deref()
                    .is_none_or(|why| !why.contains("linesman cluster readopt eu1"))
            })
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(
        timeout(PATIENCE, refused).await.is_ok(),
        "the next line is not refused on record"
    );
    assert!(a.hub.tunnels.view(&name()).up.is_none());
}

/// A watch at the replica, which an event has come over.
async fn watching(server: &ApiServer, at: &World) -> hyper::body::Incoming {
    let mut body = at.send(get("/api/v1/pods?watch=1")).await.into_body();
    server.event("event\n");
    let frame = timeout(PATIENCE, body.frame()).await.unwrap();
    assert_eq!(frame.unwrap().unwrap().into_data().unwrap(), "event\n");
    body
}

/// Until the replica has no line any more, and the watch is over.
async fn over(at: &World, body: &mut hyper::body::Incoming) {
    while at.hub.tunnels.view(&name()).up.is_some() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    while let Some(Ok(_)) = body.frame().await {}
}

fn next() -> KeyPair {
    KeyPair::from_seed(&[12; 32])
}

/// How another key takes the place of the cluster's own, none of which the agent had a part in.
#[derive(Debug, Clone, Copy)]
enum How {
    Joined,
    Recovered,
    Retired,
}

async fn replace(hub: &Hub, cluster_id: &str, how: How) {
    let (store, now) = (&hub.store, clock::now());
    match how {
        How::Joined => readopt(hub, (&name(), cluster_id), &next()).await,
        How::Recovered => {
            let keys = store.cluster_keys(cluster_id).await.unwrap();
            let mut deploy = keys.into_iter().filter(|key| key.kind == KeyKind::Deploy);
            let deploy = deploy.next().unwrap();
            let ended = store.recover_identity(&deploy, next().public(), now);
            assert_eq!(ended.await.unwrap().unwrap().len(), 1);
        }
        How::Retired => {
            let added = store.add_identity(cluster_id, next().public(), now);
            assert!(added.await.unwrap().is_some());
            let former = identity().public().fingerprint();
            assert!(store.end_retired(&former, now).await.unwrap());
        }
    }
}

/// L41: the line of a former key ends with it, and what runs on it, at a replica that had no part in that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_replaced_at_one_replica_loses_its_line_at_another() {
    for how in [How::Joined, How::Recovered, How::Retired] {
        let server = ApiServer::start().await;
        let [a, b] = two(&server).await;
        let mut body = watching(&server, &b).await;
        let closed = async {
            replace(&b.hub, &b.cluster_id, how).await;
            over(&a, &mut body).await;
        };
        let what = format!("key replaced ({how:?}) → its line at another replica over");
        measured(("L41", &what, BAR), PATIENCE, closed).await;
        server.no_watches().await;
    }
}

/// L41: nor does it go on for the minutes that an agent has which moves on by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_ends_where_another_process_has_the_next_key_at_another_replica() {
    let server = ApiServer::start().await;
    let [mut a, b] = two(&server).await;
    let mut body = watching(&server, &a).await;
    let store = &b.hub.store;
    let added = store.add_identity(&b.cluster_id, next().public(), clock::now());
    assert!(added.await.unwrap().is_some());
    a.to.send_replace(b.https);
    let (_keys, by) = watch::channel(held(next()));
    let closed = async {
        a.agent_by(&server, by).await;
        over(&a, &mut body).await;
    };
    let what = "next key in use → former line at another replica over";
    measured(("L41", what, BAR), PATIENCE, closed).await;
    b.has_line(true).await;
}

/// H16: an agent that moves on to its next key, and to another replica with that, drops nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_runs_goes_on_where_the_agent_itself_moves_on_to_its_next_key() {
    let server = ApiServer::start().await;
    let [mut a, b] = World::replicas().await;
    let (keys, by) = watch::channel(held(identity()));
    a.agent_by(&server, by).await;
    a.has_line(true).await;
    let mut body = watching(&server, &a).await;
    let mut orders = a.hub.orders.subscribe(&name(), None).unwrap();
    let store = &b.hub.store;
    let added = store.add_identity(&b.cluster_id, next().public(), clock::now());
    assert!(added.await.unwrap().is_some());
    a.to.send_replace(b.https);
    keys.send_modify(|keys| keys.identity = next());
    b.has_line(true).await;
    let former = identity().public().fingerprint();
    until("the former key has ended", PATIENCE, async || {
        let ended = store.ended_keys(vec![former.clone()]).await.unwrap();
        ended == [(former.clone(), true)]
    })
    .await;
    // What is changed behind that, the other replica tells when it has looked at the keys.
    let (id, now) = (&b.cluster_id, clock::now());
    let changed = store.assignment_revision(id, "another", now).await.unwrap();
    let told = |order| matches!(order, Order::Assignment { revision: at } if at >= changed);
    let seen = async { while !told(orders.recv().await.unwrap()) {} };
    timeout(PATIENCE, seen).await.expect("it is seen");
    until("the former line takes no more", PATIENCE, async || {
        a.hub.tunnels.get(&name()).is_none()
    })
    .await;
    for world in [&a, &b] {
        assert_eq!(world.send(get("/api/v1/pods")).await.status(), 200);
    }
    server.event("more\n");
    let frame = timeout(PATIENCE, body.frame()).await.unwrap();
    assert_eq!(frame.unwrap().unwrap().into_data().unwrap(), "more\n");
}

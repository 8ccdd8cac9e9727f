//! A line that goes from one replica to another, and what is told of one that ended there.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use linesman::clock;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::found;
use crate::proxy::apiserver::ApiServer;
use crate::proxy::status;
use crate::proxy::world::{Door, PATIENCE, World, get, name, post};
use crate::wait::until;

/// L19, L25, L41: the newest line wins wherever it is, and the one before gets nothing more, though it is up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_that_moves_between_replicas_is_never_looked_for_where_it_was() {
    let [mut a, b] = World::replicas().await;
    let mut before: Option<ApiServer> = None;
    for turn in 0..6 {
        let owner = if turn % 2 == 0 { &a.hub } else { &b.hub }.clone();
        a.to.send_replace(if turn % 2 == 0 { a.https } else { b.https });
        let server = ApiServer::start().await;
        // Another process of the agent; the one before does not know yet.
        let epoch = a.hub.store.cluster(&name()).await.unwrap().unwrap().epoch;
        a.agent_at(&server, &owner).await;
        let told = async {
            loop {
                let located = b.hub.store.line_of(&name()).await.unwrap();
                if located.is_some_and(|located| located.line.epoch > epoch) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(PATIENCE, told).await.unwrap();
        let asked = before.as_ref().map_or(0, |server| server.seen().len());
        for n in 0..5 {
            for world in [&a, &b] {
                let written = world.send(post("/api/v1/namespaces/a/echo", "x")).await;
                assert_eq!(written.status(), 201, "turn {turn}");
                assert_eq!(world.send(get("/api/v1/pods")).await.status(), 200);
            }
            assert_eq!(server.seen().len(), 4 * (n + 1), "turn {turn}");
        }
        // The one before is told: it takes no more streams.
        let other = if turn % 2 == 0 { &b } else { &a };
        other.has_line(false).await;
        if let Some(before) = before.replace(server) {
            assert_eq!(before.seen().len(), asked, "turn {turn}: the old line");
        }
    }
    let took = async {
        let rows = a.hub.store.audit(0, None, 10_000).await.unwrap();
        rows.iter()
            .filter(|row| row.action == "line.takeover")
            .count()
    };
    assert_eq!(took.await, 5);
}

/// L13, L16: a replica that stops costs a request the time in which the agent finds the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_waits_for_a_line_that_comes_from_another_replica() {
    let server = ApiServer::start().await;
    let [mut a, b] = World::replicas().await;
    a.to.send_replace(b.https);
    a.agent_at(&server, &b.hub.clone()).await;
    assert_eq!(a.send(get("/api/v1/pods")).await.status(), 200);
    a.to.send_replace(a.https);
    let shut = Door {
        shut: true,
        cuts: 1,
    };
    a.door.send_replace(shut);
    let asking = a.send(get("/api/v1/pods"));
    let opening = async {
        let parked = async {
            while a.hub.tunnels.parked(&name()) == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, parked).await.expect("it waits");
        a.door.send_replace(Door {
            shut: false,
            cuts: 1,
        });
    };
    let (answered, ()) = tokio::join!(asking, opening);
    assert_eq!(answered.status(), 200);
}

/// What is refused to a request that would have to wait for a line, and waits no longer.
async fn offline(world: &World) -> String {
    let (name, moment) = (name(), Duration::from_millis(1));
    let wait = world.hub.tunnels.wait(&name, None, moment);
    assert!(wait.await.is_err());
    let response = world.send(get("/api/v1/pods")).await;
    assert_eq!(response.status(), 503);
    let body = status(response).await;
    let what = &body["details"]["causes"][0]["message"];
    what.as_str().unwrap().to_owned()
}

/// As the first admin sees it.
async fn shown(world: &World, path: &str) -> Value {
    let bearer = format!("Bearer {}", world.admin());
    let request = Request::get(path).header("authorization", bearer);
    let response = world.send(request.body(Bytes::new()).unwrap()).await;
    status(response).await
}

/// L11, L19: the line was here long before it was there, and ended there now.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_outage_is_not_told_for_that_of_a_line_at_another_replica() {
    moved_and_ended(true).await;
}

/// L11, L19: the same, where nobody asked here for the cluster while its line was there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_outage_is_not_told_for_that_of_a_line_that_was_never_asked_for() {
    moved_and_ended(false).await;
}

/// `asked`: there was a request at the first replica for the line at the other one.
async fn moved_and_ended(asked: bool) {
    let server = ApiServer::start().await;
    let [mut a, b] = World::replicas().await;
    let name = name();
    let door = |shut, cuts| Door { shut, cuts };
    a.agent(&server).await;
    a.door.send_replace(door(true, 1));
    until("its line here has ended", PATIENCE, async || {
        a.hub.tunnels.view(&name).up.is_none()
    })
    .await;
    a.to.send_replace(b.https);
    a.door.send_replace(door(false, 2));
    b.has_line(true).await;
    found(&a).await;
    let since = clock::rfc3339(clock::now());
    if asked {
        assert_eq!(a.send(get("/api/v1/pods")).await.status(), 200);
    }
    a.door.send_replace(door(true, 3));
    until("its line there has ended", PATIENCE, async || {
        let known = a.hub.store.line_of(&name).await.unwrap();
        b.hub.tunnels.view(&name).up.is_none() && known.is_none()
    })
    .await;

    // Where it ended, time and cause are known.
    let ended = b.hub.tunnels.view(&name);
    let at = clock::rfc3339(ended.down_since.unwrap());
    let cause = ended.last_cause.unwrap();
    assert!(since <= at, "{since} {at}");
    let told = format!("cluster eu1 is offline since {at}: {cause}");
    assert_eq!(offline(&b).await, told);
    let line = shown(&b, "/v1/clusters/eu1/line").await;
    let outage = (&line["since"], &line["lastCause"]);
    assert_eq!(outage, (&json!(at), &json!(cause)));

    // Elsewhere it is known when the cluster was heard.
    let now = || clock::rfc3339(clock::now());
    let told = offline(&a).await;
    let heard = told.strip_prefix("cluster eu1 is offline, last heard at ");
    let heard = heard.unwrap_or_else(|| panic!("{told}"));
    // How long the other replica heard it is on record in a while, where its line was not seen from here.
    assert!(!asked || *since <= *heard, "{since} {heard}");
    assert!(*heard <= *now(), "{heard}");
    let line = shown(&a, "/v1/clusters/eu1/line").await;
    let outage = (&line["up"], &line["lastCause"]);
    assert_eq!(outage, (&json!(false), &Value::Null));
    let cluster = shown(&a, "/v1/clusters/eu1").await;
    let conditions = cluster["conditions"].as_array().unwrap();
    let up = conditions.iter().find(|one| one["type"] == json!("LineUp"));
    let up = up.expect("it has joined");
    let message = "it ended at another replica of the hub; see the agent's log";
    assert_eq!(up["message"], message);
    for seen in [&line["since"], &cluster["line"]["since"]] {
        let at = seen.as_str().unwrap_or(&since);
        assert!(!asked || seen.is_string(), "{seen}");
        assert!(*since <= *at && *at <= *now(), "{since} {at}");
    }
    let seen = up["since"].as_str().unwrap();
    assert!(!asked || *since <= *seen, "{since} {seen}");
    assert!(*seen <= *now(), "{seen}");
}

/// L16: a replica that stops refuses nobody: what comes meanwhile finds the agent's next line.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_stops_refuses_no_request_at_the_others() {
    let server = ApiServer::start().await;
    let [mut a, mut b] = World::replicas().await;
    a.to.send_replace(b.https);
    a.agent_at(&server, &b.hub.clone()).await;
    assert_eq!(a.send(get("/api/v1/pods")).await.status(), 200);
    a.to.send_replace(a.https);
    let stopping = b.stop();
    let asking = async {
        for n in 0..40 {
            assert_eq!(a.send(get("/api/v1/pods")).await.status(), 200, "{n}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::join!(stopping, asking);
    a.has_line(true).await;
}

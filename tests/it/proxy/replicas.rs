//! Requests at one replica of a hub for a cluster whose line is at another: the same user's request, the same answer.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt as _;
use linesman::clock;
use linesman::hub::peers::PeerError;
use linesman::hub::store::{LineRow, Replica};
use linesman::wire::frame::{Class, Code, Kind};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::timeout;

use super::apiserver::ApiServer;
use super::world::{Door, PATIENCE, World, get, name, post};
use super::{status, text};
use crate::wait::{measured, until};

/// Waits until a request at the replica finds the line: the other one said in the records that it has it.
async fn found(world: &World) {
    let located = async {
        while world.hub.store.line_of(&name()).await.unwrap().is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, located)
        .await
        .expect("it is in the records");
}

/// Two, of which the first has the line.
async fn two(server: &ApiServer) -> [World; 2] {
    let [mut a, b] = World::replicas().await;
    a.agent(server).await;
    found(&b).await;
    [a, b]
}

/// L19, L1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_at_one_replica_crosses_the_line_of_another_as_that_user() {
    let server = ApiServer::start().await;
    let [a, b] = two(&server).await;
    for world in [&b, &a] {
        let response = world.send(get("/api/v1/pods?limit=1&x=%2F&x=")).await;
        assert_eq!(response.status(), 200);
        let id = response.headers()["x-request-id"]
            .to_str()
            .unwrap()
            .to_owned();
        let seen = server.seen().pop().unwrap();
        assert_eq!(seen.target, "/api/v1/pods?limit=1&x=%2F&x=");
        assert_eq!(seen.headers["impersonate-user"], "linesman:ada");
        assert_eq!(seen.headers["impersonate-group"], "linesman:admin");
        assert_eq!(seen.headers["audit-id"], id);
        assert_eq!(seen.headers["x-forwarded-for"], "127.0.0.1");
    }
    let large = Bytes::from(vec![b'x'; 2_500_000]);
    let response = b
        .send(post("/api/v1/namespaces/a/echo", large.clone()))
        .await;
    assert_eq!(response.status(), 201);
    assert!(response.into_body().collect().await.unwrap().to_bytes() == large);
    let refused = b.send(get("/api/v1/forbidden")).await;
    assert_eq!(refused.status(), 403);
}

/// L19, L2, L8: each event comes as it happens, and whoever leaves is heard at the API server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_at_one_replica_streams_and_ends_at_the_api_server() {
    let server = ApiServer::start().await;
    let [_a, b] = two(&server).await;
    let mut body = b.send(get("/api/v1/pods?watch=1")).await.into_body();
    for n in 0..3 {
        server.event(&format!("event {n}\n"));
        let frame = timeout(PATIENCE, body.frame()).await;
        let frame = frame.unwrap().unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), format!("event {n}\n"));
    }
    drop(body);
    let row = ("L8", "user left at another replica → over", "≤ 100 ms");
    measured(row, PATIENCE, server.no_watches()).await;
    assert_eq!(b.send(get("/api/v1/pods")).await.status(), 200);
}

/// L19, L3: a protocol that is switched to, until either end is done with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exec_at_one_replica_is_copied_both_ways() {
    let server = ApiServer::start().await;
    let [_a, b] = two(&server).await;
    let exec = |pod: &str| {
        Request::get(format!(
            "/clusters/eu1/api/v1/namespaces/a/pods/{pod}/exec?command=sh"
        ))
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-protocol", "v5.channel.k8s.io")
        .body(Bytes::new())
        .unwrap()
    };
    let mut response = b.send(exec("x")).await;
    assert_eq!(response.status(), 101);
    let upgraded = hyper::upgrade::on(&mut response).await.unwrap();
    let mut io = hyper_util::rt::TokioIo::new(upgraded);
    for word in ["hello", "again"] {
        io.write_all(word.as_bytes()).await.unwrap();
        let mut back = vec![0; word.len()];
        io.read_exact(&mut back).await.unwrap();
        assert_eq!(back, word.to_uppercase().as_bytes());
    }
    drop(io);
    server.no_watches().await;
    let refused = b.send(exec("none")).await;
    assert_eq!(refused.status(), 404);
    assert_eq!(text(refused).await, super::apiserver::NOT_FOUND);
}

/// L19, L5: what nobody reads is held up at its source, and others pass.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_list_at_one_replica_is_not_taken_in() {
    let server = ApiServer::start().await;
    let [a, b] = two(&server).await;
    let mut body = b.send(get("/api/v1/endless")).await.into_body();
    drop(body.frame().await.unwrap().unwrap());
    let others = async || {
        let beside = b.send(get("/api/v1/pods")).await;
        assert_eq!(beside.status(), 200, "others pass beside it");
    };
    server.settled(others).await;
    // A window of each of the two lines, and what the system takes for a connection; a line that is not held up takes 32 MiB.
    let received = a.hub.tunnels.get(&name()).unwrap().facts().received;
    assert!(received < 16 << 20, "{received} bytes came over the line");
}

/// L9, L11: what is known of the outcome is the same as without the other replica.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_line_at_the_other_replica_repeats_a_get_and_never_a_post() {
    let server = ApiServer::start().await;
    let [a, b] = two(&server).await;
    cut_in_the_midst(&server, &b, &a.door).await;
}

/// L9, L11, L19: what breaks is the line between the replicas. That of the agent is well, and the next one leads to it at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_line_between_replicas_repeats_a_get_and_never_a_post() {
    let server = ApiServer::start().await;
    let between = watch::Sender::new(Door::default());
    let [mut a, b] = World::replicas_behind(&between).await;
    a.agent(&server).await;
    found(&b).await;
    let line = a.hub.tunnels.get(&name()).unwrap();
    cut_in_the_midst(&server, &b, &between).await;
    assert!(line.takes_streams());
}

/// Requests at a replica, whose answers wait when the way through the door is cut.
async fn cut_in_the_midst(server: &ApiServer, at: &World, door: &watch::Sender<Door>) {
    let reading = at.send(get("/api/v1/slow"));
    let writing = at.send(post("/api/v1/namespaces/a/slowly", "x"));
    let cutting = async {
        server.asked_for("/slow", 1).await;
        server.asked_for("/slowly", 1).await;
        let cut = Door {
            shut: false,
            cuts: 1,
        };
        door.send_replace(cut);
        server.asked_for("/slow", 2).await;
        server.release();
    };
    let (read, written, ()) = tokio::join!(reading, writing, cutting);
    assert_eq!(read.status(), 200);
    assert_eq!(written.status(), 502);
    assert!(!written.headers().contains_key("retry-after"));
    let said = text(written).await;
    assert!(said.contains("outcome unknown"), "{said}");
    assert_eq!((server.asked("/slow"), server.asked("/slowly")), (2, 1));
}

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

/// A replica that takes connections and says nothing, as the holder of a cluster's line.
async fn stuck(world: &World, cluster_id: &str) -> (TcpListener, String) {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let replica = Replica {
        id: "stuck".to_owned(),
        peer: address.clone(),
        cert_sha256: [7; 32],
    };
    let lease = Duration::from_mins(5);
    world
        .hub
        .store
        .renew_replica(&replica, lease)
        .await
        .unwrap();
    let line = LineRow {
        cluster_id: cluster_id.to_owned(),
        replica: replica.id,
        epoch: 1000,
        session: String::new(),
        instance: String::new(),
        remote: String::new(),
        since: clock::now(),
        hub_clock: clock::now(),
    };
    assert!(world.hub.store.put_line(&line).await.unwrap());
    (silent, address)
}

/// L19, L11: a replica that is stuck is named, in bounded time, and delays nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stuck_replica_is_named_and_delays_nothing_else() {
    let server = ApiServer::start().await;
    let [_a, b] = two(&server).await;
    let other = b.another("eu2").await;
    let (_silent, address) = stuck(&b, &other).await;
    // By then the replicas know each other.
    assert_eq!(b.send(get("/api/v1/pods")).await.status(), 200);
    let (began, path) = (Instant::now(), "/clusters/eu2/api/v1/pods");
    let asking = b.send(Request::get(path).body(Bytes::new()).unwrap());
    tokio::pin!(asking);
    let mut beside = 0;
    let answered = loop {
        tokio::select! {
            answered = &mut asking => break answered,
            other = b.send(get("/api/v1/pods")) => {
                assert_eq!(other.status(), 200);
                beside += 1;
            }
        }
    };
    let took = began.elapsed();
    // It is dialled for 3 s; who waited for that would have one answer by then.
    assert!(beside > 2, "{beside} answers beside it");
    assert!(took < Duration::from_secs(20), "{took:?}");
    assert_eq!(answered.status(), 503);
    assert_eq!(answered.headers()["retry-after"], "1");
    let body = status(answered).await;
    assert_eq!(body["details"]["causes"][0]["field"], "line");
    let message = body["message"].as_str().unwrap();
    let expected = format!("the replica of the hub that has the line, {address}: ");
    assert!(message.contains(&expected), "{message}");
}

/// L45: whoever asks a replica for a line that is at a third one is sent away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_of_a_replica_goes_one_hop_only() {
    let server = ApiServer::start().await;
    let [mut a, b, c] = World::replicas().await;
    a.agent(&server).await;
    found(&c).await;
    let located = c.hub.store.line_of(&name()).await.unwrap().unwrap();
    let (line, owner) = (located.line, located.peer);
    let peers = c.hub.peers.as_ref().unwrap();
    let third = b.hub.replica.as_ref().unwrap().record.id.clone();
    assert_eq!(owner.id, a.hub.replica.as_ref().unwrap().record.id);
    let name = name();
    let ask = |replica: &str| {
        let (peers, replica, name) = (peers.clone(), replica.to_owned(), name.clone());
        let kind = (Kind::Api, Class::Normal);
        async move {
            let opened = peers.open(&replica, (&name, line.epoch), kind, b"{}").await;
            opened.map(|_| ())
        }
    };
    // Each learns of the others in a second.
    let known = async {
        while matches!(
            ask(&third).await,
            Err(PeerError::Unknown | PeerError::Dial(_))
        ) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, known).await.unwrap();
    match ask(&third).await {
        Err(PeerError::Line(error)) => assert_eq!(error.code, Code::Superseded),
        other => panic!("{other:?}"),
    }
    assert_eq!(server.seen().len(), 0);
}

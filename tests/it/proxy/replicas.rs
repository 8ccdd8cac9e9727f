//! Requests at one replica of a hub for a cluster whose line is at another: the same user's request, the same answer.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt as _;
use linesman::clock;
use linesman::hub::peers::PeerError;
use linesman::hub::store::{LineRow, Replica};
use linesman::wire::frame::{Class, Code, Kind};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::timeout;

use super::apiserver::ApiServer;
use super::world::{Door, PATIENCE, World, get, name, post};
use super::{status, text};
use crate::wait::measured;

mod moved;

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

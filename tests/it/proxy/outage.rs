//! What users meet while a cluster has no line: some outages are worth a moment's patience, others are not.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt as _;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use linesman::agent::link;
use linesman::hub::tunnels::NoLine;
use linesman::wire::frame::Code;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::apiserver::ApiServer;
use super::hub::refusal;
use super::pair::Pair;
use super::world::{Door, PATIENCE, UNWAITED, World, forward, get, link_config, name, not_dialled};
use crate::wait::{measured, until};

const SHUT: Door = Door {
    shut: true,
    cuts: 1,
};

/// An answer, and how long it took.
async fn asked(world: &World) -> (Response<Incoming>, Duration) {
    let since = Instant::now();
    let response = world.send(get("/api/v1/pods")).await;
    (response, since.elapsed())
}

async fn refused_at_once(world: &World, text: &str) {
    let row = ("L11", "request, cluster offline → told", "≤ 200 ms");
    let (response, _) = measured(row, UNWAITED, asked(world)).await;
    assert!(!response.headers().contains_key("retry-after"));
    let (code, hop, message) = refusal(response).await;
    assert_eq!((code, hop.as_str()), (503, "line"), "{message}");
    assert!(message.contains(text), "{message}");
}

/// So many requests wait for the line.
async fn waits_for_it(world: &World, requests: usize) {
    let parked = async || world.hub.tunnels.parked(&name()) >= requests;
    until("they wait for the line", PATIENCE, parked).await;
}

/// Another agent of the cluster, as soon as a request waits for it.
async fn next_agent(world: &World, server: &ApiServer) {
    waits_for_it(world, 1).await;
    other_agent(world, server).await;
}

/// An agent that no stop reaches.
pub(super) async fn other_agent(world: &World, server: &ApiServer) {
    let shared = Pair::shared(server, &world.hub.id, &world.cluster_id, &[]);
    let (_reference, reference) = watch::channel(world.hub.reference());
    let (line, state) = watch::channel(not_dialled());
    let (incoming, streams) = mpsc::channel(64);
    let dial = link::run(
        link_config(reference),
        line,
        incoming,
        CancellationToken::new(),
    );
    tokio::join!(dial, forward(shared, streams, state))
        .0
        .unwrap();
}

/// L16: mostly an agent leaves because the next one comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_wait_for_the_next_agent_when_one_leaves() {
    let server = ApiServer::start().await;
    let mut world = World::new().await;
    let agent = world.agent(&server).await;
    assert_eq!(asked(&world).await.0.status(), 200);
    agent.cancel();
    world.has_line(false).await;
    tokio::select! {
        (response, _) = asked(&world) => assert_eq!(response.status(), 200),
        () = next_agent(&world, &server) => panic!("the agent ended"),
    }
}

/// L13, L16: as many as may wait for the line are served by the next one, all of them at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_requests_that_waited_are_all_served() {
    const PARKED: usize = 100;
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    world.door.send_replace(SHUT);
    world.has_line(false).await;
    let tls = TokioIo::new(world.connect(&[b"h2"]).await);
    let (sender, connection) = http2::handshake(TokioExecutor::new(), tls).await.unwrap();
    let asks = (0..PARKED).map(|_| {
        let request = Request::get("https://localhost/clusters/eu1/api/v1/pods")
            .header("authorization", format!("Bearer {}", world.token));
        let request = request.body(Empty::<Bytes>::new()).unwrap();
        let mut sender = sender.clone();
        async move { sender.send_request(request).await.unwrap().status() }
    });
    let asked = futures_util::future::join_all(asks.collect::<Vec<_>>());
    let opening = async {
        waits_for_it(&world, PARKED).await;
        world.door.send_replace(Door {
            shut: false,
            ..SHUT
        });
    };
    let all = async { tokio::join!(asked, opening).0 };
    let answers = tokio::select! {
        answers = timeout(PATIENCE, all) => answers.expect("they are answered"),
        _ = connection => panic!("the connection ended"),
    };
    assert_eq!(answers, [http::StatusCode::OK; PARKED]);
}

/// L13: where as many wait for the line as may, the next one is told so, and may come again: nothing of it was sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_finds_no_place_to_wait_for_the_line_may_come_again() {
    const PLACES: usize = 100;
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    world.door.send_replace(SHUT);
    world.has_line(false).await;
    let (name, tunnels) = (name(), &world.hub.tunnels);
    let waits = (0..PLACES).map(|_| tunnels.wait(&name, None, PATIENCE));
    let waiting = futures_util::future::join_all(waits.collect::<Vec<_>>());
    let one_more = async {
        waits_for_it(&world, PLACES).await;
        asked(&world).await.0
    };
    let response = tokio::select! {
        response = one_more => response,
        _ = waiting => panic!("they wait no more"),
    };
    assert_eq!(response.headers()["retry-after"], "1");
    let (code, hop, message) = refusal(response).await;
    assert_eq!((code, hop.as_str()), (503, "line"), "{message}");
    let told = "line: the line of cluster eu1 is not there yet, and too many requests wait already; repeat it in some seconds";
    assert!(message.contains(told), "{message}");
}

/// L16: what runs when an agent leaves has the drain time, beside the line of the next one, which takes over nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_runs_on_while_its_agent_drains() {
    let server = ApiServer::start().await;
    let mut world = World::new().await;
    let agent = world.agent(&server).await;
    let watch = world.send(get("/api/v1/pods?watch=1")).await;
    let mut watch = watch.into_body().into_data_stream();
    let mut event = async |text: &str| {
        server.event(text);
        let next = timeout(PATIENCE, watch.next()).await;
        assert_eq!(next.unwrap().unwrap().unwrap(), text.as_bytes());
    };
    event("one").await;
    let before = world.hub.tunnels.get(&name()).unwrap();
    agent.cancel();
    timeout(PATIENCE, before.draining()).await.unwrap();
    event("two").await;
    tokio::select! {
        (response, _) = asked(&world) => assert_eq!(response.status(), 200),
        () = next_agent(&world, &server) => panic!("the agent ended"),
    }
    event("three").await;
    assert!(!before.takes_streams() && before.facts().live == 1);
    let rows = world.hub.store.audit_tail(None, 100).await.unwrap();
    assert!(rows.iter().all(|row| row.action != "line.takeover"));
}

/// L16: what has reached a hub when it stops finds its line.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_stops_serves_what_has_reached_it() {
    let server = ApiServer::start().await;
    let world = World::new().await;
    let last = async {
        world.has_line(true).await;
        let tls = world.connect(&[]).await;
        world.hub.stop.cancel();
        world.send_on(tls, get("/api/v1/pods")).await
    };
    tokio::select! {
        response = last => assert_eq!(response.status(), 200),
        () = other_agent(&world, &server) => panic!("the agent ended"),
    }
}

/// L13
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_wait_for_a_line_that_broke() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    world.door.send_replace(SHUT);
    world.has_line(false).await;
    let opening = async {
        // Only once the request has come.
        waits_for_it(&world, 1).await;
        world.door.send_replace(Door::default());
    };
    let ((response, _), ()) = tokio::join!(asked(&world), opening);
    assert_eq!(response.status(), 200);
}

/// L13: a hub that has just begun has seen no line yet, and its agents are on their way. One that was heard long ago is not waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_wait_for_the_line_that_ended_with_the_hub_before() {
    let server = ApiServer::start().await;
    let world = World::new().await;
    world
        .execute("UPDATE cluster SET last_seen = (strftime('%s', 'now') - 30) * 1000")
        .await;
    tokio::select! {
        (response, _) = asked(&world) => assert_eq!(response.status(), 200),
        () = next_agent(&world, &server) => panic!("the agent ended"),
    }
    let world = World::new().await;
    world
        .execute("UPDATE cluster SET last_seen = (strftime('%s', 'now') - 600) * 1000")
        .await;
    refused_at_once(&world, "cluster eu1 is offline, last heard at").await;
}

/// L11: client-go repeats each of its dozens of discovery calls on `Retry-After`; an outage costs one wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_is_waited_for_once() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    world.door.send_replace(SHUT);
    world.has_line(false).await;
    let (name, patience) = (name(), Duration::from_millis(300));
    let first = world.hub.tunnels.wait(&name, None, patience);
    // Others that wait beside it are let go with it.
    let (first, beside) = tokio::join!(first, asked(&world));
    assert_eq!(first.unwrap_err(), NoLine::InVain);
    assert!(beside.1 < Duration::from_secs(5), "{:?}", beside.1);
    assert_eq!(beside.0.status(), 503);
    refused_at_once(&world, "offline since").await;
    world.door.send_replace(Door::default());
    world.has_line(true).await;
    assert_eq!(asked(&world).await.0.status(), 200);
    // The next outage is a new one.
    world.door.send_replace(SHUT);
    world.has_line(false).await;
    let again = world.hub.tunnels.wait(&name, None, patience);
    assert_eq!(again.await.unwrap_err(), NoLine::InVain);
}

/// L11: what a line that drains is told by is not the outage that there was before it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_that_drains_without_a_successor_is_told_as_one_that_drains() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let (name, tunnels) = (name(), &world.hub.tunnels);
    world.door.send_replace(SHUT);
    until("the line has ended", PATIENCE, async || {
        tunnels.view(&name).up.is_none()
    })
    .await;
    assert!(tunnels.view(&name).last_cause.is_some());
    world.door.send_replace(Door::default());
    world.has_line(true).await;
    // What runs on it keeps it up, and its agent finds no hub for another one.
    let watch = world.send(get("/api/v1/pods?watch=1")).await;
    assert_eq!(watch.status(), 200);
    world.to.send_replace(server.authority().parse().unwrap());
    tunnels.drain(Duration::from_mins(1));
    until("the line drains", PATIENCE, async || {
        tunnels.get(&name).is_none()
    })
    .await;
    let wait = tunnels.wait(&name, None, Duration::from_millis(1));
    assert_eq!(wait.await.unwrap_err(), NoLine::InVain);
    let told = "line: the line of cluster eu1 drains, and the next one is not there yet; repeat it in some seconds";
    refused_at_once(&world, told).await;
    drop(watch);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_breaks_on_a_line_that_holds_is_told_at_once() {
    let mut world = World::new().await;
    let (_stop, mut streams, _state) = world.dial().await;
    let breaking = async {
        let arrived = timeout(PATIENCE, streams.recv()).await.unwrap().unwrap();
        arrived.stream.reset(Code::Cancelled, "the agent gave up");
    };
    let ((response, took), ()) = tokio::join!(asked(&world), breaking);
    let (code, hop, message) = refusal(response).await;
    assert_eq!((code, hop.as_str()), (502, "line"), "{message}");
    assert!(message.contains("the agent gave up"), "{message}");
    assert!(took < Duration::from_secs(5), "{took:?}");
}

//! L16: what runs through a hub that is told to end. It has the drain time and no more; what is cut then does not look complete, and
//! is on record with its end.

use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming as Answer;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{interval, timeout};

use super::access::exec;
use super::apiserver::ApiServer;
use super::outage::other_agent;
use super::world::{PATIENCE, World, get, name};
use crate::wait::until;

const DRAIN: Duration = Duration::from_secs(2);
/// For a replica's agent, which is given three seconds to find another one.
const MOVES: Duration = Duration::from_secs(5);
/// A line ends a second behind the drain time; the rest is for a busy machine.
const LATER: Duration = Duration::from_secs(4);
const TICK: Duration = Duration::from_millis(50);

async fn watch(world: &World) -> Answer {
    let watch = world.send(get("/api/v1/pods?watch=1")).await;
    assert_eq!(watch.status(), 200);
    watch.into_body()
}

/// How long each event came that the API server had.
async fn watched(server: &ApiServer, watch: Answer, since: Instant) -> Duration {
    let (mut watch, mut ticks) = (watch.into_data_stream(), interval(TICK));
    loop {
        ticks.tick().await;
        server.event("event\n");
        let next = timeout(PATIENCE, watch.next()).await;
        match next.expect("it does not fall silent") {
            Some(Ok(event)) => assert_eq!(event, "event\n"),
            Some(Err(_)) => return since.elapsed(),
            None => panic!("it looks complete"),
        }
    }
}

/// How long what was typed came back.
async fn echoed(mut session: TokioIo<Upgraded>, since: Instant) -> Duration {
    let mut ticks = interval(TICK);
    loop {
        ticks.tick().await;
        let mut back = [0; 5];
        let turn = async {
            session.write_all(b"hello").await?;
            session.read_exact(&mut back).await
        };
        let turn = timeout(PATIENCE, turn).await;
        match turn.expect("it does not fall silent") {
            Ok(_) => assert_eq!(&back, b"HELLO"),
            Err(_) => return since.elapsed(),
        }
    }
}

fn as_long(what: &str, lived: Duration, drain: Duration) {
    let due = drain..drain + LATER;
    assert!(due.contains(&lived), "{what} went on for {lived:?}");
}

/// What is on record of watches and sessions: the action and the stage.
async fn record(world: &World) -> Vec<(String, String)> {
    let rows = world.hub.store.audit_tail(None, 100).await.unwrap();
    let kept = rows
        .into_iter()
        .filter(|row| row.action.starts_with("kube."));
    let mut record: Vec<_> = kept.map(|row| (row.action, row.stage)).collect();
    record.sort();
    record
}

/// A whole record of each of these.
fn whole(actions: &[&str]) -> Vec<(String, String)> {
    let stages = |action: &&str| {
        let action = (*action).to_owned();
        ["close", "open"].map(|stage| (action.clone(), stage.to_owned()))
    };
    actions.iter().flat_map(stages).collect()
}

/// L16
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_runs_through_a_hub_that_ends_has_the_drain_time_and_no_more() {
    let server = ApiServer::start().await;
    let world = World::draining(DRAIN).await;
    let users = async {
        world.has_line(true).await;
        let (watch, session) = (watch(&world).await, exec(&world).await);
        let told = Instant::now();
        world.hub.stop.cancel();
        let (events, echoes) = tokio::join!(watched(&server, watch, told), echoed(session, told));
        as_long("the watch", events, DRAIN);
        as_long("the session", echoes, DRAIN);
        server.no_watches().await;
        let over = timeout(PATIENCE, world.over.cancelled());
        over.await.expect("the hub ends");
    };
    tokio::select! {
        () = users => {}
        () = other_agent(&world, &server) => panic!("the agent ended"),
    }
    assert_eq!(record(&world).await, whole(&["kube.exec", "kube.watch"]));
}

/// L16, L48: a session is of no connection that the hub still serves; the hub waits for it all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_outlives_the_drain_has_its_end_on_record() {
    let server = ApiServer::start().await;
    let world = World::draining(DRAIN).await;
    let user = async {
        world.has_line(true).await;
        let session = exec(&world).await;
        let told = Instant::now();
        world.hub.stop.cancel();
        as_long("the session", echoed(session, told).await, DRAIN);
        let over = timeout(PATIENCE, world.over.cancelled());
        over.await.expect("the hub ends");
    };
    tokio::select! {
        () = user => {}
        () = other_agent(&world, &server) => panic!("the agent ended"),
    }
    assert_eq!(record(&world).await, whole(&["kube.exec"]));
}

/// L16, of several replicas: the agent moves to another one at once, and takes nothing along that runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_runs_at_a_replica_that_ends_goes_on_while_its_agent_moves() {
    let server = ApiServer::start().await;
    let [mut a, mut b] = World::replicas_draining(MOVES).await;
    a.to.send_replace(b.https);
    a.agent_at(&server, &b.hub.clone()).await;
    let (watch, session) = (watch(&b).await, exec(&b).await);
    a.to.send_replace(a.https);
    let told = Instant::now();
    let leaves = async {
        a.has_line(true).await;
        let moved = told.elapsed();
        assert_eq!(a.send(get("/api/v1/pods")).await.status(), 200);
        moved
    };
    let (events, echoes, moved, ()) = tokio::join!(
        watched(&server, watch, told),
        echoed(session, told),
        leaves,
        b.stop()
    );
    as_long("the watch", events, MOVES);
    as_long("the session", echoes, MOVES);
    assert!(moved < MOVES, "the agent moved after {moved:?}");
    server.no_watches().await;
    assert_eq!(a.send(get("/api/v1/pods")).await.status(), 200);
}

/// L16: what runs by the line of another replica, which the records had left out for a moment: the line between the two drains without
/// an end since then, and that does not keep the one that asks from ending in time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_between_replicas_that_drains_already_keeps_none_from_ending() {
    let server = ApiServer::start().await;
    let [mut a, mut b] = World::replicas_draining(DRAIN).await;
    a.agent(&server).await;
    let found = async || b.hub.store.line_of(&name()).await.unwrap().is_some();
    until("the line is in the records", PATIENCE, found).await;
    let (watch, session) = (watch(&b).await, exec(&b).await);
    b.hub.peers.as_ref().unwrap().know(Vec::new());
    let told = Instant::now();
    let (events, echoes, stopped) = tokio::join!(
        watched(&server, watch, told),
        echoed(session, told),
        timeout(DRAIN + PATIENCE, b.stop())
    );
    as_long("the watch", events, DRAIN);
    as_long("the session", echoes, DRAIN);
    stopped.expect("the replica ends");
    assert_eq!(record(&a).await, whole(&["kube.exec", "kube.watch"]));
}

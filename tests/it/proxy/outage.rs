//! What users meet while a cluster has no line: some outages are worth a moment's patience, others are not.

use std::time::{Duration, Instant};

use http::Response;
use hyper::body::Incoming;
use linesman::hub::tunnels::NoLine;
use linesman::wire::frame::Code;

use super::apiserver::ApiServer;
use super::hub::refusal;
use super::world::{Door, World, get, name};

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
    let (response, took) = asked(world).await;
    assert!(!response.headers().contains_key("retry-after"));
    let (code, hop, message) = refusal(response).await;
    assert_eq!((code, hop.as_str()), (503, "line"), "{message}");
    assert!(message.contains(text), "{message}");
    assert!(took < Duration::from_millis(200), "{took:?}: {message}");
}

/// L11
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_said_goodbye_is_not_waited_for() {
    let server = ApiServer::start().await;
    let mut world = World::new().await;
    let agent = world.agent(&server).await;
    assert_eq!(asked(&world).await.0.status(), 200);
    agent.cancel();
    world.has_line(false).await;
    refused_at_once(&world, "the process stops").await;
    world.agent(&server).await;
    assert_eq!(asked(&world).await.0.status(), 200);
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
        while world.hub.tunnels.parked(&name()) == 0 {
            tokio::task::yield_now().await;
        }
        world.door.send_replace(Door::default());
    };
    let ((response, _), ()) = tokio::join!(asked(&world), opening);
    assert_eq!(response.status(), 200);
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_breaks_on_a_line_that_holds_is_told_at_once() {
    let mut world = World::new().await;
    let (_stop, mut streams, _state) = world.dial().await;
    let breaking = async {
        let arrived = streams.recv().await.unwrap();
        arrived.stream.reset(Code::Cancelled, "the agent gave up");
    };
    let ((response, took), ()) = tokio::join!(asked(&world), breaking);
    let (code, hop, message) = refusal(response).await;
    assert_eq!((code, hop.as_str()), (502, "line"), "{message}");
    assert!(message.contains("the agent gave up"), "{message}");
    assert!(took < Duration::from_secs(5), "{took:?}");
}

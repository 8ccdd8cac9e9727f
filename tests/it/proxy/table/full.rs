//! L11: the rows for what is full: requests of a user or a cluster, what an agent remembers of them, and what one may name.

use ::http::Request;
use ::http::header::AUTHORIZATION;
use bytes::Bytes;
use http_body_util::Empty;
use hyper_util::rt::{TokioExecutor, TokioIo};
use linesman::agent::forward::INCOMING;
use linesman::agent::gate::policy::Policy;
use linesman::agent::gate::replay::Replay;
use linesman::hub::Bounds;
use linesman::hub::access::Grant;
use linesman::hub::proxy::limits::{MOST_OF_CLUSTER, Requests};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::super::apiserver::ApiServer;
use super::super::pair::Pair;
use super::super::told::{Row, told};
use super::super::world::{PATIENCE, World, get, post};

/// The agent remembers each request for 90 s, and has only so much room for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_can_remember_no_more_requests_lets_none_pass() {
    let server = ApiServer::start().await;
    let mut world = World::new().await;
    let url = format!("http://{}/", server.authority());
    let mut parts = Pair::reaching(&url, &world.hub.id, &world.cluster_id, Policy::default());
    parts.replay = Replay::new(1).into();
    world.agent_of(parts.into()).await;
    assert_eq!(world.send(get("/api/v1/pods")).await.status(), 200);
    let row = Row {
        hop: "agent",
        code: 429,
        reason: "Busy",
        what: "too many requests within 90 s",
        next: "repeat it later",
        after: Some(1),
    };
    for request in [get("/api/v1/pods"), post("/api/v1/pods", "{}")] {
        told(world.send(request).await, row).await;
    }
    assert_eq!(server.seen().len(), 1);
}

/// Nobody is asked to repeat what will not fit the next time either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_more_namespaces_than_a_request_can_name_is_told_so() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let token = world.user("kim", &[]).await;
    let many = |grant: &mut Grant| {
        let names = (0..400).map(|n| format!("{n:0>40}"));
        grant.namespaces = Some(names.collect());
    };
    world.grant("kim", &["view"], many).await;
    let mut request = get(&format!("/api/v1/namespaces/{:0>40}/pods", 7));
    let bearer = format!("Bearer {token}").parse().unwrap();
    request.headers_mut().insert(AUTHORIZATION, bearer);
    let row = Row {
        hop: "hub",
        code: 403,
        reason: "TooManyNamespaces",
        what: "the 400 namespaces of your grants are more than a request can name: the assertion is longer than 12288 bytes",
        next: "ask a hub admin for a grant of fewer namespaces, or of all",
        after: None,
    };
    told(world.send(request).await, row).await;
    assert_eq!(server.seen().len(), 0);
}

/// Four users with all that each may have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_with_too_many_requests_takes_no_more_from_anybody() {
    const USERS: usize = 4;
    const EACH: usize = 1_024;
    /// Of one connection; and so many at a time, for the agent of these tests takes in 64.
    const STREAMS: usize = 192;
    const AT_ONCE: usize = 32;
    let mut world = World::new().await;
    let (_stop, mut streams, _state) = world.dial().await;
    let mut tasks = JoinSet::new();
    let (arrived, mut count) = tokio::sync::watch::channel(0);
    tasks.spawn(async move {
        let mut held = Vec::new();
        while let Some(stream) = streams.recv().await {
            held.push(stream);
            arrived.send_replace(held.len());
        }
    });
    let mut asked = JoinSet::new();
    for n in 0..USERS {
        let token = world.user(&format!("user-{n}"), &["view"]).await;
        for first in (0..EACH).step_by(STREAMS) {
            let tls = TokioIo::new(world.connect(&[b"h2"]).await);
            let (sender, connection) =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), tls)
                    .await
                    .unwrap();
            tasks.spawn(async move { drop(connection.await) });
            for nth in first..EACH.min(first + STREAMS) {
                let request = Request::get("https://localhost/clusters/eu1/api/v1/pods?watch=1")
                    .header("authorization", format!("Bearer {token}"));
                let request = request.body(Empty::<Bytes>::new()).unwrap();
                let mut sender = sender.clone();
                asked.spawn(async move { drop(sender.send_request(request).await) });
                if (nth + 1) % AT_ONCE == 0 {
                    let all = n * EACH + nth + 1;
                    let there = timeout(PATIENCE, count.wait_for(|count| *count >= all)).await;
                    drop(there.expect("they reach the agent").unwrap());
                }
            }
        }
    }
    let row = Row {
        hop: "hub",
        code: 429,
        reason: "TooManyRequests",
        what: "cluster eu1 has 4096 requests running, the most for one cluster",
        next: "end watches and sessions that are not needed",
        after: Some(1),
    };
    told(world.send(get("/api/v1/pods")).await, row).await;
    asked.shutdown().await;
}

/// Whoever runs the hub can give more: the setting is named, unless an agent serves no more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_says_which_of_its_settings_refused_one_more_request() {
    assert_eq!(usize::try_from(MOST_OF_CLUSTER).unwrap(), INCOMING);
    let server = ApiServer::start().await;
    let mut world = World::bounded(Bounds {
        requests: Requests {
            user: 2,
            cluster: 3,
        },
        ..Bounds::default()
    })
    .await;
    world.agent(&server).await;
    let bearer = format!("Bearer {}", world.user("bob", &["view"]).await);
    let by_bob = || {
        let mut request = get("/api/v1/pods?watch=1");
        let headers = request.headers_mut();
        headers.insert(AUTHORIZATION, bearer.parse().unwrap());
        request
    };
    let mut watches = Vec::new();
    for request in [
        get("/api/v1/pods?watch=1"),
        get("/api/v1/pods?watch=1"),
        by_bob(),
    ] {
        let watch = world.send(request).await;
        assert_eq!(watch.status(), 200);
        watches.push(watch);
    }
    let row = Row {
        hop: "hub",
        code: 429,
        reason: "TooManyRequests",
        what: "ada has 2 requests running, the most for one user",
        next: "end watches and sessions that are not needed, or raise the hub's --max-requests-per-user",
        after: Some(1),
    };
    told(world.send(get("/api/v1/pods")).await, row).await;
    let row = Row {
        what: "cluster eu1 has 3 requests running, the most for one cluster",
        next: "end watches and sessions that are not needed, or raise the hub's --max-requests-per-cluster",
        ..row
    };
    told(world.send(by_bob()).await, row).await;
    drop(watches);
}

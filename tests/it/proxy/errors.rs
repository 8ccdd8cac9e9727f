//! L11: rows of the table of errors that need an agent, an API server or a crowd: the hop that failed, the code, and the request
//! by its id, as kubectl prints them.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use ::http::{Request, Response};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use linesman::agent::forward::INCOMING;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::access::exec;
use super::apiserver::ApiServer;
use super::hub::refusal;
use super::pair::Pair;
use super::world::{Door, PATIENCE, UNWAITED, World, get, name, post};
use crate::wait::until;

/// Code, hop, what is said, and `Retry-After`.
type Row = (u16, &'static str, &'static str, Option<&'static str>);

/// An answer that a person can act on: it names the hop, and the request as the hub's records have it.
async fn told(response: Response<Incoming>, (code, hop, text, after): Row) {
    let header = |name| {
        let value = response.headers().get(name);
        value.map(|value| value.to_str().unwrap().to_owned())
    };
    let (id, found) = (header("x-request-id").unwrap(), header("retry-after"));
    let (status, field, message) = refusal(response).await;
    assert_eq!((status, field.as_str()), (code, hop), "{message}");
    assert_eq!(found.as_deref(), after, "{message}");
    assert!(message.starts_with(&format!("{hop}: ")), "{message}");
    assert!(message.contains(text), "{message}");
    assert!(message.ends_with(&format!("(request {id})")), "{message}");
}

fn delete(path: &str) -> Request<Bytes> {
    let path = format!("/clusters/eu1{path}");
    Request::delete(path).body(Bytes::new()).unwrap()
}

/// L11
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_agent_and_api_server_refuse_is_told_by_their_name() {
    const PODS: &str = "/api/v1/namespaces/a/pods";
    let server = ApiServer::start().await;
    let mut world = World::new().await;
    let agent = world.agent_under(&server, &[("readOnly", "true")]).await;
    let key = "'readOnly' in ConfigMap linesman-policy";
    let response = world.send(delete(PODS)).await;
    told(response, (403, "agent", key, None)).await;
    agent.cancel();
    world.has_line(false).await;

    let agent = world.agent(&server).await;
    server.accept_only("Bearer of another");
    let check = "check Secret linesman-line-bind";
    let response = world.send(get(PODS)).await;
    told(response, (502, "api server", check, None)).await;
    server.stop().await;
    for asked in [get(PODS), post(PODS, "{}")] {
        let response = world.send(asked).await;
        let down = (502, "api server", "the agent cannot connect", None);
        told(response, down).await;
    }
    agent.cancel();
}

/// L11: what stands behind the API server refuses a user itself: it is asked once, and the line's token is as good as before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_of_what_is_behind_the_api_server_is_the_users() {
    const LOGIN: &str = "/api/v1/namespaces/a/services/s/proxy/login";
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    for (n, asked) in [get(LOGIN), post(LOGIN, ""), post(LOGIN, "{}")]
        .into_iter()
        .enumerate()
    {
        let response = timeout(PATIENCE, world.send(asked)).await.unwrap();
        assert_eq!(response.status(), 401);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, "{\"login\":0}");
        assert_eq!(server.asked("/login"), n + 1);
    }
    let tokens: BTreeSet<String> = server
        .seen()
        .iter()
        .map(|seen| seen.headers["authorization"].to_str().unwrap().to_owned())
        .collect();
    assert_eq!(tokens.len(), 1, "{tokens:?}");
}

/// L11: a change that went down with its line, and one that nobody could take: the first may have happened, so nothing asks for
/// it again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_was_lost_on_its_way_is_not_asked_for_again() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let cut = async {
        server.asked_for("/stuck", 1).await;
        let shut = Door {
            shut: true,
            cuts: 1,
        };
        world.door.send_replace(shut);
    };
    let asked = async { tokio::join!(world.send(post("/api/v1/stuck", "{}")), cut).0 };
    let response = timeout(PATIENCE, asked).await.expect("it is told");
    let unknown = "the line was lost before an answer, outcome unknown";
    told(response, (502, "line", unknown, None)).await;
    assert_eq!(server.asked("/stuck"), 1, "it was sent twice");
    // Once somebody has waited in vain, all others hear it at once.
    world.has_line(false).await;
    let (name, moment) = (name(), Duration::from_millis(1));
    let wait = world.hub.tunnels.wait(&name, None, moment);
    assert!(wait.await.is_err());
    for asked in [get("/api/v1/pods"), post("/api/v1/pods", "{}")] {
        let began = Instant::now();
        let response = world.send(asked).await;
        let took = began.elapsed();
        told(response, (503, "line", "is offline since", None)).await;
        assert!(took < UNWAITED, "{took:?}");
    }
}

/// L11: more requests at once than one user may have; the others' are none of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_with_too_many_requests_is_told_to_come_again() {
    const MOST: usize = 1_024;
    /// So many at a time: the agent of these tests takes in 64.
    const EACH: usize = 32;
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let bob = world.user("bob", &["view"]).await;
    let (mut tasks, mut watches) = (JoinSet::new(), Vec::new());
    let mut senders = Vec::new();
    for _ in 0..8 {
        let tls = TokioIo::new(world.connect(&[b"h2"]).await);
        let (sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), tls)
            .await
            .unwrap();
        tasks.spawn(async move { drop(connection.await) });
        senders.push(sender);
    }
    for sender in senders.iter().cycle().take(MOST / EACH) {
        let asks = (0..EACH).map(|_| {
            let request = Request::get("https://localhost/clusters/eu1/api/v1/pods?watch=1")
                .header("authorization", format!("Bearer {}", world.token));
            let request = request.body(Empty::<Bytes>::new()).unwrap();
            let mut sender = sender.clone();
            async move { sender.send_request(request).await.unwrap() }
        });
        let asked = futures_util::future::join_all(asks.collect::<Vec<_>>());
        for watch in timeout(PATIENCE, asked).await.expect("they run") {
            assert_eq!(watch.status(), 200);
            watches.push(watch);
        }
    }
    let most = "ada has 1024 requests running, the most for one user";
    let response = world.send(get("/api/v1/pods")).await;
    told(response, (429, "hub", most, Some("1"))).await;
    let mut other = get("/api/v1/pods");
    let bearer = format!("Bearer {bob}").parse().unwrap();
    other.headers_mut().insert("authorization", bearer);
    assert_eq!(world.send(other).await.status(), 200);
    drop(watches);
    server.no_watches().await;
    assert_eq!(world.send(get("/api/v1/pods")).await.status(), 200);
}

/// L11, L50: a session has its place among what the agent serves at once for as long as it lasts, though its exchange has ended with the
/// switch of protocols. All others but one are only counted here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_whose_places_are_taken_by_sessions_serves_the_next_one_when_one_ends() {
    let server = ApiServer::start().await;
    let mut world = World::new().await;
    let shared = Pair::shared(&server, &world.hub.id, &world.cluster_id, &[]);
    world.agent_serving(shared.clone()).await;
    let session = exec(&world).await;
    assert_eq!(shared.switched.len(), 1);
    let others: Vec<_> = (1..INCOMING).map(|_| shared.switched.token()).collect();
    let text = "the agent serves as many requests as it can";
    let row = (429, "agent", text, Some("1"));
    for request in [get("/api/v1/pods"), post("/api/v1/pods", "{}")] {
        told(world.send(request).await, row).await;
    }
    drop(session);
    until("the session has ended", PATIENCE, async || {
        shared.switched.len() < INCOMING
    })
    .await;
    assert_eq!(world.send(get("/api/v1/pods")).await.status(), 200);
    drop(others);
}

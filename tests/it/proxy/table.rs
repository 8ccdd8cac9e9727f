//! L11: the rows of the table of errors that a fault, a full place or silence brings about, over a real line.

use std::time::Duration;

use ::http::header::AUTHORIZATION;
use ::http::{Request, Response, StatusCode};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use linesman::agent::forward::INCOMING;
use linesman::agent::gate::policy::Policy;
use linesman::agent::gate::replay::Replay;
use linesman::hub::Bounds;
use linesman::hub::access::Grant;
use linesman::hub::proxy::Patience;
use linesman::hub::proxy::limits::{MOST_OF_CLUSTER, Requests};
use linesman::wire::frame::Code;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::apiserver::ApiServer;
use super::pair::Pair;
use super::told::{Row, status, told};
use super::world::{Door, PATIENCE, World, get, name, post};

const LOOK: &str = "look whether it took effect before repeating it";

fn patient(park: Duration, head: Duration) -> Bounds {
    Bounds {
        patience: Patience { park, head },
        ..Bounds::default()
    }
}

/// The audit is fail-closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_put_on_record_is_not_sent() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    assert_eq!(world.send(get("/api/v1/pods")).await.status(), 200);
    let full = "CREATE TRIGGER full BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'the disk is full'); END";
    world.execute(full).await;
    let before = server.seen().len();
    let row = Row {
        hop: "hub",
        code: 503,
        reason: "Audit",
        what: "the request could not be put on record",
        next: "repeat it; if it stays, look at the hub's disk and log",
        after: Some(1),
    };
    for request in [
        get("/api/v1/pods"),
        get("/api/v1/pods?watch=1"),
        post("/api/v1/namespaces/a/echo", "{}"),
    ] {
        told(world.send(request).await, row).await;
    }
    assert_eq!(server.seen().len(), before, "nothing left without a record");
    world.execute("DROP TRIGGER full").await;
    assert_eq!(world.send(get("/api/v1/pods")).await.status(), 200);
}

/// The agent gives up before the hub does, so that the answer names the API server.
#[tokio::test]
async fn an_api_server_that_does_not_answer_is_named_by_the_agent() {
    let server = ApiServer::start().await;
    let pair = Pair::new(&server);
    let patience = async {
        server.asked_for("/stuck", 1).await;
        tokio::time::pause();
    };
    let began = std::time::Instant::now();
    let (response, ()) = tokio::join!(pair.send(get("/api/v1/stuck")), patience);
    let (head, body) = response.unwrap().into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let said: Value = serde_json::from_slice(&body).unwrap();
    let row = Row {
        hop: "api server",
        code: 504,
        reason: "NoAnswer",
        what: "no answer within 70 s",
        next: LOOK,
        after: None,
    };
    assert_eq!(said, status(&Pair::id(1), row));
    assert!(!head.headers.contains_key("retry-after"));
    assert!(began.elapsed() < PATIENCE, "the time is not waited for");
}

/// One that says nothing at all is given up by the hub, and what was sent is sent once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_does_not_answer_is_given_up() {
    let mut world = World::bounded(patient(PATIENCE, Duration::from_secs(1))).await;
    let (_stop, mut streams, _state) = world.dial().await;
    for (request, next) in [
        (get("/api/v1/pods"), "repeat it"),
        (post("/api/v1/pods", "{}"), LOOK),
    ] {
        let row = Row {
            hop: "line",
            code: 504,
            reason: "NoAnswer",
            what: "no answer within 1 s",
            next,
            after: None,
        };
        told(world.send(request).await, row).await;
        let sent = timeout(PATIENCE, streams.recv()).await;
        drop(sent.expect("it was sent").unwrap());
        assert!(streams.try_recv().is_err(), "it was sent twice");
    }
}

/// Nothing of a request has left the hub when its patience with the line is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_waited_in_vain_may_come_again_and_the_next_is_told_at_once() {
    let server = ApiServer::start().await;
    let mut world = World::bounded(patient(Duration::from_millis(200), PATIENCE)).await;
    world.agent(&server).await;
    world.door.send_replace(Door {
        shut: true,
        cuts: 1,
    });
    world.has_line(false).await;
    for after in [Some(1), None, None] {
        let response = world.send(post("/api/v1/pods", "{}")).await;
        let (head, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let said: Value = serde_json::from_slice(&body).unwrap();
        let what = said["details"]["causes"][0]["message"].as_str().unwrap();
        assert!(
            what.starts_with("cluster eu1 is offline since 20"),
            "{what}"
        );
        let row = Row {
            hop: "line",
            code: 503,
            reason: "Offline",
            what,
            next: "see 'linesman cluster show eu1', and in the cluster 'kubectl -n linesman logs deploy/linesman-agent'",
            after,
        };
        let id = head.headers["x-request-id"].to_str().unwrap();
        assert_eq!(said, status(id, row));
        let found = head.headers.get("retry-after");
        assert_eq!(found.is_some(), after.is_some());
    }
    assert_eq!(server.seen().len(), 0);
}

/// What the user is told where the agent resets the stream of a request, a read or a change, with this code.
fn reset(code: Code, reads: bool, cause: &str) -> Row<'_> {
    let row = Row {
        hop: "agent",
        code: 429,
        reason: "Busy",
        what: "the agent serves as many requests as it can",
        next: "end watches and sessions that are not needed",
        after: Some(1),
    };
    match code {
        Code::Limit | Code::Busy => row,
        Code::OverBudget => Row {
            reason: "OverBudget",
            what: "input that is not taken in takes the memory that the agent has for it: 24 MiB of the line, or a quarter of \
                   the agent's memory limit",
            next: if reads {
                "repeat it; if it stays, raise the memory limit of deployment linesman-agent"
            } else {
                LOOK
            },
            after: reads.then_some(1),
            ..row
        },
        _ => Row {
            hop: "line",
            code: 502,
            reason: "LineLost",
            what: cause,
            next: if reads { "repeat it" } else { LOOK },
            after: None,
        },
    }
}

/// Under no fault of the line is a change sent twice, and none but those that nobody has looked at may be asked for again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_the_agent_resets_is_told_by_its_code_and_sent_once() {
    let mut world = World::new().await;
    let (_stop, mut streams, _state) = world.dial().await;
    for code in [
        Code::Limit,
        Code::Busy,
        Code::OverBudget,
        Code::Cancelled,
        Code::Refused,
        Code::Internal,
        Code::Draining,
        Code::Superseded,
    ] {
        for reads in [true, false] {
            let request = if reads {
                get("/api/v1/pods")
            } else {
                post("/api/v1/pods", "{}")
            };
            let resetting = async {
                let arrived = streams.recv().await.unwrap();
                arrived.stream.reset(code, "as the test wants it");
            };
            let asked = async { tokio::join!(world.send(request), resetting).0 };
            let response = timeout(PATIENCE, asked).await.expect("it is told");
            let cause = format!(
                "the stream broke before an answer, outcome unknown: {code}: as the test wants it"
            );
            told(response, reset(code, reads, &cause)).await;
            assert!(streams.try_recv().is_err(), "{code}: it was sent twice");
        }
    }
}

/// A line that ends under a change, however it ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_end_of_a_line_applies_a_change_twice() {
    for code in [Code::Superseded, Code::Revoked, Code::Internal] {
        let server = ApiServer::start().await;
        let world = World::with_line(&server).await;
        let ended = async {
            server.asked_for("/stuck", 1).await;
            world
                .hub
                .tunnels
                .close(&name(), code, "as the test wants it");
        };
        let asked = async { tokio::join!(world.send(post("/api/v1/stuck", "{}")), ended).0 };
        let response = timeout(PATIENCE, asked).await.expect("it is told");
        assert_eq!(response.status(), StatusCode::BAD_GATEWAY, "{code}");
        assert!(!response.headers().contains_key("retry-after"), "{code}");
        server.no_watches().await;
        assert_eq!(server.asked("/stuck"), 1, "{code}");
    }
}

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

/// The answer, and what the agent says of why it has none.
async fn unreachable(url: &str) -> (Response<Incoming>, World) {
    let mut world = World::new().await;
    let parts = Pair::reaching(url, &world.hub.id, &world.cluster_id, Policy::default());
    world.agent_of(parts.into()).await;
    (world.send(post("/api/v1/pods", "{}")).await, world)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_that_cannot_be_reached_is_named() {
    let server = ApiServer::start().await;
    // One that speaks no TLS, and then nobody at all.
    for (url, why) in [
        (
            format!("https://{}/", server.authority()),
            "corrupt message",
        ),
        (format!("http://{}/", server.authority()), "refused"),
    ] {
        if url.starts_with("http://") {
            server.stop().await;
        }
        let (response, _world) = unreachable(&url).await;
        let (head, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let said: Value = serde_json::from_slice(&body).unwrap();
        let what = said["details"]["causes"][0]["message"].as_str().unwrap();
        assert!(
            what.starts_with("the agent cannot connect to it: "),
            "{what}"
        );
        assert!(what.to_lowercase().contains(why), "{what}");
        let row = Row {
            hop: "api server",
            code: 502,
            reason: "Unreachable",
            what,
            next: "check the API server's health",
            after: None,
        };
        let id = head.headers["x-request-id"].to_str().unwrap();
        assert_eq!(said, status(id, row));
        assert!(!head.headers.contains_key("retry-after"));
    }
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

//! L11: the rows of the table of errors that a fault or silence brings about, over a real line.

use std::time::Duration;

use ::http::{Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use linesman::agent::gate::policy::Policy;
use linesman::hub::Bounds;
use linesman::hub::proxy::Patience;
use linesman::wire::frame::Code;
use serde_json::Value;
use tokio::time::timeout;

use super::apiserver::ApiServer;
use super::pair::Pair;
use super::told::{Row, status, told};
use super::world::{Door, PATIENCE, World, get, name, post};

mod full;

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

/// What a request waits for at an agent that has just begun counts, too: the hub's patience began with the request.
#[tokio::test]
async fn an_api_server_that_does_not_answer_is_named_in_time_after_a_slow_start() {
    let server = ApiServer::start().await;
    let pair = Pair::new(&server);
    let policy = pair.unread();
    let patience = async {
        let waits = Duration::from_secs(4);
        tokio::time::pause();
        tokio::time::sleep(waits).await;
        tokio::time::resume();
        pair.read(policy);
        server.asked_for("/stuck", 1).await;
        tokio::time::pause();
    };
    let began = tokio::time::Instant::now();
    let (response, ()) = tokio::join!(pair.send(get("/api/v1/stuck")), patience);
    assert_eq!(response.unwrap().status(), 504);
    let took = began.elapsed();
    assert!(took < Duration::from_secs(73), "{took:?}");
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

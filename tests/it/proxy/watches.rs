//! As many watches on one line as a large team has, and what is left of them.

use ::http::{Request, Response};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};

use super::abuse::make_room;
use super::apiserver::ApiServer;
use super::figures::scraped;
use super::text;
use super::world::{PATIENCE, World, get, name, post};

const WATCHES: usize = 2_000;
/// One user may have 1,024 requests at once.
const USERS: usize = 2;
/// Streams of one connection of a user.
const STREAMS: usize = 125;

/// One connection's share of the watches, all of which run.
async fn watching(sender: &SendRequest<Empty<Bytes>>, token: &str) -> Vec<Incoming> {
    let asks = (0..STREAMS).map(|_| {
        let request = Request::get("https://localhost/clusters/eu1/api/v1/pods?watch=1")
            .header("authorization", format!("Bearer {token}"));
        let request = request.body(Empty::new()).unwrap();
        let mut sender = sender.clone();
        async move { sender.send_request(request).await.unwrap() }
    });
    let asked = futures_util::future::join_all(asks.collect::<Vec<_>>());
    let answers = timeout(PATIENCE, asked).await.expect("they run");
    assert!(answers.iter().all(|answer| answer.status() == 200));
    answers.into_iter().map(Response::into_body).collect()
}

/// Each of them has this event next.
async fn all_have(watches: &mut [Incoming], event: &str) {
    for watch in watches {
        let frame = timeout(PATIENCE, watch.frame()).await.expect("an event");
        let data = frame.unwrap().unwrap().into_data().unwrap();
        assert_eq!(data, event);
    }
}

/// L20
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_watches_share_a_line_and_leave_nothing_behind() {
    make_room();
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let bob = world.user("bob", &["view"]).await;
    let (mut tasks, mut watches, mut senders) = (JoinSet::new(), Vec::new(), Vec::new());
    for n in 0..WATCHES / STREAMS {
        let tls = TokioIo::new(world.connect(&[b"h2"]).await);
        let (sender, connection) = http2::handshake(TokioExecutor::new(), tls).await.unwrap();
        tasks.spawn(async move { drop(connection.await) });
        let token = if n % USERS == 0 { &world.token } else { &bob };
        watches.extend(watching(&sender, token).await);
        senders.push(sender);
    }
    let line = world.hub.tunnels.get(&name()).expect("one line");
    assert_eq!((watches.len(), server.watches()), (WATCHES, WATCHES));
    assert_eq!(line.facts().live, WATCHES);
    for event in ["one\n", "two\n"] {
        server.event(event);
        all_have(&mut watches, event).await;
    }
    let beside = timeout(
        PATIENCE,
        world.send(post("/api/v1/namespaces/a/echo", "hello")),
    )
    .await;
    assert_eq!(text(beside.expect("an echo passes")).await, "hello");

    // Half of them one by one, and the rest with their connections.
    watches.truncate(WATCHES / 2);
    let mut looks = interval(std::time::Duration::from_millis(10));
    let half = async {
        while server.watches() > WATCHES / 2 {
            looks.tick().await;
        }
    };
    timeout(PATIENCE, half).await.expect("half of them end");
    server.event("three\n");
    all_have(&mut watches, "three\n").await;
    drop((watches, senders));
    server.no_watches().await;
    let none = async {
        while line.facts().live > 0 || world.hub.metrics.connections().get() > 1 {
            looks.tick().await;
        }
    };
    timeout(PATIENCE, none).await.expect("nothing is left");
    let now = scraped(&world).await;
    for name in [
        "linesman_hub_line_streams{kind=\"api\"}",
        "linesman_hub_parked_requests",
        "linesman_hub_line_unread_bytes",
    ] {
        assert_eq!(now.get(name), Some(&0.0), "{name} in {now:#?}");
    }
    let again = world.hub.tunnels.get(&name()).expect("the same line");
    assert_eq!(again.facts().epoch, line.facts().epoch);
    assert_eq!(world.send(get("/api/v1/pods")).await.status(), 200);
}

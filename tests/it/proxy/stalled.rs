//! L40, H32: what runs by an access ends with it, though its user takes nothing of it any more, as `logs -f` behind a pager: nobody
//! asks the answer for more then.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use linesman::clock;
use linesman::hub::access::Grant;
use linesman::hub::store::AuditRow;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::apiserver::ApiServer;
use super::world::{PATIENCE, World, get, name};
use crate::wait::until;

/// From when the access is over.
const CUT: Duration = Duration::from_secs(5);
/// How long the grant of [`Ends::Expires`] lasts: longer than it takes a busy machine to ask by it.
const LASTS: Duration = Duration::from_secs(6);
const ENDLESS: &str = "/api/v1/endless";
/// Of an HTTP/2 stream.
const WINDOW: u32 = 1 << 16;

/// How the access ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ends {
    Removed,
    Expires,
}

const ENDS: [Ends; 2] = [Ends::Removed, Ends::Expires];

async fn world(server: &ApiServer, ends: Ends) -> World {
    let world = World::with_line(server).await;
    if ends == Ends::Expires {
        let short = |grant: &mut Grant| {
            "short".clone_into(&mut grant.id);
            grant.expires_at = Some(clock::now() + LASTS);
        };
        world.grant("ada", &["view"], short).await;
    }
    world
}

async fn first(body: &mut Incoming) {
    let frame = timeout(PATIENCE, body.frame()).await.unwrap();
    assert!(!frame.unwrap().unwrap().into_data().unwrap().is_empty());
}

/// Waits until nothing is taken any more, ends the access, and sees the cluster's side end with it.
async fn cut(world: &World, server: &ApiServer, ends: Ends) {
    let line = world.hub.tunnels.get(&name()).unwrap();
    // By an access of their own: that which ends may do so in the middle of them.
    let bob = format!("Bearer {}", world.user("bob", &["view"]).await);
    let others = async || {
        let mut request = get("/api/v1/pods");
        request
            .headers_mut()
            .insert("authorization", bob.parse().unwrap());
        assert_eq!(world.send(request).await.status(), 200);
    };
    server.settled(others).await;
    let within = match ends {
        Ends::Expires => LASTS + CUT,
        Ends::Removed => {
            let admin = format!("Bearer {}", world.admin());
            let remove = Request::delete("/v1/users/ada")
                .header("if-match", "*")
                .header("authorization", admin);
            let removed = world.send(remove.body(Bytes::new()).unwrap()).await;
            assert_eq!(removed.status(), 204);
            CUT
        }
    };
    let reset = async || line.facts().live == 0;
    until("its stream to the cluster is reset", within, reset).await;
    let is_cut = async || closes(world).await.iter().any(was_cut);
    until("its record is closed", CUT, is_cut).await;
    let closes = closes(world).await;
    let one = closes.iter().find(|row| was_cut(row)).unwrap();
    let same = closes.iter().filter(|row| row.opened == one.opened);
    assert_eq!((same.count(), one.code), (1, None), "{closes:?}");
    assert!(one.bytes.is_some_and(|bytes| bytes > 0), "{one:?}");
}

async fn closes(world: &World) -> Vec<AuditRow> {
    let rows = world.hub.store.audit_tail(None, 1_000).await.unwrap();
    rows.into_iter()
        .filter(|row| row.stage == "close")
        .collect()
}

fn was_cut(row: &AuditRow) -> bool {
    row.reason
        .as_deref()
        .is_some_and(|why| why.starts_with("access ended: "))
}

/// Whoever reads on finds an error, and takes no part of an answer for the whole.
async fn broke_off(mut body: Incoming) {
    let rest = async {
        loop {
            match body.frame().await {
                Some(Ok(_)) => {}
                Some(Err(_)) => return,
                None => panic!("it looks whole"),
            }
        }
    };
    timeout(CUT, rest).await.expect("it ends");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_nobody_takes_ends_with_its_access_over_http1() {
    for ends in ENDS {
        let server = ApiServer::start().await;
        let world = world(&server, ends).await;
        let mut body = world.send(get(ENDLESS)).await.into_body();
        first(&mut body).await;
        cut(&world, &server, ends).await;
        // The hub waits for nobody to read on.
        let connections = world.hub.metrics.connections();
        let gone = async || connections.get() <= 1;
        until("all but the line is gone", CUT, gone).await;
        broke_off(body).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_nobody_takes_ends_with_its_access_and_alone_over_http2() {
    for ends in ENDS {
        let server = ApiServer::start().await;
        let world = world(&server, ends).await;
        let tls = TokioIo::new(world.connect(&[b"h2"]).await);
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(WINDOW);
        let (mut sender, connection) = builder.handshake(tls).await.unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { drop(connection.await) });
        let request = Request::get(format!("https://localhost/clusters/eu1{ENDLESS}"))
            .header("authorization", format!("Bearer {}", world.token));
        let request = request.body(Full::<Bytes>::default()).unwrap();
        let answer = sender.send_request(request).await.unwrap();
        let mut body = answer.into_body();
        first(&mut body).await;
        cut(&world, &server, ends).await;
        broke_off(body).await;
        let request = Request::get("https://localhost/v1/hub");
        let request = request.body(Full::default()).unwrap();
        let beside = sender.send_request(request).await.unwrap();
        assert_eq!(beside.status(), 200, "others on the connection go on");
    }
}

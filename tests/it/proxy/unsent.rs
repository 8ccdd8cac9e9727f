//! L11, L16: requests whose stream had not left the hub when the agent said that it leaves. Nobody has seen anything of them.

use std::net::SocketAddr;

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Request, Response};
use hyper::body::Incoming as Answer;
use linesman::tunnel::Line;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::apiserver::ApiServer;
use super::outage::other_agent;
use super::told::{Row, told};
use super::world::{PATIENCE, STILL, World, name, post};
use crate::wait::until;

/// Uploads that are more than lies between a hub and an agent that takes nothing.
const FILLERS: usize = 16;
/// What a stream may have under way before its reader says more.
const WINDOW: usize = 64 << 10;
/// Looks in a row that find nothing sent.
const LOOKS: usize = 10;

/// Carries an agent's connection to the hub; once told, the hub hears the agent, which hears nothing any more.
async fn one_way(listener: TcpListener, to: SocketAddr, mut deaf: watch::Receiver<bool>) {
    let (agent, _) = listener.accept().await.unwrap();
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4 << 10).unwrap();
    let hub = socket.connect(to).await.unwrap();
    let (mut from_agent, mut to_agent) = agent.into_split();
    let (mut from_hub, mut to_hub) = hub.into_split();
    let there = tokio::io::copy(&mut from_agent, &mut to_hub);
    let back = async {
        let told = async {
            drop(deaf.wait_for(|deaf| *deaf).await);
        };
        tokio::select! {
            _ = tokio::io::copy(&mut from_hub, &mut to_agent) => {}
            () = told => {}
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        _ = there => {}
        () = back => {}
    }
}

/// Waits until the uploads have filled all that there is.
async fn full(line: &Line) {
    let (mut last, mut looks, mut since) = (0, 0, Instant::now());
    until("nothing leaves any more", PATIENCE, async || {
        let facts = line.facts();
        if facts.live == FILLERS && facts.sent == last {
            looks += 1;
        } else {
            (last, looks, since) = (facts.sent, 0, Instant::now());
        }
        looks >= LOOKS && since.elapsed() >= STILL
    })
    .await;
}

/// The answer to a request that is asked of such a line, whose agent leaves then; the next agent serves `server`.
async fn answer(server: &ApiServer, request: Request<Bytes>) -> Response<Answer> {
    let mut world = World::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    world.to.send_replace(listener.local_addr().unwrap());
    let (deafen, deaf) = watch::channel(false);
    let mut tasks = JoinSet::new();
    tasks.spawn(one_way(listener, world.https, deaf));
    let (leave, _streams, _state) = world.dial().await;
    world.to.send_replace(world.https);
    deafen.send_replace(true);
    let line = world.hub.tunnels.get(&name()).unwrap();
    let upload = || post("/api/v1/namespaces/a/fills", vec![0; WINDOW]);
    let fill = async {
        join_all((0..FILLERS).map(|_| world.send(upload()))).await;
        // They end with their line.
        std::future::pending::<()>().await;
    };
    let gone = CancellationToken::new();
    let asks = async {
        full(&line).await;
        let leaves = async {
            let waits = async || line.facts().live == FILLERS + 1;
            until("its stream is opened", PATIENCE, waits).await;
            leave.cancel();
            line.draining().await;
            gone.cancel();
        };
        tokio::join!(world.send(request), leaves).0
    };
    let next = async {
        gone.cancelled().await;
        other_agent(&world, server).await;
    };
    tokio::select! {
        response = timeout(PATIENCE, asks) => response.expect("it is told"),
        () = fill => unreachable!("it waits"),
        () = next => panic!("the agent ended"),
    }
}

/// L11, L16: what has no body goes by the next line, whatever it does, and is applied once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_without_a_body_that_never_left_goes_by_the_next_line() {
    let server = ApiServer::start().await;
    let asked = answer(&server, post("/api/v1/namespaces/a/unsent", "")).await;
    assert_eq!(asked.status(), 200);
    assert_eq!(server.asked("/unsent"), 1);
}

/// L11: of one with a body, a part of which is gone, the user is told that nothing arrived, and may ask again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_with_a_body_that_never_left_may_come_again() {
    let server = ApiServer::start().await;
    let asked = answer(&server, post("/api/v1/namespaces/a/unsent", "{}")).await;
    let row = Row {
        hop: "line",
        code: 503,
        reason: "NotSent",
        what: "the line takes no request now: draining: the line takes no new streams",
        next: "repeat it in some seconds",
        after: Some(1),
    };
    told(asked, row).await;
    assert_eq!(server.asked("/unsent"), 0);
}

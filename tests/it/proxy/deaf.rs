//! L8: a user who is gone while his command reads nothing: the end of his connection lies behind what he sent, where nobody reads.

use std::time::Duration;

use linesman::hub::store::AuditRow;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use super::apiserver::{ApiServer, DEAF};
use super::world::{PATIENCE, STILL, World, name};
use crate::wait::{measured, until};

/// From when he is gone.
const OVER: Duration = Duration::from_secs(20);
const CHUNK: usize = 64 << 10;
/// More than two connections and a line take of what nobody reads.
const MOST: usize = 100 << 20;

const WEBSOCKET: &str = "websocket";
const SPDY: &str = "SPDY/3.1";

/// How he goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Goes {
    /// As where his process is killed: his kernel keeps what nobody takes, and the end behind it.
    Killed,
    /// As where what stands between gives him up.
    Reset,
    /// With a goodbye that is heard: all that he had sent was taken.
    Closed,
}

async fn session(world: &World, protocol: &str) -> TlsStream<TcpStream> {
    let mut tls = world.connect(&[]).await;
    let request = format!(
        "GET /clusters/eu1{DEAF} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\r\n",
        world.token
    );
    tls.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let byte = timeout(PATIENCE, tls.read_u8()).await;
        head.push(byte.expect("it begins").unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    tls
}

/// Sends until nobody takes any more; how much that is.
async fn fill(tls: &mut TlsStream<TcpStream>) -> usize {
    let chunk = vec![b'x'; CHUNK];
    let mut sent = 0;
    while let Ok(taken) = timeout(STILL, tls.write(&chunk)).await {
        sent += taken.unwrap();
        assert!(sent < MOST, "all of it was taken");
    }
    sent
}

async fn ends(protocol: &str, goes: Goes) {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let line = world.hub.tunnels.get(&name()).unwrap();
    let mut tls = session(&world, protocol).await;
    if goes == Goes::Closed {
        tls.write_all(&vec![b'x'; CHUNK]).await.unwrap();
        tls.shutdown().await.unwrap();
    } else {
        fill(&mut tls).await;
    }
    if goes == Goes::Reset {
        tls.get_ref().0.set_zero_linger().unwrap();
    }
    assert_eq!((line.facts().live, server.watches()), (1, 1));
    drop(tls);
    let closed = async || !closes(&world).await.is_empty();
    let closed = until("its record is closed", OVER, closed);
    let what = format!("user of a command that reads nothing gone ({protocol}, {goes:?}) → over");
    measured(("L8", &what, "≤ 10 s"), OVER, closed).await;
    let rows = closes(&world).await;
    let told = rows.iter().map(|row| {
        let action = row.action.as_str();
        (action, row.code, row.reason.as_deref())
    });
    let told: Vec<_> = told.collect();
    assert_eq!(told, [("kube.exec", Some(101), None)]);
    let over = async || line.facts().live == 0;
    until("the agent was told", PATIENCE, over).await;
    // Whoever reads on at the API server finds the end, behind what was on its way.
    server.release();
    server.no_watches().await;
    if goes == Goes::Closed {
        assert_eq!(server.produced(), CHUNK);
    }
}

async fn closes(world: &World) -> Vec<AuditRow> {
    let rows = world.hub.store.audit_tail(None, 1_000).await.unwrap();
    rows.into_iter()
        .filter(|row| row.stage == "close")
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_session_of_a_user_who_is_gone_ends_though_its_command_reads_nothing() {
    tokio::join!(
        ends(WEBSOCKET, Goes::Killed),
        ends(SPDY, Goes::Killed),
        ends(WEBSOCKET, Goes::Reset),
        ends(WEBSOCKET, Goes::Closed),
    );
}

/// For longer than it takes to find one who is gone, and then goes on.
async fn stays(protocol: &str, beat: &[u8]) {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let line = world.hub.tunnels.get(&name()).unwrap();
    let mut tls = session(&world, protocol).await;
    let sent = fill(&mut tls).await + CHUNK;
    let mut beats = vec![0; 3 * beat.len()];
    let heard = timeout(OVER, tls.read_exact(&mut beats)).await;
    heard.expect("he hears of it").unwrap();
    assert_eq!(beats, beat.repeat(3), "{protocol}");
    assert_eq!((line.facts().live, server.watches()), (1, 1));
    server.release();
    let rest = async {
        tls.write_all(&vec![b'x'; CHUNK]).await.unwrap();
        tls.flush().await.unwrap();
    };
    timeout(PATIENCE, rest).await.expect("it goes on");
    let all = async || server.produced() == sent;
    until("all that was sent is read", PATIENCE, all).await;
    drop(tls);
    server.no_watches().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_session_of_a_user_who_waits_for_his_command_stays_and_loses_nothing() {
    tokio::join!(
        stays(WEBSOCKET, &[0x8a, 0]),
        stays(SPDY, &[0x80, 3, 0, 4, 0, 0, 0, 4, 0, 0, 0, 0]),
    );
}

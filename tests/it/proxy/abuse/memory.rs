//! L40, L46: what silence and floods cost the memory of the hub's process, the real program.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};
use tokio_rustls::TlsConnector;

use super::super::apiserver::ApiServer;
use super::super::kill::{Hub, agent};
use super::super::world::{Left, PATIENCE, World};
use super::http2::{DATA, begun, frame, idle_floods, request_floods};
use super::line::{BINARY, UPGRADE, raw, upgraded};
use super::silent::{SILENT, connected};
use super::{make_room, told};

/// Connections that flood at once.
const AT_ONCE: usize = 16;
const LOOK: Duration = Duration::from_millis(10);
/// A PING of WebSocket's.
const PING: u8 = 0x89;
/// What a flood may cost at most.
const FLOOD_MIB: u64 = 64;
/// What as many silent lines may cost as the hub takes.
const SILENT_MIB: u64 = 160;

/// What is sent on each of the connections.
struct Flood {
    what: &'static str,
    alpn: &'static [&'static [u8]],
    /// Behind the upgrade to a line.
    line: bool,
    sent: Vec<u8>,
}

fn floods(token: &str) -> Vec<Flood> {
    let http2 = |what, sent| Flood {
        what,
        alpn: &[b"h2"],
        line: false,
        sent,
    };
    let line = |what, sent| Flood {
        what,
        alpn: &[],
        line: true,
        sent,
    };
    let long = vec![b'x'; 1 << 20];
    let known = idle_floods().into_iter().chain(request_floods(token));
    let mut floods: Vec<_> = known
        .map(|(what, frames, _)| http2(what, begun(&frames)))
        .collect();
    floods.extend([
        http2("a frame of 1 MiB", begun(&frame(DATA, 0, 1, &long))),
        line("a message of 1 MiB on a line", raw(BINARY, true, &long)),
        line(
            "20,000 PINGs on a line",
            raw(PING, true, &[7; 100]).repeat(20_000),
        ),
    ]);
    floods
}

/// One connection. Of two, one reads what it is answered; the other reads nothing and goes on for as long as it may.
async fn attack(flood: Arc<Flood>, to: SocketAddr, connector: TlsConnector, reads: bool) {
    let tcp = TcpStream::connect(to).await.unwrap();
    let name = "localhost".try_into().unwrap();
    let mut tls = connector.connect(name, tcp).await.unwrap();
    if flood.line {
        assert!(upgraded(&mut tls).await.starts_with("HTTP/1.1 101 "));
    }
    if reads {
        drop(timeout(PATIENCE, told(tls, flood.sent.clone())).await);
    } else {
        let goes_on = async { while tls.write_all(&flood.sent).await.is_ok() {} };
        drop(timeout(PATIENCE, goes_on).await);
    }
}

/// How much the hub has at most until that is done, in MiB.
async fn most(hub: &Hub, attack: impl Future<Output = ()>) -> u64 {
    let (mut most, mut looks) = (hub.resident_kib(), interval(LOOK));
    tokio::pin!(attack);
    loop {
        let done = tokio::select! {
            () = &mut attack => true,
            _ = looks.tick() => false,
        };
        most = most.max(hub.resident_kib());
        if done {
            return most.div_ceil(1 << 10);
        }
    }
}

/// A user who behaves.
async fn served(left: &Left, hub: &Hub) {
    let request = format!(
        "GET /clusters/eu1/api/v1/pods HTTP/1.1\r\nHost: h\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\r\n",
        left.token
    );
    let tls = left.connect(hub.at()).await;
    let told = timeout(PATIENCE, told(tls, request.into_bytes())).await;
    let told = told.expect("an answer");
    assert!(told.starts_with("HTTP/1.1 200 "), "{told}");
}

/// L40, L46
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silence_and_floods_cost_the_hub_a_bounded_memory() {
    make_room();
    let server = ApiServer::start().await;
    let left = World::new().await.leave();
    let (hub, mut agents) = (Hub::start(&left), JoinSet::new());
    agent(&left, &hub.url, &server, &mut agents).await;
    served(&left, &hub).await;
    let before = hub.resident_kib() >> 10;

    let silent = async {
        let lines = connected((left.connector(&[]), hub.at()), SILENT, UPGRADE).await;
        let codes = lines.iter().filter_map(|(_, code)| code.as_ref());
        let upgraded = codes.filter(|code| code.ends_with(b" 101")).count();
        assert!(upgraded > SILENT * 9 / 10, "{upgraded} of {SILENT}");
        served(&left, &hub).await;
    };
    let silent = most(&hub, silent).await.saturating_sub(before);
    assert!(silent <= SILENT_MIB, "{silent} MiB more");

    let mut worst = 0;
    for flood in floods(&left.token).into_iter().map(Arc::new) {
        let from = hub.resident_kib() >> 10;
        let mut attacks = JoinSet::new();
        for n in 0..AT_ONCE {
            let connector = left.connector(flood.alpn);
            attacks.spawn(attack(flood.clone(), hub.at(), connector, n % 2 == 0));
        }
        let all = async { drop(attacks.join_all().await) };
        let most = most(&hub, all).await.saturating_sub(from);
        assert!(most <= FLOOD_MIB, "{}: {most} MiB more", flood.what);
        worst = worst.max(most);
        served(&left, &hub).await;
    }
    let end = (hub.resident_kib() >> 10).saturating_sub(before);
    println!(
        "figure | L40, L46 | MiB more of the hub: {SILENT} silent lines; the worst flood of {AT_ONCE} connections; behind all of it | bounded | {silent}; {worst}; {end}"
    );
    assert!(end <= SILENT_MIB, "{end} MiB more are kept");
    drop(hub);
    std::fs::remove_dir_all(&left.data).unwrap();
}

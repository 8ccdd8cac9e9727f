//! Clients that are out to hurt the hub: each is held within bounds, and whoever behaves is served beside it.

use std::cell::Cell;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};
use tokio_rustls::client::TlsStream;

use super::apiserver::ApiServer;
use super::world::{PATIENCE, World, get, name};

mod full;
mod http2;
mod idle;
mod line;
mod memory;
mod silent;

/// A user beside an attack has an answer within this time: before the hub lets go of the first attacker.
const IN_TIME: Duration = Duration::from_secs(8);
/// What the hub gives a client for a TLS handshake or a head (10 s), and as much again for a busy machine.
const LET_GO: Duration = Duration::from_secs(20);

/// Both ends of each are in this process; a shell gives it 1,024 files.
pub(super) fn make_room() {
    const NEEDED: usize = 8_192;
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let row = limits.lines().find(|row| row.starts_with("Max open files"));
    let soft = row.and_then(|row| row.split_whitespace().nth(3)).unwrap();
    if soft.parse().is_ok_and(|soft: usize| soft < NEEDED) {
        let id = std::process::id().to_string();
        let raised = std::process::Command::new("prlimit")
            .args(["--pid", &id, &format!("--nofile={NEEDED}:")])
            .status();
        assert!(raised.unwrap().success(), "{soft} files are too few");
    }
}

/// One answer to a user who behaves.
async fn served(world: &World) {
    let began = Instant::now();
    let response = world.send(get("/api/v1/pods")).await;
    assert_eq!(response.status(), 200);
    drop(response);
    assert!(began.elapsed() < IN_TIME, "{:?}", began.elapsed());
}

/// Runs an attack; a user who asks all the while has every answer in time.
async fn beside<T: Send + 'static>(
    world: &World,
    attack: impl Future<Output = T> + Send + 'static,
) -> T {
    let over = Cell::new(false);
    let asks = async {
        let (mut asked, mut ticks) = (0, interval(Duration::from_millis(50)));
        while asked < 3 || !over.get() {
            ticks.tick().await;
            served(world).await;
            asked += 1;
        }
    };
    // On a task of its own: what it costs the client is not the hub's.
    let mut attacker = JoinSet::new();
    attacker.spawn(attack);
    let attack = async {
        let done = attacker.join_next().await.unwrap().unwrap();
        over.set(true);
        done
    };
    tokio::join!(attack, asks).0
}

/// The hub has no connection any more but so many lines.
async fn left_with(world: &World, lines: i64) {
    let mut looks = interval(Duration::from_millis(10));
    let none = async {
        while world.hub.metrics.connections().get() > lines {
            looks.tick().await;
        }
    };
    let none = timeout(PATIENCE, none).await;
    let left = world.hub.metrics.connections().get();
    none.unwrap_or_else(|_| panic!("{left} connections are left"));
}

/// All that comes back for what is sent without a look at the answer.
async fn told(tls: TlsStream<TcpStream>, sent: Vec<u8>) -> String {
    let (mut read, mut write) = split(tls);
    let sending = async {
        // Not all of it is taken.
        drop(write.write_all(&sent).await);
        drop(write.flush().await);
    };
    let mut answer = Vec::new();
    let ((), read) = tokio::join!(sending, read.read_to_end(&mut answer));
    // A reset behind the answer costs nothing of it.
    drop(read);
    String::from_utf8_lossy(&answer).into_owned()
}

/// How a client begins, and what it goes on with, one byte at a time.
struct Drips {
    what: &'static str,
    to: SocketAddr,
    /// None = without TLS.
    alpn: Option<&'static [&'static [u8]]>,
    first: String,
    then: &'static [u8],
    /// How the answer begins.
    told: &'static str,
}

fn drips(world: &World) -> Vec<Drips> {
    let row = |what, alpn, first: &str, then| Drips {
        what,
        to: world.https,
        alpn,
        first: first.to_owned(),
        then,
        told: "",
    };
    let head = "GET /clusters/eu1/api/v1/pods HTTP/1.1\r\nHost: localhost\r\n";
    let good = format!("{head}Authorization: Bearer {}\r\n\r\n", world.token);
    vec![
        row("TCP alone", None, "", &b""[..]),
        row(
            "the TLS hello by drops",
            None,
            "\u{16}\u{3}\u{1}\u{1}\u{0}\u{1}",
            b"\0",
        ),
        row("TLS alone", Some(&[]), "", b""),
        row("TLS for HTTP/2 alone", Some(&[b"h2"]), "", b""),
        row(
            "HTTP/2's preface by drops",
            Some(&[b"h2"]),
            "PRI * ",
            b"HTTP/2.0\r\n\r\nSM\r\n\r\n",
        ),
        row("half of a head", Some(&[]), head, b""),
        row("a head by drops", Some(&[]), head, b"X"),
        row("its lines by drops", Some(&[]), head, b"X: y\r\n"),
        Drips {
            told: "HTTP/1.1 200 OK\r\n",
            ..row(
                "the second head by drops",
                Some(&[]),
                &format!("{good}{head}"),
                b"X",
            )
        },
        Drips {
            to: world.hub.config.health_listen,
            ..row("the health port alone", None, "", b"")
        },
        Drips {
            to: world.hub.config.health_listen,
            ..row("a head by drops, there", None, head, b"X")
        },
    ]
}

/// Between two bytes.
const DRIP: Duration = Duration::from_millis(800);

/// Sends as slowly as that until the hub ends it; gives what it said.
async fn dripped<S: AsyncRead + AsyncWrite>(io: S, first: &[u8], then: &[u8]) -> Vec<u8> {
    let (mut read, mut write) = split(io);
    let dripping = async {
        drop(write.write_all(first).await);
        let mut ticks = interval(DRIP);
        for byte in then.iter().cycle() {
            ticks.tick().await;
            if write.write_all(&[*byte]).await.is_err() || write.flush().await.is_err() {
                break;
            }
        }
        std::future::pending::<()>().await;
    };
    let mut answer = Vec::new();
    tokio::select! {
        ended = read.read_to_end(&mut answer) => drop(ended),
        () = dripping => {}
    }
    answer
}

/// L40: slow-loris, in the TLS handshake, the first head and the next one. L5: and whoever only asks for nothing as long stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_takes_its_time_is_let_go() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let rows = drips(&world);
    let mut quiet = world.connect(&[]).await;
    asks(&mut quiet).await;
    let mut clients = JoinSet::new();
    for row in rows.iter().flat_map(|row| [row.again(), row.again()]) {
        let (to, tls) = (row.to, row.alpn.map(|alpn| world.connector(alpn)));
        clients.spawn(async move {
            let tcp = TcpStream::connect(to).await.unwrap();
            let (first, then) = (row.first.as_bytes(), row.then);
            let ended = async {
                match tls {
                    None => dripped(tcp, first, then).await,
                    Some(tls) => {
                        let name = "localhost".try_into().unwrap();
                        let tls = tls.connect(name, tcp).await.unwrap();
                        dripped(tls, first, then).await
                    }
                }
            };
            let answer = timeout(LET_GO, ended).await;
            let answer = answer.unwrap_or_else(|_| panic!("{}: it may stay", row.what));
            let answer = String::from_utf8_lossy(&answer).into_owned();
            let good = if row.told.is_empty() {
                answer.is_empty()
            } else {
                answer.starts_with(row.told) && answer.matches("HTTP/1.1 ").count() == 1
            };
            assert!(good, "{}: {answer}", row.what);
        });
    }
    beside(&world, async move {
        while let Some(client) = clients.join_next().await {
            client.unwrap();
        }
    })
    .await;
    asks(&mut quiet).await;
    drop(quiet);
    left_with(&world, 1).await;
}

/// One of several requests of a connection.
async fn asks(tls: &mut TlsStream<TcpStream>) {
    let request = b"HEAD /v1/hub HTTP/1.1\r\nHost: localhost\r\n\r\n";
    tls.write_all(request).await.unwrap();
    let mut told = vec![0; 8 << 10];
    let len = timeout(PATIENCE, tls.read(&mut told)).await;
    let told = String::from_utf8_lossy(&told[..len.unwrap().unwrap()]).into_owned();
    assert!(told.starts_with("HTTP/1.1 200 "), "{told}");
}

impl Drips {
    fn again(&self) -> Self {
        Self {
            first: self.first.clone(),
            ..*self
        }
    }
}

/// L40: what is sent, and the code of the one answer. `$` = the head of a good request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_without_measure_is_refused_before_it_is_kept() {
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let lines = |n: usize| "X: y\r\n".repeat(n);
    for (what, head, code) in [
        ("90 headers", lines(90), "200"),
        ("98 headers beside three", lines(98), "431"),
        ("10,000 headers", lines(10_000), "431"),
        ("100,000 headers", lines(100_000), "431"),
        (
            "one of 100 KB",
            format!("X: {}\r\n", "y".repeat(100_000)),
            "431",
        ),
        (
            "a line that never ends",
            format!("X: {}", "y".repeat(4 << 20)),
            "431",
        ),
        ("a name that never ends", "y".repeat(4 << 20), "431"),
    ] {
        let sent = format!(
            "GET /clusters/eu1/api/v1/pods HTTP/1.1\r\nHost: h\r\nConnection: close\r\nAuthorization: Bearer {}\r\n{head}\r\n",
            world.token
        );
        let attack = {
            let tls = world.connect(&[]).await;
            timeout(PATIENCE, told(tls, sent.into_bytes()))
        };
        let told = beside(&world, attack).await.expect("the hub ends it");
        let codes: Vec<_> = told.split("HTTP/1.1 ").skip(1).map(|a| &a[..3]).collect();
        assert_eq!(codes, [code], "{what}: {told}");
    }
    left_with(&world, 1).await;
}

/// L40: what a reader does not take is not read from the cluster either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_of_a_byte_a_second_costs_a_window() {
    const READERS: usize = 4;
    let server = ApiServer::start().await;
    let world = World::with_line(&server).await;
    let mut readers = JoinSet::new();
    for _ in 0..READERS {
        let head = format!(
            "GET /clusters/eu1/api/v1/endless HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {}\r\n\r\n",
            world.token
        );
        let mut tls = world.connect(&[]).await;
        readers.spawn(async move {
            tls.write_all(head.as_bytes()).await.unwrap();
            let mut ticks = interval(Duration::from_secs(1));
            loop {
                ticks.tick().await;
                match tls.read_u8().await {
                    Ok(_) => {}
                    Err(error) => return assert_eq!(error.kind(), ErrorKind::UnexpectedEof),
                }
            }
        });
    }
    server.asked_for("/endless", READERS).await;
    server.settled(async || served(&world).await).await;
    let line = world.hub.tunnels.get(&name()).unwrap();
    let facts = line.facts();
    assert_eq!(facts.live, READERS);
    // Some windows of 64 KiB each, and what the system takes for a connection.
    let most = u64::try_from(READERS << 22).unwrap();
    assert!(
        facts.received < most,
        "{} came over the line",
        facts.received
    );
    readers.shutdown().await;
    left_with(&world, 1).await;
    let mut looks = interval(Duration::from_millis(10));
    let ended = async {
        while line.facts().live > 0 {
            looks.tick().await;
        }
    };
    timeout(PATIENCE, ended).await.expect("the streams end");
    served(&world).await;
}

//! L46: what no agent and no hub sends on a line, byte by byte (RFC 6455).

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use linesman::agent::link::{self, LinkState};
use linesman::keys::sha256;
use linesman::tunnel::handshake::{self, Agent, SUBPROTOCOL};
use linesman::wire::api::{AgentBuild, HubRef};
use linesman::wire::frame::{self, Class, Frame, Kind, Open};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_util::sync::CancellationToken;

use super::super::record::logged;
use super::super::world::{PATIENCE, World, identity, link_config, name, not_dialled};
use super::left_with;

pub(super) const BINARY: u8 = 0x82;
const CLOSE: u8 = 0x88;
const CANARY: &str = "canary-in-a-frame";
/// Bytes at the end of a HELLO.
const SIGNATURE: usize = 64;

pub(super) const UPGRADE: &str = "GET /v1/line HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                       Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
                       Sec-WebSocket-Protocol: linesman.line.1\r\n\r\n";

/// A frame with this first byte; `masked` as a client's is, with a mask that changes nothing.
pub(super) fn raw(first: u8, masked: bool, payload: &[u8]) -> Vec<u8> {
    let bit = if masked { 0x80 } else { 0 };
    let mut out = match u16::try_from(payload.len()) {
        Ok(short @ 0..126) => vec![first, bit | short.to_be_bytes()[1]],
        Ok(long) => [&[first, bit | 0x7e][..], &long.to_be_bytes()].concat(),
        Err(_) => {
            let len = u64::try_from(payload.len()).unwrap();
            [&[first, bit | 0x7f][..], &len.to_be_bytes()].concat()
        }
    };
    if masked {
        out.extend([0; 4]);
    }
    out.extend(payload);
    out
}

/// What breaks the framing at the end that takes frames with masks, or without, and the code that it closes with.
fn violations(masked: bool) -> Vec<(&'static str, Vec<u8>, u16)> {
    let canary = CANARY.as_bytes();
    let good = |first, payload: &[u8]| raw(first, masked, payload);
    let bit = if masked { 0x80 } else { 0 };
    let long = |len: u64| [&[BINARY, bit | 0x7f][..], &len.to_be_bytes(), &[0; 4]].concat();
    let closing = |code: u16| good(CLOSE, &code.to_be_bytes());
    let mut rows = vec![
        (
            "a mask too few or too many",
            raw(BINARY, !masked, canary),
            1002,
        ),
        ("the first reserved bit", good(0xc2, canary), 1002),
        ("the last reserved bit", good(0x92, canary), 1002),
        ("a reserved kind of data", good(0x83, canary), 1002),
        ("a reserved kind of control", good(0x8b, canary), 1002),
        ("a control frame in parts", good(0x09, canary), 1002),
        (
            "a control frame of 126 bytes",
            good(0x89, &[b'x'; 126]),
            1002,
        ),
        ("a text", good(0x81, canary), 1002),
        ("a part of nothing", good(0x80, canary), 1002),
        (
            "a message in another",
            [good(0x02, canary), good(BINARY, canary)].concat(),
            1002,
        ),
        (
            "a length not in its shortest form",
            [&[BINARY, bit | 0x7e, 0, 5][..], &[0; 9]].concat(),
            1002,
        ),
        ("a length of 2^63", long(1 << 63), 1002),
        ("half a close code", good(CLOSE, &[3]), 1002),
        ("a message above the limit", long(65_537), 1009),
        ("the longest message", long((1 << 63) - 1), 1009),
        ("one that comes, too", good(BINARY, &[b'x'; 1 << 20]), 1009),
        (
            "parts above the limit",
            [good(0x02, &[b'x'; 60_000]), good(0x80, &[b'x'; 6_000])].concat(),
            1009,
        ),
    ];
    for code in [0, 999, 1004, 1005, 1006, 1015, 2999, 5000, 65_535] {
        rows.push(("a close code that nobody sends", closing(code), 1002));
    }
    rows
}

/// The next frame of the other end: its first byte and payload.
async fn next(io: &mut (impl AsyncRead + Unpin)) -> io::Result<(u8, Vec<u8>)> {
    let (first, second) = (io.read_u8().await?, io.read_u8().await?);
    let len = match second & 0x7f {
        126 => usize::from(io.read_u16().await?),
        short => usize::from(short),
    };
    let mut mask = [0; 4];
    if second & 0x80 != 0 {
        io.read_exact(&mut mask).await?;
    }
    let mut payload = vec![0; len];
    io.read_exact(&mut payload).await?;
    for (byte, key) in payload.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= key;
    }
    Ok((first, payload))
}

/// Sends what is bad; the code of the close frame that comes, after which the connection ends.
async fn closed_with(io: &mut (impl AsyncRead + AsyncWrite + Unpin), bad: &[u8]) -> u16 {
    let (mut read, mut write) = tokio::io::split(io);
    let sending = async {
        // It is not all taken.
        drop(write.write_all(bad).await);
        drop(write.flush().await);
    };
    let reading = async {
        let code = loop {
            match next(&mut read).await.expect("a close frame comes first") {
                (CLOSE, payload) => break u16::from_be_bytes(payload[..2].try_into().unwrap()),
                (first, _) => assert_eq!(first, BINARY),
            }
        };
        let mut rest = Vec::new();
        drop(read.read_to_end(&mut rest).await);
        assert_eq!(rest, b"", "behind the close frame");
        code
    };
    let both = async { tokio::join!(sending, reading).1 };
    timeout(PATIENCE, both).await.expect("the connection ends")
}

/// Asks for the upgrade on a connection; its answer is read to the end.
pub(super) async fn upgraded(tls: &mut TlsStream<TcpStream>) -> String {
    tls.write_all(UPGRADE.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(tls.read_u8().await.unwrap());
    }
    String::from_utf8(answer).unwrap()
}

/// The handshake of the cluster's agent over a connection that is upgraded; `most` = the streams that it takes.
pub(super) async fn welcomed(world: &World, tls: &mut TlsStream<TcpStream>, most: Option<u32>) {
    let mut message = Bytes::from(next(tls).await.unwrap().1);
    let Ok(Some(Frame::Challenge(challenge))) = frame::decode(&mut message) else {
        panic!("no challenge");
    };
    let (cluster, identity, build) = (name(), identity(), AgentBuild::default());
    let authority = world.hub.config.url.strip_prefix("https://").unwrap();
    let agent = Agent {
        cluster: &cluster,
        identity: &identity,
        hub: &world.hub.id,
        host: authority,
        nonce: [3; 32],
        instance: "by hand",
        resumes: None,
        cap: None,
        build: &build,
        keyset: &[],
    };
    let mut hello = handshake::hello(&challenge, &agent).unwrap();
    if let Some(most) = most {
        let (said, _) = hello.split_at(hello.len() - SIGNATURE);
        let mut said: serde_json::Value = serde_json::from_slice(said).unwrap();
        said["limits"]["max_streams"] = most.into();
        let said = serde_json::to_vec(&said).unwrap();
        let hashes = [sha256(&challenge), sha256(&said)].concat();
        let signature = identity.sign(&[b"linesman-line/1 agent\n", &hashes[..]].concat());
        hello = [&said[..], &signature].concat().into();
    }
    let mut out = BytesMut::new();
    frame::encode(&Frame::Hello(hello), &mut out);
    tls.write_all(&raw(BINARY, true, &out)).await.unwrap();
    let mut message = Bytes::from(next(tls).await.unwrap().1);
    let said = frame::decode(&mut message);
    assert!(matches!(said, Ok(Some(Frame::Welcome(_)))), "{said:?}");
}

/// What is logged by this thread, at every level.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Until the guard is dropped.
    fn kept(&self) -> (tracing::Dispatch, tracing::subscriber::DefaultGuard) {
        let log = self.clone();
        logged(move || log.clone())
    }

    /// What was logged since, once this is.
    async fn until(&self, what: &str) -> String {
        let (mut all, mut looks) = (String::new(), interval(Duration::from_millis(5)));
        let logged = async {
            while !all.contains(what) {
                looks.tick().await;
                all += &self.take();
            }
        };
        timeout(PATIENCE, logged).await.expect("it is logged");
        all
    }

    fn take(&self) -> String {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8(std::mem::take(&mut *kept)).unwrap()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Named, with its code, and without what it held.
fn told(log: &str, what: &str) {
    let named = |line: &&str| line.contains("handshake of a line") && line.contains(" WARN ");
    assert_eq!(log.lines().filter(named).count(), 1, "{what}: {log}");
    assert!(!log.contains(CANARY), "{what}: {log}");
}

/// Before the agent has said who it is, a message has 8 KiB at most, and is the one that is due.
#[tokio::test]
async fn who_breaks_a_lines_framing_unproven_is_closed_with_its_code() {
    let world = World::new().await;
    let log = Log::default();
    let _kept = log.kept();
    let mut rows = violations(true);
    let hello = |len| raw(BINARY, true, &vec![b'x'; len]);
    rows.push(("9 KiB instead of a HELLO", hello(9 << 10), 1009));
    rows.push(("something else than a HELLO", hello(100), 1002));
    rows.push(("an empty message", hello(0), 1002));
    let mut open = BytesMut::new();
    let early = Frame::Open(Open {
        id: 1,
        kind: Kind::Git,
        class: Class::Normal,
        window: 1,
        meta: Bytes::new(),
    });
    frame::encode(&early, &mut open);
    rows.push(("OPEN before WELCOME", raw(BINARY, true, &open), 1002));
    for (what, bad, code) in rows {
        log.take();
        let mut tls = world.connect(&[]).await;
        assert!(upgraded(&mut tls).await.starts_with("HTTP/1.1 101 "));
        assert_eq!(closed_with(&mut tls, &bad).await, code, "{what}");
        drop(tls);
        told(&log.take(), what);
    }
    left_with(&world, 0).await;
    assert!(world.hub.tunnels.get(&name()).is_none());
}

#[tokio::test]
async fn who_breaks_a_lines_framing_is_closed_with_its_code_and_named() {
    let world = World::new().await;
    let log = Log::default();
    let _kept = log.kept();
    for (what, bad, code) in violations(true) {
        log.take();
        let mut tls = world.connect(&[]).await;
        upgraded(&mut tls).await;
        welcomed(&world, &mut tls, None).await;
        world.has_line(true).await;
        assert_eq!(closed_with(&mut tls, &bad).await, code, "{what}");
        drop(tls);
        let log = log.until("line down").await;
        let view = world.hub.tunnels.view(&name());
        let cause = view.last_cause.unwrap();
        let text = cause.strip_prefix("protocol broken: ").expect(what);
        let down = log.lines().find(|line| line.contains("line down"));
        assert!(down.unwrap().contains(text), "{what}: {log}");
        assert!(!log.contains(CANARY), "{what}: {log}");
    }
    left_with(&world, 0).await;
}

/// The other way round: a hub, or what stands before it, that says what no hub does.
#[tokio::test]
async fn an_agent_closes_a_broken_line_with_its_code() {
    for (what, bad, code) in violations(false) {
        let (acceptor, ca) = crate::tls::loopback();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let (_held, reference) = watch::channel(HubRef {
            id: "hub".to_owned(),
            urls: vec![url],
            ca,
            keyset: Vec::new(),
        });
        let (line, mut state) = watch::channel(not_dialled());
        let (incoming, _streams) = mpsc::channel(1);
        let (config, stop) = (link_config(reference), CancellationToken::new());
        let mut agent = JoinSet::new();
        agent.spawn(link::run(config, line, incoming, stop));
        let (tcp, _) = listener.accept().await.unwrap();
        let mut tls = acceptor.accept(tcp).await.unwrap();
        let mut asked = Vec::new();
        while !asked.ends_with(b"\r\n\r\n") {
            asked.push(tls.read_u8().await.unwrap());
        }
        let asked = String::from_utf8(asked).unwrap();
        let key = asked.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("sec-websocket-key")
                .then_some(value)
        });
        let accept = derive_accept_key(key.unwrap().as_bytes());
        let answer = format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: {SUBPROTOCOL}\r\n\r\n"
        );
        tls.write_all(answer.as_bytes()).await.unwrap();
        assert_eq!(closed_with(&mut tls, &bad).await, code, "{what}");
        drop(tls);
        let down = state.wait_for(|state| matches!(state, LinkState::Down { attempt: 1.., .. }));
        let down = timeout(PATIENCE, down)
            .await
            .expect("it is told")
            .unwrap()
            .clone();
        let LinkState::Down { cause, .. } = down else {
            unreachable!("asked for down");
        };
        assert!(
            cause.starts_with("the line's handshake: "),
            "{what}: {cause}"
        );
        assert!(!cause.contains(CANARY), "{what}: {cause}");
    }
}

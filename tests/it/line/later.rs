//! An end of this build with one of a later build, over real TLS and WebSocket.

use std::time::{Duration, Instant};

use bytes::Bytes;
use linesman::agent::identity::Identity as Keys;
use linesman::agent::link::{self, LinkConfig, LinkState};
use linesman::clock::{self, Steady};
use linesman::keys::{KeyPair, sha256};
use linesman::tunnel::driver::{self, Identity, Socket};
use linesman::tunnel::handshake::{self, Agent, Hello, Limits, SUBPROTOCOL, Welcome};
use linesman::tunnel::session::{Config, Role};
use linesman::tunnel::{Incoming, Line};
use linesman::wire::api::{AgentBuild, HubKey, HubRef};
use linesman::wire::frame::{Class, Frame, Kind};
use rustls_pki_types::ServerName;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::client;
use tokio_rustls::server::TlsStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_util::sync::CancellationToken;

use super::world::{PATIENCE, World, trusting};

const AGENT: &[u8] = b"linesman-line/1 agent\n";
const HUB: &[u8] = b"linesman-line/1 hub\n";

/// The head of a message of HTTP/1.
async fn head(io: &mut (impl AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(io.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

/// A payload of the handshake with fields that this build does not know.
fn grown(prefix: &[u8], asked: &[u8], payload: &[u8], key: &KeyPair) -> Bytes {
    let (text, _) = payload.split_at(payload.len() - 64);
    let mut value: Value = serde_json::from_slice(text).unwrap();
    value["later"] = json!({ "of": [1, "a", null] });
    value["limits"]["later"] = json!(1);
    value["features"] = json!(["later"]);
    let text = value.to_string().into_bytes();
    let signature = key.sign(&[prefix, &sha256(asked), &sha256(&text)].concat());
    [&text[..], &signature[..]].concat().into()
}

/// Frames that this build does not know, each in a message of its own.
async fn unknown<S: AsyncRead + AsyncWrite + Unpin>(socket: &mut Socket<S>) {
    for _ in 0..3 {
        say(socket, Frame::Skipped).await;
    }
}

async fn say<S: AsyncRead + AsyncWrite + Unpin>(socket: &mut Socket<S>, frame: Frame) {
    driver::send(socket, &frame).await.unwrap();
}

/// A line over what is a WebSocket by now, run to its end by a task.
fn running<S>(socket: Socket<S>, role: Role) -> (Line, mpsc::Receiver<Incoming>, JoinSet<()>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    running_as(socket, Config::new(role))
}

/// The same, with these limits.
pub(super) fn running_as<S>(
    socket: Socket<S>,
    config: Config,
) -> (Line, mpsc::Receiver<Incoming>, JoinSet<()>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let identity = Identity {
        epoch: 1,
        session: String::new(),
        remote: String::new(),
        instance: String::new(),
        since: clock::now(),
        hub_clock: Steady::new(0, Instant::now()),
        cap: None,
    };
    let (streams, incoming) = mpsc::channel(4);
    let stop = CancellationToken::new();
    let (line, run) = driver::line(socket, config, identity, streams, stop);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { drop(run.await) });
    (line, incoming, tasks)
}

/// A connection to the hub that was upgraded to a line's, before its handshake.
pub(super) async fn upgraded(reference: &HubRef) -> Socket<client::TlsStream<TcpStream>> {
    let authority = reference.urls[0].strip_prefix("https://").unwrap();
    let tcp = TcpStream::connect(authority).await.unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let tls = trusting(&reference.ca).connect(name, tcp).await;
    let mut tls = tls.unwrap();
    let upgrade = format!(
        "GET /v1/line HTTP/1.1\r\nHost: {authority}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\
         Sec-WebSocket-Protocol: {SUBPROTOCOL}\r\n\r\n"
    );
    tls.write_all(upgrade.as_bytes()).await.unwrap();
    assert!(head(&mut tls).await.starts_with("HTTP/1.1 101"));
    Socket::new(tls, Role::Agent, Bytes::new())
}

/// L18: a hub serves an agent that says more than it knows.
#[tokio::test]
async fn a_hub_serves_an_agent_of_a_later_build() {
    let world = World::new().await;
    let reference = world.hub.reference();
    let authority = reference.urls[0].strip_prefix("https://").unwrap();
    let mut socket = upgraded(&reference).await;

    let Frame::Challenge(challenge) = driver::receive(&mut socket).await.unwrap() else {
        panic!("no CHALLENGE");
    };
    let agent = Agent {
        cluster: &world.cluster,
        identity: &world.identity,
        hub: &reference.id,
        host: authority,
        nonce: [3; 32],
        instance: "later",
        resumes: None,
        cap: None,
        build: &AgentBuild::default(),
        keyset: &reference.keyset,
    };
    let hello = handshake::hello(&challenge, &agent).unwrap();
    let hello = grown(AGENT, &challenge, &hello, &world.identity);
    unknown(&mut socket).await;
    say(&mut socket, Frame::Hello(hello.clone())).await;
    let Frame::Welcome(welcome) = driver::receive(&mut socket).await.unwrap() else {
        panic!("no WELCOME");
    };
    handshake::check_welcome(&hello, &welcome, &reference.keyset, 0).unwrap();
    unknown(&mut socket).await;

    let (line, _incoming, _tasks) = running(socket, Role::Agent);
    let mut stream = line
        .open(
            Kind::Report,
            Class::Normal,
            Bytes::from_static(b"{\"later\":1}"),
        )
        .await
        .unwrap();
    let asked = b"GET /v1/nothing HTTP/1.1\r\nhost: hub\r\n\r\n";
    stream.write_all(asked).await.unwrap();
    let answer = timeout(PATIENCE, head(&mut stream))
        .await
        .expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    world.end().await;
}

/// A hub of a later build, which listens where its record says.
struct Later {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    key: KeyPair,
    reference: HubRef,
}

impl Later {
    async fn new() -> Self {
        let (acceptor, ca) = crate::tls::loopback();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let key = KeyPair::from_seed(&[9; 32]);
        let kid = HubKey {
            kid: "k".to_owned(),
            key: key.public().to_base64(),
            not_after: None,
        };
        let reference = HubRef {
            id: "later".to_owned(),
            urls: vec![format!("https://{}", listener.local_addr().unwrap())],
            ca,
            keyset: vec![kid],
        };
        Self {
            listener,
            acceptor,
            key,
            reference,
        }
    }

    /// Takes the next agent's line, up to WELCOME; gives what the agent said, too.
    async fn accept(&self) -> (Socket<TlsStream<TcpStream>>, Hello) {
        let (tcp, _) = self.listener.accept().await.unwrap();
        let mut tls = self.acceptor.accept(tcp).await.unwrap();
        let asked = head(&mut tls).await;
        assert!(asked.starts_with("GET /v1/line "), "{asked}");
        let mut socket = accepted(tls, &asked).await;

        let challenge = handshake::challenge("later", [2; 32], 1_700_000_000_000);
        let mut more: Value = serde_json::from_slice(&challenge).unwrap();
        more["v"] = json!([1, 9]);
        more["later"] = json!([{}]);
        unknown(&mut socket).await;
        say(&mut socket, Frame::Challenge(more.to_string().into())).await;
        let Frame::Hello(hello) = driver::receive(&mut socket).await.unwrap() else {
            panic!("no HELLO");
        };
        let read: Hello = handshake::read_hello(&hello).unwrap();
        assert_eq!((read.v, read.hub.as_str()), (1, "later"));
        let welcome = Welcome {
            epoch: 7,
            session: "s".to_owned(),
            replica: "r".to_owned(),
            time_ms: 1_700_000_000_000,
            features: vec![],
            limits: Limits::default(),
            keyset: None,
        };
        let welcome = handshake::welcome(&hello, &welcome, |message| self.key.sign(message));
        let welcome = grown(HUB, &hello, &welcome, &self.key);
        unknown(&mut socket).await;
        say(&mut socket, Frame::Welcome(welcome)).await;
        unknown(&mut socket).await;
        (socket, read)
    }
}

/// An agent's link to such a hub: how its line is, and the streams that come.
struct Linked {
    state: watch::Receiver<LinkState>,
    incoming: mpsc::Receiver<Incoming>,
    _task: JoinSet<()>,
}

fn linked(hub: &Later) -> Linked {
    let config = LinkConfig {
        hub: watch::channel(hub.reference.clone()).1,
        cluster: "eu1".parse().unwrap(),
        keys: watch::channel(Keys::from_seeds(&[1; 32], &[2; 32])).1,
        build: AgentBuild::default(),
        instance: "agent".to_owned(),
        proxy: watch::channel(None).1,
    };
    let (out, state) = watch::channel(LinkState::Down {
        since: clock::now(),
        cause: String::new(),
        attempt: 0,
        strange: false,
    });
    let (streams, incoming) = mpsc::channel(4);
    let mut task = JoinSet::new();
    let stop = CancellationToken::new();
    task.spawn(async move { link::run(config, out, streams, stop).await.unwrap() });
    Linked {
        state,
        incoming,
        _task: task,
    }
}

impl Linked {
    async fn up(&mut self) {
        let up = |state: &LinkState| matches!(state, LinkState::Up { .. });
        let up = timeout(PATIENCE, self.state.wait_for(up)).await;
        drop(up.expect("the line is up").unwrap());
    }
}

/// L18: an agent keeps its line to a hub that says more than it knows.
#[tokio::test]
async fn an_agent_keeps_its_line_to_a_hub_of_a_later_build() {
    let hub = Later::new().await;
    let mut agent = linked(&hub);
    let (socket, _) = timeout(PATIENCE, hub.accept()).await.expect("a line");
    let (line, _incoming, _running) = running(socket, Role::Hub);
    agent.up().await;
    let open = line.open(Kind::Api, Class::Normal, Bytes::from_static(b"{}"));
    let _kept = open.await.unwrap();
    let opened = timeout(PATIENCE, agent.incoming.recv()).await;
    let opened = opened.expect("a stream");
    assert_eq!(opened.map(|stream| stream.epoch), Some(7));
    // An agent that met something that it cannot bear would have left by the answer to a PING.
    let rtt = async {
        while line.facts().rtt.is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, rtt).await.expect("the agent answers");
    assert!(line.takes_streams());
}

/// L9, L13: a line that broke at the agent's end may live on at the hub's for a while. To resume it would have the hub keep what
/// runs there.
#[tokio::test]
async fn an_agent_resumes_no_line_that_broke() {
    let hub = Later::new().await;
    let mut agent = linked(&hub);
    let (socket, first) = timeout(PATIENCE, hub.accept()).await.expect("a line");
    agent.up().await;
    drop(socket);
    let (_socket, second) = timeout(PATIENCE, hub.accept()).await.expect("the next");
    assert_eq!((first.resumes, second.resumes), (None, None));
}

/// Answers the upgrade of which this is the head.
async fn accepted<S: AsyncRead + AsyncWrite + Unpin>(mut io: S, asked: &str) -> Socket<S> {
    let key = asked.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("sec-websocket-key")
            .then(|| value.trim())
    });
    let accept = derive_accept_key(key.unwrap().as_bytes());
    let answer = format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: {SUBPROTOCOL}\r\n\r\n"
    );
    io.write_all(answer.as_bytes()).await.unwrap();
    Socket::new(io, Role::Hub, Bytes::new())
}

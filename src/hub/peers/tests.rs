//! Replicas on loopback, with agents' lines in memory.

use std::net::SocketAddr;

use rcgen::{CertificateParams, KeyPair};
use rustls::ClientConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use time::OffsetDateTime;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::clock::Steady;
use crate::hub::tunnels::Tunnels;
use crate::keys;
use crate::tunnel::Incoming;
use crate::tunnel::driver::{self, Identity, Socket};
use crate::tunnel::session::{Config, Role};
use crate::wire::frame::Goaway;

mod certificates;
mod silent;

/// How long anything may take that is not measured.
const PATIENCE: Duration = Duration::from_secs(20);

/// A certificate and its key.
struct Pair {
    cert: CertificateDer<'static>,
    key: PrivatePkcs8KeyDer<'static>,
}

impl Pair {
    fn new() -> Self {
        let pair = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["replica.linesman.invalid".to_owned()]).unwrap();
        let cert = params.self_signed(&pair).unwrap().der().clone();
        let key = PrivatePkcs8KeyDer::from(pair.serialize_der());
        Self { cert, key }
    }

    fn credential(&self) -> Credential {
        let key = PrivateKeyDer::from(self.key.clone_key());
        Credential::new(self.cert.clone(), key).unwrap()
    }

    fn peer(&self, id: &str, address: SocketAddr) -> Peer {
        Peer {
            id: id.to_owned(),
            address: address.to_string(),
            cert_sha256: keys::sha256(&self.cert),
        }
    }
}

/// A replica that serves.
struct Replica {
    peers: Peers,
    peer: Peer,
    pair: Pair,
    address: SocketAddr,
    tunnels: Tunnels,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Replica {
    async fn new(id: &str, timing: Timing) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (pair, tunnels) = (Pair::new(), Tunnels::default());
        let stop = CancellationToken::new();
        let peers = Peers::new(pair.credential(), tunnels.memory.clone(), timing);
        let mut tasks = JoinSet::new();
        let running = owner::run(listener, peers.clone(), tunnels.clone(), stop.clone());
        tasks.spawn(async move { running.await.unwrap() });
        Self {
            peer: pair.peer(id, address),
            peers,
            pair,
            address,
            tunnels,
            stop,
            tasks,
        }
    }

    /// Two that know each other.
    async fn two() -> (Self, Self) {
        let a = Self::new("a", Timing::default()).await;
        let b = Self::new("b", Timing::default()).await;
        for replica in [&a, &b] {
            replica.peers.know(vec![a.peer.clone(), b.peer.clone()]);
        }
        (a, b)
    }

    /// The line of an agent; gives what is opened there.
    fn agent(&mut self, epoch: u64) -> mpsc::Receiver<Incoming> {
        let (hub, agent) = duplex(64 << 10);
        let mut end = |io, role| {
            let identity = Identity {
                epoch,
                session: String::new(),
                remote: String::new(),
                instance: String::new(),
                since: OffsetDateTime::UNIX_EPOCH,
                hub_clock: Steady::new(0, std::time::Instant::now()),
                cap: None,
            };
            let socket = Socket::new(io, role, Bytes::new());
            let (streams, incoming) = mpsc::channel(16);
            let stop = CancellationToken::new();
            let (line, run) = driver::line(socket, Config::new(role), identity, streams, stop);
            self.tasks.spawn(async move { drop(run.await) });
            (line, incoming)
        };
        let (_, streams) = end(agent, Role::Agent);
        let (line, _) = end(hub, Role::Hub);
        self.tunnels.add(&eu1(), "id-eu1", line, None);
        streams
    }

    async fn open(&self, at: &Self, epoch: u64) -> Result<Stream, PeerError> {
        let (kind, name) = ((Kind::Api, Class::Normal), eu1());
        let opened = self.peers.open(&at.peer.id, (&name, epoch), kind, META);
        timeout(PATIENCE, opened).await.expect("it answers in time")
    }
}

/// What belongs to the agent goes there byte by byte.
const META: &[u8] = br#"{"id": "1", "z": 1, "a": "\u00e4\"" }"#;

fn eu1() -> ClusterName {
    "eu1".parse().unwrap()
}

async fn next(agent: &mut mpsc::Receiver<Incoming>) -> Incoming {
    timeout(PATIENCE, agent.recv()).await.unwrap().unwrap()
}

/// What a caller hears who shows TLS this configuration: true = it was let in.
async fn let_in(to: SocketAddr, config: ClientConfig) -> bool {
    let tcp = TcpStream::connect(to).await.unwrap();
    let name = ServerName::try_from("replica.linesman.invalid").unwrap();
    let Ok(mut tls) = TlsConnector::from(Arc::new(config))
        .connect(name, tcp)
        .await
    else {
        return false;
    };
    let heard = timeout(PATIENCE, tls.read_u8()).await;
    heard.expect("it is told in time").is_ok()
}

/// L19
#[tokio::test]
async fn a_stream_reaches_the_line_that_another_replica_holds() {
    let (a, mut b) = Replica::two().await;
    let mut agent = b.agent(7);
    let mut near = a.open(&b, 7).await.unwrap();
    let mut arrived = next(&mut agent).await;
    let told = (
        arrived.kind,
        arrived.class,
        &arrived.meta[..],
        arrived.epoch,
    );
    assert_eq!(told, (Kind::Api, Class::Normal, META, 7));
    near.write_all(b"question").await.unwrap();
    near.shutdown().await.unwrap();
    let mut text = String::new();
    arrived.stream.read_to_string(&mut text).await.unwrap();
    arrived.stream.write_all(b"answer").await.unwrap();
    arrived.stream.shutdown().await.unwrap();
    near.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "questionanswer");
}

/// L8
#[tokio::test]
async fn who_gives_up_is_heard_at_the_agent() {
    let (a, mut b) = Replica::two().await;
    let mut agent = b.agent(7);
    let near = a.open(&b, 7).await.unwrap();
    let arrived = next(&mut agent).await;
    let cancelled = arrived.stream.cancelled();
    drop(near);
    timeout(PATIENCE, cancelled.cancelled()).await.unwrap();
    assert_eq!(arrived.stream.failure().unwrap().code, Code::Cancelled);
}

/// L19, L45: an owner looks at its own lines only, and a line of another time is none.
#[tokio::test]
async fn a_line_that_is_not_there_is_superseded() {
    let (a, mut b) = Replica::two().await;
    let superseded = Err(Code::Superseded);
    let code = |opened: Result<Stream, PeerError>| match opened {
        Ok(_) => Ok(()),
        Err(PeerError::Line(error)) => Err(error.code),
        Err(error) => panic!("{error}"),
    };
    assert_eq!(code(a.open(&b, 7).await), superseded);
    let _agent = b.agent(8);
    for (epoch, expected) in [(7, superseded), (9, superseded), (8, Ok(()))] {
        assert_eq!(code(a.open(&b, epoch).await), expected, "{epoch}");
    }
}

/// L45: what a replica asks for when it is none any more is refused; what runs goes on.
#[tokio::test]
async fn a_replica_that_left_opens_nothing_more() {
    let (a, mut b) = Replica::two().await;
    let mut agent = b.agent(7);
    let mut near = a.open(&b, 7).await.unwrap();
    let mut arrived = next(&mut agent).await;
    b.peers.know(Vec::new());
    let refused = a.open(&b, 7).await.unwrap_err();
    assert!(
        matches!(&refused, PeerError::Line(error) if error.code == Code::Revoked),
        "{refused}"
    );
    near.write_all(b"x").await.unwrap();
    assert_eq!(arrived.stream.read_u8().await.unwrap(), b'x');
}

/// L45: a database that was away for a moment has left nobody a lease. What runs by then has no end because of that.
#[tokio::test]
async fn a_replica_that_was_missing_for_a_moment_keeps_what_runs() {
    let (mut a, mut b) = Replica::two().await;
    let mut agent = b.agent(7);
    let mut near = a.open(&b, 7).await.unwrap();
    let mut arrived = next(&mut agent).await;
    a.peers.know(Vec::new());
    a.peers.know(vec![a.peer.clone(), b.peer.clone()]);
    let told = Goaway {
        code: Code::None,
        retry_after_ms: 0,
        drain_ms: u32::MAX,
        text: "the replica left".to_owned(),
    };
    let line = near.line();
    assert_eq!(timeout(PATIENCE, line.draining()).await.unwrap(), told);
    let beside = a.open(&b, 7).await.unwrap();
    drop(next(&mut agent).await);
    near.write_all(b"x").await.unwrap();
    assert_eq!(arrived.stream.read_u8().await.unwrap(), b'x');

    // Nor is it in the way of a replica that stops.
    a.stop.cancel();
    drop((near, beside));
    timeout(PATIENCE, line.closed()).await.unwrap();
    let ended = timeout(PATIENCE, a.tasks.join_next()).await;
    ended.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn a_pair_has_few_lines_however_many_streams() {
    let (a, mut b) = Replica::two().await;
    let mut agent = b.agent(7);
    let mut held = Vec::new();
    for _ in 0..3 * CROWDED {
        held.push((a.open(&b, 7).await.unwrap(), next(&mut agent).await));
    }
    let lines = || a.peers.inner.lock()["b"].lines.len();
    assert_eq!((lines(), MAX_LINES), (2, 2));
}

/// L20: one more line is a wish: where it cannot be had, the one that is there takes what it has room for.
#[tokio::test]
async fn a_dial_of_one_more_line_that_failed_refuses_nobody() {
    let (a, mut b) = Replica::two().await;
    let mut agent = b.agent(7);
    let mut held = Vec::new();
    for _ in 0..CROWDED {
        held.push((a.open(&b, 7).await.unwrap(), next(&mut agent).await));
    }
    let failed = PeerError::Dial("connection refused".to_owned());
    let until = Instant::now() + PATIENCE;
    a.peers.inner.failed("b", failed, until);
    assert!(a.open(&b, 7).await.is_ok());
    // And it is not dialled again before it is time.
    let ways = a.peers.inner.lock();
    let way = &ways["b"];
    assert_eq!((way.lines.len(), way.dialling.is_some()), (1, false));
}

#[tokio::test]
async fn a_line_that_nobody_uses_ends_and_the_next_one_is_dialled() {
    let timing = Timing {
        idle: Duration::from_millis(50),
        ..Timing::default()
    };
    let a = Replica::new("a", timing).await;
    let mut b = Replica::new("b", Timing::default()).await;
    for replica in [&a, &b] {
        replica.peers.know(vec![a.peer.clone(), b.peer.clone()]);
    }
    let _agent = b.agent(7);
    drop(a.open(&b, 7).await.unwrap());
    let line = a.peers.inner.lock()["b"].lines[0].clone();
    timeout(PATIENCE, line.closed()).await.unwrap();
    assert!(a.open(&b, 7).await.is_ok());
}

/// L16: what runs has its time, and the next request goes another way.
#[tokio::test]
async fn a_replica_that_stops_lets_its_streams_end() {
    let (a, mut b) = Replica::two().await;
    let mut agent = b.agent(7);
    let mut near = a.open(&b, 7).await.unwrap();
    let mut arrived = next(&mut agent).await;
    b.stop.cancel();
    let line = near.line();
    timeout(PATIENCE, line.draining()).await.unwrap();
    near.write_all(b"last").await.unwrap();
    near.shutdown().await.unwrap();
    let mut text = String::new();
    arrived.stream.read_to_string(&mut text).await.unwrap();
    arrived.stream.shutdown().await.unwrap();
    assert_eq!(near.read_to_string(&mut text).await.unwrap(), 0);
    assert_eq!(text, "last");
    timeout(PATIENCE, line.closed()).await.unwrap();
}

/// L16: nobody waits for a line that is made no more.
#[tokio::test]
async fn a_replica_that_has_stopped_dials_nobody() {
    let (mut a, b) = Replica::two().await;
    a.stop.cancel();
    let ended = timeout(PATIENCE, a.tasks.join_next()).await;
    ended.unwrap().unwrap().unwrap();
    let refused = a.open(&b, 7).await.unwrap_err();
    let expected = PeerError::Dial("no line is made to it now".to_owned());
    assert_eq!(refused, expected);
}

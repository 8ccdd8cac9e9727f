//! A line to another replica: made within a deadline, kept while it is used.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::{Inner, Peer, PeerError, SOON, Timing, pin};
use crate::clock::{self, Steady};
use crate::tcp;
use crate::tunnel::Line;
use crate::tunnel::driver::{self, Ahead, Identity};
use crate::tunnel::handshake::Limits;
use crate::tunnel::session::{Config, Role};
use crate::wire::frame::{Code, Frame};

/// A name has to be given, and none is looked at.
const NAME: &str = "replica.linesman.invalid";

type Socket = driver::Socket<TlsStream<Ahead<TcpStream>>>;

/// A line that somebody waits for.
pub(super) struct Job {
    pub(super) peers: Arc<Inner>,
    pub(super) peer: Peer,
    /// Dropped when the line is there, or will not be.
    pub(super) done: watch::Sender<()>,
}

/// Makes the line and runs it to its end.
pub(super) async fn run(job: Job, stop: CancellationToken) {
    let Job { peers, peer, done } = job;
    let dialled = timeout(peers.timing.dial, dial(&peers, &peer)).await;
    let socket = match dialled {
        Ok(Ok(socket)) => socket,
        Ok(Err(error)) => {
            let text = format!("{}: {error:#}", peer.address);
            return failed(&peers, &peer, text, SOON);
        }
        Err(_) => {
            let seconds = peers.timing.dial.as_secs();
            let text = format!("{}: no answer in {seconds} s", peer.address);
            return failed(&peers, &peer, text, peers.timing.again);
        }
    };
    let config = config(&peers, Role::Agent);
    // The other end opens nothing here.
    let (nobody, _) = mpsc::channel(1);
    let identity = identity(&peer.id, &peer.address);
    let (line, running) = driver::line(socket, config, identity, nobody, CancellationToken::new());
    if let Some(way) = peers.lock().get_mut(&peer.id) {
        way.lines.push(line.clone());
        (way.dialling, way.failed) = (None, None);
    }
    debug!(replica = peer.id, address = peer.address, "peer line up");
    drop(done);
    tokio::pin!(running);
    let ended = tokio::select! {
        ended = &mut running => ended,
        () = idle(&line, &peers.timing, &stop) => {
            let drained = timeout(peers.timing.drain, &mut running).await;
            if drained.is_err() {
                // One to a replica that had left drains without an end of its own.
                line.close(Code::Draining, "the time to drain is over");
            }
            match drained {
                Ok(ended) => ended,
                Err(_) => running.await,
            }
        }
    };
    if let Some(way) = peers.lock().get_mut(&peer.id) {
        way.lines.retain(Line::takes_streams);
    }
    debug!(replica = peer.id, code = %ended.code, text = ended.text, "peer line down");
}

fn failed(peers: &Inner, peer: &Peer, text: String, wait: Duration) {
    warn!(replica = peer.id, error = text, "dial another replica");
    if let Some(way) = peers.lock().get_mut(&peer.id) {
        way.dialling = None;
    }
    peers.failed(&peer.id, PeerError::Dial(text), Instant::now() + wait);
}

async fn dial(peers: &Inner, peer: &Peer) -> anyhow::Result<Socket> {
    let found = tcp::lookup(peer.address.as_str()).await?;
    let tcp = tcp::connect(&found).await?;
    driver::tune(&tcp);
    let config = peers.credential.client(peer.cert_sha256)?;
    let name = ServerName::try_from(NAME)?;
    let tls = TlsConnector::from(Arc::new(config))
        .connect(name, Ahead::new(tcp))
        .await?;
    anyhow::ensure!(
        tls.get_ref().1.alpn_protocol() == Some(pin::ALPN),
        "it does not speak the protocol of peer lines"
    );
    let mut socket = Socket::new(tls, Role::Agent, Bytes::new());
    // In TLS 1.3 a client is done before its own certificate was looked at.
    match driver::receive(&mut socket).await? {
        Frame::Welcome(_) => Ok(socket),
        _ => anyhow::bail!("it does not say what a peer says first"),
    }
}

/// Completes when nobody has used the line for long, or the hub stops: both let it end when it is empty.
async fn idle(line: &Line, timing: &Timing, stop: &CancellationToken) {
    let mut opened = line.facts().opened;
    let unused = async {
        loop {
            sleep(timing.idle).await;
            let facts = line.facts();
            if facts.live == 0 && facts.opened == opened {
                return;
            }
            opened = facts.opened;
        }
    };
    tokio::select! {
        () = unused => line.goaway(Code::None, Duration::ZERO, timing.drain, "unused"),
        () = stop.cancelled() => {
            line.goaway(Code::Draining, Duration::ZERO, timing.drain, "the hub stops");
        }
    }
}

/// What both ends of a peer line keep to: the version of [`pin::ALPN`] says it.
pub(super) fn config(peers: &Inner, role: Role) -> Config {
    Config {
        process: peers.memory.clone(),
        ..Limits::default().session(role, Limits::default(), clock::unit())
    }
}

pub(super) fn identity(replica: &str, address: &str) -> Identity {
    Identity {
        epoch: 0,
        session: clock::id(),
        remote: address.to_owned(),
        instance: replica.to_owned(),
        since: clock::now(),
        // Nobody judges by the time of this hop.
        hub_clock: Steady::new(0, std::time::Instant::now()),
        cap: None,
    }
}

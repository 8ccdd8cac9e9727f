//! The owner's side: other replicas' lines to this one, and their streams onto the lines of agents that are here. A
//! stream goes one hop only: a line that is not here is nobody's to look for.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use rustls_pki_types::CertificateDer;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::{OPENED, PeerMeta, Peers, dial, pin};
use crate::hub::tunnels::Tunnels;
use crate::tunnel::driver::{self, Ahead};
use crate::tunnel::session::Role;
use crate::tunnel::splice::splice;
use crate::tunnel::{Incoming, LineError, Stream};
use crate::wire::frame::{Code, Frame, Kind};

/// Connections of others, known or not yet.
const CONNECTIONS: usize = 256;
/// Those that have not shown who they are.
const UNPROVEN: usize = 64;
/// New streams of one line that wait to be looked at.
const WAITING: usize = 1024;
/// When the hub stops, requests that are on their way to it by then still find their line.
const LAST_REQUESTS: Duration = Duration::from_secs(1);

type Socket = driver::Socket<TlsStream<Ahead<TcpStream>>>;

/// Serves the other replicas and makes the lines that this one asks for, until the hub stops and they are empty.
pub async fn run(
    listener: TcpListener,
    peers: Peers,
    tunnels: Tunnels,
    stop: CancellationToken,
) -> Result<()> {
    let acceptor = TlsAcceptor::from(Arc::new(peers.inner.credential.server(&peers.inner.known)?));
    let jobs = peers.inner.jobs.lock();
    let jobs = jobs.unwrap_or_else(PoisonError::into_inner).take();
    let mut jobs = jobs.context("lines to replicas are run once")?;
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let unproven = Arc::new(Semaphore::new(UNPROVEN));
    let ending = CancellationToken::new();
    let stopped = async {
        stop.cancelled().await;
        sleep(LAST_REQUESTS).await;
    };
    tokio::pin!(stopped);
    let mut lines = JoinSet::new();
    loop {
        tokio::select! {
            () = &mut stopped => break,
            Some(_) = lines.join_next() => {}
            Some(job) = jobs.recv() => {
                lines.spawn(dial::run(job, ending.clone()));
            }
            accepted = listener.accept() => match accepted {
                Ok((socket, _)) => {
                    let places = (room.clone().try_acquire_owned(), unproven.clone().try_acquire_owned());
                    if let (Ok(place), Ok(chance)) = places {
                        let caller = Caller { place, chance, acceptor: acceptor.clone() };
                        lines.spawn(serve(socket, caller, peers.clone(), tunnels.clone(), ending.clone()));
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "accept a replica's connection");
                    sleep(Duration::from_millis(100)).await;
                }
            },
        }
    }
    // Who asks for a line from now on hears so at once.
    drop((listener, jobs));
    ending.cancel();
    // The hub's own drain cuts what takes longer.
    while lines.join_next().await.is_some() {}
    Ok(())
}

/// A connection whose other end is not known yet.
struct Caller {
    place: OwnedSemaphorePermit,
    chance: OwnedSemaphorePermit,
    acceptor: TlsAcceptor,
}

async fn serve(
    socket: TcpStream,
    caller: Caller,
    peers: Peers,
    tunnels: Tunnels,
    ending: CancellationToken,
) {
    let address = socket
        .peer_addr()
        .map(|address| address.to_string())
        .unwrap_or_default();
    let Caller {
        place: _place,
        chance,
        acceptor,
    } = caller;
    let proven = timeout(peers.inner.timing.dial, prove(socket, &acceptor, &peers)).await;
    let (mut socket, cert, replica) = match proven {
        Ok(Ok(proven)) => proven,
        Ok(Err(error)) => {
            return debug!(address, error = format!("{error:#}"), "replica refused");
        }
        Err(_) => return debug!(address, "a replica took too long to show who it is"),
    };
    drop(chance);
    let welcome = Frame::Welcome(Bytes::from_static(b"{}"));
    if let Err(error) = driver::send(&mut socket, &welcome).await {
        return debug!(address, %error, "greet a replica");
    }
    let (arriving, mut incoming) = mpsc::channel(WAITING);
    let config = dial::config(&peers.inner, Role::Hub);
    let identity = dial::identity(&replica, &address);
    let (line, running) =
        driver::line(socket, config, identity, arriving, CancellationToken::new());
    debug!(replica, address, "peer line of another up");
    let streams = async {
        let mut carried = JoinSet::new();
        loop {
            tokio::select! {
                next = incoming.recv() => match next {
                    // Whoever is not among the replicas any more gets nothing new.
                    Some(next) if peers.inner.known.holder(&cert).is_none() => {
                        next.stream.reset(Code::Revoked, "the replica is not known any more");
                    }
                    Some(next) => { carried.spawn(carry(next, tunnels.clone())); }
                    None => return,
                },
                Some(_) = carried.join_next() => {}
                () = ending.cancelled(), if line.takes_streams() => {
                    let drain = peers.inner.timing.drain;
                    line.goaway(Code::Draining, Duration::ZERO, drain, "the replica stops");
                }
            }
        }
    };
    tokio::pin!(running);
    let ended = tokio::select! {
        ended = &mut running => ended,
        () = streams => running.await,
    };
    debug!(replica, code = %ended.code, text = ended.text, "peer line of another down");
}

/// TLS with a certificate that is known.
async fn prove(
    socket: TcpStream,
    acceptor: &TlsAcceptor,
    peers: &Peers,
) -> Result<(Socket, CertificateDer<'static>, String)> {
    driver::tune(&socket);
    let tls = acceptor.accept(Ahead::new(socket)).await?;
    let session = tls.get_ref().1;
    anyhow::ensure!(
        session.alpn_protocol() == Some(pin::ALPN),
        "it does not ask for the protocol of peer lines"
    );
    let cert = session.peer_certificates().and_then(<[_]>::first);
    let cert = cert.map(|cert| cert.clone().into_owned());
    let holder = cert.and_then(|cert| Some((peers.inner.known.holder(&cert)?, cert)));
    let Some((replica, cert)) = holder else {
        anyhow::bail!("its certificate is not known");
    };
    Ok((Socket::new(tls, Role::Hub, Bytes::new()), cert, replica))
}

/// One stream of another replica, onto the agent's line.
async fn carry(incoming: Incoming, tunnels: Tunnels) {
    let mut near = incoming.stream;
    let opened = open(&incoming.meta, (incoming.kind, incoming.class), &tunnels).await;
    match opened {
        Ok(far) => {
            if near.write_all(&[OPENED]).await.is_ok()
                && let Err(error) = splice(near, far).await
            {
                debug!(code = %error.code, text = error.text, "stream of another replica ended");
            }
        }
        Err(refusal) => near.reset(refusal.code, &refusal.text),
    }
}

async fn open(
    meta: &[u8],
    (kind, class): (Kind, crate::wire::frame::Class),
    tunnels: &Tunnels,
) -> Result<Stream, LineError> {
    // What agents open ends where their line does.
    if kind != Kind::Api {
        return Err(LineError::new(Code::Refused, "no stream of a replica"));
    }
    let meta: PeerMeta = serde_json::from_slice(meta)
        .map_err(|error| LineError::new(Code::Protocol, error.to_string()))?;
    let line = tunnels
        .get(&meta.cluster)
        .filter(|line| line.facts().epoch == meta.epoch)
        .ok_or_else(|| LineError::new(Code::Superseded, "the line is not here"))?;
    line.open(kind, class, Bytes::from(meta.meta)).await
}

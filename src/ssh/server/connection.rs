//! One SSH connection: who it is, which channels it may open, when it is cut.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use russh::keys::ssh_key;
use russh::server::{
    Auth, ChannelOpenHandle, Config, Handler, Msg, PublicKeyOffer, Session, VerifiedPublicKey,
};
use russh::{
    Channel, ChannelId, ChannelOpenFailure, Disconnect, MethodKind, MethodSet, Pty, Sig, SshId,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tracing::debug;

use super::channel;
use super::room::Seat;
use super::{Limits, Right, Shared};
use crate::keys::Public;
use crate::ssh::HostPair;
use crate::ssh::known_hosts::fingerprint;

/// Channels that one connection may have open; each runs at most one command.
const CHANNELS: usize = 4;
/// How long a wrong key waits for its answer, so that guessing is slow and timing tells nothing.
const REJECTION: Duration = Duration::from_millis(200);

pub(super) fn config(host_key: &HostPair, limits: &Limits) -> Config {
    Config {
        server_id: SshId::Standard("SSH-2.0-linesman".into()),
        methods: MethodSet::from(&[MethodKind::PublicKey][..]),
        auth_rejection_time: REJECTION,
        auth_rejection_time_initial: Some(Duration::ZERO),
        keys: vec![host_key.private()],
        preferred: crate::ssh::uncompressed(),
        // OpenSSH's opening question "none" counts as a rejection.
        max_auth_attempts: limits.auth_tries + 1,
        inactivity_timeout: Some(limits.idle),
        nodelay: true,
        ..Config::default()
    }
}

/// Serves one connection to its end; cut at the latest when its life is over.
pub(super) async fn serve<A: Clone + Send + Sync + 'static>(
    socket: TcpStream,
    config: Arc<Config>,
    shared: Arc<Shared<A>>,
    (seat, stop): (Arc<Seat>, CancellationToken),
) {
    let limits = shared.server.limits;
    let cut = CancellationToken::new();
    // Whatever ends this function, the tasks that russh started for the connection end as well.
    let _cut_at_the_end = cut.clone().drop_guard();
    let Ok(peer) = socket.peer_addr() else {
        return;
    };
    socket.set_nodelay(true).ok();
    let known = CancellationToken::new();
    let client = Client {
        shared,
        peer,
        who: None,
        seat,
        known: known.clone(),
        channels: JoinSet::new(),
        cut: cut.clone(),
    };
    let start = Instant::now();
    let stream = CutStream::new(socket, cut.clone());
    let handshake = russh::server::run_stream(config, stream, client);
    let handshake = timeout(limits.auth, handshake);
    let Some(Ok(Ok(session))) = stop.run_until_cancelled(handshake).await else {
        debug!(%peer, "no SSH client");
        return;
    };
    let handle = session.handle();
    tokio::pin!(session);
    tokio::select! {
        result = &mut session => {
            if let Err(error) = result {
                debug!(%peer, %error, "SSH connection ended");
            }
            return;
        }
        why = overdue(start, limits, &known, &stop) => debug!(%peer, why, "SSH connection is ended"),
    }
    let goodbye = handle.disconnect(Disconnect::ByApplication, String::new(), String::new());
    timeout(Duration::from_millis(200), goodbye).await.ok();
    timeout(Duration::from_millis(200), &mut session).await.ok();
}

/// Waits until the connection has to go, whatever it is doing.
async fn overdue(
    start: Instant,
    limits: Limits,
    known: &CancellationToken,
    stop: &CancellationToken,
) -> &'static str {
    tokio::select! {
        () = known.cancelled() => {}
        () = sleep_until(start + limits.auth) => return "not authenticated in time",
        () = stop.cancelled() => return "the server stops",
    }
    tokio::select! {
        () = sleep_until(start + limits.life) => "its time is over",
        () = stop.cancelled() => {
            sleep(limits.drain).await;
            "the server stops"
        }
    }
}

/// What russh calls for one connection.
struct Client<A> {
    shared: Arc<Shared<A>>,
    peer: SocketAddr,
    /// Whose key it is proven that the client has.
    who: Option<Public>,
    seat: Arc<Seat>,
    /// Cancelled once the client is authenticated.
    known: CancellationToken,
    channels: JoinSet<()>,
    cut: CancellationToken,
}

impl<A: Clone + Send + Sync + 'static> Client<A> {
    /// The key, where it may do something; an error ends the connection.
    async fn authorize(&self, key: &ssh_key::PublicKey) -> Result<Option<Public>, russh::Error> {
        debug!(peer = %self.peer, key = fingerprint(key), "SSH key offered");
        let Some(public) = key.key_data().ed25519().map(|k| Public(k.0)) else {
            return Ok(None);
        };
        match (self.shared.server.authorize)(public).await {
            Right::Held(_) => Ok(Some(public)),
            Right::None => Ok(None),
            Right::Unknown => {
                debug!(peer = %self.peer, "SSH key cannot be looked up");
                Err(russh::Error::Disconnect)
            }
        }
    }
}

impl<A: Clone + Send + Sync + 'static> Handler for Client<A> {
    type Error = russh::Error;

    async fn auth_publickey_offered(
        &mut self,
        _user: &str,
        offer: PublicKeyOffer<'_>,
    ) -> Result<Auth, russh::Error> {
        Ok(match self.authorize(offer.public_key).await? {
            Some(_) => Auth::Accept,
            None => Auth::reject(),
        })
    }

    async fn auth_publickey(
        &mut self,
        _user: &str,
        key: VerifiedPublicKey<'_>,
    ) -> Result<Auth, russh::Error> {
        self.who = self.authorize(key.public_key).await?;
        Ok(match self.who {
            Some(_) => Auth::Accept,
            None => Auth::reject(),
        })
    }

    async fn auth_succeeded(&mut self, _session: &mut Session) -> Result<(), russh::Error> {
        // None has none: only a key is asked for.
        let fits = self.who.is_some_and(|key| self.seat.known(key));
        if !fits {
            debug!(peer = %self.peer, "too many SSH connections");
            return Err(russh::Error::Disconnect);
        }
        self.known.cancel();
        Ok(())
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        while self.channels.try_join_next().is_some() {}
        let Some(key) = self.who else {
            return Ok(());
        };
        if self.channels.len() >= CHANNELS {
            reply.reject(ChannelOpenFailure::ResourceShortage).await;
            return Ok(());
        }
        debug!(peer = %self.peer, key = %key.fingerprint(), "SSH channel");
        reply.accept().await;
        let serve = channel::serve(
            channel,
            session.handle(),
            Arc::clone(&self.shared),
            (key, self.peer),
        );
        let cut = self.cut.clone();
        self.channels.spawn(async move {
            cut.run_until_cancelled(serve).await;
        });
        Ok(())
    }

    // The channel's task sees each request as a message, in order; here they are only answered, because an
    // answer has to be given before the next request is read.

    async fn env_request(
        &mut self,
        channel: ChannelId,
        name: &str,
        value: &str,
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        if channel::git_protocol(name, value).is_some() {
            session.channel_success(channel)
        } else {
            session.channel_failure(channel)
        }
    }

    async fn exec_request(
        &mut self,
        channel: ChannelId,
        _command: &[u8],
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        session.channel_success(channel)
    }

    async fn shell_request(
        &mut self,
        channel: ChannelId,
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        // Accepted only so that the client shows the words that say why there is none.
        session.channel_success(channel)
    }

    async fn subsystem_request(
        &mut self,
        channel: ChannelId,
        _name: &str,
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        session.channel_failure(channel)
    }

    async fn pty_request(
        &mut self,
        channel: ChannelId,
        _term: &str,
        _columns: u32,
        _rows: u32,
        _width: u32,
        _height: u32,
        _modes: &[(Pty, u32)],
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        session.channel_failure(channel)
    }

    async fn x11_request(
        &mut self,
        channel: ChannelId,
        _single: bool,
        _protocol: &str,
        _cookie: &str,
        _screen: u32,
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        session.channel_failure(channel)
    }

    async fn signal(
        &mut self,
        _channel: ChannelId,
        _signal: Sig,
        _session: &mut Session,
    ) -> Result<(), russh::Error> {
        Ok(())
    }
}

/// A socket that fails for good once its token is cancelled: the one way to end a russh session from outside
/// that a client cannot hold up.
struct CutStream {
    socket: TcpStream,
    cut: CancellationToken,
    waiting: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl CutStream {
    fn new(socket: TcpStream, cut: CancellationToken) -> Self {
        let waiting = Box::pin(cut.clone().cancelled_owned());
        Self {
            socket,
            cut,
            waiting,
        }
    }

    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.cut.is_cancelled() || self.waiting.as_mut().poll(cx).is_ready() {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        Ok(())
    }
}

impl AsyncRead for CutStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.socket).poll_read(cx, buffer)
    }
}

impl AsyncWrite for CutStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.socket).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

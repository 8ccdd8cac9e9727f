//! One attempt: connection, upgrade, handshake.

use std::future::Future;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::tungstenite::Error as WebSocketError;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::{WebSocketStream, client_async_with_config};
use tokio_util::sync::CancellationToken;

use super::transport::{self, Target};
use super::{LinkConfig, Up};
use crate::clock;
use crate::tunnel::driver::{self, Counted, ExchangeError, Identity};
use crate::tunnel::handshake::{self, Agent, HandshakeError, Limits, SUBPROTOCOL};
use crate::tunnel::session::Role;
use crate::tunnel::{Ended, Incoming, Line};
use crate::wire::api::HubRef;
use crate::wire::frame::Frame;

/// TCP, TLS and upgrade together.
const CONNECT: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum DialError {
    #[error("'{0}' is not an https:// URL of a hub")]
    Url(String),
    #[error("{0}")]
    Tls(String),
    #[error("{what}")]
    Connect {
        what: String,
        source: std::io::Error,
    },
    #[error("the hub answered {status} to the upgrade of {url}{}", hint(*.status))]
    Status {
        url: String,
        status: u16,
        retry_after: Option<Duration>,
    },
    #[error("{0} took too long")]
    Late(&'static str),
    #[error("the line's handshake")]
    Line(#[from] ExchangeError),
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
}

impl DialError {
    /// With all causes, on one line.
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        text
    }
}

fn hint(status: u16) -> &'static str {
    match status {
        404 => "; check the hub's URL and its path prefix",
        407 => "; check the proxy's credentials",
        502..=504 => "; the hub or what stands before it is not ready",
        _ => "",
    }
}

/// Tries the hub's URLs in order; the last error stands for all.
pub(super) async fn dial(
    config: &LinkConfig,
    held: Option<&Line>,
    incoming: mpsc::Sender<Incoming>,
    stop: CancellationToken,
) -> Result<Up<impl Future<Output = Ended> + Send + 'static + use<>>, DialError> {
    let hub = config.hub.borrow().clone();
    let mut last = DialError::Url(String::new());
    for url in &hub.urls {
        let attempt = async {
            let target = Target::parse(url)?;
            let (socket, remote) = timeout(CONNECT, upgrade(&target, url, &hub, config))
                .await
                .map_err(|_| DialError::Late("connection, TLS and upgrade"))??;
            establish(
                config,
                &hub,
                &target,
                held,
                socket,
                remote,
                incoming.clone(),
                stop.clone(),
            )
            .await
        };
        match attempt.await {
            Ok(up) => return Ok(up),
            Err(error) => last = error,
        }
    }
    Err(last)
}

type Socket = WebSocketStream<Counted<TlsStream<TcpStream>>>;

async fn upgrade(
    target: &Target,
    url: &str,
    hub: &HubRef,
    config: &LinkConfig,
) -> Result<(Socket, String), DialError> {
    let tls = transport::connect(target, &hub.ca, config.proxy.as_ref()).await?;
    let remote = tls
        .get_ref()
        .0
        .peer_addr()
        .map(|address| address.to_string())
        .unwrap_or_default();
    let mut request = format!("wss://{}{}/v1/line", target.authority, target.prefix)
        .into_client_request()
        .map_err(|_| DialError::Url(url.to_owned()))?;
    let protocol = http::HeaderValue::from_static(SUBPROTOCOL);
    request
        .headers_mut()
        .insert(http::header::SEC_WEBSOCKET_PROTOCOL, protocol);
    match client_async_with_config(request, driver::counted(tls), Some(driver::settings())).await {
        Ok((socket, _)) => Ok((socket, remote)),
        Err(WebSocketError::Http(response)) => {
            let retry_after = response.headers().get(http::header::RETRY_AFTER);
            let seconds = retry_after.and_then(|value| value.to_str().ok()?.parse().ok());
            Err(DialError::Status {
                url: url.to_owned(),
                status: response.status().as_u16(),
                retry_after: seconds.map(Duration::from_secs),
            })
        }
        Err(error) => Err(DialError::Line(ExchangeError::Socket(error.to_string()))),
    }
}

#[expect(clippy::too_many_arguments, reason = "what one attempt has gathered")]
async fn establish(
    config: &LinkConfig,
    hub: &HubRef,
    target: &Target,
    held: Option<&Line>,
    mut socket: Socket,
    remote: String,
    incoming: mpsc::Sender<Incoming>,
    stop: CancellationToken,
) -> Result<Up<impl Future<Output = Ended> + Send + 'static + use<>>, DialError> {
    let challenge = match driver::receive(&mut socket).await? {
        Frame::Challenge(payload) => payload,
        Frame::Refuse(refusal) => return Err(HandshakeError::Refused(refusal).into()),
        _ => return Err(HandshakeError::Shape("first frame").into()),
    };
    let hello = handshake::hello(
        &challenge,
        &Agent {
            cluster: &config.cluster,
            identity: &config.identity,
            hub: &hub.id,
            host: &target.authority,
            nonce: clock::random(),
            instance: &config.instance,
            resumes: held.map(|line| line.facts().epoch),
            build: &config.build,
            keyset: &hub.keyset,
        },
    )?;
    driver::send(&mut socket, &Frame::Hello(hello.clone())).await?;
    let payload = match driver::receive(&mut socket).await? {
        Frame::Welcome(payload) => payload,
        Frame::Refuse(refusal) => return Err(HandshakeError::Refused(refusal).into()),
        _ => return Err(HandshakeError::Shape("answer to HELLO").into()),
    };
    let now = clock::now();
    let welcome = handshake::check_welcome(&hello, &payload, &hub.keyset, now.unix_timestamp())?;
    let identity = Identity {
        epoch: welcome.epoch,
        session: welcome.session,
        remote,
        instance: config.instance.clone(),
        since: now,
    };
    let session = Limits::default().session(Role::Agent, welcome.limits, clock::unit());
    let (line, run) = driver::line(socket, session, identity, incoming, stop);
    let here = now.unix_timestamp_nanos() / 1_000_000;
    let there = i128::from(welcome.time_ms);
    let millis = i64::try_from(there - here).unwrap_or_default();
    Ok(Up {
        line,
        run,
        hub_time_offset: time::Duration::milliseconds(millis),
        keyset: welcome.keyset.unwrap_or_else(|| hub.keyset.clone()),
    })
}

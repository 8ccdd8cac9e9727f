//! One attempt: connection, upgrade, handshake.

use std::convert::Infallible;
use std::future::Future;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header;
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use time::OffsetDateTime;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_util::sync::CancellationToken;

use super::LinkConfig;
use super::transport::{self, Target, Tls};
use super::up::Up;
use crate::clock::{self, Steady};
use crate::telemetry::chain_of;
use crate::tunnel::driver::{self, ExchangeError, Identity};
use crate::tunnel::handshake::{self, Agent, HandshakeError, Limits, SUBPROTOCOL, Welcome};
use crate::tunnel::session::Role;
use crate::tunnel::{Ended, Incoming, Line};
use crate::wire::api::{HubKey, HubRef};
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
    #[error(
        "'{0}' speaks no TLS 1.3, and a hub whose CA is given is dialled with nothing less; turn it on at what stands before the hub"
    )]
    OldTls(String),
    #[error("the hub answered {status} to the upgrade of {url}{}", hint(*.status))]
    Status {
        url: String,
        status: u16,
        retry_after: Option<Duration>,
    },
    #[error("the upgrade of {url}")]
    Upgrade { url: String, source: hyper::Error },
    #[error("the answer to the upgrade of {0} is not a hub's; check what stands before it")]
    Answer(String),
    #[error("{0} took too long")]
    Late(&'static str),
    #[error("the line's handshake")]
    Line(#[from] ExchangeError),
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
}

impl DialError {
    /// Whether somebody answered, whose certificate or signature is not the hub's as far as the agent knows it.
    pub fn is_strange(&self) -> bool {
        match self {
            Self::Connect { source, .. } => transport::is_foreign(source),
            Self::Handshake(error) => matches!(error, HandshakeError::Signature),
            Self::Url(_)
            | Self::Tls(_)
            | Self::OldTls(_)
            | Self::Status { .. }
            | Self::Upgrade { .. }
            | Self::Answer(_)
            | Self::Late(_)
            | Self::Line(_) => false,
        }
    }

    /// With all causes, on one line.
    pub fn chain(&self) -> String {
        chain_of(self)
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

/// Tries the hub's URLs in order; the last error stands for all. `cap` is the age at which something ends this agent's lines.
pub(super) async fn dial(
    config: &LinkConfig,
    held: Option<&Line>,
    cap: Option<Duration>,
    incoming: mpsc::Sender<Incoming>,
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
                (held, cap),
                socket,
                remote,
                incoming.clone(),
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

type Socket = driver::Socket<Tls>;

async fn upgrade(
    target: &Target,
    url: &str,
    hub: &HubRef,
    config: &LinkConfig,
) -> Result<(Socket, String), DialError> {
    let proxy = config.proxy.borrow().clone();
    let tls = transport::connect(target, &hub.ca, proxy.as_ref()).await?;
    let remote = tls
        .get_ref()
        .0
        .get_ref()
        .peer_addr()
        .map(|address| address.to_string())
        .unwrap_or_default();
    let key = STANDARD.encode(clock::random::<16>());
    let request = http::Request::get(format!("{}/v1/line", target.prefix))
        .header(header::HOST, &target.authority)
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "websocket")
        .header(header::SEC_WEBSOCKET_VERSION, "13")
        .header(header::SEC_WEBSOCKET_KEY, &key)
        .header(header::SEC_WEBSOCKET_PROTOCOL, SUBPROTOCOL)
        .body(Empty::<Bytes>::new())
        .map_err(|_| DialError::Url(url.to_owned()))?;
    let broken = |source| DialError::Upgrade {
        url: url.to_owned(),
        source,
    };
    let (mut sender, connection) = http1::handshake(TokioIo::new(tls)).await.map_err(broken)?;
    let connection = connection.with_upgrades();
    let exchange = async {
        let response = sender.send_request(request).await.map_err(broken)?;
        check(&response, url, &key)?;
        let upgraded = hyper::upgrade::on(response).await.map_err(broken)?;
        let parts = upgraded
            .downcast::<TokioIo<Tls>>()
            .map_err(|_| DialError::Answer(url.to_owned()))?;
        let socket = Socket::new(parts.io.into_inner(), Role::Agent, parts.read_buf);
        Ok((socket, remote))
    };
    let driven = async move {
        // How it ends shows in the exchange.
        drop(connection.await);
        std::future::pending::<Infallible>().await
    };
    tokio::select! {
        done = exchange => done,
        never = driven => match never {},
    }
}

/// Whether the answer is a line's (RFC 6455 §4.1).
fn check<B>(response: &http::Response<B>, url: &str, key: &str) -> Result<(), DialError> {
    let headers = response.headers();
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    if response.status() != http::StatusCode::SWITCHING_PROTOCOLS {
        let asked = text(header::RETRY_AFTER);
        return Err(DialError::Status {
            url: url.to_owned(),
            status: response.status().as_u16(),
            retry_after: asked.and_then(|asked| clock::retry_after(asked, clock::now())),
        });
    }
    let is_ours = text(header::SEC_WEBSOCKET_PROTOCOL) == Some(SUBPROTOCOL)
        && text(header::SEC_WEBSOCKET_ACCEPT) == Some(&derive_accept_key(key.as_bytes()))
        && text(header::UPGRADE).is_some_and(|value| value.eq_ignore_ascii_case("websocket"));
    if is_ours {
        Ok(())
    } else {
        Err(DialError::Answer(url.to_owned()))
    }
}

#[expect(clippy::too_many_arguments, reason = "what one attempt has gathered")]
async fn establish(
    config: &LinkConfig,
    hub: &HubRef,
    target: &Target,
    (held, cap): (Option<&Line>, Option<Duration>),
    mut socket: Socket,
    remote: String,
    incoming: mpsc::Sender<Incoming>,
) -> Result<Up<impl Future<Output = Ended> + Send + 'static + use<>>, DialError> {
    let shaken = shake(config, hub, target, (held, cap), &mut socket).await;
    let (welcome, now, heard) = match shaken {
        Ok(shaken) => shaken,
        Err(error) => {
            if let DialError::Line(error) = &error {
                driver::reject(socket, error).await;
            }
            return Err(error);
        }
    };
    let identity = Identity {
        epoch: welcome.epoch,
        session: welcome.session,
        remote,
        instance: config.instance.clone(),
        since: now,
        hub_clock: Steady::new(welcome.time_ms, heard),
        cap,
    };
    let session = Limits::default().session(Role::Agent, welcome.limits, clock::unit());
    let (line, run) = driver::line(
        socket,
        session,
        identity,
        incoming,
        // What ends it is its drain.
        CancellationToken::new(),
    );
    let keyset = counting(&hub.keyset, welcome.keyset);
    Ok(Up::new(line, run, keyset))
}

/// The keys that count on a line from its beginning: those that are kept of the hub, and those that it names beside them. One
/// that it does not name counts as well: a replica that has not heard of the next key yet does not know what the others told.
fn counting(kept: &[HubKey], named: Option<Vec<HubKey>>) -> Vec<HubKey> {
    let mut all = kept.to_vec();
    let named = named.unwrap_or_default().into_iter();
    all.extend(named.filter(|key| kept.iter().all(|kept| kept.key != key.key)));
    all
}

/// Proves who each end is to the other; the hub's last word, and when it came.
async fn shake(
    config: &LinkConfig,
    hub: &HubRef,
    target: &Target,
    (held, cap): (Option<&Line>, Option<Duration>),
    socket: &mut Socket,
) -> Result<(Welcome, OffsetDateTime, Instant), DialError> {
    let challenge = match driver::receive(socket).await? {
        Frame::Challenge(payload) => payload,
        Frame::Refuse(refusal) => return Err(HandshakeError::Refused(refusal).into()),
        _ => return Err(HandshakeError::Shape("first frame").into()),
    };
    let identity = config.keys.borrow().identity.clone();
    let hello = handshake::hello(
        &challenge,
        &Agent {
            cluster: &config.cluster,
            identity: &identity,
            hub: &hub.id,
            host: &target.authority,
            nonce: clock::random(),
            instance: &config.instance,
            resumes: held.map(|line| line.facts().epoch),
            cap,
            build: &config.build,
            keyset: &hub.keyset,
        },
    )?;
    driver::send(socket, &Frame::Hello(hello.clone())).await?;
    let payload = match driver::receive(socket).await? {
        Frame::Welcome(payload) => payload,
        Frame::Refuse(refusal) => return Err(HandshakeError::Refused(refusal).into()),
        _ => return Err(HandshakeError::Shape("answer to HELLO").into()),
    };
    let (now, heard) = (clock::now(), Instant::now());
    let welcome = handshake::check_welcome(&hello, &payload, &hub.keyset, now.unix_timestamp())?;
    Ok((welcome, now, heard))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str, not_after: Option<i64>) -> HubKey {
        HubKey {
            kid: name.to_owned(),
            key: format!("key {name}"),
            not_after,
        }
    }

    /// What stands before the hub may write a date; this one is far away.
    #[test]
    fn a_refused_upgrade_may_ask_for_a_wait_by_a_date() {
        let refused = http::Response::builder()
            .status(503)
            .header(header::RETRY_AFTER, "Fri, 31 Dec 9999 23:59:59 GMT")
            .body(())
            .unwrap();
        let error = check(&refused, "https://hub", "key").unwrap_err();
        let DialError::Status { retry_after, .. } = error else {
            panic!("{error}");
        };
        assert_eq!(retry_after, Some(Duration::from_mins(15)));
    }

    /// L17: a line to a replica that has not heard of the next key yet takes requests from one that has.
    #[test]
    fn what_is_kept_of_the_hub_counts_on_a_line_to_a_replica_that_knows_less() {
        let (old, ends, next) = (key("1", None), key("1", Some(9)), key("2", None));
        for (kept, named, counts) in [
            (vec![old.clone()], None, vec![old.clone()]),
            (
                vec![old.clone()],
                Some(vec![next.clone(), ends.clone()]),
                vec![old.clone(), next.clone()],
            ),
            // It knows when the one before ends.
            (
                vec![next.clone(), ends.clone()],
                Some(vec![old.clone()]),
                vec![next.clone(), ends.clone()],
            ),
            (vec![next.clone()], Some(vec![next.clone()]), vec![next]),
        ] {
            assert_eq!(counting(&kept, named), counts);
        }
    }
}

//! Who is at the other end of a line: the handshake, up to the WELCOME that gives the line its epoch.

use std::time::Instant;

use tracing::warn;

use super::{Socket, line_entry};
use crate::clock::{self, Steady};
use crate::hub::Hub;
use crate::hub::audit::Entry;
use crate::hub::auth::AgentPrincipal;
use crate::hub::store::{ClusterKey, KeyKind, UnknownAgent, UnknownReason};
use crate::hub::unknown;
use crate::keys::Public;
use crate::tunnel::driver::{self, ExchangeError};
use crate::tunnel::handshake::{self, Hello, Limits, Welcome};
use crate::wire::frame::{Code, Frame, Refusal};

/// An agent that proved who it is, and was told so.
pub(super) struct Proven {
    pub(super) agent: AgentPrincipal,
    pub(super) key: ClusterKey,
    pub(super) hello: Hello,
    pub(super) epoch: u64,
    pub(super) session: String,
    pub(super) clock: Steady,
    /// The id of the newest of the hub's keys that it was told.
    pub(super) told: String,
}

/// Challenge, hello, welcome; `None` where the agent was refused.
pub(super) async fn prove(
    hub: &Hub,
    socket: &mut Socket,
    peer: &str,
) -> Result<Option<Proven>, ExchangeError> {
    let challenge = handshake::challenge(&hub.id, clock::random(), millis());
    driver::send(socket, &Frame::Challenge(challenge.clone())).await?;
    let Frame::Hello(payload) = driver::receive(socket).await? else {
        return Err(ExchangeError::Shape);
    };
    let refusal = match check(hub, &challenge, &payload, peer).await {
        Ok((agent, key, hello, epoch)) => {
            let session = clock::id();
            let (time_ms, at) = (millis(), Instant::now());
            let keys = hub.says().keys.clone();
            let ours = keys.keyset(time_ms / 1000);
            let held = ours.iter().all(|key| hello.keyset.contains(&key.kid))
                && ours.len() == hello.keyset.len();
            let welcome = Welcome {
                epoch,
                session: session.clone(),
                replica: match &hub.replica {
                    Some(own) => own.record.id.clone(),
                    None => hub.id.clone(),
                },
                time_ms,
                features: Vec::new(),
                limits: Limits::default(),
                keyset: (!held).then_some(ours),
            };
            let welcome = handshake::welcome(&payload, &welcome, |message| keys.sign(message));
            driver::send(socket, &Frame::Welcome(welcome)).await?;
            return Ok(Some(Proven {
                agent,
                key,
                hello,
                epoch,
                session,
                clock: Steady::new(time_ms, at),
                told: keys.pin().kid,
            }));
        }
        Err(refusal) => refusal,
    };
    refused(hub, &payload, peer, &refusal).await;
    driver::send(socket, &Frame::Refuse(refusal)).await?;
    Ok(None)
}

/// What the other end says of itself, nobody has proven: it is on record as counted refusals.
async fn refused(hub: &Hub, payload: &[u8], peer: &str, refusal: &Refusal) {
    let hello = handshake::read_hello(payload).ok();
    let claimed = hello.as_ref().map(|hello| hello.cluster.to_string());
    let Refusal { code, text, .. } = refusal;
    warn!(peer, claimed, %code, text, "line refused");
    if !matches!(
        code,
        Code::BadSignature | Code::UnknownCluster | Code::Revoked
    ) {
        return;
    }
    let key = hello.and_then(|hello| Public::from_base64(&hello.key).ok());
    let entry = Entry {
        target: key.map(Public::fingerprint).unwrap_or_default(),
        ..line_entry(claimed, peer, "line.open", format!("{code}: {text}"))
    };
    if hub.audit.refused(entry).await.is_err() {
        tracing::error!("a refused line could not be put on record");
    }
}

/// Whether the HELLO is by the identity key that is registered for its cluster.
async fn check(
    hub: &Hub,
    challenge: &[u8],
    payload: &[u8],
    peer: &str,
) -> Result<(AgentPrincipal, ClusterKey, Hello, u64), Refusal> {
    let refuse = |code, retry_after_ms, text: &str| Refusal {
        code,
        retry_after_ms,
        text: text.to_owned(),
    };
    let turn = hub.tunnels.turn();
    let _turn = turn.ok_or_else(|| refuse(Code::Busy, 2000, "many agents connect"))?;
    let shape = || refuse(Code::Protocol, 0, "HELLO is not what the protocol says");
    let claim = handshake::read_hello(payload).map_err(|_| shape())?;
    let key = Public::from_base64(&claim.key).map_err(|_| shape())?;
    let unavailable = |error: crate::hub::store::StoreError| {
        if !hub.store.is_away() {
            tracing::error!(error = %crate::hub::chain_of(&error), "look up an agent's key");
        }
        refuse(Code::Unavailable, 2000, "the hub's store does not answer")
    };
    let record = hub
        .store
        .cluster_key_by_fingerprint(&key.fingerprint())
        .await
        .map_err(unavailable)?;
    let host = hub.config.url.parse::<http::Uri>().ok();
    let host = host
        .as_ref()
        .and_then(http::Uri::authority)
        .map(http::uri::Authority::as_str)
        .unwrap_or_default();
    let proven = || handshake::check_hello(challenge, payload, key, &hub.id, &[host]);
    let own =
        |record: &ClusterKey| record.kind == KeyKind::Identity && record.cluster == claim.cluster;
    let Some(record) = record.as_ref().filter(|r| own(r)).cloned() else {
        let again = match proven() {
            Ok(hello) => {
                unknown::said(hub, unknown_agent(&hello, key, record.is_some(), peer)).await
            }
            Err(_) => 0,
        };
        let print = key.fingerprint();
        let text = format!(
            "the key {print} is not registered for the cluster; if it should be, see 'linesman cluster list --unknown', or run 'linesman cluster readopt'"
        );
        return Err(refuse(Code::UnknownCluster, again, &text));
    };
    let hello = proven()?;
    if record.removed {
        return Err(refuse(Code::Revoked, 0, "the cluster was removed"));
    }
    if !record.state.is_valid() {
        let name = &record.cluster;
        let text = format!(
            "the key was revoked; the way back: linesman cluster readopt {name}, and apply the new YAML"
        );
        return Err(refuse(Code::Revoked, 0, &text));
    }
    let epoch = hub
        .store
        .next_epoch(&record.cluster_id)
        .await
        .map_err(unavailable)?;
    let agent = AgentPrincipal {
        cluster: record.cluster.clone(),
        cluster_id: record.cluster_id.clone(),
        key: record.fingerprint.clone(),
    };
    Ok((agent, record, hello, epoch))
}

fn unknown_agent(hello: &Hello, key: Public, known: bool, peer: &str) -> UnknownAgent {
    UnknownAgent {
        public: key,
        cluster: hello.cluster.clone(),
        incarnation: None,
        reason: if known {
            UnknownReason::KeyKnown
        } else {
            UnknownReason::UnknownIdentity
        },
        addr: peer.to_owned(),
        first_seen: clock::now(),
        last_seen: clock::now(),
    }
}

/// Unix milliseconds.
fn millis() -> i64 {
    i64::try_from(clock::now().unix_timestamp_nanos() / 1_000_000).unwrap_or_default()
}

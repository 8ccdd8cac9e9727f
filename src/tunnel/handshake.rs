//! Challenge, hello and welcome: what is signed and what is checked, without a socket.
//!
//! The agent signs the hub's challenge with its identity key, the hub the agent's hello with its assertion
//! key. What is signed is the JSON as it was sent; fields that a build does not know are ignored.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::expect_used))]

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::credit::INITIAL_WINDOW;
use super::session::{Config, Role};
use crate::keys::{self, KeyPair, Public, sha256};
use crate::wire::api::{AgentBuild, HubKey};
use crate::wire::frame::{Code, MAX_CREDIT, Refusal};
use crate::wire::id::ClusterName;
use crate::wire::{PROTOCOL, Protocol};

/// The WebSocket subprotocol.
pub const SUBPROTOCOL: &str = "linesman.line.1";
/// Bytes of the longest handshake message.
pub const MAX_HANDSHAKE: usize = 8 << 10;

const SIGNATURE: usize = 64;
const AGENT: &[u8] = b"linesman-line/1 agent\n";
const HUB: &[u8] = b"linesman-line/1 hub\n";

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    #[error("the peer's {0} is not what the protocol says")]
    Shape(&'static str),
    #[error("this is hub {found}, the cluster belongs to hub {expected}; check the hub's URL")]
    OtherHub { found: String, expected: String },
    #[error("the hub speaks protocol {0} to {1}; upgrade the older side")]
    Version(u16, u16),
    #[error("the hub's signature is by no key of the stored set")]
    Signature,
    #[error("the hub refused the line: {}{}{}", .0.code, if .0.text.is_empty() { "" } else { ": " }, .0.text)]
    Refused(Refusal),
}

/// CHALLENGE.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Challenge {
    pub v: [u16; 2],
    /// The hub's id.
    pub hub: String,
    /// base64url, 32 random bytes.
    pub nonce: String,
    /// Unix milliseconds on the hub's clock.
    pub time_ms: i64,
    #[serde(default)]
    pub features: Vec<String>,
}

/// HELLO.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    pub v: u16,
    pub cluster: ClusterName,
    /// base64url, the identity key's public half.
    pub key: String,
    pub nonce: String,
    /// UUID of the agent's process.
    pub instance: String,
    /// The epoch that this process holds already: make before break.
    #[serde(default)]
    pub resumes: Option<u64>,
    /// Milliseconds: the age at which something on the way ends this agent's lines, where it found that out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap_ms: Option<u64>,
    /// Copied from CHALLENGE.
    pub hub: String,
    /// The authority that the agent dialled.
    pub host: String,
    #[serde(default)]
    pub features: Vec<String>,
    #[serde(default)]
    pub limits: Limits,
    #[serde(default)]
    pub build: AgentBuild,
    /// Ids of the hub's keys that the agent holds.
    #[serde(default)]
    pub keyset: Vec<String>,
}

/// WELCOME.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    pub epoch: u64,
    /// UUID of the session.
    pub session: String,
    /// Which replica of the hub this is.
    pub replica: String,
    pub time_ms: i64,
    #[serde(default)]
    pub features: Vec<String>,
    #[serde(default)]
    pub limits: Limits,
    /// Present where the agent holds another set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keyset: Option<Vec<HubKey>>,
}

/// What an end accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Bytes that the peer may send on a stream that it opens.
    pub window: u32,
    /// Streams that the peer may have open.
    pub max_streams: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            window: INITIAL_WINDOW,
            max_streams: 16_384,
        }
    }
}

impl Limits {
    /// The session that two ends' limits make.
    pub fn session(self, role: Role, peer: Self, unit: f64) -> Config {
        let streams = |limit: u32| usize::try_from(limit).unwrap_or(usize::MAX);
        Config {
            window: self.window.min(MAX_CREDIT),
            peer_window: peer.window.min(MAX_CREDIT),
            max_streams: streams(self.max_streams),
            peer_max_streams: streams(peer.max_streams),
            unit,
            ..Config::new(role)
        }
    }
}

/// What the agent brings to a handshake.
#[derive(Debug, Clone)]
pub struct Agent<'a> {
    pub cluster: &'a ClusterName,
    pub identity: &'a KeyPair,
    /// The hub that the cluster belongs to.
    pub hub: &'a str,
    pub host: &'a str,
    pub nonce: [u8; 32],
    pub instance: &'a str,
    pub resumes: Option<u64>,
    /// See [`Hello::cap_ms`].
    pub cap: Option<Duration>,
    pub build: &'a AgentBuild,
    pub keyset: &'a [HubKey],
}

/// The hub's first payload.
pub fn challenge(hub: &str, nonce: [u8; 32], time_ms: i64) -> Bytes {
    let Protocol { min, max } = PROTOCOL;
    json(&Challenge {
        v: [min, max],
        hub: hub.to_owned(),
        nonce: keys::encode(&nonce),
        time_ms,
        features: Vec::new(),
    })
}

/// The agent's answer to a CHALLENGE.
pub fn hello(challenge: &[u8], agent: &Agent<'_>) -> Result<Bytes, HandshakeError> {
    let asked: Challenge =
        serde_json::from_slice(challenge).map_err(|_| HandshakeError::Shape("CHALLENGE"))?;
    if asked.hub != agent.hub {
        let (found, expected) = (asked.hub.chars().take(64).collect(), agent.hub.to_owned());
        return Err(HandshakeError::OtherHub { found, expected });
    }
    let [min, max] = asked.v;
    let version = PROTOCOL.max.min(max);
    if version < PROTOCOL.min.max(min) {
        return Err(HandshakeError::Version(min, max));
    }
    let body = json(&Hello {
        v: version,
        cluster: agent.cluster.clone(),
        key: agent.identity.public().to_base64(),
        nonce: keys::encode(&agent.nonce),
        instance: agent.instance.to_owned(),
        resumes: agent.resumes,
        cap_ms: agent
            .cap
            .map(|cap| u64::try_from(cap.as_millis()).unwrap_or(u64::MAX)),
        hub: asked.hub,
        host: agent.host.to_owned(),
        features: Vec::new(),
        limits: Limits::default(),
        build: agent.build.clone(),
        keyset: agent.keyset.iter().map(|key| key.kid.clone()).collect(),
    });
    let signature = agent.identity.sign(&signed(AGENT, challenge, &body));
    Ok([body.as_ref(), &signature].concat().into())
}

/// A HELLO as it came; nothing in it is true before [`check_hello`].
pub fn read_hello(payload: &[u8]) -> Result<Hello, HandshakeError> {
    let (body, _) = split(payload).ok_or(HandshakeError::Shape("HELLO"))?;
    serde_json::from_slice(body).map_err(|_| HandshakeError::Shape("HELLO"))
}

/// Checks a HELLO against the key that is registered for its cluster. `hosts` are the hub's own.
pub fn check_hello(
    challenge: &[u8],
    payload: &[u8],
    key: Public,
    hub: &str,
    hosts: &[&str],
) -> Result<Hello, Refusal> {
    let refuse = |code, text: &str| Refusal {
        code,
        retry_after_ms: 0,
        text: text.to_owned(),
    };
    let shape = || refuse(Code::Protocol, "HELLO is not what the protocol says");
    let (body, signature) = split(payload).ok_or_else(shape)?;
    let hello = read_hello(payload).map_err(|_| shape())?;
    if hello.v < PROTOCOL.min || hello.v > PROTOCOL.max {
        let text = format!(
            "the hub speaks protocol {} to {}; upgrade the older side",
            PROTOCOL.min, PROTOCOL.max
        );
        return Err(refuse(Code::Version, &text));
    }
    if !key.verify(&signed(AGENT, challenge, body), signature) {
        return Err(refuse(
            Code::BadSignature,
            "the signature is not by the cluster's registered identity key",
        ));
    }
    if hello.hub != hub {
        return Err(refuse(Code::BadSignature, "signed for another hub"));
    }
    if !hosts
        .iter()
        .any(|host| host.eq_ignore_ascii_case(&hello.host))
    {
        return Err(refuse(
            Code::BadSignature,
            "signed for another host; dial the hub by its own URL",
        ));
    }
    Ok(hello)
}

/// The hub's answer to a checked HELLO.
pub fn welcome(hello: &[u8], welcome: &Welcome, sign: impl FnOnce(&[u8]) -> [u8; 64]) -> Bytes {
    let body = json(welcome);
    let signature = sign(&signed(HUB, hello, &body));
    [body.as_ref(), &signature].concat().into()
}

/// Checks a WELCOME against the stored keys; `now` is unix seconds.
pub fn check_welcome(
    hello: &[u8],
    payload: &[u8],
    keyset: &[HubKey],
    now: i64,
) -> Result<Welcome, HandshakeError> {
    let (body, signature) = split(payload).ok_or(HandshakeError::Shape("WELCOME"))?;
    let message = signed(HUB, hello, body);
    let known = keyset
        .iter()
        .filter(|key| key.not_after.is_none_or(|end| now < end))
        .filter_map(|key| Public::from_base64(&key.key).ok())
        .any(|key| key.verify(&message, signature));
    if !known {
        return Err(HandshakeError::Signature);
    }
    serde_json::from_slice(body).map_err(|_| HandshakeError::Shape("WELCOME"))
}

/// The prefix keeps the two directions apart; the hashes bind each answer to what it answers.
fn signed(prefix: &[u8], asked: &[u8], body: &[u8]) -> Vec<u8> {
    [prefix, &sha256(asked), &sha256(body)].concat()
}

fn split(payload: &[u8]) -> Option<(&[u8], &[u8])> {
    payload.split_at_checked(payload.len().checked_sub(SIGNATURE)?)
}

fn json<T: Serialize>(value: &T) -> Bytes {
    // Strings and numbers only: this cannot fail, and an empty payload would be refused by the peer.
    serde_json::to_vec(value).unwrap_or_default().into()
}

#[cfg(test)]
mod tests;

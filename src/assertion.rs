//! The signed statement that goes with each Kubernetes request on the line: who asks, for which cluster and
//! request, until when. A JWS (RFC 7515, compact), Ed25519 only. The hub signs, the agent checks; both
//! directions are here, so that they cannot drift. `docs/protocol.md` describes it for other implementations.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::expect_used))]

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::keys::{self, Public};
use crate::wire::api::HubKey;

/// The JWS header's `typ`.
pub const TYPE: &str = "linesman-assertion+jwt";
/// A longer assertion is refused by both sides; many groups are what makes one long.
pub const MAX_LEN: usize = 12 << 10;
/// Seconds from `iat` to `exp`.
pub const LIFETIME: i64 = 60;
/// Seconds that the two views of the hub's clock may differ.
pub const TOLERANCE: i64 = 10;

/// What the hub asserts of one request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    /// The hub's id.
    pub iss: String,
    /// The cluster's id.
    pub aud: String,
    /// `linesman:<name>`
    pub sub: String,
    /// `linesman:<group>` each.
    pub grp: Vec<String>,
    /// Who asked, where the request goes as someone else (RFC 8693 4.1). Rights come from `sub` and `grp` alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub act: Option<Actor>,
    /// The request id; each further try of the same request appends its number, `.1`, `.2` and so on.
    pub jti: String,
    /// The epoch of the line it travels on.
    pub epoch: u64,
    pub iat: i64,
    pub exp: i64,
    /// [`binding`] of method and target.
    pub h: String,
    /// The user's address as the hub saw it.
    pub ip: String,
    pub mode: Mode,
    /// The namespaces that the grant is for; absent = all, and what lies in none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ns: Option<BTreeSet<String>>,
}

impl Claims {
    /// The id under which hub, agent and API server record the request.
    pub fn request_id(&self) -> &str {
        self.jti.split('.').next().unwrap_or_default()
    }
}

/// The user behind a request that goes as someone else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actor {
    /// `linesman:<name>`
    pub sub: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    Full,
    Read,
}

/// The JSON in OPEN of an `api` stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiMeta {
    /// The request id.
    pub id: String,
    pub epoch: u64,
    /// W3C Trace Context: the user's trace with the hub as parent, or one that begins at the hub.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    pub assertion: String,
}

#[derive(Serialize, Deserialize)]
struct Header {
    alg: String,
    typ: String,
    kid: String,
}

/// What the agent holds an assertion against.
#[derive(Debug, Clone, Copy)]
pub struct Expected<'a> {
    pub hub: &'a str,
    pub cluster: &'a str,
    pub epoch: u64,
    pub method: &'a str,
    /// Path and query as they were parsed.
    pub target: &'a str,
    /// Unix seconds on the hub's clock.
    pub now: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AssertionError {
    #[error("the assertion is longer than {MAX_LEN} bytes")]
    TooLong,
    #[error("the assertion is malformed")]
    Malformed,
    #[error("the assertion is not of type {TYPE} with EdDSA")]
    Type,
    #[error("the assertion's key is not in the agent's key set")]
    Key,
    #[error("the assertion's signature does not hold")]
    Signature,
    #[error("the assertion is from another hub")]
    Hub,
    #[error("the assertion is for another cluster")]
    Cluster,
    #[error("the assertion is for another session of the line")]
    Epoch,
    #[error("the assertion is expired or not valid yet")]
    Time,
    #[error("the assertion is for another request")]
    Request,
}

/// Ties an assertion to one request: base64url of SHA-256(`method SP target`).
pub fn binding(method: &str, target: &str) -> String {
    keys::encode(&keys::sha256(format!("{method} {target}").as_bytes()))
}

/// The assertion in compact form; `sign` makes an Ed25519 signature with the key that `kid` names.
pub fn sign(
    claims: &Claims,
    kid: &str,
    sign: impl FnOnce(&[u8]) -> [u8; 64],
) -> Result<String, AssertionError> {
    let header = Header {
        alg: "EdDSA".to_owned(),
        typ: TYPE.to_owned(),
        kid: kid.to_owned(),
    };
    let part = |bytes: Result<Vec<u8>, _>| {
        bytes
            .map(|b| keys::encode(&b))
            .map_err(|_| AssertionError::Malformed)
    };
    let input = format!(
        "{}.{}",
        part(serde_json::to_vec(&header))?,
        part(serde_json::to_vec(claims))?
    );
    let signature = sign(input.as_bytes());
    let token = format!("{input}.{}", keys::encode(&signature));
    if token.len() > MAX_LEN {
        Err(AssertionError::TooLong)
    } else {
        Ok(token)
    }
}

/// The claims, once signature and every binding hold. Replay is the caller's to check: it keeps state.
pub fn verify(
    token: &str,
    keyset: &[HubKey],
    expected: &Expected<'_>,
) -> Result<Claims, AssertionError> {
    if token.len() > MAX_LEN {
        return Err(AssertionError::TooLong);
    }
    let (input, signature) = token.rsplit_once('.').ok_or(AssertionError::Malformed)?;
    let (header, payload) = input.split_once('.').ok_or(AssertionError::Malformed)?;
    let header: Header = json(header)?;
    if header.alg != "EdDSA" || header.typ != TYPE {
        return Err(AssertionError::Type);
    }
    let valid = |key: &&HubKey| {
        key.kid == header.kid && key.not_after.is_none_or(|end| expected.now <= end)
    };
    let key = keyset.iter().find(valid).ok_or(AssertionError::Key)?;
    let key = Public::from_base64(&key.key).map_err(|_| AssertionError::Key)?;
    let signature = keys::decode(signature).ok_or(AssertionError::Malformed)?;
    if !key.verify(input.as_bytes(), &signature) {
        return Err(AssertionError::Signature);
    }
    let claims: Claims = json(payload)?;
    bound(&claims, expected)?;
    Ok(claims)
}

fn bound(claims: &Claims, expected: &Expected<'_>) -> Result<(), AssertionError> {
    if claims.iss != expected.hub {
        return Err(AssertionError::Hub);
    }
    if claims.aud != expected.cluster {
        return Err(AssertionError::Cluster);
    }
    if claims.epoch != expected.epoch {
        return Err(AssertionError::Epoch);
    }
    let alive = claims.iat <= expected.now.saturating_add(TOLERANCE)
        && expected.now <= claims.exp.saturating_add(TOLERANCE)
        && claims.exp.saturating_sub(claims.iat) <= LIFETIME;
    if !alive {
        return Err(AssertionError::Time);
    }
    if claims.h != binding(expected.method, expected.target) {
        return Err(AssertionError::Request);
    }
    Ok(())
}

fn json<T: serde::de::DeserializeOwned>(part: &str) -> Result<T, AssertionError> {
    let bytes = keys::decode(part).ok_or(AssertionError::Malformed)?;
    serde_json::from_slice(&bytes).map_err(|_| AssertionError::Malformed)
}

#[cfg(test)]
mod tests;

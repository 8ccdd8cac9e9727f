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
    /// The request id; a request sent once more on a new line appends `.1`.
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
    /// W3C trace context, where the hub traces.
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
mod tests {
    use super::*;
    use crate::keys::KeyPair;

    const NOW: i64 = 1_800_000_000;

    fn pair() -> KeyPair {
        KeyPair::from_seed(&[3; 32])
    }

    fn keyset() -> Vec<HubKey> {
        vec![HubKey {
            kid: "k1".to_owned(),
            key: pair().public().to_base64(),
            not_after: None,
        }]
    }

    fn claims() -> Claims {
        Claims {
            iss: "hub".to_owned(),
            aud: "cluster".to_owned(),
            sub: "linesman:ada".to_owned(),
            grp: vec!["linesman:admin".to_owned()],
            act: None,
            jti: "r1".to_owned(),
            epoch: 7,
            iat: NOW,
            exp: NOW + LIFETIME,
            h: binding("GET", "/api/v1/pods?limit=1"),
            ip: "10.0.0.1".to_owned(),
            mode: Mode::Full,
            ns: None,
        }
    }

    fn expected() -> Expected<'static> {
        Expected {
            hub: "hub",
            cluster: "cluster",
            epoch: 7,
            method: "GET",
            target: "/api/v1/pods?limit=1",
            now: NOW,
        }
    }

    fn signed(claims: &Claims) -> String {
        sign(claims, "k1", |input| pair().sign(input)).unwrap()
    }

    #[test]
    fn an_assertion_holds_for_its_request() {
        assert_eq!(
            verify(&signed(&claims()), &keyset(), &expected()),
            Ok(claims())
        );
    }

    /// L43: another cluster, epoch, method, path, or a time that is over.
    #[test]
    fn every_other_binding_is_refused() {
        let token = signed(&claims());
        let with = |change: fn(&mut Expected<'static>)| {
            let mut e = expected();
            change(&mut e);
            verify(&token, &keyset(), &e).unwrap_err()
        };
        assert_eq!(with(|e| e.hub = "other"), AssertionError::Hub);
        assert_eq!(with(|e| e.cluster = "other"), AssertionError::Cluster);
        assert_eq!(with(|e| e.epoch = 8), AssertionError::Epoch);
        assert_eq!(with(|e| e.method = "POST"), AssertionError::Request);
        assert_eq!(with(|e| e.target = "/api/v1/pods"), AssertionError::Request);
        assert_eq!(
            with(|e| e.now = NOW + LIFETIME + TOLERANCE + 1),
            AssertionError::Time
        );
        assert_eq!(with(|e| e.now = NOW - TOLERANCE - 1), AssertionError::Time);
        assert!(
            verify(
                &token,
                &keyset(),
                &Expected {
                    now: NOW + LIFETIME + TOLERANCE,
                    ..expected()
                }
            )
            .is_ok()
        );
    }

    #[test]
    fn a_long_life_is_refused_even_when_signed() {
        let token = signed(&Claims {
            exp: NOW + 3600,
            ..claims()
        });
        assert_eq!(
            verify(&token, &keyset(), &expected()),
            Err(AssertionError::Time)
        );
    }

    /// L43
    #[test]
    fn keys_outside_the_set_and_past_their_end_are_refused() {
        let token = signed(&claims());
        assert_eq!(verify(&token, &[], &expected()), Err(AssertionError::Key));
        let mut ended = keyset();
        ended[0].not_after = Some(NOW - 1);
        assert_eq!(
            verify(&token, &ended, &expected()),
            Err(AssertionError::Key)
        );
        let mut other = keyset();
        other[0].key = KeyPair::from_seed(&[4; 32]).public().to_base64();
        assert_eq!(
            verify(&token, &other, &expected()),
            Err(AssertionError::Signature)
        );
    }

    /// L43
    #[test]
    fn changed_tokens_and_other_algorithms_are_refused() {
        let token = signed(&claims());
        let (input, signature) = token.rsplit_once('.').unwrap();
        let (header, payload) = input.split_once('.').unwrap();
        let root = keys::encode(
            &serde_json::to_vec(&Claims {
                sub: "linesman:root".to_owned(),
                ..claims()
            })
            .unwrap(),
        );
        assert_eq!(
            verify(
                &format!("{header}.{root}.{signature}"),
                &keyset(),
                &expected()
            ),
            Err(AssertionError::Signature)
        );
        for alg in ["none", "HS256", "eddsa"] {
            let header =
                keys::encode(format!(r#"{{"alg":"{alg}","typ":"{TYPE}","kid":"k1"}}"#).as_bytes());
            let refused = verify(
                &format!("{header}.{payload}.{signature}"),
                &keyset(),
                &expected(),
            );
            assert_eq!(refused, Err(AssertionError::Type));
        }
        for broken in [
            "",
            ".",
            "..",
            "a.b.c",
            &format!("{input}."),
            &"x".repeat(MAX_LEN + 1),
        ] {
            assert!(verify(broken, &keyset(), &expected()).is_err(), "{broken}");
        }
    }

    #[test]
    fn a_retry_keeps_the_request_id() {
        assert_eq!(
            Claims {
                jti: "r1.1".to_owned(),
                ..claims()
            }
            .request_id(),
            "r1"
        );
    }

    #[test]
    fn too_many_groups_do_not_fit() {
        let grp = (0..2000).map(|n| format!("linesman:group-{n}")).collect();
        let refused = sign(&Claims { grp, ..claims() }, "k1", |input| {
            pair().sign(input)
        });
        assert_eq!(refused, Err(AssertionError::TooLong));
    }
}

//! Agents' calls: each is signed with the identity key of its cluster, the body included.

use http::HeaderMap;
use http::request::Parts;

use super::{AgentPrincipal, AuthError};
use crate::clock;
use crate::hub::store::KeyKind;
use crate::hub::{Hub, api};
use crate::keys::{self, Public};
use crate::wire::api::{SIGNATURE_HEADER, SIGNATURE_WINDOW, signing_input};

/// The agent that signed a call with this body.
pub async fn agent(hub: &Hub, parts: &Parts, body: &[u8]) -> Result<AgentPrincipal, AuthError> {
    let signature = SignatureHeader::of(&parts.headers)?;
    let key = hub
        .store
        .cluster_key_by_fingerprint(&signature.key)
        .await?
        .filter(|k| k.kind == KeyKind::Identity)
        .ok_or(AuthError::UnknownIdentity)?;
    signature.verify(&hub.id, parts, body, key.public)?;
    let now = clock::now().unix_timestamp();
    if (now - signature.time).abs() > SIGNATURE_WINDOW {
        return Err(AuthError::Stale { now });
    }
    if key.removed {
        return Err(AuthError::Removed);
    }
    if !key.state.is_valid() {
        return Err(AuthError::Revoked);
    }
    Ok(AgentPrincipal {
        cluster: key.cluster,
        cluster_id: key.cluster_id,
        key: key.fingerprint,
    })
}

/// That a call has a signature at all, whatever that is worth: for who does not have its body yet.
pub fn is_signed(headers: &HeaderMap) -> Result<(), AuthError> {
    SignatureHeader::of(headers).map(drop)
}

/// Proves that the holder of `key` signed this call, at whatever time: joins are safe to replay.
pub fn signed_by(hub_id: &str, parts: &Parts, body: &[u8], key: Public) -> Result<(), AuthError> {
    let signature = SignatureHeader::of(&parts.headers)?;
    if signature.key != key.fingerprint() {
        return Err(AuthError::BadSignature);
    }
    signature.verify(hub_id, parts, body, key)
}

/// `Linesman-Signature: v1;key=<SHA-256 fp>;t=<unix s>;sig=<b64url>`
struct SignatureHeader {
    key: String,
    time: i64,
    sig: Vec<u8>,
}

impl SignatureHeader {
    fn of(headers: &HeaderMap) -> Result<Self, AuthError> {
        let text = headers
            .get(SIGNATURE_HEADER)
            .ok_or(AuthError::Unsigned)?
            .to_str()
            .map_err(|_| AuthError::BadSignature)?;
        Self::parse(text).ok_or(AuthError::BadSignature)
    }

    fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix("v1;")?;
        let (mut key, mut time, mut sig) = (None, None, None);
        for part in rest.split(';') {
            match part.trim().split_once('=')? {
                ("key", v) => key = Some(v.to_owned()),
                ("t", v) => time = v.parse().ok(),
                ("sig", v) => sig = keys::decode(v),
                _ => {}
            }
        }
        Some(Self {
            key: key?,
            time: time?,
            sig: sig?,
        })
    }

    fn verify(
        &self,
        hub_id: &str,
        parts: &Parts,
        body: &[u8],
        key: Public,
    ) -> Result<(), AuthError> {
        let path = api::path_and_query(parts);
        let sum = keys::sha256_hex(body);
        let input = signing_input(hub_id, parts.method.as_str(), path, self.time, &sum);
        if key.verify(input.as_bytes(), &self.sig) {
            Ok(())
        } else {
            Err(AuthError::BadSignature)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_header_is_read_in_its_one_form() {
        let read = SignatureHeader::parse("v1;key=SHA256:ab;t=12;sig=AAAA").unwrap();
        assert_eq!(
            (read.key.as_str(), read.time, read.sig),
            ("SHA256:ab", 12, vec![0; 3])
        );
        for bad in [
            "",
            "v2;key=a;t=1;sig=AA",
            "v1;key=a;t=x;sig=AA",
            "v1;key=a;t=1",
            "v1;key",
        ] {
            assert!(SignatureHeader::parse(bad).is_none(), "{bad}");
        }
    }
}

//! The hub's signing keys: the newest, the one that signs now, and those before.

use std::sync::Arc;

use aws_lc_rs::signature::Ed25519KeyPair;

use super::cut;
use crate::keys::KeyPair;
use crate::wire::api::HubKey;

/// The hub's Ed25519 signing keys.
#[derive(Debug, Clone)]
pub struct HubKeys {
    /// The newest.
    active: KeyPair,
    /// What signs now, at the provider that TLS has, whose arithmetic is assembly: each request is signed for. It is the key
    /// before while the newest is only told.
    signer: Arc<Ed25519KeyPair>,
    /// Of the key that signs now.
    kid: String,
    former: Vec<HubKey>,
}

impl HubKeys {
    pub fn new(active: KeyPair) -> Self {
        let kid = kid(active.public());
        let signer = Ed25519KeyPair::from_seed_unchecked(active.seed().expose());
        Self {
            active,
            signer: Arc::new(signer.expect("32 bytes are a seed")),
            kid,
            former: Vec::new(),
        }
    }

    /// The public halves of the keys before, each with its end.
    #[must_use]
    pub fn with_former(self, former: Vec<HubKey>) -> Self {
        Self { former, ..self }
    }

    /// The same keys, of which this one signs.
    #[must_use]
    pub(super) fn signed_by(self, signs: &KeyPair) -> Self {
        let Self { signer, kid, .. } = Self::new(signs.clone());
        Self {
            signer,
            kid,
            ..self
        }
    }

    /// The id of the key that signs now.
    pub fn kid(&self) -> &str {
        &self.kid
    }

    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        let signature = self.signer.sign(message);
        let signature = signature.as_ref().try_into();
        signature.expect("an Ed25519 signature has 64 bytes")
    }

    /// By the newest key, for what outlives the one before.
    pub fn vouch(&self, message: &[u8]) -> [u8; 64] {
        self.active.sign(message)
    }

    /// The newest key.
    pub fn public(&self) -> crate::keys::Public {
        self.active.public()
    }

    /// The newest key, as a cluster's owner pins it.
    pub fn pin(&self) -> HubKey {
        HubKey {
            kid: kid(self.active.public()),
            key: self.active.public().to_base64(),
            not_after: None,
        }
    }

    /// What agents check signatures with; `now` is unix seconds. A key before counts until its end: until the newest is told to
    /// all, it signs.
    pub fn keyset(&self, now: i64) -> Vec<HubKey> {
        let valid = |key: &&HubKey| key.not_after.is_some_and(|end| now < end);
        let former = self.former.iter().filter(valid).cloned();
        std::iter::once(self.pin()).chain(former).collect()
    }

    /// Every key that ever signed or is to sign, base64url, the newest first.
    pub fn all(&self) -> Vec<String> {
        let former = self.former.iter().map(|key| key.key.clone());
        std::iter::once(self.pin().key).chain(former).collect()
    }
}

/// The id of one of the hub's keys.
pub fn kid(key: crate::keys::Public) -> String {
    cut(&crate::keys::sha256_hex(&key.0), 16).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// L52: both ways to sign make the same signature, which is what agents verify.
    #[test]
    fn the_hubs_signature_is_the_key_pairs_own() {
        let pair = KeyPair::from_seed(&[7; 32]);
        let keys = HubKeys::new(pair.clone());
        for message in [&b""[..], b"a request", &[0xff; 5000]] {
            assert_eq!(keys.sign(message), pair.sign(message));
            assert!(keys.public().verify(message, &keys.sign(message)));
        }
    }
}

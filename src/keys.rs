//! Ed25519 keys: sign, verify, fingerprints, and the OpenSSH forms of them. Pure: seeds are passed in.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::{Signature, Signer as _, VerifyingKey};
use sha2::{Digest as _, Sha256};
use ssh_key::private::{Ed25519Keypair, KeypairData};
use ssh_key::{HashAlg, LineEnding, PrivateKey, PublicKey};

use crate::secret::Secret;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum KeyError {
    #[error("not base64url of 32 bytes")]
    Public,
    #[error("not a base64url Ed25519 signature")]
    Signature,
    #[error("not an OpenSSH Ed25519 key without passphrase")]
    OpenSsh,
    #[error("not an OpenSSH key of kind Ed25519 or ECDSA P-256 without passphrase")]
    HostKey,
    #[error("no scalar of the curve")]
    Scalar,
}

/// An Ed25519 key pair; its debug form shows the public half only.
#[derive(Clone)]
pub struct KeyPair(ed25519_dalek::SigningKey);

impl KeyPair {
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self(ed25519_dalek::SigningKey::from_bytes(seed))
    }

    /// The 32 bytes from which [`KeyPair::from_seed`] makes this pair again.
    pub fn seed(&self) -> Secret<[u8; 32]> {
        Secret::new(self.0.to_bytes())
    }

    pub fn public(&self) -> Public {
        Public(self.0.verifying_key().to_bytes())
    }

    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.0.sign(message).to_bytes()
    }

    /// The private key file that OpenSSH, Flux and Argo CD read.
    pub fn openssh(&self, comment: &str) -> Result<Secret<String>, KeyError> {
        let pair = Ed25519Keypair::from_seed(self.seed().expose());
        let key =
            PrivateKey::new(KeypairData::Ed25519(pair), comment).map_err(|_| KeyError::OpenSsh)?;
        let text = key
            .to_openssh(LineEnding::LF)
            .map_err(|_| KeyError::OpenSsh)?;
        Ok(Secret::new(text.to_string()))
    }

    pub fn from_openssh(text: &str) -> Result<Self, KeyError> {
        let key = PrivateKey::from_openssh(text).map_err(|_| KeyError::OpenSsh)?;
        match key.key_data() {
            KeypairData::Ed25519(pair) => Ok(Self::from_seed(&pair.private.to_bytes())),
            _ => Err(KeyError::OpenSsh),
        }
    }
}

impl std::fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KeyPair({})", self.public().fingerprint())
    }
}

/// The public half, 32 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Public(pub [u8; 32]);

impl Public {
    pub fn from_base64(text: &str) -> Result<Self, KeyError> {
        let bytes = decode(text).ok_or(KeyError::Public)?;
        Ok(Self(bytes.try_into().map_err(|_| KeyError::Public)?))
    }

    /// base64url without padding.
    pub fn to_base64(self) -> String {
        encode(&self.0)
    }

    /// `ssh-ed25519 AAAA…`, with the comment where there is one.
    pub fn openssh(self, comment: &str) -> Result<String, KeyError> {
        let data = ssh_key::public::KeyData::Ed25519(ssh_key::public::Ed25519PublicKey(self.0));
        PublicKey::new(data, comment)
            .to_openssh()
            .map_err(|_| KeyError::OpenSsh)
    }

    /// Reads `ssh-ed25519 AAAA… [comment]`; other algorithms are an error.
    pub fn from_openssh(line: &str) -> Result<Self, KeyError> {
        let key = PublicKey::from_openssh(line.trim()).map_err(|_| KeyError::OpenSsh)?;
        key.key_data()
            .ed25519()
            .map(|k| Self(k.0))
            .ok_or(KeyError::OpenSsh)
    }

    /// `SHA256:…` as OpenSSH prints it.
    pub fn fingerprint(self) -> String {
        let data = ssh_key::public::KeyData::Ed25519(ssh_key::public::Ed25519PublicKey(self.0));
        data.fingerprint(HashAlg::Sha256).to_string()
    }

    /// Strict verification (RFC 8032, small-order keys refused).
    pub fn verify(self, message: &[u8], signature: &[u8]) -> bool {
        let (Ok(key), Ok(signature)) = (
            VerifyingKey::from_bytes(&self.0),
            Signature::from_slice(signature),
        ) else {
            return false;
        };
        key.verify_strict(message, &signature).is_ok()
    }
}

/// base64url without padding.
pub fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

pub fn decode(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

/// 64 lower-case hex digits.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&sha256(bytes))
}

pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |n: u8| char::from(DIGITS[usize::from(n & 15)]);
    bytes
        .iter()
        .flat_map(|b| [digit(b >> 4), digit(*b)])
        .collect()
}

/// What [`hex`] made of exactly `N` bytes.
pub fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let [high, low] = pair else { return None };
        *byte = nibble(*high)? << 4 | nibble(*low)?;
    }
    Some(bytes)
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_survives_the_openssh_form() {
        let pair = KeyPair::from_seed(&[7; 32]);
        let text = pair.openssh("linesman/eu1").unwrap();
        let back = KeyPair::from_openssh(text.expose()).unwrap();
        assert_eq!(back.public(), pair.public());
        let line = pair.public().openssh("linesman/eu1").unwrap();
        assert_eq!(Public::from_openssh(&line), Ok(pair.public()));
        assert_eq!(
            Public::from_base64(&pair.public().to_base64()),
            Ok(pair.public())
        );
    }

    #[test]
    fn a_signature_holds_for_its_message_and_key_only() {
        let (pair, other) = (KeyPair::from_seed(&[7; 32]), KeyPair::from_seed(&[8; 32]));
        let signature = pair.sign(b"one");
        assert!(pair.public().verify(b"one", &signature));
        assert!(!pair.public().verify(b"two", &signature));
        assert!(!other.public().verify(b"one", &signature));
        assert!(!pair.public().verify(b"one", &signature[..63]));
        assert!(!format!("{pair:?}").contains(&encode(pair.seed().expose())));
    }
}

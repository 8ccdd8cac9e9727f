//! The private key that an SSH server shows.

use p256::elliptic_curve::sec1::ToSec1Point as _;
use ssh_key::private::{EcdsaKeypair, Ed25519Keypair};
use ssh_key::{Algorithm, EcdsaCurve, LineEnding, PrivateKey};

use super::known_hosts::HostKey;
use crate::keys::{KeyError, KeyPair, sha256};
use crate::secret::Secret;

/// An Ed25519 or ECDSA P-256 key pair; its debug form shows the public half only.
///
/// Two kinds, for one reason: of the keys that known_hosts lists for a host, Flux trusts the first of each kind alone
/// (`fluxcd/pkg/ssh/knownhosts`, `checkAddr`). Where the next key is of the other kind, it trusts both at once, and the one
/// can take the place of the other without a fetch that fails.
#[derive(Clone)]
pub struct HostPair(PrivateKey);

impl HostPair {
    pub fn ed25519(seed: &[u8; 32]) -> Self {
        Self::from(&KeyPair::from_seed(seed))
    }

    /// A seed that is no scalar of the curve (one of 2³²) is hashed until it is one.
    pub fn p256(seed: &[u8; 32]) -> Result<Self, KeyError> {
        let mut seed = Secret::new(*seed);
        for _ in 0..8 {
            if let Ok(secret) = p256::SecretKey::from_slice(seed.expose()) {
                let pair = EcdsaKeypair::NistP256 {
                    public: secret.public_key().to_sec1_point(false),
                    private: <[u8; 32]>::from(secret.to_bytes()).into(),
                };
                return Ok(Self(pair.into()));
            }
            seed = Secret::new(sha256(seed.expose()));
        }
        Err(KeyError::Scalar)
    }

    /// A key of the other kind.
    pub fn unlike(&self, seed: &[u8; 32]) -> Result<Self, KeyError> {
        match self.0.algorithm() {
            Algorithm::Ed25519 => Self::p256(seed),
            _ => Ok(Self::ed25519(seed)),
        }
    }

    pub fn key(&self) -> HostKey {
        HostKey::of(self.0.public_key())
    }

    /// The private key file as OpenSSH writes it.
    pub fn openssh(&self, comment: &str) -> Result<Secret<String>, KeyError> {
        let mut key = self.0.clone();
        key.set_comment(comment);
        let text = key
            .to_openssh(LineEnding::LF)
            .map_err(|_| KeyError::OpenSsh)?;
        Ok(Secret::new(text.to_string()))
    }

    pub fn from_openssh(text: &str) -> Result<Self, KeyError> {
        let key = PrivateKey::from_openssh(text).map_err(|_| KeyError::HostKey)?;
        let ours = matches!(
            key.algorithm(),
            Algorithm::Ed25519
                | Algorithm::Ecdsa {
                    curve: EcdsaCurve::NistP256
                }
        );
        if ours && !key.is_encrypted() {
            Ok(Self(key))
        } else {
            Err(KeyError::HostKey)
        }
    }

    pub(super) fn private(&self) -> PrivateKey {
        self.0.clone()
    }
}

impl From<&KeyPair> for HostPair {
    fn from(pair: &KeyPair) -> Self {
        let pair = Ed25519Keypair::from_seed(pair.seed().expose());
        Self(PrivateKey::from(pair))
    }
}

impl std::fmt::Debug for HostPair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HostPair({})", self.key().fingerprint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_either_kind_is_written_and_read_again() {
        let first = HostPair::ed25519(&[7; 32]);
        let second = first.unlike(&[8; 32]).unwrap();
        let third = second.unlike(&[9; 32]).unwrap();
        let kinds = [&first, &second, &third].map(|pair| pair.key().kind);
        assert_eq!(kinds, ["ssh-ed25519", "ecdsa-sha2-nistp256", "ssh-ed25519"]);
        for pair in [&first, &second, &third] {
            let text = pair.openssh("a host").unwrap();
            let again = HostPair::from_openssh(text.expose()).unwrap();
            assert_eq!(again.key(), pair.key());
            let ours = HostKey::parse(&pair.key().text, 1024).unwrap();
            assert!(ours.is_verified_by_us() && ours == pair.key());
            assert_eq!(
                format!("{pair:?}"),
                format!("HostPair({})", pair.key().fingerprint)
            );
        }
        assert_eq!(
            HostPair::from(&KeyPair::from_seed(&[7; 32])).key(),
            first.key()
        );
    }

    #[test]
    fn a_seed_beyond_the_curve_makes_a_key_too() {
        let beyond = HostPair::p256(&[0xff; 32]).unwrap();
        let hashed = HostPair::p256(&sha256(&[0xff; 32])).unwrap();
        assert_eq!(beyond.key(), hashed.key());
        assert!(HostPair::p256(&[0; 32]).is_ok());
    }

    #[test]
    fn what_is_no_host_key_is_refused() {
        for text in ["", "-----BEGIN OPENSSH PRIVATE KEY-----\n"] {
            assert_eq!(HostPair::from_openssh(text).err(), Some(KeyError::HostKey));
        }
    }
}

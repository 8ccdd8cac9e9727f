//! Keys that sign the catalog.

use serde::{Deserialize, Serialize};

use super::super::id::ClusterName;

/// How the fingerprint of an SSH key begins.
const SSH: &str = "SHA256:";

/// A key of which one has to have signed the catalog's head.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Told", into = "Told")]
pub struct SignerRef {
    /// Of OpenPGP 40 upper-case hex digits, of SSH `SHA256:…` as OpenSSH prints it.
    pub fingerprint: String,
    /// An armored OpenPGP public key, or the line of an OpenSSH one.
    pub public_key: String,
    /// Fingerprints of an OpenPGP key's subkeys, by which a signature names its maker; an older hub tells none.
    pub subkeys: Vec<String>,
}

impl SignerRef {
    /// Whether it is an SSH key, and no OpenPGP one.
    pub fn is_ssh(&self) -> bool {
        self.fingerprint.starts_with(SSH)
    }
}

/// As it is on the wire. An SSH key has a field of its own: an agent that knows none leaves such a signer out, and never takes the key for
/// one of OpenPGP.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Told {
    fingerprint: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    public_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ssh_key: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    subkeys: Vec<String>,
}

impl TryFrom<Told> for SignerRef {
    type Error = &'static str;

    fn try_from(told: Told) -> Result<Self, Self::Error> {
        let public_key = match (told.public_key, told.ssh_key) {
            (Some(armor), None) if !told.fingerprint.starts_with(SSH) => armor,
            (None, Some(line)) if told.fingerprint.starts_with(SSH) => line,
            _ => return Err("a signer's key of a kind that is not known"),
        };
        Ok(Self {
            fingerprint: told.fingerprint,
            public_key,
            subkeys: told.subkeys,
        })
    }
}

impl From<SignerRef> for Told {
    fn from(signer: SignerRef) -> Self {
        let ssh = signer.is_ssh();
        let key = signer.public_key;
        let (public_key, ssh_key) = if ssh {
            (None, Some(key))
        } else {
            (Some(key), None)
        };
        Self {
            fingerprint: signer.fingerprint,
            public_key,
            ssh_key,
            subkeys: signer.subkeys,
        }
    }
}

/// `GET /v1/catalog/signers`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SignersView {
    pub keys: Vec<SignerView>,
    /// Commit id of the branch; absent in an empty repository.
    pub head: Option<String>,
    /// The fingerprint of the key of these that the head names as its signer; the clusters verify it.
    pub head_signed_by: Option<String>,
    /// Clusters with Argo CD, or that are to have it, whose agent does not say that it verifies: there, signatures are not looked at.
    pub not_verifying: Vec<ClusterName>,
    /// Where there are SSH keys, clusters whose engine does not verify with those: what only such a key signed is refused there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ssh_unread: Vec<ClusterName>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SignerView {
    pub fingerprint: String,
    /// Fingerprints.
    pub subkeys: Vec<String>,
    /// The key's first user ID, of an SSH key its comment; it is not verified.
    pub user: String,
    pub public_key: String,
    pub added_by: String,
    /// RFC 3339.
    pub added_at: String,
}

/// `POST /v1/catalog/signers`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewSigner {
    /// One armored OpenPGP public key, at most 16 KiB, or the line of one OpenSSH public key.
    pub public_key: String,
    /// Also where clusters would refuse the head that there is now, or what the key signs.
    #[serde(default)]
    pub force: bool,
}

/// `POST /v1/catalog/signers/drop`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DropSigner {
    pub fingerprint: String,
    /// Also where clusters would refuse the head that there is now, or what the other keys sign.
    #[serde(default)]
    pub force: bool,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// An agent of before asks for `publicKey`, and leaves out what has none.
    #[test]
    fn an_ssh_key_is_told_so_that_nobody_takes_it_for_armor() {
        let signer = |fingerprint: &str, key: &str| SignerRef {
            fingerprint: fingerprint.to_owned(),
            public_key: key.to_owned(),
            subkeys: Vec::new(),
        };
        for (signer, told) in [
            (
                signer("SHA256:abc", "ssh-ed25519 AAAA"),
                json!({"fingerprint": "SHA256:abc", "sshKey": "ssh-ed25519 AAAA"}),
            ),
            (
                signer("A8E9", "armor"),
                json!({"fingerprint": "A8E9", "publicKey": "armor"}),
            ),
        ] {
            assert_eq!(serde_json::to_value(&signer).unwrap(), told);
            assert_eq!(serde_json::from_value::<SignerRef>(told).unwrap(), signer);
        }
        for odd in [
            json!({"fingerprint": "SHA256:abc", "publicKey": "armor"}),
            json!({"fingerprint": "A8E9", "sshKey": "ssh-ed25519 AAAA"}),
            json!({"fingerprint": "A8E9", "publicKey": "armor", "sshKey": "ssh-ed25519 AAAA"}),
            json!({"fingerprint": "A8E9"}),
        ] {
            assert!(
                serde_json::from_value::<SignerRef>(odd.clone()).is_err(),
                "{odd}"
            );
        }
    }
}

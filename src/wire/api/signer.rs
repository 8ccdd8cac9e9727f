//! Keys that sign the catalog.

use serde::{Deserialize, Serialize};

use super::super::id::ClusterName;

/// A key of which one has to have signed the catalog's head.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SignerRef {
    /// 40 upper-case hex digits.
    pub fingerprint: String,
    /// Armored OpenPGP public key.
    pub public_key: String,
    /// Fingerprints of its subkeys, by which a signature names its maker; an older hub tells none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subkeys: Vec<String>,
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
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SignerView {
    pub fingerprint: String,
    /// Fingerprints.
    pub subkeys: Vec<String>,
    /// The key's first user ID; it is not verified.
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
    /// One armored OpenPGP public key, at most 16 KiB.
    pub public_key: String,
    /// Also where clusters would refuse the head that there is now.
    #[serde(default)]
    pub force: bool,
}

/// `POST /v1/catalog/signers/drop`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DropSigner {
    pub fingerprint: String,
    /// Also where clusters would refuse the head that there is now.
    #[serde(default)]
    pub force: bool,
}

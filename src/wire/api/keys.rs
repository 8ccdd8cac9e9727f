//! Calls by which an agent replaces keys, and gets back what it lost.

use serde::{Deserialize, Serialize};

use super::super::id::ClusterName;

/// `POST /v1/clusters/{name}/deploy-keys`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeployKeyRequest {
    pub public_key: String,
    pub proof: String,
    /// The public key that this one takes the place of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<String>,
    /// The engine was seen to fetch with this key: every other deploy key of the cluster ends, also at the Git host.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_use: bool,
}

/// The fingerprints (`SHA256:…`) of keys that a cluster has to replace: the very keys, so that a wish that was
/// fulfilled is over by itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RotateWish {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deploy_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
}

impl RotateWish {
    pub fn is_empty(&self) -> bool {
        self.deploy_key.is_none() && self.identity.is_none()
    }
}

/// `POST /v1/clusters/{name}/rotate`: which keys the cluster shall replace now. The answer names them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RotateRequest {
    pub deploy_key: bool,
    pub identity: bool,
}

/// `POST /v1/clusters/{name}/revoke`: nothing of the cluster's keys counts from now on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RevokeRequest {
    /// Why, one line.
    pub reason: String,
}

/// What was revoked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Revocation {
    pub cluster: ClusterName,
    /// The fingerprints of the keys that ended with this call.
    pub keys: Vec<String>,
    /// It had been revoked before: nothing was changed.
    pub already: bool,
    /// The way back.
    pub next: String,
}

/// `POST /v1/clusters/{name}/identity`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IdentityRequest {
    /// base64url, the 32 bytes of the Ed25519 public key.
    pub new_key: String,
    /// base64url, of [`identity_change_input`], by the key that ends.
    pub sig_old: String,
    /// The same by the new one.
    pub sig_new: String,
}

/// `POST /v1/recover`, signed by the new identity key; answered with the [`Assignment`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecoverRequest {
    pub cluster: ClusterName,
    /// UID of the namespace `kube-system`.
    pub incarnation: String,
    /// base64url, the 32 bytes of the Ed25519 public key.
    pub new_identity_key: String,
    /// `ssh-ed25519 AAAA…`, one line: a deploy key that the hub has of this cluster.
    pub deploy_key: String,
    /// base64url, its signature of [`recovery_input`].
    pub sig: String,
}

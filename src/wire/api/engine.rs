//! Engines: which one a cluster has, in which version, from which registry.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::super::id::Digest;

/// `PUT /v1/clusters/{name}/engine`: version or bundle, neither = the newest version that is imported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EngineRequest {
    pub engine: EngineKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundle: Option<Digest>,
    /// Seconds in which the engine has to work with it: 30 to 3,600.
    #[serde(default = "five_minutes")]
    pub within: u32,
    /// The cluster may have the other engine: it takes that one's place.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replace: bool,
    /// The catalog's path for an engine that takes the other one's place; absent = the hub looks for one. The engine that is in force, or
    /// comes back, keeps the path that it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// The answer: what the agent is told from now on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EngineView {
    pub engine: EngineKind,
    pub version: String,
    pub bundle: Digest,
    /// The number that condition `EngineCurrent` tells of it with.
    pub change: u64,
    /// The catalog's path that the engine follows.
    #[serde(default)]
    pub path: String,
}

/// `PUT /v1/clusters/{name}/image-registry` and `PUT /v1/hub/image-registry`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RegistryRequest {
    /// Empty = the images' own registries; absent = the hub's default, for the hub none.
    pub registry: Option<String>,
    /// With a registry: the Secret of the engine's namespace that the images are pulled with; absent = none of the hub's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull_secret: Option<String>,
}

/// What is in force; the answer to `GET` and `PUT`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RegistryView {
    /// Empty = the images' own registries.
    pub registry: String,
    /// The Secret of the engine's namespace that the images are pulled with; absent = none of the hub's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull_secret: Option<String>,
    /// Of a cluster: the number that condition `EngineCurrent` tells of it with.
    pub change: u64,
    /// It was said for this cluster, or for the hub; no = it is what the hub says for all, or the images name.
    #[serde(default)]
    pub own: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineKind {
    Flux,
    Argocd,
}

impl EngineKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Flux => "flux",
            Self::Argocd => "argocd",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        let mut all = [Self::Flux, Self::Argocd].into_iter();
        all.find(|kind| kind.as_str() == text)
    }

    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Flux => Self::Argocd,
            Self::Argocd => Self::Flux,
        }
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// `GET /v1/bundles`, and the answer to an upload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BundleView<E = EngineKind> {
    pub digest: Digest,
    pub engine: E,
    pub version: String,
    pub objects: u32,
    pub images: Vec<String>,
    /// Bytes as served (zstd).
    pub size: u64,
    /// The lowest Kubernetes that the engine's project makes it for, `1.33`; absent = not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<String>,
    pub imported_at: String,
    /// Absent = not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<BundleOrigin>,
}

/// Where a bundle is from, by the word of the program that imported it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BundleOrigin {
    /// Address or file.
    pub source: String,
    /// What vouched for the manifest; empty = nothing did.
    pub verified_by: String,
}

impl BundleOrigin {
    pub fn is_verified(&self) -> bool {
        !self.verified_by.is_empty()
    }
}

pub(super) fn five_minutes() -> u32 {
    300
}

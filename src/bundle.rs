//! One engine version's install objects in normal form, named by the SHA-256 of it.

use crate::wire::api::EngineKind;
use crate::wire::id::Digest;

/// Install objects: JSON with sorted keys, ordered by (stage, kind, namespace, name).
#[derive(Debug, Clone, PartialEq)]
pub struct Bundle {
    pub engine: EngineKind,
    pub version: String,
    pub digest: Digest,
    pub objects: Vec<serde_json::Value>,
}

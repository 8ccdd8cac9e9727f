//! The Kubernetes API as HTTP, as far as hub and agent must agree on it: which paths are served and what
//! they mean, which headers never cross, and how a refusal reads. Pure; both ends apply the same rules to
//! the bytes that are forwarded.

pub mod acting;
pub mod frames;
pub mod headers;
pub mod lasting;
pub mod message;
pub mod path;
pub mod scope;
pub mod status;
pub mod trace;

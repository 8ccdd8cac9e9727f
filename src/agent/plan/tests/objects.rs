//! Objects of Flux's install that tests name again and again.

use crate::bundle::{Kind, ObjectId};

pub(in crate::agent::plan) fn deployment(name: &str) -> ObjectId {
    ObjectId::new(Kind::Deployment, "flux-system", name)
}

pub(in crate::agent::plan) fn account(name: &str) -> ObjectId {
    ObjectId::new(Kind::ServiceAccount, "flux-system", name)
}

/// The controller that fetches what the root applies.
pub(in crate::agent::plan) fn source() -> ObjectId {
    deployment("source-controller")
}

//! The agent: wires its parts and owns their tasks.

use std::sync::Arc;

use crate::bundle::Bundle;
use crate::secret::Secret;
use crate::wire::api::Assignment;
use crate::wire::report::{Condition, HealRecord, StepReport};

pub mod apply;
pub mod caller;
pub mod engine;
pub mod enroll;
pub mod facts;
pub mod fault;
pub mod forward;
pub mod gate;
pub mod health;
pub mod identity;
pub mod lease;
pub mod link;
pub mod observe;
pub mod plan;
pub mod report;
pub mod snapshot;
pub mod watchdog;

/// What the hub told this cluster, and how it is reached. Published on a `watch` channel by [`enroll`].
#[derive(Debug, Clone)]
pub struct Joined {
    pub assignment: Assignment,
    pub proxy: Option<link::ProxyConfig>,
}

/// What the watchdog keeps true, as far as enrolment has come. Published on a `watch` channel by [`enroll`].
#[derive(Debug, Clone)]
pub struct Desired {
    pub assignment: Assignment,
    pub bundle: Arc<Bundle>,
    pub deploy_key: DeployKey,
}

/// The cluster's SSH key for the catalog, read-only at the Git host.
#[derive(Debug, Clone)]
pub struct DeployKey {
    /// OpenSSH private key file, PEM.
    pub private: Secret<String>,
    /// `ssh-ed25519 AAAA…`
    pub public: String,
}

/// Something to tell the hub. Sent on a bounded channel to [`report`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    Step(StepReport),
    /// Replaces the condition of the same type.
    Condition(Condition),
    /// The root revision that the engine last applied.
    Revision(String),
    /// Sent at opening and at closing of a heal, with the same id.
    Heal(Box<HealRecord>),
}

/// Something the watchdog should look at now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hint {
    /// The catalog's branch moved to this commit id.
    CatalogHead(String),
}

//! What the watchdog keeps true: values that enrolment makes, and engine and planner read.

use std::sync::Arc;

use crate::bundle::Bundle;
use crate::secret::Secret;
use crate::wire::api::{Assignment, EngineKind};

use super::engine::domain::Domain;
use super::plan::change::{Change, Form};

/// What the watchdog keeps true, as far as enrolment has come. Published on a `watch` channel by [`super::enroll`].
#[derive(Debug, Clone)]
pub struct Desired {
    pub assignment: Assignment,
    pub install: InForce,
    pub deploy_key: DeployKey,
    pub engine: Engine,
    /// Below which the cluster's DNS knows its Services.
    pub domain: Domain,
    /// Whether the engine may take away what the catalog no longer has: not while it takes another one's place.
    pub prunes: bool,
    /// Another engine takes this one's place: nothing of it is mended now.
    pub rests: bool,
}

impl Desired {
    pub fn kind(&self) -> EngineKind {
        match self.engine {
            Engine::Flux => EngineKind::Flux,
            Engine::Argocd(_) => EngineKind::Argocd,
        }
    }
}

/// The engine's install that is in force; while a change of it is under way, that is the new one already.
#[derive(Debug, Clone)]
pub struct InForce {
    pub bundle: Arc<Bundle>,
    pub form: Form,
    /// Under way, or undone.
    pub change: Option<Change>,
    /// RFC 3339: since when; absent = since the adoption.
    pub since: Option<String>,
}

/// Which engine it is, with the secrets of it that are made in the cluster.
#[derive(Debug, Clone)]
pub enum Engine {
    Flux,
    Argocd(EngineKeys),
}

/// What Argo CD's parts share with each other. It is never changed: running Pods hold it.
#[derive(Debug, Clone)]
pub struct EngineKeys {
    /// `server.secretkey`: 32 random bytes, base64.
    pub session: Secret<String>,
    /// The password of its Redis.
    pub redis: Secret<String>,
}

/// The cluster's SSH key for the catalog, read-only at the Git host.
#[derive(Debug, Clone)]
pub struct DeployKey {
    /// OpenSSH private key file, PEM.
    pub private: Secret<String>,
    /// `ssh-ed25519 AAAA…`
    pub public: String,
    /// Its predecessor still stands at the Git host, until the engine has been seen to fetch with this one.
    pub unsettled: bool,
}

//! Where the watchdog works, as whom, and what it hears from other parts of the agent and tells them.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::{Notify, watch};

use crate::agent::calls::Calls;
use crate::agent::fault::Faults;
use crate::agent::gate::Covered;
use crate::agent::gate::policy::Policy;
use crate::agent::lease::Term;
use crate::agent::plan::Observed;
use crate::agent::plan::state::{HostKeys, OwnLook};
use crate::agent::{EngineGit, Rest, Verdict};
use crate::lifetime::hearts::Heart;
use crate::manifests::{EngineNamespaces, scope::Extent};
use crate::telemetry::HealMetrics;
use crate::wire::report::Facts;

/// Where the watchdog works and as whom.
#[derive(Clone)]
pub struct Context {
    /// Beats with each call, and writes nothing when the term is over.
    pub kube: kube::Client,
    /// For what goes on beside the loop, whatever becomes of that.
    pub watches: kube::Client,
    pub heart: Heart,
    /// The agent's own namespace, where snapshots and records are kept.
    pub namespace: String,
    pub engines: EngineNamespaces,
    pub extent: Extent,
    pub covered: watch::Receiver<Covered>,
    /// The agent's Pod, the source of its Events.
    pub pod: String,
    /// Out: the fingerprint of the deploy key that the engine was seen to fetch with.
    pub fetched: watch::Sender<String>,
    /// Ids of heals that ended and are kept until the hub has them, the last ones.
    pub stored: watch::Receiver<Vec<String>>,
    /// Out: what became of a change of the engine.
    pub changed: watch::Sender<Option<Verdict>>,
    /// Out: which engine is left alone, for another one takes its place.
    pub rest: watch::Sender<Rest>,
    /// Out: the engine's way to the Git host.
    pub engine_git: watch::Sender<EngineGit>,
    /// What became of its own last look at the catalog.
    pub look: watch::Receiver<OwnLook>,
    /// The Git host's keys, with the one that this look met.
    pub met: watch::Receiver<HostKeys>,
    pub facts: watch::Receiver<Facts>,
    /// What the cluster's owner lets it do.
    pub owner: watch::Receiver<Option<Policy>>,
    /// Out: what `/metrics` tells of heals.
    pub metrics: HealMetrics,
    /// What becomes of calls to the API server.
    pub calls: Calls,
    /// Out: a write or a list was refused for want of a right, or no longer is.
    pub refused: Arc<Notify>,
    /// Nothing is begun when it is over: another replica may lead.
    pub term: Term,
    pub faults: Faults,
}

impl Context {
    /// With what other parts of the agent know.
    pub(super) fn around(&self, mut observed: Observed) -> Observed {
        observed.gate = self.calls.gate();
        observed.own_look = *self.look.borrow();
        observed.host_keys.clone_from(&self.met.borrow());
        observed.covered = match &*self.covered.borrow() {
            Covered::Cluster => None,
            Covered::Unread => Some(BTreeSet::new()),
            Covered::Namespaces(all) => Some(all.clone()),
        };
        let minor = self.facts.borrow().get("kubernetes.minor").cloned();
        observed.kubernetes = minor.and_then(|minor| minor.parse().ok());
        observed
    }

    /// Whether the owner has said something else since this was asked last. It is asked before each plan, however long
    /// there is something to do.
    pub(super) fn owner_said(&mut self) -> bool {
        let said = self.owner.has_changed().unwrap_or(false);
        if said {
            self.owner.mark_unchanged();
        }
        said
    }
}

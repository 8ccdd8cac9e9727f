//! A snapshot of what has worked for a while, and what is to be said in the last one at once.

use std::time::Duration;

use anyhow::anyhow;
use tokio::time::{Instant, timeout};
use tracing::warn;

use super::Watchdog;
use crate::agent::engine::{Install, is_git_owned};
use crate::agent::plan::{Observed, Plan, ownership, quarantine, settled};
use crate::agent::snapshot;
use crate::bundle::ObjectId;
use crate::clock;

/// No heal waits longer for what is read one after the other.
const ATTEMPT: Duration = Duration::from_mins(1);
/// Until what could not be said in the last snapshot is tried again.
const AGAIN: Duration = Duration::from_secs(10);

impl Watchdog {
    /// Takes a snapshot at the adoption, and when the engine has worked for long enough since the last change.
    /// True = there is a new one.
    pub(super) async fn keep_snapshot(
        &mut self,
        install: &Install,
        observed: &Observed,
        plan: &Plan,
    ) -> bool {
        let now = clock::now();
        let looked = self.snapshot_at;
        let in_force = ownership::in_force(now, install, observed, &self.history);
        let install = in_force.as_ref();
        if !settled::is_due(now, (install, observed), &self.history, plan, looked) {
            return false;
        }
        let number = self.snapshot.as_ref().map(|s| s.number);
        let taken = snapshot::take(
            &self.context.kube,
            &self.context.namespace,
            (install, observed),
            self.snapshot.as_ref(),
        );
        let taken = timeout(ATTEMPT, Box::pin(taken)).await;
        let taken = taken.unwrap_or_else(|_| Err(anyhow!("the API server is slow")));
        self.snapshot_at = Some(now);
        match taken {
            Ok(taken) => {
                let new = number != Some(taken.number);
                if new {
                    self.trust_snapshot();
                }
                self.snapshot = Some(taken);
                self.history.adopted = true;
                new
            }
            Err(error) => {
                warn!(error = format!("{error:#}"), "no snapshot was taken");
                false
            }
        }
    }

    /// Has the last snapshot say of what is the agent's again that Git has it no more. Once such an object is gone, or the bundle is
    /// another one, nothing else tells that. True = what is wanted has changed.
    pub(super) async fn keep_regained(&mut self, install: &Install, observed: &Observed) -> bool {
        let Some(snapshot) = &self.snapshot else {
            return false;
        };
        let is_gits = |id: &ObjectId| snapshot.objects.get(id).is_some_and(is_git_owned);
        let mut regained = quarantine::regained(install, observed);
        regained.retain(is_gits);
        let waits = self.regained_after.is_some_and(|at| Instant::now() < at);
        if regained.is_empty() || waits {
            return false;
        }
        let (kube, namespace) = (&self.context.kube, &self.context.namespace);
        let kept = snapshot::disown(kube, namespace, snapshot, &regained);
        let kept = timeout(ATTEMPT, Box::pin(kept)).await;
        let kept = kept.unwrap_or_else(|_| Err(anyhow!("the API server is slow")));
        match kept {
            Ok(kept) => {
                self.snapshot = Some(kept);
                self.leave_snapshots(&regained);
                self.regained_after = None;
                true
            }
            Err(error) => {
                let error = format!("{error:#}");
                warn!(
                    error,
                    "the snapshot still has what is the agent's again as Git's"
                );
                self.regained_after = Some(Instant::now() + AGAIN);
                false
            }
        }
    }
}

#[cfg(test)]
mod tests;

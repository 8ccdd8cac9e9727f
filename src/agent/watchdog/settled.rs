//! A snapshot of what has worked for a while.

use std::time::Duration;

use anyhow::anyhow;
use tokio::time::timeout;
use tracing::warn;

use super::Watchdog;
use crate::agent::engine::Install;
use crate::agent::plan::{Observed, Plan, ownership, settled};
use crate::agent::snapshot;
use crate::clock;

/// No heal waits longer for what is read one after the other.
const ATTEMPT: Duration = Duration::from_mins(1);

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
}

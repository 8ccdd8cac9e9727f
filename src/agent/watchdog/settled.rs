//! A snapshot of what has worked for a while.

use tracing::warn;

use super::Watchdog;
use crate::agent::engine::Install;
use crate::agent::plan::{Mode, Observed, Plan, children, health};
use crate::agent::snapshot;
use crate::clock;

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
        let quiet = self
            .history
            .last_write
            .is_none_or(|at| now - at >= install.policy.snapshot_after);
        let looked = self.snapshot_at.is_some_and(|at| {
            now - at
                < install
                    .policy
                    .snapshot_after
                    .max(time::Duration::minutes(1))
        });
        let proven = health::proven_since(install, observed);
        let revision = health::revision(install, observed);
        let works = revision.is_some()
            && proven.is_some_and(|p| self.history.last_write.is_none_or(|at| p >= at));
        let healthy =
            children::is_well(observed, &plan.findings) && plan.mode == Mode::Act && works;
        let due = if self.history.adopted {
            quiet && !looked
        } else {
            true
        };
        if !healthy || !due {
            return false;
        }
        let number = self.snapshot.as_ref().map(|s| s.number);
        let taken = snapshot::take(
            &self.context.kube,
            &self.context.namespace,
            install,
            self.snapshot.as_ref(),
        )
        .await;
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

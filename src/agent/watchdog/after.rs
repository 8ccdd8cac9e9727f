//! What follows a round's steps, or their want: to keep and to tell.

use std::collections::BTreeSet;

use super::{Watchdog, ailing, budgets, handover, open, silences, status, stopped, versions};
use crate::agent::EngineGit;
use crate::agent::engine::Install;
use crate::agent::plan::{Mode, Observed, Plan, health, ownership};
use crate::bundle::ObjectId;
use crate::clock;
use crate::heal;
use crate::wire::report::HealRecord;

/// How a round goes on after its steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Plan anew, from another snapshot.
    Renew,
    Plan,
    Wait,
}

/// What a round of the watchdog leaves to be kept and told.
pub(super) struct After<'a> {
    pub(super) observed: &'a Observed,
    pub(super) plan: &'a Plan,
    pub(super) heals: Vec<HealRecord>,
    /// CRDs whose objects are to be brought back.
    pub(super) more: BTreeSet<ObjectId>,
    pub(super) leads: bool,
    pub(super) acted: bool,
}

impl Watchdog {
    /// What follows the steps, or their want: to keep and to tell.
    pub(super) async fn after(&mut self, install: &Install, after: After<'_>) -> Next {
        let After {
            observed,
            plan,
            heals,
            more,
            leads,
            acted,
        } = after;
        for crd in more {
            self.keep_saves(&crd).await;
        }
        if leads {
            self.keep_the_rest().await;
        }
        self.keep_open(leads).await;
        self.report(install, observed, plan, heals).await;
        // The controllers are to be asked now, also where nothing else will happen for a while.
        let asks = leads && self.see_change(install, observed, plan).await;
        // However long there is something to do: who deletes such an object meanwhile deletes what counts as Git's.
        let regained = leads && self.keep_regained(install, observed).await;
        if acted {
            return if self.fall_back().await || regained {
                Next::Renew
            } else {
                Next::Plan
            };
        }
        if regained {
            return Next::Renew;
        }
        if asks {
            return Next::Plan;
        }
        if leads && self.keep_snapshot(install, observed, plan).await {
            return Next::Renew;
        }
        Next::Wait
    }

    /// The open heals, for the metrics and for an agent that goes on here; for that one, also the end of those of which
    /// nobody else keeps it yet.
    async fn keep_open(&mut self, leads: bool) {
        self.records.stored(&self.context.stored.borrow());
        self.context
            .metrics
            .faults(self.records.open_classes().map(|class| (class, 1)));
        if leads {
            self.open_heals.store(self.left()).await;
        }
    }

    /// What an agent after this one goes on with.
    pub(super) fn left(&self) -> open::Left {
        open::Left {
            heals: self.records.kept(),
            tried: budgets::kept(&self.history),
            owed: silences::kept(&self.history),
            ailing: ailing::kept(&self.history),
            taken: open::taken(&self.history),
            stopped: stopped::kept(&self.history),
            versions: versions::kept(clock::now(), &self.history),
        }
    }

    async fn report(
        &mut self,
        install: &Install,
        observed: &Observed,
        plan: &Plan,
        heals: Vec<HealRecord>,
    ) {
        let now = clock::now();
        for heal in &heals {
            if heal::is_over(heal) {
                self.context.metrics.ended(heal);
            }
        }
        let again = std::mem::take(&mut self.told_again);
        self.tell(heals.into_iter().chain(again).collect()).await;
        let in_force = ownership::in_force(now, install, observed, &self.history);
        let install = in_force.as_ref();
        let moment = status::Moment {
            now,
            install,
            observed,
            history: &self.history,
            plan,
            lacks: self.changing.lacks(),
        };
        if plan.mode == Mode::Learning {
            self.teller.conditions(status::blind(&moment)).await;
            return;
        }
        let revision = health::revision(install, observed).unwrap_or_default();
        let engine_git = EngineGit {
            other_key: status::other_host_key(&moment),
            trusted: handover::trusted(install, observed),
            unreachable: status::is_kept_out(&moment),
            revoked: status::is_revoked(&moment),
        };
        self.context.engine_git.send_if_modified(|before| {
            let changed = *before != engine_git;
            *before = engine_git;
            changed
        });
        self.teller
            .steps(status::steps(&moment), &install.digest)
            .await;
        let taken = self.snapshot.as_ref().map(|s| s.taken);
        self.teller
            .conditions(status::conditions(&moment, taken))
            .await;
        self.teller.revision(revision).await;
    }
}

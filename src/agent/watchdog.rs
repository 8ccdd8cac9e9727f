//! The loop that observes, plans and acts, and keeps the record of each heal.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::diagnose::Question;
use super::engine::Install;
use super::observe::{self, View};
use super::plan::quarantine;
use super::plan::{self, History, Mode, Observed, Plan, health, ownership, window};
use super::saves::Saves;
use super::snapshot::{self, Snapshot};
use super::{Desired, Hint, News};
use crate::bundle::Kind;
use crate::clock;
use crate::wire::api::EngineKind;
use crate::wire::report::HealRecord;

mod act;
mod after;
mod ailing;
mod attend;
mod budgets;
mod change;
mod context;
mod events;
mod fallback;
mod handover;
mod open;
mod question;
mod record;
mod replace;
mod resume;
mod scene;
mod setback;
mod settled;
mod silences;
mod stamp;
mod status;
mod stopped;
mod tell;
mod unkept;
mod versions;

use after::{After, Next};
use attend::Guard;
use change::Changing;
pub use context::Context;
use fallback::Fallback;
use handover::{Handover, Redirect};
use open::OpenHeals;
use record::Records;
use tell::Teller;
use unkept::Unkept;

/// Between two beats while there is nothing to do.
const ALIVE: Duration = Duration::from_mins(1);

/// What reaches the watchdog from the hub.
pub struct Inlets {
    pub hints: mpsc::Receiver<Hint>,
    pub questions: mpsc::Receiver<Question>,
}

/// Keeps the engine of [`Desired`] installed and working until `stop`.
pub async fn run(
    context: Context,
    desired: watch::Receiver<Option<Desired>>,
    inlets: Inlets,
    news: mpsc::Sender<News>,
    stop: CancellationToken,
) -> Result<()> {
    let work = Watchdog::new(context, desired, inlets, news).keep();
    stop.run_until_cancelled(Box::pin(work))
        .await
        .unwrap_or(Ok(()))
}

struct Watchdog {
    context: Context,
    desired: watch::Receiver<Option<Desired>>,
    hints: mpsc::Receiver<Hint>,
    questions: mpsc::Receiver<Question>,
    hub_speaks: bool,
    teller: Teller,
    history: History,
    records: Records,
    /// What could not be told yet, oldest first.
    untold: Vec<HealRecord>,
    /// Heals that are over, and of which more is known since.
    told_again: Vec<HealRecord>,
    handover: Handover,
    fallback: Fallback,
    changing: Changing,
    open_heals: OpenHeals,
    /// The engine that was followed last.
    engine: Option<EngineKind>,
    snapshot: Option<Snapshot>,
    saves: Saves,
    unkept: Unkept,
    /// When a snapshot was last looked at, taken or found to be the same.
    snapshot_at: Option<time::OffsetDateTime>,
    /// Until when the snapshot is not told what is the agent's again: it could not be written a moment ago.
    regained_after: Option<Instant>,
    /// Kinds that the agent may not list.
    unlisted: BTreeSet<Kind>,
    /// Looks for the Events of heals.
    looks: scene::Looks,
    unset: setback::Unset,
}

impl Watchdog {
    fn new(
        context: Context,
        desired: watch::Receiver<Option<Desired>>,
        inlets: Inlets,
        news: mpsc::Sender<News>,
    ) -> Self {
        Self {
            teller: Teller::new(&context, news),
            saves: Saves::new(&context.kube, &context.namespace),
            unkept: Unkept::default(),
            open_heals: OpenHeals::new(&context.kube, &context.namespace),
            context,
            desired,
            hints: inlets.hints,
            questions: inlets.questions,
            hub_speaks: true,
            history: History::default(),
            records: Records::default(),
            untold: Vec::new(),
            told_again: Vec::new(),
            handover: Handover::default(),
            fallback: Fallback::default(),
            changing: Changing::default(),
            engine: None,
            snapshot: None,
            snapshot_at: None,
            regained_after: None,
            unlisted: BTreeSet::new(),
            looks: scene::Looks::default(),
            unset: setback::Unset::default(),
        }
    }

    async fn keep(mut self) -> Result<()> {
        self.snapshot = self.load().await;
        self.resume().await;
        loop {
            self.context.heart.beat();
            let Some(desired) = self.desired.borrow_and_update().clone() else {
                if !self.hears().await {
                    return Ok(());
                }
                continue;
            };
            if desired.rests {
                if !self.rest(&desired).await {
                    return Ok(());
                }
                continue;
            }
            if !Box::pin(self.follow(desired)).await? {
                return Ok(());
            }
        }
    }

    /// Waits for another desired state, and is alive meanwhile. False = there will be none.
    async fn hears(&mut self) -> bool {
        loop {
            self.context.heart.rests(ALIVE);
            if let Ok(changed) = timeout(ALIVE, self.desired.changed()).await {
                return changed.is_ok();
            }
            // What nobody took before.
            self.tell(Vec::new()).await;
        }
    }

    /// A snapshot that cannot be read now is read at the next attempt: without it a heal would be called an install.
    async fn load(&self) -> Option<Snapshot> {
        loop {
            match snapshot::load(&self.context.kube, &self.context.namespace).await {
                Ok((found, wrong)) => {
                    for wrong in &wrong {
                        self.teller.warn(tell::UNREADABLE, wrong);
                    }
                    return found;
                }
                Err(error) => {
                    warn!(
                        error = format!("{error:#}"),
                        "snapshots cannot be read; trying again"
                    );
                    tokio::time::sleep(Duration::from_secs(2)).await;
                }
            }
        }
    }

    /// Works for one desired state, until another one is given. False = there will be none.
    async fn follow(&mut self, desired: Desired) -> Result<bool> {
        self.take_up(&desired).await;
        let install = self.install(&desired);
        self.teller.at_home_in(&install.namespace);
        let view = View::new(&install);
        let watches = CancellationToken::new();
        let _guard = watches.clone().drop_guard();
        let mut observers = JoinSet::new();
        let (kube, seen, over) = (self.context.watches.clone(), view.clone(), watches.clone());
        let (observed, extent) = (install.clone(), self.context.extent);
        observers.spawn(async move { observe::run(kube, &observed, extent, seen, over).await });
        info!(cluster = install.cluster, bundle = %desired.install.bundle.digest, objects = install.wanted.len(), "watching");
        let again = Box::pin(self.rounds(install, desired, &view, &mut observers)).await;
        watches.cancel();
        observers.shutdown().await;
        again
    }

    async fn rounds(
        &mut self,
        mut install: Install,
        mut desired: Desired,
        view: &View,
        observers: &mut JoinSet<Result<()>>,
    ) -> Result<bool> {
        let mut seen = view.subscribe();
        loop {
            self.context.heart.beat();
            let observed = self.context.around(seen.borrow_and_update().clone());
            if self.context.owner_said() {
                install = self.install(&desired);
            }
            let now = clock::now();
            self.set_back(now);
            let more = self.mourn(now, &install, &observed);
            self.see_fetch(now, &install, &desired, &observed);
            self.history.noted(now, &install, &observed);
            let plan = plan::plan(now, &install, &observed, &self.history);
            self.history.saw(now, &plan);
            let heals = self.record(&install, &observed, &plan);
            self.see_refusals(&observed);
            let leads = self.context.term.holds();
            let acted = leads && self.act(&install, view, &observed, &plan).await;
            self.look_around(&install, view, &observed);
            // After the steps: nothing comes before the rights are cut.
            let guard = self.guard(&install, view, &observed);
            let after = After {
                observed: &observed,
                plan: &plan,
                heals,
                more,
                leads,
                acted,
            };
            let after = Box::pin(self.after(&install, after));
            let (next, cut) = Guard::beside(guard.as_ref(), after).await;
            if next == Next::Renew {
                install = self.install(&desired);
            }
            let again = self.heed(cut, "records and reports") || next != Next::Wait;
            // However long there is something to do, what the hub wants is heard.
            if again && !self.desired.has_changed().unwrap_or(true) {
                self.answer_waiting((&install, &observed, &plan));
                continue;
            }
            let wake = self.wake(&plan);
            let rest = wake.saturating_duration_since(Instant::now());
            self.context.heart.rests(rest);
            tokio::select! {
                changed = seen.changed() => changed.context("the watches ended")?,
                () = sleep_until(wake) => {}
                Some(seen) = self.looks.join_next() => self.took_look(seen),
                hint = self.hints.recv(), if self.hub_speaks => self.hear(hint),
                Ok(()) = self.context.met.changed() => {}
                Ok(()) = self.context.owner.changed() => self.context.owner.mark_changed(),
                Some(question) = self.questions.recv() => self.answer(question, (&install, &observed, &plan)),
                changed = self.desired.changed() => {
                    let next = self.redirected(changed.is_ok(), (&install, &desired), view);
                    match Box::pin(next).await {
                        Redirect::Over => return Ok(false),
                        Redirect::Anew => return Ok(true),
                        // The same objects are watched, whatever is to be in them.
                        Redirect::On(next) => (install, desired) = *next,
                    }
                }
                ended = observers.join_next() => {
                    ended.context("no watches")?.context("a watch panicked")??;
                    anyhow::bail!("the watches ended");
                }
            }
        }
    }

    /// When to look again, whatever is heard.
    fn wake(&self, plan: &Plan) -> Instant {
        let next = match self.records.due() {
            Some(due) => due.min(plan.next_look),
            None => plan.next_look,
        };
        let wait = (next - clock::now()).try_into().unwrap_or(Duration::ZERO);
        let next = Instant::now() + wait.max(Duration::from_millis(50));
        let unkept = self.unkept.next().filter(|_| self.context.term.holds());
        unkept.map_or(next, |at| at.min(next))
    }

    fn hear(&mut self, hint: Option<Hint>) {
        match hint {
            Some(Hint::CatalogHead(head)) => self.history.head = Some((head, clock::now())),
            None => self.hub_speaks = false,
        }
    }

    /// Heals that opened or closed.
    fn record(&mut self, install: &Install, observed: &Observed, plan: &Plan) -> Vec<HealRecord> {
        self.take_looks();
        let revision = health::revision(install, observed).unwrap_or_default();
        let tried = quarantine::commit(install, observed, &install.sync);
        let (now, history) = (clock::now(), &self.history);
        let in_force = ownership::in_force(now, install, observed, history);
        let overdue = window::overdue(now, install, observed, history, plan);
        let moment = record::Moment {
            now,
            plan,
            history: &self.history,
            observed,
            proven: health::proven_since(&in_force, observed),
            revision: &revision,
            tried: &tried,
            applier: install.traits.applier,
            overdue: &overdue,
            changing: install
                .change()
                .is_some_and(|c| self.changing.covers(now, c)),
            waits: install
                .change()
                .filter(|c| self.changing.is_old_but_for_a_window(now, c))
                .filter(|_| plan::change::is_at_rest(now, observed, &plan.findings))
                .map(|_| in_force.as_ref()),
            hands_over: install.change().is_some_and(|c| c.both),
        };
        let told = self.records.update(&moment, clock::id);
        if plan.mode != Mode::Learning {
            let waits = quarantine::waits(now, install, observed);
            self.told_again.extend(self.records.waited(now, &waits));
        }
        told
    }
}

#[cfg(test)]
mod tests;

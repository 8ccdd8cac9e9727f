//! What the engine needs before it is started: a Git path that was proven with our own SSH client, and the bundle.
//!
//! The first proof is remembered. A later start publishes what the watchdog needs from what is stored in the cluster,
//! and looks at hub and Git host afterwards.

mod held;
mod probe;

use std::time::Duration;

use anyhow::{Context as _, Result};
use futures_util::StreamExt as _;
use kube::runtime::{WatchStreamExt as _, watcher};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::bundle::{Keeper, Turn, Wish};
use super::gitpath::GitPath;
use super::{Context, Progress, engine_keys};
use crate::agent::engine::domain::Domain;
use crate::agent::identity::Identity;
use crate::agent::link::LinkState;
use crate::agent::plan::change;
use crate::agent::plan::state::{HostKeys, OwnLook};
use crate::agent::{Desired, Engine, EngineGit, InForce, Joined, News, Rest, Verdict};
use crate::backoff::Schedule;
use crate::clock;
use crate::lifetime::hearts::Heart;
use crate::manifests::BUNDLE_MAP;
use crate::wire::api::{Assignment, CatalogRef, EngineKind, Via};
use crate::wire::report::{ConditionType, Status, StepName};
use held::Held;
use probe::fingerprint;

/// Between looks at the stored bundle that no change calls for.
const STORED: Duration = Duration::from_mins(10);
/// The longest pause between two turns of the loop.
const TURN: Duration = Duration::from_secs(20);
/// Between two looks at an engine that is to stand still.
const STILLS: Duration = Duration::from_millis(500);
const RETRY: Schedule = Schedule {
    floor: Duration::from_millis(500),
    first: Duration::from_secs(1),
    cap: Duration::from_secs(30),
};

/// What preparing needs and gives.
pub struct Preparing {
    pub context: Context,
    pub keys: watch::Receiver<Identity>,
    pub keeper: Keeper,
    /// What the watchdog found of a change of the engine.
    pub told: watch::Receiver<Option<Verdict>>,
    /// Which engine the watchdog leaves alone.
    pub rest: watch::Receiver<Rest>,
    pub heart: Heart,
    pub joined: watch::Receiver<Option<Joined>>,
    pub link: watch::Receiver<LinkState>,
    pub path: GitPath,
    pub domain: Domain,
    /// The engine's way, as the watchdog sees it.
    pub engine_git: watch::Receiver<EngineGit>,
    /// Out: how many looks in a row the Git host refused the deploy key, as far as that counts.
    pub denied: watch::Sender<u32>,
    /// Out: what became of the last look at the catalog.
    pub look: watch::Sender<OwnLook>,
    /// Out: the Git host's keys, with the one that was met last.
    pub met: watch::Sender<HostKeys>,
    /// Out: what the watchdog keeps true.
    pub desired: watch::Sender<Option<Desired>>,
    /// Out and, at the start, in: the Git path that was proven.
    pub proven: watch::Sender<String>,
}

struct Steps {
    line: Progress,
    git: Progress,
    bundle: Progress,
}

impl Preparing {
    /// Works towards [`Desired`] and keeps it current, until `stop`.
    pub async fn run(mut self, stop: CancellationToken) -> Result<()> {
        let mut steps = Steps {
            line: Progress::new(&self.context, StepName::Line),
            git: Progress::new(&self.context, StepName::Git),
            bundle: Progress::new(&self.context, StepName::Bundle),
        };
        let mut held = Held::new(Instant::now());
        let mut line_up = None;
        let stored = watcher::watch_object(self.keeper.maps(), BUNDLE_MAP).default_backoff();
        tokio::pin!(stored);
        loop {
            self.heart.beat();
            let joined = self.joined.borrow_and_update().clone();
            if let Some(Joined { assignment, .. }) = joined {
                self.line(&mut steps.line, &mut line_up).await;
                self.look_soon(assignment.catalog.via, &mut held);
                let turn = Box::pin(self.turn(&assignment, &mut steps, &mut held));
                if stop.run_until_cancelled(turn).await.is_none() {
                    return Ok(());
                }
            }
            let latest = Instant::now() + TURN;
            self.heart.rests(TURN);
            let joined = self.joined.borrow().is_some();
            let due = if joined {
                held.due().min(latest)
            } else {
                latest
            };
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = sleep_until(due) => {}
                changed = self.joined.changed() => {
                    changed.context("the task that joins has ended")?;
                    held.heard(Instant::now());
                }
                changed = self.link.changed() => changed.context("the link has ended")?,
                changed = self.engine_git.changed() => {
                    changed.context("the watchdog has ended")?;
                    let git = self.engine_git.borrow_and_update();
                    let other = git.other_key.is_some();
                    // Its words name what our own look has met: they are no reason for another one.
                    if other && !held.heard_other || git.unreachable {
                        held.probe_due = Instant::now();
                    }
                    held.heard_other = other;
                }
                changed = self.keys.changed() => changed.context("the keys are gone")?,
                changed = self.told.changed() => {
                    changed.context("the watchdog has ended")?;
                    held.bundle_due = Instant::now();
                }
                changed = self.rest.changed() => {
                    changed.context("the watchdog has ended")?;
                    self.rest.borrow_and_update();
                    held.bundle_due = Instant::now();
                }
                // Deleted or changed, it has to be back before the next start without hub. What the watch does not hear is seen
                // after [`STORED`].
                Some(Ok(_)) = stored.next() => held.stored_due = Instant::now(),
            }
        }
    }

    async fn line(&mut self, step: &mut Progress, line_up: &mut Option<bool>) {
        step.running().await;
        let state = self.link.borrow_and_update().clone();
        let (up, cause) = match state {
            LinkState::Up { .. } => (true, String::new()),
            LinkState::Down { cause, .. } => (false, cause),
        };
        if up {
            step.done().await;
        } else {
            step.waiting(&cause).await;
        }
        if line_up.replace(up) != Some(up) {
            let (status, reason) = if up {
                (Status::True, "Connected")
            } else {
                (Status::False, "Disconnected")
            };
            self.context
                .condition(ConditionType::LineUp, status, reason, &cause)
                .await;
        }
    }

    fn look_soon(&self, via: Via, held: &mut Held) {
        if let Some(epoch) = self.epoch() {
            held.line_came(epoch, via, clock::unit(), Instant::now());
        }
    }

    /// Tells of the Git host's key: the one place that does.
    async fn host_key(&self, catalog: &CatalogRef, held: &mut Held) {
        let engine = self.engine_git.borrow().clone();
        if let Some((status, reason, text)) = held.host_key.condition(&engine) {
            let kind = ConditionType::HostKeyMismatch;
            self.context.condition(kind, status, reason, &text).await;
        }
        let keys = held.host_key.keys(catalog);
        self.met.send_if_modified(|before| {
            let changed = *before != keys;
            *before = keys;
            changed
        });
        let report = held.host_key.report(&engine);
        if held.told.as_ref() != Some(&report) {
            self.context.tell(News::HostKeys(report.clone())).await;
            held.told = Some(report);
        }
    }

    async fn turn(&mut self, assignment: &Assignment, steps: &mut Steps, held: &mut Held) {
        let identity = self.keys.borrow_and_update().clone();
        let path = fingerprint(&assignment.catalog, &identity);
        let proven = *self.proven.borrow() == path;
        if !proven && held.must_look(&path, Instant::now()) {
            self.probe(assignment, (&path, &identity), &mut steps.git, held)
                .await;
        }
        self.bundle(assignment, &mut steps.bundle, held).await;
        if *self.proven.borrow() == path {
            steps.git.running().await;
            steps.git.done().await;
            let in_force = self.keeper.held().cloned();
            if let Some(install) = &in_force {
                self.engine(install.bundle.engine, held).await;
            }
            let engine = held.engine.clone().map(|(_, engine)| engine);
            if let (Some(install), Some(engine)) = (in_force, engine) {
                // While a new bundle is on its way, the old one is kept in force.
                self.publish(assignment, install, engine, &identity);
            }
        }
        if proven && held.must_look(&path, Instant::now()) {
            self.probe(assignment, (&path, &identity), &mut steps.git, held)
                .await;
        }
        self.host_key(&assignment.catalog, held).await;
    }

    async fn engine(&self, kind: EngineKind, held: &mut Held) {
        if held.engine.as_ref().is_none_or(|(of, _)| *of != kind) {
            held.engine = None;
            match engine_keys::engine(&self.context, kind).await {
                Ok(engine) => held.engine = Some((kind, engine)),
                Err(error) => warn!(error = format!("{error:#}"), "no secrets for the engine"),
            }
        }
    }

    fn publish(
        &self,
        assignment: &Assignment,
        install: InForce,
        engine: Engine,
        identity: &Identity,
    ) {
        let Ok(deploy_key) = identity.deploy_key(&self.context.cluster) else {
            warn!("the deploy key has no OpenSSH form");
            return;
        };
        let mut assignment = assignment.clone();
        let rests = self.keeper.rests(&assignment.engine);
        let Some(path) = followed(&install.form, &assignment) else {
            // Led to what the other engine follows, this one would prune. The step `bundle` says what to do.
            return;
        };
        assignment.catalog.path = path;
        let prunes = change::prunes(install.change.as_ref());
        self.desired.send_if_modified(|desired| {
            let same = desired.as_ref().is_some_and(|d| {
                d.assignment == assignment
                    && (d.prunes, d.rests) == (prunes, rests)
                    && d.install.form == install.form
                    && d.install.change == install.change
                    && d.deploy_key.public == deploy_key.public
                    && d.deploy_key.unsettled == deploy_key.unsettled
            });
            if !same {
                *desired = Some(Desired {
                    assignment,
                    install,
                    deploy_key,
                    engine,
                    domain: self.domain.clone(),
                    prunes,
                    rests,
                });
            }
            !same
        });
    }

    /// What is in force, brought nearer to what the hub wants.
    async fn bundle(&mut self, assignment: &Assignment, step: &mut Progress, held: &mut Held) {
        let told = self.told.borrow().clone();
        let engine = &assignment.engine;
        held.current = self.keeper.is_settled(engine, told.as_ref());
        if held.current {
            if held.stored_due <= Instant::now() {
                let stored = self.keeper.keep().await;
                held.looked_at_stored(stored, clock::unit(), Instant::now());
            }
            return;
        }
        if held.bundle_due > Instant::now() {
            return;
        }
        step.running().await;
        let wish = Wish {
            assignment,
            told: told.as_ref(),
            rest: *self.rest.borrow(),
        };
        match self.keeper.turn(&wish).await {
            Ok(Turn::Stills(left)) => {
                self.replaces(held, Some(left)).await;
                held.bundle_attempt = 0;
                held.bundle_due = Instant::now() + STILLS;
            }
            Ok(Turn::Done) => {
                self.replaces(held, None).await;
                held.current = self.keeper.is_settled(engine, told.as_ref());
                held.bundle_attempt = 0;
                step.done().await;
            }
            Err(error) => {
                let text = format!("{error:#}");
                warn!(text, "bundle not obtained");
                step.waiting(&text).await;
                let other = |kept: &&InForce| kept.bundle.engine != engine.kind;
                if let Some(kept) = self.keeper.held().filter(other) {
                    let said = stays(engine.change, &kept.form, &text);
                    self.replaces(held, Some(said)).await;
                }
                let wait = RETRY.full_jitter(held.bundle_attempt, clock::unit());
                held.bundle_attempt = held.bundle_attempt.saturating_add(1);
                held.bundle_due = Instant::now() + wait;
            }
        }
    }

    /// Tells how far one engine has come in taking the other's place, while the watchdog cannot.
    async fn replaces(&self, held: &mut Held, left: Option<String>) {
        if let Some(left) = left
            .as_ref()
            .filter(|left| held.replacing.as_ref() != Some(left))
        {
            info!(left, "one engine takes the other's place");
            self.context
                .condition(
                    ConditionType::EngineCurrent,
                    Status::False,
                    "Changing",
                    left,
                )
                .await;
        }
        held.replacing = left;
    }
}

/// What of the catalog the engine in force follows, whatever the hub names. None = it was not kept, and the hub names the other engine's.
fn followed(in_force: &change::Form, named: &Assignment) -> Option<String> {
    if !in_force.path.is_empty() {
        return Some(in_force.path.clone());
    }
    let alike = in_force.kind == Some(named.engine.kind);
    alike.then(|| named.catalog.path.clone())
}

/// Why another engine has not taken this one's place yet. Its bundle is named: the hub keeps what is in force.
fn stays(number: u64, in_force: &change::Form, why: &str) -> String {
    let words = in_force.words();
    format!("change {number}: {words} is in force still: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::plan::tests::desired_of;
    use crate::wire::id::Digest;

    #[test]
    fn the_engine_in_force_is_led_nowhere_by_what_the_hub_names() {
        let desired = desired_of(EngineKind::Flux);
        let (form, mut named) = (desired.install.form, desired.assignment);
        let own = Some("clusters/eu1");
        for (kept, engine, path, expected) in [
            ("clusters/eu1", EngineKind::Flux, "base", own),
            ("clusters/eu1", EngineKind::Argocd, "x", own),
            // An agent of before kept none.
            ("", EngineKind::Flux, "clusters/eu1", own),
            ("", EngineKind::Argocd, "clusters/eu1.argocd", None),
        ] {
            let form = form.clone().following(kept);
            named.engine.kind = engine;
            path.clone_into(&mut named.catalog.path);
            let follows = followed(&form, &named);
            assert_eq!(follows.as_deref(), expected, "{kept} {path}");
        }
    }

    #[test]
    fn an_engine_whose_place_is_not_taken_yet_is_told_with_its_bundle() {
        let form = change::Form {
            kind: Some(EngineKind::Flux),
            version: "2.9.5".to_owned(),
            bundle: Digest::from_bytes([0xab; 32]),
            registry: None,
            pull_secret: None,
            path: "clusters/eu1".to_owned(),
        };
        assert_eq!(
            stays(3, &form, "argocd waits"),
            "change 3: flux 2.9.5 (sha256:abababababab…) is in force still: argocd waits"
        );
    }
}

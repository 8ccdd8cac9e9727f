//! Facts, steps, conditions and heals go up; resumed after the last acknowledgement.
//!
//! Three tasks share the [`Outbox`]: one takes news in, one sends, one listens to the hub's orders. Heals are
//! written to ConfigMap `linesman-heals` before they are sent, so that a restart loses none.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::Api;
use kube::runtime::events::EventType;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::caller::{self, Call, Caller};
use super::calls::{CALL, LIMIT};
use super::forward::Subjects;
use super::link::LinkState;
use super::{Hint, News, enroll};
use crate::backoff::Schedule;
use crate::heal;
use crate::lifetime::Tasks;
use crate::lifetime::hearts::{Heart, Hearts, STILL};
use crate::manifests::HEALS_MAP;
use crate::wire::api::{Order, ReportAck};
use crate::wire::report::{Facts, HealRecord};

mod kept;
pub mod outbox;

use outbox::Outbox;

/// More than can end at a time.
const STORED: usize = 256;
/// Of a question that the hub asks.
const MAX_ID: usize = 64;
/// Reason of the Event about a record of the agent's own that cannot be read.
pub(in crate::agent) const UNREADABLE: &str = "RecordUnreadable";
/// News within this time of each other share a report.
const COALESCE: Duration = Duration::from_millis(100);
/// A sign of life, sent while there is no line whose pings would give it.
const LIFE_SIGN: Duration = Duration::from_secs(10);
/// The hub beats every 15 s on the stream of orders; one that is silent for this long is opened again.
const SILENCE: Duration = Duration::from_secs(40);
/// Heals that the hub has left out of its answer are offered again so often; a new line does it, too.
const OFFERED: Duration = Duration::from_hours(1);
/// The pause between two looks at whether something is due.
const LOOK: Duration = Duration::from_secs(5);
const RETRY: Schedule = Schedule {
    floor: Duration::from_millis(500),
    first: Duration::from_secs(1),
    cap: Duration::from_secs(30),
};

/// What the reporter needs.
pub struct ReportConfig {
    pub context: enroll::Context,
    pub caller: Caller,
    pub facts: watch::Receiver<Facts>,
    pub heart: Heart,
    /// For the pulses of its tasks.
    pub hearts: Hearts,
}

/// Where the hub's orders go.
#[derive(Clone)]
pub struct Outlets {
    pub hints: mpsc::Sender<Hint>,
    pub subjects: watch::Sender<Subjects>,
    /// The revision of the assignment that the hub spoke of last; enrolment fetches what it lacks.
    pub assignment: watch::Sender<u64>,
    /// Ids of questions how the cluster is.
    pub diagnose: mpsc::Sender<String>,
    /// Ids of heals that ended and outlive the process from now on, the last [`STORED`] ones.
    pub stored: watch::Sender<Vec<String>>,
    /// The time of the last acknowledgement, for readiness.
    pub acked: watch::Sender<Option<Instant>>,
    /// Cancelled when the hub says that the cluster was removed.
    pub removed: CancellationToken,
}

struct Shared {
    config: ReportConfig,
    outbox: Mutex<Outbox>,
    /// Something new is in the outbox.
    news: Notify,
    /// The hub has some of the heals that are written down. One task writes: of two writes the older one could be the last.
    settled: Notify,
    link: watch::Receiver<LinkState>,
    outlets: Outlets,
}

/// Reports until stopped.
pub async fn run(
    config: ReportConfig,
    news: mpsc::Receiver<News>,
    link: watch::Receiver<LinkState>,
    outlets: Outlets,
    stop: CancellationToken,
) -> Result<()> {
    let shared = Arc::new(Shared {
        outbox: Mutex::new(Outbox::without_former(config.context.build.clone())),
        config,
        news: Notify::new(),
        settled: Notify::new(),
        link,
        outlets,
    });
    let mut tasks = Tasks::watched(stop, &shared.config.hearts);
    let (one, two, three) = (shared.clone(), shared.clone(), shared);
    tasks.spawn("take news", |stop| take(one, news, stop));
    tasks.spawn("send reports", |stop| send(two, stop));
    tasks.spawn("follow orders", |stop| follow(three, stop));
    tasks.run(Duration::from_secs(3)).await
}

impl Shared {
    fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn take(
    shared: Arc<Shared>,
    mut news: mpsc::Receiver<News>,
    stop: CancellationToken,
) -> Result<()> {
    let mut facts = shared.config.facts.clone();
    facts.mark_changed();
    let maps = maps(&shared.config);
    let heart = shared.config.hearts.heart("take news", STILL);
    let mut reading = Box::pin(kept::load(&maps));
    let (mut known, mut unkept) = (false, false);
    loop {
        let mut keep = false;
        heart.rests(LOOK);
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            former = &mut reading, if !known => {
                let _event = heart.wait(LIMIT);
                recall(&shared, former).await;
                (known, keep) = (true, true);
            }
            () = tokio::time::sleep(LOOK) => {
                if !unkept {
                    continue;
                }
                keep = true;
            }
            () = shared.settled.notified() => keep = true,
            next = news.recv() => match next {
                Some(item) => keep = shared.outbox().add(item),
                None => return Ok(()),
            },
            changed = facts.changed() => {
                changed.context("the task that collects facts has ended")?;
                let seen = facts.borrow_and_update().clone();
                shared.outbox().set_facts(seen);
            }
        }
        if keep {
            let _write = heart.wait(CALL);
            let kept = store(&shared).await;
            if kept {
                let over = over(shared.outbox().heals());
                tell_stored(&shared, over);
            }
            // Before what is there was read, nothing is written.
            unkept = known && !kept;
        }
        shared.news.notify_one();
    }
}

async fn send(shared: Arc<Shared>, stop: CancellationToken) -> Result<()> {
    let (mut attempt, mut sent_at, mut epoch) = (0, None::<Instant>, None);
    let mut offered = Instant::now();
    loop {
        shared.config.heart.beat();
        let line = shared.config.caller.line();
        let now_epoch = line.as_ref().map(|l| l.facts().epoch);
        if now_epoch.is_some() && now_epoch != epoch {
            shared.outbox().resend();
        }
        epoch = now_epoch.or(epoch);
        if offered.elapsed() >= OFFERED {
            offered = Instant::now();
            shared.outbox().offer_again();
        }
        let clean = shared.outbox().is_clean();
        let quiet = sent_at.is_some_and(|at| at.elapsed() < LIFE_SIGN);
        if clean && (line.is_some() || quiet) {
            let mut state = shared.link.clone();
            state.mark_unchanged();
            shared.config.heart.rests(LOOK);
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = shared.news.notified() => {}
                _ = state.changed() => {}
                () = tokio::time::sleep(LOOK) => {}
            }
            if pause(&stop, COALESCE).await {
                return Ok(());
            }
            continue;
        }
        let Some(result) = stop.run_until_cancelled(report(&shared)).await else {
            return Ok(());
        };
        match result {
            Ok(()) => (attempt, sent_at) = (0, Some(Instant::now())),
            Err(error) => {
                let wait = RETRY.full_jitter(attempt, crate::clock::unit());
                info!(
                    error = format!("{error:#}"),
                    wait_ms = wait.as_millis(),
                    "report not delivered"
                );
                attempt += 1;
                shared.config.heart.rests(wait);
                if retry_wait(&shared, &stop, wait).await {
                    return Ok(());
                }
            }
        }
    }
}

/// Waits before a retry, no longer than until the line is back. True = stop.
async fn retry_wait(shared: &Shared, stop: &CancellationToken, wait: Duration) -> bool {
    let mut link = shared.link.clone();
    link.mark_unchanged();
    let up = async {
        while link.changed().await.is_ok() {
            if matches!(*link.borrow(), LinkState::Up { .. }) {
                return;
            }
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = stop.cancelled() => true,
        () = tokio::time::sleep(wait) => false,
        () = up => false,
    }
}

/// True = stop.
async fn pause(stop: &CancellationToken, wait: Duration) -> bool {
    stop.run_until_cancelled(tokio::time::sleep(wait))
        .await
        .is_none()
}

async fn report(shared: &Shared) -> Result<()> {
    let parcel = shared.outbox().next();
    let path = format!("/v1/clusters/{}/reports", shared.config.context.cluster);
    let call = Call::post(path, &parcel.report)?;
    let answer = shared.config.caller.call(&call).await?;
    if answer.is_removed() {
        shared.outlets.removed.cancel();
    }
    let ack: ReportAck = answer.json()?;
    if shared.outbox().settle(&parcel, &ack) {
        shared.settled.notify_one();
    }
    let mut over = over(&parcel.report.heals);
    over.retain(|id| ack.heals.contains(id));
    tell_stored(shared, over);
    announce(shared, ack.assignment_revision);
    shared.outlets.acked.send_replace(Some(Instant::now()));
    Ok(())
}

/// Any other number counts, a lower one as well: a hub that was restored, or that made the cluster's record anew, counts from
/// where that record stands. What comes late costs a call and undoes nothing, for that call is answered with the present state.
fn announce(shared: &Shared, revision: u64) {
    let spoken = &shared.outlets.assignment;
    spoken.send_if_modified(|known| std::mem::replace(known, revision) != revision);
}

/// Listens to the hub's orders as long as there is a line.
async fn follow(shared: Arc<Shared>, stop: CancellationToken) -> Result<()> {
    let call = Call::get(format!(
        "/v1/clusters/{}/orders",
        shared.config.context.cluster
    ));
    let mut state = shared.link.clone();
    let mut attempt = 0;
    loop {
        if let Some(line) = shared.config.caller.line() {
            let mut heard = false;
            let lines = caller::follow(&line, &call, SILENCE, |text| {
                heard = true;
                obey(&shared, text);
            });
            let Some(ended) = stop.run_until_cancelled(lines).await else {
                return Ok(());
            };
            if let Err(error) = ended {
                debug!(error = format!("{error:#}"), "stream of orders ended");
            }
            attempt = if heard { 0 } else { attempt + 1 };
            if pause(&stop, RETRY.full_jitter(attempt, crate::clock::unit())).await {
                return Ok(());
            }
            continue;
        }
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            changed = state.changed() => changed.context("the link has ended")?,
        }
    }
}

fn obey(shared: &Shared, text: &[u8]) {
    let order = match serde_json::from_slice::<Order>(text) {
        Ok(order) => order,
        Err(error) => return warn!(%error, "the hub sent an order that cannot be read"),
    };
    match order {
        Order::Beat | Order::Unknown => {}
        Order::CatalogHead { revision } => {
            info!(revision, "the catalog moved");
            // A full queue holds a hint already, and any hint means: look now.
            if shared
                .outlets
                .hints
                .try_send(Hint::CatalogHead(revision))
                .is_err()
            {
                debug!("a hint is waiting already");
            }
        }
        Order::Diagnose { id } => {
            if id.len() > MAX_ID || shared.outlets.diagnose.try_send(id).is_err() {
                debug!("a diagnosis is not taken on: others are waiting");
            }
        }
        Order::Assignment { revision } => announce(shared, revision),
        Order::Subjects { users, groups } => {
            shared
                .outlets
                .subjects
                .send_replace(Subjects { users, groups });
        }
        Order::Removed => shared.outlets.removed.cancel(),
    }
}

fn over(heals: &[HealRecord]) -> Vec<String> {
    let over = heals.iter().filter(|h| heal::is_over(h));
    over.map(|h| h.id.clone()).collect()
}

/// What was written down, or is at the hub: the watchdog need not keep it any more.
fn tell_stored(shared: &Shared, over: Vec<String>) {
    shared.outlets.stored.send_modify(|ids| {
        ids.retain(|id| !over.contains(id));
        ids.extend(over);
        let surplus = ids.len().saturating_sub(STORED);
        ids.drain(..surplus);
    });
}

/// Writes the heals down that the hub does not have. False = they would not outlive a restart.
async fn store(shared: &Shared) -> bool {
    let kept = kept::Kept::of(&shared.outbox());
    match kept {
        Some(kept) => kept::store(&maps(&shared.config), kept).await,
        None => false,
    }
}

fn maps(config: &ReportConfig) -> Api<ConfigMap> {
    Api::namespaced(config.context.kube.clone(), &config.context.namespace)
}

async fn recall(shared: &Shared, former: kept::Former) {
    if let Some(wrong) = former.wrong {
        let note = format!("ConfigMap {HEALS_MAP}: {wrong}");
        warn!("{note}");
        let context = &shared.config.context;
        context.event(EventType::Warning, UNREADABLE, &note).await;
    }
    shared.outbox().recall(former.heals, former.strange);
}

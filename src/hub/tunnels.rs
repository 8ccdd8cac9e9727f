//! This replica's live lines, newest wins.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use time::OffsetDateTime;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc, watch};

use crate::clock;
use crate::hub::twin::takeovers::{Holder, Takeovers};
use crate::tunnel::budget::Budget;
use crate::tunnel::{Ended, Line, LineFacts, LineLoad, driver};
use crate::wire::frame::Code;
use crate::wire::id::ClusterName;

mod elsewhere;
mod fenced;
mod former;
mod keyed;
mod look;
mod park;
mod standing;
mod totals;

pub(super) use elsewhere::row;
pub use fenced::Fenced;
use look::Look;
pub use park::NoLine;
pub use standing::Standing;
use totals::Past;

const MAX_PARKED_ALL: usize = 2000;
/// Lines of one cluster at once, those that drain among them. An agent has two while it moves to its next one.
const MAX_LINES: usize = 16;
const CROWDED: &str = "the cluster has more lines than it may";
/// Lines that have not proven who they are, and handshakes being checked.
const MAX_UNPROVEN: usize = 1024;
const MAX_HANDSHAKES: usize = 256;
/// The same process moves to its next line at its own pace.
const MOVE: Duration = Duration::from_mins(10);
/// A line that another process took over ends soon: mostly nobody is behind it any more.
const TAKEN_OVER: Duration = Duration::from_secs(5);
/// Lines that were taken over and wait to be judged.
const FENCED: usize = 256;
/// Agents come back spread over this time when the hub stops.
const SPREAD: Duration = Duration::from_secs(2);

/// The registry of lines; clones mean the same registry.
#[derive(Debug, Clone)]
pub struct Tunnels {
    clusters: Arc<Mutex<HashMap<ClusterName, Entry>>>,
    changes: watch::Sender<u64>,
    past: Arc<Mutex<Past>>,
    parked: Arc<Semaphore>,
    fenced: mpsc::Sender<Fenced>,
    judged: Arc<Mutex<Option<mpsc::Receiver<Fenced>>>>,
    pub(super) unproven: Arc<Semaphore>,
    handshakes: Arc<Semaphore>,
    /// For what all lines hold unread.
    pub(super) memory: Budget,
}

#[derive(Debug, Default)]
struct Entry {
    /// Of a cluster that had a line here.
    cluster_id: String,
    /// In the order of their epochs; all but the last drain.
    lines: Vec<Line>,
    /// By which key each of them was proven, by epoch.
    keys: BTreeMap<u64, String>,
    /// When a line was heard last that has ended.
    down_since: Option<OffsetDateTime>,
    /// When it was known that the cluster's last line had ended and left it without one: of one that fell silent, later.
    known_down: Option<OffsetDateTime>,
    /// Why the line that ended last did, be there another or not.
    last_cause: Option<String>,
    /// The highest epoch of those that ended here; 0 = none did.
    ended: u64,
    parked: usize,
    /// Of those requests, where the records have to say where the line is.
    look: Weak<Look>,
    /// A request has waited for the next line in vain. One per outage is enough: kubectl makes dozens.
    in_vain: bool,
    /// The newest line that was seen at another replica, and when last.
    elsewhere: Option<(u64, OffsetDateTime)>,
    /// When the cluster was heard last, by any replica and way.
    heard: Option<OffsetDateTime>,
    /// Requests that were refused, by rule.
    denied: BTreeMap<&'static str, u64>,
    /// Of the cluster's line, those that were seen here.
    takeovers: Takeovers,
}

/// What is known of a cluster's line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LineView {
    /// Present while the line is up.
    pub up: Option<LineFacts>,
    /// When the last line ended and none was left; of one that fell silent, its last byte.
    pub down_since: Option<OffsetDateTime>,
    /// When that was known: from there on it is waited for the next one.
    pub known_down: Option<OffsetDateTime>,
    /// Why a line ended last, which need not have been the only one.
    pub last_cause: Option<String>,
    /// The highest epoch of the lines that ended here; 0 = none did.
    pub ended: u64,
    /// The newest line that was seen at another replica, and when last.
    pub elsewhere: Option<(u64, OffsetDateTime)>,
}

impl Default for Tunnels {
    fn default() -> Self {
        let (fenced, judged) = mpsc::channel(FENCED);
        Self {
            fenced,
            judged: Arc::new(Mutex::new(Some(judged))),
            clusters: Arc::default(),
            changes: watch::Sender::new(0),
            past: Arc::default(),
            parked: Arc::new(Semaphore::new(MAX_PARKED_ALL)),
            unproven: Arc::new(Semaphore::new(MAX_UNPROVEN)),
            handshakes: Arc::new(Semaphore::new(MAX_HANDSHAKES)),
            memory: driver::memory(),
        }
    }
}

impl Tunnels {
    /// A turn at checking a handshake, until it is dropped; none while [`MAX_HANDSHAKES`] are being checked.
    pub fn turn(&self) -> Option<SemaphorePermit<'_>> {
        self.handshakes.try_acquire().ok()
    }

    /// The cluster's newest line that takes new streams.
    pub fn get(&self, cluster: &ClusterName) -> Option<Line> {
        let clusters = self.lock();
        // An older epoch is never used again, even where the newest line drains.
        clusters
            .get(cluster)?
            .lines
            .last()
            .filter(|line| line.takes_streams())
            .cloned()
    }

    /// Those who wait for a line here look again.
    pub fn moved(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Of whoever has the name here.
    pub fn view(&self, cluster: &ClusterName) -> LineView {
        let clusters = self.lock();
        clusters.get(cluster).map(Entry::view).unwrap_or_default()
    }

    /// Of the cluster with this id: one that was removed may have had the name before it.
    pub fn view_of(&self, cluster: &ClusterName, cluster_id: &str) -> LineView {
        let clusters = self.lock();
        let entry = clusters.get(cluster);
        // One that has had no line here yet is the present cluster's.
        let its =
            entry.filter(|entry| entry.cluster_id.is_empty() || entry.cluster_id == cluster_id);
        its.map(Entry::view).unwrap_or_default()
    }

    /// The newest line and what it carries.
    pub fn load(&self, cluster: &ClusterName) -> Option<(LineFacts, LineLoad)> {
        let line = self.lock().get(cluster)?.lines.last()?.clone();
        Some((line.facts(), line.load()))
    }

    /// Changes each time a line comes or goes.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// The clusters that have a line here.
    pub fn clusters(&self) -> Vec<ClusterName> {
        let clusters = self.lock();
        let up = clusters.iter().filter(|(_, entry)| !entry.lines.is_empty());
        up.map(|(name, _)| name.clone()).collect()
    }

    /// Ends the cluster's lines now (its key was revoked).
    pub fn close(&self, cluster: &ClusterName, code: Code, text: &str) {
        let lines = self
            .lock()
            .get(cluster)
            .map(|entry| entry.lines.clone())
            .unwrap_or_default();
        for line in lines {
            line.close(code, text);
        }
    }

    /// Asks all agents to come back to another replica or a little later: the hub stops.
    pub fn drain(&self, drain: Duration) {
        let lines: Vec<Line> = self
            .lock()
            .values()
            .flat_map(|entry| entry.lines.clone())
            .collect();
        for line in lines {
            line.goaway(Code::Draining, SPREAD, drain, "the hub stops");
        }
    }

    /// Takes in a line that proved itself. Older ones drain, or end where the agent has let go of them already. Of handshakes
    /// that overlap the one with the higher epoch counts, whichever was done first.
    pub(super) fn add(
        &self,
        cluster: &ClusterName,
        cluster_id: &str,
        line: Line,
        resumes: Option<u64>,
    ) -> Option<Holder> {
        let (now, facts) = (clock::now(), line.facts());
        let mut clusters = self.lock();
        let entry = clusters.entry(cluster.clone()).or_default();
        let of_another = entry.claim(cluster_id);
        let (others, wait) = (entry.lines.clone(), entry.takeovers.wait(now));
        // All of them take places of the port, of which other clusters need theirs.
        let surplus = (others.len() + 1).saturating_sub(MAX_LINES);
        let surplus: Vec<Line> = others.iter().take(surplus).cloned().collect();
        entry.in_vain = false;
        entry.lines.push(line.clone());
        entry.lines.sort_by_key(|line| line.facts().epoch);
        entry.moved();
        drop(clusters);
        former::close(of_another);
        for oldest in surplus {
            oldest.close(Code::Superseded, CROWDED);
        }
        let give_way = |old: Line, to: &LineFacts, resumes: Option<u64>| {
            let was = old.facts();
            let text = format!("line {} took over", to.epoch);
            if was.instance == to.instance {
                if resumes == Some(was.epoch) {
                    old.goaway(Code::Superseded, Duration::ZERO, MOVE, &text);
                } else {
                    old.close(Code::Superseded, &text);
                }
                return None;
            }
            old.ask();
            old.goaway(Code::Superseded, wait, TAKEN_OVER, &text);
            self.fence(Fenced {
                cluster: cluster.clone(),
                cluster_id: cluster_id.to_owned(),
                line: old,
                by: Some(Holder {
                    instance: to.instance.clone(),
                    remote: to.remote.clone(),
                }),
                at: now,
            });
            Some(Holder {
                instance: was.instance,
                remote: was.remote,
            })
        };
        let (mut takeover, mut newer) = (None, None);
        for other in others {
            let its = other.facts();
            if its.epoch > facts.epoch {
                newer = Some(its);
            } else if other.takes_streams() {
                takeover = give_way(other, &facts, resumes).or(takeover);
            }
            // Of the rest its agent lets go, or we do: what runs there has the time that was given.
        }
        if let Some(newer) = newer {
            give_way(line, &newer, None);
        }
        self.changes.send_modify(|changes| *changes += 1);
        takeover
    }

    /// A line ended; gives when that was known.
    pub(super) fn remove(
        &self,
        (cluster, cluster_id): (&ClusterName, &str),
        line: &Line,
        ended: &Ended,
    ) -> OffsetDateTime {
        let (now, epoch) = (clock::now(), line.facts().epoch);
        // Another cluster that has the name by now has lines of its own, with the same epochs.
        if let Some(entry) = self.lock().get_mut(cluster)
            && entry.cluster_id == cluster_id
        {
            entry.lines.retain(|line| line.facts().epoch != epoch);
            entry.keys.remove(&epoch);
            entry.last_cause = Some(format!("{}: {}", ended.code, ended.text));
            entry.ended = entry.ended.max(epoch);
            // Another one may have been heard after the last byte of this one.
            let before = entry.down_since.filter(|at| *at <= now);
            entry.down_since = before.max(Some(now - ended.silence));
            if entry.lines.is_empty() {
                entry.in_vain = false;
                entry.known_down = Some(now);
            }
            entry.moved();
        }
        self.past().add(line, ended);
        self.changes.send_modify(|changes| *changes += 1);
        now
    }

    fn past(&self) -> MutexGuard<'_, Past> {
        self.past.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ClusterName, Entry>> {
        self.clusters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn view(&self) -> LineView {
        LineView {
            up: self.lines.last().map(Line::facts),
            down_since: self.down_since.filter(|_| self.known_down.is_some()),
            known_down: self.known_down,
            last_cause: self.last_cause.clone(),
            ended: self.ended,
            elsewhere: self.elsewhere,
        }
    }
}

#[cfg(test)]
mod tests;

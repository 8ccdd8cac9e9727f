//! Requests that wait for a cluster's line: which of them may, and until when.

use std::time::Duration;

use tokio::sync::SemaphorePermit;

use super::{Entry, Tunnels};
use crate::clock;
use crate::tunnel::Line;
use crate::wire::id::ClusterName;

/// A cluster whose line ended so long ago is offline: nobody waits for it.
pub(super) const PARK_AFTER: time::Duration = time::Duration::seconds(60);
/// Requests that wait for one cluster's line.
const MAX_PARKED: usize = 100;

/// Why a request gets no line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoLine {
    /// There is none, and waiting for one is no use.
    Offline,
    /// None came in the time that the request waited.
    InVain,
    /// One is expected, and as many wait for it, or for all of them, as may.
    Full,
}

impl Tunnels {
    /// The cluster's line here, with an epoch above `after`. Where there is none, but its return is likely, waits
    /// up to `limit` for it.
    pub async fn wait(
        &self,
        cluster: &ClusterName,
        after: Option<u64>,
        limit: Duration,
    ) -> Result<Line, NoLine> {
        let newer = || {
            let line = self.get(cluster)?;
            (after < Some(line.facts().epoch)).then_some(line)
        };
        let mut changes = self.changes.subscribe();
        if let Some(line) = newer() {
            return Ok(line);
        }
        let _place = self.park(cluster)?;
        let next = async {
            loop {
                changes.borrow_and_update();
                if let Some(line) = newer() {
                    return Ok(line);
                }
                let expected = self.lock().get(cluster).is_some_and(Entry::expected);
                if !expected || changes.changed().await.is_err() {
                    return Err(NoLine::Offline);
                }
            }
        };
        let waited = tokio::time::timeout(limit, next).await;
        waited.unwrap_or_else(|_| Err(self.in_vain(cluster)))
    }

    /// A place among the requests that wait for the cluster's line, where there is one and waiting is of use.
    pub(in crate::hub) fn park(&self, cluster: &ClusterName) -> Result<Place<'_>, NoLine> {
        let mut clusters = self.lock();
        let entry = clusters.get_mut(cluster).ok_or(NoLine::Offline)?;
        if !entry.expected() {
            return Err(NoLine::Offline);
        }
        if entry.parked >= MAX_PARKED {
            return Err(NoLine::Full);
        }
        let room = self.parked.try_acquire().map_err(|_| NoLine::Full)?;
        entry.parked += 1;
        Ok(Place {
            tunnels: self,
            cluster: cluster.clone(),
            _room: room,
        })
    }

    /// A request has waited as long as it may.
    pub(in crate::hub) fn in_vain(&self, cluster: &ClusterName) -> NoLine {
        if let Some(entry) = self.lock().get_mut(cluster) {
            entry.in_vain = true;
            entry.moved();
        }
        // The others that wait need not go on.
        self.moved();
        NoLine::InVain
    }

    /// Whether waiting for the cluster's line is of use.
    pub(in crate::hub) fn is_expected(&self, cluster: &ClusterName) -> bool {
        self.lock().get(cluster).is_some_and(Entry::expected)
    }

    /// Requests that wait for the cluster's line now.
    pub fn parked(&self, cluster: &ClusterName) -> usize {
        self.lock().get(cluster).map_or(0, |entry| entry.parked)
    }
}

impl Entry {
    /// Whether a line may be there in a moment.
    fn expected(&self) -> bool {
        // One that said goodbye, too: mostly the next agent is on its way.
        let lately = |since: time::OffsetDateTime| clock::now() - since < PARK_AFTER;
        let elsewhere = self.elsewhere.map(|(_, at)| at);
        let known = [self.known_down, elsewhere, self.heard];
        let known = known.into_iter().flatten();
        !self.in_vain && (!self.lines.is_empty() || known.max().is_some_and(lately))
    }
}

/// A request's place among those that wait for a cluster's line.
pub(in crate::hub) struct Place<'a> {
    tunnels: &'a Tunnels,
    cluster: ClusterName,
    _room: SemaphorePermit<'a>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut clusters = self.tunnels.lock();
        if let Some(entry) = clusters.get_mut(&self.cluster) {
            entry.parked = entry.parked.saturating_sub(1);
            if entry.is_left() {
                clusters.remove(&self.cluster);
            }
        }
    }
}

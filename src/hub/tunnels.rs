//! This replica's live lines, newest wins.

use std::time::Duration;

use time::OffsetDateTime;
use tokio::sync::watch;

use crate::tunnel::{Line, LineFacts};
use crate::wire::frame::Code;
use crate::wire::id::ClusterName;

/// The registry of lines; clones mean the same registry.
#[derive(Debug, Clone)]
pub struct Tunnels {
    changes: watch::Sender<u64>,
}

/// What is known of a cluster's line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LineView {
    /// Present while the line is up.
    pub up: Option<LineFacts>,
    /// When the last line ended, and why.
    pub down_since: Option<OffsetDateTime>,
    pub last_cause: Option<String>,
}

impl Default for Tunnels {
    fn default() -> Self {
        Self {
            changes: watch::Sender::new(0),
        }
    }
}

impl Tunnels {
    /// The cluster's newest line that takes new streams.
    pub fn get(&self, cluster: &ClusterName) -> Option<Line> {
        let _ = cluster;
        None
    }

    /// Waits up to `wait` for a line, if there was one less than 60 s ago; otherwise answers at once.
    #[expect(clippy::unused_async, reason = "parks")]
    pub async fn park(&self, cluster: &ClusterName, wait: Duration) -> Option<Line> {
        let _ = wait;
        self.get(cluster)
    }

    pub fn view(&self, cluster: &ClusterName) -> LineView {
        let _ = cluster;
        LineView::default()
    }

    /// Changes each time a line comes or goes.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Ends the cluster's lines now (it was removed, its key revoked).
    pub fn close(&self, cluster: &ClusterName, code: Code, text: &str) {
        let _ = (cluster, code, text);
    }

    /// Asks all agents to move to another replica or to come back: the hub stops.
    pub fn drain(&self, drain: Duration) {
        let _ = drain;
    }
}

//! The loop that observes, plans and acts, and keeps the record of each heal.

use anyhow::Result;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::{Desired, Hint, News};

/// Where the watchdog works and as whom.
#[derive(Clone)]
pub struct Context {
    pub kube: kube::Client,
    /// The agent's own namespace, where snapshots and records are kept.
    pub namespace: String,
    /// The agent's Pod, the source of its Events.
    pub pod: String,
}

/// Keeps the engine of [`Desired`] installed and working until `stop`.
pub async fn run(
    _context: Context,
    _desired: watch::Receiver<Option<Desired>>,
    _hints: mpsc::Receiver<Hint>,
    _news: mpsc::Sender<News>,
    stop: CancellationToken,
) -> Result<()> {
    stop.cancelled().await;
    Ok(())
}

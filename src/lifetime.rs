//! How a process lives and ends: one stop token, one set of tasks, signals, a bounded drain.

use std::future::Future;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

pub mod files;
pub mod hearts;

use hearts::Hearts;

/// The tasks of one process part. The first to end, well or badly, stops all others.
pub struct Tasks {
    stop: CancellationToken,
    hearts: Option<Hearts>,
    set: JoinSet<(&'static str, Result<()>)>,
}

impl Tasks {
    pub fn new(stop: CancellationToken) -> Self {
        Self {
            stop,
            hearts: None,
            set: JoinSet::new(),
        }
    }

    /// The same; each task has a pulse in `hearts`.
    pub fn watched(stop: CancellationToken, hearts: &Hearts) -> Self {
        Self {
            hearts: Some(hearts.clone()),
            ..Self::new(stop)
        }
    }

    pub fn stop(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Starts a task that has to end soon after its token is cancelled.
    pub fn spawn<F>(&mut self, name: &'static str, task: impl FnOnce(CancellationToken) -> F)
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        let future = task(self.stop.clone());
        match &self.hearts {
            None => self.set.spawn(async move { (name, future.await) }),
            Some(hearts) => {
                let future = hearts.clone().pulsed(name, future);
                self.set.spawn(async move { (name, future.await) })
            }
        };
    }

    /// Waits for the first task to end, stops the others and gives them `drain` to finish.
    pub async fn run(mut self, drain: Duration) -> Result<()> {
        let first = self.first().await;
        self.finish(drain, &first).await;
        first
    }

    /// Waits for the first task to end, and stops the others.
    pub async fn first(&mut self) -> Result<()> {
        let first = self.set.join_next().await.map_or(Ok(()), ended);
        self.stop.cancel();
        first
    }

    /// Gives tasks that were stopped `drain` to finish; `first` is how the first of them ended.
    pub async fn finish(mut self, drain: Duration, first: &Result<()>) {
        let rest = async {
            while let Some(next) = self.set.join_next().await {
                if let (Err(e), Err(first)) = (ended(next), first) {
                    error!(error = format!("{e:#}"), %first, "task failed while stopping");
                }
            }
        };
        if tokio::time::timeout(drain, rest).await.is_err() {
            info!(seconds = drain.as_secs(), "drain time is over");
            self.set.shutdown().await;
        }
    }
}

fn ended(task: Result<(&'static str, Result<()>), tokio::task::JoinError>) -> Result<()> {
    let (name, result) = task.context("a task panicked")?;
    result.with_context(|| format!("task {name}"))
}

/// Completes on SIGTERM or SIGINT.
pub async fn signalled() -> Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut term = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let mut int = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
    Ok(())
}

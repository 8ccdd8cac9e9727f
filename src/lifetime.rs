//! How a process lives and ends: one stop token, one set of tasks, signals, a bounded drain.

use std::future::Future;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::task::{AbortHandle, JoinSet};
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
    /// All that were spawned, by their names.
    spawned: Vec<(&'static str, AbortHandle)>,
}

impl Tasks {
    pub fn new(stop: CancellationToken) -> Self {
        Self {
            stop,
            hearts: None,
            set: JoinSet::new(),
            spawned: Vec::new(),
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
        let handle = match &self.hearts {
            None => self.set.spawn(async move { (name, future.await) }),
            Some(hearts) => {
                let future = hearts.clone().pulsed(name, future);
                self.set.spawn(async move { (name, future.await) })
            }
        };
        self.spawned.push((name, handle));
    }

    /// Those that have not ended.
    fn left(&self) -> Vec<&'static str> {
        let left = self.spawned.iter().filter(|(_, task)| !task.is_finished());
        left.map(|(name, _)| *name).collect()
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
            // Not of the process, which may go on: a replica that leads no longer ends what goes with that.
            info!(
                seconds = drain.as_secs(),
                tasks = self.left().join(", "),
                "tasks that were told to stop have not ended in time, and are cut off"
            );
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The log names them: a hub that runs on ends some of its tasks, and not itself.
    #[tokio::test]
    async fn tasks_that_do_not_end_are_named() {
        let mut tasks = Tasks::new(CancellationToken::new());
        tasks.spawn("quick", |_| async { Ok(()) });
        tasks.spawn("stuck", |_| std::future::pending());
        tasks.first().await.unwrap();
        assert_eq!(tasks.left(), ["stuck"]);
    }
}

//! How a push ends whose client is gone: its git is asked to end, so that it takes its lock files along, and killed only
//! when it does not. What it left on the branch is looked at when it is over.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Child;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tracing::warn;

use super::push::Update;
use super::run::Ended;

/// How long a git may take that was asked to end, and one that was killed.
const SETTLE: Duration = Duration::from_secs(1);

/// The pushes that run, those whose client is gone among them.
#[derive(Clone)]
pub(super) struct Pushing {
    running: Running,
    cut: mpsc::Sender<Cut>,
}

/// How many there are.
#[derive(Clone, Default)]
pub(super) struct Running(Arc<AtomicUsize>);

impl Running {
    pub(super) fn any(&self) -> bool {
        self.0.load(Ordering::SeqCst) > 0
    }

    fn one(&self) -> One {
        self.0.fetch_add(1, Ordering::SeqCst);
        One(self.clone())
    }
}

/// Counts until it is dropped.
struct One(Running);

impl Drop for One {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A git whose client is gone.
pub(super) struct Cut {
    git: Child,
    push: InFlight,
    _one: One,
}

/// A push under way. Dropped before its end, it is ended in order.
pub(super) struct Push {
    under_way: Option<Cut>,
    cut: mpsc::Sender<Cut>,
}

impl Pushing {
    /// For so many cut pushes at once; beyond that they are killed.
    pub(super) fn new(most: usize) -> (Self, mpsc::Receiver<Cut>) {
        let (cut, cuts) = mpsc::channel(most);
        let running = Running::default();
        (Self { running, cut }, cuts)
    }

    pub(super) fn running(&self) -> Running {
        self.running.clone()
    }

    pub(super) fn begin(&self, git: Child, push: InFlight) -> Push {
        Push {
            under_way: Some(Cut {
                git,
                push,
                _one: self.running.one(),
            }),
            cut: self.cut.clone(),
        }
    }
}

impl Push {
    pub(super) fn git(&mut self) -> Option<&mut Child> {
        self.under_way.as_mut().map(|cut| &mut cut.git)
    }

    /// Its git has ended by itself. What its client asked for, as far as it was read.
    pub(super) fn finish(mut self) -> Vec<Update> {
        self.under_way
            .take()
            .map(|cut| cut.push.finish())
            .unwrap_or_default()
    }
}

impl Drop for Push {
    fn drop(&mut self) {
        if let Some(cut) = self.under_way.take()
            && self.cut.try_send(cut).is_err()
        {
            warn!("too many pushes were cut at once to end each in order; one was killed");
        }
    }
}

/// Ends those that are cut, at most so many at once, until no push can come any more.
pub(super) async fn end(mut cuts: mpsc::Receiver<Cut>, most: usize) {
    let mut ending = FuturesUnordered::new();
    let mut open = true;
    while open || !ending.is_empty() {
        tokio::select! {
            Some(()) = ending.next() => {}
            cut = cuts.recv(), if open && ending.len() < most => match cut {
                Some(cut) => ending.push(in_order(cut)),
                None => open = false,
            },
        }
    }
}

/// Its pipes are closed already. It removes its lock files when it is told to end, and cannot when it is killed.
async fn in_order(mut cut: Cut) {
    for signal in [Signal::TERM, Signal::KILL] {
        tell(&cut.git, signal);
        if timeout(SETTLE, cut.git.wait()).await.is_ok() {
            cut.push.waited();
            return;
        }
        warn!(
            ?signal,
            "the git of a push that was cut does not end in time"
        );
    }
}

fn tell(git: &Child, signal: Signal) {
    // Its group has its id, which is nobody else's before it is waited for.
    let id = git.id().and_then(|id| i32::try_from(id).ok());
    if let Some(group) = id.and_then(Pid::from_raw) {
        kill_process_group(group, signal).ok();
    }
}

/// A push whose outcome has to be looked at whatever happens to its client.
pub(super) struct InFlight {
    who: String,
    updates: Arc<Mutex<Vec<Update>>>,
    ended: mpsc::Sender<Ended>,
    cut: bool,
}

impl InFlight {
    pub(super) fn new(who: String, ended: mpsc::Sender<Ended>) -> Self {
        Self {
            who,
            updates: Arc::default(),
            ended,
            cut: true,
        }
    }

    /// Where its commands are noted as they are read.
    pub(super) fn noted(&self) -> Arc<Mutex<Vec<Update>>> {
        Arc::clone(&self.updates)
    }

    fn waited(&mut self) {
        self.cut = false;
    }

    fn finish(mut self) -> Vec<Update> {
        self.waited();
        self.updates
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let updates =
            std::mem::take(&mut *self.updates.lock().unwrap_or_else(PoisonError::into_inner));
        if updates.is_empty() {
            return;
        }
        let ended = Ended {
            who: std::mem::take(&mut self.who),
            updates,
            cut: self.cut,
        };
        if self.ended.try_send(ended).is_err() {
            warn!("a push could not be reported; the clusters see it at their next interval");
        }
    }
}

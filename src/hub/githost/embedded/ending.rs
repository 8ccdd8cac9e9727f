//! How a session ends whose client is gone. The git of a push is asked to end, so that it takes its lock files along, and
//! killed only when it does not. What it left on the branch is looked at when it is over. The git of a fetch is killed. All
//! that either has started ends with it: to make a pack for nobody is work, too.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, waitpgid};
use tokio::process::Child;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tracing::warn;

use super::Pusher;
use super::push::Update;
use super::run::Ended;

/// How long a git may take that was asked to end, and one that was killed.
const SETTLE: Duration = Duration::from_secs(1);
/// How often, and how many times, it is looked whether what it had started is gone.
const LOOK: Duration = Duration::from_millis(10);
const LOOKS: usize = 100;

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
    /// None = it only reads.
    push: Option<(InFlight, One)>,
}

/// A session under way. Dropped before its end, it is ended in order.
pub(super) struct Session {
    under_way: Option<Cut>,
    /// Its git's, also once that has ended.
    group: Option<Pid>,
    cut: mpsc::Sender<Cut>,
}

impl Pushing {
    /// For so many cut sessions at once; beyond that they are killed.
    pub(super) fn new(most: usize) -> (Self, mpsc::Receiver<Cut>) {
        let (cut, cuts) = mpsc::channel(most);
        let running = Running::default();
        (Self { running, cut }, cuts)
    }

    pub(super) fn running(&self) -> Running {
        self.running.clone()
    }

    pub(super) fn begin(&self, git: Child, push: InFlight) -> Session {
        self.session(git, Some((push, self.running.one())))
    }

    /// A fetch, which holds no locks.
    pub(super) fn read(&self, git: Child) -> Session {
        self.session(git, None)
    }

    fn session(&self, git: Child, push: Option<(InFlight, One)>) -> Session {
        Session {
            group: group(&git),
            under_way: Some(Cut { git, push }),
            cut: self.cut.clone(),
        }
    }
}

impl Session {
    pub(super) fn git(&mut self) -> Option<&mut Child> {
        self.under_way.as_mut().map(|cut| &mut cut.git)
    }

    /// Its git has ended by itself. What its client asked to be written, as far as it was read.
    pub(super) async fn finish(mut self) -> Vec<Update> {
        let push = self.under_way.take().and_then(|cut| cut.push);
        let updates = push.map(|(push, _)| push.finish()).unwrap_or_default();
        bury(self.group).await;
        updates
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(cut) = self.under_way.take()
            && let Err(refused) = self.cut.try_send(cut)
        {
            warn!("too many sessions were cut at once to end each in order; one was killed");
            tell(&refused.into_inner().git, Signal::KILL);
        }
    }
}

/// Ends those that are cut, at most so many at once, until none can come any more.
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

/// Its pipes are closed already. It removes its lock files when it is told to end, and cannot when it is killed; a fetch has none.
async fn in_order(mut cut: Cut) {
    let group = group(&cut.git);
    let spared = usize::from(cut.push.is_none());
    for signal in [Signal::TERM, Signal::KILL].into_iter().skip(spared) {
        tell(&cut.git, signal);
        if timeout(SETTLE, cut.git.wait()).await.is_ok() {
            if let Some((push, _)) = &mut cut.push {
                push.waited();
            }
            bury(group).await;
            return;
        }
        warn!(
            ?signal,
            "the git of a session that was cut does not end in time"
        );
    }
}

fn tell(git: &Child, signal: Signal) {
    if let Some(group) = group(git) {
        kill_process_group(group, signal).ok();
    }
}

/// It has its id, which is nobody else's before it is waited for.
fn group(git: &Child) -> Option<Pid> {
    let id = git.id().and_then(|id| i32::try_from(id).ok());
    id.and_then(Pid::from_raw)
}

/// Waits for what a git had started and left behind. That falls to the first process of a machine, or of a container, where the hub is
/// that one: what it does not wait for stays in the list of processes, until there is no room for another git.
async fn bury(group: Option<Pid>) {
    let Some(group) = group else { return };
    for _ in 0..LOOKS {
        match waitpgid(group, WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) => sleep(LOOK).await,
            // There is none any more, or it is for somebody else to wait for.
            Err(_) => return,
        }
    }
}

/// A push whose outcome has to be looked at whatever happens to its client.
pub(super) struct InFlight {
    by: Pusher,
    updates: Arc<Mutex<Vec<Update>>>,
    ended: mpsc::Sender<Ended>,
    cut: bool,
}

impl InFlight {
    pub(super) fn new(by: Pusher, ended: mpsc::Sender<Ended>) -> Self {
        Self {
            by,
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
            by: self.by.clone(),
            updates,
            cut: self.cut,
        };
        if self.ended.try_send(ended).is_err() {
            warn!("a push could not be reported; the clusters see it at their next interval");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::process::Stdio;

    use rustix::process::{getpid, set_child_subreaper};
    use tokio::io::{AsyncBufReadExt as _, BufReader};
    use tokio::process::Command;

    use super::*;

    /// Something that starts another process, and where that one is to be seen. It falls to this process, as it does to the hub where
    /// that is the first one.
    async fn git(then: &str) -> (Child, PathBuf) {
        set_child_subreaper(Some(getpid())).unwrap();
        let mut git = Command::new("sh")
            .args(["-c", &format!("sleep 1000 & echo $!; {then}")])
            .stdout(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let out = git.stdout.take().unwrap();
        let mut id = String::new();
        BufReader::new(out).read_line(&mut id).await.unwrap();
        (git, Path::new("/proc").join(id.trim()))
    }

    /// H29
    #[tokio::test]
    async fn a_fetch_that_is_cut_leaves_no_process_behind() {
        let (git, started) = git("wait").await;
        assert!(started.exists(), "{}", started.display());
        let (pushing, cuts) = Pushing::new(1);
        drop(pushing.read(git));
        drop(pushing);
        end(cuts, 1).await;
        // Neither as one that runs, nor as one that nobody has waited for.
        assert!(!started.exists(), "{}", started.display());
    }

    #[tokio::test]
    async fn nor_does_one_whose_git_ended_before_what_it_had_started() {
        let (git, started) = git("kill -9 $!").await;
        let (pushing, _cuts) = Pushing::new(1);
        let mut session = pushing.read(git);
        session.git().unwrap().wait().await.unwrap();
        assert_eq!(session.finish().await, []);
        assert!(!started.exists(), "{}", started.display());
    }
}

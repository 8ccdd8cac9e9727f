//! The audit's hash chain: `hash = SHA-256(prev ‖ canonical JSON of the record)`, beginning at the hub's id.
//!
//! One task owns the chain's end. It takes whatever has queued, chains it, stores it in one transaction and only then
//! lets the callers go on: so a record is stored before its request leaves, and many records share one commit.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use http::StatusCode;
use tokio::sync::mpsc::{self, OwnedPermit};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::hub::store::{AuditRow, StoreError, patience};

pub mod chain;
mod doubt;
mod refusals;
pub mod retain;
pub mod sink;
mod writer;

pub use chain::{hash, verify};
pub use writer::{Chain, start};

use refusals::Counted;

/// Records in the queue and requests that are open, together. Each open request holds the place of its close.
pub(super) const PLACES: usize = 65_536;
/// How often it is looked which counted refusals are due.
const LOOK: Duration = Duration::from_secs(5);

/// What a record outlives from when its request goes on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Durability {
    /// A crash of the hub.
    #[default]
    Crash,
    /// A power cut, too: each batch waits for the disk.
    Fsync,
}

/// What is recorded of a command that somebody runs in a container: its arguments may hold what is secret.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Commands {
    /// All of it.
    #[default]
    On,
    /// In which container.
    Off,
}

/// What is recorded of one request or event. Never holds a body, nor a token or key of the hub's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entry {
    /// `user:admin`, `agent:eu1`, `hub`, `anyone`; `linesman audit list --user` knows these kinds.
    pub actor: String,
    /// `cluster.add`, `join`, `kube.get` …
    pub action: String,
    /// Whom a Kubernetes request went as, where that is not the actor: `linesman:bob in linesman:edit`.
    pub acted_as: Option<String>,
    pub cluster: Option<String>,
    /// What it was done to, such as the request's path.
    pub target: String,
    /// Of `kube.exec` and `kube.attach`, where the query names it.
    pub container: Option<String>,
    /// Of `kube.exec`: the command with its arguments, as a shell would take it.
    pub command: Option<String>,
    /// Of `kube.portforward`, where the query names them: `8080,5432`.
    pub ports: Option<String>,
    pub request_id: String,
    pub verdict: Verdict,
    pub reason: Option<String>,
    /// Of a refusal: the code of its answer.
    pub code: Option<u16>,
    /// The caller's address.
    pub remote: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Verdict {
    #[default]
    Allow,
    Deny,
}

#[derive(Debug, thiserror::Error)]
#[error("the audit record could not be stored, so the request is not carried out")]
pub struct AuditError;

/// The chain's front. Cheap to clone.
#[derive(Clone)]
pub struct Audit {
    queue: mpsc::Sender<Command>,
    head: watch::Receiver<i64>,
    refusals: Arc<Mutex<Counted>>,
}

/// An allowed request under way. Dropped without [`Opened::close`], it is recorded as interrupted.
pub struct Opened {
    entry: Arc<Entry>,
    seq: i64,
    /// How often the database had lost records by then: one that it loses later may give its number to another.
    losses: usize,
    since: Instant,
    exit: Option<i32>,
    /// The agent's rule by which it refused it, and whether that is a verdict.
    refused: Option<(&'static str, Verdict)>,
    place: Option<OwnedPermit<Command>>,
}

enum Command {
    Open {
        entry: Arc<Entry>,
        place: OwnedPermit<Self>,
        /// Dropped on its way, the request is recorded as interrupted: its caller left.
        stored: oneshot::Sender<Opened>,
    },
    Event {
        entry: Arc<Entry>,
        /// What it is about is done when it is stored, and only where its caller hears so.
        ahead: bool,
        stored: oneshot::Sender<()>,
    },
    Close(Closing),
    Anchor(Done<()>),
    Prune(i64, Done<u64>),
    Interrupt(Vec<AuditRow>, Done<()>),
}

type Done<T> = oneshot::Sender<Result<T, StoreError>>;

struct Closing {
    entry: Arc<Entry>,
    opened: i64,
    losses: usize,
    verdict: Verdict,
    reason: Option<Cow<'static, str>>,
    code: Option<u16>,
    exit: Option<i32>,
    bytes: u64,
    millis: u64,
}

impl Audit {
    /// Records that a request is about to be carried out; returns once that is stored.
    pub async fn open(&self, entry: Entry) -> Result<Opened, AuditError> {
        let entry = Arc::new(entry);
        let place = self
            .queue
            .clone()
            .try_reserve_owned()
            .map_err(|_| AuditError)?;
        let (stored, opened) = oneshot::channel();
        self.append(Command::Open {
            entry,
            place,
            stored,
        })?;
        let opened = patience::as_caller(opened).await.and_then(Result::ok);
        opened.ok_or(AuditError)
    }

    /// Records something that is over already, refusals among them.
    pub async fn event(&self, entry: Entry) -> Result<(), AuditError> {
        self.put(entry, false).await
    }

    /// Records a change that is about to be made. Where this fails it must not be: a record that is stored all the same is followed by
    /// one that denies it.
    pub async fn change(&self, entry: Entry) -> Result<(), AuditError> {
        self.put(entry, true).await
    }

    async fn put(&self, entry: Entry, ahead: bool) -> Result<(), AuditError> {
        let (stored, done) = oneshot::channel();
        let entry = Arc::new(entry);
        self.append(Command::Event {
            entry,
            ahead,
            stored,
        })?;
        let done = patience::as_caller(done).await.and_then(Result::ok);
        done.ok_or(AuditError)
    }

    /// Records that someone was refused whom nobody knows. Where the same happened lately it is counted only, for
    /// [`Audit::tell_refusals`].
    pub async fn refused(&self, entry: Entry) -> Result<(), AuditError> {
        let entry = Entry {
            verdict: Verdict::Deny,
            ..entry
        };
        let now = Instant::now().into_std();
        let first = self.refusals().unknown(entry, now);
        self.event_if(first).await
    }

    /// Records that a user was refused who is known. Where that user's refusals come in a flood they are counted only, for
    /// [`Audit::tell_refusals`].
    pub async fn denied(&self, entry: Entry) -> Result<(), AuditError> {
        let entry = Entry {
            verdict: Verdict::Deny,
            ..entry
        };
        let now = Instant::now().into_std();
        let first = self.refusals().user(entry, now);
        self.event_if(first).await
    }

    async fn event_if(&self, entry: Option<Entry>) -> Result<(), AuditError> {
        match entry {
            Some(entry) => self.event(entry).await,
            None => Ok(()),
        }
    }

    /// Puts the refusals that were counted on record, until `stop` and what is left then.
    pub async fn tell_refusals(self, stop: CancellationToken) -> Result<()> {
        loop {
            let wait = tokio::time::sleep(LOOK);
            let over = stop.run_until_cancelled(wait).await.is_none();
            let due = self.refusals().due(Instant::now().into_std(), over);
            for entry in due {
                let what = entry.reason.clone().unwrap_or_default();
                if self.event(entry).await.is_err() {
                    tracing::error!(what, "counted refusals could not be put on record");
                }
            }
            if over {
                return Ok(());
            }
        }
    }

    fn refusals(&self) -> std::sync::MutexGuard<'_, Counted> {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the last stored record, as it moves.
    pub fn head(&self) -> watch::Receiver<i64> {
        self.head.clone()
    }

    /// Signs the chain's end.
    pub async fn anchor(&self) -> Result<()> {
        self.ask(Command::Anchor).await
    }

    /// Removes some of the records up to this number; 0 = none is left.
    pub async fn prune(&self, up_to: i64) -> Result<u64> {
        self.ask(|done| Command::Prune(up_to, done)).await
    }

    /// Closes records that a replica left open which is gone.
    pub async fn interrupt(&self, open: Vec<AuditRow>) -> Result<()> {
        self.ask(|done| Command::Interrupt(open, done)).await
    }

    async fn ask<T>(&self, command: impl FnOnce(Done<T>) -> Command) -> Result<T> {
        let (done, answer) = oneshot::channel();
        let sent = self.queue.send(command(done)).await;
        sent.map_err(|_| AuditError)?;
        Ok(answer.await.map_err(|_| AuditError)??)
    }

    fn append(&self, command: Command) -> Result<(), AuditError> {
        self.queue.try_send(command).map_err(|_| AuditError)
    }
}

impl Opened {
    /// The chain's number of the open record.
    pub fn seq(&self) -> i64 {
        self.seq
    }

    pub fn request_id(&self) -> &str {
        &self.entry.request_id
    }

    /// With which code the command of a session ended, for the record of its end; None = nobody said it.
    pub fn exited(&mut self, exit: Option<i32>) {
        self.exit = exit;
    }

    /// By which rule the agent did not let it through, for the record of its end: what it did not allow is denied there, and not what
    /// it could not do.
    pub fn refused(&mut self, rule: &'static str, code: StatusCode) {
        // What is full is full for anyone: that judges nobody.
        let judged = code.is_client_error() && code != StatusCode::TOO_MANY_REQUESTS;
        let verdict = if judged {
            Verdict::Deny
        } else {
            self.entry.verdict
        };
        self.refused = Some((rule, verdict));
    }

    /// Records how the request ended. Does not wait.
    pub fn close(mut self, code: u16, bytes: u64, millis: u64) {
        self.finish(None, Some(code), bytes, millis);
    }

    /// Records that it broke off behind its head, and why. Does not wait.
    pub fn broke(mut self, reason: &'static str, code: u16, (bytes, millis): (u64, u64)) {
        self.finish(Some(reason.into()), Some(code), bytes, millis);
    }

    /// Records that the hub ended it in its middle, and why. Does not wait.
    pub fn cut(mut self, reason: String, bytes: u64, millis: u64) {
        self.finish(Some(reason.into()), None, bytes, millis);
    }

    fn finish(
        &mut self,
        reason: Option<Cow<'static, str>>,
        code: Option<u16>,
        bytes: u64,
        millis: u64,
    ) {
        if let Some(place) = self.place.take() {
            let (rule, verdict) = self.refused.unzip();
            let rule = rule.map(Cow::Borrowed);
            let own = self.entry.reason.clone();
            place.send(Command::Close(Closing {
                entry: self.entry.clone(),
                opened: self.seq,
                losses: self.losses,
                verdict: verdict.unwrap_or(self.entry.verdict),
                reason: reason.or(rule).or_else(|| own.map(Cow::Owned)),
                code,
                exit: self.exit,
                bytes,
                millis,
            }));
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let millis = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.finish(Some("interrupted".into()), None, 0, millis);
    }
}

//! The audit's hash chain: `hash = SHA-256(prev ‖ canonical JSON of the record)`, beginning at the hub's id.
//!
//! One task owns the chain's end. It takes whatever has queued, chains it, stores it in one transaction and only then
//! lets the callers go on: so a record is stored before its request leaves, and many records share one commit.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use tokio::sync::mpsc::{self, OwnedPermit};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::hub::store::{AuditRow, Store, StoreError};
use crate::{clock, keys};

/// Records in the queue and requests that are open, together. Each open request holds the place of its close.
const PLACES: usize = 65_536;
/// Records in one transaction.
const BATCH: usize = 256;
/// The most bytes of a free text in a record.
const MAX_TEXT: usize = 1024;

/// What is recorded of one request or event. Never holds a body, a token or a key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entry {
    /// `user:admin`, `agent:eu1`, `hub`, `anonymous`
    pub actor: String,
    /// `cluster.add`, `join`, `kube.get` …
    pub action: String,
    pub cluster: Option<String>,
    /// What it was done to, such as the request's path.
    pub target: String,
    pub request_id: String,
    pub verdict: Verdict,
    pub reason: Option<String>,
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
}

/// An allowed request under way. Dropped without [`Opened::close`], it is recorded as interrupted.
pub struct Opened {
    entry: Arc<Entry>,
    seq: i64,
    since: tokio::time::Instant,
    place: Option<OwnedPermit<Command>>,
}

enum Command {
    Append {
        stage: Stage,
        entry: Arc<Entry>,
        stored: oneshot::Sender<Option<i64>>,
    },
    Close(Closing),
}

#[derive(Clone, Copy)]
enum Stage {
    Open,
    Event,
}

struct Closing {
    entry: Arc<Entry>,
    opened: i64,
    reason: Option<&'static str>,
    code: Option<u16>,
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
        let seq = self.append(Stage::Open, entry.clone()).await?;
        Ok(Opened {
            entry,
            seq,
            since: tokio::time::Instant::now(),
            place: Some(place),
        })
    }

    /// Records something that is over already, refusals among them.
    pub async fn event(&self, entry: Entry) -> Result<(), AuditError> {
        self.append(Stage::Event, Arc::new(entry)).await.map(drop)
    }

    async fn append(&self, stage: Stage, entry: Arc<Entry>) -> Result<i64, AuditError> {
        let (stored, answer) = oneshot::channel();
        let command = Command::Append {
            stage,
            entry,
            stored,
        };
        self.queue.try_send(command).map_err(|_| AuditError)?;
        answer.await.ok().flatten().ok_or(AuditError)
    }
}

impl Opened {
    /// The chain's number of the open record.
    pub fn seq(&self) -> i64 {
        self.seq
    }

    /// Records how the request ended. Does not wait.
    pub fn close(mut self, code: u16, bytes: u64, millis: u64) {
        self.finish(None, Some(code), bytes, millis);
    }

    /// Records that the hub ended it in its middle, and why. Does not wait.
    pub fn cut(mut self, reason: &'static str, bytes: u64, millis: u64) {
        self.finish(Some(reason), None, bytes, millis);
    }

    fn finish(&mut self, reason: Option<&'static str>, code: Option<u16>, bytes: u64, millis: u64) {
        if let Some(place) = self.place.take() {
            place.send(Command::Close(Closing {
                entry: self.entry.clone(),
                opened: self.seq,
                reason,
                code,
                bytes,
                millis,
            }));
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let millis = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.finish(Some("interrupted"), None, 0, millis);
    }
}

/// The chain's task.
pub struct Chain {
    store: Store,
    queue: mpsc::Receiver<Command>,
    /// Number and hash of the last stored record.
    head: (i64, [u8; 32]),
}

/// Opens the chain at its end and marks what a crash left open as interrupted.
pub async fn start(store: Store, hub_id: &str) -> Result<(Audit, Chain)> {
    let head = store.audit_head().await.context("read the audit chain")?;
    let head = head.map_or_else(|| genesis(hub_id), |r| (r.seq, r.hash));
    let (send, queue) = mpsc::channel(PLACES);
    let mut chain = Chain { store, queue, head };
    let open = chain
        .store
        .audit_open()
        .await
        .context("read open records")?;
    for batch in open.chunks(BATCH) {
        let rows = batch.iter().map(interrupted).collect();
        chain.store(rows).await.context("close open records")?;
    }
    Ok((Audit { queue: send }, chain))
}

/// What the first record is chained to.
fn genesis(hub_id: &str) -> (i64, [u8; 32]) {
    (0, keys::sha256(hub_id.as_bytes()))
}

fn interrupted(open: &AuditRow) -> AuditRow {
    AuditRow {
        stage: "close".to_owned(),
        at: millis(clock::now()),
        opened: Some(open.seq),
        reason: Some("interrupted: the hub ended".to_owned()),
        ..open.clone()
    }
}

impl Chain {
    /// Runs until it is stopped and nobody can append any more; what is queued then is still stored.
    pub async fn run(mut self, stop: CancellationToken) -> Result<()> {
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            let n = tokio::select! {
                biased;
                n = self.queue.recv_many(&mut batch, BATCH) => n,
                () = stop.cancelled() => break,
            };
            if n == 0 {
                return Ok(());
            }
            self.take(&mut batch).await;
        }
        self.queue.close();
        while self.queue.recv_many(&mut batch, BATCH).await > 0 {
            self.take(&mut batch).await;
        }
        Ok(())
    }

    /// Stores a batch and tells each caller; a batch that cannot be stored is refused as a whole.
    async fn take(&mut self, batch: &mut Vec<Command>) {
        let mut rows = Vec::with_capacity(batch.len());
        let mut callers = Vec::new();
        for command in batch.drain(..) {
            match command {
                Command::Append {
                    stage,
                    entry,
                    stored,
                } => {
                    callers.push((rows.len(), stored));
                    rows.push(row(stage, &entry));
                }
                Command::Close(closing) => rows.push(close_row(&closing)),
            }
        }
        let outcome = self.store(rows).await;
        if let Err(error) = &outcome {
            tracing::error!(error = %crate::hub::chain_of(error), "audit records could not be stored");
        }
        for (index, stored) in callers {
            let seq = outcome
                .as_ref()
                .ok()
                .and_then(|seqs| seqs.get(index).copied());
            // A caller that went away has nothing to be told.
            let _gone = stored.send(seq);
        }
    }

    /// Chains and stores rows; gives their numbers. The head moves only with a commit.
    async fn store(&mut self, mut rows: Vec<AuditRow>) -> Result<Vec<i64>, StoreError> {
        let (mut seq, mut prev) = self.head;
        for row in &mut rows {
            seq += 1;
            row.seq = seq;
            row.prev = prev;
            row.hash = hash(row);
            prev = row.hash;
        }
        self.store.append_audit(&rows).await?;
        self.head = (seq, prev);
        Ok(rows.iter().map(|r| r.seq).collect())
    }
}

fn row(stage: Stage, entry: &Entry) -> AuditRow {
    AuditRow {
        seq: 0,
        at: millis(clock::now()),
        stage: match stage {
            Stage::Open => "open",
            Stage::Event => "event",
        }
        .to_owned(),
        actor: bounded(&entry.actor),
        action: bounded(&entry.action),
        cluster: entry.cluster.as_deref().map(bounded),
        target: bounded(&entry.target),
        request_id: bounded(&entry.request_id),
        verdict: match entry.verdict {
            Verdict::Allow => "allow",
            Verdict::Deny => "deny",
        }
        .to_owned(),
        reason: entry.reason.as_deref().map(bounded),
        opened: None,
        code: None,
        bytes: None,
        millis: None,
        remote: bounded(&entry.remote),
        prev: [0; 32],
        hash: [0; 32],
    }
}

fn close_row(closing: &Closing) -> AuditRow {
    AuditRow {
        stage: "close".to_owned(),
        opened: Some(closing.opened),
        reason: closing.reason.map(str::to_owned),
        code: closing.code,
        // SQLite's integers end at i64::MAX.
        bytes: Some(closing.bytes.min(i64::MAX.unsigned_abs())),
        millis: Some(closing.millis.min(i64::MAX.unsigned_abs())),
        ..row(Stage::Event, &closing.entry)
    }
}

fn millis(at: time::OffsetDateTime) -> i64 {
    i64::try_from(at.unix_timestamp_nanos() / 1_000_000).unwrap_or(i64::MAX)
}

fn bounded(text: &str) -> String {
    crate::hub::cut(text, MAX_TEXT).to_owned()
}

/// The hash that a row must have, given its own fields and `prev`.
pub fn hash(row: &AuditRow) -> [u8; 32] {
    let mut input = row.prev.to_vec();
    input.extend_from_slice(canonical(row).as_bytes());
    keys::sha256(&input)
}

/// RFC 8785 JSON: members in the order of their names, integers and strings only.
fn canonical(row: &AuditRow) -> String {
    #[derive(serde::Serialize)]
    struct Record<'a> {
        action: &'a str,
        actor: &'a str,
        at: i64,
        bytes: Option<u64>,
        cluster: Option<&'a str>,
        code: Option<u16>,
        millis: Option<u64>,
        opened: Option<i64>,
        reason: Option<&'a str>,
        remote: &'a str,
        #[serde(rename = "requestId")]
        request_id: &'a str,
        seq: i64,
        stage: &'a str,
        target: &'a str,
        verdict: &'a str,
    }
    let record = Record {
        action: &row.action,
        actor: &row.actor,
        at: row.at,
        bytes: row.bytes,
        cluster: row.cluster.as_deref(),
        code: row.code,
        millis: row.millis,
        opened: row.opened,
        reason: row.reason.as_deref(),
        remote: &row.remote,
        request_id: &row.request_id,
        seq: row.seq,
        stage: &row.stage,
        target: &row.target,
        verdict: &row.verdict,
    };
    serde_json::to_string(&record).expect("strings and integers are always JSON")
}

/// Checks a stretch of the chain; the number of the first record that does not fit.
pub fn verify(prev: [u8; 32], after: i64, rows: &[AuditRow]) -> Result<(), i64> {
    let (mut prev, mut seq) = (prev, after);
    for row in rows {
        seq += 1;
        if row.seq != seq || row.prev != prev || row.hash != hash(row) {
            return Err(seq);
        }
        prev = row.hash;
    }
    Ok(())
}

#[cfg(test)]
mod tests;

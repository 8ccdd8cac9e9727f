//! The one task that owns the chain's end: it stores what has queued, and then tells who waits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

use super::chain::{self, Head, anchor_input, genesis};
use super::{Audit, Command, Counted, PLACES, doubt};
use crate::clock;
use crate::hub::store::{Anchor, AuditRow, Store, StoreError, patience};
use crate::hub::trust::Said;

mod beginning;
mod failing;
mod lost;
mod pace;
mod prune;
mod rows;
mod tell;

use failing::Failing;
use lost::Lost;
use pace::Pace;
use rows::{Stage, close_row, interrupted, millis, row};
use tell::{Opening, Telling};

/// What was taken from the queue at once, the chain's own upkeep included, may wait for the database for so long: the next
/// callers wait for it, and it may wait on a connection that is lost. A batch that takes longer is in doubt.
const STORED: Duration = Duration::from_secs(15);
/// Records in one transaction.
const BATCH: usize = 256;
/// How long the records of requests that ended wait for company.
const LINGER: Duration = Duration::from_millis(10);
/// How long those of requests that begin do, while many run.
const COMPANY: Duration = Duration::from_millis(1);

/// The chain's task.
pub struct Chain {
    store: Store,
    queue: mpsc::Receiver<Command>,
    hub_id: String,
    said: watch::Receiver<Arc<Said>>,
    /// The last record that was stored here.
    head: Head,
    /// What the first record is chained to.
    floor: Head,
    /// This process among several that extend the chain; None = it is alone.
    writer: Option<String>,
    told: watch::Sender<i64>,
    /// Open records that retention carried on: where each of them stands now.
    carried: BTreeMap<i64, i64>,
    /// Nobody knows whether the last step of pruning is stored.
    unsure: bool,
    /// The last batch, where the database did not say whether it has it.
    doubt: Vec<AuditRow>,
    /// Which of its rows announce changes.
    announced: BTreeSet<usize>,
    /// Closes that could not be stored yet, and what is to be said of changes that were not made.
    late: Vec<AuditRow>,
    lost: Lost,
    failing: Failing,
    pace: Pace,
}

/// Opens the chain at its end. A hub that is alone marks what a crash left open as interrupted; of several replicas, the
/// one that leads does ([`Audit::interrupt`]).
pub async fn start(
    store: Store,
    hub_id: &str,
    said: watch::Receiver<Arc<Said>>,
    writer: Option<String>,
) -> Result<(Audit, Chain)> {
    let last = store.audit_head().await.context("read the audit chain")?;
    let anchors = store.audit_anchors().await.context("read the anchors")?;
    let keys = said.borrow().keys.clone();
    beginning::vouch(&store, hub_id, &keys, (&anchors, last.as_ref()))
        .await
        .context("sign the record's beginning")?;
    let pruned = anchors.iter().rfind(|a| a.start).map(|a| Head {
        seq: a.seq,
        hash: a.hash,
    });
    let last = last.map(|r| Head {
        seq: r.seq,
        hash: r.hash,
    });
    let floor = pruned.unwrap_or_else(|| genesis(hub_id));
    let head = last.unwrap_or(floor);
    let (send, queue) = mpsc::channel(PLACES);
    let (told, moves) = watch::channel(head.seq);
    let mut chain = Chain {
        store,
        queue,
        hub_id: hub_id.to_owned(),
        said,
        head,
        floor,
        writer,
        told,
        carried: BTreeMap::new(),
        unsure: false,
        doubt: Vec::new(),
        announced: BTreeSet::new(),
        late: Vec::new(),
        lost: Lost::default(),
        failing: Failing::default(),
        pace: Pace::new(Instant::now(), head.seq),
    };
    if chain.writer.is_none() {
        let open = chain.store.audit_open().await;
        let open = open.context("read open records")?;
        chain.interrupt(&open).await.context("close open records")?;
    }
    let audit = Audit {
        queue: send,
        head: moves,
        refusals: Arc::new(Mutex::new(Counted::new(Instant::now().into_std()))),
    };
    Ok((audit, chain))
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
            // Nobody waits for a close, and the next open takes it along.
            let closes = |batch: &[Command]| batch.iter().all(|c| matches!(c, Command::Close(_)));
            let until = Instant::now() + LINGER;
            while batch.len() < BATCH && closes(&batch) {
                let room = BATCH - batch.len();
                let more = self.queue.recv_many(&mut batch, room);
                let more = stop.run_until_cancelled(timeout_at(until, more)).await;
                if !matches!(more, Some(Ok(1..))) {
                    break;
                }
            }
            self.company(&mut batch, &stop).await;
            self.take(&mut batch).await;
        }
        self.queue.close();
        while self.queue.recv_many(&mut batch, BATCH).await > 0 {
            self.take(&mut batch).await;
        }
        Ok(())
    }

    /// Lets others join a batch, where many requests run.
    async fn company(&mut self, batch: &mut Vec<Command>, stop: &CancellationToken) {
        let opens = batch.iter().filter(|c| matches!(c, Command::Open { .. }));
        let moment = (Instant::now(), self.head.seq);
        if self.pace.waits(opens.count(), moment) {
            stop.run_until_cancelled(sleep(COMPANY)).await;
            while batch.len() < BATCH
                && let Ok(more) = self.queue.try_recv()
            {
                batch.push(more);
            }
        }
    }

    async fn take(&mut self, batch: &mut Vec<Command>) {
        let patience = patience::Patience::new(STORED, STORED);
        patience::within(&patience, self.carry_out(batch)).await;
    }

    /// Stores a batch and tells each caller; a batch that cannot be stored is refused as a whole.
    async fn carry_out(&mut self, batch: &mut Vec<Command>) {
        let mut rows = Vec::with_capacity(batch.len());
        let (mut opens, mut events) = (Vec::<Opening>::new(), Vec::<Telling>::new());
        let (mut anchors, mut prunes, mut interrupts) = (Vec::new(), Vec::new(), Vec::new());
        let mut announced = BTreeSet::new();
        for command in batch.drain(..) {
            match command {
                Command::Open {
                    entry,
                    place,
                    stored,
                } => {
                    rows.push(row(Stage::Open, &entry));
                    opens.push((rows.len() - 1, entry, place, stored));
                }
                Command::Event {
                    entry,
                    ahead,
                    stored,
                } => {
                    announced.extend(ahead.then_some(rows.len()));
                    rows.push(row(Stage::Event, &entry));
                    events.push((entry, ahead, stored));
                }
                Command::Close(closing) => {
                    self.pace.closed(closing.opened);
                    let mut row = close_row(&closing);
                    self.lost.orphan(&mut row, closing.losses);
                    rows.push(row);
                }
                Command::Anchor(done) => anchors.push(done),
                Command::Prune(up_to, done) => prunes.push((up_to, done)),
                Command::Interrupt(open, done) => interrupts.push((open, done)),
            }
        }
        let outcome = if rows.is_empty() {
            Ok(Vec::new())
        } else {
            self.put(rows, announced).await
        };
        match outcome {
            Ok(seqs) => self.tell(&seqs, opens, events).await,
            Err(error) => self.say(&error),
        }
        for (open, done) in interrupts {
            let _gone = done.send(self.interrupt(&open).await);
        }
        for done in anchors {
            let _gone = done.send(self.anchor().await);
        }
        for (up_to, done) in prunes {
            let _gone = done.send(self.prune(up_to).await);
        }
    }

    fn say(&mut self, error: &StoreError) {
        // What the records are about is refused, which is said once.
        if self.store.is_away() {
            return;
        }
        if let Some(batches) = self.failing.failed(Instant::now()) {
            let error = crate::hub::chain_of(error);
            tracing::error!(error, batches, "audit records could not be stored");
        }
    }

    async fn interrupt(&mut self, open: &[AuditRow]) -> Result<(), StoreError> {
        for batch in open.chunks(BATCH) {
            self.store(batch.iter().map(interrupted).collect()).await?;
        }
        Ok(())
    }

    /// The chain's end, be it of another replica. Nothing may be said of a record that the database has lost.
    async fn end(&mut self) -> Result<Head, StoreError> {
        let alone = self.writer.is_none();
        if alone && !self.store.may_lose_audit() {
            return Ok(self.head);
        }
        let end = self.end_stored().await?;
        if alone {
            self.miss(end);
        }
        Ok(end)
    }

    async fn end_stored(&self) -> Result<Head, StoreError> {
        let last = self.store.audit_head().await?;
        Ok(last.map_or(self.floor, |row| Head {
            seq: row.seq,
            hash: row.hash,
        }))
    }

    async fn anchor(&mut self) -> Result<(), StoreError> {
        let end = self.end().await?;
        if end.seq == 0 {
            return Ok(());
        }
        let anchor = self.signed(end, false);
        self.store.add_audit_anchor(&anchor).await
    }

    fn signed(&self, head: Head, start: bool) -> Anchor {
        let at = millis(clock::now());
        let input = anchor_input(&self.hub_id, head, at, start);
        Anchor {
            seq: head.seq,
            hash: head.hash,
            at,
            sig: self.said.borrow().keys.sign(input.as_bytes()).to_vec(),
            start,
        }
    }

    /// Chains and stores rows, and what is owed from before; gives the numbers of the rows. The head moves only with a
    /// commit.
    async fn store(&mut self, rows: Vec<AuditRow>) -> Result<Vec<i64>, StoreError> {
        self.put(rows, BTreeSet::new()).await
    }

    /// The same of rows, of which these announce changes.
    async fn put(
        &mut self,
        mut rows: Vec<AuditRow>,
        announced: BTreeSet<usize>,
    ) -> Result<Vec<i64>, StoreError> {
        let asked = rows.len();
        if let Err(error) = self.settle_doubt().await {
            self.late.extend(doubt::owed(rows, false, &announced));
            return Err(error);
        }
        rows.append(&mut self.late);
        self.follow_carried(&mut rows);
        let done = match &self.writer {
            None => self.append(&mut rows).await,
            Some(writer) => self.store.extend_audit(self.floor, &mut rows, writer).await,
        };
        if let Err(error) = done {
            (self.doubt, self.announced) = (rows, announced);
            return Err(error);
        }
        self.stored(&rows);
        if self.failing.stored() {
            tracing::info!("audit records are stored again");
        }
        Ok(rows[..asked].iter().map(|r| r.seq).collect())
    }

    /// Chains rows to the last record; behind them, where the database has lost some, one that says so.
    fn link(&self, rows: &mut Vec<AuditRow>) {
        rows.extend(self.lost.record());
        let link = |head, row: &mut AuditRow| chain::link(head, row);
        rows.iter_mut().fold(self.head, link);
    }

    /// A connection that broke at the commit does not tell whether the rows are in: the chain does, once the database has
    /// done with what it was asked.
    async fn settle_doubt(&mut self) -> Result<(), StoreError> {
        self.settle_pruning().await?;
        if self.doubt.is_empty() {
            return Ok(());
        }
        // Other replicas may have gone on behind them.
        let stored = match self.doubt.iter().rfind(|row| row.seq > 0) {
            Some(last) => {
                let there = self.store.audit_settled(last.seq).await?;
                there.is_some_and(|row| row.hash == last.hash)
            }
            None => false,
        };
        let batch = std::mem::take(&mut self.doubt);
        let announced = std::mem::take(&mut self.announced);
        if stored {
            self.stored(&batch);
        }
        self.late.extend(doubt::owed(batch, stored, &announced));
        Ok(())
    }

    fn stored(&mut self, rows: &[AuditRow]) {
        if !self.carried.is_empty() {
            let closed: BTreeSet<i64> = rows.iter().filter_map(|row| row.opened).collect();
            self.carried.retain(|_, stands| !closed.contains(stands));
        }
        let Some(last) = rows.iter().rfind(|row| row.seq > 0) else {
            return;
        };
        self.head = Head {
            seq: last.seq,
            hash: last.hash,
        };
        self.lost.is_told();
        self.told.send_replace(last.seq);
    }
}

#[cfg(test)]
mod tests;

//! What those hear whose records are stored, and what is owed of one who hears nothing.

use std::sync::Arc;

use tokio::sync::mpsc::OwnedPermit;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Chain;
use super::rows::{Stage, row};
use crate::hub::audit::{Command, Entry, Opened, doubt};

/// Who waits for the row of this number in its batch.
pub(super) type Opening = (
    usize,
    Arc<Entry>,
    OwnedPermit<Command>,
    oneshot::Sender<Opened>,
);
/// Who waits for an event, and whether it is of a change to come.
pub(super) type Telling = (Arc<Entry>, bool, oneshot::Sender<()>);

impl Chain {
    /// Tells those who wait that their records are stored, under these numbers.
    pub(super) async fn tell(&mut self, seqs: &[i64], opens: Vec<Opening>, events: Vec<Telling>) {
        // A caller that went away has nothing to be told; what it opened closes itself.
        for (index, entry, place, stored) in opens {
            let Some(seq) = seqs.get(index).copied() else {
                continue;
            };
            self.pace.opened();
            drop(stored.send(Opened {
                entry,
                seq,
                losses: self.lost.times(),
                since: Instant::now(),
                exit: None,
                refused: None,
                place: Some(place),
            }));
        }
        for (entry, ahead, stored) in events {
            if stored.send(()).is_err() && ahead {
                let change = row(Stage::Event, &entry);
                self.late.push(doubt::not_made(change));
            }
        }
        // Nothing else may come that takes it along; where it is not stored now, it stays owed.
        if !self.late.is_empty() {
            let _owed = self.store(Vec::new()).await;
        }
    }
}

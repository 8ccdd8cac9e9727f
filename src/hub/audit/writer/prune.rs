//! What retention removes from the chain's beginning, and what it carries on to its end.

use super::Chain;
use crate::hub::audit::chain::Head;
use crate::hub::store::{AuditRow, StoreError};

/// Records in one step of pruning.
const PRUNE: u32 = 2_000;

impl Chain {
    /// One step of pruning: what queues meanwhile is stored between two of them. A request that still runs does not
    /// keep what is behind its record: that is carried on to the chain's end.
    pub(super) async fn prune(&mut self, up_to: i64) -> Result<u64, StoreError> {
        self.settle_doubt().await?;
        // The last record stays: the next one is chained to it.
        let up_to = up_to.min(self.end().await?.seq - 1);
        self.settle_pruning().await?;
        let rows = self.store.audit(0, None, PRUNE).await?;
        let Some(last) = rows.iter().rfind(|row| row.seq <= up_to) else {
            return Ok(0);
        };
        let head = Head {
            seq: last.seq,
            hash: last.hash,
        };
        self.unsure = true;
        let pruned = self.store.prune_audit(&self.signed(head, true)).await?;
        self.unsure = false;
        self.carry(&pruned.carried);
        Ok(pruned.removed)
    }

    fn carry(&mut self, carried: &[AuditRow]) {
        for row in carried {
            let Some(first) = row.opened else { continue };
            // What is owed since the step before may name where it stood then.
            let stood = self.carried.get(&first).copied();
            for seq in stood.into_iter().chain([first]) {
                self.carried.insert(seq, row.seq);
            }
        }
        if let Some(last) = carried.last() {
            self.head = Head {
                seq: last.seq,
                hash: last.hash,
            };
            self.told.send_replace(last.seq);
        }
    }

    /// After a step of pruning whose end nobody knows, the database is asked what it has.
    pub(super) async fn settle_pruning(&mut self) -> Result<(), StoreError> {
        if !self.unsure {
            return Ok(());
        }
        if self.writer.is_none() {
            let carried = self.store.audit_open().await?;
            let carried: Vec<_> = carried.into_iter().filter(|r| r.opened.is_some()).collect();
            let end = self.end_stored().await?;
            self.miss(end);
            self.head = end;
            for row in &carried {
                self.carried
                    .extend(row.opened.map(|first| (first, row.seq)));
            }
        }
        self.unsure = false;
        Ok(())
    }

    /// A close names its open where that stands now.
    pub(super) fn follow_carried(&self, rows: &mut [AuditRow]) {
        let closes = rows.iter_mut().filter(|row| row.stage == "close");
        for opened in closes.filter_map(|row| row.opened.as_mut()) {
            *opened = self.carried.get(opened).copied().unwrap_or(*opened);
        }
    }
}

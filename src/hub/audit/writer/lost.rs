//! Records that the database had stored and has no more. A server that crashes takes the last half second of the audit along, and a
//! standby that takes its place may have less still, while this process goes on: what it knows of the chain's end is then of records
//! that are gone. The chain goes on behind those that are there, with a record that says so, and numbers are given anew.
//!
//! Only a hub that is alone says so. Of several replicas each reads the end anew for every batch, and the first to do so after a crash
//! gives the lost numbers to records of its own: by then no other one can tell where the loss began, for each knows the last record that
//! it stored itself, and nothing in the database is left to agree by. What one that died had stored nobody
//! knows. Which closes have lost their opens the database is asked, for each batch.

use super::Chain;
use super::rows::{Stage, row};
use crate::hub::audit::Entry;
use crate::hub::audit::chain::{self, Head};
use crate::hub::store::{AuditRow, StoreError};

/// What is known of losses since this process began.
#[derive(Default)]
pub(super) struct Lost {
    /// The number of the last record that was left, each time.
    left: Vec<i64>,
    /// The first and the last of those that are gone and of which no record says so yet.
    untold: Option<(i64, i64)>,
}

impl Lost {
    pub(super) fn times(&self) -> usize {
        self.left.len()
    }

    /// A close whose open is lost names none, for its number is another record's; `times` is how often records had been lost when that
    /// was stored.
    pub(super) fn orphan(&self, row: &mut AuditRow, times: usize) {
        let mut since = self.left.iter().skip(times);
        if row
            .opened
            .is_none_or(|opened| since.all(|left| opened <= *left))
        {
            return;
        }
        chain::orphan(row);
    }

    /// Notes that the chain was there and ends here; gives the first and the last record that is gone.
    fn note(&mut self, head: Head, end: Head) -> (i64, i64) {
        // One that has the last number and is another one was lost, too.
        let first = head.seq.min(end.seq + 1);
        let last = self.untold.map_or(head.seq, |(_, last)| last.max(head.seq));
        self.left.push(first - 1);
        self.untold = Some((first, last));
        (first, last)
    }

    /// What goes on record of it with the next ones that are stored.
    pub(super) fn record(&self) -> Option<AuditRow> {
        let (first, last) = self.untold?;
        let entry = Entry {
            actor: "hub".to_owned(),
            action: "audit.lost".to_owned(),
            target: format!("{first}-{last}"),
            reason: Some(format!(
                "records that the database had stored and lost: {}",
                last - first + 1
            )),
            ..Entry::default()
        };
        Some(row(Stage::Event, &entry))
    }

    pub(super) fn is_told(&mut self) {
        self.untold = None;
    }
}

impl Chain {
    /// Appends rows, as the only one that does so: behind the last record that was stored here, or that the database has left.
    pub(super) async fn append(&mut self, rows: &mut Vec<AuditRow>) -> Result<(), StoreError> {
        let own = rows.len();
        self.link(rows);
        let done = self.store.append_audit(rows).await;
        if !matches!(done, Err(StoreError::OtherEnd(_))) {
            return done;
        }
        rows.truncate(own);
        let times = self.lost.times();
        self.unsure = true;
        self.settle_pruning().await?;
        for row in rows.iter_mut() {
            self.lost.orphan(row, times);
        }
        self.link(rows);
        self.store.append_audit(rows).await
    }

    /// Takes the database's end for the chain's, where it has lost what was behind that.
    pub(super) fn miss(&mut self, end: Head) {
        let other = end.seq == self.head.seq && end.hash != self.head.hash;
        if end.seq >= self.head.seq && !other {
            return;
        }
        let times = self.lost.times();
        let (first, last) = self.lost.note(self.head, end);
        tracing::warn!(
            first,
            last,
            "the database lost audit records that it had stored; the record goes on without them, and says so"
        );
        self.head = end;
        // A step of pruning may be lost, too.
        self.carried.clear();
        self.unsure = true;
        for row in self.late.iter_mut().chain(&mut self.doubt) {
            self.lost.orphan(row, times);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(seq: i64, of: u8) -> Head {
        let hash = [of; 32];
        Head { seq, hash }
    }

    fn close(opened: i64, reason: Option<&str>) -> AuditRow {
        AuditRow {
            stage: "close".to_owned(),
            opened: Some(opened),
            reason: reason.map(str::to_owned),
            ..AuditRow::event(1)
        }
    }

    /// Whether it names its open still, and what it says.
    fn after(lost: &Lost, mut row: AuditRow, times: usize) -> (Option<i64>, Option<String>) {
        lost.orphan(&mut row, times);
        (row.opened, row.reason)
    }

    #[test]
    fn a_close_names_no_record_that_has_the_number_of_the_one_that_is_lost() {
        let mut lost = Lost::default();
        assert_eq!(after(&lost, close(102, None), 0), (Some(102), None));
        assert_eq!(lost.note(head(103, 1), head(100, 1)), (101, 103));
        let why = "the database lost the record of its beginning".to_owned();
        assert_eq!(after(&lost, close(102, None), 0), (None, Some(why.clone())));
        let both = format!("interrupted; {why}");
        let broken = close(101, Some("interrupted"));
        assert_eq!(after(&lost, broken, 0), (None, Some(both)));
        // That of before is there, and so is the one that has the number now, until it is lost as well.
        assert_eq!(after(&lost, close(100, None), 0), (Some(100), None));
        assert_eq!(after(&lost, close(102, None), 1), (Some(102), None));
        assert_eq!(lost.note(head(105, 2), head(101, 2)), (102, 105));
        assert_eq!(after(&lost, close(102, None), 1), (None, Some(why)));
        assert_eq!(after(&lost, close(101, None), 1), (Some(101), None));
        assert_eq!(after(&lost, close(102, None), 2), (Some(102), None));
    }

    /// What was lost before that went on record counts with what is lost then.
    #[test]
    fn one_record_says_of_all_that_was_lost() {
        let mut lost = Lost::default();
        assert!(lost.record().is_none());
        lost.note(head(103, 1), head(100, 1));
        assert_eq!(lost.note(head(100, 1), head(98, 1)), (99, 103));
        let row = lost.record().unwrap();
        let said = (row.actor.as_str(), row.action.as_str(), row.target.as_str());
        assert_eq!(said, ("hub", "audit.lost", "99-103"));
        let why = "records that the database had stored and lost: 5";
        assert_eq!(
            (row.stage.as_str(), row.reason.as_deref()),
            ("event", Some(why))
        );
        lost.is_told();
        assert!(lost.record().is_none());
        // Another one in the place of the last.
        assert_eq!(lost.note(head(99, 1), head(99, 2)), (99, 99));
    }
}

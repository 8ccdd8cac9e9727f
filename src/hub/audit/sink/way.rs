//! What a sink is given: the next records behind the last one that it has, and the anchors over them, as much at once as it takes.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::json;

use super::room::Room;
use super::{Behind, Sink, TIMEOUT, TooLarge};
use crate::hub::audit::chain;
use crate::hub::store::{Anchor, AuditRow, Store};
use crate::keys;

const BATCH: u32 = 500;
/// A record of so many bytes is no reason to refuse it: who does so refuses everything, which passes when it is put right.
const SMALL: usize = 8 << 10;

/// From the store to the sink.
pub(super) struct Way {
    store: Store,
    sink: Sink,
    room: Room,
    /// The last record that the sink has taken, or that it never will.
    delivered: i64,
    /// The last record when that was looked for.
    last: i64,
    behind: Behind,
    /// A delivery that takes longer has failed.
    pub(super) within: Duration,
}

/// A record or an anchor as it is sent, with its end.
struct Line {
    seq: i64,
    text: String,
}

impl Way {
    pub(super) fn new(store: Store, sink: Sink, behind: Behind) -> Self {
        Self {
            store,
            sink,
            room: Room::default(),
            delivered: 0,
            last: 0,
            behind,
            within: TIMEOUT,
        }
    }

    /// Shows how far the sink is behind.
    pub(super) fn show(&self) {
        self.behind.show(self.delivered, self.last);
    }

    /// Delivers the next records, if there are any.
    pub(super) async fn next(&mut self, name: &str) -> Result<bool> {
        let position = self.store.audit_position(name).await?;
        let rows = self.store.audit(position.unwrap_or(0), None, BATCH).await?;
        let Some(first) = rows.first().map(|row| row.seq) else {
            self.delivered = position.unwrap_or(0);
            self.show();
            return self.anchors(name).await;
        };
        self.delivered = position.unwrap_or(first - 1);
        let last = self.store.audit_head().await?;
        self.last = last.map_or(0, |row| row.seq);
        // Before the sink has them: that may take long.
        self.show();
        let gone = position.filter(|before| first > before + 1);
        let gap = gone.map(|before| {
            let why = "removed by the hub's retention before the sink took them";
            gap(before + 1, first - 1, why)
        });
        let lines: Vec<Line> = rows.iter().map(line).collect();
        let last = self.deliver(&gap.unwrap_or_default(), &lines).await?;
        if !self.has_lost(&rows, last).await? {
            self.store.set_audit_position(name, last).await?;
            self.delivered = last;
        }
        Ok(true)
    }

    /// Whether the database lost the last record that was delivered, meanwhile: what has its number by then goes to the sink as well.
    async fn has_lost(&self, rows: &[AuditRow], last: i64) -> Result<bool> {
        let there = self.store.audit(last - 1, None, 1).await?;
        let sent = rows.iter().find(|row| row.seq == last);
        Ok(sent.is_some_and(|sent| is_lost(sent, there.first())))
    }

    /// Delivers the next anchors of records that the sink has, if there are any. What the hub signed is then out of reach of
    /// whoever can write its database, and so is the tail of the record up to there.
    async fn anchors(&mut self, name: &str) -> Result<bool> {
        let name = format!("{name}{}", super::ANCHORS);
        let position = self.store.audit_position(&name).await?.unwrap_or(0);
        let anchors = self
            .store
            .audit_anchors_between(position, self.delivered, BATCH);
        let lines: Vec<Line> = anchors.await?.iter().map(anchor_line).collect();
        if lines.is_empty() {
            return Ok(false);
        }
        let last = self.deliver("", &lines).await?;
        self.store.set_audit_position(&name, last).await?;
        Ok(true)
    }

    /// Delivers the first of these lines, as many as go at once, behind `gap`; gives the number of the last one.
    async fn deliver(&mut self, gap: &str, lines: &[Line]) -> Result<i64> {
        let sizes = || lines.iter().map(|line| line.text.len());
        let mut count = self.room.fitting(gap.len(), sizes());
        loop {
            let (now, later) = lines.split_at(count);
            let texts = now.iter().map(|line| line.text.as_str());
            let batch: String = std::iter::once(gap).chain(texts).collect();
            let size = batch.len();
            let error = match self.sink.deliver(batch, self.within).await {
                Ok(()) => {
                    self.room.taken(Instant::now());
                    return Ok(now.last().map_or(0, |line| line.seq));
                }
                Err(error) if error.is::<TooLarge>() => error,
                Err(error) => return Err(error),
            };
            if let [line] = now {
                return self.without(gap, line, error).await;
            }
            tracing::info!(
                size,
                later = later.len(),
                "an audit sink is given less at once"
            );
            self.room.refused(size, Instant::now());
            count = self.room.fitting(gap.len(), sizes()).min(count - 1);
        }
    }

    /// One that is refused alone as too large: its place is told, so that those behind it go on. The hub keeps it.
    async fn without(&mut self, gap: &str, line: &Line, refused: anyhow::Error) -> Result<i64> {
        let (record, bytes) = (line.seq, line.text.len());
        if bytes <= SMALL {
            return Err(refused);
        }
        let text = format!(
            "{gap}{}",
            self::gap(record, record, "the sink refuses it as too large")
        );
        self.sink.deliver(text, self.within).await?;
        tracing::error!(
            sink = self.sink.kind(),
            record,
            bytes,
            "the audit webhook refuses one record as too large: it was told of a gap instead; raise its limit, and read the record with 'linesman audit list'"
        );
        Ok(record)
    }
}

fn line(row: &AuditRow) -> Line {
    let mut text = serde_json::to_string(&chain::view(row)).expect("a record has string keys");
    text.push('\n');
    Line { seq: row.seq, text }
}

/// `{"anchor": {"seq", "hash", "at", "sig", "start"}}`
fn anchor_line(anchor: &Anchor) -> Line {
    let text = json!({"anchor": {
        "seq": anchor.seq,
        "hash": keys::hex(&anchor.hash),
        "at": anchor.at,
        "sig": keys::encode(&anchor.sig),
        "start": anchor.start,
    }});
    Line {
        seq: anchor.seq,
        text: format!("{text}\n"),
    }
}

/// `there` is the first record from that number on. Retention may have removed this one, and never the last of all.
fn is_lost(sent: &AuditRow, there: Option<&AuditRow>) -> bool {
    there.is_none_or(|row| row.seq == sent.seq && row.hash != sent.hash)
}

/// What the sink does not get.
fn gap(from: i64, to: i64, reason: &str) -> String {
    let gap = json!({"gap": { "from": from, "to": to, "reason": reason }});
    format!("{gap}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_has_the_number_of_the_one_that_was_delivered_is_another() {
        let sent = AuditRow {
            seq: 3,
            hash: [3; 32],
            ..AuditRow::event(1)
        };
        let other = AuditRow {
            hash: [4; 32],
            ..sent.clone()
        };
        let behind = AuditRow {
            seq: 9,
            ..other.clone()
        };
        let there = [
            (Some(&sent), false),
            (Some(&other), true),
            (Some(&behind), false),
            (None, true),
        ];
        for (there, lost) in there {
            assert_eq!(is_lost(&sent, there), lost, "{there:?}");
        }
    }
}

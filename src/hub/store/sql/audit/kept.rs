//! How much of the audit chain is kept: its age and size, its anchors, what was removed, and how far sinks have come.

use sqlx::FromRow;
use time::OffsetDateTime;

use super::super::{Database, Write, db, hash32, to_ms};
use super::{Row, append, end};
use crate::hub::audit::chain::{self, Head};
use crate::hub::store::{Anchor, AuditRow, Pruned, Result};

#[derive(FromRow)]
struct AnchorRow {
    seq: i64,
    hash: Vec<u8>,
    at: i64,
    sig: Vec<u8>,
    start: bool,
}

const ANCHORS: &str = "read the audit's anchors";

impl AnchorRow {
    fn anchor(self) -> Result<Anchor> {
        Ok(Anchor {
            hash: hash32(ANCHORS, &self.hash)?,
            seq: self.seq,
            at: self.at,
            sig: self.sig,
            start: self.start,
        })
    }
}

#[derive(FromRow)]
struct Running {
    #[sqlx(flatten)]
    row: Row,
    writer: Option<String>,
}

impl Database {
    /// The last of the records before the first that is not older than `at`. Numbers do not rise with the time everywhere: a clock that
    /// was wrong once left one of years ago behind those of today, and makes none of them old.
    pub async fn audit_before(&self, at: OffsetDateTime) -> Result<i64> {
        // Along the numbers, over what is to go and no further. The plus keeps both databases from the index of times, in which they may
        // look through all that is young, which is nearly all that there is, for the least of its numbers.
        const OLD: &str = "SELECT coalesce(
             (SELECT seq - 1 FROM audit WHERE +at >= $1 ORDER BY seq LIMIT 1), (SELECT max(seq) FROM audit), 0)";
        sqlx::query_scalar(OLD)
            .bind(to_ms(at))
            .fetch_one(&self.readers)
            .await
            .map_err(db("read the audit chain"))
    }

    pub async fn audit_over(&self, bytes: u64) -> Result<i64> {
        const DOING: &str = "measure the audit chain";
        const ENDS: &str = "SELECT (SELECT min(seq) FROM audit), (SELECT max(seq) FROM audit)";
        const BEFORE: &str = "SELECT before FROM audit WHERE seq >= $1 ORDER BY seq LIMIT 1";
        let mut reader = self.readers.acquire().await.map_err(db(DOING))?;
        let over = end(&mut reader, DOING).await?;
        let over = over.saturating_sub_unsigned(bytes);
        let ends: (Option<i64>, Option<i64>) = sqlx::query_as(ENDS)
            .fetch_one(&mut *reader)
            .await
            .map_err(db(DOING))?;
        let (Some(first), Some(last)) = ends else {
            return Ok(0);
        };
        // The first record with enough before it, of `kept` to `end`: what is before one rises with its number.
        let (mut kept, mut end) = (first, last + 1);
        while kept < end {
            let middle = kept + (end - kept) / 2;
            let before: Option<i64> = sqlx::query_scalar(BEFORE)
                .bind(middle)
                .fetch_optional(&mut *reader)
                .await
                .map_err(db(DOING))?;
            if before.is_some_and(|before| before < over) {
                kept = middle + 1;
            } else {
                end = middle;
            }
        }
        Ok(kept - 1)
    }

    pub async fn audit_anchors(&self) -> Result<Vec<Anchor>> {
        let rows: Vec<AnchorRow> = sqlx::query_as("SELECT * FROM audit_anchor ORDER BY seq")
            .fetch_all(&self.readers)
            .await
            .map_err(db(ANCHORS))?;
        rows.into_iter().map(AnchorRow::anchor).collect()
    }

    pub async fn audit_anchors_between(
        &self,
        after: i64,
        up_to: i64,
        limit: u32,
    ) -> Result<Vec<Anchor>> {
        const BETWEEN: &str =
            "SELECT * FROM audit_anchor WHERE seq > $1 AND seq <= $2 ORDER BY seq LIMIT $3";
        let rows: Vec<AnchorRow> = sqlx::query_as(BETWEEN)
            .bind(after)
            .bind(up_to)
            .bind(i64::from(limit))
            .fetch_all(&self.readers)
            .await
            .map_err(db(ANCHORS))?;
        rows.into_iter().map(AnchorRow::anchor).collect()
    }

    pub async fn add_audit_anchor(&self, anchor: &Anchor) -> Result<()> {
        const DOING: &str = "anchor the audit";
        let mut write = self.begin(DOING).await?;
        insert(&mut write, anchor).await?;
        write.commit(DOING).await
    }

    pub async fn sign_audit_start(&self, anchor: &Anchor) -> Result<()> {
        let statement = sqlx::query(
            "UPDATE audit_anchor SET sig = $1 WHERE seq = $2 AND hash = $3 AND start = $4",
        )
        .bind(&anchor.sig)
        .bind(anchor.seq)
        .bind(anchor.hash.as_slice())
        .bind(true);
        let doing = "sign the audit's beginning";
        self.change(doing, statement).await.map(drop)
    }

    pub async fn prune_audit(&self, anchor: &Anchor) -> Result<Pruned> {
        const DOING: &str = "prune the audit";
        const RUNNING: &str = "SELECT * FROM audit o WHERE seq <= $1 AND stage = 'open'
             AND NOT EXISTS (SELECT 1 FROM audit c WHERE c.opened = o.seq) ORDER BY seq";
        let mut write = self.begin_audit(DOING).await?;
        let running: Vec<Running> = sqlx::query_as(RUNNING)
            .bind(anchor.seq)
            .fetch_all(&mut *write.tx)
            .await
            .map_err(db(DOING))?;
        sqlx::query("DELETE FROM audit_anchor WHERE seq <= $1")
            .bind(anchor.seq)
            .execute(&mut *write.tx)
            .await
            .map_err(db(DOING))?;
        insert(&mut write, anchor).await?;
        let done = sqlx::query("DELETE FROM audit WHERE seq <= $1")
            .bind(anchor.seq)
            .execute(&mut *write.tx)
            .await
            .map_err(db(DOING))?;
        // Whatever was known of the end is not so any more, should this commit or not.
        self.audit_end.forget();
        let carried = carry(&mut write, running, anchor.at).await?;
        write.commit(DOING).await?;
        Ok(Pruned {
            removed: done.rows_affected(),
            carried,
        })
    }

    pub async fn audit_position(&self, sink: &str) -> Result<Option<i64>> {
        sqlx::query_scalar("SELECT seq FROM audit_sink WHERE name = $1")
            .bind(sink)
            .fetch_optional(&self.readers)
            .await
            .map_err(db("read a sink's position"))
    }

    pub async fn set_audit_position(&self, sink: &str, seq: i64) -> Result<()> {
        const DOING: &str = "keep a sink's position";
        // A replica that was sending when another went on with it knows of less.
        const FORWARD: &str = "INSERT INTO audit_sink (name, seq) VALUES ($1, $2)
             ON CONFLICT (name) DO UPDATE SET seq = excluded.seq WHERE excluded.seq > audit_sink.seq";
        let statement = sqlx::query(FORWARD).bind(sink).bind(seq);
        self.change_row(DOING, statement).await.map(drop)
    }

    pub async fn audit_sinks(&self) -> Result<Vec<String>> {
        sqlx::query_scalar("SELECT name FROM audit_sink ORDER BY name")
            .fetch_all(&self.readers)
            .await
            .map_err(db("read the audit's sinks"))
    }

    pub async fn rename_audit_sink(&self, from: &str, to: &str) -> Result<()> {
        const DOING: &str = "rename a sink";
        const TAKE: &str = "INSERT INTO audit_sink (name, seq) SELECT $1, seq FROM audit_sink WHERE name = $2
             ON CONFLICT (name) DO UPDATE SET seq = excluded.seq WHERE excluded.seq > audit_sink.seq";
        if from == to {
            return Ok(());
        }
        let mut write = self.begin(DOING).await?;
        sqlx::query(TAKE)
            .bind(to)
            .bind(from)
            .execute(&mut *write.tx)
            .await
            .map_err(db(DOING))?;
        sqlx::query("DELETE FROM audit_sink WHERE name = $1")
            .bind(from)
            .execute(&mut *write.tx)
            .await
            .map_err(db(DOING))?;
        write.commit(DOING).await
    }
}

/// Writes what still runs at the chain's end again; each row stays its writer's.
async fn carry(write: &mut Write, running: Vec<Running>, at: i64) -> Result<Vec<AuditRow>> {
    const DOING: &str = "carry running audit records on";
    const LAST: &str = "SELECT * FROM audit ORDER BY seq DESC LIMIT 1";
    let mut carried = Vec::with_capacity(running.len());
    if running.is_empty() {
        return Ok(carried);
    }
    let last: Row = sqlx::query_as(LAST)
        .fetch_one(&mut *write.tx)
        .await
        .map_err(db(DOING))?;
    let last = last.row()?;
    let mut head = Head {
        seq: last.seq,
        hash: last.hash,
    };
    let mut before = end(&mut write.tx, DOING).await?;
    for Running { row, writer } in running {
        let mut row = chain::carried(row.row()?, at);
        head = chain::link(head, &mut row);
        let rows = std::slice::from_ref(&row);
        before = append(&mut write.tx, rows, (before, writer.as_deref()), DOING).await?;
        carried.push(row);
    }
    Ok(carried)
}

async fn insert(write: &mut Write, anchor: &Anchor) -> Result<()> {
    // An anchor that stands already was signed earlier, which says more.
    sqlx::query(
        "INSERT INTO audit_anchor (seq, hash, at, sig, start) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING",
    )
    .bind(anchor.seq)
    .bind(anchor.hash.as_slice())
    .bind(anchor.at)
    .bind(&anchor.sig)
    .bind(anchor.start)
    .execute(&mut *write.tx)
    .await
    .map_err(db("anchor the audit"))?;
    Ok(())
}

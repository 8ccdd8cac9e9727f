//! How much of the audit chain is kept: its age and size, its anchors, what was removed, and how far sinks have come.

use sqlx::FromRow;
use time::OffsetDateTime;

use super::super::{Database, Write, db, hash32, to_ms};
use super::end;
use crate::hub::store::{Anchor, Result};

#[derive(FromRow)]
struct AnchorRow {
    seq: i64,
    hash: Vec<u8>,
    at: i64,
    sig: Vec<u8>,
    start: bool,
}

impl Database {
    pub async fn audit_before(&self, at: OffsetDateTime) -> Result<i64> {
        let seq: Option<i64> = sqlx::query_scalar("SELECT max(seq) FROM audit WHERE at < $1")
            .bind(to_ms(at))
            .fetch_one(&self.readers)
            .await
            .map_err(db("read the audit chain"))?;
        Ok(seq.unwrap_or(0))
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
        const DOING: &str = "read the audit's anchors";
        let rows: Vec<AnchorRow> = sqlx::query_as("SELECT * FROM audit_anchor ORDER BY seq")
            .fetch_all(&self.readers)
            .await
            .map_err(db(DOING))?;
        let anchor = |row: AnchorRow| {
            Ok(Anchor {
                hash: hash32(DOING, &row.hash)?,
                seq: row.seq,
                at: row.at,
                sig: row.sig,
                start: row.start,
            })
        };
        rows.into_iter().map(anchor).collect()
    }

    pub async fn add_audit_anchor(&self, anchor: &Anchor) -> Result<()> {
        const DOING: &str = "anchor the audit";
        let mut write = self.begin(DOING).await?;
        insert(&mut write, anchor).await?;
        write.commit(DOING).await
    }

    pub async fn prune_audit(&self, anchor: &Anchor) -> Result<u64> {
        const DOING: &str = "prune the audit";
        let mut write = self.begin(DOING).await?;
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
        write.commit(DOING).await?;
        Ok(done.rows_affected())
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
        let statement = sqlx::query(
            "INSERT INTO audit_sink (name, seq) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET seq = $2",
        )
        .bind(sink)
        .bind(seq);
        self.change_row(DOING, statement).await.map(drop)
    }
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

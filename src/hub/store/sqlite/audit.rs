//! The audit chain's rows.

use sqlx::FromRow;

use super::{Sqlite, db, hash32};
use crate::hub::store::{AuditRow, Result};

#[derive(FromRow)]
struct Row {
    seq: i64,
    at: i64,
    stage: String,
    actor: String,
    action: String,
    cluster: Option<String>,
    target: String,
    request_id: String,
    verdict: String,
    reason: Option<String>,
    opened: Option<i64>,
    code: Option<u16>,
    bytes: Option<i64>,
    millis: Option<i64>,
    remote: String,
    prev: Vec<u8>,
    hash: Vec<u8>,
}

impl Row {
    fn row(self) -> Result<AuditRow> {
        const DOING: &str = "read an audit record";
        Ok(AuditRow {
            prev: hash32(DOING, &self.prev)?,
            hash: hash32(DOING, &self.hash)?,
            seq: self.seq,
            at: self.at,
            stage: self.stage,
            actor: self.actor,
            action: self.action,
            cluster: self.cluster,
            target: self.target,
            request_id: self.request_id,
            verdict: self.verdict,
            reason: self.reason,
            opened: self.opened,
            code: self.code,
            bytes: self.bytes.map(i64::unsigned_abs),
            millis: self.millis.map(i64::unsigned_abs),
            remote: self.remote,
        })
    }
}

impl Sqlite {
    pub async fn append_audit(&self, rows: &[AuditRow]) -> Result<()> {
        const DOING: &str = "append audit records";
        let _lock = self.write.lock().await;
        let mut tx = self
            .audit
            .begin_with("BEGIN IMMEDIATE")
            .await
            .map_err(db(DOING))?;
        for row in rows {
            sqlx::query(
                "INSERT INTO audit (seq, at, stage, actor, action, cluster, target, request_id, verdict, reason, opened,
                   code, bytes, millis, remote, prev, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            )
            .bind(row.seq)
            .bind(row.at)
            .bind(&row.stage)
            .bind(&row.actor)
            .bind(&row.action)
            .bind(&row.cluster)
            .bind(&row.target)
            .bind(&row.request_id)
            .bind(&row.verdict)
            .bind(&row.reason)
            .bind(row.opened)
            .bind(row.code)
            .bind(row.bytes.map(u64::cast_signed))
            .bind(row.millis.map(u64::cast_signed))
            .bind(&row.remote)
            .bind(row.prev.as_slice())
            .bind(row.hash.as_slice())
            .execute(&mut *tx)
            .await
            .map_err(db(DOING))?;
        }
        tx.commit().await.map_err(db(DOING))
    }

    pub async fn audit_head(&self) -> Result<Option<AuditRow>> {
        let row: Option<Row> = sqlx::query_as("SELECT * FROM audit ORDER BY seq DESC LIMIT 1")
            .fetch_optional(&self.readers)
            .await
            .map_err(db("read the audit chain"))?;
        row.map(Row::row).transpose()
    }

    pub async fn audit_open(&self) -> Result<Vec<AuditRow>> {
        let rows: Vec<Row> = sqlx::query_as(
            "SELECT * FROM audit o WHERE stage = 'open'
             AND NOT EXISTS (SELECT 1 FROM audit c WHERE c.opened = o.seq) ORDER BY seq",
        )
        .fetch_all(&self.readers)
        .await
        .map_err(db("read open audit records"))?;
        rows.into_iter().map(Row::row).collect()
    }

    pub async fn audit(
        &self,
        after: i64,
        cluster: Option<&str>,
        limit: u32,
    ) -> Result<Vec<AuditRow>> {
        let rows: Vec<Row> = sqlx::query_as(
            "SELECT * FROM audit WHERE seq > ?1 AND (?2 IS NULL OR cluster = ?2) ORDER BY seq LIMIT ?3",
        )
        .bind(after)
        .bind(cluster)
        .bind(limit)
        .fetch_all(&self.readers)
        .await
        .map_err(db("read the audit chain"))?;
        rows.into_iter().map(Row::row).collect()
    }

    pub async fn audit_tail(&self, cluster: Option<&str>, limit: u32) -> Result<Vec<AuditRow>> {
        let rows: Vec<Row> = sqlx::query_as(
            "SELECT * FROM audit WHERE ?1 IS NULL OR cluster = ?1 ORDER BY seq DESC LIMIT ?2",
        )
        .bind(cluster)
        .bind(limit)
        .fetch_all(&self.readers)
        .await
        .map_err(db("read the audit chain"))?;
        rows.into_iter().rev().map(Row::row).collect()
    }
}

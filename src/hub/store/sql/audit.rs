//! The audit chain's rows: appended, and read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use sqlx::FromRow;

use super::super::lines;
use super::{Connection, Database, Db, corrupt, db, hash32, in_time, to_json};
use crate::hub::audit::chain::{self, Head};
use crate::hub::store::{AuditRow, Result};

mod asked;
mod kept;

/// Bytes of all records that ever were, as far as they were counted.
async fn end(connection: &mut Connection, doing: &'static str) -> Result<i64> {
    const LAST: &str = "SELECT * FROM audit ORDER BY seq DESC LIMIT 1";
    const BEFORE: &str = "SELECT before FROM audit WHERE seq = $1";
    let last: Option<Row> = sqlx::query_as(LAST)
        .fetch_optional(&mut *connection)
        .await
        .map_err(db(doing))?;
    let Some(last) = last.map(Row::row).transpose()? else {
        return Ok(0);
    };
    let before: i64 = sqlx::query_scalar(BEFORE)
        .bind(last.seq)
        .fetch_one(&mut *connection)
        .await
        .map_err(db(doing))?;
    Ok(before.saturating_add_unsigned(chain::size(&last)))
}

/// Where this process's last batch ended: the number of its last record, and the bytes of all up to that one. Nothing
/// is known after a batch that may not be stored.
#[derive(Clone, Default)]
pub(in crate::hub::store) struct End(Arc<Mutex<Option<(i64, i64)>>>);

impl End {
    fn take(&self, seq: i64) -> Option<i64> {
        let known = self.0.lock().ok()?.take();
        known.and_then(|(last, bytes)| (last == seq).then_some(bytes))
    }

    fn forget(&self) {
        if let Ok(mut known) = self.0.lock() {
            *known = None;
        }
    }

    fn put(&self, seq: i64, bytes: i64) {
        if let Ok(mut known) = self.0.lock() {
            *known = Some((seq, bytes));
        }
    }
}

/// Lines that are made at once, and the bytes of an answer from which on no more are.
const LINES_STEP: i64 = 200;
const LINES_BYTES: usize = 4 << 20;

#[derive(FromRow)]
struct Row {
    seq: i64,
    at: i64,
    stage: String,
    actor: String,
    action: String,
    // A copy of a database from before this column can still be verified.
    #[sqlx(default)]
    acted_as: Option<String>,
    cluster: Option<String>,
    target: String,
    #[sqlx(default)]
    container: Option<String>,
    #[sqlx(default)]
    command: Option<String>,
    #[sqlx(default)]
    ports: Option<String>,
    request_id: String,
    verdict: String,
    reason: Option<String>,
    opened: Option<i64>,
    code: Option<i64>,
    #[sqlx(default)]
    exit: Option<i64>,
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
            acted_as: self.acted_as,
            cluster: self.cluster,
            target: self.target,
            container: self.container,
            command: self.command,
            ports: self.ports,
            request_id: self.request_id,
            verdict: self.verdict,
            reason: self.reason,
            opened: self.opened,
            code: self
                .code
                .map(u16::try_from)
                .transpose()
                .map_err(corrupt(DOING))?,
            exit: self
                .exit
                .map(i32::try_from)
                .transpose()
                .map_err(corrupt(DOING))?,
            bytes: self.bytes.map(i64::unsigned_abs),
            millis: self.millis.map(i64::unsigned_abs),
            remote: self.remote,
        })
    }
}

/// Records that go with one statement: these, or any number up to those, so that few statements are kept prepared.
const TOGETHER: usize = 64;
const ANY: usize = 32;

fn together(rows: &[AuditRow]) -> usize {
    match rows.len() {
        TOGETHER.. => TOGETHER,
        few => few.min(ANY),
    }
}

async fn append(
    connection: &mut Connection,
    mut rows: &[AuditRow],
    (mut before, writer): (i64, Option<&str>),
    doing: &'static str,
) -> Result<i64> {
    const INTO: &str = "INSERT INTO audit (seq, at, stage, actor, action, acted_as, cluster, target, container, command, ports, request_id,
           verdict, reason, opened, code, exit, bytes, millis, remote, prev, hash, before, writer) ";
    while !rows.is_empty() {
        let (some, later) = rows.split_at(together(rows));
        let mut insert = sqlx::QueryBuilder::<Db>::new(INTO);
        insert.push_values(some, |mut values, row| {
            values
                .push_bind(row.seq)
                .push_bind(row.at)
                .push_bind(&row.stage)
                .push_bind(&row.actor)
                .push_bind(&row.action)
                .push_bind(&row.acted_as)
                .push_bind(&row.cluster)
                .push_bind(&row.target)
                .push_bind(&row.container)
                .push_bind(&row.command)
                .push_bind(&row.ports)
                .push_bind(&row.request_id)
                .push_bind(&row.verdict)
                .push_bind(&row.reason)
                .push_bind(row.opened)
                .push_bind(row.code.map(i64::from))
                .push_bind(row.exit.map(i64::from))
                .push_bind(row.bytes.map(u64::cast_signed))
                .push_bind(row.millis.map(u64::cast_signed))
                .push_bind(&row.remote)
                .push_bind(row.prev.as_slice())
                .push_bind(row.hash.as_slice())
                .push_bind(before)
                .push_bind(writer);
            before = before.saturating_add_unsigned(chain::size(row));
        });
        let insert = insert.build().execute(&mut *connection).await;
        insert.map_err(db(doing))?;
        rows = later;
    }
    Ok(before)
}

/// Which of the opens that these rows close are closed. A close whose open was carried on names it where that stands now.
async fn closed(
    connection: &mut Connection,
    rows: &mut [AuditRow],
    doing: &'static str,
) -> Result<BTreeSet<i64>> {
    const NAMED: &str = concat!(
        "SELECT opened, seq, stage FROM audit WHERE opened IN ",
        each_number!("$1")
    );
    let mut closed = BTreeSet::new();
    let mut asked: Vec<i64> = rows.iter().filter_map(|row| row.opened).collect();
    while !asked.is_empty() {
        let named: Vec<(i64, i64, String)> = sqlx::query_as(NAMED)
            .bind(to_json(&asked))
            .fetch_all(&mut *connection)
            .await
            .map_err(db(doing))?;
        asked.clear();
        for (opened, seq, stage) in named {
            if stage != "open" {
                closed.insert(opened);
                continue;
            }
            for row in rows.iter_mut().filter(|row| row.opened == Some(opened)) {
                row.opened = Some(seq);
            }
            asked.push(seq);
        }
    }
    Ok(closed)
}

/// Closes whose opens the database lost name none: by what they name another request began, or will. `last` is the number of the
/// last record.
async fn orphan(
    connection: &mut Connection,
    rows: &mut [AuditRow],
    last: i64,
    doing: &'static str,
) -> Result<()> {
    const NAMED: &str = concat!(
        "SELECT seq, stage, request_id FROM audit WHERE seq IN ",
        each_number!("$1")
    );
    let asked: Vec<i64> = rows.iter().filter_map(|row| row.opened).collect();
    if asked.is_empty() {
        return Ok(());
    }
    let named: Vec<(i64, String, String)> = sqlx::query_as(NAMED)
        .bind(to_json(&asked))
        .fetch_all(&mut *connection)
        .await
        .map_err(db(doing))?;
    let named = named.into_iter().map(|(seq, stage, id)| (seq, (stage, id)));
    let named: BTreeMap<i64, (String, String)> = named.collect();
    for row in rows {
        let Some(opened) = row.opened else { continue };
        let its_own = match named.get(&opened) {
            Some((stage, request_id)) => stage == "open" && *request_id == row.request_id,
            // Retention removes an open only where it is closed.
            None => opened <= last,
        };
        if !its_own {
            chain::orphan(row);
        }
    }
    Ok(())
}

impl Database {
    pub async fn append_audit(&self, rows: &[AuditRow]) -> Result<()> {
        const DOING: &str = "append audit records";
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
            return Ok(());
        };
        let behind = Head {
            seq: first.seq - 1,
            hash: first.prev,
        };
        let known = self.audit_end.take(behind.seq);
        let after = if let Some(before) = known
            && together(rows) == rows.len()
        {
            let mut alone = self.audit_alone(behind, DOING).await?;
            let after = append(alone.connection(), rows, (before, None), DOING).await?;
            alone.done(DOING).await?;
            after
        } else {
            let mut write = self.begin_audit_behind(behind, DOING).await?;
            let before = match known {
                Some(before) => before,
                None => end(&mut write.tx, DOING).await?,
            };
            let after = append(&mut write.tx, rows, (before, None), DOING).await?;
            write.commit(DOING).await?;
            after
        };
        self.audit_end.put(last.seq, after);
        Ok(())
    }

    pub async fn extend_audit(
        &self,
        floor: Head,
        rows: &mut [AuditRow],
        writer: &str,
    ) -> Result<()> {
        const DOING: &str = "extend the audit chain";
        const LAST: &str = "SELECT seq, hash FROM audit ORDER BY seq DESC LIMIT 1";
        // What an earlier try made of them says nothing any more.
        for row in rows.iter_mut() {
            row.seq = 0;
        }
        let mut write = self.begin_audit(DOING).await?;
        let before = end(&mut write.tx, DOING).await?;
        let last: Option<(i64, Vec<u8>)> = sqlx::query_as(LAST)
            .fetch_optional(&mut *write.tx)
            .await
            .map_err(db(DOING))?;
        let mut head = match last {
            Some((seq, hash)) => Head {
                seq,
                hash: hash32(DOING, &hash)?,
            },
            None => floor,
        };
        let mut closed = closed(&mut write.tx, rows, DOING).await?;
        orphan(&mut write.tx, rows, head.seq, DOING).await?;
        let mut new = Vec::with_capacity(rows.len());
        for row in rows.iter_mut() {
            if row.opened.is_some_and(|opened| closed.contains(&opened)) {
                continue;
            }
            head = chain::link(head, row);
            // What was not stored at once may be owed twice.
            closed.extend(row.opened);
            new.push(row.clone());
        }
        append(&mut write.tx, &new, (before, Some(writer)), DOING).await?;
        write.commit(DOING).await
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

    pub async fn audit_abandoned(&self) -> Result<Vec<AuditRow>> {
        let rows: Vec<Row> = sqlx::query_as(
            "SELECT * FROM audit o WHERE stage = 'open'
             AND NOT EXISTS (SELECT 1 FROM audit c WHERE c.opened = o.seq)
             AND NOT EXISTS (SELECT 1 FROM replica r WHERE r.id = o.writer) ORDER BY seq",
        )
        .fetch_all(&self.readers)
        .await
        .map_err(db("read abandoned audit records"))?;
        rows.into_iter().map(Row::row).collect()
    }

    pub async fn audit_settled(&self, seq: i64) -> Result<Option<AuditRow>> {
        const DOING: &str = "read an audit record in doubt";
        let mut write = self.begin_audit(DOING).await?;
        let row: Option<Row> = sqlx::query_as("SELECT * FROM audit WHERE seq = $1")
            .bind(seq)
            .fetch_optional(&mut *write.tx)
            .await
            .map_err(db(DOING))?;
        row.map(Row::row).transpose()
    }

    pub async fn audit_lines(&self, after: i64, limit: u32) -> Result<Vec<u8>> {
        const DOING: &str = "read the audit chain";
        let mut reader = self.audit_reader(DOING).await?;
        let reader = reader.connection();
        let statement = lines::statement(&mut *reader).await.map_err(db(DOING))?;
        let (mut lines, mut after, mut left) = (Vec::new(), after, i64::from(limit));
        while left > 0 && lines.len() < LINES_BYTES {
            let (text, count, last): (Option<Vec<u8>>, i64, Option<i64>) =
                sqlx::query_as(statement)
                    .bind(after)
                    .bind(left.min(LINES_STEP))
                    .fetch_one(&mut *reader)
                    .await
                    .map_err(in_time(DOING))?;
            let (Some(text), Some(last)) = (text, last) else {
                break;
            };
            lines.extend_from_slice(&text);
            lines.push(b'\n');
            (after, left) = (last, left - count);
        }
        Ok(lines)
    }
}

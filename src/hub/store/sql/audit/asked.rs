//! Records that somebody asks for: by number, by who, where and how, and by time.

use super::super::{Connection, Database, Db, db, in_time};
use super::Row;
use crate::hub::store::{AuditQuery, AuditRow, Result};

const READ: &str = "read the audit chain";
/// Records since some time that are looked at to find the first of them.
const LATELY: i64 = 65_536;

/// Where the records begin that are not older than some time.
enum Since {
    Nothing,
    /// None before this number.
    From(i64),
    /// The next one is of that time already.
    There,
    /// There are so many that those who look will find theirs before they leave them.
    LongAgo,
}

/// By the index of times. Numbers do not rise with the time everywhere: clocks are set, and replicas have their own.
async fn since_when(connection: &mut Connection, (after, since): (i64, i64)) -> Result<Since> {
    const NEXT: &str = "SELECT at FROM audit WHERE seq > $1 ORDER BY seq LIMIT 1";
    const FIRST: &str = "SELECT min(seq), count(*) FROM
         (SELECT seq FROM audit WHERE at >= $1 ORDER BY at LIMIT $2) AS lately";
    let next: Option<i64> = sqlx::query_scalar(NEXT)
        .bind(after)
        .fetch_optional(&mut *connection)
        .await
        .map_err(in_time(READ))?;
    match next {
        None => return Ok(Since::Nothing),
        Some(at) if at >= since => return Ok(Since::There),
        Some(_) => {}
    }
    let (first, count): (Option<i64>, i64) = sqlx::query_as(FIRST)
        .bind(since)
        .bind(LATELY)
        .fetch_one(connection)
        .await
        .map_err(in_time(READ))?;
    Ok(match first {
        None => Since::Nothing,
        Some(first) if count < LATELY => Since::From(first),
        Some(_) => Since::LongAgo,
    })
}

impl Database {
    pub async fn audit(
        &self,
        after: i64,
        cluster: Option<&str>,
        limit: u32,
    ) -> Result<Vec<AuditRow>> {
        let query = AuditQuery {
            after: Some(after),
            cluster: cluster.map(str::to_owned),
            limit,
            ..AuditQuery::default()
        };
        self.audit_rows(&query).await
    }

    pub async fn audit_tail(&self, cluster: Option<&str>, limit: u32) -> Result<Vec<AuditRow>> {
        let query = AuditQuery {
            cluster: cluster.map(str::to_owned),
            newest: true,
            limit,
            ..AuditQuery::default()
        };
        let mut rows = self.audit_rows(&query).await?;
        rows.reverse();
        Ok(rows)
    }

    /// The statement of a query: only what narrows is in it, so that the database can go by an index.
    pub(in crate::hub::store) fn audit_select(query: &AuditQuery) -> sqlx::QueryBuilder<Db> {
        let mut select = sqlx::QueryBuilder::<Db>::new("SELECT * FROM audit WHERE seq > ");
        select.push_bind(query.after.unwrap_or(0));
        let texts = [
            (" AND actor = ", &query.actor),
            (" AND cluster = ", &query.cluster),
            (" AND verdict = ", &query.verdict),
        ];
        for (condition, text) in texts {
            if let Some(text) = text {
                select.push(condition).push_bind(text.clone());
            }
        }
        let numbers = [
            (" AND seq < ", query.before),
            (" AND at >= ", query.since),
            (" AND at < ", query.until),
        ];
        for (condition, number) in numbers {
            if let Some(number) = number {
                select.push(condition).push_bind(number);
            }
        }
        let order = if query.newest { "DESC " } else { "" };
        select.push(format!(" ORDER BY seq {order}LIMIT "));
        select.push_bind(i64::from(query.limit));
        select
    }

    pub async fn audit_query(&self, query: &AuditQuery) -> Result<Vec<AuditRow>> {
        let mut reader = self.audit_reader(READ).await?;
        let mut query = query.clone();
        if let Some(since) = query.since {
            let after = query.after.unwrap_or(0);
            match since_when(reader.connection(), (after, since)).await? {
                Since::Nothing => return Ok(Vec::new()),
                Since::From(first) => query.after = Some(after.max(first - 1)),
                Since::There | Since::LongAgo => {}
            }
        }
        let rows: Vec<Row> = Self::audit_select(&query)
            .build_query_as()
            .fetch_all(reader.connection())
            .await
            .map_err(in_time(READ))?;
        rows.into_iter().map(Row::row).collect()
    }

    /// The same for the hub itself, which waits for no reader of the record; by number only.
    async fn audit_rows(&self, query: &AuditQuery) -> Result<Vec<AuditRow>> {
        let rows: Vec<Row> = Self::audit_select(query)
            .build_query_as()
            .fetch_all(&self.readers)
            .await
            .map_err(db(READ))?;
        rows.into_iter().map(Row::row).collect()
    }
}

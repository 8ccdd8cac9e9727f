//! Records that somebody asks for: by number, by who, where and how, and by time.

use super::super::{Connection, Database, Db, db, in_time};
use super::Row;
use crate::hub::store::{
    AuditPage, AuditQuery, AuditRow, AuditWrites, DRY_RUN, LOOKED_AT, OfAction, Result,
};

const READ: &str = "read the audit chain";
/// Records since some time that are looked at to find the first of them.
const LATELY: i64 = 65_536;
/// By so many milliseconds the clocks of replicas may differ: numbers of one time begin and end so much beside it.
const ASTRAY: i64 = 60_000;

/// Where the records begin that are not older than some time.
enum Since {
    Nothing,
    /// None before this number.
    From(i64),
    /// The next one is of that time already.
    There,
    /// There are so many that those who look will find theirs before they leave them; so many of the first of them begin at
    /// this number.
    LongAgo(i64),
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
        Some(first) => Since::LongAgo(first),
    })
}

/// Of refusals there is an index, which a bound text would not be known to go by; those of actors and clusters tell more apart.
fn push_verdict(select: &mut sqlx::QueryBuilder<Db>, query: &AuditQuery) {
    let alone = query.actor.is_none() && query.cluster.is_none();
    match query.verdict.as_deref() {
        None => {}
        Some("deny") if alone => drop(select.push(" AND verdict = 'deny'")),
        Some(other) => drop(select.push(" AND verdict = ").push_bind(other.to_owned())),
    }
}

/// One of these stages. No index knows them: each is that of many records.
fn push_stages(select: &mut sqlx::QueryBuilder<Db>, stages: &[String]) {
    for (n, stage) in stages.iter().enumerate() {
        select.push(if n == 0 { " AND stage IN (" } else { ", " });
        select.push_bind(stage.clone());
    }
    if !stages.is_empty() {
        select.push(")");
    }
}

/// One of these actions. No index knows them, which each record would have to be written into.
fn push_actions(select: &mut sqlx::QueryBuilder<Db>, actions: &[OfAction]) {
    for (n, action) in actions.iter().enumerate() {
        select.push(if n == 0 { " AND (" } else { " OR " });
        match action {
            OfAction::Only(name) => select.push("action = ").push_bind(name.clone()),
            // LIKE knows no case with SQLite.
            OfAction::Below(begin) => select
                .push(format!("substr(action, 1, {}) = ", begin.chars().count()))
                .push_bind(begin.clone()),
        };
    }
    if !actions.is_empty() {
        select.push(")");
    }
}

/// By the path, which is all that a record has of it; behind `/apis/` wherever it stands, for a pattern counts no slashes: rather one
/// record too many. The name of a namespace has no character that is more than itself in a pattern.
fn push_namespace(select: &mut sqlx::QueryBuilder<Db>, namespace: Option<&str>) {
    let Some(name) = namespace else { return };
    let below = [
        format!("/api/v1/namespaces/{name}/%"),
        format!("/api/v1/watch/namespaces/{name}/%"),
        format!("/apis/%/namespaces/{name}/%"),
    ];
    // The namespace itself is in it, as RBAC has it.
    select
        .push(" AND (target = ")
        .push_bind(format!("/api/v1/namespaces/{name}"));
    for pattern in below {
        select.push(" OR target LIKE ").push_bind(pattern);
    }
    select.push(")");
}

/// The last record that one page looks at, in the order of the query; None = it looks at all that there are.
async fn edge(connection: &mut Connection, query: &AuditQuery) -> Result<Option<i64>> {
    let indexed = [
        query.actor.is_some(),
        query.cluster.is_some(),
        query.verdict.as_deref() == Some("deny"),
    ];
    let conditions = [
        query.actor.is_some(),
        query.cluster.is_some(),
        query.verdict.is_some(),
        !query.stages.is_empty(),
        !query.actions.is_empty(),
        query.namespace.is_some(),
        query.request.is_some(),
        query.since.is_some(),
        query.until.is_some(),
    ];
    let narrowed = conditions.into_iter().filter(|is| *is).count();
    let by_index = indexed.into_iter().any(|is| is);
    // Each record that is looked at is asked for.
    if narrowed == usize::from(by_index) {
        return Ok(None);
    }
    if by_index {
        edge_of_index(connection, query).await
    } else {
        edge_of_all(connection, query).await
    }
}

/// By one index, the narrowest that there is: of its entries, so many.
async fn edge_of_index(connection: &mut Connection, query: &AuditQuery) -> Result<Option<i64>> {
    let last = if query.newest { "min" } else { "max" };
    let mut select = sqlx::QueryBuilder::<Db>::new(format!(
        "SELECT count(*), {last}(seq) FROM (SELECT seq FROM audit WHERE seq > "
    ));
    select.push_bind(query.after.unwrap_or(0));
    match (&query.actor, &query.cluster) {
        (Some(actor), _) => drop(select.push(" AND actor = ").push_bind(actor.clone())),
        (None, Some(cluster)) => drop(select.push(" AND cluster = ").push_bind(cluster.clone())),
        (None, None) => push_verdict(&mut select, query),
    }
    if let Some(before) = query.before {
        select.push(" AND seq < ").push_bind(before);
    }
    let order = if query.newest { "DESC " } else { "" };
    select.push(format!(" ORDER BY seq {order}LIMIT "));
    select.push_bind(LOOKED_AT).push(") AS looked");
    let (count, edge): (i64, Option<i64>) = select
        .build_query_as()
        .fetch_one(connection)
        .await
        .map_err(in_time(READ))?;
    Ok(edge.filter(|_| count >= LOOKED_AT))
}

/// Numbers have no gaps, so that they need not be counted.
async fn edge_of_all(connection: &mut Connection, query: &AuditQuery) -> Result<Option<i64>> {
    const ENDS: &str = "SELECT (SELECT min(seq) FROM audit), (SELECT max(seq) FROM audit)";
    let ends: (Option<i64>, Option<i64>) = sqlx::query_as(ENDS)
        .fetch_one(connection)
        .await
        .map_err(in_time(READ))?;
    let (Some(first), Some(last)) = ends else {
        return Ok(None);
    };
    let first = first.max(query.after.unwrap_or(0).saturating_add(1));
    let last = last.min(query.before.unwrap_or(i64::MAX).saturating_sub(1));
    let edge = if query.newest {
        last.saturating_sub(LOOKED_AT - 1)
    } else {
        first.saturating_add(LOOKED_AT - 1)
    };
    Ok((first < edge && edge < last).then_some(edge))
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
        ];
        for (condition, text) in texts {
            if let Some(text) = text {
                select.push(condition).push_bind(text.clone());
            }
        }
        push_verdict(&mut select, query);
        push_stages(&mut select, &query.stages);
        push_actions(&mut select, &query.actions);
        push_namespace(&mut select, query.namespace.as_deref());
        if let Some(request) = &query.request {
            select
                .push(" AND request_id = ")
                .push_bind(request.id.clone());
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

    pub async fn audit_query(&self, query: &AuditQuery) -> Result<AuditPage> {
        let mut reader = self.audit_reader(READ).await?;
        let mut query = query.clone();
        let from = query.request.as_ref().map(|request| request.from);
        if let Some(since) = query.since.max(from) {
            let after = query.after.unwrap_or(0);
            match since_when(reader.connection(), (after, since)).await? {
                Since::Nothing => return Ok(AuditPage::default()),
                Since::From(first) => query.after = Some(after.max(first - 1)),
                // A few records are looked for, of which the first is among the first of that time.
                Since::LongAgo(first) if from == Some(since) => {
                    query.after = Some(after.max(first - 1));
                }
                Since::There | Since::LongAgo(_) => {}
            }
        }
        let edge = edge(reader.connection(), &query).await?;
        match (edge, query.newest) {
            (None, _) => {}
            (Some(edge), true) => {
                query.after = Some(query.after.map_or(edge - 1, |after| after.max(edge - 1)));
            }
            (Some(edge), false) => {
                query.before = Some(query.before.map_or(edge + 1, |before| before.min(edge + 1)));
            }
        }
        let rows: Vec<Row> = Self::audit_select(&query)
            .build_query_as()
            .fetch_all(reader.connection())
            .await
            .map_err(in_time(READ))?;
        let rows: Vec<AuditRow> = rows.into_iter().map(Row::row).collect::<Result<_>>()?;
        let full = rows.len() >= query.limit as usize;
        Ok(AuditPage {
            looked: edge.filter(|_| !full),
            rows,
        })
    }

    pub async fn audit_writes(&self, of: &AuditWrites) -> Result<Vec<AuditRow>> {
        // The index of times says where to look, and that of the cluster at what: of the others there may be many.
        const WRITES: &str = "SELECT * FROM (SELECT * FROM audit WHERE cluster = $1
               AND seq >= (SELECT min(seq) FROM (SELECT seq FROM audit WHERE at >= $2 AND at < $3 ORDER BY at LIMIT $4) AS early)
               AND seq <= (SELECT max(seq) FROM (SELECT seq FROM audit WHERE at >= $2 AND at < $3 ORDER BY at DESC LIMIT $4) AS late)
               ORDER BY seq DESC LIMIT $4) AS lately
             WHERE at >= $5 AND at < $6 AND stage = 'close' AND verdict = 'allow' AND code BETWEEN 200 AND 299
               AND (reason IS NULL OR reason <> $8)
               AND (action = 'kube.deletecollection'
                 OR (action IN ('kube.create', 'kube.update', 'kube.patch', 'kube.delete') AND target LIKE $7))
             ORDER BY at DESC, seq DESC LIMIT 500";
        let mut reader = self.audit_reader(READ).await?;
        let rows: Vec<Row> = sqlx::query_as(WRITES)
            .bind(&of.cluster)
            .bind(of.since.saturating_sub(ASTRAY))
            .bind(of.until.saturating_add(ASTRAY))
            .bind(LOOKED_AT)
            .bind(of.since)
            .bind(of.until)
            // A pattern may find more than the name.
            .bind(format!("%/{}%", of.name))
            .bind(DRY_RUN)
            .fetch_all(reader.connection())
            .await
            .map_err(in_time(READ))?;
        rows.into_iter().map(Row::row).collect()
    }

    /// A query for the hub itself, which waits for no reader of the record; by number only.
    async fn audit_rows(&self, query: &AuditQuery) -> Result<Vec<AuditRow>> {
        let rows: Vec<Row> = Self::audit_select(query)
            .build_query_as()
            .fetch_all(&self.readers)
            .await
            .map_err(db(READ))?;
        rows.into_iter().map(Row::row).collect()
    }
}

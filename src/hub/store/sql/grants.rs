//! Grants.

use std::collections::BTreeSet;

use sqlx::FromRow;
use time::OffsetDateTime;

use super::{Database, Write, corrupt, db, from_json, from_ms, to_json, to_ms};
use crate::hub::access::{Clusters, Grant, Mode, Subject};
use crate::hub::store::{Result, Revision, StoreError};
use crate::wire::api::ClusterChoice;

/// Grants that are in force at once; a subject is better a group than a thousand users.
const MOST: i64 = 10_000;
/// How long what is over can still be looked up, as many as may be in force.
const KEEP: time::Duration = time::Duration::days(30);

#[derive(FromRow)]
struct Row {
    id: String,
    subject: String,
    clusters: String,
    groups: String,
    act_as: String,
    namespaces: Option<String>,
    mode: String,
    reason: String,
    created_by: String,
    expires_at: Option<i64>,
    revoked_at: Option<i64>,
    revoked_by: Option<String>,
    created_at: i64,
    rev: i64,
}

fn act_as(doing: &'static str, text: &str) -> Result<BTreeSet<Subject>> {
    let names: Vec<String> = from_json(doing, text)?;
    let subjects = names
        .iter()
        .map(|name| name.parse().map_err(corrupt(doing)));
    subjects.collect()
}

impl Row {
    fn grant(self) -> Result<Grant> {
        const DOING: &str = "read a grant";
        let choice: ClusterChoice = from_json(DOING, &self.clusters)?;
        Ok(Grant {
            subject: self.subject.parse().map_err(corrupt(DOING))?,
            clusters: Clusters::try_from(choice).map_err(corrupt(DOING))?,
            groups: from_json(DOING, &self.groups)?,
            act_as: act_as(DOING, &self.act_as)?,
            namespaces: self
                .namespaces
                .map(|text| from_json(DOING, &text))
                .transpose()?,
            mode: if self.mode == "read" {
                Mode::Read
            } else {
                Mode::Full
            },
            expires_at: self.expires_at.map(from_ms),
            revoked_at: self.revoked_at.map(from_ms),
            revoked_by: self.revoked_by,
            created_at: from_ms(self.created_at),
            id: self.id,
            reason: self.reason,
            created_by: self.created_by,
            rev: self.rev,
        })
    }
}

impl Database {
    pub async fn add_grant(
        &self,
        grant: Grant,
        key: Option<String>,
        now: OffsetDateTime,
    ) -> Result<Grant> {
        const DOING: &str = "store a grant";
        let mut write = self.begin(DOING).await?;
        sqlx::query("DELETE FROM access_grant WHERE revoked_at < $1 OR expires_at < $1")
            .bind(to_ms(now - KEEP))
            .execute(&mut *write.tx)
            .await
            .map_err(db(DOING))?;
        make_room(&mut write, now).await?;
        insert(&mut write, &grant, key.as_deref()).await?;
        let row: Row = sqlx::query_as(
            "SELECT * FROM access_grant WHERE id = $1 OR (created_by = $2 AND idempotency_key = $3)",
        )
        .bind(&grant.id)
        .bind(&grant.created_by)
        .bind(key)
        .fetch_one(&mut *write.tx)
        .await
        .map_err(db(DOING))?;
        let stored = row.grant()?;
        if stored.revoked_at.is_some() || !same_call(&stored, &grant) {
            let other = "a grant of this Idempotency-Key, revoked since or of another call,";
            return Err(StoreError::Exists(other.to_owned()));
        }
        write.commit(DOING).await?;
        Ok(stored)
    }

    pub async fn ensure_default_grant(&self, grant: Grant) -> Result<()> {
        const DOING: &str = "store the default grant";
        let mut write = self.begin(DOING).await?;
        // Noted for good: an operator who revokes it does not want it back at the next start.
        let noted = sqlx::query(
            "INSERT INTO meta (key, value) VALUES ('default_grant', $1) ON CONFLICT DO NOTHING",
        )
        .bind(&grant.id)
        .execute(&mut *write.tx)
        .await
        .map_err(db(DOING))?;
        if noted.rows_affected() > 0 {
            insert(&mut write, &grant, None).await?;
        }
        write.commit(DOING).await
    }

    pub async fn grants_of(&self, subjects: &[String]) -> Result<Vec<Grant>> {
        let rows: Vec<Row> = sqlx::query_as(concat!(
            "SELECT * FROM access_grant WHERE revoked_at IS NULL AND subject IN ",
            each!("$1"),
            " ORDER BY id"
        ))
        .bind(to_json(&subjects))
        .fetch_all(&self.readers)
        .await
        .map_err(db("look up grants"))?;
        rows.into_iter().map(Row::grant).collect()
    }

    pub async fn grants(&self, after: Option<&str>, limit: u32) -> Result<Vec<Grant>> {
        let rows: Vec<Row> = sqlx::query_as(
            "SELECT * FROM access_grant WHERE revoked_at IS NULL AND id > $1 ORDER BY id LIMIT $2",
        )
        .bind(after.unwrap_or_default())
        .bind(i64::from(limit))
        .fetch_all(&self.readers)
        .await
        .map_err(db("list grants"))?;
        rows.into_iter().map(Row::grant).collect()
    }

    pub async fn revoked_grants_of(&self, subjects: &[String], limit: u32) -> Result<Vec<Grant>> {
        let rows: Vec<Row> = sqlx::query_as(concat!(
            "SELECT * FROM access_grant WHERE revoked_at IS NOT NULL AND subject IN ",
            each!("$1"),
            " AND NOT EXISTS (SELECT 1 FROM \"user\" u WHERE access_grant.subject = 'user:' || u.name
                AND (u.disabled_at IS NOT NULL OR u.created_at >= access_grant.revoked_at))
             ORDER BY revoked_at DESC, id LIMIT $2"
        ))
        .bind(to_json(&subjects))
        .bind(i64::from(limit))
        .fetch_all(&self.readers)
        .await
        .map_err(db("look up revoked grants"))?;
        rows.into_iter().map(Row::grant).collect()
    }

    pub async fn ended_grants(
        &self,
        after: Option<&str>,
        limit: u32,
        now: OffsetDateTime,
    ) -> Result<Vec<Grant>> {
        let rows: Vec<Row> = sqlx::query_as(
            "SELECT * FROM access_grant WHERE (revoked_at IS NOT NULL OR expires_at <= $3) AND id > $1
             ORDER BY id LIMIT $2",
        )
        .bind(after.unwrap_or_default())
        .bind(i64::from(limit))
        .bind(to_ms(now))
        .fetch_all(&self.readers)
        .await
        .map_err(db("list grants that have ended"))?;
        rows.into_iter().map(Row::grant).collect()
    }

    pub async fn grant(&self, id: &str) -> Result<Option<Grant>> {
        let row: Option<Row> =
            sqlx::query_as("SELECT * FROM access_grant WHERE revoked_at IS NULL AND id = $1")
                .bind(id)
                .fetch_optional(&self.readers)
                .await
                .map_err(db("look up a grant"))?;
        row.map(Row::grant).transpose()
    }

    pub async fn revoke_grant(
        &self,
        of: Revision<'_>,
        by: &str,
        now: OffsetDateTime,
    ) -> Result<bool> {
        const DOING: &str = "revoke a grant";
        let statement = sqlx::query(
            "UPDATE access_grant SET revoked_at = $1, revoked_by = $4, updated_at = $1, rev = rev + 1
             WHERE id = $2 AND rev = $3 AND revoked_at IS NULL",
        )
        .bind(to_ms(now))
        .bind(of.id)
        .bind(of.rev)
        .bind(by);
        Ok(self.change(DOING, statement).await? == 1)
    }

    pub async fn next_grant_end(&self, now: OffsetDateTime) -> Result<Option<OffsetDateTime>> {
        let end: Option<i64> = sqlx::query_scalar(
            "SELECT min(expires_at) FROM access_grant WHERE revoked_at IS NULL AND expires_at > $1",
        )
        .bind(to_ms(now))
        .fetch_one(&self.readers)
        .await
        .map_err(db("look up when grants end"))?;
        Ok(end.map(from_ms))
    }
}

/// Refuses one more than may be in force. Of those that are over, the oldest go where there are too many.
async fn make_room(write: &mut Write, now: OffsetDateTime) -> Result<()> {
    const DOING: &str = "store a grant";
    const COUNT: &str = "SELECT count(*) FILTER (WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $1)),
         count(*) FROM access_grant";
    const DROP: &str = "DELETE FROM access_grant WHERE id IN (SELECT id FROM access_grant
         WHERE revoked_at IS NOT NULL OR expires_at <= $1 ORDER BY COALESCE(revoked_at, expires_at) LIMIT $2)";
    let (live, all): (i64, i64) = sqlx::query_as(COUNT)
        .bind(to_ms(now))
        .fetch_one(&mut *write.tx)
        .await
        .map_err(db(DOING))?;
    if live >= MOST {
        return Err(StoreError::Full(format!(
            "there are {MOST} grants in force"
        )));
    }
    let beyond = all - live - MOST;
    if beyond > 0 {
        sqlx::query(DROP)
            .bind(to_ms(now))
            .bind(beyond)
            .execute(&mut *write.tx)
            .await
            .map_err(db(DOING))?;
    }
    Ok(())
}

/// Whether a grant is what this call asks for; its id and its times are its own.
fn same_call(stored: &Grant, asked: &Grant) -> bool {
    let lasts = |grant: &Grant| Some(to_ms(grant.expires_at?) - to_ms(grant.created_at));
    let own = Grant {
        id: stored.id.clone(),
        created_at: stored.created_at,
        expires_at: stored.expires_at,
        rev: stored.rev,
        ..asked.clone()
    };
    own == *stored && lasts(stored) == lasts(asked)
}

async fn insert(write: &mut Write, grant: &Grant, key: Option<&str>) -> Result<()> {
    sqlx::query(
        "INSERT INTO access_grant (id, subject, clusters, groups, namespaces, mode, reason, created_by,
           idempotency_key, expires_at, created_at, updated_at, act_as)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $11, $12) ON CONFLICT DO NOTHING",
    )
    .bind(&grant.id)
    .bind(grant.subject.to_string())
    .bind(to_json(&ClusterChoice::from(&grant.clusters)))
    .bind(to_json(&grant.groups))
    .bind(grant.namespaces.as_ref().map(to_json))
    .bind(if grant.mode == Mode::Read { "read" } else { "full" })
    .bind(&grant.reason)
    .bind(&grant.created_by)
    .bind(key)
    .bind(grant.expires_at.map(to_ms))
    .bind(to_ms(grant.created_at))
    .bind(to_json(&names(&grant.act_as)))
    .execute(&mut *write.tx)
    .await
    .map_err(db("store a grant"))?;
    Ok(())
}

fn names(act_as: &BTreeSet<Subject>) -> Vec<String> {
    act_as.iter().map(ToString::to_string).collect()
}

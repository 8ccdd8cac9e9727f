//! Keys of Git hosts, and what clusters say of them.

use sqlx::FromRow;
use time::OffsetDateTime;

use super::{Connection, Database, corrupt, db, from_json, from_ms, to_json, to_ms};
use crate::hub::githost::hostkeys::{Standing, TrustedKey};
use crate::hub::store::{HostKeysOf, Result};
use crate::ssh::known_hosts::HostKey;
use crate::wire::api::{HostKeysReport, MAX_HOST_KEY};

#[derive(FromRow)]
struct Row {
    public: String,
    state: String,
    source: String,
    added_by: String,
    added_at: i64,
    since: i64,
}

impl Row {
    fn key(self) -> Result<TrustedKey> {
        let key = HostKey::parse(&self.public, MAX_HOST_KEY);
        Ok(TrustedKey {
            key: key.map_err(corrupt("read a host key"))?,
            // The table's CHECK knows these words only.
            standing: match self.state.as_str() {
                "current" => Standing::Current,
                "next" => Standing::Next,
                _ => Standing::Old,
            },
            source: self.source,
            added_by: self.added_by,
            added_at: from_ms(self.added_at),
            since: from_ms(self.since),
        })
    }
}

#[derive(FromRow)]
struct Report {
    cluster: String,
    trusted: String,
    trusted_at: i64,
    shown: String,
    at: i64,
}

impl Report {
    fn report(self) -> Result<HostKeysOf> {
        const DOING: &str = "read what a cluster says of host keys";
        Ok(HostKeysOf {
            cluster: self.cluster.parse().map_err(corrupt(DOING))?,
            trusted: from_json(DOING, &self.trusted)?,
            trusted_at: from_ms(self.trusted_at),
            shown: match self.shown.as_str() {
                "" => None,
                text => Some(from_json(DOING, text)?),
            },
            at: from_ms(self.at),
        })
    }
}

async fn of(connection: &mut Connection, githost: &str) -> Result<Vec<TrustedKey>> {
    let rows: Vec<Row> =
        sqlx::query_as("SELECT * FROM host_key WHERE githost = $1 ORDER BY added_at, fingerprint")
            .bind(githost)
            .fetch_all(connection)
            .await
            .map_err(db("read host keys"))?;
    rows.into_iter().map(Row::key).collect()
}

/// Keeps what a cluster says; `trusted_at` stays while it says the same.
pub(super) async fn report(
    connection: &mut Connection,
    cluster_id: &str,
    report: &HostKeysReport,
    now: OffsetDateTime,
) -> Result<()> {
    sqlx::query(
        "INSERT INTO cluster_host_key (cluster_id, trusted, trusted_at, shown, at) VALUES ($1, $2, $4, $3, $4)
         ON CONFLICT (cluster_id) DO UPDATE SET
           trusted_at = CASE WHEN cluster_host_key.trusted = $2 THEN cluster_host_key.trusted_at ELSE $4 END, trusted = $2, shown = $3, at = $4",
    )
    .bind(cluster_id)
    .bind(to_json(&report.trusted))
    .bind(report.shown.as_ref().map(to_json).unwrap_or_default())
    .bind(to_ms(now))
    .execute(connection)
    .await
    .map_err(db("store what a cluster says of host keys"))?;
    Ok(())
}

impl Database {
    pub async fn host_keys(&self, githost: &str) -> Result<Vec<TrustedKey>> {
        let mut reader = self.readers.acquire().await.map_err(db("read host keys"))?;
        of(&mut reader, githost).await
    }

    pub async fn change_host_keys(
        &self,
        githost: &str,
        before: Vec<TrustedKey>,
        after: Vec<TrustedKey>,
    ) -> Result<bool> {
        const DOING: &str = "store host keys";
        let mut write = self.begin(DOING).await?;
        if of(&mut write.tx, githost).await? != before {
            return Ok(false);
        }
        sqlx::query("DELETE FROM host_key WHERE githost = $1")
            .bind(githost)
            .execute(&mut *write.tx)
            .await
            .map_err(db(DOING))?;
        for trusted in after {
            sqlx::query(
                "INSERT INTO host_key (githost, fingerprint, public, state, source, added_by, added_at, since)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
            )
            .bind(githost)
            .bind(&trusted.key.fingerprint)
            .bind(&trusted.key.text)
            .bind(trusted.standing.as_str())
            .bind(&trusted.source)
            .bind(&trusted.added_by)
            .bind(to_ms(trusted.added_at))
            .bind(to_ms(trusted.since))
            .execute(&mut *write.tx)
            .await
            .map_err(db(DOING))?;
        }
        write.commit(DOING).await?;
        Ok(true)
    }

    pub async fn host_key_reports(&self) -> Result<Vec<HostKeysOf>> {
        let rows: Vec<Report> = sqlx::query_as(
            "SELECT h.*, c.name AS cluster FROM cluster_host_key h JOIN cluster c ON c.id = h.cluster_id
             WHERE c.removed_at IS NULL ORDER BY c.name",
        )
        .fetch_all(&self.readers)
        .await
        .map_err(db("read what clusters say of host keys"))?;
        rows.into_iter().map(Report::report).collect()
    }
}

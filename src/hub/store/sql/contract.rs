//! The contract in SQL, one text for both databases: the database's own module includes it, and gives the types, the
//! pools and the few phrases that differ (`each!`, `locked!`, …). All of it therefore is in the words that both know:
//! `$1` for what is bound, 64 bits for a number, and a qualified column where an upsert could mean either row.

use sqlx::migrate::MigrateError;
use sqlx::query::Query;
use time::OffsetDateTime;

use super::{Arguments, Connection, Database, Db, Write};
use crate::clock;
use crate::hub::store::{Result, StoreError, calls};

mod arrivals;
mod audit;
mod bundles;
mod clusters;
mod grants;
mod heals;
mod hostkeys;
mod join;
mod keys;
mod logins;
mod replicas;
mod reports;
mod sessions;
mod shared;
mod signers;
mod tokens;
mod troubles;
mod unknown;
mod users;
mod wishes;

pub(in crate::hub::store) use audit::End;

impl Database {
    pub async fn hub_id(&self) -> Result<String> {
        const DOING: &str = "read the hub's id";
        let known: Option<String> =
            sqlx::query_scalar("SELECT value FROM meta WHERE key = 'hub_id'")
                .fetch_optional(&self.readers)
                .await
                .map_err(db(DOING))?;
        if let Some(id) = known {
            return Ok(id);
        }
        let mut write = self.begin(DOING).await?;
        let id = clock::id();
        sqlx::query("INSERT INTO meta (key, value) VALUES ('hub_id', $1) ON CONFLICT DO NOTHING")
            .bind(id)
            .execute(&mut *write.tx)
            .await
            .map_err(db(DOING))?;
        let id = sqlx::query_scalar("SELECT value FROM meta WHERE key = 'hub_id'")
            .fetch_one(&mut *write.tx)
            .await
            .map_err(db(DOING))?;
        write.commit(DOING).await?;
        Ok(id)
    }

    pub async fn check(&self) -> Result<()> {
        const DOING: &str = "store a sign of life";
        // An empty transaction is refused neither by a full disk nor by a server that takes no writes. Within a second there is
        // nothing new to prove, and SQLite writes nothing: whoever asks without an end costs no flush of the disk each time.
        const PROOF: &str = concat!(
            "INSERT INTO lease (name, holder, epoch, expires_at) VALUES ('ready', '', 0, ",
            now!(),
            ")
             ON CONFLICT (name) DO UPDATE SET expires_at = excluded.expires_at
             WHERE lease.expires_at NOT BETWEEN excluded.expires_at - 1000 AND excluded.expires_at"
        );
        self.held().await?;
        // Each request through the hub waits for its record.
        self.takes_records().await?;
        let _: String = sqlx::query_scalar("SELECT value FROM meta WHERE key = 'hub_id'")
            .fetch_one(&self.readers)
            .await
            .map_err(db(DOING))?;
        self.change(DOING, sqlx::query(PROOF)).await.map(drop)
    }

    /// One statement in a transaction of its own; gives how many rows it changed.
    async fn change(
        &self,
        doing: &'static str,
        statement: Query<'_, Db, Arguments>,
    ) -> Result<u64> {
        self.begin(doing).await?.only(doing, statement).await
    }

    /// The same for what hangs on the one row that it changes.
    async fn change_row(
        &self,
        doing: &'static str,
        statement: Query<'_, Db, Arguments>,
    ) -> Result<u64> {
        self.begin_row(doing).await?.only(doing, statement).await
    }
}

impl Write {
    /// Notes with the change whose call it is. One that was overtaken by its repetition stores nothing any more.
    pub(super) async fn mark_call(&mut self, doing: &'static str) -> Result<()> {
        let Some(own) = calls::own() else {
            return Ok(());
        };
        let marked = sqlx::query(
            "UPDATE idempotency SET changed = 1 WHERE user_id = $1 AND key = $2 AND created_at = $3",
        )
        .bind(&own.call.user_id)
        .bind(&own.call.key)
        .bind(to_ms(own.at))
        .execute(&mut *self.tx)
        .await;
        match marked.map_err(db(doing))?.rows_affected() {
            0 => Err(StoreError::Overtaken(doing)),
            _ => Ok(()),
        }
    }

    async fn only(
        mut self,
        doing: &'static str,
        statement: Query<'_, Db, Arguments>,
    ) -> Result<u64> {
        let done = statement.execute(&mut *self.tx).await;
        let changed = done.map_err(db(doing))?.rows_affected();
        self.commit(doing).await?;
        Ok(changed)
    }
}

/// What a failed migration comes to.
pub(super) fn not_migrated(error: MigrateError) -> StoreError {
    match error {
        MigrateError::VersionMissing(version) | MigrateError::VersionTooNew(version, _) => {
            StoreError::Refused(format!(
                "the database has schema {version}, which this build does not know; start the newer linesman that wrote it"
            ))
        }
        MigrateError::VersionMismatch(version) => StoreError::Refused(format!(
            "migration {version} in the database is not this build's; start the linesman that wrote it"
        )),
        MigrateError::Execute(source) | MigrateError::ExecuteMigration(source, _) => {
            StoreError::Database {
                doing: "bring the schema up to date",
                source,
            }
        }
        other => StoreError::Refused(format!("bring the schema up to date: {other}")),
    }
}

pub(super) fn db(doing: &'static str) -> impl FnOnce(sqlx::Error) -> StoreError {
    /// SQLSTATE of a text that the database's encoding has not; only PostgreSQL refuses one.
    const NOT_IN_REPERTOIRE: &str = "22021";
    move |source| match &source {
        sqlx::Error::Database(d) if d.code().is_some_and(|code| code == NOT_IN_REPERTOIRE) => {
            StoreError::Text(doing)
        }
        _ => StoreError::Database { doing, source },
    }
}

/// The same of a read that may take too long.
pub(super) fn in_time(doing: &'static str) -> impl FnOnce(sqlx::Error) -> StoreError {
    /// SQLite's code of a statement that was interrupted, and the SQLSTATE of one that was cancelled.
    const ENDED: [&str; 2] = ["9", "57014"];
    move |source| match &source {
        sqlx::Error::Database(d) if d.code().is_some_and(|code| ENDED.contains(&&*code)) => {
            StoreError::TooLong(doing)
        }
        _ => db(doing)(source),
    }
}

fn corrupt<E: std::fmt::Display>(doing: &'static str) -> impl FnOnce(E) -> StoreError {
    move |why| StoreError::Corrupt {
        doing,
        why: why.to_string(),
    }
}

fn to_ms(at: OffsetDateTime) -> i64 {
    i64::try_from(at.unix_timestamp_nanos() / 1_000_000).unwrap_or(i64::MAX)
}

fn from_ms(ms: i64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(ms) * 1_000_000)
        .unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

fn to_json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("records have string keys and no failing serializer")
}

fn from_json<T: serde::de::DeserializeOwned>(doing: &'static str, text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(corrupt(doing))
}

fn hash32(doing: &'static str, bytes: &[u8]) -> Result<[u8; 32]> {
    bytes.try_into().map_err(corrupt(doing))
}

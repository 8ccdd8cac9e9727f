//! SQLite: one writer, a few readers, WAL.
//!
//! Records are written over one connection with `synchronous=FULL`, audit rows over another with `NORMAL`: those are
//! safe over a crash of the process, and a thousand times cheaper than a disk flush each. Both take the one write lock
//! here, before the database's own, whose waiting is polling.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{Sqlite as Db, Transaction};
use time::OffsetDateTime;
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::{Result, StoreError};

mod audit;
mod bundles;
mod clusters;
mod grants;
mod hostkeys;
mod join;
mod keys;
mod reports;
mod sessions;
mod signers;
mod tokens;
mod troubles;
mod users;

static MIGRATIONS: sqlx::migrate::Migrator = sqlx::migrate!("src/hub/store/migrations/sqlite");

const READERS: u32 = 4;
/// Rows on their way from a connection's thread; each time that it has to wait costs two switches of context.
const ROWS: usize = 512;

/// The database file of one hub, locked for this process.
#[derive(Clone)]
pub struct Sqlite {
    writer: SqlitePool,
    audit: SqlitePool,
    readers: SqlitePool,
    write: Arc<Mutex<()>>,
    /// Held as long as any handle lives.
    _lock: Arc<File>,
}

/// A transaction that holds the write lock from its start: it never has to be upgraded.
struct Write {
    tx: Transaction<'static, Db>,
    _lock: OwnedMutexGuard<()>,
}

impl Write {
    async fn commit(self, doing: &'static str) -> Result<()> {
        self.tx.commit().await.map_err(db(doing))
    }
}

impl Sqlite {
    /// Opens or makes `hub.db` in the data directory and brings its schema up to date.
    pub async fn open(data: &Path) -> Result<Self> {
        let lock = lock(data)?;
        let options = SqliteConnectOptions::new()
            .filename(data.join("hub.db"))
            .create_if_missing(true)
            .foreign_keys(true)
            .busy_timeout(Duration::from_secs(5))
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .pragma("journal_size_limit", "67108864");
        let pool = |most: u32, options: SqliteConnectOptions| {
            SqlitePoolOptions::new()
                .max_connections(most)
                .idle_timeout(None)
                .max_lifetime(None)
                .acquire_timeout(Duration::from_secs(10))
                .connect_lazy_with(options)
        };
        let store = Self {
            writer: pool(1, options.clone()),
            audit: pool(1, options.clone().synchronous(SqliteSynchronous::Normal)),
            readers: pool(
                READERS,
                options.row_buffer_size(ROWS).pragma("query_only", "on"),
            ),
            write: Arc::default(),
            _lock: Arc::new(lock),
        };
        store.migrate().await?;
        Ok(store)
    }

    /// Reads the database of a data directory, whose hub may run or be gone. Nothing is written or migrated.
    pub fn open_read_only(data: &Path) -> Result<Self> {
        let path = data.join("hub.db");
        let file = File::open(&path)
            .map_err(|e| StoreError::Refused(format!("open {}: {e}", path.display())))?;
        let options = SqliteConnectOptions::new()
            .filename(path)
            .read_only(true)
            .row_buffer_size(ROWS)
            .busy_timeout(Duration::from_secs(5));
        let pool = SqlitePoolOptions::new().connect_lazy_with(options);
        Ok(Self {
            writer: pool.clone(),
            audit: pool.clone(),
            readers: pool,
            write: Arc::default(),
            _lock: Arc::new(file),
        })
    }

    async fn migrate(&self) -> Result<()> {
        use sqlx::migrate::MigrateError;
        MIGRATIONS.run(&self.writer).await.map_err(|e| match e {
            MigrateError::VersionMissing(version) | MigrateError::VersionTooNew(version, _) => {
                StoreError::Refused(format!(
                    "the database has schema {version}, which this build does not know; start the newer linesman that wrote it"
                ))
            }
            MigrateError::VersionMismatch(version) => StoreError::Refused(format!(
                "migration {version} in the database is not this build's; start the linesman that wrote it"
            )),
            MigrateError::Execute(source) | MigrateError::ExecuteMigration(source, _) => StoreError::Database {
                doing: "bring the schema up to date",
                source,
            },
            other => StoreError::Refused(format!("bring the schema up to date: {other}")),
        })
    }

    async fn begin(&self, doing: &'static str) -> Result<Write> {
        let lock = self.write.clone().lock_owned().await;
        let tx = self
            .writer
            .begin_with("BEGIN IMMEDIATE")
            .await
            .map_err(db(doing))?;
        Ok(Write { tx, _lock: lock })
    }

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
        let id = uuid::Uuid::now_v7().to_string();
        sqlx::query("INSERT INTO meta (key, value) VALUES ('hub_id', ?) ON CONFLICT DO NOTHING")
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
        const DOING: &str = "reach the database";
        let _: String = sqlx::query_scalar("SELECT value FROM meta WHERE key = 'hub_id'")
            .fetch_one(&self.readers)
            .await
            .map_err(db(DOING))?;
        // Taking the write lock proves that the disk takes writes.
        self.begin(DOING).await?.commit(DOING).await
    }
}

/// Takes the data directory for this process. A lock that the file system does not carry is an error: two hubs on
/// one database would each give out the same epochs.
fn lock(data: &Path) -> Result<File> {
    let path = data.join("hub.lock");
    let refused = |why: String| StoreError::Refused(format!("lock {}: {why}", path.display()));
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(|e| refused(e.to_string()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => Err(refused(
            "another hub runs on this data directory; stop it first".to_owned(),
        )),
        Err(std::fs::TryLockError::Error(e)) => Err(refused(e.to_string())),
    }
}

fn db(doing: &'static str) -> impl FnOnce(sqlx::Error) -> StoreError {
    move |source| StoreError::Database { doing, source }
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

#[cfg(test)]
mod tests;

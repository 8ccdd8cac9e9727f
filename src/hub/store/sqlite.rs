//! SQLite: one writer, a few readers, WAL.
//!
//! Records are written over one connection with `synchronous=FULL`, audit rows over another with `NORMAL`, unless
//! they shall be durable, too: those are safe over a crash of the process, and a thousand times cheaper than a disk flush each. Both take the one write lock
//! here, before the database's own, whose waiting is polling.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sqlx::pool::PoolConnection;
use sqlx::sqlite::SqliteArguments as Arguments;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{ConnectOptions as _, Sqlite as Db, SqliteConnection as Connection, Transaction};
use tokio::sync::{Mutex, OwnedMutexGuard};

use self::Sqlite as Database;
use super::{AccessChanges, Result, Share, StoreError, opening};
use crate::hub::audit::Durability;
use crate::hub::audit::chain::Head;

/// The strings of a JSON array, as a set.
macro_rules! each {
    ($json:literal) => {
        concat!("(SELECT value FROM json_each(", $json, "))")
    };
}

/// The numbers of a JSON array, as a set.
macro_rules! each_number {
    ($json:literal) => {
        concat!("(SELECT value FROM json_each(", $json, "))")
    };
}

/// The machine's clock, in milliseconds.
macro_rules! now {
    () => {
        "CAST(unixepoch('subsec') * 1000 AS INTEGER)"
    };
}

/// Ends a SELECT whose rows shall stay as they were read until the transaction ends: it is the only one that writes.
macro_rules! locked {
    () => {
        ""
    };
}

#[path = "sql/contract.rs"]
#[expect(clippy::duplicate_mod, reason = "one text for both databases")]
mod contract;
mod files;
mod lines;

use contract::{End, db};

static MIGRATIONS: sqlx::migrate::Migrator = sqlx::migrate!("src/hub/store/migrations/sqlite");

/// In the data directory.
const FILE: &str = "hub.db";
const READERS: u32 = 4;
/// Reads of the record at once, and how long one may take.
const AUDITORS: u32 = 2;
const LONGEST: Duration = Duration::from_secs(30);
/// Steps of SQLite's machine between two looks at the clock: some hundred microseconds.
const STEPS: i32 = 10_000;
/// Rows on their way from a connection's thread; each time that it has to wait costs two switches of context.
const ROWS: usize = 512;

/// The database file of one hub, locked for this process.
#[derive(Clone)]
pub struct Sqlite {
    writer: SqlitePool,
    audit: SqlitePool,
    audit_kept: Kept,
    audit_end: End,
    readers: SqlitePool,
    /// For who reads the record, which may be long: nobody else waits for these.
    auditors: SqlitePool,
    write: Arc<Mutex<()>>,
    pub(super) access: AccessChanges,
    vouched_within: Option<time::Duration>,
    /// Held as long as any handle lives.
    _lock: Arc<File>,
}

/// A transaction that holds the write lock from its start: it never has to be upgraded.
struct Write {
    tx: Transaction<'static, Db>,
    _lock: OwnedMutexGuard<()>,
}

/// The audit's own connection, between two statements that go [`Alone`]. A pool asks a connection whether it is well when it
/// gives it and when it takes it back, and for each request that is twice a way to SQLite's thread and back.
#[derive(Clone, Default)]
struct Kept(Arc<std::sync::Mutex<Option<Connection>>>);

impl Kept {
    fn take(&self) -> Option<Connection> {
        self.0.lock().ok()?.take()
    }

    fn put(&self, connection: Connection) {
        if let Ok(mut kept) = self.0.lock() {
            *kept = Some(connection);
        }
    }
}

/// A connection that holds the write lock, for one statement: that is a transaction by itself.
struct Alone {
    connection: Connection,
    kept: Kept,
    _lock: OwnedMutexGuard<()>,
}

impl Alone {
    fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// One whose statement failed, or was not waited for, is not kept.
    #[expect(clippy::unused_async, reason = "PostgreSQL has to ask")]
    async fn done(self, _doing: &'static str) -> Result<()> {
        self.kept.put(self.connection);
        Ok(())
    }
}

/// A connection for one read of the record, which ends with it, and at its deadline.
struct AuditReader {
    connection: PoolConnection<Db>,
    over: Arc<AtomicBool>,
}

impl AuditReader {
    fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }
}

impl Drop for AuditReader {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

impl Write {
    async fn commit(mut self, doing: &'static str) -> Result<()> {
        self.mark_call(doing).await?;
        self.tx.commit().await.map_err(db(doing))
    }
}

impl Sqlite {
    /// Opens or makes `hub.db` in the data directory and brings its schema up to date.
    pub async fn open(data: &Path) -> Result<Self> {
        let lock = opening::lock(data, Share::Alone).await?;
        files::keep(data);
        let options = SqliteConnectOptions::new()
            .filename(data.join(FILE))
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
                options
                    .clone()
                    .row_buffer_size(ROWS)
                    .pragma("query_only", "on"),
            ),
            auditors: pool(
                AUDITORS,
                options.row_buffer_size(ROWS).pragma("query_only", "on"),
            ),
            audit_kept: Kept::default(),
            audit_end: End::default(),
            write: Arc::default(),
            access: AccessChanges::default(),
            vouched_within: None,
            _lock: Arc::new(lock),
        };
        store.migrate().await?;
        Ok(store)
    }

    /// Audit rows are on the disk, too, when their call returns.
    #[must_use]
    pub fn syncing_audit(self) -> Self {
        Self {
            audit: self.writer.clone(),
            audit_kept: Kept::default(),
            ..self
        }
    }

    /// Tokens of an identity provider's users are in force for so long after it vouched for them last; None = to their own end.
    #[must_use]
    pub fn vouched_within(self, within: Option<time::Duration>) -> Self {
        Self {
            vouched_within: within,
            ..self
        }
    }

    pub async fn audit_durability(&self) -> Result<Durability> {
        const FULL: i64 = 2;
        let level: i64 = sqlx::query_scalar("PRAGMA synchronous")
            .fetch_one(&self.audit)
            .await
            .map_err(db("read how the audit is written"))?;
        Ok(if level >= FULL {
            Durability::Fsync
        } else {
            Durability::Crash
        })
    }

    /// Reads the database of a data directory, whose hub may run or be gone. Nothing is written or migrated.
    pub fn open_read_only(data: &Path) -> Result<Self> {
        let path = data.join(FILE);
        let file = File::open(&path)
            .map_err(|e| StoreError::Refused(format!("open {}: {e}", path.display())))?;
        let options = SqliteConnectOptions::new()
            .filename(path)
            .read_only(true)
            .row_buffer_size(ROWS)
            .busy_timeout(Duration::from_secs(5));
        let pool = SqlitePoolOptions::new().connect_lazy_with(options.clone());
        Ok(Self {
            auditors: SqlitePoolOptions::new()
                .max_connections(AUDITORS)
                .connect_lazy_with(options),
            writer: pool.clone(),
            audit: pool.clone(),
            readers: pool,
            audit_kept: Kept::default(),
            audit_end: End::default(),
            write: Arc::default(),
            access: AccessChanges::default(),
            vouched_within: None,
            _lock: Arc::new(file),
        })
    }

    async fn migrate(&self) -> Result<()> {
        let done = MIGRATIONS.run(&self.writer).await;
        done.map_err(contract::not_migrated)
    }

    /// The data directory's lock is held as long as the store lives.
    #[expect(clippy::unused_async, reason = "PostgreSQL has to ask")]
    async fn held(&self) -> Result<()> {
        Ok(())
    }

    /// The audit's connection is to a file, which what else is tried is to, too.
    #[expect(clippy::unused_async, reason = "PostgreSQL has to try")]
    async fn takes_records(&self) -> Result<()> {
        Ok(())
    }

    async fn begin(&self, doing: &'static str) -> Result<Write> {
        self.begin_on(&self.writer, doing).await
    }

    /// For what hangs on the one row that the first statement changes; here all of them take turns.
    async fn begin_row(&self, doing: &'static str) -> Result<Write> {
        self.begin_on(&self.writer, doing).await
    }

    /// For rows of the audit, which a crash of the machine may take.
    async fn begin_audit(&self, doing: &'static str) -> Result<Write> {
        self.begin_on(&self.audit, doing).await
    }

    /// For rows that follow on the last one: nobody else has the file, and what takes the machine takes this process, too.
    async fn begin_audit_behind(&self, _last: Head, doing: &'static str) -> Result<Write> {
        self.begin_audit(doing).await
    }

    /// For rows of the audit that go with one statement: a transaction costs three.
    #[expect(
        clippy::await_holding_invalid_type,
        reason = "SQLite takes one writer at a time"
    )]
    async fn audit_alone(&self, _last: Head, doing: &'static str) -> Result<Alone> {
        let lock = self.write.clone().lock_owned().await;
        let connection = if let Some(kept) = self.audit_kept.take() {
            kept
        } else {
            let options = self.audit.connect_options();
            options.connect().await.map_err(db(doing))?
        };
        Ok(Alone {
            connection,
            kept: self.audit_kept.clone(),
            _lock: lock,
        })
    }

    async fn audit_reader(&self, doing: &'static str) -> Result<AuditReader> {
        self.audit_reader_until(Instant::now() + LONGEST, doing)
            .await
    }

    async fn audit_reader_until(&self, until: Instant, doing: &'static str) -> Result<AuditReader> {
        let mut connection = self.auditors.acquire().await.map_err(db(doing))?;
        let over = Arc::new(AtomicBool::new(false));
        let ended = over.clone();
        let goes_on = move || !ended.load(Ordering::Relaxed) && Instant::now() < until;
        let mut handle = connection.lock_handle().await.map_err(db(doing))?;
        handle.set_progress_handler(STEPS, goes_on);
        drop(handle);
        Ok(AuditReader { connection, over })
    }

    #[expect(
        clippy::await_holding_invalid_type,
        reason = "SQLite takes one writer at a time"
    )]
    async fn begin_on(&self, pool: &SqlitePool, doing: &'static str) -> Result<Write> {
        const BEGIN: &str = "BEGIN IMMEDIATE";
        let lock = self.write.clone().lock_owned().await;
        let tx = match pool.begin_with(BEGIN).await {
            // A full disk makes SQLite give a transaction up by itself; sqlx cannot, then, and believes the connection to be in
            // one for ever. See <https://sqlite.org/lang_transaction.html>, "Response To Errors Within A Transaction".
            Err(sqlx::Error::InvalidSavePointStatement) => {
                tracing::warn!(doing, "the database gave a transaction up; connecting anew");
                let stuck = pool.acquire().await.map_err(db(doing))?;
                stuck.close().await.map_err(db(doing))?;
                pool.begin_with(BEGIN).await
            }
            tx => tx,
        };
        let tx = tx.map_err(db(doing))?;
        Ok(Write { tx, _lock: lock })
    }
}

#[cfg(test)]
mod tests;

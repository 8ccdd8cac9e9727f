//! PostgreSQL: the records in a server of their own, for one hub, or several replicas of one.
//!
//! Transactions are READ COMMITTED. One that decides by several rows first takes the lock of all records, as SQLite's
//! one writer does; one that hangs on a single row begins with a statement that locks it; the audit has a lock of its
//! own. So what the contract promises holds for several processes too. A record is on the server's disk when its call
//! returns; audit rows are committed with `synchronous_commit=off`, unless they shall be durable, too: safe over a crash of the hub,
//! as with SQLite.

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgArguments as Arguments, PgConnectOptions};
use sqlx::{ConnectOptions as _, Postgres as Db};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use self::Postgres as Database;
use super::away::Away;
use super::{AccessChanges, Result, Share, StoreError, patience};
use crate::hub::audit::Durability;
use crate::hub::audit::chain::Head;

/// The strings of a JSON array, as a set.
macro_rules! each {
    ($json:literal) => {
        concat!("(SELECT json_array_elements_text(", $json, "::json))")
    };
}

/// The numbers of a JSON array, as a set.
macro_rules! each_number {
    ($json:literal) => {
        concat!("(SELECT json_array_elements_text(", $json, "::json)::int8)")
    };
}

/// The server's clock, in milliseconds.
macro_rules! now {
    () => {
        "(extract(epoch FROM clock_timestamp()) * 1000)::int8"
    };
}

/// Ends a SELECT whose rows shall stay as they were read until the transaction ends.
macro_rules! locked {
    () => {
        " FOR UPDATE"
    };
}

mod connection;
#[path = "sql/contract.rs"]
#[expect(clippy::duplicate_mod, reason = "one text for both databases")]
mod contract;
mod lines;
mod pool;
mod refusal;
mod replicas;
mod target;

use connection::{Connection, Schema};
use contract::{End, db};
use pool::{Lent, Pool, Wants, is_lost, pool};
use refusal::{UNREACHED, forbidden, said};

pub use replicas::Bells;
pub use target::Target;

static MIGRATIONS: sqlx::migrate::Migrator = sqlx::migrate!("src/hub/store/migrations/postgres");

const READERS: u32 = 6;
const WRITERS: u32 = 4;
/// Reads of the record, which may be long, at once: who else reads has the other connections. The server ends each statement.
const AUDITORS: usize = 2;
const CONNECT: Duration = Duration::from_secs(10);
/// The oldest major version that is supported, as the server says it.
const OLDEST: i32 = 130_000;

/// Advisory locks of the database: for the life of one hub (its replicas share it), for as long as a replica leads, and
/// for the length of one transaction.
const HUB: i64 = 0x6c69_6e65_0001;
const RECORDS: i64 = 0x6c69_6e65_0002;
const AUDIT: i64 = 0x6c69_6e65_0003;
const LEADER: i64 = 0x6c69_6e65_0004;

const HOLD: &str = "hold the database for this hub";
/// SQLSTATE of a lock that somebody else kept for longer than we wait.
const LOCK_NOT_AVAILABLE: &str = "55P03";

/// The database of one hub.
#[derive(Clone)]
pub struct Postgres {
    target: Target,
    writer: Pool,
    audit: Pool,
    audit_end: End,
    pub(super) access: AccessChanges,
    pub(super) away: Away,
    vouched_within: Option<time::Duration>,
    readers: Pool,
    /// Reads of the record at once.
    auditors: Arc<Semaphore>,
    /// One connection, which holds the lock [`HUB`].
    hold: Pool,
    /// One connection, which holds the lock [`LEADER`] while this process leads.
    lead: Pool,
    share: Share,
    /// As these pools know it.
    schema: Schema,
    /// Of the data directory, as long as any handle lives.
    _lock: Option<Arc<File>>,
}

/// A transaction that waits for no other one after its first statement.
struct Write {
    tx: Lent,
}

/// A connection for one read of the record.
struct AuditReader {
    connection: Lent,
    _place: OwnedSemaphorePermit,
}

impl AuditReader {
    fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }
}

impl Write {
    fn connection(&mut self) -> &mut Connection {
        &mut self.tx
    }

    async fn done(self, doing: &'static str) -> Result<()> {
        self.commit(doing).await
    }

    async fn commit(mut self, doing: &'static str) -> Result<()> {
        self.mark_call(doing).await?;
        patience::commit(self.tx.commit()).await.map_err(db(doing))
    }
}

/// What every session on the server keeps to.
fn sessions(target: &Target) -> PgConnectOptions {
    target.options().clone().options([
        ("default_transaction_isolation", "read committed"),
        ("statement_timeout", "60s"),
        ("lock_timeout", "10s"),
        // A process that was lost in the middle of a change: who waits for its locks gets them before it gives up. Between
        // two statements of a change the hub only decides.
        ("idle_in_transaction_session_timeout", "5s"),
        // And its connections, which nobody will use any more.
        ("tcp_user_timeout", "15s"),
        ("tcp_keepalives_idle", "15"),
        ("tcp_keepalives_interval", "5"),
        ("tcp_keepalives_count", "3"),
    ])
}

/// The same for sessions that only read.
fn read_only(target: &Target) -> PgConnectOptions {
    sessions(target).options([("default_transaction_read_only", "on")])
}

impl Postgres {
    /// Takes the database for this process and brings its schema up to date.
    pub async fn open(target: Target, share: Share) -> Result<Self> {
        let store = Self {
            share,
            ..Self::new(target)
        };
        store.reach(Wants::Writes).await?;
        store.take().await?;
        store.migrate().await?;
        Ok(store)
    }

    /// Reads the database, whose hub may run, or a standby of it. Nothing is written or migrated.
    pub async fn open_read_only(target: Target) -> Result<Self> {
        let store = Self::new(target);
        store.reach(Wants::Anything).await?;
        let readers = pool(
            READERS,
            Wants::Anything,
            read_only(&store.target),
            &store.schema,
        );
        Ok(Self {
            writer: readers.clone(),
            audit: readers.clone(),
            hold: readers.clone(),
            lead: readers.clone(),
            readers,
            ..store
        })
    }

    #[must_use]
    pub(super) fn keeping(self, lock: File) -> Self {
        Self {
            _lock: Some(Arc::new(lock)),
            ..self
        }
    }

    /// Audit rows are on the server's disk, too, when their call returns.
    #[must_use]
    pub fn syncing_audit(self) -> Self {
        let options = sessions(&self.target).options([("synchronous_commit", "on")]);
        Self {
            audit: pool(1, Wants::Writes, options, &self.schema),
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
        let commit: String = sqlx::query_scalar("SELECT current_setting('synchronous_commit')")
            .fetch_one(&self.audit)
            .await
            .map_err(db("read how the audit is written"))?;
        Ok(if commit == "off" {
            Durability::Crash
        } else {
            Durability::Fsync
        })
    }

    fn new(target: Target) -> Self {
        let options = sessions(&target);
        // A hub whose machine is gone has lost the database after a minute.
        let holding = options.clone().options([
            ("lock_timeout", "3s"),
            ("tcp_keepalives_idle", "30"),
            ("tcp_keepalives_interval", "10"),
            ("tcp_keepalives_count", "3"),
        ]);
        // Their statements wait for locks: that this takes long is no news.
        let holding = holding.disable_statement_logging();
        let lazily = options.clone().options([("synchronous_commit", "off")]);
        let schema = Schema::default();
        Self {
            writer: pool(WRITERS, Wants::Writes, options, &schema),
            audit: pool(1, Wants::Writes, lazily, &schema),
            readers: pool(READERS, Wants::Reads, read_only(&target), &schema),
            auditors: Arc::new(Semaphore::new(AUDITORS)),
            lead: pool(1, Wants::Writes, holding.clone(), &schema),
            hold: pool(1, Wants::Writes, holding, &schema),
            audit_end: End::default(),
            access: AccessChanges::default(),
            away: Away::default(),
            vouched_within: None,
            share: Share::Alone,
            schema,
            _lock: None,
            target,
        }
    }

    /// The first connection: what is wrong with address, password, certificate or server is said here.
    async fn reach(&self, wants: Wants) -> Result<()> {
        const SERVER: &str = "SELECT current_setting('server_version_num')::int4, current_setting('server_encoding')";
        let asked = async {
            let mut first = self.target.options().connect().await?;
            let server: (i32, String) = sqlx::query_as(SERVER).fetch_one(&mut first).await?;
            Ok::<_, sqlx::Error>((server, wants.met(&mut first).await?))
        };
        let ((version, encoding), met) = self.in_time(asked).await?;
        let refused = |why: String| self.refused(&why);
        if version < OLDEST {
            let (is, least) = (version / 10_000, OLDEST / 10_000);
            return Err(refused(format!(
                "it is PostgreSQL {is}; {least} or newer is needed"
            )));
        }
        if encoding != "UTF8" {
            return Err(refused(format!(
                "its encoding is {encoding}; make one with ENCODING 'UTF8'"
            )));
        }
        if !met {
            let why = "it takes no writes (a standby?): give the primary's address";
            return Err(refused(why.to_owned()));
        }
        Ok(())
    }

    /// Takes the lock of the one hub; one that is ending has a moment.
    async fn take(&self) -> Result<()> {
        let take = match self.share {
            Share::Alone => "SELECT pg_advisory_lock($1)",
            Share::Several => "SELECT pg_advisory_lock_shared($1)",
        };
        let taken = sqlx::query(take).bind(HUB).execute(&self.hold).await;
        taken.map(drop).map_err(|e| match &e {
            sqlx::Error::Database(d) if d.code().is_some_and(|code| code == LOCK_NOT_AVAILABLE) => {
                self.taken()
            }
            _ => db(HOLD)(e),
        })
    }

    /// Has the lock still, or again where its connection broke.
    async fn held(&self) -> Result<()> {
        let take = match self.share {
            Share::Alone => "SELECT pg_try_advisory_lock($1)",
            Share::Several => "SELECT pg_try_advisory_lock_shared($1)",
        };
        let mine: bool = sqlx::query_scalar(take)
            .bind(HUB)
            .fetch_one(&self.hold)
            .await
            .map_err(db(HOLD))?;
        if mine { Ok(()) } else { Err(self.taken()) }
    }

    /// The audit has a connection of its own, or gets one.
    async fn takes_records(&self) -> Result<()> {
        let tried = self.audit.tried().await;
        tried.map_err(db("make ready for records"))
    }

    fn taken(&self) -> StoreError {
        StoreError::Refused(self.share.taken(&format!("the database {}", self.target)))
    }

    async fn in_time<T>(&self, asked: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T> {
        let asked = timeout(CONNECT, asked).await;
        asked
            .map_err(|_| {
                let why = format!("no answer within {} s{UNREACHED}", CONNECT.as_secs());
                self.refused(&why)
            })?
            .map_err(|e| self.refused(&said(&e)))
    }

    fn refused(&self, why: &str) -> StoreError {
        StoreError::Refused(format!("the database {}: {why}", self.target))
    }

    async fn migrate(&self) -> Result<()> {
        // A migration of many records takes as long as it takes.
        let mut patient = self.in_time(self.target.options().connect()).await?;
        MIGRATIONS
            .run(&mut patient)
            .await
            .map_err(|error| match forbidden(&error) {
                Some(why) => self.refused(&why),
                None => contract::not_migrated(error),
            })
    }

    async fn begin(&self, doing: &'static str) -> Result<Write> {
        begin(&self.writer, Some(RECORDS), doing).await
    }

    /// For what hangs on the one row that the first statement locks.
    async fn begin_row(&self, doing: &'static str) -> Result<Write> {
        begin(&self.writer, None, doing).await
    }

    /// For rows of the audit, which a crash of the server may take.
    async fn begin_audit(&self, doing: &'static str) -> Result<Write> {
        begin(&self.audit, Some(AUDIT), doing).await
    }

    async fn audit_reader(&self, doing: &'static str) -> Result<AuditReader> {
        let place = timeout(CONNECT, self.auditors.clone().acquire_owned()).await;
        let place = place.ok().and_then(std::result::Result::ok);
        let place = place.ok_or_else(|| db(doing)(sqlx::Error::PoolTimedOut))?;
        let connection = self.readers.acquire().await.map_err(db(doing))?;
        Ok(AuditReader {
            connection,
            _place: place,
        })
    }

    /// For rows that follow on the last one as this process knows it. The server may have lost that since, and a connection that broke
    /// while it lay idle does not tell.
    async fn begin_audit_behind(&self, last: Head, doing: &'static str) -> Result<Write> {
        // With the lock, in one way to the server: each request waits for it.
        const END: &str = "SELECT e.seq, e.hash FROM pg_advisory_xact_lock($1)
             LEFT JOIN (SELECT seq, hash FROM audit ORDER BY seq DESC LIMIT 1) AS e ON true";
        const START: &str =
            "SELECT seq, hash FROM audit_anchor WHERE start ORDER BY seq DESC LIMIT 1";
        let mut write = begin(&self.audit, None, doing).await?;
        let end: (Option<i64>, Option<Vec<u8>>) = sqlx::query_as(END)
            .bind(AUDIT)
            .fetch_one(&mut *write.tx)
            .await
            .map_err(db(doing))?;
        let end: Option<(i64, Vec<u8>)> = match end {
            (Some(seq), Some(hash)) => Some((seq, hash)),
            _ => sqlx::query_as(START)
                .fetch_optional(&mut *write.tx)
                .await
                .map_err(db(doing))?,
        };
        // The first record of all follows on nothing that is stored.
        let follows = end.map_or(last.seq == 0, |(seq, hash)| {
            seq == last.seq && hash == last.hash
        });
        if follows {
            Ok(write)
        } else {
            Err(StoreError::OtherEnd(doing))
        }
    }

    /// For rows of the audit that go with one statement; here it takes the lock of the others, too.
    async fn audit_alone(&self, last: Head, doing: &'static str) -> Result<Write> {
        self.begin_audit_behind(last, doing).await
    }
}

async fn begin(pool: &Pool, lock: Option<i64>, doing: &'static str) -> Result<Write> {
    let mut left = WRITERS;
    let mut tx = loop {
        match pool.begin().await {
            // A connection that broke while it lay idle has done nothing yet.
            Err(error) if left > 0 && is_lost(&error) => left -= 1,
            begun => break begun.map_err(db(doing))?,
        }
    };
    if let Some(lock) = lock {
        sqlx::query("SELECT pg_advisory_xact_lock($1)")
            .bind(lock)
            .execute(&mut *tx)
            .await
            .map_err(db(doing))?;
    }
    Ok(Write { tx })
}

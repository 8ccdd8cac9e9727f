//! Connections to the server: kept, tried before they are used, and made anew where they are lost. Each wait has an end: a
//! connection that does not answer on its way back leaves its place to another one. The library's own pool has waits without
//! one on that way (`docs/decisions/0036-own-pool.md`).

use std::collections::VecDeque;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt as _, StreamExt as _, TryFutureExt as _, TryStreamExt as _};
use sqlx::postgres::{
    PgConnectOptions, PgConnection, PgQueryResult, PgRow, PgStatement, PgTypeInfo,
};
use sqlx::{ConnectOptions as _, Either, Error, Execute, Executor, Postgres as Db, SqlStr};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::TaskTracker;

use super::CONNECT;
use super::connection::{Connection, Schema};

/// A connection that was idle for longer is tried before it is used.
const TRUSTED_IDLE: Duration = Duration::from_secs(1);
/// A connection that does not answer a ping for so long is lost, whatever TCP believes.
const PING: Duration = Duration::from_secs(2);
/// One that takes longer to be made was begun while nothing came through.
const FRESH: Duration = Duration::from_secs(5);
/// Before another try at a server that is just starting, or is not the one that is wanted.
const AGAIN: Duration = Duration::from_millis(100);
/// Where all places are taken for longer, whoever has them has connections.
const BUSY: Duration = Duration::from_millis(500);

/// Whether the connection is gone, and not what was asked of it wrong. Class 57 is an administrator's intervention.
pub(super) fn is_lost(error: &Error) -> bool {
    match error {
        Error::Io(_) => true,
        Error::Database(d) => d.code().is_some_and(|code| code.starts_with("57P")),
        _ => false,
    }
}

/// What a server has to be for a connection to it to be kept. After a failover the one that answers may be a standby, and a session
/// that began there, or while nothing was to be written, stays as it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wants {
    /// It takes writes.
    Writes,
    /// It has what was written last: it is no standby.
    Reads,
    /// Whatever it is.
    Anything,
}

impl Wants {
    pub(super) async fn met(self, connection: &mut PgConnection) -> Result<bool, Error> {
        let asked = match self {
            Self::Writes => "SELECT current_setting('transaction_read_only') = 'off'",
            Self::Reads => "SELECT NOT pg_is_in_recovery()",
            Self::Anything => return Ok(true),
        };
        sqlx::query_scalar(asked).fetch_one(connection).await
    }
}

/// So many connections at most, made when they are asked for.
#[derive(Clone)]
pub(super) struct Pool(Arc<Kept>);

/// An executor has to have this; the options have the password.
impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pool")
    }
}

struct Kept {
    options: PgConnectOptions,
    wants: Wants,
    schema: Schema,
    /// It is told that another server answers.
    told: AtomicBool,
    places: Arc<Semaphore>,
    /// And since when.
    idle: Mutex<VecDeque<(Connection, Instant)>>,
    /// Each ends within [`PING`].
    returning: TaskTracker,
}

/// A connection, to be given back by dropping it.
pub(super) struct Lent {
    connection: Option<Connection>,
    kept: Arc<Kept>,
    place: Option<OwnedSemaphorePermit>,
}

/// `schema` is of all pools of a database.
pub(super) fn pool(most: u32, wants: Wants, options: PgConnectOptions, schema: &Schema) -> Pool {
    Pool(Arc::new(Kept {
        options,
        wants,
        schema: schema.clone(),
        told: AtomicBool::new(false),
        places: Arc::new(Semaphore::new(most as usize)),
        idle: Mutex::default(),
        returning: TaskTracker::new(),
    }))
}

impl Kept {
    fn idle(&self) -> MutexGuard<'_, VecDeque<(Connection, Instant)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn connection(&self) -> Result<Connection, Error> {
        let idle = self.idle().pop_front();
        if let Some((mut connection, since)) = idle {
            let answers = (since.elapsed() <= TRUSTED_IDLE && connection.is_current())
                || matches!(timeout(PING, connection.ready()).await, Ok(Ok(())));
            if answers {
                return Ok(connection);
            }
        }
        loop {
            match timeout(FRESH, self.made()).await {
                Ok(Ok(Some(made))) => {
                    self.told.store(false, Ordering::Relaxed);
                    return Ok(Connection::new(made, &self.schema));
                }
                Ok(Ok(None)) => {
                    if !self.told.swap(true, Ordering::Relaxed) {
                        tracing::warn!(
                            "the database that answers takes no writes, or is a standby; waiting for another"
                        );
                    }
                    sleep(AGAIN).await;
                }
                Ok(Err(error)) if starts(&error) => sleep(AGAIN).await,
                Ok(Err(error)) => return Err(error),
                Err(_) => {}
            }
        }
    }

    /// None = the server is not what it has to be.
    async fn made(&self) -> Result<Option<PgConnection>, Error> {
        let mut made = self.options.connect().await?;
        let met = self.wants.met(&mut made).await?;
        Ok(met.then_some(made))
    }
}

/// Whether the server is not there yet.
fn starts(error: &Error) -> bool {
    match error {
        Error::Io(error) => error.kind() == std::io::ErrorKind::ConnectionRefused,
        Error::Database(d) => d.code().is_some_and(|code| code == "57P03"),
        _ => false,
    }
}

impl Pool {
    pub(super) async fn acquire(&self) -> Result<Lent, Error> {
        let acquired = async {
            let place = self.0.places.clone().acquire_owned().await;
            self.lent(place.map_err(|_| Error::PoolClosed)?).await
        };
        timeout(CONNECT, acquired)
            .await
            .unwrap_or(Err(Error::PoolTimedOut))
    }

    async fn lent(&self, place: OwnedSemaphorePermit) -> Result<Lent, Error> {
        Ok(Lent {
            connection: Some(self.0.connection().await?),
            kept: self.0.clone(),
            place: Some(place),
        })
    }

    /// Whether a connection is to be had: there is one that answers, or one can be made.
    pub(super) async fn tried(&self) -> Result<(), Error> {
        let Ok(place) = timeout(BUSY, self.0.places.clone().acquire_owned()).await else {
            return Ok(());
        };
        let place = place.map_err(|_| Error::PoolClosed)?;
        let lent = timeout(CONNECT, self.lent(place)).await;
        lent.unwrap_or(Err(Error::PoolTimedOut)).map(drop)
    }

    pub(super) async fn begin(&self) -> Result<Lent, Error> {
        let mut tx = self.acquire().await?;
        tx.open = true;
        sqlx::raw_sql("BEGIN").execute(&mut *tx).await?;
        Ok(tx)
    }
}

impl Lent {
    pub(super) async fn commit(mut self) -> Result<(), Error> {
        sqlx::raw_sql("COMMIT").execute(&mut *self).await?;
        self.open = false;
        Ok(())
    }
}

impl Deref for Lent {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.connection
            .as_ref()
            .expect("it is there until it is dropped")
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut Connection {
        self.connection
            .as_mut()
            .expect("it is there until it is dropped")
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(mut connection) = self.connection.take() else {
            return;
        };
        let (kept, place) = (self.kept.clone(), self.place.take());
        // Without a runtime nobody will ask for it again.
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let returning = async move {
            // One that is lost is not closed by a word to the server: that would wait for its answer.
            if matches!(timeout(PING, connection.back()).await, Ok(Ok(()))) {
                kept.idle().push_back((connection, Instant::now()));
            }
            drop(place);
        };
        self.kept.returning.spawn_on(returning, &runtime);
    }
}

impl<'p> Executor<'p> for &'p Pool {
    type Database = Db;

    fn fetch_many<'e, 'q: 'e, E>(
        self,
        query: E,
    ) -> BoxStream<'e, Result<Either<PgQueryResult, PgRow>, Error>>
    where
        'p: 'e,
        E: 'q + Execute<'q, Db>,
    {
        async move {
            let mut lent = self.acquire().await?;
            let all: Vec<_> = lent.fetch_many(query).try_collect().await?;
            Ok(stream::iter(all.into_iter().map(Ok)))
        }
        .try_flatten_stream()
        .boxed()
    }

    fn fetch_optional<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, Result<Option<PgRow>, Error>>
    where
        'p: 'e,
        E: 'q + Execute<'q, Db>,
    {
        async move { self.acquire().await?.fetch_optional(query).await }.boxed()
    }

    fn prepare_with<'e>(
        self,
        sql: SqlStr,
        parameters: &'e [PgTypeInfo],
    ) -> BoxFuture<'e, Result<PgStatement, Error>>
    where
        'p: 'e,
    {
        async move { self.acquire().await?.prepare_with(sql, parameters).await }.boxed()
    }

    fn describe<'e>(self, sql: SqlStr) -> BoxFuture<'e, Result<sqlx::Describe<Db>, Error>>
    where
        'p: 'e,
    {
        async move { self.acquire().await?.describe(sql).await }.boxed()
    }
}

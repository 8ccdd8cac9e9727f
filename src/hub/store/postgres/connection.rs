//! A connection whose prepared statements may be of before. A newer replica brings the schema further while this one runs; each
//! statement that gives other columns then than when it was prepared is refused from there on, until it is prepared anew.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt as _, StreamExt as _, TryFutureExt as _, TryStreamExt as _};
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgArguments, PgConnection, PgQueryResult, PgRow, PgStatement, PgTypeInfo};
use sqlx::{Connection as _, Either, Error, Execute, Executor, Postgres as Db, SqlStr};

/// SQLSTATE of a statement that was prepared when it gave other columns; the words are in the server's language. The server says so
/// before it does anything.
const OF_BEFORE: &str = "0A000";

/// How often it was found that the schema has changed. What was prepared by then, on whatever connection, is prepared anew.
#[derive(Clone, Default)]
pub(super) struct Schema(Arc<AtomicU64>);

impl Schema {
    fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Many connections find the same change: it counts once.
    fn changed_since(&self, known: u64) {
        self.0.fetch_max(known + 1, Ordering::Relaxed);
    }
}

/// To the server.
pub(super) struct Connection {
    server: PgConnection,
    /// A transaction may be open.
    pub(super) open: bool,
    schema: Schema,
    /// What its statements were prepared for.
    known: u64,
}

/// An executor has to have this.
impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connection")
    }
}

impl Connection {
    pub(super) fn new(server: PgConnection, schema: &Schema) -> Self {
        Self {
            server,
            open: false,
            known: schema.now(),
            schema: schema.clone(),
        }
    }

    /// Whether no change of the schema was found since it has prepared its first statement.
    pub(super) fn is_current(&self) -> bool {
        self.known == self.schema.now()
    }

    /// Makes it fit to be used: it answers, and has no statement of before.
    pub(super) async fn ready(&mut self) -> Result<(), Error> {
        if !self.is_current() {
            self.forget().await?;
        }
        self.server.ping().await
    }

    /// Ends what was left open.
    pub(super) async fn back(&mut self) -> Result<(), Error> {
        if self.open {
            sqlx::raw_sql("ROLLBACK").execute(&mut self.server).await?;
            self.open = false;
        }
        self.server.ping().await
    }

    async fn forget(&mut self) -> Result<(), Error> {
        let now = self.schema.now();
        self.server.clear_cached_statements().await?;
        self.known = now;
        Ok(())
    }

    /// What may be asked once more. A transaction is over with the first refusal; the next one finds fresh statements.
    fn spare(&self, asked: &Asked) -> Option<Asked> {
        (!self.open).then(|| asked.clone())
    }

    /// Gives it back where the refusal was for a statement of before only.
    async fn once_more(&mut self, error: Error, spare: Option<Asked>) -> Result<Asked, Error> {
        if !is_of_before(&error) {
            return Err(error);
        }
        self.schema.changed_since(self.known);
        let Some(asked) = spare else {
            return Err(error);
        };
        self.forget().await?;
        Ok(asked)
    }
}

fn is_of_before(error: &Error) -> bool {
    match error {
        Error::Database(d) => d.code().is_some_and(|code| code == OF_BEFORE),
        _ => false,
    }
}

/// A statement with what is bound.
#[derive(Clone)]
struct Asked {
    sql: SqlStr,
    arguments: Option<PgArguments>,
    persistent: bool,
}

impl Asked {
    fn of<'q>(mut query: impl Execute<'q, Db>) -> Result<Self, Error> {
        Ok(Self {
            arguments: query.take_arguments().map_err(Error::Encode)?,
            persistent: query.persistent(),
            sql: query.sql(),
        })
    }
}

impl Execute<'_, Db> for Asked {
    fn sql(self) -> SqlStr {
        self.sql
    }

    fn statement(&self) -> Option<&PgStatement> {
        None
    }

    fn take_arguments(&mut self) -> Result<Option<PgArguments>, BoxDynError> {
        Ok(self.arguments.take())
    }

    fn persistent(&self) -> bool {
        self.persistent
    }
}

impl<'c> Executor<'c> for &'c mut Connection {
    type Database = Db;

    fn fetch_many<'e, 'q: 'e, E>(
        self,
        query: E,
    ) -> BoxStream<'e, Result<Either<PgQueryResult, PgRow>, Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Db>,
    {
        async move {
            let asked = Asked::of(query)?;
            let spare = self.spare(&asked);
            let first: Result<Vec<_>, Error> = self.server.fetch_many(asked).try_collect().await;
            let all = match first {
                Ok(all) => all,
                Err(error) => {
                    let asked = self.once_more(error, spare).await?;
                    self.server.fetch_many(asked).try_collect().await?
                }
            };
            Ok(stream::iter(all.into_iter().map(Ok)))
        }
        .try_flatten_stream()
        .boxed()
    }

    fn fetch_optional<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, Result<Option<PgRow>, Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Db>,
    {
        async move {
            let asked = Asked::of(query)?;
            let spare = self.spare(&asked);
            let first = self.server.fetch_optional(asked).await;
            match first {
                Ok(row) => Ok(row),
                Err(error) => {
                    let asked = self.once_more(error, spare).await?;
                    self.server.fetch_optional(asked).await
                }
            }
        }
        .boxed()
    }

    fn prepare_with<'e>(
        self,
        sql: SqlStr,
        parameters: &'e [PgTypeInfo],
    ) -> BoxFuture<'e, Result<PgStatement, Error>>
    where
        'c: 'e,
    {
        self.server.prepare_with(sql, parameters)
    }

    fn describe<'e>(self, sql: SqlStr) -> BoxFuture<'e, Result<sqlx::Describe<Db>, Error>>
    where
        'c: 'e,
    {
        self.server.describe(sql)
    }
}

//! What several replicas need of the server beside its tables: a lock for the one that leads, and bells.

use std::time::Duration;

use sqlx::postgres::{PgListener, PgPoolOptions};
use tokio::time::timeout;

use super::contract::db;
use super::{LEADER, Postgres};
use crate::hub::store::{Bell, Result, StoreError};

/// A leader that hears nothing of its lock for so long is none any more.
const ANSWER: Duration = Duration::from_secs(2);
const CHANNEL: &str = "linesman";
/// Words in one statement.
const WORDS: usize = 500;

impl Postgres {
    /// The lock lives with its connection: one that broke has lost it, and takes it again only where it is free.
    pub(in crate::hub::store) async fn leads(&self) -> Result<bool> {
        const DOING: &str = "hold the lock of the leading replica";
        const HELD: &str = "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted
              AND pid = pg_backend_pid() AND classid = ($1 >> 32)::oid AND objid = ($1 & 4294967295)::oid)
            OR pg_try_advisory_lock($1)";
        let asked = sqlx::query_scalar(HELD).bind(LEADER).fetch_one(&self.lead);
        match timeout(ANSWER, asked).await {
            Ok(leads) => leads.map_err(db(DOING)),
            Err(_) => Err(StoreError::Refused(format!(
                "{DOING}: no answer within {} s",
                ANSWER.as_secs()
            ))),
        }
    }

    pub(in crate::hub::store) async fn cede(&self) {
        // The server frees it with the connection at the latest.
        let freed = sqlx::query("SELECT pg_advisory_unlock_all()").execute(&self.lead);
        drop(timeout(ANSWER, freed).await);
    }

    pub(in crate::hub::store) async fn ring(&self, bells: &[Bell]) -> Result<()> {
        const RING: &str = "SELECT count(pg_notify($1, word)) FROM unnest($2::text[]) AS word";
        for bells in bells.chunks(WORDS) {
            let words: Vec<String> = bells.iter().map(Bell::word).collect();
            sqlx::query(RING)
                .bind(CHANNEL)
                .bind(words)
                .execute(&self.writer)
                .await
                .map_err(db("wake the other replicas"))?;
        }
        Ok(())
    }

    pub(in crate::hub::store) async fn bells(&self) -> Result<Bells> {
        const DOING: &str = "listen to the other replicas";
        // A pool of its own: the listener keeps a connection for good.
        let options = self.target.options().clone();
        let mut listener = PgListener::connect_with(
            &PgPoolOptions::new()
                .max_connections(1)
                .idle_timeout(None)
                .max_lifetime(None)
                .acquire_timeout(super::CONNECT)
                .test_before_acquire(false)
                .connect_lazy_with(options),
        )
        .await
        .map_err(db(DOING))?;
        listener.listen(CHANNEL).await.map_err(db(DOING))?;
        Ok(Bells(listener))
    }
}

/// Hears what this replica and the others ring.
pub struct Bells(PgListener);

impl Bells {
    /// The next one; after a broken connection that is [`Bell::Look`], for anything may have been missed.
    pub async fn next(&mut self) -> Result<Bell> {
        let heard = self.0.try_recv().await;
        let heard = heard.map_err(db("listen to the other replicas"))?;
        Ok(heard.map_or(Bell::Look, |heard| Bell::parse(heard.payload())))
    }
}

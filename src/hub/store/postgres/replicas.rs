//! What several replicas need of the server beside its tables: a lock for the one that leads, and bells.

use std::time::Duration;

use sqlx::Executor as _;
use sqlx::postgres::{PgListener, PgPoolOptions};
use tokio::time::timeout;

use super::contract::db;
use super::{LEADER, Postgres};
use crate::hub::store::{Bell, Result, StoreError};

/// A leader that hears nothing of its lock for so long is none any more.
const ANSWER: Duration = Duration::from_secs(2);
const CHANNEL: &str = "linesman";
const LISTEN: &str = "listen to the other replicas";
/// Where nothing is rung for so long, it is asked whether the server is there: the connection says nothing either where that is gone
/// without a word.
const QUIET: Duration = Duration::from_secs(15);
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
        .map_err(db(LISTEN))?;
        let listens = timeout(super::CONNECT, listener.listen(CHANNEL)).await;
        let listens = listens.map_err(|_| StoreError::Silent(LISTEN))?;
        listens.map_err(db(LISTEN))?;
        // Connected anew by what has an end.
        listener.eager_reconnect(false);
        Ok(Bells {
            listener,
            quiet: QUIET,
            answer: ANSWER,
        })
    }
}

/// Hears what this replica and the others ring.
pub struct Bells {
    listener: PgListener,
    /// As [`QUIET`].
    quiet: Duration,
    /// As [`ANSWER`].
    answer: Duration,
}

impl Bells {
    /// The next one; after a broken connection that is [`Bell::Look`], for anything may have been missed.
    pub async fn next(&mut self) -> Result<Bell> {
        loop {
            let Ok(heard) = timeout(self.quiet, self.listener.try_recv()).await else {
                self.listens_still().await?;
                continue;
            };
            if let Some(heard) = heard.map_err(db(LISTEN))? {
                return Ok(Bell::parse(heard.payload()));
            }
            // What is rung before it listens again is not heard: the look comes behind that.
            self.listens_still().await?;
            return Ok(Bell::Look);
        }
    }

    async fn listens_still(&mut self) -> Result<()> {
        // Who listens already goes on as before, and a connection that is gone is made anew first.
        let again = self.listener.execute("LISTEN linesman");
        match timeout(self.answer, again).await {
            Ok(answered) => answered.map(drop).map_err(db(LISTEN)),
            Err(_) => Err(StoreError::Silent(LISTEN)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::iter::{once, repeat_n};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    use super::super::Target;
    use super::*;

    async fn server() -> (TcpListener, Postgres) {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = server.local_addr().unwrap().port();
        let url = format!("postgres://l@127.0.0.1:{port}/hub?sslmode=disable");
        (server, Postgres::new(Target::parse(&url).unwrap()))
    }

    /// Lets whoever comes in, and says so many times that it listens.
    async fn lets_listen(server: &TcpListener, times: usize) -> TcpStream {
        const IN: &[u8] = b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I";
        const LISTENS: &[u8] = b"C\0\0\0\x0bLISTEN\0Z\0\0\0\x05I";
        let (mut client, _) = server.accept().await.unwrap();
        let mut said = [0; 1024];
        for answer in once(IN).chain(repeat_n(LISTENS, times)) {
            assert_ne!(client.read(&mut said).await.unwrap(), 0);
            client.write_all(answer).await.unwrap();
        }
        client
    }

    /// A server that lets whoever comes listen, and is gone without a word then.
    async fn falls_silent(server: TcpListener) {
        let mut client = lets_listen(&server, 1).await;
        let mut said = [0; 1024];
        while client.read(&mut said).await.is_ok_and(|read| read > 0) {}
    }

    /// A look before that would miss what is rung between the two.
    #[tokio::test]
    async fn after_a_connection_that_broke_it_listens_again_and_then_says_look() {
        let patience = Duration::from_secs(30);
        let (server, store) = server().await;
        let (bells, client) = tokio::join!(store.bells(), lets_listen(&server, 1));
        let mut bells = bells.unwrap();
        (bells.quiet, bells.answer) = (patience, patience);
        drop(client);
        let again = async { tokio::join!(bells.next(), lets_listen(&server, 2)) };
        let (bell, _client) = timeout(patience, again).await.expect("it listens again");
        assert!(matches!(bell, Ok(Bell::Look)), "{bell:?}");
    }

    /// It rang no more until the process was started anew, and of heals that ended at other replicas nobody was told.
    #[tokio::test]
    async fn a_server_that_is_gone_without_a_word_is_not_listened_to_for_ever() {
        let (server, store) = server().await;
        let listening = async {
            let mut bells = store.bells().await.unwrap();
            (bells.quiet, bells.answer) = (Duration::from_millis(50), Duration::from_millis(50));
            bells.next().await.unwrap_err().to_string()
        };
        let why = tokio::select! {
            () = falls_silent(server) => panic!("nobody listens"),
            why = timeout(Duration::from_secs(30), listening) => why.expect("it has an end"),
        };
        assert_eq!(
            why,
            "listen to the other replicas: the database does not answer"
        );
    }
}

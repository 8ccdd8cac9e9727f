//! Connections to the server: kept, tried before they are used, and made anew where they are lost.

use std::time::Duration;

use sqlx::ConnectOptions as _;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions};
use tokio::time::{Instant, sleep, timeout};

use super::CONNECT;

/// A connection that was idle for longer is tried before it is used.
const TRUSTED_IDLE: Duration = Duration::from_secs(1);
/// A connection that does not answer a ping for so long is lost, whatever TCP believes.
const PING: Duration = Duration::from_secs(2);
/// One that takes longer to be made was begun while nothing came through.
const FRESH: Duration = Duration::from_secs(5);
/// TCP has given up by then.
const TCP: Duration = Duration::from_mins(16);

/// Whether the connection is gone, and not what was asked of it wrong. Class 57 is an administrator's intervention.
pub(super) fn is_lost(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) => true,
        sqlx::Error::Database(d) => d.code().is_some_and(|code| code.starts_with("57P")),
        _ => false,
    }
}

/// Makes another connection of one that is lost. The pool would close it first, and wait for the server's word in that, as
/// long as TCP takes to give up: it would be short of a connection for that long, be the network back or not.
async fn revive(
    connection: &mut PgConnection,
    options: &PgConnectOptions,
) -> Result<(), sqlx::Error> {
    use sqlx::Connection as _;
    let until = Instant::now() + TCP;
    if let Ok(answered) = timeout(PING, connection.ping()).await {
        return answered;
    }
    while Instant::now() < until {
        if let Ok(Ok(fresh)) = timeout(FRESH, options.connect()).await {
            *connection = fresh;
            return Ok(());
        }
        sleep(PING).await;
    }
    Err(sqlx::Error::PoolTimedOut)
}

pub(super) fn pool(most: u32, options: PgConnectOptions) -> PgPool {
    let (own, again) = (options.clone(), options.clone());
    PgPoolOptions::new()
        .max_connections(most)
        .idle_timeout(None)
        .max_lifetime(None)
        .acquire_timeout(CONNECT)
        .test_before_acquire(false)
        .before_acquire(move |connection, meta| {
            let options = own.clone();
            Box::pin(async move {
                if meta.idle_for > TRUSTED_IDLE {
                    revive(connection, &options).await?;
                }
                Ok(true)
            })
        })
        .after_release(move |connection, _| {
            let options = again.clone();
            Box::pin(async move {
                revive(connection, &options).await?;
                Ok(true)
            })
        })
        .connect_lazy_with(options)
}

//! One at a time works at a session, here and among the replicas: the provider's refresh tokens rotate, too, and one that is
//! shown twice may end all of them.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{LoginError, TURNS};
use crate::clock;
use crate::hub::oidc::OidcError;
use crate::hub::{Hub, chain_of};
use crate::keys;

/// A replica that died has its turn for so long: longer than all calls of one turn to the provider take.
const LASTS: time::Duration = time::Duration::minutes(1);
/// How long another one's turn is waited for, and how often it is looked whether it is over.
const PATIENCE: Duration = Duration::from_secs(20);
const AGAIN: Duration = Duration::from_millis(50);

/// Runs this when nobody else works at the session.
pub(super) async fn alone<T>(
    hub: &Hub,
    session: &str,
    work: impl Future<Output = Result<T, LoginError>>,
) -> Result<T, LoginError> {
    let [first, ..] = keys::sha256(session.as_bytes());
    let own = hub.logins.turns.get(usize::from(first) % TURNS);
    let _here = match own {
        Some(turn) => turn.acquire().await.ok(),
        None => None,
    };
    let Some(replica) = &hub.replica else {
        return work.await;
    };
    let by = format!(
        "{}/{}",
        replica.record.id,
        keys::encode(&clock::random::<8>())
    );
    among_replicas(hub, session, &by).await?;
    let done = work.await;
    if let Err(error) = hub.store.end_turn(session, &by).await {
        tracing::warn!(session, error = chain_of(&error), "end a turn at a session");
    }
    done
}

async fn among_replicas(hub: &Hub, session: &str, by: &str) -> Result<(), LoginError> {
    let end = Instant::now() + PATIENCE;
    loop {
        let now = clock::now();
        if hub.store.take_turn(session, by, now, now + LASTS).await? {
            return Ok(());
        }
        if Instant::now() >= end {
            return Err(OidcError::Busy.into());
        }
        sleep(AGAIN).await;
    }
}

//! One at a time works at a session, here and among the replicas: the provider's refresh tokens rotate, too, and one that is
//! shown twice may end all of them.

use std::time::Duration;

use tokio::sync::AcquireError;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use super::{LoginError, TURNS};
use crate::clock;
use crate::hub::oidc::OidcError;
use crate::hub::store::StoreError;
use crate::hub::{Hub, chain_of};
use crate::keys;

/// A replica that died has its turn for so long: longer than all calls of one turn to the provider take.
const LASTS: Duration = Duration::from_mins(1);
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
    let until = Instant::now() + PATIENCE;
    let own = hub.logins.turns.get(usize::from(first) % TURNS);
    let _here = match own {
        Some(turn) => Some(waited(&hub.stop, until, turn.acquire()).await?),
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
    among_replicas(&hub.stop, until, || {
        hub.store.take_turn(session, &by, LASTS)
    })
    .await?;
    let done = work.await;
    if let Err(error) = hub.store.end_turn(session, &by).await {
        tracing::warn!(session, error = chain_of(&error), "end a turn at a session");
    }
    done
}

/// Takes the turn as soon as no other replica has it.
async fn among_replicas<W>(
    stop: &CancellationToken,
    until: Instant,
    take: impl Fn() -> W,
) -> Result<(), LoginError>
where
    W: Future<Output = Result<bool, StoreError>>,
{
    while !take().await? {
        let next = Instant::now() + AGAIN;
        if next >= until {
            return Err(OidcError::Busy.into());
        }
        waited(stop, until, async {
            sleep_until(next).await;
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// What is waited for until then, and no longer than the hub goes on: who waits has begun nothing yet.
async fn waited<T>(
    stop: &CancellationToken,
    until: Instant,
    what: impl Future<Output = Result<T, AcquireError>>,
) -> Result<T, LoginError> {
    tokio::select! {
        // What is free needs no wait, whether the hub stops or not.
        biased;
        done = timeout_at(until, what) => match done {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(_)) | Err(_) => Err(OidcError::Busy.into()),
        },
        () = stop.cancelled() => Err(LoginError::Stopping),
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Semaphore;

    use super::*;

    fn end() -> Instant {
        Instant::now() + PATIENCE
    }

    /// A hub that stops does not hold those up who wait for a turn: another one answers them.
    #[tokio::test(start_paused = true)]
    async fn a_wait_for_a_turn_ends_with_the_hub() {
        let begun = Instant::now();
        let stop = CancellationToken::new();
        let (here, never) = (Semaphore::new(0), || ready(Ok(false)));
        let stopping = async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            stop.cancel();
        };
        let (own, others, ()) = tokio::join!(
            waited(&stop, end(), here.acquire()),
            among_replicas(&stop, end(), never),
            stopping
        );
        assert!(matches!(own, Err(LoginError::Stopping)));
        assert!(matches!(others, Err(LoginError::Stopping)));
        assert_eq!(begun.elapsed(), Duration::from_secs(3));
        // A turn that is free is no wait.
        here.add_permits(1);
        assert!(waited(&stop, end(), here.acquire()).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_is_waited_for_until_it_is_free_and_not_for_ever() {
        let (begun, stop) = (Instant::now(), CancellationToken::new());
        let asked = AtomicUsize::new(0);
        let third = || ready(Ok(asked.fetch_add(1, Ordering::Relaxed) == 2));
        assert!(among_replicas(&stop, end(), third).await.is_ok());
        assert_eq!(begun.elapsed(), AGAIN * 2);
        let here = Semaphore::new(0);
        let (own, others) = tokio::join!(
            waited(&stop, end(), here.acquire()),
            among_replicas(&stop, end(), || ready(Ok(false)))
        );
        let busy = |e: &LoginError| matches!(e, LoginError::Provider(OidcError::Busy));
        assert!(own.is_err_and(|e| busy(&e)) && others.is_err_and(|e| busy(&e)));
        assert!(begun.elapsed() <= PATIENCE + AGAIN * 3);
    }
}

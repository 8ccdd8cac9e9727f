//! People who do not refresh their session by themselves, because something of theirs runs for long, or because they use API tokens
//! and SSH keys: the provider is asked about them meanwhile.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Result;
use futures_util::{StreamExt as _, stream};
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

use super::ask;
use crate::clock;
use crate::hub::login::{From, LoginError, turn};
use crate::hub::oidc::Provider;
use crate::hub::replica::follow::end_lost;
use crate::hub::store::{Session, StoreError};
use crate::hub::{Hub, auth, chain_of, grants};

/// Sessions of one pass for holders, how many of any at once, and after how many failures the next pass goes on: the provider is away.
const OF_ONE_PASS: u32 = 500;
const AT_ONCE: usize = 8;
const GIVE_UP: usize = 8;
/// Between two looks for groups that do not count any more.
const LOOK: Duration = Duration::from_mins(1);

/// Asks the provider about those whose requests outlive an access token, until `stop`: a watch of hours ends when its
/// person is gone, although its client never asks again.
pub async fn watch_over(hub: Arc<Hub>, stop: CancellationToken) -> Result<()> {
    let Some(provider) = &hub.oidc else {
        stop.cancelled().await;
        return Ok(());
    };
    let age = provider.config.sessions.access;
    while stop
        .run_until_cancelled(tokio::time::sleep(between(age)))
        .await
        .is_some()
    {
        ask_about_running(&hub, provider, &stop).await;
    }
    Ok(())
}

/// Some at once: of many, one after the other, the last would be asked about long after the provider's word on them is old.
async fn ask_about_running(hub: &Hub, provider: &Provider, stop: &CancellationToken) {
    let (age, from) = (provider.config.sessions.access, own());
    let sessions: Vec<String> = hub.requests.tokens().into_iter().collect();
    let goes_on = || !stop.is_cancelled();
    finishing(sessions, goes_on, |id| {
        let from = &from;
        async move {
            let Err(error) = look(hub, provider, &id, age, from).await else {
                return;
            };
            if !hub.store.is_away() {
                tracing::warn!(
                    session = id,
                    error = chain_of(&error),
                    "ask about a running session"
                );
            }
        }
    })
    .await;
}

async fn look(
    hub: &Hub,
    provider: &Provider,
    id: &str,
    age: Duration,
    from: &From,
) -> Result<(), LoginError> {
    let due =
        |session: &Session| session.sealed.is_some() && is_due(session.asked_at, clock::now(), age);
    // An API token's id is no session's.
    let found = hub.store.session(id).await?;
    if !found.is_some_and(|(session, _)| !session.ended && due(&session)) {
        return Ok(());
    }
    turn::alone(hub, id, async {
        match hub.store.session(id).await? {
            Some((session, user)) if !session.ended && due(&session) => {
                ask(hub, provider, &session, &user, from).await.map(drop)
            }
            _ => Ok(()),
        }
    })
    .await
}

/// Whether the provider is to be asked again. What a clock that was ahead has dated is due: nobody knows how old it is.
fn is_due(asked_at: OffsetDateTime, now: OffsetDateTime, age: Duration) -> bool {
    asked_at > now || now - asked_at >= age
}

/// Asks about those who have API tokens or SSH keys, used or not, until `stop`: the groups of a token are as new as those of a
/// session, and a refresh token that lies idle does not end at a provider that wants it used.
pub async fn ask_for_holders(hub: Arc<Hub>, stop: CancellationToken) -> Result<()> {
    let Some(provider) = &hub.oidc else {
        stop.cancelled().await;
        return Ok(());
    };
    loop {
        if let Err(error) = pass(&hub, provider, &stop).await
            && !hub.store.is_away()
        {
            tracing::warn!(
                error = chain_of(&error),
                "look whom to ask the provider about"
            );
        }
        let pause = tokio::time::sleep(between(provider.config.sessions.access));
        if stop.run_until_cancelled(pause).await.is_none() {
            return Ok(());
        }
    }
}

async fn pass(hub: &Hub, provider: &Provider, stop: &CancellationToken) -> Result<(), StoreError> {
    let (age, now, from) = (provider.config.sessions.access, clock::now(), own());
    let issuer = &provider.config.issuer;
    let due = hub
        .store
        .sessions_due(issuer, now - age, now, OF_ONE_PASS)
        .await?;
    let failed = AtomicUsize::new(0);
    let goes_on = || !stop.is_cancelled() && failed.load(Ordering::Relaxed) < GIVE_UP;
    finishing(due, goes_on, |id| {
        let (from, failed) = (&from, &failed);
        async move {
            let Err(error) = look(hub, provider, &id, age, from).await else {
                return;
            };
            tracing::warn!(error = chain_of(&error), "ask about someone who has tokens");
            // A no about one person is an answer.
            if !matches!(&error, LoginError::Provider(no) if no.is_final()) {
                failed.fetch_add(1, Ordering::Relaxed);
            }
        }
    })
    .await;
    Ok(())
}

/// Does this for each, some at once, for as long as it `goes_on`. What was begun is finished: a refresh token that the provider
/// has replaced, and whose next one nobody stores, is the end of its session.
async fn finishing<T, W: Future<Output = ()>>(
    items: Vec<T>,
    goes_on: impl Fn() -> bool,
    work: impl FnMut(T) -> W,
) {
    let items = stream::iter(items).take_while(|_| ready(goes_on()));
    items.for_each_concurrent(AT_ONCE, work).await;
}

/// Ends what runs here by groups that do not count any more, or by what has ended by the hub's clock, until `stop`; what begins is
/// judged as it comes. In a hub that is alone also what was taken away while nobody could end what runs by it, since the database did not answer in time.
pub async fn end_lapsed(hub: Arc<Hub>, stop: CancellationToken) -> Result<()> {
    while stop
        .run_until_cancelled(tokio::time::sleep(LOOK))
        .await
        .is_some()
    {
        hub.requests.end_over(clock::now());
        if let Err(error) = lapsed(&hub).await
            && !hub.store.is_away()
        {
            tracing::warn!(
                error = chain_of(&error),
                "look whose groups do not count any more"
            );
        }
    }
    Ok(())
}

async fn lapsed(hub: &Hub) -> Result<(), StoreError> {
    // Of all others nothing is said: what is told at once is remembered for requests that are being judged, and that is bounded.
    let running = hub.requests.users();
    if running.is_empty() {
        return Ok(());
    }
    // Replicas look at once.
    if hub.replica.is_none() {
        end_lost(hub).await?;
    }
    let (now, oidc) = (clock::now(), hub.config.oidc.as_ref());
    let users = hub.store.users().await?;
    for user in users.iter().filter(|user| running.contains(&user.id)) {
        if auth::lapsed(user, oidc, now).is_some() {
            grants::groups_lost(hub, &user.id, &user.groups, &[]).await?;
        }
    }
    Ok(())
}

/// A word may be as old as an access token; it is looked for what is due so often.
fn between(age: Duration) -> Duration {
    (age / 15).clamp(Duration::from_millis(200), Duration::from_mins(1))
}

fn own() -> From {
    From {
        remote: "hub".to_owned(),
        request_id: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::Semaphore;

    use super::*;

    /// H32
    #[test]
    fn who_was_asked_about_by_a_clock_that_was_ahead_is_due() {
        let at = |seconds| OffsetDateTime::UNIX_EPOCH + time::Duration::seconds(seconds);
        for (asked, now, due) in [
            (100, 100, false),
            (100, 999, false),
            (100, 1_000, true),
            (101, 100, true),
            (3_700, 100, true),
        ] {
            let found = is_due(at(asked), at(now), Duration::from_mins(15));
            assert_eq!(found, due, "{asked} {now}");
        }
    }

    /// A hub that stops in the midst of a question to the provider stores its answer.
    #[tokio::test]
    async fn what_was_begun_is_finished_and_no_more_is_begun() {
        let (stop, answers) = (CancellationToken::new(), Semaphore::new(0));
        let [begun, finished] = [0, 0].map(AtomicUsize::new);
        let work = |_: usize| async {
            begun.fetch_add(1, Ordering::Relaxed);
            let answer = answers.acquire().await.unwrap();
            answer.forget();
            finished.fetch_add(1, Ordering::Relaxed);
        };
        let all = finishing((0..100).collect(), || !stop.is_cancelled(), work);
        let stopping = async {
            while begun.load(Ordering::Relaxed) < AT_ONCE {
                tokio::task::yield_now().await;
            }
            stop.cancel();
            answers.add_permits(100);
        };
        tokio::join!(all, stopping);
        assert_eq!(
            [begun, finished].map(AtomicUsize::into_inner),
            [AT_ONCE, AT_ONCE]
        );
    }
}

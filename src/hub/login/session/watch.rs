//! Sessions whose requests run for long: their persons are asked about meanwhile.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tokio_util::sync::CancellationToken;

use super::ask;
use crate::clock;
use crate::hub::login::{From, LoginError};
use crate::hub::oidc::Provider;
use crate::hub::store::Session;
use crate::hub::{Hub, chain_of};

/// Asks the provider about those whose requests outlive an access token, until `stop`: a watch of hours ends when its
/// person is gone, although its client never asks again.
pub async fn watch_over(hub: Arc<Hub>, stop: CancellationToken) -> Result<()> {
    let Some(provider) = &hub.oidc else {
        stop.cancelled().await;
        return Ok(());
    };
    let age = provider.config.sessions.access;
    let every = (age / 15).clamp(Duration::from_millis(200), Duration::from_mins(1));
    let from = From {
        remote: "hub".to_owned(),
        request_id: String::new(),
    };
    while stop
        .run_until_cancelled(tokio::time::sleep(every))
        .await
        .is_some()
    {
        for id in hub.requests.tokens() {
            if let Err(error) = look(&hub, provider, &id, age, &from).await {
                tracing::warn!(
                    session = id,
                    error = chain_of(&error),
                    "ask about a running session"
                );
            }
            if stop.is_cancelled() {
                return Ok(());
            }
        }
    }
    Ok(())
}

async fn look(
    hub: &Hub,
    provider: &Provider,
    id: &str,
    age: Duration,
    from: &From,
) -> Result<(), LoginError> {
    let due =
        |session: &Session| session.sealed.is_some() && clock::now() - session.asked_at >= age;
    // An API token's id is no session's.
    let found = hub.store.session(id).await?;
    if !found.is_some_and(|(session, _)| !session.ended && due(&session)) {
        return Ok(());
    }
    let _turn = hub.logins.turn(id).await;
    match hub.store.session(id).await? {
        Some((session, user)) if !session.ended && due(&session) => {
            ask(hub, provider, &session, &user, from).await.map(drop)
        }
        _ => Ok(()),
    }
}

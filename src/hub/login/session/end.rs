//! How a session ends, with all that it runs: its person logs out, or the hub knows better.

use super::{Told, genuine, told};
use crate::clock;
use crate::hub::login::{From, LoginError, turn};
use crate::hub::registration::{Prefix, TokenText};
use crate::hub::running::Gone;
use crate::hub::store::UserRow;
use crate::hub::{Hub, chain_of};

/// A person logs out: with any of the session's refresh tokens. Gives whether there was something to end.
pub async fn log_out(hub: &Hub, text: &str, from: &From) -> Result<bool, LoginError> {
    let Some(token) = TokenText::parse(Prefix::Refresh, text) else {
        return Ok(false);
    };
    let pair = match genuine(hub, &token).await {
        Ok((pair, _, _)) => pair,
        Err(LoginError::Refused { .. }) => return Ok(false),
        // It may be one whose session goes on.
        Err(error) => return Err(error),
    };
    turn::alone(hub, &pair.session_id, logged_out(hub, &token, from)).await
}

async fn logged_out(hub: &Hub, token: &TokenText, from: &From) -> Result<bool, LoginError> {
    let (_, session, user) = genuine(hub, token).await?;
    if session.ended {
        return Ok(false);
    }
    let sealed = session.sealed.as_deref();
    let kept = sealed.and_then(|sealed| hub.logins.seal.open(&session.id, sealed));
    // On record first: where that fails, the session goes on, and its person asks again.
    told(
        hub,
        Told {
            action: "logout",
            user: &user,
            target: &session.id,
            denied: None,
        },
        from,
    )
    .await?;
    if !hub
        .store
        .end_session(&session.id, "logged out", clock::now())
        .await?
    {
        return Ok(false);
    }
    hub.requests.end(Gone::Token(&session.id));
    if let Some(kept) = kept
        && let Some(provider) = &hub.oidc
        && let Err(error) = provider.revoke(&kept).await
    {
        tracing::debug!(
            error = chain_of(&error),
            "the provider did not take a refresh token back"
        );
    }
    Ok(true)
}

/// Ends a session and what it runs. On record first: where that fails, the session goes on, and whoever ends it comes again, with
/// the next use of its tokens or the next question to the provider. What it runs is cut in any case.
pub(super) async fn end(
    hub: &Hub,
    id: &str,
    user: &UserRow,
    why: &str,
    from: &From,
) -> Result<(), LoginError> {
    let ended = async {
        let what = Told {
            action: "session.end",
            user,
            target: id,
            denied: Some(why),
        };
        told(hub, what, from).await?;
        let why = crate::hub::cut(why, 500);
        hub.store.end_session(id, why, clock::now()).await?;
        Ok(())
    };
    let ended = ended.await;
    hub.requests.end(Gone::Token(id));
    ended
}

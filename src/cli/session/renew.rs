//! Renewing a session before it ends. Refresh tokens are good once, so of parallel processes one asks the hub and the
//! others take what it got.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use time::OffsetDateTime;

use super::alone::{Doing, alone};
use super::{Session, change, directory, load, make_directory};
use crate::cli::connect::client_to;
use crate::cli::exit::{Code, Failure};
use crate::cli::interrupt::{self, Interrupt};
use crate::cli::progress;
use crate::client::{self, Renewal};
use crate::secret::Secret;
use crate::wire::api::TokenRequest;
use crate::{clock, keys};

/// What is left of a token that is still used; kubectl asks for a new one 30 s before its end.
const EARLY: time::Duration = time::Duration::seconds(60);

/// Whether the session has to be renewed before it is used.
pub(in crate::cli) fn is_due(session: &Session, now: OffsetDateTime) -> bool {
    session.refresh.is_some() && ends(session.expires_at.as_deref(), now)
}

/// Whether a token of this end (RFC 3339) is not used any more.
fn ends(expires_at: Option<&str>, now: OffsetDateTime) -> bool {
    let at = expires_at.and_then(clock::parse_rfc3339);
    at.is_none_or(|at| at - EARLY <= now)
}

/// The session's token for a command that may outlive it: kept, and renewed when it ends. `held` is the token with its end.
pub(in crate::cli) fn as_it_ends(hub: &str, held: (Secret<String>, Option<String>)) -> Renewal {
    let (hub, held) = (hub.to_owned(), Arc::new(Mutex::new(held)));
    // A call may be made in a task that knows of no verb.
    let verb = interrupt::own();
    Renewal::new(move || {
        let (hub, held, verb) = (hub.clone(), held.clone(), verb.clone());
        async move {
            {
                let held = held.lock().unwrap_or_else(PoisonError::into_inner);
                if !ends(held.1.as_deref(), clock::now()) {
                    return Ok(held.0.clone());
                }
            }
            let session = match renewed(&hub, verb.as_ref()).await {
                Ok(session) => session,
                // A hub that is away for a moment is that to the call, too.
                Err(error) => {
                    return Err(error.downcast().unwrap_or_else(client::Error::Session));
                }
            };
            let token = session.token;
            let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
            *held = (token.clone(), session.expires_at);
            Ok(token)
        }
    })
}

/// The hub's session, renewed where it is due.
pub(in crate::cli) async fn renew(hub: &str) -> Result<Session> {
    renewed(hub, interrupt::own().as_ref()).await
}

async fn renewed(hub: &str, verb: Option<&Interrupt>) -> Result<Session> {
    const DOING: Doing = Doing {
        now: "renews the session",
        long: "been renewing the session",
    };
    let directory = directory()?;
    make_directory(&directory)?;
    let name = keys::sha256_hex(hub.as_bytes());
    let path = directory.join(format!("renew-{}.lock", &name[..16]));
    let _alone = alone(&path, DOING, progress::waits).await?;
    ask(&directory, hub, verb).await
}

async fn ask(directory: &Path, hub: &str, verb: Option<&Interrupt>) -> Result<Session> {
    let mut sessions = load(directory)?;
    let session = sessions
        .hubs
        .remove(hub)
        .ok_or_else(|| ended(hub, "there is none any more"))?;
    // Someone else may have done it while we waited.
    let Some(refresh) = session
        .refresh
        .clone()
        .filter(|_| is_due(&session, clock::now()))
    else {
        return Ok(session);
    };
    let client = client_to(hub, session.ca.as_deref(), None)?;
    let asked = TokenRequest::Refresh {
        refresh_token: refresh.into_inner(),
    };
    let kept = async {
        let answer = match client.session_token("renew the session", &asked).await {
            Ok(answer) => answer,
            Err(error) if is_over(&error) => {
                forget(directory, hub, &session).await?;
                return Err(ended(hub, &error.to_string()).into());
            }
            Err(error) => return Err(error.into()),
        };
        let next = Session {
            token: answer.access_token.into(),
            refresh: Some(answer.refresh_token.into()),
            user: answer.user,
            expires_at: Some(answer.access_expires_at),
            ends_at: Some(answer.expires_at),
            ca: session.ca.clone(),
        };
        keep(directory, hub, &session, next).await
    };
    // The hub has spent the token once it was asked, and knows it for a moment only: without the next one the session is over.
    interrupt::to_its_end(verb, kept).await
}

/// Keeps what a session was renewed to, and gives what is kept then: who logged out meanwhile, or in again, has the last word.
async fn keep(directory: &Path, hub: &str, renewed: &Session, next: Session) -> Result<Session> {
    let mut kept = None;
    change(directory, |sessions| {
        if let Some(session) = sessions.hubs.get_mut(hub) {
            if session.refresh == renewed.refresh {
                *session = next;
            }
            kept = Some(session.clone());
        }
    })
    .await?;
    Ok(kept.ok_or_else(|| ended(hub, "there is none any more"))?)
}

/// Whether it is the hub's last word on the session. What stands before the hub refuses calls, too, and knows nothing of sessions.
fn is_over(error: &client::Error) -> bool {
    error.slug() == Some("session-ended")
}

/// The hub has said its last word: nobody asks again. Its CA stays for the next login.
async fn forget(directory: &Path, hub: &str, ended: &Session) -> Result<()> {
    change(directory, |sessions| {
        if let Some(session) = sessions
            .hubs
            .get_mut(hub)
            .filter(|s| s.refresh == ended.refresh)
        {
            session.refresh = None;
        }
    })
    .await
}

fn ended(hub: &str, why: &str) -> Failure {
    Failure::new(
        Code::Denied,
        format!("the session of {hub} has ended: {why}"),
        format!("run: linesman login {hub}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::api::Problem;

    #[test]
    fn a_session_is_renewed_a_minute_before_its_end() {
        let now = clock::parse_rfc3339("2026-01-01T00:00:00Z").unwrap();
        let session = |refresh: Option<&str>, end: Option<&str>| Session {
            token: "lma1.a.b".to_owned().into(),
            refresh: refresh.map(|refresh| refresh.to_owned().into()),
            ca: None,
            user: "ada".to_owned(),
            expires_at: end.map(str::to_owned),
            ends_at: None,
        };
        for (refresh, end, due) in [
            (Some("r"), Some("2026-01-01T00:01:01Z"), false),
            (Some("r"), Some("2026-01-01T00:01:00Z"), true),
            (Some("r"), None, true),
            (None, Some("2025-01-01T00:00:00Z"), false),
        ] {
            assert_eq!(
                is_due(&session(refresh, end), now),
                due,
                "{refresh:?} {end:?}"
            );
        }
    }

    /// A proxy that has the person log in somewhere, or refuses for a while, throws no session away.
    #[test]
    fn only_the_hub_ends_a_session() {
        let refused = |slug: &str, status: u16| client::Error::Refused {
            operation: "renew the session".to_owned(),
            problem: Box::new(Problem {
                kind: format!("urn:linesman:problem:{slug}"),
                title: String::new(),
                status,
                detail: String::new(),
                hop: "hub".to_owned(),
                next: String::new(),
                request_id: String::new(),
                more: [].into(),
            }),
        };
        let gateway = client::Error::Gateway {
            operation: "renew the session".to_owned(),
            hub: "https://hub".to_owned(),
            status: http::StatusCode::UNAUTHORIZED,
            body: "<html>".to_owned(),
        };
        for (error, over) in [
            (refused("session-ended", 401), true),
            (refused("login-required", 401), false),
            (refused("provider-unavailable", 502), false),
            (gateway, false),
        ] {
            assert_eq!(is_over(&error), over, "{error:?}");
        }
    }

    /// H31: who logged out, or in as another, while the hub was asked, has the last word.
    #[tokio::test]
    async fn a_renewal_undoes_no_logout_and_no_other_login() {
        let directory = std::env::temp_dir().join(format!(
            "linesman-renew-{}",
            keys::hex(&clock::random::<8>())
        ));
        let session = |token: &str, user: &str| Session {
            token: token.to_owned().into(),
            refresh: Some(format!("refresh {token}").into()),
            ca: None,
            user: user.to_owned(),
            expires_at: None,
            ends_at: None,
        };
        let hub = "https://hub";
        let (old, next) = (session("1", "ada"), session("2", "ada"));
        let other = session("3", "bob");
        for (there, kept) in [
            (Some(&old), Some(&next)),
            (Some(&other), Some(&other)),
            (None, None),
        ] {
            change(&directory, |sessions| {
                sessions.hubs.clear();
                let there = there.map(|there| (hub.to_owned(), there.clone()));
                sessions.hubs.extend(there);
            })
            .await
            .unwrap();
            let given = keep(&directory, hub, &old, next.clone()).await.ok();
            assert_eq!(given.as_ref(), kept);
            assert_eq!(load(&directory).unwrap().hubs.get(hub), kept);
        }
        std::fs::remove_dir_all(directory).unwrap();
    }
}

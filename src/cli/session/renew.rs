//! Renewing a session before it ends. Refresh tokens are good once, so of parallel processes one asks the hub and the
//! others take what it got.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use time::OffsetDateTime;
use tokio::time::{Instant, sleep};

use super::{Session, change, directory, load, make_directory, private};
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
/// How long another process may take.
const PATIENCE: Duration = Duration::from_mins(1);
const LOOK: Duration = Duration::from_millis(20);
/// One that takes so long is told of.
const SLOW: Duration = Duration::from_secs(2);

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
            let token = Secret::new(session.token);
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
    let directory = directory()?;
    make_directory(&directory)?;
    let name = keys::sha256_hex(hub.as_bytes());
    let path = directory.join(format!("renew-{}.lock", &name[..16]));
    let file = private()
        .open(&path)
        .with_context(|| format!("open {}", path.display()))?;
    alone(&file, &path, progress::waits).await?;
    ask(&directory, hub, verb).await
}

/// Waits until no other process renews the session.
async fn alone(file: &File, path: &Path, mut tell: impl FnMut(&str)) -> Result<()> {
    let (begun, mut told) = (Instant::now(), false);
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if begun.elapsed() < PATIENCE => {
                if !told && begun.elapsed() >= SLOW {
                    tell("another linesman renews the session");
                    told = true;
                }
                sleep(LOOK).await;
            }
            Err(TryLockError::WouldBlock) => {
                return Err(Failure::new(
                    Code::Failed,
                    "another linesman has been renewing the session for a minute",
                    format!("see what holds it: fuser -v {}", path.display()),
                )
                .into());
            }
            Err(TryLockError::Error(e)) => {
                return Err(e).with_context(|| format!("lock {}", path.display()));
            }
        }
    }
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
        refresh_token: refresh,
    };
    let kept = async {
        let answer = match client.session_token("renew the session", &asked).await {
            Ok(answer) => answer,
            Err(error) if is_over(&error) => {
                forget(directory, hub, &session)?;
                return Err(ended(hub, &error.to_string()).into());
            }
            Err(error) => return Err(error.into()),
        };
        let next = Session {
            token: answer.access_token,
            refresh: Some(answer.refresh_token),
            user: answer.user,
            expires_at: Some(answer.access_expires_at),
            ends_at: Some(answer.expires_at),
            ca: session.ca.clone(),
        };
        keep(directory, hub, &session, next)
    };
    // The hub has spent the token once it was asked, and knows it for a moment only: without the next one the session is over.
    interrupt::to_its_end(verb, kept).await
}

/// Keeps what a session was renewed to, and gives what is kept then: who logged out meanwhile, or in again, has the last word.
fn keep(directory: &Path, hub: &str, renewed: &Session, next: Session) -> Result<Session> {
    let mut kept = None;
    change(directory, |sessions| {
        if let Some(session) = sessions.hubs.get_mut(hub) {
            if session.refresh == renewed.refresh {
                *session = next;
            }
            kept = Some(session.clone());
        }
    })?;
    Ok(kept.ok_or_else(|| ended(hub, "there is none any more"))?)
}

/// Whether it is the hub's last word on the session. What stands before the hub refuses calls, too, and knows nothing of sessions.
fn is_over(error: &client::Error) -> bool {
    error.slug() == Some("session-ended")
}

/// The hub has said its last word: nobody asks again. Its CA stays for the next login.
fn forget(directory: &Path, hub: &str, ended: &Session) -> Result<()> {
    change(directory, |sessions| {
        if let Some(session) = sessions
            .hubs
            .get_mut(hub)
            .filter(|s| s.refresh == ended.refresh)
        {
            session.refresh = None;
        }
    })
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
            token: "lma1.a.b".to_owned(),
            refresh: refresh.map(str::to_owned),
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

    /// A minute is long for whoever sees nothing.
    #[tokio::test(start_paused = true)]
    async fn who_waits_for_another_process_is_told_once() {
        let name = keys::hex(&clock::random::<8>());
        let path = std::env::temp_dir().join(format!("linesman-renew-{name}.lock"));
        let (other, own) = (
            private().open(&path).unwrap(),
            private().open(&path).unwrap(),
        );
        for (takes, tells, fails) in [(1, 0, false), (5, 1, false), (90, 1, true)] {
            other.lock().unwrap();
            let mut said = Vec::new();
            let waits = alone(&own, &path, |text| said.push(text.to_owned()));
            let renews = async {
                sleep(Duration::from_secs(takes)).await;
                other.unlock().unwrap();
            };
            let (waited, ()) = tokio::join!(waits, renews);
            assert_eq!(waited.is_err(), fails, "{takes}");
            assert_eq!(
                said,
                vec!["another linesman renews the session"; tells],
                "{takes}"
            );
            own.unlock().unwrap();
        }
        std::fs::remove_file(path).unwrap();
    }

    /// H31: who logged out, or in as another, while the hub was asked, has the last word.
    #[test]
    fn a_renewal_undoes_no_logout_and_no_other_login() {
        let directory = std::env::temp_dir().join(format!(
            "linesman-renew-{}",
            keys::hex(&clock::random::<8>())
        ));
        let session = |token: &str, user: &str| Session {
            token: token.to_owned(),
            refresh: Some(format!("refresh {token}")),
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
            .unwrap();
            let given = keep(&directory, hub, &old, next.clone()).ok();
            assert_eq!(given.as_ref(), kept);
            assert_eq!(load(&directory).unwrap().hubs.get(hub), kept);
        }
        std::fs::remove_dir_all(directory).unwrap();
    }
}

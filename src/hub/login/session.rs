//! Sessions: tokens out of a login, their rotation, and their end. All that a session ran ends with it.

use std::time::Duration;

use time::OffsetDateTime;

use super::pending::Ready;
use super::record::{logged_in, refused_on_record, renamed};
use super::{Arriving, From, LoginError, turn};
use crate::clock;
use crate::hub::Hub;
use crate::hub::audit::{Entry, Verdict};
use crate::hub::oidc::{Lifetimes, Provider};
use crate::hub::registration::{Prefix, TokenText};
use crate::hub::store::{Pair, Session, SessionToken, StoreError, UserRow};
use crate::keys;
use crate::wire::api::SessionAnswer;

mod end;
mod room;
mod vouched;
mod watch;

use end::end;
pub use end::log_out;
use room::make_room;
use vouched::{groups_told, unvouched};
pub use watch::{ask_for_holders, end_lapsed, watch_over};

/// Both tokens of a pair have its id.
struct Fresh {
    access: TokenText,
    refresh: TokenText,
}

impl Fresh {
    fn new() -> Self {
        let id = clock::random();
        Self {
            access: TokenText::new(id, clock::random()),
            refresh: TokenText::new(id, clock::random()),
        }
    }

    fn pair(&self, access_until: OffsetDateTime) -> Pair {
        Pair {
            id: self.access.id.clone(),
            access_hash: self.access.hash(),
            refresh_hash: self.refresh.hash(),
            access_until,
        }
    }

    fn answer(
        &self,
        user: &UserRow,
        access_until: OffsetDateTime,
        session: &Session,
    ) -> SessionAnswer {
        SessionAnswer {
            user: user.name.clone(),
            access_token: self.access.text(Prefix::Access).into_inner(),
            access_expires_at: clock::rfc3339(access_until),
            refresh_token: self.refresh.text(Prefix::Refresh).into_inner(),
            expires_at: clock::rfc3339(session.expires_at),
        }
    }
}

fn ended() -> LoginError {
    LoginError::refused("the session has ended", "run: linesman login")
}

/// How long things of a session hold.
fn times(hub: &Hub) -> Lifetimes {
    let provider = hub.oidc.as_ref();
    provider.map_or(hub.config.sessions, |provider| provider.config.sessions)
}

/// The first tokens of a local user, for a code that an admin gave them.
pub async fn by_code(hub: &Hub, code: &str, from: &From) -> Result<SessionAnswer, LoginError> {
    const HOW: &str = "code";
    let now = clock::now();
    // Nothing else is worth a look.
    let found = match TokenText::parse(Prefix::Login, code) {
        Some(_) => super::pending(hub).accept(code, now).await?,
        None => None,
    };
    let user = match &found {
        Some(id) => hub.store.user_by_id(id).await?,
        None => None,
    };
    let Some(user) = user.filter(|user| !user.disabled && user.provider.is_none()) else {
        refused_on_record(hub, &LoginError::Code, HOW, from).await;
        return Err(LoginError::Code);
    };
    logged_in(hub, &user, "by code", from).await?;
    let ready = Ready {
        user_id: user.id,
        refresh: None,
        until: now + times(hub).whole,
    };
    open(hub, ready, from).await
}

/// The first tokens of a login.
pub async fn open(hub: &Hub, ready: Ready, from: &From) -> Result<SessionAnswer, LoginError> {
    let (now, times) = (clock::now(), times(hub));
    let id = keys::encode(&clock::random::<16>());
    let whole = now + times.whole;
    let sealed = ready
        .refresh
        .as_ref()
        .map(|text| hub.logins.seal.close(&id, text));
    // Where the provider cannot be asked again, its word holds as long as it said.
    let expires_at = if sealed.is_some() {
        whole
    } else {
        whole.min(ready.until)
    };
    let session = Session {
        user_id: ready.user_id,
        asked_at: now,
        idle_until: (now + times.idle).min(expires_at),
        expires_at,
        ended: false,
        sealed,
        id,
    };
    let fresh = Fresh::new();
    let until = (now + times.access).min(expires_at);
    make_room(hub, &session.user_id, from).await?;
    hub.store
        .add_session(session.clone(), &from.remote, fresh.pair(until), now)
        .await?;
    let found = hub.store.session(&session.id).await?;
    let (session, user) = found.filter(|(_, user)| !user.disabled).ok_or_else(ended)?;
    Ok(fresh.answer(&user, until, &session))
}

/// Whether the provider was asked within the grace, as far as the hub can know: not where a clock that was ahead has dated it.
fn is_lately(asked_at: OffsetDateTime, now: OffsetDateTime, grace: Duration) -> bool {
    let age = now - asked_at;
    !age.is_negative() && age <= grace
}

/// What a refresh token is good for.
#[derive(Debug, PartialEq, Eq)]
enum Good {
    Yes,
    /// It or its session is over.
    No,
    /// It was used before, longer ago than an answer can have been lost: someone else has it.
    Stolen,
}

fn judge(
    token: &SessionToken,
    session: &Session,
    user: &UserRow,
    now: OffsetDateTime,
    grace: Duration,
) -> Good {
    if session.ended || user.disabled || now >= session.expires_at || now >= session.idle_until {
        return Good::No;
    }
    match token.used_at {
        Some(at) if now - at > grace => Good::Stolen,
        _ => Good::Yes,
    }
}

/// The next tokens. The provider is asked again first, and its groups are those of now.
pub async fn refresh(hub: &Hub, text: &str, from: &From) -> Result<SessionAnswer, LoginError> {
    let token = TokenText::parse(Prefix::Refresh, text).ok_or_else(ended)?;
    let (first, _, _) = genuine(hub, &token).await?;
    // Parallel ones wait for each other here, and see what the other did.
    turn::alone(hub, &first.session_id, refreshed(hub, &token, from)).await
}

async fn refreshed(hub: &Hub, token: &TokenText, from: &From) -> Result<SessionAnswer, LoginError> {
    let (pair, session, user) = genuine(hub, token).await?;
    let (times, now) = (times(hub), clock::now());
    match judge(&pair, &session, &user, now, times.grace) {
        Good::Yes => {}
        Good::No => return Err(ended()),
        Good::Stolen => {
            let why = "a refresh token that had been used came again";
            end(hub, &session.id, &user, why, from).await?;
            return Err(ended());
        }
    }
    let lately = pair.used_at.is_some() && is_lately(session.asked_at, now, times.grace);
    let user = match &hub.oidc {
        _ if lately || session.sealed.is_none() => user,
        Some(provider) => ask(hub, provider, &session, &user, from).await?,
        None => return Err(LoginError::NoProvider),
    };
    let now = clock::now();
    let fresh = Fresh::new();
    let until = (now + times.access).min(session.expires_at);
    let idle = now + times.idle;
    let next = fresh.pair(until);
    let rotated = hub.store.rotate(&pair.id, next, idle, now).await;
    // A client gone mad, or a life of months: it would be refused each time, and only another login helps.
    if let Err(StoreError::Full(why)) = &rotated {
        end(hub, &session.id, &user, why, from).await?;
        return Err(ended());
    }
    if !rotated? {
        return Err(ended());
    }
    Ok(fresh.answer(&user, until, &session))
}

async fn genuine(
    hub: &Hub,
    token: &TokenText,
) -> Result<(SessionToken, Session, UserRow), LoginError> {
    let found = hub.store.session_token(&token.id).await?;
    let fits = token.matches(found.as_ref().map(|(t, _, _)| &t.refresh_hash));
    found.filter(|_| fits).ok_or_else(ended)
}

/// Asks the provider about a session's person; its no ends the session.
async fn ask(
    hub: &Hub,
    provider: &Provider,
    session: &Session,
    user: &UserRow,
    from: &From,
) -> Result<UserRow, LoginError> {
    let Some(sealed) = &session.sealed else {
        return Ok(user.clone());
    };
    let same = user
        .provider
        .as_ref()
        .filter(|p| p.issuer == provider.config.issuer);
    let (Some(kept), Some(known)) = (hub.logins.seal.open(&session.id, sealed), same) else {
        let why = "the hub has another provider or sealing key than at the login";
        end(hub, &session.id, user, why, from).await?;
        return Err(ended());
    };
    let asked = async {
        let renewed = provider.renew(&kept).await?;
        let next = renewed.next().unwrap_or_else(|| kept.clone());
        let sealed = hub.logins.seal.close(&session.id, &next);
        let stored = |sealed, at| hub.store.asked_provider(&session.id, Some(sealed), at);
        stored(sealed.clone(), session.asked_at).await?;
        let granted = provider.judge(renewed, &known.subject).await?;
        let arriving = Arriving::meet(hub, provider, &granted.identity).await?;
        let told = async {
            renamed(hub, &arriving, from).await?;
            groups_told(hub, &arriving, from).await
        };
        let now = arriving.admit(hub, told).await?;
        stored(sealed, clock::now()).await?;
        Ok::<_, LoginError>(now)
    };
    let error = match asked.await {
        Ok(changed) => return Ok(changed),
        Err(error) => error,
    };
    let no = match &error {
        LoginError::Provider(error) => error.is_final(),
        LoginError::Refused { .. } => true,
        LoginError::NoProvider
        | LoginError::Code
        | LoginError::TooMany(..)
        | LoginError::Stopping
        | LoginError::Store(_)
        | LoginError::Audit(_) => false,
    };
    if matches!(&error, LoginError::Provider(error) if error.is_final()) {
        // Before the end: by a session that has ended nobody would be asked again.
        unvouched(hub, session, user, from).await?;
    }
    if no {
        end(hub, &session.id, user, &error.words().0, from).await?;
    }
    Err(error)
}

/// What happens to a session, put on record.
struct Told<'a> {
    action: &'a str,
    user: &'a UserRow,
    target: &'a str,
    /// Why it was against the user's will.
    denied: Option<&'a str>,
}

async fn told(hub: &Hub, what: Told<'_>, from: &From) -> Result<(), LoginError> {
    let denied = what.denied.is_some();
    let entry = Entry {
        actor: format!("user:{}", what.user.name),
        action: what.action.to_owned(),
        target: crate::hub::cut(what.target, 1_000).to_owned(),
        request_id: from.request_id.clone(),
        verdict: if denied {
            Verdict::Deny
        } else {
            Verdict::Allow
        },
        reason: what.denied.map(str::to_owned),
        remote: from.remote.clone(),
        ..Entry::default()
    };
    Ok(hub.audit.event(entry).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> OffsetDateTime {
        OffsetDateTime::UNIX_EPOCH + time::Duration::seconds(seconds)
    }

    #[test]
    fn the_word_of_a_clock_that_was_ahead_is_not_of_lately() {
        let grace = Duration::from_secs(30);
        for (asked, now, lately) in [
            (100, 100, true),
            (100, 130, true),
            (100, 131, false),
            (101, 100, false),
            (3_700, 100, false),
        ] {
            let found = is_lately(at(asked), at(now), grace);
            assert_eq!(found, lately, "{asked} {now}");
        }
    }

    #[test]
    fn a_refresh_token_is_good_once_and_for_a_moment_more() {
        let grace = Duration::from_secs(30);
        let session = Session {
            id: "s".to_owned(),
            user_id: "u".to_owned(),
            sealed: None,
            asked_at: at(0),
            idle_until: at(500),
            expires_at: at(1_000),
            ended: false,
        };
        let user = UserRow {
            id: "u".to_owned(),
            name: "ada".to_owned(),
            roles: vec![],
            groups: vec![],
            disabled: false,
            provider: None,
            rev: 1,
        };
        let token = |used_at: Option<i64>| SessionToken {
            id: "t".to_owned(),
            session_id: "s".to_owned(),
            access_hash: [0; 32],
            refresh_hash: [0; 32],
            access_until: at(0),
            used_at: used_at.map(at),
        };
        for (used, now, good) in [
            (None, 499, Good::Yes),
            (None, 500, Good::No),
            (Some(100), 130, Good::Yes),
            (Some(100), 131, Good::Stolen),
            (Some(100), 600, Good::No),
        ] {
            assert_eq!(
                judge(&token(used), &session, &user, at(now), grace),
                good,
                "{used:?} {now}"
            );
        }
        let over = Session {
            ended: true,
            ..session.clone()
        };
        assert_eq!(judge(&token(None), &over, &user, at(1), grace), Good::No);
        let gone = UserRow {
            disabled: true,
            ..user
        };
        assert_eq!(judge(&token(None), &session, &gone, at(1), grace), Good::No);
    }
}

//! How often an address may try: nobody is known yet.

use std::sync::{MutexGuard, PoisonError};
use std::time::Instant;

use super::rate::{Beginning, Whose};
use super::record::refused_on_record;
use super::{From, LoginError};
use crate::hub::Hub;

/// What is asked for with a secret in place of a login, and goes wrong where that is not good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    Tokens,
    /// The end of a session.
    End,
}

/// Whether one more login may begin there now: each is a write that anyone can bring about. What is refused is on record.
pub async fn may_begin(hub: &Hub, how: &str, from: &From) -> Result<(), LoginError> {
    let address = crate::address::of(&from.remote);
    let told = {
        let beginning = hub.logins.beginning.lock();
        let mut beginning = beginning.unwrap_or_else(PoisonError::into_inner);
        beginning.one_more(&address, Instant::now())
    };
    let Err(too_many) = told else { return Ok(()) };
    let why = match too_many.whose {
        Whose::Address => "too many logins were begun from this address",
        Whose::All => "too many logins were begun",
    };
    let error = LoginError::TooMany(why, too_many.wait);
    refused_on_record(hub, &error, how, from).await;
    Err(error)
}

/// Whether this address may try that now: one for which it goes wrong again and again may not, before anything is looked up.
pub async fn may_try(hub: &Hub, attempt: Attempt, from: &From) -> Result<(), LoginError> {
    let address = crate::address::of(&from.remote);
    let told = tried(hub, attempt).one_more(&address, Instant::now());
    let Err(too_many) = told else { return Ok(()) };
    let (why, how) = match attempt {
        Attempt::Tokens => (
            "too many attempts to get tokens from this address went wrong",
            "token",
        ),
        Attempt::End => (
            "too many attempts to end sessions from this address went wrong",
            "refresh token, to end a session",
        ),
    };
    let error = LoginError::TooMany(why, too_many.wait);
    refused_on_record(hub, &error, how, from).await;
    Err(error)
}

/// What was asked for was done, or is not the caller's fault.
pub fn went_well(hub: &Hub, attempt: Attempt, from: &From) {
    tried(hub, attempt).back(&crate::address::of(&from.remote));
}

/// Each has a share of its own: who gets no tokens may still end what he has.
fn tried(hub: &Hub, attempt: Attempt) -> MutexGuard<'_, Beginning> {
    let share = match attempt {
        Attempt::Tokens => &hub.logins.asking,
        Attempt::End => &hub.logins.ending,
    };
    share.lock().unwrap_or_else(PoisonError::into_inner)
}

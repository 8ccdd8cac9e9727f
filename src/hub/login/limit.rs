//! How often an address may try: nobody is known yet.

use std::sync::{MutexGuard, PoisonError};
use std::time::Instant;

use super::rate::{Beginning, Whose};
use super::record::refused_on_record;
use super::{From, LoginError};
use crate::hub::Hub;

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

/// Whether this address may ask for tokens now: one that is refused again and again may not, before anything is looked up.
pub async fn may_ask(hub: &Hub, from: &From) -> Result<(), LoginError> {
    let address = crate::address::of(&from.remote);
    let told = asking(hub).one_more(&address, Instant::now());
    let Err(too_many) = told else { return Ok(()) };
    let why = "too many attempts to get tokens from this address went wrong";
    let error = LoginError::TooMany(why, too_many.wait);
    refused_on_record(hub, &error, "token", from).await;
    Err(error)
}

/// What was asked for was given, or is not the caller's fault.
pub fn asked_well(hub: &Hub, from: &From) {
    asking(hub).back(&crate::address::of(&from.remote));
}

fn asking(hub: &Hub) -> MutexGuard<'_, Beginning> {
    let asking = hub.logins.asking.lock();
    asking.unwrap_or_else(PoisonError::into_inner)
}

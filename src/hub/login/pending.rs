//! Logins that are under way: those that wait for a browser to come back, codes that wait to be fetched once, and
//! devices that ask whether they may (RFC 8628). Pure: what is kept of each, how many there may be, and what a device is
//! told. Anyone can begin a login, so the oldest entry of the address that has the most of them makes room.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use time::{Duration, OffsetDateTime};

use crate::keys;
use crate::secret::Secret;

/// How long a person has to log in at the provider, or to use a code that an admin gave.
pub const LOGIN: Duration = Duration::minutes(10);
/// How long a one-time code waits.
pub const CODE: Duration = Duration::seconds(60);
/// Seconds between two questions of a device; each too early one adds as many.
pub const INTERVAL: i64 = 5;
/// Wrong user codes within [`GUESSING`] before an address is not heard any more, and before nobody is.
pub const WRONG: i64 = 20;
pub const WRONG_OF_ALL: i64 = 300;
pub const GUESSING: Duration = Duration::minutes(1);
/// Letters that make no words and are not taken for one another (RFC 8628 §6.1).
const LETTERS: &[u8; 20] = b"BCDFGHJKLMNPQRSTVWXZ";

/// How many of a kind there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Of one address.
    pub of_one: i64,
    pub most: i64,
}

/// Of logins, and of devices.
pub const OF_ANYONE: Bounds = Bounds {
    of_one: 250,
    most: 1_000,
};
/// Of codes, which the provider's word is needed for.
pub const OF_CODES: Bounds = Bounds {
    of_one: 1_000,
    most: 1_000,
};

/// Of codes that admins gave local users: the next one of a user ends the one before.
pub const OF_INVITES: Bounds = Bounds {
    of_one: 1,
    most: 1_000,
};

/// A browser on its way to the provider.
#[derive(Debug, Clone)]
pub struct Login {
    /// Comes back in the provider's answer.
    pub state: String,
    /// SHA-256 of the cookie of the browser that began.
    pub browser: [u8; 32],
    /// Whose address it is ([`crate::address::of`]).
    pub from: String,
    pub nonce: String,
    pub verifier: Secret<String>,
    pub goal: Goal,
    pub until: OffsetDateTime,
}

/// Who gets the session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Goal {
    /// A program that listens on the person's own machine (RFC 8252).
    Loopback {
        redirect: String,
        /// S256 of what the program will show.
        challenge: String,
        state: String,
    },
    /// A device, by the SHA-256 of its code.
    Device([u8; 32]),
}

/// What is handed out in the end.
#[derive(Debug, Clone)]
pub struct Ready {
    pub user_id: String,
    /// The provider's refresh token.
    pub refresh: Option<Secret<String>>,
    /// The end of the provider's word.
    pub until: OffsetDateTime,
}

/// What a device is answered.
#[derive(Debug)]
pub enum Polled {
    Pending,
    SlowDown,
    Denied(String),
    Expired,
    Ready(Ready),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrong {
    /// No device waits with this code.
    Unknown,
    /// Too many have guessed.
    TooMany,
}

/// Whose oldest entry makes room for another one of `own`, by how many each has; None = there is room.
pub fn crowded<'a>(counts: &'a [(String, i64)], own: &'a str, bounds: Bounds) -> Option<&'a str> {
    let of_own = counts.iter().find(|(address, _)| address == own);
    if of_own.is_some_and(|(_, count)| *count >= bounds.of_one) {
        return Some(own);
    }
    let all: i64 = counts.iter().map(|(_, count)| count).sum();
    if all < bounds.most {
        return None;
    }
    let most = counts.iter().max_by_key(|(_, count)| *count);
    most.map(|(address, _)| address.as_str())
}

/// A device that asks.
#[derive(Debug, Clone, Copy)]
pub struct Asking {
    pub decided: bool,
    /// When it did so last.
    pub asked: Option<OffsetDateTime>,
    /// Seconds that it has to leave between two questions.
    pub interval: i64,
    pub until: OffsetDateTime,
}

/// What happens then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// It is too late.
    Over,
    /// It hears what was decided, however early it comes: that it is told once.
    Tell,
    Wait,
    /// It came too early, and has to leave so many seconds from now on.
    Slower(i64),
}

pub fn next(asking: &Asking, now: OffsetDateTime) -> Next {
    if asking.until <= now {
        return Next::Over;
    }
    if asking.decided {
        return Next::Tell;
    }
    let early = |last: OffsetDateTime| now - last < Duration::seconds(asking.interval);
    if asking.asked.is_some_and(early) {
        Next::Slower(asking.interval.saturating_add(INTERVAL))
    } else {
        Next::Wait
    }
}

/// S256 of a verifier (RFC 7636 §4.2).
pub fn challenge(verifier: &str) -> String {
    keys::encode(&keys::sha256(verifier.as_bytes()))
}

/// The code that a device shows, of eight random bytes.
pub fn user_code(letters: [u8; 8]) -> String {
    let letter = |byte: u8| char::from(LETTERS[usize::from(byte) % LETTERS.len()]);
    let text: String = letters.into_iter().map(letter).collect();
    format!("{}-{}", &text[..4], &text[4..])
}

/// What a typed code is found by: people type in any case, with or without the dash.
pub fn typed(code: &str) -> [u8; 32] {
    let letters = code.chars().filter(char::is_ascii_alphanumeric).take(20);
    let spelled: String = letters.map(|c| c.to_ascii_uppercase()).collect();
    keys::sha256(spelled.as_bytes())
}

#[derive(Serialize, Deserialize)]
struct KeptLogin {
    nonce: String,
    verifier: String,
    goal: Goal,
}

#[derive(Serialize, Deserialize)]
struct KeptReady {
    user: String,
    refresh: Option<String>,
    /// Unix seconds.
    until: i64,
}

#[derive(Serialize, Deserialize)]
struct KeptCode {
    challenge: String,
    ready: KeptReady,
}

impl Login {
    /// What is sealed of it.
    pub fn kept(&self) -> Secret<String> {
        written(&KeptLogin {
            nonce: self.nonce.clone(),
            verifier: self.verifier.expose().clone(),
            goal: self.goal.clone(),
        })
    }

    /// Again from that: nonce, verifier and who gets the session.
    pub fn opened(text: &Secret<String>) -> Option<(String, Secret<String>, Goal)> {
        let kept: KeptLogin = read(text)?;
        Some((kept.nonce, Secret::new(kept.verifier), kept.goal))
    }
}

impl Ready {
    fn keep(&self) -> KeptReady {
        KeptReady {
            user: self.user_id.clone(),
            refresh: self.refresh.as_ref().map(|text| text.expose().clone()),
            until: self.until.unix_timestamp(),
        }
    }

    /// What is sealed of it.
    pub fn kept(&self) -> Secret<String> {
        written(&self.keep())
    }

    pub fn opened(text: &Secret<String>) -> Option<Self> {
        read(text).and_then(Self::of)
    }

    /// The same with the challenge of who may have it.
    pub fn kept_for(&self, challenge: &str) -> Secret<String> {
        written(&KeptCode {
            challenge: challenge.to_owned(),
            ready: self.keep(),
        })
    }

    pub fn opened_for(text: &Secret<String>) -> Option<(String, Self)> {
        let kept: KeptCode = read(text)?;
        Some((kept.challenge, Self::of(kept.ready)?))
    }

    fn of(kept: KeptReady) -> Option<Self> {
        Some(Self {
            user_id: kept.user,
            refresh: kept.refresh.map(Secret::new),
            until: OffsetDateTime::from_unix_timestamp(kept.until).ok()?,
        })
    }
}

fn written<T: Serialize>(kept: &T) -> Secret<String> {
    Secret::new(serde_json::to_string(kept).expect("what is kept has string keys"))
}

fn read<T: DeserializeOwned>(text: &Secret<String>) -> Option<T> {
    serde_json::from_str(text.expose()).ok()
}

#[cfg(test)]
mod tests;

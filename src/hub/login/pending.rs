//! Logins that are under way: those that wait for a browser to come back, codes that wait to be fetched once, and
//! devices that ask whether they may (RFC 8628). Pure: time and randomness are passed in. All tables are bounded. Anyone
//! can begin a login, so the oldest entry of the address that has the most of them makes room.

use std::collections::{BTreeMap, VecDeque};

use subtle::ConstantTimeEq as _;
use time::{Duration, OffsetDateTime};

use crate::address;
use crate::keys;
use crate::secret::Secret;

/// How long a person has to log in at the provider.
pub const LOGIN: Duration = Duration::minutes(10);
/// How long a one-time code waits.
pub const CODE: Duration = Duration::seconds(60);
/// Seconds between two questions of a device; each too early one adds as many.
pub const INTERVAL: i64 = 5;
const MOST: usize = 1_000;
/// Logins, or devices, of one address.
const OF_ONE: usize = 250;
/// Wrong user codes in a minute before an address is not heard any more, and before nobody is.
const WRONG: u32 = 20;
const WRONG_OF_ALL: u32 = 300;
/// Letters that make no words and are not taken for one another (RFC 8628 §6.1).
const LETTERS: &[u8; 20] = b"BCDFGHJKLMNPQRSTVWXZ";

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
#[derive(Debug, Clone, PartialEq, Eq)]
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
    pub how: &'static str,
}

#[derive(Debug)]
struct Code {
    hash: [u8; 32],
    challenge: String,
    ready: Ready,
    until: OffsetDateTime,
}

#[derive(Debug)]
struct Device {
    hash: [u8; 32],
    user_code: String,
    /// From where it asks, and whose address that is.
    remote: String,
    from: String,
    until: OffsetDateTime,
    asked: Option<OffsetDateTime>,
    interval: i64,
    outcome: Outcome,
}

#[derive(Debug)]
enum Outcome {
    Waiting,
    Refused(String),
    Ready(Ready),
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

/// All of them.
#[derive(Debug, Default)]
pub struct Pending {
    logins: VecDeque<Login>,
    codes: VecDeque<Code>,
    devices: VecDeque<Device>,
    /// By address, of the last minute.
    wrong: BTreeMap<String, u32>,
    wrong_since: Option<OffsetDateTime>,
}

/// Makes room: what is over goes, then the oldest.
fn push<T>(list: &mut VecDeque<T>, entry: T, over: impl Fn(&T) -> bool) {
    list.retain(|e| !over(e));
    if list.len() >= MOST {
        list.pop_front();
    }
    list.push_back(entry);
}

/// The same where anyone can make an entry: the oldest of an address that has its share, or the most of all, goes.
fn push_from<T>(
    list: &mut VecDeque<T>,
    entry: T,
    over: impl Fn(&T) -> bool,
    from: impl Fn(&T) -> &str,
) {
    list.retain(|e| !over(e));
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for e in list.iter() {
        *counts.entry(from(e)).or_default() += 1;
    }
    let own = from(&entry);
    let crowded = if counts.get(own).is_some_and(|count| *count >= OF_ONE) {
        Some(own)
    } else if list.len() >= MOST {
        let most = counts.iter().max_by_key(|(_, count)| **count);
        most.map(|(from, _)| *from)
    } else {
        None
    };
    let oldest = crowded.and_then(|address| list.iter().position(|e| from(e) == address));
    if let Some(oldest) = oldest {
        list.remove(oldest);
    }
    list.push_back(entry);
}

impl Pending {
    pub fn begin(&mut self, login: Login, now: OffsetDateTime) {
        push_from(&mut self.logins, login, |l| l.until <= now, |l| &l.from);
    }

    /// The login that a browser comes back from, once; only the browser that began it.
    pub fn come_back(
        &mut self,
        state: &str,
        browser: &[u8; 32],
        now: OffsetDateTime,
    ) -> Option<Login> {
        let at = self.logins.iter().position(|l| {
            let same: bool = l.state.as_bytes().ct_eq(state.as_bytes()).into();
            same && l.until > now && bool::from(l.browser.ct_eq(browser))
        })?;
        self.logins.remove(at)
    }

    pub fn offer(&mut self, code: &str, challenge: String, ready: Ready, now: OffsetDateTime) {
        let code = Code {
            hash: keys::sha256(code.as_bytes()),
            challenge,
            ready,
            until: now + CODE,
        };
        push(&mut self.codes, code, |c| c.until <= now);
    }

    /// Hands a code's session out, once. A wrong verifier spends the code: it was not its owner who came.
    pub fn fetch(&mut self, code: &str, verifier: &str, now: OffsetDateTime) -> Option<Ready> {
        let hash = keys::sha256(code.as_bytes());
        let at = self
            .codes
            .iter()
            .position(|c| bool::from(c.hash.ct_eq(&hash)))?;
        let code = self.codes.remove(at)?;
        let fits: bool = challenge(verifier)
            .as_bytes()
            .ct_eq(code.challenge.as_bytes())
            .into();
        (fits && code.until > now).then_some(code.ready)
    }

    /// A device begins to ask; gives the code that its person types.
    pub fn device(
        &mut self,
        hash: [u8; 32],
        letters: [u8; 8],
        remote: String,
        now: OffsetDateTime,
    ) -> String {
        let letter = |byte: u8| char::from(LETTERS[usize::from(byte) % LETTERS.len()]);
        let text: String = letters.into_iter().map(letter).collect();
        let user_code = format!("{}-{}", &text[..4], &text[4..]);
        let device = Device {
            hash,
            user_code: user_code.clone(),
            from: address::of(&remote),
            remote,
            until: now + LOGIN,
            asked: None,
            interval: INTERVAL,
            outcome: Outcome::Waiting,
        };
        push_from(&mut self.devices, device, |d| d.until <= now, |d| &d.from);
        user_code
    }

    /// The device that waits with a code that was typed at this address, and from where it asks.
    pub fn by_user_code(
        &mut self,
        typed: &str,
        remote: &str,
        now: OffsetDateTime,
    ) -> Result<([u8; 32], String), Wrong> {
        if self
            .wrong_since
            .is_none_or(|at| now - at > Duration::minutes(1))
        {
            (self.wrong, self.wrong_since) = (BTreeMap::new(), Some(now));
        }
        let from = address::of(remote);
        let own = self.wrong.get(&from).copied().unwrap_or(0);
        if own >= WRONG || self.wrong.values().sum::<u32>() >= WRONG_OF_ALL {
            return Err(Wrong::TooMany);
        }
        let typed = spelled(typed);
        let found = self.devices.iter().find(|d| {
            let waits = d.until > now && matches!(d.outcome, Outcome::Waiting);
            waits && spelled(&d.user_code) == typed
        });
        if let Some(device) = found {
            return Ok((device.hash, device.remote.clone()));
        }
        *self.wrong.entry(from).or_default() += 1;
        Err(Wrong::Unknown)
    }

    /// Lets a device in or not; false = it does not wait any more.
    pub fn decide(
        &mut self,
        hash: &[u8; 32],
        outcome: Result<Ready, String>,
        now: OffsetDateTime,
    ) -> bool {
        let waiting = self
            .devices
            .iter_mut()
            .find(|d| d.hash == *hash && d.until > now && matches!(d.outcome, Outcome::Waiting));
        let Some(device) = waiting else { return false };
        device.outcome = match outcome {
            Ok(ready) => Outcome::Ready(ready),
            Err(why) => Outcome::Refused(why),
        };
        true
    }

    /// Answers a device. A yes or no is given once.
    pub fn poll(&mut self, code: &str, now: OffsetDateTime) -> Polled {
        let hash = keys::sha256(code.as_bytes());
        let Some(at) = self
            .devices
            .iter()
            .position(|d| bool::from(d.hash.ct_eq(&hash)))
        else {
            return Polled::Expired;
        };
        let device = &mut self.devices[at];
        if device.until <= now {
            self.devices.remove(at);
            return Polled::Expired;
        }
        let early = device
            .asked
            .is_some_and(|last| now - last < Duration::seconds(device.interval));
        device.asked = Some(now);
        if matches!(device.outcome, Outcome::Waiting) {
            if early {
                device.interval += INTERVAL;
                return Polled::SlowDown;
            }
            return Polled::Pending;
        }
        match self.devices.remove(at).map(|d| d.outcome) {
            Some(Outcome::Ready(ready)) => Polled::Ready(ready),
            Some(Outcome::Refused(why)) => Polled::Denied(why),
            Some(Outcome::Waiting) | None => Polled::Expired,
        }
    }
}

/// S256 of a verifier (RFC 7636 §4.2).
pub fn challenge(verifier: &str) -> String {
    keys::encode(&keys::sha256(verifier.as_bytes()))
}

/// As people type codes: in any case, with or without the dash.
fn spelled(code: &str) -> String {
    let letters = code.chars().filter(char::is_ascii_alphanumeric).take(20);
    letters.map(|c| c.to_ascii_uppercase()).collect()
}

#[cfg(test)]
mod tests;

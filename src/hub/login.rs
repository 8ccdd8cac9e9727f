//! Logging in with the identity provider: from a browser that comes back to a user on record and something that a
//! program can fetch a session with.

use std::sync::Mutex;
use std::time::Instant;

use tokio::sync::Semaphore;

use crate::clock;
use crate::hub::oidc::{self, Ask, Granted, Provider};
use crate::hub::store::{StoreError, UserRow};
use crate::hub::{Hub, chain_of};
use crate::keys;
use crate::secret::Secret;

mod arriving;
mod error;
mod limit;
pub mod pending;
pub mod rate;
mod record;
pub mod seal;
pub mod session;
mod turn;
pub mod waiting;

use arriving::Arriving;
pub use error::{LoginError, seconds};
pub use limit::{Attempt, may_begin, may_try, went_well};
use pending::{Goal, Login, Ready};
use rate::Beginning;
use record::{on_record, refused_on_record, renamed};
use seal::Seal;
use waiting::Pending;

/// Sessions are kept apart by this many locks.
const TURNS: usize = 256;

/// What the hub has for logins, beside the store.
pub struct Logins {
    seal: Seal,
    turns: Vec<Semaphore>,
    beginning: Mutex<Beginning>,
    asking: Mutex<Beginning>,
    ending: Mutex<Beginning>,
}

impl Logins {
    pub fn new(key: &Secret<[u8; 32]>) -> Self {
        Self {
            seal: Seal::new(key),
            turns: (0..TURNS).map(|_| Semaphore::new(1)).collect(),
            beginning: Mutex::new(Beginning::new(Instant::now())),
            asking: Mutex::new(Beginning::of_each(Instant::now())),
            ending: Mutex::new(Beginning::of_each(Instant::now())),
        }
    }
}

/// Logins that are under way, at this replica or another.
pub fn pending(hub: &Hub) -> Pending<'_> {
    Pending::new(&hub.store, &hub.logins.seal)
}

/// Who makes a request that needs no login, for the record.
#[derive(Debug, Clone)]
pub struct From {
    pub remote: String,
    pub request_id: String,
}

/// What the provider sent a browser back with (RFC 6749 §4.1.2, RFC 9207).
#[derive(Debug, Default)]
pub struct Answer {
    pub state: String,
    pub code: Option<String>,
    pub issuer: Option<String>,
    pub error: Option<String>,
}

/// Where a browser goes in the end.
pub enum Came {
    /// To the program that listens on its machine.
    Loopback(String),
    /// Nowhere: the device asks by itself.
    Device {
        user: String,
    },
    Refused {
        why: String,
        next: String,
    },
}

/// The one redirect URI that is registered at the provider.
pub fn callback(hub: &Hub) -> String {
    format!("{}/login/callback", hub.config.url)
}

/// Sends a browser to the provider; gives the URL.
pub async fn begin(
    hub: &Hub,
    provider: &Provider,
    (browser, remote): ([u8; 32], &str),
    goal: Goal,
) -> Result<String, LoginError> {
    let fresh = || keys::encode(&clock::random::<32>());
    let (state, nonce, verifier) = (fresh(), fresh(), fresh());
    let url = provider
        .authorize(&Ask {
            redirect: &callback(hub),
            state: &state,
            nonce: &nonce,
            challenge: &pending::challenge(&verifier),
        })
        .await?;
    let now = clock::now();
    let login = Login {
        state,
        browser,
        from: crate::address::of(remote),
        nonce,
        verifier: Secret::new(verifier),
        goal,
        until: now + pending::LOGIN,
    };
    pending(hub).begin(login, now).await?;
    Ok(url)
}

/// A browser is back.
pub async fn come_back(
    hub: &Hub,
    provider: &Provider,
    answer: Answer,
    browser: [u8; 32],
    from: &From,
) -> Came {
    let begun = pending(hub).come_back(&answer.state, &browser, clock::now());
    let login = match begun.await {
        Ok(Some(login)) => login,
        Ok(None) => {
            return Came::Refused {
                why: "this login is not known here: it was used, is older than ten minutes, or began in another browser"
                    .to_owned(),
                next: "begin again, with: linesman login".to_owned(),
            };
        }
        Err(error) => return stopped(&error.into()),
    };
    let how = match login.goal {
        Goal::Loopback { .. } => "browser",
        Goal::Device(_) => "device",
    };
    let judged = match judge(hub, provider, &answer, &login).await {
        Ok((granted, arriving)) => {
            let told = async {
                renamed(hub, &arriving, from).await?;
                on_record(hub, &arriving, &granted.identity, how, from).await
            };
            arriving.admit(hub, told).await.map(|user| (granted, user))
        }
        Err(error) => Err(error),
    };
    let ended = match judged {
        Ok((granted, user)) => {
            let ready = Ready {
                user_id: user.id.clone(),
                refresh: granted.refresh,
                until: granted.until,
            };
            finish(hub, login.goal, &user, ready).await
        }
        Err(error) => {
            refused_on_record(hub, &error, how, from).await;
            fail(hub, login.goal, &error).await
        }
    };
    ended.unwrap_or_else(|error| stopped(&error.into()))
}

/// A login that the hub itself cannot go on with.
fn stopped(error: &LoginError) -> Came {
    tracing::error!(error = chain_of(error), "go on with a login");
    let (why, next) = error.words();
    Came::Refused { why, next }
}

async fn judge(
    hub: &Hub,
    provider: &Provider,
    answer: &Answer,
    login: &Login,
) -> Result<(Granted, Arriving), LoginError> {
    if !provider.accepts(answer.issuer.as_deref()).await? {
        return Err(LoginError::refused(
            "the answer is not from the identity provider that was asked",
            "begin again, and follow no link that someone sent",
        ));
    }
    let code = match (&answer.error, &answer.code) {
        (None, Some(code)) => code,
        (Some(error), _) => {
            let why = format!("the identity provider says: {}", oidc::plain(error));
            return Err(LoginError::refused(why, "log in again"));
        }
        (None, None) => {
            let why = "the identity provider sent neither a code nor an error";
            return Err(LoginError::refused(why, "log in again"));
        }
    };
    let granted = provider
        .redeem(code, &callback(hub), &login.verifier, &login.nonce)
        .await?;
    let arriving = Arriving::meet(hub, provider, &granted.identity).await?;
    Ok((granted, arriving))
}

async fn finish(hub: &Hub, goal: Goal, user: &UserRow, ready: Ready) -> Result<Came, StoreError> {
    let now = clock::now();
    match goal {
        Goal::Loopback {
            redirect,
            challenge,
            state,
        } => {
            let code = keys::encode(&clock::random::<32>());
            pending(hub).offer(&code, &challenge, &ready, now).await?;
            let pairs = [("code", code.as_str()), ("state", &state)];
            Ok(Came::Loopback(oidc::with_query(&redirect, &pairs)))
        }
        Goal::Device(hash) => {
            if pending(hub).decide(&hash, Ok(ready), now).await? {
                return Ok(Came::Device {
                    user: user.name.clone(),
                });
            }
            Ok(Came::Refused {
                why: "the device does not wait any more".to_owned(),
                next: "begin again on the device".to_owned(),
            })
        }
    }
}

async fn fail(hub: &Hub, goal: Goal, error: &LoginError) -> Result<Came, StoreError> {
    let (why, next) = error.words();
    match goal {
        Goal::Loopback {
            redirect, state, ..
        } => {
            let pairs = [
                ("error", "access_denied"),
                ("error_description", &why),
                ("next", &next),
                ("state", &state),
            ];
            Ok(Came::Loopback(oidc::with_query(&redirect, &pairs)))
        }
        Goal::Device(hash) => {
            let refused = Err(why.clone());
            pending(hub).decide(&hash, refused, clock::now()).await?;
            Ok(Came::Refused { why, next })
        }
    }
}

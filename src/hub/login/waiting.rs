//! Logins that are under way, in the store: whichever replica is asked next goes on. What they hold is sealed, and they
//! are found by hashes, so that the database gives no login away.

use subtle::ConstantTimeEq as _;
use time::OffsetDateTime;

use super::pending::{self, Login, Polled, Ready, Wrong};
use super::seal::Seal;
use crate::address;
use crate::hub::store::{Asked, Decision, Result, Store, Waiting, WaitingKind};
use crate::keys;
use crate::secret::Secret;

/// All of them.
#[derive(Clone, Copy)]
pub struct Pending<'a> {
    store: &'a Store,
    seal: &'a Seal,
}

impl<'a> Pending<'a> {
    pub fn new(store: &'a Store, seal: &'a Seal) -> Self {
        Self { store, seal }
    }

    pub async fn begin(self, login: Login, now: OffsetDateTime) -> Result<()> {
        let key = keys::sha256(login.state.as_bytes());
        let waiting = Waiting {
            kind: WaitingKind::Login,
            sealed: self.close(key, &login.kept()),
            key,
            address: login.from.clone(),
            remote: login.from,
            browser: Some(login.browser),
            user_code: None,
            until: login.until,
        };
        self.store
            .add_waiting(waiting, pending::OF_ANYONE, now)
            .await
    }

    /// The login that a browser comes back from, once; only the browser that began it.
    pub async fn come_back(
        self,
        state: &str,
        browser: &[u8; 32],
        now: OffsetDateTime,
    ) -> Result<Option<Login>> {
        let key = keys::sha256(state.as_bytes());
        let found = self
            .store
            .take_waiting(WaitingKind::Login, key, Some(*browser), now)
            .await?;
        Ok(found.and_then(|waiting| {
            let (nonce, verifier, goal) = Login::opened(&self.open(key, &waiting.sealed)?)?;
            Some(Login {
                state: state.to_owned(),
                browser: *browser,
                from: waiting.address,
                nonce,
                verifier,
                goal,
                until: waiting.until,
            })
        }))
    }

    pub async fn offer(
        self,
        code: &str,
        challenge: &str,
        ready: &Ready,
        now: OffsetDateTime,
    ) -> Result<()> {
        let key = keys::sha256(code.as_bytes());
        let waiting = Waiting {
            kind: WaitingKind::Code,
            sealed: self.close(key, &ready.kept_for(challenge)),
            key,
            address: String::new(),
            remote: String::new(),
            browser: None,
            user_code: None,
            until: now + pending::CODE,
        };
        self.store
            .add_waiting(waiting, pending::OF_CODES, now)
            .await
    }

    /// Hands a code's session out, once. A wrong verifier spends the code: it was not its owner who came.
    pub async fn fetch(
        self,
        code: &str,
        verifier: &str,
        now: OffsetDateTime,
    ) -> Result<Option<Ready>> {
        let key = keys::sha256(code.as_bytes());
        let found = self
            .store
            .take_waiting(WaitingKind::Code, key, None, now)
            .await?;
        Ok(found.and_then(|waiting| {
            let (challenge, ready) = Ready::opened_for(&self.open(key, &waiting.sealed)?)?;
            let fits: bool = pending::challenge(verifier)
                .as_bytes()
                .ct_eq(challenge.as_bytes())
                .into();
            fits.then_some(ready)
        }))
    }

    /// Gives a local user a way in, once; the one before ends.
    pub async fn invite(
        self,
        code: &Secret<String>,
        user_id: &str,
        now: OffsetDateTime,
    ) -> Result<OffsetDateTime> {
        let until = now + pending::LOGIN;
        let waiting = Waiting {
            kind: WaitingKind::Invite,
            key: keys::sha256(code.expose().as_bytes()),
            address: user_id.to_owned(),
            remote: String::new(),
            browser: None,
            user_code: None,
            sealed: Vec::new(),
            until,
        };
        self.store
            .add_waiting(waiting, pending::OF_INVITES, now)
            .await?;
        Ok(until)
    }

    /// The id of the user whom a code is good for, once.
    pub async fn accept(self, code: &str, now: OffsetDateTime) -> Result<Option<String>> {
        let key = keys::sha256(code.as_bytes());
        let found = self
            .store
            .take_waiting(WaitingKind::Invite, key, None, now)
            .await?;
        Ok(found.map(|waiting| waiting.address))
    }

    /// A device begins to ask; gives the code that its person types.
    pub async fn device(
        self,
        key: [u8; 32],
        letters: [u8; 8],
        remote: String,
        now: OffsetDateTime,
    ) -> Result<String> {
        let user_code = pending::user_code(letters);
        let waiting = Waiting {
            kind: WaitingKind::Device,
            key,
            address: address::of(&remote),
            remote,
            browser: None,
            user_code: Some(pending::typed(&user_code)),
            sealed: Vec::new(),
            until: now + pending::LOGIN,
        };
        self.store
            .add_waiting(waiting, pending::OF_ANYONE, now)
            .await?;
        Ok(user_code)
    }

    /// The device that waits with a code that was typed at this address, and from where it asks.
    pub async fn by_user_code(
        self,
        typed: &str,
        remote: &str,
        now: OffsetDateTime,
    ) -> Result<Result<([u8; 32], String), Wrong>> {
        let typed = pending::typed(typed);
        let found = self
            .store
            .guess_device(typed, &address::of(remote), now)
            .await?;
        Ok(found.map(|device| (device.key, device.remote)))
    }

    /// Lets a device in or not; false = it does not wait any more.
    pub async fn decide(
        self,
        key: &[u8; 32],
        outcome: Result<Ready, String>,
        now: OffsetDateTime,
    ) -> Result<bool> {
        let decision = match outcome {
            Ok(ready) => Decision::Ready(self.close(*key, &ready.kept())),
            Err(why) => Decision::Refused(self.close(*key, &Secret::new(why))),
        };
        self.store.decide_device(*key, decision, now).await
    }

    /// Answers a device. A yes or no is given once.
    pub async fn poll(self, code: &str, now: OffsetDateTime) -> Result<Polled> {
        let key = keys::sha256(code.as_bytes());
        Ok(match self.store.ask_device(key, now).await? {
            Asked::Pending => Polled::Pending,
            Asked::SlowDown => Polled::SlowDown,
            Asked::Expired => Polled::Expired,
            Asked::Decided(Decision::Refused(sealed)) => match self.open(key, &sealed) {
                Some(why) => Polled::Denied(why.into_inner()),
                None => Polled::Expired,
            },
            Asked::Decided(Decision::Ready(sealed)) => {
                let ready = self.open(key, &sealed);
                match ready.as_ref().and_then(Ready::opened) {
                    Some(ready) => Polled::Ready(ready),
                    None => Polled::Expired,
                }
            }
        })
    }

    fn close(self, key: [u8; 32], text: &Secret<String>) -> Vec<u8> {
        self.seal.close(&keys::encode(&key), text)
    }

    fn open(self, key: [u8; 32], sealed: &[u8]) -> Option<Secret<String>> {
        self.seal.open(&keys::encode(&key), sealed)
    }
}

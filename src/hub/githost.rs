//! Git hosts: the keys that they show, deploy keys and branches.

use std::sync::{Mutex, MutexGuard, PoisonError};

use time::OffsetDateTime;
use tokio::sync::{Notify, Semaphore, SemaphorePermit, watch};

use super::store::{Store, StoreError};
use crate::keys::KeyError;
use crate::ssh::known_hosts::HostKey;
use crate::ssh::{GitUrl, HostPair};

pub mod embedded;
pub mod hostkeys;
pub mod rotation;

use hostkeys::{BUILTIN, Standing, TrustedKey};

/// The keys of the built-in Git host: what clusters are told (the store's, held here for every assignment), and what is
/// shown.
pub struct HostKeys {
    /// As the catalog's URL names them.
    host: String,
    port: u16,
    shown: watch::Sender<HostPair>,
    trusted: Mutex<Vec<TrustedKey>>,
    /// One change at a time.
    turn: Semaphore,
    /// Rung when a cluster said something of host keys, or an operator changed them.
    rung: Notify,
}

impl HostKeys {
    /// Reads the keys that clusters were told before. On a hub's first start that is its own key; a later hub whose key
    /// is another one (its file was lost or replaced) says so, and tells it only when an operator accepts it.
    pub async fn open(
        store: &Store,
        url: &GitUrl,
        shown: HostPair,
        now: OffsetDateTime,
    ) -> Result<Self, StoreError> {
        let served = shown.key();
        let mut trusted = store.host_keys(BUILTIN).await?;
        if trusted.is_empty() {
            trusted.push(TrustedKey {
                key: served.clone(),
                standing: Standing::Current,
                source: "hub".to_owned(),
                added_by: "hub".to_owned(),
                added_at: now,
                since: now,
            });
            store
                .change_host_keys(BUILTIN, Vec::new(), trusted.clone())
                .await?;
        }
        if !trusted.iter().any(|t| t.key == served) {
            tracing::error!(
                key = served.fingerprint,
                "clusters do not know the key of the built-in Git server and will not fetch; if it was changed on purpose: \
                 linesman githost accept-host-key builtin"
            );
        }
        Ok(Self {
            host: url.host.clone(),
            port: url.port,
            shown: watch::Sender::new(shown),
            trusted: Mutex::new(trusted),
            turn: Semaphore::new(1),
            rung: Notify::new(),
        })
    }

    pub fn address(&self) -> (&str, u16) {
        (&self.host, self.port)
    }

    /// For the Git server: what it shows to each new connection.
    pub fn subscribe(&self) -> watch::Receiver<HostPair> {
        self.shown.subscribe()
    }

    /// What the Git server shows.
    pub fn served(&self) -> HostKey {
        self.shown.borrow().key()
    }

    /// A new key to take the place of the one that is shown.
    pub fn make_next(&self, seed: &[u8; 32]) -> Result<HostPair, KeyError> {
        self.shown.borrow().unlike(seed)
    }

    /// Shows this one to whoever connects from now on.
    pub fn serve(&self, pair: HostPair) {
        self.shown.send_replace(pair);
    }

    pub fn trusted(&self) -> Vec<TrustedKey> {
        self.lock().clone()
    }

    /// What the store has is told from now on; whether that is another than was told before. Whoever asks has a turn.
    pub async fn refresh(&self, store: &Store) -> Result<bool, StoreError> {
        let trusted = store.host_keys(BUILTIN).await?;
        let mut told = self.lock();
        let other = *told != trusted;
        *told = trusted;
        drop(told);
        if other {
            self.ring();
        }
        Ok(other)
    }

    /// known_hosts lines for the catalog's URL.
    pub fn known_hosts(&self) -> String {
        hostkeys::known_hosts(&self.lock(), &self.host, self.port)
    }

    /// Whoever changes the keys in this process does it while holding this.
    pub async fn turn(&self) -> SemaphorePermit<'_> {
        self.turn
            .acquire()
            .await
            .expect("the semaphore is never closed")
    }

    /// The rotation that is under way may have come further.
    pub fn ring(&self) {
        self.rung.notify_one();
    }

    pub async fn rung(&self) {
        self.rung.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, Vec<TrustedKey>> {
        self.trusted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

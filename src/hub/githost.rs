//! Git hosts: the keys that they show, deploy keys and branches.

use std::sync::{Mutex, PoisonError};

use time::OffsetDateTime;

use super::store::{Store, StoreError};
use crate::ssh::GitUrl;
use crate::ssh::known_hosts::HostKey;

pub mod embedded;
pub mod hostkeys;

use hostkeys::{BUILTIN, Standing, TrustedKey};

/// The keys of the built-in Git host as clusters are told: the store's, held here for every assignment.
pub struct HostKeys {
    /// As the catalog's URL names them.
    host: String,
    port: u16,
    /// What the hub's own server shows.
    served: HostKey,
    trusted: Mutex<Vec<TrustedKey>>,
}

impl HostKeys {
    /// Reads the keys that clusters were told before. On a hub's first start that is its own key; a later hub whose key
    /// is another one (its file was lost or replaced) says so, and tells it only when an operator accepts it.
    pub async fn open(
        store: &Store,
        url: &GitUrl,
        served: HostKey,
        now: OffsetDateTime,
    ) -> Result<Self, StoreError> {
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
            served,
            trusted: Mutex::new(trusted),
        })
    }

    pub fn address(&self) -> (&str, u16) {
        (&self.host, self.port)
    }

    pub fn served(&self) -> &HostKey {
        &self.served
    }

    pub fn trusted(&self) -> Vec<TrustedKey> {
        self.lock().clone()
    }

    /// What the store has now.
    pub fn set(&self, trusted: Vec<TrustedKey>) {
        *self.lock() = trusted;
    }

    /// known_hosts lines for the catalog's URL.
    pub fn known_hosts(&self) -> String {
        hostkeys::known_hosts(&self.lock(), &self.host, self.port)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<TrustedKey>> {
        self.trusted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

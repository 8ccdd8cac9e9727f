//! The provider's documents, discovery and keys: fetched, and believed for a while.

use std::sync::PoisonError;

use time::OffsetDateTime;

use super::discovery::Discovery;
use super::token::Keys;
use super::{OidcError, Provider, calls, discovery, token};
use crate::clock;

/// How long the discovery document is believed.
const DISCOVERY_AGE: time::Duration = time::Duration::hours(1);
/// How long the key set is believed (Core §10.1.1 leaves it to us).
const KEYS_AGE: time::Duration = time::Duration::minutes(10);

#[derive(Default, Clone)]
pub(super) struct Known {
    discovery: Option<(Discovery, OffsetDateTime)>,
    keys: Option<(Keys, OffsetDateTime)>,
}

impl Provider {
    pub(super) async fn discovery(&self) -> Result<Discovery, OidcError> {
        if let Some(found) = self.fresh_discovery() {
            return Ok(found);
        }
        let _one = calls::place(&self.fetch).await?;
        if let Some(found) = self.fresh_discovery() {
            return Ok(found);
        }
        let issuer = &self.config.issuer;
        let url = format!(
            "{}/.well-known/openid-configuration",
            issuer.trim_end_matches('/')
        );
        let text = self.get(&url, None, discovery::MAX_BYTES).await?;
        let found = discovery::read(&text, issuer)?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.discovery = Some((found.clone(), clock::now()));
        Ok(found)
    }

    /// The key set and when it was fetched. With `lacking`, one fetched then did not hold a key.
    pub(super) async fn keys(
        &self,
        found: &Discovery,
        lacking: Option<OffsetDateTime>,
    ) -> Result<(Keys, OffsetDateTime), OidcError> {
        if let Some(keys) = self.fresh_keys(lacking) {
            return Ok(keys);
        }
        let _one = calls::place(&self.fetch).await?;
        if let Some(keys) = self.fresh_keys(lacking) {
            return Ok(keys);
        }
        let text = self.get(&found.keys, None, token::MAX_KEYS_BYTES).await?;
        let fetched = (Keys::parse(&text)?, clock::now());
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.keys = Some(fetched.clone());
        Ok(fetched)
    }

    fn fresh_discovery(&self) -> Option<Discovery> {
        let (found, at) = self.known().discovery?;
        (clock::now() - at < DISCOVERY_AGE).then_some(found)
    }

    fn fresh_keys(&self, lacking: Option<OffsetDateTime>) -> Option<(Keys, OffsetDateTime)> {
        let (keys, at) = self.known().keys?;
        let age = clock::now() - at;
        let good = match lacking {
            None => age < KEYS_AGE,
            // Whoever sends tokens with made-up key ids does not make us fetch each time.
            Some(then) => at > then || age < self.config.keys_again,
        };
        good.then_some((keys, at))
    }

    fn known(&self) -> Known {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.clone()
    }
}

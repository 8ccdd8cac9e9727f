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
        let age = age(at, clock::now());
        age.is_some_and(|age| age < DISCOVERY_AGE).then_some(found)
    }

    fn fresh_keys(&self, lacking: Option<OffsetDateTime>) -> Option<(Keys, OffsetDateTime)> {
        let (keys, at) = self.known().keys?;
        let age = age(at, clock::now());
        let good = match lacking {
            None => age.is_some_and(|age| age < KEYS_AGE),
            // Whoever sends tokens with made-up key ids does not make us fetch each time.
            Some(then) => at > then || age.is_some_and(|age| age < self.config.keys_again),
        };
        good.then_some((keys, at))
    }

    fn known(&self) -> Known {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.clone()
    }
}

/// How old something is. None = nobody knows: a clock that was ahead has dated it, and by that it would be believed until the
/// clock is there again.
fn age(at: OffsetDateTime, now: OffsetDateTime) -> Option<time::Duration> {
    Some(now - at).filter(|age| !age.is_negative())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::Router;
    use axum::routing::get;
    use serde_json::{Value, json};
    use tokio::net::TcpListener;
    use tokio::task::JoinSet;

    use super::*;
    use crate::hub::oidc::claims::Mapping;
    use crate::hub::oidc::{Config, GROUPS_WITHIN, Lifetimes, VOUCHED_WITHIN};
    use crate::keys::{self, KeyPair};

    fn config(issuer: &str) -> Config {
        Config {
            issuer: issuer.to_owned(),
            client_id: "linesman".to_owned(),
            client_secret_file: None,
            scopes: None,
            parameters: vec![],
            mapping: Mapping::default(),
            roles: vec![],
            ca: None,
            sessions: Lifetimes::default(),
            vouched_within: VOUCHED_WITHIN,
            groups_within: GROUPS_WITHIN,
            keys_again: Duration::from_mins(1),
        }
    }

    /// A discovery document whose keys are at this path.
    fn document(issuer: &str, keys: &str) -> String {
        let document = json!({
            "issuer": issuer,
            "authorization_endpoint": format!("{issuer}/authorize"),
            "token_endpoint": format!("{issuer}/token"),
            "jwks_uri": format!("{issuer}/{keys}"),
        });
        document.to_string()
    }

    fn set(kid: &str, pair: &KeyPair) -> String {
        let x = pair.public().to_base64();
        json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": kid, "x": x}]}).to_string()
    }

    fn signed(kid: &str, pair: &KeyPair, issuer: &str) -> String {
        let now = clock::now().unix_timestamp();
        let header = json!({"alg": "EdDSA", "kid": kid});
        let claims = json!({"iss": issuer, "aud": "linesman", "sub": "s1", "nonce": "n1", "iat": now, "exp": now + 300});
        let part = |value: &Value| keys::encode(value.to_string().as_bytes());
        let input = format!("{}.{}", part(&header), part(&claims));
        format!("{input}.{}", keys::encode(&pair.sign(input.as_bytes())))
    }

    /// H33: the hub's clock was ahead when it fetched them, and is right again; the provider has another key by now.
    #[tokio::test]
    async fn documents_that_are_dated_ahead_are_fetched_again() {
        drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
        let [old, new] = [1, 2].map(|seed| KeyPair::from_seed(&[seed; 32]));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let issuer = format!("http://{}", listener.local_addr().unwrap());
        let (found, keys) = (document(&issuer, "keys"), set("new", &new));
        let router = Router::new()
            .route(
                "/.well-known/openid-configuration",
                get(move || async move { found }),
            )
            .route("/keys", get(move || async move { keys }));
        let mut server = JoinSet::new();
        server.spawn(async move { axum::serve(listener, router).await });

        let provider = Provider::new(config(&issuer));
        let moved = discovery::read(document(&issuer, "moved").as_bytes(), &issuer).unwrap();
        let before = Keys::parse(set("old", &old).as_bytes()).unwrap();
        let ahead = clock::now() + time::Duration::hours(5);
        *provider.known.lock().unwrap() = Known {
            discovery: Some((moved, ahead)),
            keys: Some((before, ahead)),
        };
        let token = signed("new", &new, &issuer);
        let claims = provider.verified(&token, Some("n1"), None).await.unwrap();
        assert_eq!(claims.subject, "s1");
    }

    #[test]
    fn what_is_dated_ahead_has_no_age() {
        let at = |seconds| OffsetDateTime::UNIX_EPOCH + time::Duration::seconds(seconds);
        for (then, now, old) in [
            (100, 100, Some(0)),
            (100, 160, Some(60)),
            (100, 99, None),
            (100_000, 99, None),
        ] {
            let old = old.map(time::Duration::seconds);
            assert_eq!(age(at(then), at(now)), old, "{then} {now}");
        }
    }
}

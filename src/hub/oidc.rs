//! The identity provider, as the hub asks it: authorization code with PKCE, refresh, userinfo. The hub is its only
//! client, so one redirect URI is registered and no credential of the provider reaches a person's machine.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Url;
use serde::Deserialize;
use serde_json::Value;
use time::OffsetDateTime;
use tokio::sync::Semaphore;

use crate::clock;
use crate::hub::access;
use crate::hub::auth::Role;
use crate::secret::Secret;

pub mod claims;
pub mod discovery;
pub mod token;

use claims::{ClaimError, Identity, Mapping};
use discovery::{ClientAuth, Discovery, DiscoveryError};
use token::{Claims, Expected, Keys, KeysError, TokenError};

const TIMEOUT: Duration = Duration::from_secs(10);
/// Calls to the provider at once; who comes later waits for a place, within the same time.
const CALLS: usize = 32;
const MAX_ANSWER: usize = 256 << 10;
/// How long the discovery document is believed.
const DISCOVERY_AGE: time::Duration = time::Duration::hours(1);
/// How long the key set is believed (Core §10.1.1 leaves it to us).
const KEYS_AGE: time::Duration = time::Duration::minutes(10);

/// What the hub is told about its identity provider and the sessions of people who log in with it.
#[derive(Debug, Clone)]
pub struct Config {
    pub issuer: String,
    pub client_id: String,
    /// Read anew for each call, so that it can be renewed; None = a public client.
    pub client_secret_file: Option<PathBuf>,
    /// None = those that the provider offers of openid, profile, email, groups and `offline_access`.
    pub scopes: Option<Vec<String>>,
    /// Added to the authorization request, such as `access_type=offline`.
    pub parameters: Vec<(String, String)>,
    pub mapping: Mapping,
    /// Roles at the hub that the provider's groups give, groups with their prefix.
    pub roles: Vec<(Role, String)>,
    /// PEM: these roots only for the provider's certificate.
    pub ca: Option<String>,
    pub sessions: Lifetimes,
    /// A key set is fetched again for an unknown key at most this often.
    pub keys_again: Duration,
}

/// How long things of a session hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetimes {
    /// An access token; so long may it take until the provider's word arrives.
    pub access: Duration,
    /// A session that nobody uses.
    pub idle: Duration,
    /// A session at most.
    pub whole: Duration,
    /// A refresh token that was just used is taken once more within this, for its answer may have been lost.
    pub grace: Duration,
}

impl Default for Lifetimes {
    fn default() -> Self {
        Self {
            access: Duration::from_mins(15),
            idle: Duration::from_hours(12),
            whole: Duration::from_hours(7 * 24),
            grace: Duration::from_secs(30),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum OidcError {
    /// The provider itself says no: the person is gone, or took the consent back.
    #[error("the identity provider refuses: {0}")]
    Refused(String),
    #[error("ask the identity provider at {url}")]
    Unreachable { url: String, source: reqwest::Error },
    #[error("set up the connection to the identity provider")]
    Setup(#[source] crate::client::Error),
    #[error("the identity provider answers {status} at {url}: {said}")]
    Answer {
        url: String,
        status: u16,
        said: String,
    },
    #[error("read the client secret of the identity provider from {path}")]
    Secret {
        path: String,
        source: std::io::Error,
    },
    #[error("the identity provider is misconfigured")]
    Discovery(#[from] DiscoveryError),
    #[error("the identity provider's keys cannot be used")]
    Keys(#[from] KeysError),
    #[error("the identity provider's word cannot be believed")]
    Token(#[from] TokenError),
    #[error("the identity provider's claims cannot be used")]
    Claims(#[from] ClaimError),
}

impl OidcError {
    /// The provider was heard, and this person is not let in; anything else may pass.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::Token(_) | Self::Claims(_))
    }
}

/// What a login or a refresh brought.
pub struct Granted {
    pub identity: Identity,
    /// The one to use from now on.
    pub refresh: Option<Secret<String>>,
    /// The end of the provider's word.
    pub until: OffsetDateTime,
}

/// The provider with what is remembered of it.
pub struct Provider {
    pub config: Config,
    known: Mutex<Known>,
    /// One fetch of documents at a time.
    fetch: Semaphore,
    calls: Semaphore,
}

#[derive(Default, Clone)]
struct Known {
    discovery: Option<(Discovery, OffsetDateTime)>,
    keys: Option<(Keys, OffsetDateTime)>,
}

impl Provider {
    pub fn new(config: Config) -> Self {
        Self {
            config,
            known: Mutex::default(),
            fetch: Semaphore::new(1),
            calls: Semaphore::new(CALLS),
        }
    }

    /// Where to send a browser.
    pub async fn authorize(&self, ask: &Ask<'_>) -> Result<String, OidcError> {
        let found = self.discovery().await?;
        let scopes = self
            .config
            .scopes
            .as_ref()
            .unwrap_or(&found.scopes)
            .join(" ");
        let mut pairs = vec![
            ("response_type", "code"),
            ("client_id", &self.config.client_id),
            ("redirect_uri", ask.redirect),
            ("scope", &scopes),
            ("state", ask.state),
            ("nonce", ask.nonce),
            ("code_challenge", ask.challenge),
            ("code_challenge_method", "S256"),
        ];
        // Providers after the letter of Core §11 give a refresh token only when the person is asked.
        let chosen = self
            .config
            .parameters
            .iter()
            .any(|(name, _)| name == "prompt");
        if scopes.split(' ').any(|s| s == "offline_access") && !chosen {
            pairs.push(("prompt", "consent"));
        }
        pairs.extend(
            self.config
                .parameters
                .iter()
                .map(|(k, v)| (k.as_str(), v.as_str())),
        );
        Ok(with_query(&found.authorize, &pairs))
    }

    /// The issuer that an answer may name (RFC 9207).
    pub async fn accepts(&self, issuer: Option<&str>) -> Result<bool, OidcError> {
        let found = self.discovery().await?;
        Ok(match issuer {
            Some(issuer) => issuer == found.issuer,
            None => !found.names_itself,
        })
    }

    /// Redeems a code.
    pub async fn redeem(
        &self,
        code: &str,
        redirect: &str,
        verifier: &Secret<String>,
        nonce: &str,
    ) -> Result<Granted, OidcError> {
        let answer = self
            .token(&[
                ("grant_type", "authorization_code"),
                ("code", code),
                ("redirect_uri", redirect),
                ("code_verifier", verifier.expose()),
            ])
            .await?;
        let token = answer.id_token.as_deref().ok_or(TokenError::Shape)?;
        let claims = self.verified(token, Some(nonce), None).await?;
        self.granted(claims, answer).await
    }

    /// Asks again for one who logged in before. The groups are those of now.
    pub async fn refresh(
        &self,
        refresh: &Secret<String>,
        subject: &str,
    ) -> Result<Granted, OidcError> {
        let answer = self
            .token(&[
                ("grant_type", "refresh_token"),
                ("refresh_token", refresh.expose()),
            ])
            .await?;
        let claims = match answer.id_token.as_deref() {
            Some(token) => self.verified(token, None, Some(subject)).await?,
            // Core §12.2 leaves the ID token out where it likes; userinfo then says who it is.
            None => Claims::of(subject, clock::now() + self.config.sessions.access),
        };
        self.granted(claims, answer).await
    }

    /// Tells the provider that a refresh token is not needed any more; nobody waits for how it takes that.
    pub async fn revoke(&self, refresh: &Secret<String>) -> Result<(), OidcError> {
        let Some(url) = self.discovery().await?.revoke else {
            return Ok(());
        };
        let form = [
            ("token", refresh.expose().as_str()),
            ("token_type_hint", "refresh_token"),
        ];
        self.post(&url, &form).await.map(drop)
    }

    /// Reads discovery document and keys as a login would; for `doctor`.
    pub async fn check(&self) -> Result<Discovery, OidcError> {
        let found = self.discovery().await?;
        self.keys(&found, None).await?;
        Ok(found)
    }

    async fn granted(&self, mut claims: Claims, answer: TokenAnswer) -> Result<Granted, OidcError> {
        if !claims::complete(&claims, &self.config.mapping)
            && let Some(url) = self.discovery().await?.userinfo
            && let Some(access) = &answer.access_token
        {
            claims.add(&self.userinfo(&url, access).await?)?;
        }
        Ok(Granted {
            identity: claims::identity(&claims, &self.config.mapping)?,
            refresh: answer.refresh_token.map(Secret::new),
            until: claims.expires_at,
        })
    }

    async fn verified(
        &self,
        token: &str,
        nonce: Option<&str>,
        subject: Option<&str>,
    ) -> Result<Claims, OidcError> {
        let found = self.discovery().await?;
        let mut keys = self.keys(&found, None).await?;
        let mut again = true;
        loop {
            let expected = Expected {
                issuer: &found.issuer,
                client_id: &self.config.client_id,
                nonce,
                subject,
                algorithms: &found.algorithms,
                now: clock::now(),
            };
            match token::verify(token, &keys.0, &expected) {
                // The provider may have changed its keys since.
                Err(TokenError::UnknownKey) if again => {
                    keys = self.keys(&found, Some(keys.1)).await?;
                    again = false;
                }
                read => return Ok(read?),
            }
        }
    }

    fn known(&self) -> Known {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.clone()
    }

    fn fresh_discovery(&self) -> Option<Discovery> {
        let (found, at) = self.known().discovery?;
        (clock::now() - at < DISCOVERY_AGE).then_some(found)
    }

    async fn discovery(&self) -> Result<Discovery, OidcError> {
        if let Some(found) = self.fresh_discovery() {
            return Ok(found);
        }
        let _one = self.fetch.acquire().await;
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
    async fn keys(
        &self,
        found: &Discovery,
        lacking: Option<OffsetDateTime>,
    ) -> Result<(Keys, OffsetDateTime), OidcError> {
        if let Some(keys) = self.fresh_keys(lacking) {
            return Ok(keys);
        }
        let _one = self.fetch.acquire().await;
        if let Some(keys) = self.fresh_keys(lacking) {
            return Ok(keys);
        }
        let text = self.get(&found.keys, None, token::MAX_KEYS_BYTES).await?;
        let fetched = (Keys::parse(&text)?, clock::now());
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.keys = Some(fetched.clone());
        Ok(fetched)
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

    async fn userinfo(&self, url: &str, access: &str) -> Result<Value, OidcError> {
        let text = self.get(url, Some(access), MAX_ANSWER).await?;
        serde_json::from_slice(&text).map_err(|_| OidcError::Answer {
            url: url.to_owned(),
            status: 200,
            said: "userinfo that is not JSON".to_owned(),
        })
    }

    async fn token(&self, form: &[(&str, &str)]) -> Result<TokenAnswer, OidcError> {
        let url = self.discovery().await?.token;
        let (status, text) = self.post(&url, form).await?;
        if (200..300).contains(&status) {
            return serde_json::from_slice(&text).map_err(|_| OidcError::Answer {
                url,
                status,
                said: "something that is not a token answer".to_owned(),
            });
        }
        let error: TokenRefusal = serde_json::from_slice(&text).unwrap_or_default();
        let said = error.words();
        // Only this one is about the person; all others are about the hub or about the moment (RFC 6749 §5.2).
        if error.error == "invalid_grant" {
            return Err(OidcError::Refused(said));
        }
        Err(OidcError::Answer { url, status, said })
    }

    /// Posts a form as the client that the hub is.
    async fn post(&self, url: &str, form: &[(&str, &str)]) -> Result<(u16, Vec<u8>), OidcError> {
        let secret = self.secret().await?;
        let mut form = form.to_vec();
        let mut request = self.http()?.post(url).header("accept", "application/json");
        match (&secret, self.discovery().await?.client_auth) {
            (None, _) => form.push(("client_id", &self.config.client_id)),
            (Some(secret), ClientAuth::Post) => {
                form.push(("client_id", &self.config.client_id));
                form.push(("client_secret", secret.expose()));
            }
            (Some(secret), ClientAuth::Basic) => {
                // RFC 6749 §2.3.1: both are form-encoded before they are put together.
                let pair = format!(
                    "{}:{}",
                    encoded(&self.config.client_id),
                    encoded(secret.expose())
                );
                request =
                    request.header("authorization", format!("Basic {}", STANDARD.encode(pair)));
            }
        }
        let request = request
            .header("content-type", "application/x-www-form-urlencoded")
            .body(query(&form));
        self.send(request, url, MAX_ANSWER).await
    }

    async fn get(
        &self,
        url: &str,
        bearer: Option<&str>,
        most: usize,
    ) -> Result<Vec<u8>, OidcError> {
        let mut request = self.http()?.get(url).header("accept", "application/json");
        if let Some(token) = bearer {
            request = request.bearer_auth(token);
        }
        let (status, text) = self.send(request, url, most).await?;
        if status == 200 {
            return Ok(text);
        }
        Err(OidcError::Answer {
            url: url.to_owned(),
            status,
            said: "instead of the document".to_owned(),
        })
    }

    /// No redirects are followed: a token or a secret must not go where nobody sent it.
    fn http(&self) -> Result<reqwest::Client, OidcError> {
        crate::client::http(self.config.ca.as_deref()).map_err(OidcError::Setup)
    }

    async fn send(
        &self,
        request: reqwest::RequestBuilder,
        url: &str,
        most: usize,
    ) -> Result<(u16, Vec<u8>), OidcError> {
        let unreachable = |source: reqwest::Error| OidcError::Unreachable {
            url: url.to_owned(),
            // Its text would show the URL once more.
            source: source.without_url(),
        };
        let _place = self.calls.acquire().await;
        let mut response = request.timeout(TIMEOUT).send().await.map_err(unreachable)?;
        let status = response.status().as_u16();
        let mut text = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
            if text.len() + chunk.len() > most {
                return Err(OidcError::Answer {
                    url: url.to_owned(),
                    status,
                    said: format!("more than {most} bytes"),
                });
            }
            text.extend_from_slice(&chunk);
        }
        Ok((status, text))
    }

    async fn secret(&self) -> Result<Option<Secret<String>>, OidcError> {
        let Some(path) = &self.config.client_secret_file else {
            return Ok(None);
        };
        let text = tokio::fs::read_to_string(path).await;
        let text = text.map_err(|source| OidcError::Secret {
            path: path.display().to_string(),
            source,
        })?;
        Ok(Some(Secret::new(text.trim().to_owned())))
    }
}

/// What an authorization request says.
pub struct Ask<'a> {
    pub redirect: &'a str,
    pub state: &'a str,
    pub nonce: &'a str,
    /// S256 of the verifier.
    pub challenge: &'a str,
}

#[derive(Deserialize)]
#[expect(
    clippy::struct_field_names,
    reason = "the fields of RFC 6749 and OpenID Connect"
)]
struct TokenAnswer {
    access_token: Option<String>,
    id_token: Option<String>,
    refresh_token: Option<String>,
}

#[derive(Default, Deserialize)]
struct TokenRefusal {
    #[serde(default)]
    error: String,
    #[serde(default)]
    error_description: String,
}

impl TokenRefusal {
    fn words(&self) -> String {
        if self.error.is_empty() {
            return "no reason".to_owned();
        }
        plain(&format!("{} {}", self.error, self.error_description))
    }
}

/// A foreign text as it may stand in a message: short, on one line.
pub fn plain(text: &str) -> String {
    let shown = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    shown.take(200).collect::<String>().trim().to_owned()
}

/// A URL with these parameters behind those that it has.
pub fn with_query(url: &str, pairs: &[(&str, &str)]) -> String {
    let mark = if url.contains('?') { '&' } else { '?' };
    format!("{url}{mark}{}", query(pairs))
}

fn query(pairs: &[(&str, &str)]) -> String {
    let mut url = Url::parse("x:/").expect("a constant URL");
    url.query_pairs_mut().extend_pairs(pairs);
    url.query().unwrap_or_default().to_owned()
}

fn encoded(text: &str) -> String {
    query(&[("", text)]).trim_start_matches('=').to_owned()
}

/// Roles that groups of the provider give.
pub fn roles(config: Option<&Config>, groups: &[String]) -> Vec<Role> {
    let given = config.into_iter().flat_map(|c| &c.roles);
    given
        .filter(|(_, group)| groups.contains(group))
        .map(|(role, _)| *role)
        .collect()
}

/// Whether a text can be the name of a group that roles are given to.
pub fn is_group(name: &str) -> bool {
    access::named(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_encoded_once() {
        assert_eq!(
            with_query(
                "https://id/a?x=1",
                &[("scope", "openid a&b"), ("state", "ü=")]
            ),
            "https://id/a?x=1&scope=openid+a%26b&state=%C3%BC%3D"
        );
        assert_eq!(
            with_query("https://id/a", &[("a", "b")]),
            "https://id/a?a=b"
        );
        assert_eq!(encoded("a:b c"), "a%3Ab+c");
    }

    #[test]
    fn foreign_words_are_short_and_on_one_line() {
        assert_eq!(plain(" a\r\nb\u{1b}[1m "), "a  b [1m");
        assert_eq!(plain(&"x".repeat(900)).len(), 200);
    }
}

//! The identity provider, as the hub asks it: authorization code with PKCE, refresh, userinfo. The hub is its only
//! client, so one redirect URI is registered and no credential of the provider reaches a person's machine.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use time::OffsetDateTime;
use tokio::sync::Semaphore;

use crate::clock;
use crate::hub::access;
use crate::hub::auth::Role;
use crate::secret::Secret;

mod calls;
pub mod claims;
pub mod discovery;
mod documents;
pub mod token;

pub use calls::{plain, with_query};

use calls::TokenAnswer;
use claims::{ClaimError, Identity, Mapping};
use discovery::{Discovery, DiscoveryError};
use documents::Known;
use token::{Claims, Expected, KeysError, TokenError};

/// Calls to the provider at once; who comes later waits for a place, a while.
const CALLS: usize = 32;
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
    /// How long API tokens and SSH keys of a user hold for whom the provider does not vouch anew; zero = for ever.
    pub vouched_within: Duration,
    /// How long a user's groups are in force after the provider was heard on them last.
    pub groups_within: Duration,
    /// A key set is fetched again for an unknown key at most this often.
    pub keys_again: Duration,
}

/// [`Config::vouched_within`] unless said otherwise, and where the hub has no provider any more that could vouch.
pub const VOUCHED_WITHIN: Duration = Duration::from_hours(30 * 24);
/// The same of [`Config::groups_within`].
pub const GROUPS_WITHIN: Duration = Duration::from_hours(12);

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
    #[error("wait for a call to the identity provider: too many wait already")]
    Busy,
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
        match self {
            Self::Refused(_) | Self::Claims(_) => true,
            Self::Token(error) => !error.may_pass(),
            Self::Unreachable { .. }
            | Self::Busy
            | Self::Setup(_)
            | Self::Answer { .. }
            | Self::Secret { .. }
            | Self::Discovery(_)
            | Self::Keys(_) => false,
        }
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

/// What a provider gave for a refresh token.
pub struct Renewed(TokenAnswer);

impl Renewed {
    /// The refresh token in place of the one before; None = that goes on.
    pub fn next(&self) -> Option<Secret<String>> {
        self.0.refresh_token.clone().map(Secret::new)
    }
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

    /// Asks again for one who logged in before. What it is asked by the next time is to be stored before the rest is judged:
    /// the provider may take the one before no more.
    pub async fn renew(&self, refresh: &Secret<String>) -> Result<Renewed, OidcError> {
        let form = [
            ("grant_type", "refresh_token"),
            ("refresh_token", refresh.expose().as_str()),
        ];
        self.token(&form).await.map(Renewed)
    }

    /// Who it says that is. The groups are those of now.
    pub async fn judge(&self, renewed: Renewed, subject: &str) -> Result<Granted, OidcError> {
        let Renewed(answer) = renewed;
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
                // The provider may have changed its keys since, and call the new one as the one before.
                Err(TokenError::UnknownKey | TokenError::Signature) if again => {
                    keys = self.keys(&found, Some(keys.1)).await?;
                    again = false;
                }
                read => return Ok(read?),
            }
        }
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

    /// H32: a person loses a session by a word on that person, and by nothing else.
    #[test]
    fn what_says_nothing_of_the_person_may_pass() {
        use TokenError::{Algorithm, Claim, Expired, NotYet, Shape, Signature, UnknownKey};
        for (error, is_final) in [
            (UnknownKey, false),
            (Signature, false),
            (Expired, false),
            (NotYet, false),
            (Shape, true),
            (Algorithm("none".to_owned()), true),
            (Claim("sub"), true),
        ] {
            let whole = OidcError::Token(error.clone());
            assert_eq!(whole.is_final(), is_final, "{error}");
        }
        assert!(OidcError::Refused("invalid_grant".to_owned()).is_final());
        assert!(!OidcError::Busy.is_final());
    }
}

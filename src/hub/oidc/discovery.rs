//! A provider's discovery document (OpenID Connect Discovery 1.0, RFC 8414), read with suspicion. Pure.

use jsonwebtoken::Algorithm;
use serde::Deserialize;

use super::token;

/// A larger document is refused unread.
pub const MAX_BYTES: usize = 256 << 10;

/// Where the provider is to be asked, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Discovery {
    pub issuer: String,
    pub authorize: String,
    pub token: String,
    pub keys: String,
    pub userinfo: Option<String>,
    pub revoke: Option<String>,
    /// Accepted ones that it signs with; empty = it does not say.
    pub algorithms: Vec<Algorithm>,
    /// Of those that the hub asks for unless it is told which.
    pub scopes: Vec<String>,
    /// How a client with a secret proves itself.
    pub client_auth: ClientAuth,
    /// Its answers name it (RFC 9207), so one that does not is from someone else.
    pub names_itself: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientAuth {
    Basic,
    Post,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DiscoveryError {
    #[error("the discovery document cannot be read: {0}")]
    Shape(String),
    #[error("the discovery document is of the issuer '{found}', and '{asked}' was asked")]
    Issuer { found: String, asked: String },
    #[error("the provider's {what} '{url}' is not an https URL")]
    Url { what: &'static str, url: String },
    #[error("the provider does not offer {0}")]
    Lacks(&'static str),
}

#[derive(Deserialize)]
struct Document {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    jwks_uri: String,
    userinfo_endpoint: Option<String>,
    revocation_endpoint: Option<String>,
    response_types_supported: Option<Vec<String>>,
    id_token_signing_alg_values_supported: Option<Vec<String>>,
    code_challenge_methods_supported: Option<Vec<String>>,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    scopes_supported: Option<Vec<String>>,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
}

/// What the hub asks for where the provider has it.
const SCOPES: [&str; 5] = ["openid", "profile", "email", "groups", "offline_access"];

/// Reads the document that was found at `issuer`.
pub fn read(text: &[u8], issuer: &str) -> Result<Discovery, DiscoveryError> {
    let document: Document = serde_json::from_slice(text)
        .map_err(|e| DiscoveryError::Shape(e.to_string().chars().take(200).collect()))?;
    if document.issuer != issuer {
        return Err(DiscoveryError::Issuer {
            found: document.issuer.chars().take(200).collect(),
            asked: issuer.to_owned(),
        });
    }
    // A list that is not there says nothing; one that is there says what is missing.
    let lists = |list: &Option<Vec<String>>, word: &str| {
        list.as_ref().is_none_or(|l| l.iter().any(|w| w == word))
    };
    if !lists(&document.response_types_supported, "code") {
        return Err(DiscoveryError::Lacks("the response type 'code'"));
    }
    if !lists(&document.code_challenge_methods_supported, "S256") {
        return Err(DiscoveryError::Lacks("PKCE with 'S256'"));
    }
    let algorithms = match &document.id_token_signing_alg_values_supported {
        None => Vec::new(),
        Some(names) => {
            let known: Vec<Algorithm> = names.iter().filter_map(|n| token::named(n)).collect();
            if known.is_empty() {
                return Err(DiscoveryError::Lacks(
                    "a signature of ID tokens that is accepted",
                ));
            }
            known
        }
    };
    // An endpoint in clear is believed only of a provider on this machine.
    let here = is_loopback(issuer);
    let url = |what, url: String| {
        secure(&url, here)
            .then_some(url.clone())
            .ok_or(DiscoveryError::Url { what, url })
    };
    let basic = lists(
        &document.token_endpoint_auth_methods_supported,
        "client_secret_basic",
    );
    let offered = document.scopes_supported;
    let asks = |scope: &str| match &offered {
        // Without a list, only what every provider has: an unknown scope may be refused.
        None => ["openid", "profile", "email"].contains(&scope),
        Some(list) => scope == "openid" || list.iter().any(|s| s == scope),
    };
    Ok(Discovery {
        authorize: url("authorization endpoint", document.authorization_endpoint)?,
        token: url("token endpoint", document.token_endpoint)?,
        keys: url("key set", document.jwks_uri)?,
        userinfo: document
            .userinfo_endpoint
            .map(|u| url("userinfo endpoint", u))
            .transpose()?,
        revoke: document
            .revocation_endpoint
            .map(|u| url("revocation endpoint", u))
            .transpose()?,
        algorithms,
        scopes: SCOPES
            .iter()
            .filter(|s| asks(s))
            .map(|s| (*s).to_owned())
            .collect(),
        client_auth: if basic {
            ClientAuth::Basic
        } else {
            ClientAuth::Post
        },
        names_itself: document.authorization_response_iss_parameter_supported,
        issuer: document.issuer,
    })
}

/// Whether an issuer may be used: https, or http on this machine; no query, no fragment (Discovery §2).
pub fn is_issuer(url: &str) -> bool {
    secure(url, is_loopback(url))
        && !url.contains(['?', '#', '@'])
        && !url.chars().any(char::is_whitespace)
}

fn secure(url: &str, here: bool) -> bool {
    let parsed: Result<http::Uri, _> = url.parse();
    parsed.is_ok_and(|uri| {
        uri.host().is_some_and(|h| !h.is_empty())
            && match uri.scheme_str() {
                Some("https") => true,
                Some("http") => here && is_loopback(url),
                _ => false,
            }
    })
}

fn is_loopback(url: &str) -> bool {
    let parsed: Result<http::Uri, _> = url.parse();
    parsed.is_ok_and(|uri| matches!(uri.host(), Some("localhost" | "127.0.0.1" | "[::1]")))
}

#[cfg(test)]
mod tests;

//! ID tokens (OpenID Connect Core 1.0 §3.1.3.7, RFC 7515, RFC 7517). Pure: the provider's keys and the time are
//! passed in. Only asymmetric signatures are read, so that no public key can be taken for a shared secret.

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde_json::{Map, Value};
use time::OffsetDateTime;

use crate::keys;

/// A larger ID token is refused unread.
pub const MAX_TOKEN: usize = 64 << 10;
/// A larger key set is refused unread.
pub const MAX_KEYS_BYTES: usize = 256 << 10;
/// Keys in one set.
const MAX_KEYS: usize = 50;
/// Seconds by which the provider's clock may differ from the hub's.
const SKEW: i64 = 60;
/// RSA keys below 2,048 bits are broken.
const MIN_RSA_BYTES: usize = 256;

/// What a provider may sign with, as its discovery document names it.
pub const ALGORITHMS: &[(&str, Algorithm)] = &[
    ("RS256", Algorithm::RS256),
    ("RS384", Algorithm::RS384),
    ("RS512", Algorithm::RS512),
    ("PS256", Algorithm::PS256),
    ("PS384", Algorithm::PS384),
    ("PS512", Algorithm::PS512),
    ("ES256", Algorithm::ES256),
    ("ES384", Algorithm::ES384),
    ("EdDSA", Algorithm::EdDSA),
];

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("the ID token is not a signed JWT of at most 64 KiB")]
    Shape,
    #[error("the ID token is signed with '{0}', which is not accepted")]
    Algorithm(String),
    /// The key set may be older than the token, as with [`Self::Signature`]: fetch it again.
    #[error("the ID token is signed with a key that the provider's key set does not hold")]
    UnknownKey,
    #[error("the signature of the ID token does not hold")]
    Signature,
    #[error("the claim '{0}' of the ID token is missing or is not what was asked for")]
    Claim(&'static str),
    #[error("the ID token has expired")]
    Expired,
    #[error("the ID token is from the future; compare the clocks of hub and provider")]
    NotYet,
}

impl TokenError {
    /// It says nothing of the person: the hub's key set is older than the token, or a clock is wrong.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::UnknownKey | Self::Signature | Self::Expired | Self::NotYet => true,
            Self::Shape | Self::Algorithm(_) | Self::Claim(_) => false,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeysError {
    #[error("the key set is not JSON of the form {{\"keys\": […]}}")]
    Shape,
    #[error("the key set holds more than {MAX_KEYS} keys")]
    TooMany,
    #[error("the key set holds no key that signs with an accepted algorithm")]
    Empty,
}

/// A provider's public keys. What cannot sign an ID token is left out: shared secrets, encryption keys, short RSA.
#[derive(Debug, Clone)]
pub struct Keys(Vec<Key>);

#[derive(Debug, Clone)]
struct Key {
    kid: Option<String>,
    allows: Vec<Algorithm>,
    public: DecodingKey,
}

impl Keys {
    /// Reads a JWK set; a key of a kind from tomorrow does not spoil the others.
    pub fn parse(text: &[u8]) -> Result<Self, KeysError> {
        let value: Value = serde_json::from_slice(text).map_err(|_| KeysError::Shape)?;
        let list = value["keys"].as_array().ok_or(KeysError::Shape)?;
        if list.len() > MAX_KEYS {
            return Err(KeysError::TooMany);
        }
        let keys: Vec<Key> = list.iter().filter_map(Key::read).collect();
        if keys.is_empty() {
            return Err(KeysError::Empty);
        }
        Ok(Self(keys))
    }

    fn fitting<'a>(
        &'a self,
        kid: Option<&'a str>,
        alg: Algorithm,
    ) -> impl Iterator<Item = &'a Key> {
        // A token without a key id fits any key; a key without one fits no token that names a key.
        let named = move |key: &&Key| kid.is_none() || key.kid.as_deref() == kid;
        self.0
            .iter()
            .filter(named)
            .filter(move |key| key.allows.contains(&alg))
    }
}

impl Key {
    fn read(value: &Value) -> Option<Self> {
        let jwk: Jwk = serde_json::from_value(value.clone()).ok()?;
        if matches!(&jwk.common.public_key_use, Some(usage) if *usage != PublicKeyUse::Signature) {
            return None;
        }
        let family: &[Algorithm] = match &jwk.algorithm {
            AlgorithmParameters::RSA(rsa) => {
                let long = keys::decode(&rsa.n)?.len() >= MIN_RSA_BYTES;
                long.then_some(&[
                    Algorithm::RS256,
                    Algorithm::RS384,
                    Algorithm::RS512,
                    Algorithm::PS256,
                    Algorithm::PS384,
                    Algorithm::PS512,
                ])?
            }
            AlgorithmParameters::EllipticCurve(ec) if ec.curve == EllipticCurve::P256 => {
                &[Algorithm::ES256]
            }
            AlgorithmParameters::EllipticCurve(ec) if ec.curve == EllipticCurve::P384 => {
                &[Algorithm::ES384]
            }
            AlgorithmParameters::OctetKeyPair(okp) if okp.curve == EllipticCurve::Ed25519 => {
                &[Algorithm::EdDSA]
            }
            _ => return None,
        };
        let allows: Vec<Algorithm> = match value.get("alg").and_then(Value::as_str) {
            Some(own) => {
                let own = named(own)?;
                family.iter().copied().filter(|a| *a == own).collect()
            }
            None => family.to_vec(),
        };
        (!allows.is_empty()).then_some(Self {
            kid: jwk.common.key_id.clone(),
            allows,
            public: DecodingKey::from_jwk(&jwk).ok()?,
        })
    }
}

/// An accepted algorithm by its name in RFC 7518.
pub fn named(alg: &str) -> Option<Algorithm> {
    ALGORITHMS
        .iter()
        .find(|(name, _)| *name == alg)
        .map(|(_, algorithm)| *algorithm)
}

/// What an ID token must say.
#[derive(Debug, Clone, Copy)]
pub struct Expected<'a> {
    pub issuer: &'a str,
    pub client_id: &'a str,
    /// Of the login that asked; a refreshed token has none (OpenID Connect Core §12.2).
    pub nonce: Option<&'a str>,
    /// Of the login before, for a refreshed token.
    pub subject: Option<&'a str>,
    /// What the provider says that it signs with; empty = all that are accepted.
    pub algorithms: &'a [Algorithm],
    pub now: OffsetDateTime,
}

/// What a provider says of a person.
#[derive(Debug, Clone, PartialEq)]
pub struct Claims {
    pub subject: String,
    pub expires_at: OffsetDateTime,
    all: Map<String, Value>,
}

impl Claims {
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.all.get(name)
    }

    /// Adds what the userinfo endpoint says; only the same person's (OpenID Connect Core §5.3.2), and without
    /// changing what was signed.
    pub fn add(&mut self, userinfo: &Value) -> Result<(), TokenError> {
        let map = userinfo.as_object().ok_or(TokenError::Claim("sub"))?;
        if map.get("sub").and_then(Value::as_str) != Some(self.subject.as_str()) {
            return Err(TokenError::Claim("sub"));
        }
        for (name, value) in map {
            self.all.entry(name).or_insert_with(|| value.clone());
        }
        Ok(())
    }

    /// Claims of one who is known already, before anything is added.
    pub fn of(subject: &str, expires_at: OffsetDateTime) -> Self {
        Self {
            subject: subject.to_owned(),
            expires_at,
            all: Map::new(),
        }
    }
}

/// Checks signature and claims; gives what the token says.
pub fn verify(token: &str, keys: &Keys, expected: &Expected<'_>) -> Result<Claims, TokenError> {
    let (kid, alg) = header(token)?;
    let named_alg = named(&alg).filter(|a| {
        // "none" and the HMAC family are not in our list, whatever a provider says.
        expected.algorithms.is_empty() || expected.algorithms.contains(a)
    });
    let algorithm =
        named_alg.ok_or_else(|| TokenError::Algorithm(alg.chars().take(20).collect()))?;
    let mut validation = Validation::new(algorithm);
    // The claims are judged below, by the time that was passed in.
    validation.validate_exp = false;
    validation.validate_aud = false;
    validation.required_spec_claims.clear();
    let mut error = TokenError::UnknownKey;
    for key in keys.fitting(kid.as_deref(), algorithm) {
        match jsonwebtoken::decode::<Map<String, Value>>(token, &key.public, &validation) {
            Ok(read) => return judged(read.claims, expected),
            Err(_) => error = TokenError::Signature,
        }
    }
    Err(error)
}

/// Key id and algorithm. Headers that demand to be understood (`crit`) are not.
fn header(token: &str) -> Result<(Option<String>, String), TokenError> {
    if token.len() > MAX_TOKEN || token.split('.').count() != 3 {
        return Err(TokenError::Shape);
    }
    let first = token.split('.').next().unwrap_or_default();
    let bytes = keys::decode(first).ok_or(TokenError::Shape)?;
    let header: Map<String, Value> =
        serde_json::from_slice(&bytes).map_err(|_| TokenError::Shape)?;
    if header.contains_key("crit") {
        return Err(TokenError::Shape);
    }
    let alg = header.get("alg").and_then(Value::as_str);
    let alg = alg.ok_or(TokenError::Shape)?.to_owned();
    let kid = match header.get("kid") {
        None => None,
        Some(Value::String(kid)) => Some(kid.clone()),
        Some(_) => return Err(TokenError::Shape),
    };
    Ok((kid, alg))
}

fn judged(all: Map<String, Value>, expected: &Expected<'_>) -> Result<Claims, TokenError> {
    let text = |name: &str| all.get(name).and_then(Value::as_str);
    if text("iss") != Some(expected.issuer) {
        return Err(TokenError::Claim("iss"));
    }
    audience(&all, expected.client_id)?;
    let subject = text("sub").filter(|s| (1..=255).contains(&s.len()));
    let subject = subject.ok_or(TokenError::Claim("sub"))?.to_owned();
    if expected.subject.is_some_and(|s| s != subject) {
        return Err(TokenError::Claim("sub"));
    }
    match (expected.nonce, text("nonce")) {
        (Some(asked), Some(said)) if asked == said => {}
        (None, _) => {}
        (Some(_), _) => return Err(TokenError::Claim("nonce")),
    }
    let now = expected.now.unix_timestamp();
    let expires = seconds(&all, "exp").ok_or(TokenError::Claim("exp"))?;
    let issued = seconds(&all, "iat").ok_or(TokenError::Claim("iat"))?;
    if expires.saturating_add(SKEW) <= now {
        return Err(TokenError::Expired);
    }
    let begins = match all.get("nbf") {
        None => issued,
        Some(_) => seconds(&all, "nbf")
            .ok_or(TokenError::Claim("nbf"))?
            .max(issued),
    };
    if begins.saturating_sub(SKEW) > now {
        return Err(TokenError::NotYet);
    }
    let expires_at = OffsetDateTime::from_unix_timestamp(expires);
    Ok(Claims {
        subject,
        expires_at: expires_at.map_err(|_| TokenError::Claim("exp"))?,
        all,
    })
}

/// We are among the audience, and where a token was made for several, it was made at our request.
fn audience(all: &Map<String, Value>, client_id: &str) -> Result<(), TokenError> {
    let (ours, many) = match all.get("aud") {
        Some(Value::String(one)) => (one == client_id, false),
        Some(Value::Array(list)) => (
            list.iter().any(|a| a.as_str() == Some(client_id)),
            list.len() > 1,
        ),
        _ => (false, false),
    };
    if !ours {
        return Err(TokenError::Claim("aud"));
    }
    match all.get("azp") {
        Some(party) if party.as_str() == Some(client_id) => Ok(()),
        None if !many => Ok(()),
        _ => Err(TokenError::Claim("azp")),
    }
}

/// A `NumericDate` (RFC 7519): seconds, which may have a fraction.
fn seconds(all: &Map<String, Value>, name: &str) -> Option<i64> {
    let value = all.get(name)?;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a time of day in seconds fits, and `as` saturates"
    )]
    let whole = |float: f64| float.is_finite().then_some(float.floor() as i64);
    value.as_i64().or_else(|| value.as_f64().and_then(whole))
}

#[cfg(test)]
mod tests;

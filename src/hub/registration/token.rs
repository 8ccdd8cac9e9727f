//! A token's text, and what the store keeps of it.

use crate::keys;
use crate::secret::Secret;

/// A token as it stands in the YAML: `<prefix>.<id>.<secret>`.
#[derive(Debug, Clone)]
pub struct TokenText {
    pub id: String,
    secret: Secret<[u8; 32]>,
}

/// What a token is for; the first part of its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prefix {
    /// `lmj1`
    Join,
    /// `lmt1`
    Api,
    /// `lma1`: access by a login, short-lived.
    Access,
    /// `lmr1`: the next access, once.
    Refresh,
    /// `lml1`: a session of a local user, once.
    Login,
}

impl Prefix {
    fn as_str(self) -> &'static str {
        match self {
            Self::Join => "lmj1",
            Self::Api => "lmt1",
            Self::Access => "lma1",
            Self::Refresh => "lmr1",
            Self::Login => "lml1",
        }
    }
}

impl TokenText {
    /// A token out of 16 bytes for the id and 32 for the secret, all random.
    pub fn new(id: [u8; 16], secret: [u8; 32]) -> Self {
        Self {
            id: keys::encode(&id),
            secret: Secret::new(secret),
        }
    }

    /// Reads a token of this kind; anything else is None, without a reason that would help to guess.
    pub fn parse(prefix: Prefix, text: &str) -> Option<Self> {
        let mut parts = text.trim().split('.');
        let (kind, id, secret) = (parts.next()?, parts.next()?, parts.next()?);
        if kind != prefix.as_str() || parts.next().is_some() || id.len() != 22 {
            return None;
        }
        keys::decode(id)?;
        let secret = keys::decode(secret)?.try_into().ok()?;
        Some(Self {
            id: id.to_owned(),
            secret: Secret::new(secret),
        })
    }

    /// The same secret under the id of a token that is there already.
    #[must_use]
    pub fn with_id(self, id: &str) -> Self {
        Self {
            id: id.to_owned(),
            ..self
        }
    }

    pub fn text(&self, prefix: Prefix) -> Secret<String> {
        let secret = keys::encode(self.secret.expose());
        Secret::new(format!("{}.{}.{secret}", prefix.as_str(), self.id))
    }

    /// What the store keeps of the secret.
    pub fn hash(&self) -> [u8; 32] {
        keys::sha256(self.secret.expose())
    }

    /// Compares in constant time, also where there is nothing to compare with.
    pub fn matches(&self, stored: Option<&[u8; 32]>) -> bool {
        use subtle::ConstantTimeEq as _;
        let known = stored.is_some();
        let equal: bool = self.hash().ct_eq(stored.unwrap_or(&[0; 32])).into();
        known && equal
    }
}

//! Names and ids that cross a border: parsed once, trusted inside.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A cluster's name: `^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$` and not a reserved word.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ClusterName(String);

/// Words that are not cluster names, because a path or a verb already means them.
pub const RESERVED_NAMES: [&str; 6] = ["hub", "all", "new", "system", "linesman", "local"];

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error(
        "'{0}' is not a cluster name: use a-z, 0-9 and '-', at most 40, starting and ending with a letter or digit"
    )]
    Shape(String),
    #[error("'{0}' is reserved; choose another cluster name")]
    Reserved(String),
}

impl ClusterName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ClusterName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let bytes = text.as_bytes();
        let word = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let inner = |b: &u8| word(b) || *b == b'-';
        let shaped = (1..=40).contains(&bytes.len())
            && bytes.iter().all(inner)
            && bytes.first().is_some_and(word)
            && bytes.last().is_some_and(word);
        if !shaped {
            return Err(NameError::Shape(text.chars().take(60).collect()));
        }
        if RESERVED_NAMES.contains(&text) {
            return Err(NameError::Reserved(text.to_owned()));
        }
        Ok(Self(text.to_owned()))
    }
}

impl TryFrom<String> for ClusterName {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<ClusterName> for String {
    fn from(name: ClusterName) -> Self {
        name.0
    }
}

impl fmt::Display for ClusterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// `sha256:<64 lower-case hex digits>`: the name of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a digest: it reads sha256:<64 hex digits>")]
pub struct DigestError(String);

impl Digest {
    /// The digest that 32 bytes of SHA-256 spell.
    pub fn from_bytes(sum: [u8; 32]) -> Self {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let digit = |n: u8| char::from(DIGITS[usize::from(n & 15)]);
        let hex: String = sum
            .iter()
            .flat_map(|b| [digit(b >> 4), digit(*b)])
            .collect();
        Self(format!("sha256:{hex}"))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The hex digits alone.
    pub fn hex(&self) -> &str {
        self.0.strip_prefix("sha256:").unwrap_or(&self.0)
    }

    /// Its beginning, with twelve digits: what people are told, and what the hub finds in the words of an agent that tells no whole one.
    pub fn short(&self) -> &str {
        self.0.get(..19).unwrap_or(&self.0)
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let hex = text.strip_prefix("sha256:").unwrap_or_default();
        let fits = hex.len() == 64 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if fits {
            Ok(Self(text.to_owned()))
        } else {
            Err(DigestError(text.chars().take(90).collect()))
        }
    }
}

impl TryFrom<String> for Digest {
    type Error = DigestError;

    fn try_from(text: String) -> Result<Self, DigestError> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_told_by_its_first_twelve_digits() {
        let digest = Digest::from_bytes([0xab; 32]);
        assert_eq!(digest.short(), "sha256:abababababab");
    }

    #[test]
    fn cluster_names_follow_their_pattern() {
        for good in ["a", "eu1", "a-b", "0", &"x".repeat(40)] {
            assert_eq!(
                good.parse::<ClusterName>().map(String::from),
                Ok(good.to_owned())
            );
        }
        for bad in ["", "-a", "a-", "A", "a_b", "a.b", "é", &"x".repeat(41)] {
            assert_eq!(
                bad.parse::<ClusterName>(),
                Err(NameError::Shape(bad.to_owned())),
                "{bad}"
            );
        }
        for word in RESERVED_NAMES {
            assert_eq!(
                word.parse::<ClusterName>(),
                Err(NameError::Reserved(word.to_owned()))
            );
        }
    }

    #[test]
    fn digests_round_trip() {
        let digest = Digest::from_bytes([0xab; 32]);
        assert_eq!(digest.as_str().parse(), Ok(digest.clone()));
        assert!("sha256:AB".parse::<Digest>().is_err());
    }
}

//! What is read off OpenPGP armor: whose public key it is, and whose signature. Nothing is verified here: that is the
//! engine's part, in the cluster. (RFC 4880 and RFC 9580: armor § 6, packets § 4, keys § 5.5, signatures § 5.2.)

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest as _, Sha1};

const PUBLIC_KEY: &str = "PGP PUBLIC KEY BLOCK";
const PRIVATE_KEY: &str = "PGP PRIVATE KEY BLOCK";
const SIGNATURE: &str = "PGP SIGNATURE";
/// Packets in one block; a key with hundreds of certifications has fewer.
const MAX_PACKETS: usize = 4096;
/// Characters of a user ID that are shown.
const MAX_USER: usize = 100;

/// Packet types (RFC 9580 § 5).
const TAG_SIGNATURE: u8 = 2;
const TAG_PUBLIC_KEY: u8 = 6;
const TAG_USER_ID: u8 = 13;
const TAG_PUBLIC_SUBKEY: u8 = 14;
/// Signature subpackets (RFC 9580 § 5.2.3.7).
const ISSUER_KEY_ID: u8 = 16;
const ISSUER_FINGERPRINT: u8 = 33;

/// One public key with its subkeys. Fingerprints are 40 upper-case hex digits; those of SSH keys are as OpenSSH prints them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    pub fingerprint: String,
    pub subkeys: Vec<String>,
    /// Its first user ID, printable; empty = it has none.
    pub user: String,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("it is neither an armored OpenPGP public key nor the line of an OpenSSH one")]
    NoKey,
    #[error("it is a private key")]
    Private,
    #[error("it holds more than one key")]
    Several,
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
    #[error("it is a key of version {0}; clusters verify with keys of version 4")]
    Version(u8),
}

impl Key {
    /// Whether a signature with this issuer (fingerprint or key ID, upper-case hex) is of this key.
    pub fn made(&self, issuer: &str) -> bool {
        let mut all = std::iter::once(&self.fingerprint).chain(&self.subkeys);
        issuer.len() >= 16 && all.any(|print| print.ends_with(issuer))
    }
}

/// Reads one armored public key.
pub fn public_key(text: &str) -> Result<Key, Error> {
    if text.contains(PRIVATE_KEY) {
        return Err(Error::Private);
    }
    let bytes = dearmored(text, PUBLIC_KEY)?.ok_or(Error::NoKey)?;
    if text
        .matches(&format!("-----BEGIN {PUBLIC_KEY}-----"))
        .count()
        > 1
    {
        return Err(Error::Several);
    }
    let mut key: Option<Key> = None;
    for (tag, body) in packets(&bytes)? {
        match (tag, key.as_mut()) {
            (TAG_PUBLIC_KEY, None) => {
                key = Some(Key {
                    fingerprint: fingerprint(body)?,
                    subkeys: Vec::new(),
                    user: String::new(),
                });
            }
            (TAG_PUBLIC_KEY, Some(_)) => return Err(Error::Several),
            (TAG_PUBLIC_SUBKEY, Some(key)) => key.subkeys.push(fingerprint(body)?),
            (TAG_USER_ID, Some(key)) if key.user.is_empty() => {
                let text = String::from_utf8_lossy(body);
                let shown = text.chars().filter(|c| !c.is_control());
                key.user = shown.take(MAX_USER).collect();
            }
            _ => {}
        }
    }
    key.ok_or(Error::NoKey)
}

/// Who an armored signature says made it: fingerprint or key ID, upper-case hex. `None` = it does not say, or it is no
/// OpenPGP signature.
pub fn issuer(text: &str) -> Option<String> {
    let bytes = dearmored(text, SIGNATURE).ok()??;
    let all = packets(&bytes).ok()?;
    let (_, body) = all.into_iter().find(|(tag, _)| *tag == TAG_SIGNATURE)?;
    // Version, type, two algorithms, then the hashed and the unhashed subpackets, each after a length of two octets.
    let [4, _, _, _, rest @ ..] = body else {
        return None;
    };
    let (hashed, rest) = counted(rest)?;
    let (unhashed, _) = counted(rest)?;
    let mut id = None;
    for area in [hashed, unhashed] {
        for (kind, value) in subpackets(area)? {
            match (kind, value) {
                (ISSUER_FINGERPRINT, [4, print @ ..]) if print.len() == 20 => {
                    return Some(hex(print));
                }
                (ISSUER_KEY_ID, print) if print.len() == 8 => id = Some(hex(print)),
                _ => {}
            }
        }
    }
    id
}

/// The bytes in the armor of this kind; `None` = there is none.
fn dearmored(text: &str, kind: &str) -> Result<Option<Vec<u8>>, Error> {
    let begin = format!("-----BEGIN {kind}-----");
    let Some((_, rest)) = text.split_once(&begin) else {
        return Ok(None);
    };
    let end = format!("-----END {kind}-----");
    let (inside, _) = rest
        .split_once(&end)
        .ok_or(Error::Damaged("it has no end"))?;
    let mut lines = inside.lines().map(str::trim).skip(1).peekable();
    // Headers, up to an empty line.
    while lines.next_if(|line| line.contains(": ")).is_some() {}
    let data: String = lines
        .filter(|line| !line.is_empty() && !line.starts_with('='))
        .collect();
    let bytes = STANDARD.decode(data);
    bytes
        .map(Some)
        .map_err(|_| Error::Damaged("its text is no base64"))
}

fn packets(bytes: &[u8]) -> Result<Vec<(u8, &[u8])>, Error> {
    let mut all = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        if all.len() == MAX_PACKETS {
            return Err(Error::Damaged("it has too many parts"));
        }
        let (tag, body, next) = packet(rest).ok_or(Error::Damaged("a part of it is cut short"))?;
        all.push((tag, body));
        rest = next;
    }
    Ok(all)
}

/// Type and body of the first packet, and what follows it (RFC 9580 § 4.2).
fn packet(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&head, rest) = bytes.split_first()?;
    if head & 0x80 == 0 {
        return None;
    }
    let (tag, (length, rest)) = if head & 0x40 == 0 {
        let length = match head & 3 {
            0 => number(rest, 1)?,
            1 => number(rest, 2)?,
            2 => number(rest, 4)?,
            // To the end.
            _ => (rest.len(), rest),
        };
        (head >> 2 & 0x0f, length)
    } else {
        (head & 0x3f, new_length(rest)?)
    };
    let (body, next) = rest.split_at_checked(length)?;
    Some((tag, body, next))
}

/// A length of the newer form; none of a part of a body, which no key or signature is split into.
fn new_length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (&first, rest) = bytes.split_first()?;
    match first {
        0..=191 => Some((usize::from(first), rest)),
        192..=223 => {
            let (&second, rest) = rest.split_first()?;
            let length = ((usize::from(first) - 192) << 8) + usize::from(second) + 192;
            Some((length, rest))
        }
        224..=254 => None,
        255 => number(rest, 4),
    }
}

fn number(bytes: &[u8], octets: usize) -> Option<(usize, &[u8])> {
    let (number, rest) = bytes.split_at_checked(octets)?;
    let value = number
        .iter()
        .fold(0_usize, |sum, octet| sum << 8 | usize::from(*octet));
    Some((value, rest))
}

fn counted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = number(bytes, 2)?;
    rest.split_at_checked(length)
}

fn subpackets(area: &[u8]) -> Option<Vec<(u8, &[u8])>> {
    let mut all = Vec::new();
    let mut rest = area;
    while !rest.is_empty() {
        // As a packet's, but that 224 to 254 begin a length of two octets, too.
        let (length, after) = match rest.first()? {
            224..=254 => {
                let (value, after) = number(rest, 2)?;
                (value.checked_sub(0xc000)? + 192, after)
            }
            _ => new_length(rest)?,
        };
        let (one, next) = after.split_at_checked(length)?;
        let (kind, value) = one.split_first()?;
        // The highest bit says that the reader has to know it.
        all.push((kind & 0x7f, value));
        rest = next;
    }
    Some(all)
}

/// RFC 9580 § 5.5.4.2.
fn fingerprint(body: &[u8]) -> Result<String, Error> {
    let version = *body.first().ok_or(Error::Damaged("a key is empty"))?;
    if version != 4 {
        return Err(Error::Version(version));
    }
    let length = u16::try_from(body.len()).map_err(|_| Error::Damaged("a key is too long"))?;
    let mut digest = Sha1::new();
    digest.update([0x99]);
    digest.update(length.to_be_bytes());
    digest.update(body);
    Ok(hex(&digest.finalize()))
}

fn hex(bytes: &[u8]) -> String {
    crate::keys::hex(bytes).to_ascii_uppercase()
}

#[cfg(test)]
mod tests;

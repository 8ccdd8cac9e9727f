//! What is read off OpenSSH's keys and signatures: whose public key it is, and whose signature. Nothing is verified here: that is the
//! engine's part, in the cluster. (`ssh-keygen(1)` for the line of a key, OpenSSH's `PROTOCOL.sshsig` for a signature.)

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use ssh_key::{HashAlg, PublicKey};

use super::openpgp::Key;
use crate::keys::sha256;

/// How a fingerprint begins.
pub const PRINT: &str = "SHA256:";
const BEGIN: &str = "-----BEGIN SSH SIGNATURE-----";
const END: &str = "-----END SSH SIGNATURE-----";
const MAGIC: &[u8] = b"SSHSIG";
/// The kinds that Flux says it verifies with (fluxcd/pkg, `git/signature/ssh_signature.go`): none of a security key, no certificate.
const KINDS: [&str; 5] = [
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "ssh-rsa",
];
/// Bits of an RSA key that Flux asks for.
const MIN_RSA: u32 = 2048;
/// Characters of a comment that are shown.
const MAX_USER: usize = 100;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("it is a private key")]
    Private,
    #[error("it holds more than one line")]
    Several,
    #[error("it is damaged: a line reads 'type base64 comment'")]
    Damaged,
    #[error(
        "a key of type '{0}' is none that Flux verifies with: ssh-ed25519, ecdsa-sha2-nistp256, -nistp384 and -nistp521, ssh-rsa"
    )]
    Kind(String),
    #[error("its RSA key has {0} bits; {MIN_RSA} are asked for")]
    Short(u32),
}

/// Whether that is to be a key of OpenSSH's, and not armor.
pub fn is_meant(text: &str) -> bool {
    let text = text.trim_start();
    let begins = ["ssh-", "ecdsa-", "sk-", "-----BEGIN OPENSSH PRIVATE KEY"];
    begins.iter().any(|begin| text.starts_with(begin))
}

/// Reads one public key, as `ssh-keygen` writes it to its `.pub` file.
pub fn public_key(text: &str) -> Result<Key, Error> {
    if text.contains("PRIVATE KEY-----") {
        return Err(Error::Private);
    }
    let mut lines = text.trim().lines();
    let line = lines.next().ok_or(Error::Damaged)?;
    if lines.next().is_some() {
        return Err(Error::Several);
    }
    // As Flux parts them: with another kind of blank it would read no key, and refuse every head.
    let mut words = line.split([' ', '\t']).filter(|word| !word.is_empty());
    let (Some(kind), Some(data)) = (words.next(), words.next()) else {
        return Err(Error::Damaged);
    };
    if !KINDS.contains(&kind) {
        return Err(Error::Kind(kind.chars().take(60).collect()));
    }
    let key = PublicKey::from_openssh(&format!("{kind} {data}")).map_err(|_| Error::Damaged)?;
    if let Some(rsa) = key.key_data().rsa()
        && rsa.key_size() < MIN_RSA
    {
        return Err(Error::Short(rsa.key_size()));
    }
    let comment = words.collect::<Vec<_>>().join(" ");
    let shown = comment.chars().filter(|c| !c.is_control());
    Ok(Key {
        fingerprint: key.fingerprint(HashAlg::Sha256).to_string(),
        subkeys: Vec::new(),
        user: shown.take(MAX_USER).collect(),
    })
}

/// The fingerprint of the key that an armored signature has in it. `None` = it is no signature of OpenSSH's.
pub fn issuer(text: &str) -> Option<String> {
    let (_, rest) = text.split_once(BEGIN)?;
    let (inside, _) = rest.split_once(END)?;
    let data: String = inside.split_whitespace().collect();
    let bytes = STANDARD.decode(data).ok()?;
    let rest = bytes.strip_prefix(MAGIC)?;
    let rest = rest.strip_prefix(&1_u32.to_be_bytes())?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    let key = rest.get(..length)?;
    Some(format!("{PRINT}{}", STANDARD_NO_PAD.encode(sha256(key))))
}

#[cfg(test)]
pub(super) mod tests;

//! Whose signature the catalog's head has to carry, and what follows from that for a change of those keys.
//!
//! With one key or more, every cluster verifies: an unsigned head is refused there, and the last good revision
//! stays applied. The hub itself has no such key, so that what it commits is proposed on a branch.

pub mod openpgp;
pub mod ssh;

use time::OffsetDateTime;

use crate::wire::api::EngineKind;
use openpgp::Key;

/// Bytes of one key's armor, and of all: they are part of every assignment.
pub const MAX_KEY: usize = 16 << 10;
pub const MAX_ALL: usize = 64 << 10;
const MAX_SIGNERS: usize = 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signer {
    pub key: Key,
    /// The public key as it was given, armor or a line of OpenSSH's.
    pub text: String,
    pub added_by: String,
    pub added_at: OffsetDateTime,
}

impl Signer {
    pub fn is_ssh(&self) -> bool {
        self.key.fingerprint.starts_with(ssh::PRINT)
    }
}

/// Reads one public key, of either kind.
pub fn key(text: &str) -> Result<Key, Refusal> {
    if ssh::is_meant(text) {
        Ok(ssh::public_key(text)?)
    } else {
        Ok(openpgp::public_key(text)?)
    }
}

/// The branch's head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    pub commit: String,
    /// The text of its signature, of whatever kind.
    pub signature: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the key was not taken: {0}")]
    Key(#[from] openpgp::Error),
    #[error("the key was not taken: {0}")]
    Ssh(#[from] ssh::Error),
    #[error("the key has more than {MAX_KEY} bytes, or all have more than {MAX_ALL}")]
    Large,
    #[error("there are {MAX_SIGNERS} keys already")]
    Full,
    #[error("{0} is no signer's key")]
    Unknown(String),
    /// What clusters would do with the head there is now.
    #[error("{0}: with this change every cluster would refuse it")]
    Head(String),
    /// Which clusters they are.
    #[error(
        "these clusters do not verify with SSH keys, and would refuse what only such a key signed: {0}"
    )]
    Unread(String),
    #[error("the catalog has signers with SSH keys, and Argo CD verifies with OpenPGP keys alone")]
    Argocd,
}

impl Refusal {
    /// What to do.
    pub fn next(&self) -> &'static str {
        match self {
            Self::Key(_) => {
                "export one public key: gpg --armor --export FINGERPRINT; or give the line of an SSH one, such as ~/.ssh/id_ed25519.pub"
            }
            Self::Ssh(_) => {
                "give the line of one public key that ssh-keygen wrote, such as ~/.ssh/id_ed25519.pub"
            }
            Self::Large => {
                "export it without others' certifications: gpg --armor --export-options export-minimal --export FINGERPRINT"
            }
            Self::Full => "remove one: linesman catalog signer remove FINGERPRINT",
            Self::Unknown(_) => "see: linesman catalog signer list",
            Self::Head(_) => {
                "push a commit signed by one of the keys first (git commit -S), or use --force: clusters keep what they have until then"
            }
            Self::Argocd => "take Flux, or remove the SSH keys first: linesman catalog signer list",
            Self::Unread(_) => {
                "give them Flux 2.9 or later and an agent of this version (linesman cluster upgrade; Argo CD reads OpenPGP alone), take an \
                 OpenPGP key, or use --force: they keep what they have until an OpenPGP key signs"
            }
        }
    }
}

/// With another key. The same key again takes the place of the one before, so that a new expiry gets in.
pub fn add(
    before: &[Signer],
    new: Signer,
    head: Option<&Head>,
    force: bool,
) -> Result<Vec<Signer>, Refusal> {
    let mut after: Vec<Signer> = before.to_vec();
    match after
        .iter_mut()
        .find(|s| s.key.fingerprint == new.key.fingerprint)
    {
        Some(same) => *same = new,
        None if before.len() >= MAX_SIGNERS => return Err(Refusal::Full),
        None => after.push(new),
    }
    let all: usize = after.iter().map(|s| s.text.len()).sum();
    if all > MAX_ALL || after.iter().any(|s| s.text.len() > MAX_KEY) {
        return Err(Refusal::Large);
    }
    accepted(&after, head, force)?;
    Ok(after)
}

/// Without this key. Without the last, nothing is verified any more.
pub fn remove(
    before: &[Signer],
    fingerprint: &str,
    head: Option<&Head>,
    force: bool,
) -> Result<Vec<Signer>, Refusal> {
    let named = |s: &&Signer| s.key.fingerprint.eq_ignore_ascii_case(fingerprint);
    if !before.iter().any(|s| named(&s)) {
        return Err(Refusal::Unknown(fingerprint.chars().take(64).collect()));
    }
    let after: Vec<Signer> = before.iter().filter(|s| !named(s)).cloned().collect();
    accepted(&after, head, force)?;
    Ok(after)
}

/// Whether a change leaves clusters behind that verify with OpenPGP keys alone: by one more key that they do not know, or by none left
/// that they know.
pub fn is_read(before: &[Signer], after: &[Signer], unread: &[String]) -> Result<(), Refusal> {
    let ssh = |all: &[Signer]| all.iter().filter(|s| s.is_ssh()).count();
    let (had, has) = (ssh(before), ssh(after));
    let alone = has > 0 && has == after.len() && had < before.len();
    if unread.is_empty() || has <= had && !alone {
        return Ok(());
    }
    Err(Refusal::Unread(unread.join(", ")))
}

/// Whether an engine that comes new could follow what these sign.
pub fn suit(signers: &[Signer], engine: EngineKind) -> Result<(), Refusal> {
    if engine == EngineKind::Argocd && signers.iter().any(Signer::is_ssh) {
        return Err(Refusal::Argocd);
    }
    Ok(())
}

/// Whose key the head says it was signed with: that is not verified here.
pub fn signed_by<'a>(signers: &'a [Signer], head: &Head) -> Option<&'a Signer> {
    let issuer = issuer(head.signature.as_deref()?)?;
    signers.iter().find(|s| s.key.made(&issuer))
}

fn issuer(signature: &str) -> Option<String> {
    openpgp::issuer(signature).or_else(|| ssh::issuer(signature))
}

fn accepted(after: &[Signer], head: Option<&Head>, force: bool) -> Result<(), Refusal> {
    let Some(head) = head.filter(|_| !force && !after.is_empty()) else {
        return Ok(());
    };
    if signed_by(after, head).is_some() {
        return Ok(());
    }
    let short: String = head.commit.chars().take(10).collect();
    let text = match head.signature.as_deref().map(issuer) {
        None => format!("the catalog's head {short} is not signed"),
        Some(None) => {
            format!("the catalog's head {short} has no OpenPGP or SSH signature")
        }
        Some(Some(by)) => format!("the catalog's head {short} is signed by {by}, no key of these"),
    };
    Err(Refusal::Head(text))
}

#[cfg(test)]
mod tests;

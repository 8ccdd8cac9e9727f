//! The keys under which clusters know a Git host: which of them are told, and how another one comes to be trusted.
//! Pure.
//!
//! What is told changes only by an operator's word, or by a rotation of the hub's own key. The key itself comes from
//! what clusters met, from the operator's file, or from the hub's own server; nobody is asked for it over the network.

use time::OffsetDateTime;

use crate::hub::store::HostKeysOf;
use crate::ssh::known_hosts::{HostKey, KnownHosts};
use crate::wire::api::{MAX_HOST_KEYS, OfferedKey};

/// The name of the host that the hub serves itself.
pub const BUILTIN: &str = "builtin";

/// Where a key stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    Current,
    /// Of the hub's own server, which will show it when clusters know it.
    Next,
    /// Another was accepted beside it; told until someone drops it.
    Old,
}

impl Standing {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Next => "next",
            Self::Old => "old",
        }
    }
}

/// A key that clusters are told of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustedKey {
    pub key: HostKey,
    pub standing: Standing,
    /// `hub`, `cluster NAME` or `file`.
    pub source: String,
    pub added_by: String,
    pub added_at: OffsetDateTime,
    /// Since when it stands so.
    pub since: OffsetDateTime,
}

/// A key that is to be trusted from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    pub key: HostKey,
    pub source: String,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("no cluster met the key {0}")]
    NotOffered(String),
    #[error("the file: {0}")]
    File(String),
    #[error(
        "the file has only keys for {0} that Linesman's own client does not verify (RSA and the like)"
    )]
    Unverifiable(String),
    #[error("the host would have more than {MAX_HOST_KEYS} keys")]
    Full,
    #[error("the host has no key {0}")]
    Unknown(String),
    #[error("the hub's own Git server shows the key {0}")]
    Served(String),
    #[error("{0} is the only key of the host that is not an old one")]
    Last(String),
}

impl Refusal {
    /// What to do instead.
    pub fn next(&self) -> &'static str {
        match self {
            Self::NotOffered(_) => {
                "see what clusters met: linesman githost show; or give the key by a file: --known-hosts FILE"
            }
            Self::File(_) => "give a known_hosts file with an un-revoked line for the host",
            Self::Unverifiable(_) => "add the host's Ed25519 or ECDSA key to the file",
            Self::Full => "drop old ones: linesman githost drop-host-key --fingerprint SHA256:…",
            Self::Unknown(_) => "see: linesman githost show",
            Self::Served(_) => "clusters that follow the hub's catalog need it",
            Self::Last(_) => "accept its successor first: linesman githost accept-host-key",
        }
    }
}

/// known_hosts as clusters are told: one un-hashed line a key, the current ones first. Both engines read it.
pub fn known_hosts(keys: &[TrustedKey], host: &str, port: u16) -> String {
    let mut sorted: Vec<&TrustedKey> = keys.iter().collect();
    sorted.sort_by_key(|k| k.standing);
    let lines: Vec<String> = sorted.iter().map(|k| k.key.line(host, port)).collect();
    lines.join("\n")
}

/// The keys of an operator's known_hosts file for this host.
pub fn of_file(text: &str, host: &str, port: u16) -> Result<Vec<HostKey>, Refusal> {
    let known = KnownHosts::parse(text).map_err(|e| Refusal::File(e.to_string()))?;
    let keys = known.host_keys(host, port);
    if keys.is_empty() {
        let text = format!("it has no key for {host}:{port}");
        return Err(Refusal::File(text));
    }
    if !keys.iter().any(HostKey::is_verified_by_us) {
        return Err(Refusal::Unverifiable(format!("{host}:{port}")));
    }
    Ok(keys)
}

/// The keys that are met and not told: by the hub, which serves `served`, and by the clusters.
pub fn offered(
    trusted: &[TrustedKey],
    served: &HostKey,
    reports: &[HostKeysOf],
) -> Vec<OfferedKey> {
    let told = |fingerprint: &str| trusted.iter().any(|t| t.key.fingerprint == fingerprint);
    let mut all: Vec<OfferedKey> = Vec::new();
    if !told(&served.fingerprint) {
        all.push(offer(served, "hub", None));
    }
    for report in reports {
        let Some(shown) = report.shown.as_ref().filter(|s| !told(&s.fingerprint)) else {
            continue;
        };
        let Ok(key) = HostKey::parse(&shown.key, crate::wire::api::MAX_HOST_KEY) else {
            continue;
        };
        let by = report.cluster.as_str();
        match all.iter_mut().find(|o| o.fingerprint == key.fingerprint) {
            Some(known) => {
                known.seen_by.push(by.to_owned());
                let earlier = known.since.as_ref().is_none_or(|at| *at > shown.since);
                if earlier {
                    known.since = Some(shown.since.clone());
                }
            }
            None => all.push(offer(&key, by, Some(shown.since.clone()))),
        }
    }
    all
}

fn offer(key: &HostKey, by: &str, since: Option<String>) -> OfferedKey {
    OfferedKey {
        kind: key.kind.clone(),
        fingerprint: key.fingerprint.clone(),
        key: key.text.clone(),
        seen_by: vec![by.to_owned()],
        since,
    }
}

/// The one of these that an operator names. A key that is told already is not offered, and needs no acceptance.
pub fn choose(
    fingerprint: &str,
    trusted: &[TrustedKey],
    offered: &[OfferedKey],
) -> Result<Candidate, Refusal> {
    if let Some(known) = trusted.iter().find(|t| t.key.fingerprint == fingerprint) {
        return Ok(Candidate {
            key: known.key.clone(),
            source: known.source.clone(),
        });
    }
    let unknown = || Refusal::NotOffered(fingerprint.chars().take(100).collect());
    let found = offered.iter().find(|o| o.fingerprint == fingerprint);
    let found = found.ok_or_else(unknown)?;
    let key = HostKey::parse(&found.key, crate::wire::api::MAX_HOST_KEY);
    Ok(Candidate {
        key: key.map_err(|_| unknown())?,
        source: match found.seen_by.first().map(String::as_str) {
            None | Some("hub") => "hub".to_owned(),
            Some(cluster) => format!("cluster {cluster}"),
        },
    })
}

/// Trusts `new`. The others stand beside them as old ones or, with `replace`, are gone; but for the key that the hub's
/// own server shows.
pub fn accept(
    trusted: &[TrustedKey],
    new: &[Candidate],
    (replace, served): (bool, &HostKey),
    (by, now): (&str, OffsetDateTime),
) -> Result<Vec<TrustedKey>, Refusal> {
    let is_new = |key: &HostKey| new.iter().any(|n| n.key == *key);
    let mut after: Vec<TrustedKey> = trusted
        .iter()
        .filter(|t| !replace || is_new(&t.key) || t.key == *served)
        .cloned()
        .collect();
    for known in &mut after {
        let standing = match known.standing {
            // That it is shown one day is the rotation's to say.
            Standing::Next => Standing::Next,
            _ if is_new(&known.key) => Standing::Current,
            Standing::Current | Standing::Old => Standing::Old,
        };
        if known.standing != standing {
            (known.standing, known.since) = (standing, now);
        }
    }
    for Candidate { key, source } in new {
        if !after.iter().any(|t| t.key == *key) {
            after.push(TrustedKey {
                key: key.clone(),
                standing: Standing::Current,
                source: source.clone(),
                added_by: by.to_owned(),
                added_at: now,
                since: now,
            });
        }
    }
    if after.len() > MAX_HOST_KEYS {
        return Err(Refusal::Full);
    }
    Ok(after)
}

/// Tells a key no longer.
pub fn drop_key(
    trusted: &[TrustedKey],
    fingerprint: &str,
    served: &HostKey,
) -> Result<Vec<TrustedKey>, Refusal> {
    let named = || fingerprint.chars().take(100).collect::<String>();
    let is_it = |t: &&TrustedKey| t.key.fingerprint == fingerprint;
    let Some(gone) = trusted.iter().find(is_it) else {
        return Err(Refusal::Unknown(named()));
    };
    if gone.key == *served {
        return Err(Refusal::Served(named()));
    }
    let rest: Vec<TrustedKey> = trusted.iter().filter(|t| !is_it(t)).cloned().collect();
    let usable = |t: &TrustedKey| t.standing == Standing::Current && t.key.is_verified_by_us();
    if gone.standing == Standing::Current && !rest.iter().any(usable) {
        return Err(Refusal::Last(named()));
    }
    Ok(rest)
}

#[cfg(test)]
mod tests;

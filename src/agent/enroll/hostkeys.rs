//! The Git host's key as this cluster meets it, and the one judgement on it.
//!
//! Two see the key: the agent's own probe, which knows all of it, and the engine, of which only words are known. The
//! probe's word counts; the engine's is heard where the probe has nothing against the key, for it may go another way.

use crate::agent::EngineGit;
use crate::agent::plan::state::{HostKeys, MetKey};
use crate::ssh::known_hosts::{HostKey, KnownHosts};
use crate::ssh::{GitUrl, Head, ProbeError, Step};
use crate::wire::api::{CatalogRef, HostKeysReport, MAX_HOST_KEY, MAX_HOST_KEYS, ShownKey};
use crate::wire::report::Status;

/// What is known of the host's key.
#[derive(Debug, Default)]
pub(super) struct HostKeySeen {
    /// At the last probe that got as far; None = none did yet.
    verdict: Option<Result<(), String>>,
    shown: Option<ShownKey>,
}

impl HostKeySeen {
    /// Takes in one probe. `now` is RFC 3339.
    pub(super) fn saw(&mut self, found: &Result<Head, ProbeError>, now: &str) {
        let (verdict, key) = match found {
            Ok(head) => (Ok(()), Some(&head.host_key)),
            Err(ProbeError::HostKey {
                presented: Some(key),
                text,
                expected: _,
            }) => (Err(text.clone()), Some(key)),
            // Past the host key; which of the known ones it was is not told.
            Err(error)
                if matches!(
                    error.step(),
                    Step::Offer | Step::Auth | Step::Repo | Step::Branch
                ) =>
            {
                (Ok(()), None)
            }
            // The host was not reached, or said nothing that could be judged: what was seen before stands.
            Err(_) => return,
        };
        let known = verdict.is_ok();
        match key {
            Some(key) if key.text.len() <= MAX_HOST_KEY => self.note(key, known, now),
            Some(_) => self.shown = None,
            None if self.shown.as_ref().is_some_and(|s| !s.known) => self.shown = None,
            None => {}
        }
        self.verdict = Some(verdict);
    }

    fn note(&mut self, key: &HostKey, known: bool, now: &str) {
        let before = self.shown.take();
        let same = before.filter(|b| (&b.key, b.known) == (&key.text, known));
        self.shown = Some(same.unwrap_or_else(|| ShownKey {
            key: key.text.clone(),
            fingerprint: key.fingerprint.clone(),
            known,
            since: now.to_owned(),
        }));
    }

    /// The condition `HostKeyMismatch`: status, reason and message. None = nobody has seen a key yet.
    pub(super) fn condition(&self, engine: &EngineGit) -> Option<(Status, &'static str, String)> {
        match (&self.verdict, &engine.other_key) {
            (Some(Err(text)), _) => Some((Status::True, "OtherKey", text.clone())),
            (_, Some(text)) => Some((Status::True, "EngineMetOtherKey", text.clone())),
            (Some(Ok(())), None) => Some((Status::False, "KeyIsKnown", String::new())),
            (None, None) => None,
        }
    }

    /// The keys that the hub names of the host, and the one that it showed last.
    pub(super) fn keys(&self, catalog: &CatalogRef) -> HostKeys {
        let url: Option<GitUrl> = catalog.source().parse().ok();
        let known = KnownHosts::parse(&catalog.known_hosts).ok();
        let known = url.zip(known).map(|(url, known)| {
            let keys = known.host_keys(&url.host, url.port).into_iter();
            keys.take(MAX_HOST_KEYS).map(|k| k.fingerprint).collect()
        });
        HostKeys {
            known: known.unwrap_or_default(),
            met: self.shown.as_ref().map(|shown| MetKey {
                fingerprint: shown.fingerprint.clone(),
                known: shown.known,
            }),
        }
    }

    /// What the hub is told.
    pub(super) fn report(&self, engine: &EngineGit) -> HostKeysReport {
        let trusted = engine.trusted.iter().take(MAX_HOST_KEYS);
        HostKeysReport {
            trusted: trusted.cloned().collect(),
            shown: self.shown.clone(),
        }
    }
}

#[cfg(test)]
mod tests;

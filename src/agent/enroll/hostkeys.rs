//! The Git host's key as this cluster meets it, and the one judgement on it.
//!
//! Two see the key: the agent's own probe, which knows all of it, and the engine, of which only words are known. The
//! probe's word counts; the engine's is heard where the probe has nothing against the key, for it may go another way.

use crate::agent::EngineGit;
use crate::ssh::known_hosts::HostKey;
use crate::ssh::{Head, ProbeError, Step};
use crate::wire::api::{HostKeysReport, MAX_HOST_KEY, MAX_HOST_KEYS, ShownKey};
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
            Err(error) if matches!(error.step(), Step::Auth | Step::Repo | Step::Branch) => {
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
mod tests {
    use super::*;
    use crate::keys::KeyPair;

    const THEN: &str = "2026-01-01T00:00:00Z";
    const LATER: &str = "2026-01-01T00:05:00Z";

    fn key(seed: u8) -> HostKey {
        HostKey::ed25519(KeyPair::from_seed(&[seed; 32]).public())
    }

    fn good(seed: u8) -> Head {
        Head {
            commit: "3f2a".to_owned(),
            host_key: key(seed),
        }
    }

    fn other(seed: u8) -> ProbeError {
        ProbeError::HostKey {
            presented: Some(key(seed)),
            expected: vec!["SHA256:known".to_owned()],
            text: "shows another".to_owned(),
        }
    }

    fn shown(seed: u8, known: bool, since: &str) -> ShownKey {
        ShownKey {
            key: key(seed).text,
            fingerprint: key(seed).fingerprint,
            known,
            since: since.to_owned(),
        }
    }

    fn quiet() -> EngineGit {
        EngineGit::default()
    }

    /// W2, H18: the whole key that was met goes up, with the moment since when it is shown.
    #[test]
    fn another_key_is_told_whole_and_its_time_is_that_of_the_first_look() {
        let mut seen = HostKeySeen::default();
        assert_eq!(seen.condition(&quiet()), None);
        seen.saw(&Ok(good(1)), THEN);
        assert_eq!(
            seen.condition(&quiet()),
            Some((Status::False, "KeyIsKnown", String::new()))
        );
        seen.saw(&Err(other(2)), THEN);
        seen.saw(&Err(other(2)), LATER);
        assert_eq!(
            seen.report(&quiet()),
            HostKeysReport {
                trusted: Vec::new(),
                shown: Some(shown(2, false, THEN)),
            }
        );
        assert_eq!(
            seen.condition(&quiet()),
            Some((Status::True, "OtherKey", "shows another".to_owned()))
        );
        // Accepted meanwhile.
        seen.saw(&Ok(good(2)), LATER);
        assert_eq!(seen.report(&quiet()).shown, Some(shown(2, true, LATER)));
        assert_eq!(seen.condition(&quiet()).map(|c| c.0), Some(Status::False));
    }

    #[test]
    fn a_host_that_is_not_reached_takes_nothing_back() {
        let mut seen = HostKeySeen::default();
        seen.saw(&Err(other(2)), THEN);
        let silent = ProbeError::HostKey {
            presented: None,
            expected: Vec::new(),
            text: "did not complete the SSH handshake".to_owned(),
        };
        let away = ProbeError::Tcp {
            text: "refused".to_owned(),
        };
        for error in [silent, away] {
            seen.saw(&Err(error), LATER);
            assert_eq!(seen.report(&quiet()).shown, Some(shown(2, false, THEN)));
            assert_eq!(seen.condition(&quiet()).map(|c| c.0), Some(Status::True));
        }
        // A refused key, on the other hand, was offered: the host's key was known.
        let refused = ProbeError::Auth {
            text: "refused".to_owned(),
        };
        seen.saw(&Err(refused), LATER);
        assert_eq!(seen.report(&quiet()).shown, None);
        assert_eq!(seen.condition(&quiet()).map(|c| c.0), Some(Status::False));
    }

    #[test]
    fn the_engines_word_counts_where_the_probe_has_nothing_against_the_key() {
        let engine = EngineGit {
            other_key: Some("knownhosts: key mismatch".to_owned()),
            trusted: vec!["SHA256:a".to_owned()],
            ..EngineGit::default()
        };
        let mut seen = HostKeySeen::default();
        let met = |text: &str| Some((Status::True, "EngineMetOtherKey", text.to_owned()));
        assert_eq!(seen.condition(&engine), met("knownhosts: key mismatch"));
        seen.saw(&Ok(good(1)), THEN);
        assert_eq!(seen.condition(&engine), met("knownhosts: key mismatch"));
        seen.saw(&Err(other(2)), THEN);
        assert_eq!(seen.condition(&engine).map(|c| c.1), Some("OtherKey"));
        assert_eq!(seen.report(&engine).trusted, ["SHA256:a"]);
    }
}

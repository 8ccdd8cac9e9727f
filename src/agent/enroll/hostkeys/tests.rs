use serde_json::json;

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

/// W2: what the watchdog tells beside the engine's own words.
#[test]
fn the_watchdog_hears_of_the_known_keys_and_of_the_one_that_was_met() {
    let known = [1, 2].map(|seed| key(seed).line("git", 22)).join("\n");
    let catalog = json!({
        "url": "ssh://git@git/catalog.git", "via": "direct", "branch": "main", "path": "clusters/eu1",
        "knownHosts": known, "deployKey": {"state": "registered"},
    });
    let catalog: CatalogRef = serde_json::from_value(catalog).unwrap();
    let keys = |met| HostKeys {
        known: [1, 2].map(|seed| key(seed).fingerprint).to_vec(),
        met,
    };
    let met = |seed, known| {
        let fingerprint = key(seed).fingerprint;
        Some(MetKey { fingerprint, known })
    };
    let mut seen = HostKeySeen::default();
    assert_eq!(seen.keys(&catalog), keys(None));
    seen.saw(&Ok(good(1)), THEN);
    assert_eq!(seen.keys(&catalog), keys(met(1, true)));
    seen.saw(&Err(other(3)), LATER);
    assert_eq!(seen.keys(&catalog), keys(met(3, false)));
    let none = CatalogRef {
        known_hosts: "no key".to_owned(),
        ..catalog
    };
    assert_eq!(seen.keys(&none).known, [""; 0]);
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
    // A refused key, on the other hand, was offered, and so was one of which nothing was heard: the host's key was known.
    let text = "refused".to_owned();
    let refused = ProbeError::Auth { text: text.clone() };
    for offered in [refused, ProbeError::Offer { text }] {
        let mut seen = HostKeySeen::default();
        seen.saw(&Err(other(2)), THEN);
        seen.saw(&Err(offered), LATER);
        assert_eq!(seen.report(&quiet()).shown, None);
        assert_eq!(seen.condition(&quiet()).map(|c| c.0), Some(Status::False));
    }
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

use time::macros::datetime;

use super::*;
use crate::keys::KeyPair;
use crate::wire::api::ShownKey;

const THEN: OffsetDateTime = datetime!(2026-01-01 00:00 UTC);
const NOW: OffsetDateTime = datetime!(2026-01-02 00:00 UTC);
const RSA: &str = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQDlKtWwRsk2zfhYJA2r8tcfjWXIB2HlAHwheVQlRtCo85ORn+ey8ZPX+R/4QknwQ/SuSWxHzWusWwkz31PQNuLfYL2skMNbNItL3WWK+2kwOBygc05HLF13qYEXBNPUQN84ff5odgwIGtxtFYRu8pvmDOGThyVlhQRJ+cxZNlxBSJ/mx4bVdoz/ll60zFHJq4GhQy9GZTuViLWDNlzVnZofi4lopvqZDMpVhjDgynUYYJGEXdH5n96AvW6Kd2zdCxIMmTIgJ4X4fbUrgq1SwAL7Ra4ebfWudv0y37qNdZSj/BnqQqZV3jYx/TKOyc0/M+MxF+IZnoQJUl4MBS8g5DBP";

fn key(seed: u8) -> HostKey {
    HostKey::ed25519(KeyPair::from_seed(&[seed; 32]).public())
}

fn trusted(seed: u8, standing: Standing) -> TrustedKey {
    TrustedKey {
        key: key(seed),
        standing,
        source: "hub".to_owned(),
        added_by: "hub".to_owned(),
        added_at: THEN,
        since: THEN,
    }
}

fn met(cluster: &str, seed: u8, since: &str) -> HostKeysOf {
    HostKeysOf {
        cluster: cluster.parse().unwrap(),
        trusted: Vec::new(),
        trusted_at: THEN,
        shown: Some(ShownKey {
            key: key(seed).text,
            fingerprint: key(seed).fingerprint,
            known: false,
            since: since.to_owned(),
        }),
        at: THEN,
    }
}

fn candidate(seed: u8) -> Candidate {
    Candidate {
        key: key(seed),
        source: "cluster eu1".to_owned(),
    }
}

fn standings(keys: &[TrustedKey]) -> Vec<(HostKey, Standing)> {
    keys.iter().map(|t| (t.key.clone(), t.standing)).collect()
}

#[test]
fn what_is_met_and_not_told_is_offered_with_those_who_met_it() {
    let told = [trusted(1, Standing::Current)];
    let reports = [
        met("eu2", 2, "2026-01-01T12:00:00Z"),
        met("eu1", 2, "2026-01-01T11:00:00Z"),
        met("us1", 1, "2026-01-01T11:00:00Z"),
    ];
    let expected = OfferedKey {
        kind: "ssh-ed25519".to_owned(),
        fingerprint: key(2).fingerprint,
        key: key(2).text,
        seen_by: vec!["eu2".to_owned(), "eu1".to_owned()],
        since: Some("2026-01-01T11:00:00Z".to_owned()),
    };
    assert_eq!(offered(&told, &key(1), &reports), [expected]);
    // The hub's own server shows a key that nobody was told of: its file was replaced.
    let own = offered(&told, &key(3), &[]);
    assert_eq!((own.len(), own[0].seen_by[0].as_str()), (1, "hub"));
}

#[test]
fn only_a_key_that_was_offered_is_accepted_by_its_fingerprint() {
    let told = [trusted(1, Standing::Current)];
    let offers = offered(&told, &key(1), &[met("eu1", 2, "2026-01-01T12:00:00Z")]);
    assert_eq!(
        choose(&key(2).fingerprint, &told, &offers),
        Ok(candidate(2))
    );
    let stranger = key(9).fingerprint;
    assert_eq!(
        choose(&stranger, &told, &offers),
        Err(Refusal::NotOffered(stranger))
    );
}

/// The old key stays beside the new one until it is dropped; with replace it goes at once.
#[test]
fn an_accepted_key_stands_beside_the_old_one_or_in_its_place() {
    let told = [trusted(1, Standing::Current), trusted(2, Standing::Old)];
    let (served, by) = (key(9), ("ada", NOW));
    let both = accept(&told, &[candidate(3)], (false, &served), by).unwrap();
    assert_eq!(
        standings(&both),
        [
            (key(1), Standing::Old),
            (key(2), Standing::Old),
            (key(3), Standing::Current)
        ]
    );
    assert_eq!(
        (both[0].since, both[1].since, both[2].added_at),
        (NOW, THEN, NOW)
    );
    assert_eq!(
        known_hosts(&both, "git.example.org", 2222)
            .lines()
            .next()
            .map(str::to_owned),
        Some(key(3).line("git.example.org", 2222))
    );
    let one = accept(&told, &[candidate(3)], (true, &served), by).unwrap();
    assert_eq!(standings(&one), [(key(3), Standing::Current)]);
    // Repeated, it changes nothing.
    assert_eq!(
        accept(&both, &[candidate(3)], (false, &served), by),
        Ok(both)
    );
    // Going back to the old one is an acceptance like any other.
    let back = accept(&told, &[candidate(2)], (false, &served), by).unwrap();
    assert_eq!(
        standings(&back),
        [(key(1), Standing::Old), (key(2), Standing::Current)]
    );
}

#[test]
fn the_key_of_the_hubs_own_server_is_kept() {
    let told = [trusted(1, Standing::Current)];
    let after = accept(&told, &[candidate(2)], (true, &key(1)), ("ada", NOW)).unwrap();
    assert_eq!(
        standings(&after),
        [(key(1), Standing::Old), (key(2), Standing::Current)]
    );
    assert_eq!(
        drop_key(&after, &key(1).fingerprint, &key(1)),
        Err(Refusal::Served(key(1).fingerprint))
    );
}

#[test]
fn an_old_key_is_dropped_and_the_last_one_is_not() {
    let told = [trusted(1, Standing::Old), trusted(2, Standing::Current)];
    let (served, gone) = (key(9), key(1).fingerprint);
    let rest = drop_key(&told, &gone, &served).unwrap();
    assert_eq!(standings(&rest), [(key(2), Standing::Current)]);
    assert_eq!(
        drop_key(&rest, &key(2).fingerprint, &served),
        Err(Refusal::Last(key(2).fingerprint))
    );
    assert_eq!(drop_key(&rest, &gone, &served), Err(Refusal::Unknown(gone)));
}

#[test]
fn a_host_has_a_bounded_number_of_keys() {
    let full: Vec<TrustedKey> = (0..16).map(|n| trusted(n, Standing::Old)).collect();
    let after = accept(&full, &[candidate(77)], (false, &key(0)), ("ada", NOW));
    assert_eq!(after, Err(Refusal::Full));
}

#[test]
fn of_a_file_the_lines_of_the_host_count_and_one_must_be_verifiable() {
    let (host, port) = ("git.example.org", 2222);
    let line = key(1).line(host, port);
    let text = format!(
        "# ours\n{line} a comment\nother.example.org {}\n[{host}]:{port} {RSA}\n",
        key(2).text
    );
    let keys = of_file(&text, host, port).unwrap();
    assert_eq!(keys[0], key(1));
    assert_eq!((keys.len(), keys[1].kind.as_str()), (2, "ssh-rsa"));
    let none = of_file(&text, "unheard.example.org", 22).unwrap_err();
    assert!(
        none.to_string()
            .contains("no key for unheard.example.org:22"),
        "{none}"
    );
    let broken = of_file("nonsense", host, port).unwrap_err();
    assert!(
        broken.to_string().contains("known_hosts line 1"),
        "{broken}"
    );
    let rsa = of_file(&format!("[{host}]:{port} {RSA}"), host, port);
    assert_eq!(rsa, Err(Refusal::Unverifiable(format!("{host}:{port}"))));
    let revoked = of_file(&format!("{line}\n@revoked {line}"), host, port);
    assert!(matches!(revoked, Err(Refusal::File(_))), "{revoked:?}");
}

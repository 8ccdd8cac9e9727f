use time::macros::datetime;

use super::*;
use crate::keys::KeyPair;

const NOW: OffsetDateTime = datetime!(2026-01-02 00:00 UTC);

fn key(seed: u8) -> HostKey {
    HostKey::ed25519(KeyPair::from_seed(&[seed; 32]).public())
}

fn trusted(seed: u8, standing: Standing) -> TrustedKey {
    TrustedKey {
        key: key(seed),
        standing,
        source: "hub".to_owned(),
        added_by: "hub".to_owned(),
        added_at: NOW,
        since: NOW,
    }
}

fn member(name: &str, has: &[u8], shown: u8) -> Member {
    Member {
        name: name.parse().unwrap(),
        engine: EngineKind::Flux,
        in_reach: true,
        trusted: has.iter().map(|seed| key(*seed).fingerprint).collect(),
        trusted_at: NOW,
        shown: Some(key(shown).fingerprint),
    }
}

fn wait(names: &[&str]) -> Next {
    Next::Wait(names.iter().map(|n| n.parse().unwrap()).collect())
}

#[test]
fn the_new_key_is_shown_when_every_engine_has_it_for_long_enough() {
    let told = [trusted(1, Standing::Current), trusted(2, Standing::Next)];
    let eu = member("eu1", &[1, 2], 1);
    let us = member("us1", &[1], 1);
    let argo = Member {
        engine: EngineKind::Argocd,
        ..member("ar1", &[1, 2], 1)
    };
    let at = |seconds: i64, members: &[Member]| {
        let now = NOW + Duration::seconds(seconds);
        next(now, &told, &key(1), members)
    };
    assert_eq!(at(9, std::slice::from_ref(&eu)), wait(&["eu1"]));
    assert_eq!(at(10, std::slice::from_ref(&eu)), Next::Serve(key(2)));
    assert_eq!(at(10, &[eu.clone(), us]), wait(&["us1"]));
    assert_eq!(at(119, &[eu.clone(), argo.clone()]), wait(&["ar1"]));
    assert_eq!(at(120, &[eu, argo]), Next::Serve(key(2)));
    // Nobody follows the catalog yet.
    assert_eq!(at(0, &[]), Next::Serve(key(2)));
}

#[test]
fn a_cluster_out_of_reach_is_waited_for_a_day() {
    let told = [trusted(1, Standing::Current), trusted(2, Standing::Next)];
    let away = Member {
        in_reach: false,
        ..member("eu1", &[1], 1)
    };
    let at = |hours: i64, member: &Member| {
        let now = NOW + Duration::hours(hours);
        next(now, &told, &key(1), std::slice::from_ref(member))
    };
    assert_eq!(at(23, &away), wait(&["eu1"]));
    assert_eq!(at(24, &away), Next::Serve(key(2)));
    // One that is there and does not take the key is waited for as long as it takes.
    let there = Member {
        in_reach: true,
        ..away
    };
    assert_eq!(at(48, &there), wait(&["eu1"]));
}

#[test]
fn the_old_key_goes_when_everyone_was_shown_the_new_one() {
    let before = [trusted(1, Standing::Current), trusted(2, Standing::Next)];
    let later = NOW + Duration::minutes(1);
    let told = served(&before, &key(2), later);
    assert_eq!(
        told.iter()
            .map(|t| (t.standing, t.since))
            .collect::<Vec<_>>(),
        [(Standing::Old, later), (Standing::Current, later)]
    );
    let step = |members: &[Member]| next(later, &told, &key(2), members);
    let (eu, us) = (member("eu1", &[1, 2], 2), member("us1", &[1, 2], 1));
    assert_eq!(step(&[eu.clone(), us]), wait(&["us1"]));
    assert_eq!(step(&[eu]), Next::Drop(vec![key(1)]));
}

#[test]
fn keys_of_others_are_left_alone() {
    let foreign = TrustedKey {
        source: "file".to_owned(),
        ..trusted(3, Standing::Old)
    };
    let told = [trusted(1, Standing::Current), foreign];
    assert_eq!(next(NOW, &told, &key(1), &[]), Next::Nothing);
    let with_next = announced(&told, key(4), ("ada", NOW));
    let after = served(&with_next, &key(4), NOW);
    let standings: Vec<_> = after.iter().map(|t| t.standing).collect();
    assert_eq!(standings, [Standing::Old, Standing::Old, Standing::Current]);
    assert_eq!(next(NOW, &after, &key(4), &[]), Next::Drop(vec![key(1)]));
}

#[test]
fn one_rotation_takes_the_place_of_another_that_did_not_come_to_its_end() {
    let told = [trusted(1, Standing::Current), trusted(2, Standing::Next)];
    let after = announced(&told, key(3), ("ada", NOW));
    let keys: Vec<_> = after.into_iter().map(|t| t.key).collect();
    assert_eq!(keys, [key(1), key(3)]);
}

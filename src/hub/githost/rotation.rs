//! The key of the built-in Git server, replaced without a fetch that fails. Pure.
//!
//! Both keys are told before the new one is shown, and the old one is told until nobody was shown it any more:
//!
//! 1. `next`: the new key is told beside the present one. It waits until every cluster in reach says that its engine has it,
//!    for as long as that engine may still read with what it had before.
//! 2. The server shows it: it is `current`, the one before `old`.
//! 3. Every cluster in reach was shown the new one: the old one is told no longer.
//!
//! A cluster out of reach is waited for, but not for ever: it gets the keys from the hub as soon as it is back, and until
//! then its engine fetches nothing from a hub whose key it does not know.

use time::{Duration, OffsetDateTime};

use super::hostkeys::{Standing, TrustedKey};
use crate::ssh::known_hosts::HostKey;
use crate::wire::api::EngineKind;
use crate::wire::id::ClusterName;

/// A fetch that began before the engine's Secret was written is over after this time.
const SETTLE_FLUX: Duration = Duration::seconds(10);
/// Argo CD's repo-server reads a mounted ConfigMap, which a kubelet brings up to date once a minute or so.
const SETTLE_ARGOCD: Duration = Duration::minutes(2);
/// A cluster out of reach holds a rotation up for this long.
pub const GRACE: Duration = Duration::hours(24);

/// A cluster that follows the hub's catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    pub name: ClusterName,
    pub engine: EngineKind,
    /// Its line is up, or it was heard a moment ago.
    pub in_reach: bool,
    /// Fingerprints that its engine has, and since when it says just these.
    pub trusted: Vec<String>,
    pub trusted_at: OffsetDateTime,
    /// The fingerprint of the key that it was shown last.
    pub shown: Option<String>,
}

/// What a rotation does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// None is under way.
    Nothing,
    /// For these clusters.
    Wait(Vec<ClusterName>),
    /// Show this key from now on.
    Serve(HostKey),
    /// Tell these no longer.
    Drop(Vec<HostKey>),
}

/// The next step of the rotation that is under way.
pub fn next(
    now: OffsetDateTime,
    trusted: &[TrustedKey],
    served: &HostKey,
    members: &[Member],
) -> Next {
    let coming = trusted.iter().find(|t| t.standing == Standing::Next);
    if let Some(coming) = coming {
        let has = |m: &Member| {
            m.trusted.contains(&coming.key.fingerprint) && now - m.trusted_at >= settle(m.engine)
        };
        return match waited_for(now, coming.since, members, has) {
            nobody if nobody.is_empty() => Next::Serve(coming.key.clone()),
            some => Next::Wait(some),
        };
    }
    let old: Vec<&TrustedKey> = trusted
        .iter()
        .filter(|t| t.standing == Standing::Old && t.source == "hub" && t.key != *served)
        .collect();
    let Some(since) = old.iter().map(|t| t.since).max() else {
        return Next::Nothing;
    };
    let met = |m: &Member| m.shown.as_deref() == Some(served.fingerprint.as_str());
    match waited_for(now, since, members, met) {
        nobody if nobody.is_empty() => Next::Drop(old.iter().map(|t| t.key.clone()).collect()),
        some => Next::Wait(some),
    }
}

fn waited_for(
    now: OffsetDateTime,
    since: OffsetDateTime,
    members: &[Member],
    done: impl Fn(&Member) -> bool,
) -> Vec<ClusterName> {
    let open = |m: &&Member| !done(m) && (m.in_reach || now - since < GRACE);
    let names = members.iter().filter(open).map(|m| m.name.clone());
    names.collect()
}

fn settle(engine: EngineKind) -> Duration {
    match engine {
        EngineKind::Flux => SETTLE_FLUX,
        EngineKind::Argocd => SETTLE_ARGOCD,
    }
}

/// Tells `key` beside the present ones.
pub fn announced(
    trusted: &[TrustedKey],
    key: HostKey,
    (by, now): (&str, OffsetDateTime),
) -> Vec<TrustedKey> {
    let new = TrustedKey {
        key,
        standing: Standing::Next,
        source: "hub".to_owned(),
        added_by: by.to_owned(),
        added_at: now,
        since: now,
    };
    let rest = trusted.iter().filter(|t| t.standing != Standing::Next);
    rest.cloned().chain([new]).collect()
}

/// `key` is shown from now on; what the hub showed before is old.
pub fn served(trusted: &[TrustedKey], key: &HostKey, now: OffsetDateTime) -> Vec<TrustedKey> {
    let mut after = trusted.to_vec();
    for known in &mut after {
        let standing = match known.standing {
            _ if known.key == *key => Standing::Current,
            Standing::Current if known.source == "hub" => Standing::Old,
            other => other,
        };
        if known.standing != standing {
            (known.standing, known.since) = (standing, now);
        }
    }
    after
}

#[cfg(test)]
mod tests {
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
}

//! When a cluster's keys have to be replaced. Pure.

use time::{Duration, OffsetDateTime};

use crate::hub::store::{ClusterKey, KeyKind, KeyState};
use crate::keys;
use crate::wire::api::RotateWish;

/// How the hub deals with the keys of its clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyPolicy {
    /// A key of this age is replaced; None = only when an operator says so.
    pub max_age: Option<Duration>,
    /// A cluster that lost its identity key gets another on the word of its deploy key.
    pub recovery: bool,
    /// After its last word, so long.
    pub quiet: Duration,
}

impl Default for KeyPolicy {
    fn default() -> Self {
        Self {
            max_age: Some(Duration::days(90)),
            recovery: true,
            quiet: Duration::minutes(1),
        }
    }
}

/// The keys that the cluster has to replace now: those that an operator named, and those that are too old.
pub fn wish(now: OffsetDateTime, policy: KeyPolicy, keys: &[ClusterKey]) -> RotateWish {
    RotateWish {
        deploy_key: due(now, policy, keys, KeyKind::Deploy),
        identity: due(now, policy, keys, KeyKind::Identity),
    }
}

/// The keys that end once `present` is in use: the others of its kind. None where it was replaced itself.
pub fn before(present: &ClusterKey, keys: &[ClusterKey]) -> Vec<ClusterKey> {
    let is = |k: &ClusterKey| k.fingerprint == present.fingerprint;
    if !keys.iter().any(|k| is(k) && k.state == KeyState::Active) {
        return Vec::new();
    }
    let ends = |k: &&ClusterKey| k.kind == present.kind && k.state != KeyState::Revoked && !is(k);
    keys.iter().filter(ends).cloned().collect()
}

/// Of the keys that were to end those that did not, and of those that did the ones that were not among them.
pub fn differing<'a>(
    told: &'a [ClusterKey],
    ended: &'a [ClusterKey],
) -> (Vec<&'a ClusterKey>, Vec<&'a ClusterKey>) {
    let without = |these: &'a [ClusterKey], those: &[ClusterKey]| {
        let known = |k: &&ClusterKey| those.iter().any(|t| t.fingerprint == k.fingerprint);
        these.iter().filter(|k| !known(k)).collect()
    };
    (without(told, ended), without(ended, told))
}

fn due(
    now: OffsetDateTime,
    policy: KeyPolicy,
    keys: &[ClusterKey],
    kind: KeyKind,
) -> Option<String> {
    let of_kind = || keys.iter().filter(|k| k.kind == kind);
    // The one before has to be over: two at once would leave nobody sure of his key.
    if of_kind().any(|k| k.state == KeyState::Retiring) {
        return None;
    }
    let present = of_kind().rfind(|k| k.state == KeyState::Active)?;
    let old = policy.max_age.is_some_and(|age| {
        let spread = spread(&present.fingerprint, age / 10);
        now - present.created_at >= age - spread
    });
    (present.replace || old).then(|| present.fingerprint.clone())
}

/// The same part of `most` for the same key: a fleet that was adopted in one day is not asked in one.
fn spread(fingerprint: &str, most: Duration) -> Duration {
    let [first, second, ..] = keys::sha256(fingerprint.as_bytes());
    most * f64::from(u16::from_be_bytes([first, second])) / f64::from(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::KeyPair;

    const NOW: OffsetDateTime = OffsetDateTime::UNIX_EPOCH.saturating_add(Duration::days(20_000));

    fn key(kind: KeyKind, seed: u8, state: KeyState, age: i64) -> ClusterKey {
        let public = KeyPair::from_seed(&[seed; 32]).public();
        ClusterKey {
            cluster_id: "c1".to_owned(),
            cluster: "eu1".parse().unwrap(),
            removed: false,
            kind,
            public,
            fingerprint: public.fingerprint(),
            state,
            created_at: NOW - Duration::days(age),
            replace: false,
        }
    }

    fn asked(keys: &[ClusterKey]) -> RotateWish {
        wish(NOW, KeyPolicy::default(), keys)
    }

    #[test]
    fn a_key_is_replaced_when_it_is_old_or_an_operator_says_so() {
        let young = key(KeyKind::Deploy, 1, KeyState::Active, 80);
        let identity = key(KeyKind::Identity, 2, KeyState::Active, 90);
        let both = [young.clone(), identity.clone()];
        assert_eq!(
            asked(&both),
            RotateWish {
                deploy_key: None,
                identity: Some(identity.fingerprint.clone()),
            }
        );
        let never = KeyPolicy {
            max_age: None,
            ..KeyPolicy::default()
        };
        assert_eq!(wish(NOW, never, &both), RotateWish::default());
        let named = ClusterKey {
            replace: true,
            ..young.clone()
        };
        assert_eq!(
            wish(NOW, never, std::slice::from_ref(&named)),
            RotateWish {
                deploy_key: Some(young.fingerprint),
                identity: None,
            }
        );
        // Fulfilled: the wish went with the key that it named.
        let gone = ClusterKey {
            state: KeyState::Revoked,
            ..named
        };
        let new = key(KeyKind::Deploy, 3, KeyState::Active, 0);
        assert_eq!(asked(&[gone, new]), RotateWish::default());
    }

    #[test]
    fn one_replacement_is_over_before_the_next_begins() {
        let old = key(KeyKind::Deploy, 1, KeyState::Retiring, 91);
        let new = key(KeyKind::Deploy, 2, KeyState::Active, 91);
        assert_eq!(asked(&[old, new]), RotateWish::default());
    }

    #[test]
    fn a_fleet_of_one_day_is_spread_over_a_tenth_of_the_age() {
        let age = |seed: u8| {
            let at = (0..=90).find(|age| {
                let keys = [key(KeyKind::Deploy, seed, KeyState::Active, *age)];
                !asked(&keys).is_empty()
            });
            at.unwrap()
        };
        let ages: std::collections::BTreeSet<i64> = (1..=60).map(age).collect();
        assert!(ages.iter().all(|age| (81..=90).contains(age)), "{ages:?}");
        assert!(ages.len() >= 8, "{ages:?}");
    }
}

use std::path::PathBuf;

use super::*;
use crate::trust::{Kept, Roots};

const NOW: OffsetDateTime = OffsetDateTime::UNIX_EPOCH.saturating_add(Duration::seconds(1000));

fn directory(name: &str) -> PathBuf {
    let data = std::env::temp_dir().join(format!("linesman-trust-{name}-{}", std::process::id()));
    drop(std::fs::remove_dir_all(&data));
    std::fs::create_dir_all(&data).unwrap();
    data
}

fn after(seconds: i64) -> OffsetDateTime {
    NOW + Duration::seconds(seconds)
}

fn times(now: OffsetDateTime, used: OffsetDateTime, ends: OffsetDateTime) -> Times {
    Times { now, used, ends }
}

fn pair(n: u8) -> KeyPair {
    KeyPair::from_seed(&[n; 32])
}

/// A start of the hub with this key and CA.
fn start(
    data: &Path,
    active: &KeyPair,
    ca: &str,
    now: OffsetDateTime,
) -> (HubRef, TrustBundle, Vec<TrustBundle>) {
    let keys = keys(data, active.clone()).unwrap();
    let hub = HubRef {
        id: "h".to_owned(),
        urls: vec!["https://hub.example".to_owned()],
        ca: ca.to_owned(),
        keyset: keys.keyset(now.unix_timestamp()),
    };
    let (bundle, chain) = current(data, &hub, &keys, now).unwrap();
    (hub, bundle, chain)
}

#[test]
fn the_number_stays_with_the_content_and_rises_with_each_other_one() {
    let data = directory("number");
    let given = |ca: &str, seconds: i64| start(&data, &pair(1), ca, after(seconds)).1;
    let first = given("a", 0);
    assert_eq!(first.version, 1000);
    assert_eq!(given("a", 60), first);
    assert_eq!(given("b", 60).version, 1060);
    // Twice within a second, and by a clock that was set back.
    assert_eq!(given("a", 60).version, 1061);
    assert_eq!(given("b", -500).version, 1062);
    // A backup of the first day has forgotten these.
    std::fs::remove_file(data.join(FILE)).unwrap();
    assert_eq!(given("a", 3600).version, 4600);
    std::fs::remove_dir_all(data).unwrap();
}

/// H19: what a cluster kept before it went to sleep leads it to the hub's present key, through every change and with each
/// key before gone.
#[test]
fn a_cluster_that_slept_through_changes_of_the_key_is_led_to_the_present_one() {
    let data = directory("asleep");
    let (hub, bundle, chain) = start(&data, &pair(1), "a", NOW);
    assert_eq!(chain, []);
    let asleep = Kept {
        hub_id: hub.id.clone(),
        bundle,
        pins: vec![pair(1).public().to_base64()],
    };
    let mut last = None;
    for n in 1..=5_u8 {
        let day = after(i64::from(n) * 86_400);
        let hour = day + Duration::hours(1);
        let vouched = succeed(&data, &pair(n), &pair(n + 1), times(day, day, hour)).unwrap();
        let (hub, bundle, chain) = start(&data, &pair(n + 1), &format!("ca {n}"), day);
        assert_eq!(hub.keyset, vouched.keyset, "{n}");
        assert_eq!(chain.len(), usize::from(n));
        last = Some((hub, bundle, chain, day));
    }
    let (hub, bundle, chain, day) = last.unwrap();
    let roots = |kept| Roots {
        pins: &[],
        kept: Some(kept),
        anew: false,
        now: day.unix_timestamp(),
    };
    let (now, kept) =
        trust::settle(&hub, Some(&bundle), &chain, &roots(&asleep), &asleep.hub()).unwrap();
    assert_eq!(now, hub);
    assert_eq!(kept.as_ref().map(|kept| &kept.bundle), Some(&bundle));
    let unvouched = trust::unvouched(&hub.id, Some(&bundle), &chain, &roots(&asleep));
    assert_eq!(unvouched, Ok(kept));
    // Without what leads there, or with a gap in it, it is nobody's.
    let gap: Vec<_> = chain
        .iter()
        .filter(|b| b.keyset[0].kid != kid(pair(3).public()))
        .cloned()
        .collect();
    for chain in [&[][..], &gap] {
        let refused = trust::unvouched(&hub.id, Some(&bundle), chain, &roots(&asleep));
        assert!(refused.is_err(), "{refused:?}");
    }
    std::fs::remove_dir_all(data).unwrap();
}

#[test]
fn the_key_before_counts_for_an_hour_and_its_end_is_one_more_change() {
    let data = directory("hour");
    let before = start(&data, &pair(1), "a", NOW).1;
    succeed(
        &data,
        &pair(1),
        &pair(2),
        times(after(10), after(10), after(3610)),
    )
    .unwrap();
    let (hub, within, _) = start(&data, &pair(2), "a", after(20));
    let kids = |hub: &HubRef| {
        hub.keyset
            .iter()
            .map(|key| key.kid.clone())
            .collect::<Vec<_>>()
    };
    let [one, two] = [1, 2].map(|n| kid(pair(n).public()));
    assert_eq!(kids(&hub), [two.clone(), one]);
    let (hub, past, chain) = start(&data, &pair(2), "a", after(3610));
    assert_eq!(kids(&hub), [two]);
    assert_eq!(
        (before.version, within.version, past.version),
        (1000, 1010, 4610)
    );
    assert_eq!(chain.len(), 1);
    std::fs::remove_dir_all(data).unwrap();
}

#[test]
fn a_change_that_was_cut_off_leaves_the_key_that_there_is() {
    let data = directory("cut");
    start(&data, &pair(1), "a", NOW);
    // The next key never came to be.
    succeed(
        &data,
        &pair(1),
        &pair(2),
        times(after(10), after(10), after(3610)),
    )
    .unwrap();
    let (hub, bundle, _) = start(&data, &pair(1), "a", after(20));
    assert_eq!(hub.keyset, [HubKeys::new(pair(1)).pin()]);
    assert_eq!(bundle.version, 1020);
    std::fs::remove_dir_all(data).unwrap();
}

#[test]
fn what_was_given_out_is_never_written_over_unread() {
    let data = directory("garbled");
    std::fs::write(data.join(FILE), "{").unwrap();
    let error = keys(&data, pair(1)).unwrap_err();
    assert!(
        format!("{error:#}").contains("restore it from the backup"),
        "{error:#}"
    );
    assert_eq!(std::fs::read(data.join(FILE)).unwrap(), b"{");
    std::fs::remove_dir_all(data).unwrap();
}

/// H16: a hub that runs tells of the next key first, signs with it from its time on, and has the one before count for a while.
#[test]
fn a_hub_that_runs_signs_with_the_key_before_until_the_next_one_is_told() {
    let data = directory("told");
    start(&data, &pair(1), "a", NOW);
    let before = HubKeys::new(pair(1));
    let all = times(after(10), after(310), after(910));
    succeed(&data, &pair(1), &pair(2), all).unwrap();
    let [one, two] = [1, 2].map(|n| kid(pair(n).public()));
    let at = |seconds: i64| {
        let keys = keys_after(&data, pair(2), &before, after(seconds)).unwrap();
        let set = keys.keyset(after(seconds).unix_timestamp());
        let set: Vec<String> = set.into_iter().map(|key| key.kid).collect();
        let signs = |n| keys.sign(b"x") == pair(n).sign(b"x");
        assert_eq!((signs(1), signs(2)), (keys.kid() == one, keys.kid() == two));
        // Who adopts a cluster now pins what stays.
        assert_eq!(
            (keys.pin().kid, keys.vouch(b"x")),
            (two.clone(), pair(2).sign(b"x"))
        );
        (keys.kid().to_owned(), set)
    };
    let both = [two.clone(), one.clone()].to_vec();
    assert_eq!(at(11), (one.clone(), both.clone()));
    assert_eq!(at(309), (one.clone(), both.clone()));
    assert_eq!(at(310), (two.clone(), both));
    assert_eq!(at(910), (two.clone(), vec![two.clone()]));
    // One more before the first is used: what signs is that before both, while it counts.
    succeed(
        &data,
        &pair(2),
        &pair(3),
        times(after(20), after(3000), after(4000)),
    )
    .unwrap();
    let kid_at = |seconds: i64| {
        let keys = keys_after(&data, pair(3), &before, after(seconds)).unwrap();
        keys.kid().to_owned()
    };
    let three = kid(pair(3).public());
    assert_eq!(
        [kid_at(30), kid_at(899), kid_at(900)],
        [one.clone(), one, three]
    );
    std::fs::remove_dir_all(data).unwrap();
}

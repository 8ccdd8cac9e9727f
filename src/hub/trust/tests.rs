use std::path::PathBuf;

use time::Duration;

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
    let keys = keys(data, active).unwrap();
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
        let told = succeed(&data, &pair(n), &pair(n + 1), times(day, day, hour)).unwrap();
        let (hub, bundle, chain) = start(&data, &pair(n + 1), &format!("ca {n}"), day);
        assert_eq!(hub.keyset, told.bundle.keyset, "{n}");
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
    // As a hub of before left it, which had the next key in another file: it never came to be.
    succeed(
        &data,
        &pair(1),
        &pair(2),
        times(after(10), after(10), after(3610)),
    )
    .unwrap();
    took_up(&data).unwrap();
    let (hub, bundle, _) = start(&data, &pair(1), "a", after(20));
    assert_eq!(hub.keyset, [HubKeys::new(pair(1)).pin()]);
    assert_eq!(bundle.version, 1020);
    std::fs::remove_dir_all(data).unwrap();
}

#[test]
fn what_was_given_out_is_never_written_over_unread() {
    let data = directory("garbled");
    std::fs::write(data.join(FILE), "{").unwrap();
    let error = keys(&data, &pair(1)).unwrap_err();
    assert!(
        format!("{error:#}").contains("restore it from the backup"),
        "{error:#}"
    );
    assert_eq!(std::fs::read(data.join(FILE)).unwrap(), b"{");
    std::fs::remove_dir_all(data).unwrap();
}

/// What a hub that starts at this moment signs with, and which keys it says; the file of its key is `signs`.
fn started(data: &Path, signs: &mut KeyPair, seconds: i64) -> (String, Vec<String>) {
    if let Some(next) = due(data, signs, after(seconds)).unwrap() {
        *signs = next;
        // Cut off here, it is the same.
        let again = due(data, signs, after(seconds)).unwrap().unwrap();
        assert_eq!(again.public(), signs.public());
        let cut = keys(data, signs).unwrap();
        took_up(data).unwrap();
        let whole = keys(data, signs).unwrap();
        assert_eq!((cut.kid(), cut.all()), (whole.kid(), whole.all()));
    }
    assert!(due(data, signs, after(seconds)).unwrap().is_none());
    let keys = keys(data, signs).unwrap();
    assert_eq!(keys.sign(b"x"), signs.sign(b"x"));
    let set = keys.keyset(after(seconds).unix_timestamp());
    assert_eq!(keys.pin(), set[0]);
    let set = set.into_iter().map(|key| key.kid).collect();
    (keys.kid().to_owned(), set)
}

/// H16, L17: the next key is told first, signs from its time on, and has the one before count for a while: whenever a hub starts.
#[test]
fn a_hub_signs_with_the_key_before_until_the_next_ones_time_whenever_it_starts() {
    let data = directory("told");
    let [one, two] = [1, 2].map(|n| kid(pair(n).public()));
    let both = vec![two.clone(), one.clone()];
    start(&data, &pair(1), "a", NOW);
    let told = times(after(10), after(310), after(910));
    let said = succeed(&data, &pair(1), &pair(2), told).unwrap();
    assert_eq!(said.before.public(), pair(1).public());
    let mut signs = pair(1);
    for (seconds, wanted) in [
        (11, (&one, &both)),
        (309, (&one, &both)),
        (310, (&two, &both)),
        (909, (&two, &both)),
        (910, (&two, &vec![two.clone()])),
    ] {
        let (kid, set) = started(&data, &mut signs, seconds);
        assert_eq!((&kid, &set), wanted, "{seconds}");
        // What outlives the key before is signed by the next one.
        let (hub, bundle, chain) = start(&data, &signs, "a", after(seconds));
        assert_eq!((chain.len(), &hub.keyset[0].kid), (1, &two));
        let input = crate::wire::api::trust_input("h", &bundle);
        assert_eq!(
            bundle.sig,
            crate::keys::encode(&pair(2).sign(input.as_bytes()))
        );
    }
    let text = std::fs::read_to_string(data.join(FILE)).unwrap();
    assert!(!text.contains("PRIVATE"), "the private half is still there");
    std::fs::remove_dir_all(data).unwrap();
}

/// L17, H19: a key that gives way to another before it signs leads to that one, and what signs goes on until its time.
#[test]
fn a_key_that_is_told_gives_way_to_another_one() {
    let data = directory("twice");
    let [one, two, three] = [1, 2, 3].map(|n| kid(pair(n).public()));
    let (hub, first, _) = start(&data, &pair(1), "a", NOW);
    let at_first = Kept {
        hub_id: hub.id,
        bundle: first,
        pins: vec![],
    };
    succeed(
        &data,
        &pair(1),
        &pair(2),
        times(after(10), after(310), after(910)),
    )
    .unwrap();
    let (hub, told, _) = start(&data, &pair(1), "a", after(11));
    // One that was told of the second, and one that was adopted meanwhile.
    let told = Kept {
        hub_id: hub.id.clone(),
        bundle: told,
        pins: vec![],
    };
    let pinned = [hub.keyset[0].clone()];
    assert_eq!(pinned[0].kid, two);
    let said = succeed(
        &data,
        &pair(1),
        &pair(3),
        times(after(20), after(3000), after(4000)),
    );
    assert_eq!(said.unwrap().before.public(), pair(2).public());
    let mut signs = pair(1);
    let both = vec![three.clone(), one.clone()];
    for (seconds, wanted) in [
        (21, (&one, &both)),
        (2999, (&one, &both)),
        (3000, (&three, &both)),
        (3999, (&three, &both)),
        (4000, (&three, &vec![three.clone()])),
    ] {
        let (kid, set) = started(&data, &mut signs, seconds);
        assert_eq!((&kid, &set), wanted, "{seconds}");
        let (hub, bundle, chain) = start(&data, &signs, "a", after(seconds));
        for (kept, pins) in [
            (Some(&at_first), &[][..]),
            (Some(&told), &[]),
            (None, &pinned),
        ] {
            let roots = Roots {
                pins,
                kept,
                anew: false,
                now: after(seconds).unix_timestamp(),
            };
            let led = trust::unvouched(&hub.id, Some(&bundle), &chain, &roots).unwrap();
            let led = led.unwrap().bundle;
            // It may be the one of the chain, with the signature of the key before.
            assert_eq!(
                (led.version, led.keyset),
                (bundle.version, hub.keyset.clone())
            );
        }
    }
    std::fs::remove_dir_all(data).unwrap();
}

/// A key from elsewhere than the backup that the rest is from is not what the next one was told for.
#[test]
fn what_another_key_told_is_of_no_use_to_this_one() {
    let data = directory("strange");
    start(&data, &pair(1), "a", NOW);
    let told = times(after(10), after(10), after(910));
    succeed(&data, &pair(1), &pair(2), told).unwrap();
    assert!(due(&data, &pair(9), after(20)).unwrap().is_none());
    let keys = keys(&data, &pair(9)).unwrap();
    let nine = kid(pair(9).public());
    assert_eq!((keys.kid(), keys.pin().kid), (nine.as_str(), nine.clone()));
    std::fs::remove_dir_all(data).unwrap();
}

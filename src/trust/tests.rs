use super::*;
use crate::keys::KeyPair;

mod pinned;

const HUB: &str = "hub-1";
const NOW: i64 = 1_000;

fn pair(seed: u8) -> KeyPair {
    KeyPair::from_seed(&[seed; 32])
}

fn key(seed: u8) -> HubKey {
    HubKey {
        kid: format!("k{seed}"),
        key: pair(seed).public().to_base64(),
        not_after: None,
    }
}

fn ended(seed: u8) -> HubKey {
    HubKey {
        not_after: Some(NOW),
        ..key(seed)
    }
}

/// Of these keys, signed by the one of `by`.
fn set(version: u64, keyset: &[HubKey], by: u8) -> TrustBundle {
    let bundle = TrustBundle {
        version,
        urls: vec!["https://hub.example".to_owned()],
        ca: "CA\n".to_owned(),
        keyset: keyset.to_vec(),
        sig: String::new(),
    };
    signed(bundle, by)
}

fn signed(bundle: TrustBundle, by: u8) -> TrustBundle {
    sign(HUB, bundle, |message| pair(by).sign(message))
}

fn kept(bundle: TrustBundle, pins: &[u8]) -> Kept {
    let mut pins: Vec<_> = pins.iter().map(|seed| key(*seed).key).collect();
    pins.sort();
    Kept {
        hub_id: HUB.to_owned(),
        bundle,
        pins,
    }
}

fn newer(bundle: TrustBundle, pins: &[u8]) -> Verdict {
    Verdict::Newer(Box::new(kept(bundle, pins)))
}

/// The verdict on an answer of a hub that says these keys and this set.
fn verdict(
    said: &[HubKey],
    bundle: Option<&TrustBundle>,
    pins: &[HubKey],
    kept: Option<&Kept>,
) -> Verdict {
    let said = Said {
        hub_id: HUB,
        keyset: Some(said),
        bundle,
    };
    let roots = Roots {
        pins,
        kept,
        anew: false,
        now: NOW,
    };
    judge(&said, &roots)
}

fn why(verdict: Verdict) -> Why {
    match verdict {
        Verdict::Refused(refusal) => refusal.why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_pinned_key_is_the_root_of_the_first_set() {
    let first = set(1, &[key(1)], 1);
    let told = verdict(&[key(1)], Some(&first), &[key(1)], None);
    assert_eq!(told, newer(first, &[1]));
    // The first that a cluster hears of may be after a rotation already.
    let later = set(9, &[ended(1), key(2)], 1);
    let told = verdict(&[ended(1), key(2)], Some(&later), &[key(1)], None);
    assert_eq!(told, newer(later, &[1]));
}

/// L43.
#[test]
fn a_key_set_without_a_trusted_signature_is_refused() {
    let held = kept(set(5, &[key(1)], 1), &[1]);
    for kept in [None, Some(&held)] {
        let pins = [key(1)];
        // Whoever ends TLS says keys of its own, signed by none, by itself, or by nothing at all.
        let told = verdict(&[key(6)], None, &pins, kept);
        assert_eq!(why(told), Why::Foreign);
        let own = set(6, &[key(6)], 6);
        assert_eq!(
            why(verdict(&[key(6)], Some(&own), &pins, kept)),
            Why::Signature
        );
        let both = set(6, &[key(1), key(6)], 6);
        let said = [key(1), key(6)];
        assert_eq!(
            why(verdict(&said, Some(&both), &pins, kept)),
            Why::Signature
        );
        let nothing = TrustBundle {
            sig: String::new(),
            ..set(6, &[key(1)], 1)
        };
        assert_eq!(
            why(verdict(&[key(1)], Some(&nothing), &pins, kept)),
            Why::Signature
        );
        // The true set beside other keys.
        let true_set = set(5, &[key(1)], 1);
        assert_eq!(
            why(verdict(&said, Some(&true_set), &pins, kept)),
            Why::Keyset
        );
    }
}

#[test]
fn whatever_of_a_set_is_changed_its_signature_is_void() {
    let good = set(2, &[key(1), ended(2)], 1);
    let change = |change: fn(&mut TrustBundle)| {
        let mut bundle = good.clone();
        change(&mut bundle);
        bundle
    };
    for changed in [
        change(|b| b.version = 3),
        change(|b| b.urls.push("https://other.example".to_owned())),
        change(|b| b.urls[0] = "https://other.example".to_owned()),
        change(|b| b.ca.push('x')),
        change(|b| b.keyset[1].not_after = None),
        change(|b| b.keyset[1].kid = "k9".to_owned()),
        change(|b| b.keyset[1].key = key(9).key),
        change(|b| drop(b.keyset.pop())),
        // The same lines, cut in another way.
        change(|b| b.urls[0].push_str("\nurl https://other.example")),
        change(|b| {
            let HubKey { kid, key, .. } = b.keyset.remove(0);
            b.urls[0].extend(["\nkey ", &kid, " ", &key, " -"]);
        }),
    ] {
        let told = verdict(&changed.keyset, Some(&changed), &[key(1)], None);
        assert_eq!(why(told), Why::Signature, "{changed:?}");
    }
    let other = Said {
        hub_id: "hub-2",
        keyset: Some(&good.keyset),
        bundle: Some(&good),
    };
    let roots = Roots {
        pins: &[key(1)],
        kept: None,
        anew: false,
        now: NOW,
    };
    assert_eq!(why(judge(&other, &roots)), Why::Signature);
}

#[test]
fn only_a_later_set_takes_the_place_of_the_kept_one() {
    let held = kept(set(5, &[key(1)], 1), &[1]);
    let says = |bundle: &TrustBundle| {
        verdict(&bundle.keyset.clone(), Some(bundle), &[key(1)], Some(&held))
    };
    let next = set(6, &[key(1), key(2)], 1);
    assert_eq!(says(&next), newer(next, &[1]));
    assert_eq!(says(&held.bundle), Verdict::Same);
    // A replay, and a hub that came back from a backup.
    assert_eq!(says(&set(4, &[key(1)], 1)), Verdict::Older);
    // Beside keys of its own, a replay is no word of the hub.
    let replay = set(4, &[key(1)], 1);
    let told = verdict(&[key(6)], Some(&replay), &[key(1)], Some(&held));
    assert_eq!(why(told), Why::Foreign);
    let forked = TrustBundle {
        ca: "other".to_owned(),
        ..held.bundle.clone()
    };
    assert_eq!(why(says(&signed(forked, 1))), Why::Forked);
}

#[test]
fn a_key_that_was_replaced_signs_nothing_any_more() {
    let held = kept(set(5, &[ended(1), key(2)], 1), &[1]);
    let says = |bundle: TrustBundle| {
        verdict(
            &bundle.keyset.clone(),
            Some(&bundle),
            &[key(1)],
            Some(&held),
        )
    };
    // The YAML's key has ended, and does not come back by the YAML.
    assert_eq!(why(says(set(6, &[key(1)], 1))), Why::Signature);
    let next = set(6, &[key(2)], 2);
    assert_eq!(says(next.clone()), newer(next, &[1]));
    assert_eq!(
        why(verdict(&[key(1)], None, &[key(1)], Some(&held))),
        Why::Foreign
    );
}

#[test]
fn a_set_that_would_strand_the_cluster_is_refused() {
    let held = kept(set(5, &[key(1)], 1), &[1]);
    let says = |bundle: TrustBundle| {
        let bundle = signed(bundle, 1);
        why(verdict(
            &bundle.keyset.clone(),
            Some(&bundle),
            &[key(1)],
            Some(&held),
        ))
    };
    let next = set(6, &[key(1)], 1);
    let urls = |urls: &[&str]| TrustBundle {
        urls: urls.iter().map(|url| (*url).to_owned()).collect(),
        ..next.clone()
    };
    assert_eq!(says(urls(&[])), Why::Unusable);
    assert_eq!(says(urls(&["http://hub.example"])), Why::Unusable);
    assert_eq!(says(set(6, &[ended(1)], 1)), Why::Unusable);
    let unread = HubKey {
        key: "AAAA".to_owned(),
        ..key(2)
    };
    assert_eq!(says(set(6, &[unread], 1)), Why::Unusable);
    assert_eq!(
        says(urls(&["https://hub.example"; MOST + 1])),
        Why::Signature
    );
}

#[test]
fn a_hub_that_signs_no_sets_changes_nothing() {
    let before = HubRef {
        id: HUB.to_owned(),
        urls: vec!["https://before.example".to_owned()],
        ca: "before".to_owned(),
        keyset: vec![key(1)],
    };
    let says = HubRef {
        urls: vec!["https://liar.example".to_owned()],
        ca: "liar".to_owned(),
        keyset: vec![key(1), key(6)],
        ..before.clone()
    };
    let pins = [key(1)];
    let roots = Roots {
        pins: &pins,
        kept: None,
        anew: true,
        now: NOW,
    };
    assert_eq!(
        settle(&says, None, &[], &roots, &before),
        Ok((before.clone(), None))
    );
    let held = kept(set(5, &[key(1)], 1), &[1]);
    let roots = Roots {
        kept: Some(&held),
        anew: false,
        ..roots
    };
    let settled = settle(&says, None, &[], &roots, &before);
    assert_eq!(settled, Ok((held.hub(), Some(held.clone()))));
    // Without any pin, as it always was.
    let roots = Roots {
        pins: &[],
        kept: None,
        ..roots
    };
    assert_eq!(settle(&says, None, &[], &roots, &before), Ok((says, None)));
}

#[test]
fn a_refusal_names_both_sides_keys() {
    let told = verdict(&[key(6)], None, &[key(1)], None);
    let (said, trusted) = (pair(6).public(), pair(1).public());
    let refusal = match told {
        Verdict::Refused(refusal) => refusal.to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        refusal,
        format!(
            "none of the hub's keys is trusted: its keys are {}, trusted are {}",
            said.fingerprint(),
            trusted.fingerprint()
        )
    );
}

#[test]
fn the_signed_bytes_are_as_the_protocol_says() {
    let mut bundle = set(7, &[key(1), ended(2)], 1);
    bundle.urls.push("https://b.example:8443/hub".to_owned());
    let (one, two) = (key(1).key, key(2).key);
    assert_eq!(
        trust_input(HUB, &bundle),
        format!(
            "linesman/trust/v1\nhub-1\n7\nurl https://hub.example\nurl https://b.example:8443/hub\n\
             key k1 {one} -\nkey k2 {two} 1000\nca\nCA\n"
        )
    );
}

/// What is asked without TLS that verifies gives nothing but a set that a trusted key signed.
#[test]
fn of_an_answer_that_nothing_vouches_for_only_the_signed_sets_count() {
    let (pins, held) = ([key(1)], kept(set(5, &[key(1)], 1), &[1]));
    let roots = Roots {
        pins: &pins,
        kept: Some(&held),
        anew: false,
        now: NOW,
    };
    let said = |bundle: Option<&TrustBundle>, chain: &[TrustBundle]| {
        unvouched(HUB, bundle, chain, &roots).map_err(|refusal| refusal.why)
    };
    let next = set(6, &[key(1)], 1);
    assert_eq!(said(Some(&next), &[]), Ok(Some(kept(next.clone(), &[1]))));
    // The hub, as it was: its certificate is at fault, or this is a replay.
    assert_eq!(said(Some(&held.bundle), &[]), Ok(None));
    assert_eq!(said(Some(&set(4, &[key(1)], 1)), &[]), Ok(None));
    assert_eq!(said(None, &[]), Err(Why::Foreign));
    assert_eq!(said(Some(&set(6, &[key(2)], 2)), &[]), Err(Why::Signature));
    // Led by a link, and by one that is somebody else's.
    let (link, last) = (set(6, &[key(2), ended(1)], 1), set(7, &[key(2)], 2));
    let led = said(Some(&last), std::slice::from_ref(&link));
    assert_eq!(led, Ok(Some(kept(last.clone(), &[1]))));
    let forged = set(6, &[key(2)], 2);
    assert_eq!(said(Some(&last), &[forged]), Err(Why::Signature));
    // A link of a time before what is kept, and the others behind it.
    let long_ago = set(3, &[key(1)], 9);
    assert_eq!(said(Some(&last), &[long_ago, link.clone()]), led);
    // More links than any hub has are not looked at.
    let endless = vec![set(3, &[key(1)], 9); MOST];
    let chain = [&endless[..], &[link]].concat();
    assert_eq!(said(Some(&last), &chain), Err(Why::Signature));
    let unrooted = Roots {
        pins: &[],
        kept: None,
        ..roots
    };
    assert!(!unrooted.is_rooted());
    assert!(unvouched(HUB, Some(&next), &[], &unrooted).is_err());
}

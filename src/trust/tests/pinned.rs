//! Which set a cluster keeps by what its YAML pins, and without a pin.

use super::*;

#[test]
fn a_cluster_without_a_pin_keeps_the_first_set_and_is_pinned_by_it() {
    let first = set(5, &[key(1)], 1);
    let told = verdict(&[key(1)], Some(&first), &[], None);
    assert_eq!(told, newer(first.clone(), &[]));
    let held = kept(first.clone(), &[]);
    assert_eq!(
        why(verdict(&[key(6)], None, &[], Some(&held))),
        Why::Foreign
    );
    // Nobody is believed who is asked without authentication, as long as there is nothing to check a signature with.
    let said = Said {
        hub_id: HUB,
        keyset: None,
        bundle: Some(&first),
    };
    let roots = Roots {
        pins: &[],
        kept: None,
        anew: false,
        now: NOW,
    };
    assert_eq!(why(judge(&said, &roots)), Why::Signature);
    let pinned = Roots {
        pins: &[key(1)],
        ..roots
    };
    assert_eq!(judge(&said, &pinned), newer(first, &[1]));
}

/// With these pins, and a set that is kept.
fn roots<'a>(pins: &'a [HubKey], held: &'a Kept, anew: bool) -> Roots<'a> {
    Roots {
        pins,
        kept: Some(held),
        anew,
        now: NOW,
    }
}

#[test]
fn another_yaml_is_another_root() {
    let held = kept(set(5, &[key(2)], 1), &[1]);
    let (before, old) = (held.hub(), set(4, &[key(1)], 1));
    // The YAML of today's key, or of the one that the set goes back to: the set stays.
    for pin in [1, 2] {
        let pins = [key(pin)];
        assert_eq!(roots(&pins, &held, false).kept(), Some(&held), "{pin}");
    }
    // One of another hub, as soon as it is applied.
    let (pins, other) = ([key(7)], set(1, &[key(7)], 7));
    let says = HubRef {
        keyset: vec![key(7)],
        ..before.clone()
    };
    let settled = settle(
        &says,
        Some(&other),
        &[],
        &roots(&pins, &held, false),
        &before,
    );
    let now = kept(other, &[7]);
    assert_eq!(settled, Ok((now.hub(), Some(now))));
    // Its hub is gone until then, which costs nothing of what is kept.
    let settled = settle(&says, None, &[], &roots(&pins, &held, false), &before);
    assert_eq!(settled, Ok((before.clone(), Some(held.clone()))));
    // A token of a YAML is the owner's word of now: a hub that came back from a backup is joined anew.
    let pins = [key(1)];
    let says = HubRef {
        keyset: vec![key(1)],
        ..before.clone()
    };
    let settled = settle(&says, Some(&old), &[], &roots(&pins, &held, true), &before);
    let now = kept(old, &[1]);
    assert_eq!(settled, Ok((now.hub(), Some(now))));
}

use super::ssh::tests as of_ssh;
use super::*;

fn signer(seed: char) -> Signer {
    Signer {
        key: Key {
            fingerprint: seed.to_string().repeat(40),
            subkeys: Vec::new(),
            user: String::new(),
        },
        text: "armor".to_owned(),
        added_by: "ada".to_owned(),
        added_at: OffsetDateTime::UNIX_EPOCH,
    }
}

fn head(signature: Option<&str>) -> Head {
    Head {
        commit: "0123456789abcdef".to_owned(),
        signature: signature.map(str::to_owned),
    }
}

/// W43: nobody turns verification on over a head that every cluster would then refuse, unless they say so.
#[test]
fn a_change_that_would_stop_every_cluster_is_refused() {
    let unsigned = head(None);
    let refused = add(&[], signer('A'), Some(&unsigned), false);
    assert_eq!(
        refused.unwrap_err().to_string(),
        "the catalog's head 0123456789 is not signed: with this change every cluster would refuse it"
    );
    let other = head(Some("-----BEGIN SSH SIGNATURE-----"));
    let refused = add(&[], signer('A'), Some(&other), false).unwrap_err();
    assert!(
        refused.to_string().contains("no OpenPGP or SSH signature"),
        "{refused}"
    );
    let forced = add(&[], signer('A'), Some(&unsigned), true);
    assert_eq!(forced, Ok(vec![signer('A')]));
    // An empty catalog stops nobody; nor does an end to verification.
    assert_eq!(add(&[], signer('A'), None, false), Ok(vec![signer('A')]));
    let both = [signer('A'), signer('B')];
    assert!(remove(&both, &"B".repeat(40), Some(&unsigned), false).is_err());
    let last = remove(&both[..1], &"a".repeat(40), Some(&unsigned), false);
    assert_eq!(last, Ok(Vec::new()));
}

#[test]
fn the_same_key_again_takes_its_place_and_there_is_a_bound() {
    let renewed = Signer {
        text: "with a new expiry".to_owned(),
        ..signer('A')
    };
    assert_eq!(
        add(&[signer('A'), signer('B')], renewed.clone(), None, false),
        Ok(vec![renewed, signer('B')])
    );
    let large = Signer {
        text: "x".repeat(MAX_KEY + 1),
        ..signer('A')
    };
    assert_eq!(add(&[], large, None, false), Err(Refusal::Large));
    let full: Vec<Signer> = (0..MAX_SIGNERS)
        .map(|i| {
            let mut one = signer('A');
            one.key.fingerprint = format!("{i:040}");
            one
        })
        .collect();
    assert_eq!(add(&full, signer('B'), None, false), Err(Refusal::Full));
    let unknown = remove(&full, "nobody", None, false);
    assert_eq!(unknown, Err(Refusal::Unknown("nobody".to_owned())));
}

/// W43: the head's signer is known by an SSH signature, too.
#[test]
fn a_head_that_an_ssh_key_signed_is_of_that_key() {
    let ada = Signer {
        key: key(of_ssh::KEY).unwrap(),
        ..signer('A')
    };
    let signed = head(Some(of_ssh::SIGNED));
    let both = [signer('B'), ada.clone()];
    assert_eq!(signed_by(&both, &signed), Some(&ada));
    assert_eq!(
        add(&[], ada.clone(), Some(&signed), false),
        Ok(vec![ada.clone()])
    );
    let refused = remove(&both, of_ssh::PRINT_OF_KEY, Some(&signed), false);
    let text = format!("is signed by {}, no key of these", of_ssh::PRINT_OF_KEY);
    assert!(refused.unwrap_err().to_string().contains(&text));
    assert_eq!((ada.is_ssh(), signer('A').is_ssh()), (true, false));
}

/// W43: an engine that reads OpenPGP alone would stop at what an SSH key signed.
#[test]
fn clusters_that_read_no_ssh_keys_are_left_behind_by_a_yes_only() {
    let ssh = |seed: char| {
        let mut one = signer(seed);
        one.key.fingerprint = format!("SHA256:{seed}");
        one
    };
    let (pgp, one, other) = (signer('A'), ssh('1'), ssh('2'));
    let unread = ["eu1".to_owned(), "us1".to_owned()];
    for (before, after, refused) in [
        (vec![], vec![&one], true),
        (vec![&pgp], vec![&pgp, &one], true),
        (vec![&one], vec![&one, &other], true),
        // The last that they know.
        (vec![&pgp, &one], vec![&one], true),
        (vec![&pgp, &one], vec![&pgp], false),
        (vec![&one, &other], vec![&one], false),
        (vec![&one], vec![&one, &pgp], false),
        (vec![&one], vec![&one], false),
        (vec![&one], vec![], false),
        (vec![], vec![&pgp], false),
    ] {
        let all = |some: &[&Signer]| some.iter().map(|s| (*s).clone()).collect::<Vec<_>>();
        let (before, after) = (all(&before), all(&after));
        let said = Refusal::Unread("eu1, us1".to_owned());
        let expected = if refused { Err(said) } else { Ok(()) };
        assert_eq!(is_read(&before, &after, &unread), expected, "{after:?}");
        assert_eq!(is_read(&before, &after, &[]), Ok(()));
    }
}

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
        refused.to_string().contains("no OpenPGP signature"),
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

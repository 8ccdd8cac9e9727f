use super::*;

fn pairs() -> Identity {
    Identity::from_seeds(&[1; 32], &[2; 32])
}

fn cluster() -> ClusterName {
    "eu1".parse().unwrap()
}

#[test]
fn pairs_survive_their_secret() {
    let data = pairs().to_data(&cluster()).unwrap();
    let back = Identity::from_data(&data).unwrap();
    assert_eq!(back.identity.public(), pairs().identity.public());
    assert_eq!(back.deploy.public(), pairs().deploy.public());
    assert!(pairs().same_as(&data));
}

#[test]
fn a_rotation_survives_the_secret_at_each_of_its_points() {
    let next = || KeyPair::from_seed(&[3; 32]);
    let made = Identity {
        next_deploy: Some(next()),
        next_identity: Some(KeyPair::from_seed(&[4; 32])),
        ..pairs()
    };
    let data = made.to_data(&cluster()).unwrap();
    assert!(made.same_as(&data) && !pairs().same_as(&data));
    let promoted = Identity::from_data(&data).unwrap().with_deploy_promoted();
    assert_eq!(promoted.deploy.public(), next().public());
    assert!(promoted.next_deploy.is_none() && promoted.unsettled);
    let data = promoted.to_data(&cluster()).unwrap();
    let back = Identity::from_data(&data).unwrap();
    assert!(back.unsettled && promoted.same_as(&data) && !made.same_as(&data));
    // A successor that cannot be read was relied on by nobody.
    let mut data = made.to_data(&cluster()).unwrap();
    data.insert(NEXT_DEPLOY.to_owned(), b"junk".to_vec());
    assert!(Identity::from_data(&data).unwrap().next_deploy.is_none());
}

/// H14: what is left out of an apply stays in a Secret that was created by POST, and the identity would be lost for ever.
#[test]
fn a_mark_is_written_whether_it_is_set_or_not() {
    for [unsettled, lost] in [[false, false], [true, false], [false, true], [true, true]] {
        let keys = Identity {
            unsettled,
            lost,
            ..pairs()
        };
        let data = keys.to_data(&cluster()).unwrap();
        let written = [UNSETTLED, LOST].map(|mark| String::from_utf8(data[mark].clone()).unwrap());
        assert_eq!(written, [unsettled.to_string(), lost.to_string()]);
        let back = Identity::from_data(&data).unwrap();
        assert_eq!([back.unsettled, back.lost], [unsettled, lost]);
        assert!(keys.same_as(&data));
    }
    // As an agent of before wrote it.
    let mut data = pairs().to_data(&cluster()).unwrap();
    data.retain(|key, _| ![UNSETTLED, LOST].contains(&key.as_str()));
    assert!(pairs().same_as(&data));
}

#[test]
fn a_garbled_secret_counts_as_missing() {
    let whole = pairs().to_data(&cluster()).unwrap();
    for key in [IDENTITY, DEPLOY] {
        for bad in [
            None,
            Some(Vec::new()),
            Some(b"junk".to_vec()),
            Some(vec![0xff; 8]),
        ] {
            let mut data = whole.clone();
            match bad {
                None => data.remove(key),
                Some(bytes) => data.insert(key.to_owned(), bytes),
            };
            assert!(Identity::from_data(&data).is_none(), "{key}");
            assert!(!pairs().same_as(&data));
        }
    }
    let mut data = whole.clone();
    data.insert(DEPLOY.to_owned(), whole[IDENTITY].clone());
    assert!(Identity::from_data(&data).is_none());
}

#[test]
fn a_secret_without_the_public_line_is_not_whole() {
    let mut data = pairs().to_data(&cluster()).unwrap();
    data.remove(DEPLOY_PUBLIC);
    assert!(Identity::from_data(&data).is_some());
    assert!(!pairs().same_as(&data));
}

#[test]
fn a_signature_covers_the_call() {
    let call = Signed {
        hub_id: "hub-1",
        method: "POST",
        path_and_query: "/v1/join",
        time: 1_700_000_000,
        body: b"{}",
    };
    let header = signature(&pairs().identity, call);
    let fingerprint = pairs().identity.public().fingerprint();
    let rest = header
        .strip_prefix(&format!("v1;key={fingerprint};t=1700000000;sig="))
        .unwrap();
    let input = api::signing_input(
        "hub-1",
        "POST",
        "/v1/join",
        1_700_000_000,
        "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
    );
    let signature = keys::decode(rest).unwrap();
    assert!(
        pairs()
            .identity
            .public()
            .verify(input.as_bytes(), &signature)
    );
}

#[test]
fn the_deploy_proof_names_hub_cluster_and_identity() {
    let proof = keys::decode(&pairs().deploy_proof(&pairs().deploy, "hub-1", &cluster())).unwrap();
    let identity = pairs().identity.public().to_base64();
    let input = api::deploy_proof_input("hub-1", "eu1", &identity);
    assert!(pairs().deploy.public().verify(input.as_bytes(), &proof));
}

#[test]
fn only_the_id_of_a_token_is_told() {
    let id = |text: &str| token_id(&Secret::new(text.to_owned())).map(str::to_owned);
    assert_eq!(id("lmj1.abc.secret\n"), Some("abc".to_owned()));
    for bad in ["", "lmj1.abc", "lmj1..x", "lmj2.abc.x", "lmj1.a.b.c"] {
        assert_eq!(id(bad), None, "{bad}");
    }
}

#[test]
fn debug_shows_no_private_half() {
    let text = format!("{:?}", pairs());
    assert!(!text.contains(&keys::encode(&[1; 32])) && text.contains("SHA256:"));
}

use super::*;
use crate::keys::KeyPair;

const NOW: i64 = 1_800_000_000;

fn pair() -> KeyPair {
    KeyPair::from_seed(&[3; 32])
}

fn keyset() -> Vec<HubKey> {
    vec![HubKey {
        kid: "k1".to_owned(),
        key: pair().public().to_base64(),
        not_after: None,
    }]
}

fn claims() -> Claims {
    Claims {
        iss: "hub".to_owned(),
        aud: "cluster".to_owned(),
        sub: "linesman:ada".to_owned(),
        grp: vec!["linesman:admin".to_owned()],
        act: None,
        jti: "r1".to_owned(),
        epoch: 7,
        iat: NOW,
        exp: NOW + LIFETIME,
        h: binding("GET", "/api/v1/pods?limit=1"),
        ip: "10.0.0.1".to_owned(),
        mode: Mode::Full,
        ns: None,
    }
}

fn expected() -> Expected<'static> {
    Expected {
        hub: "hub",
        cluster: "cluster",
        epoch: 7,
        method: "GET",
        target: "/api/v1/pods?limit=1",
        now: NOW,
    }
}

fn signed(claims: &Claims) -> String {
    sign(claims, "k1", |input| pair().sign(input)).unwrap()
}

#[test]
fn an_assertion_holds_for_its_request() {
    assert_eq!(
        verify(&signed(&claims()), &keyset(), &expected()),
        Ok(claims())
    );
}

/// L43: another cluster, epoch, method, path, or a time that is over.
#[test]
fn every_other_binding_is_refused() {
    let token = signed(&claims());
    let with = |change: fn(&mut Expected<'static>)| {
        let mut e = expected();
        change(&mut e);
        verify(&token, &keyset(), &e).unwrap_err()
    };
    assert_eq!(with(|e| e.hub = "other"), AssertionError::Hub);
    assert_eq!(with(|e| e.cluster = "other"), AssertionError::Cluster);
    assert_eq!(with(|e| e.epoch = 8), AssertionError::Epoch);
    assert_eq!(with(|e| e.method = "POST"), AssertionError::Request);
    assert_eq!(with(|e| e.target = "/api/v1/pods"), AssertionError::Request);
    assert_eq!(
        with(|e| e.now = NOW + LIFETIME + TOLERANCE + 1),
        AssertionError::Time
    );
    assert_eq!(with(|e| e.now = NOW - TOLERANCE - 1), AssertionError::Time);
    assert!(
        verify(
            &token,
            &keyset(),
            &Expected {
                now: NOW + LIFETIME + TOLERANCE,
                ..expected()
            }
        )
        .is_ok()
    );
}

#[test]
fn a_long_life_is_refused_even_when_signed() {
    let token = signed(&Claims {
        exp: NOW + 3600,
        ..claims()
    });
    assert_eq!(
        verify(&token, &keyset(), &expected()),
        Err(AssertionError::Time)
    );
}

/// L43
#[test]
fn keys_outside_the_set_and_past_their_end_are_refused() {
    let token = signed(&claims());
    assert_eq!(verify(&token, &[], &expected()), Err(AssertionError::Key));
    let mut ended = keyset();
    ended[0].not_after = Some(NOW - 1);
    assert_eq!(
        verify(&token, &ended, &expected()),
        Err(AssertionError::Key)
    );
    let mut other = keyset();
    other[0].key = KeyPair::from_seed(&[4; 32]).public().to_base64();
    assert_eq!(
        verify(&token, &other, &expected()),
        Err(AssertionError::Signature)
    );
}

/// L43: the name in the header says which key it has to be, and nothing that a key of the set has signed as something else passes.
#[test]
fn a_key_signs_under_its_own_name_and_assertions_alone() {
    let named = |kid: &str| sign(&claims(), kid, |input| pair().sign(input)).unwrap();
    for kid in ["k2", "K1", "k1 ", ""] {
        let refused = verify(&named(kid), &keyset(), &expected());
        assert_eq!(refused, Err(AssertionError::Key), "{kid:?}");
    }
    let mut both = keyset();
    both.push(HubKey {
        kid: "k2".to_owned(),
        key: KeyPair::from_seed(&[4; 32]).public().to_base64(),
        not_after: None,
    });
    assert_eq!(verify(&named("k1"), &both, &expected()), Ok(claims()));
    assert_eq!(
        verify(&named("k2"), &both, &expected()),
        Err(AssertionError::Signature)
    );
    let token = named("k1");
    let payload = token.split('.').nth(1).unwrap();
    let typed = |typ: &str| {
        let header = format!(r#"{{"alg":"EdDSA","typ":"{typ}","kid":"k1"}}"#);
        let input = format!("{}.{payload}", keys::encode(header.as_bytes()));
        let signature = keys::encode(&pair().sign(input.as_bytes()));
        verify(&format!("{input}.{signature}"), &keyset(), &expected())
    };
    assert_eq!(typed(TYPE), Ok(claims()));
    for typ in ["JWT", "", "linesman-assertion", "LINESMAN-ASSERTION+JWT"] {
        assert_eq!(typed(typ), Err(AssertionError::Type), "{typ:?}");
    }
}

/// L43
#[test]
fn changed_tokens_and_other_algorithms_are_refused() {
    let token = signed(&claims());
    let (input, signature) = token.rsplit_once('.').unwrap();
    let (header, payload) = input.split_once('.').unwrap();
    let root = keys::encode(
        &serde_json::to_vec(&Claims {
            sub: "linesman:root".to_owned(),
            ..claims()
        })
        .unwrap(),
    );
    assert_eq!(
        verify(
            &format!("{header}.{root}.{signature}"),
            &keyset(),
            &expected()
        ),
        Err(AssertionError::Signature)
    );
    for alg in ["none", "HS256", "eddsa"] {
        let header =
            keys::encode(format!(r#"{{"alg":"{alg}","typ":"{TYPE}","kid":"k1"}}"#).as_bytes());
        let refused = verify(
            &format!("{header}.{payload}.{signature}"),
            &keyset(),
            &expected(),
        );
        assert_eq!(refused, Err(AssertionError::Type));
    }
    for broken in [
        "",
        ".",
        "..",
        "a.b.c",
        &format!("{input}."),
        &"x".repeat(MAX_LEN + 1),
    ] {
        assert!(verify(broken, &keyset(), &expected()).is_err(), "{broken}");
    }
}

#[test]
fn a_retry_keeps_the_request_id() {
    assert_eq!(
        Claims {
            jti: "r1.1".to_owned(),
            ..claims()
        }
        .request_id(),
        "r1"
    );
}

#[test]
fn too_many_groups_do_not_fit() {
    let grp = (0..2000).map(|n| format!("linesman:group-{n}")).collect();
    let refused = sign(&Claims { grp, ..claims() }, "k1", |input| {
        pair().sign(input)
    });
    assert_eq!(refused, Err(AssertionError::TooLong));
}

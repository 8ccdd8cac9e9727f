use std::sync::OnceLock;

use aws_lc_rs::rsa::{KeyPair as RsaPair, KeySize};
use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_SHA256, RSA_PSS_SHA256};
use hmac::{Hmac, KeyInit as _, Mac as _};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::keys::KeyPair;

const NOW: i64 = 1_800_000_000;

fn pair() -> KeyPair {
    KeyPair::from_seed(&[7; 32])
}

/// One RSA key for all: it takes a while to make.
fn rsa() -> &'static RsaPair {
    static PAIR: OnceLock<RsaPair> = OnceLock::new();
    PAIR.get_or_init(|| RsaPair::generate(KeySize::Rsa2048).unwrap())
}

fn rsa_jwk(kid: &str, alg: Option<&str>) -> Value {
    let public = rsa().public_key();
    let mut jwk = json!({
        "kty": "RSA", "kid": kid, "use": "sig",
        "n": keys::encode(public.modulus().big_endian_without_leading_zero()),
        "e": keys::encode(public.exponent().big_endian_without_leading_zero()),
    });
    if let Some(alg) = alg {
        jwk["alg"] = alg.into();
    }
    jwk
}

fn ed_jwk(kid: &str) -> Value {
    json!({"kty": "OKP", "crv": "Ed25519", "kid": kid, "x": pair().public().to_base64()})
}

fn set(keys: &[Value]) -> Keys {
    Keys::parse(json!({"keys": keys}).to_string().as_bytes()).unwrap()
}

fn claims() -> Value {
    json!({"iss": "https://id.example", "aud": "linesman", "sub": "s1", "nonce": "n1", "iat": NOW, "exp": NOW + 300})
}

fn input(header: &Value, claims: &Value) -> String {
    let part = |value: &Value| keys::encode(value.to_string().as_bytes());
    format!("{}.{}", part(header), part(claims))
}

fn signed(header: &Value, claims: &Value) -> String {
    let input = input(header, claims);
    format!("{input}.{}", keys::encode(&pair().sign(input.as_bytes())))
}

fn rsa_signed(alg: &str, claims: &Value) -> String {
    let input = input(&json!({"alg": alg, "kid": "r"}), claims);
    let padding = if alg == "PS256" {
        &RSA_PSS_SHA256
    } else {
        &RSA_PKCS1_SHA256
    };
    let mut signature = vec![0; rsa().public_modulus_len()];
    let random = aws_lc_rs::rand::SystemRandom::new();
    rsa()
        .sign(padding, &random, input.as_bytes(), &mut signature)
        .unwrap();
    format!("{input}.{}", keys::encode(&signature))
}

fn expected() -> Expected<'static> {
    Expected {
        issuer: "https://id.example",
        client_id: "linesman",
        nonce: Some("n1"),
        subject: None,
        algorithms: &[],
        now: OffsetDateTime::from_unix_timestamp(NOW).unwrap(),
    }
}

fn judged_with(change: impl FnOnce(&mut Value)) -> Result<String, TokenError> {
    let mut claims = claims();
    change(&mut claims);
    let token = signed(&json!({"alg": "EdDSA", "kid": "k"}), &claims);
    verify(&token, &set(&[ed_jwk("k")]), &expected()).map(|c| c.subject)
}

#[test]
fn a_good_token_says_who_it_is() {
    let read = verify(
        &signed(&json!({"alg": "EdDSA", "kid": "k"}), &claims()),
        &set(&[ed_jwk("k")]),
        &expected(),
    )
    .unwrap();
    assert_eq!(read.subject, "s1");
    assert_eq!(read.expires_at.unix_timestamp(), NOW + 300);
    assert_eq!(read.get("nonce"), Some(&json!("n1")));
    for alg in ["RS256", "PS256"] {
        let token = rsa_signed(alg, &claims());
        assert!(
            verify(&token, &set(&[rsa_jwk("r", None)]), &expected()).is_ok(),
            "{alg}"
        );
        assert!(
            verify(&token, &set(&[rsa_jwk("r", Some(alg))]), &expected()).is_ok(),
            "{alg}"
        );
    }
}

/// Claim, what it says instead, and how that is refused.
#[test]
fn a_claim_that_is_wrong_or_missing_refuses_the_token() {
    use TokenError::{Claim, Expired, NotYet};
    let rows = [
        ("iss", json!("https://id.example/"), Claim("iss")),
        ("iss", Value::Null, Claim("iss")),
        ("aud", json!("other"), Claim("aud")),
        ("aud", json!(["other"]), Claim("aud")),
        ("aud", Value::Null, Claim("aud")),
        ("aud", json!(["linesman", "other"]), Claim("azp")),
        ("azp", json!("other"), Claim("azp")),
        ("azp", json!(1), Claim("azp")),
        ("sub", json!(""), Claim("sub")),
        ("sub", json!(7), Claim("sub")),
        ("sub", json!("x".repeat(256)), Claim("sub")),
        ("nonce", json!("n2"), Claim("nonce")),
        ("nonce", Value::Null, Claim("nonce")),
        ("exp", json!(NOW - 60), Expired),
        ("exp", json!("soon"), Claim("exp")),
        ("exp", Value::Null, Claim("exp")),
        ("exp", json!(i64::MIN), Expired),
        ("iat", Value::Null, Claim("iat")),
        ("iat", json!(NOW + 61), NotYet),
        ("nbf", json!(NOW + 61), NotYet),
        ("nbf", json!("x"), Claim("nbf")),
    ];
    for (claim, value, error) in rows {
        let read = judged_with(|c| {
            if value.is_null() {
                c.as_object_mut().unwrap().remove(claim);
            } else {
                c[claim] = value.clone();
            }
        });
        assert_eq!(read, Err(error), "{claim} {value}");
    }
}

#[test]
fn clocks_may_differ_by_a_minute() {
    for (claim, value) in [("exp", NOW - 59), ("iat", NOW + 60), ("nbf", NOW + 60)] {
        assert!(judged_with(|c| c[claim] = value.into()).is_ok(), "{claim}");
    }
    assert!(judged_with(|c| c["exp"] = json!(1_800_000_299.5)).is_ok());
    assert!(judged_with(|c| c["aud"] = json!(["linesman"])).is_ok());
    let both = judged_with(|c| {
        c["aud"] = json!(["linesman", "other"]);
        c["azp"] = json!("linesman");
    });
    assert!(both.is_ok());
}

#[test]
fn a_refreshed_token_is_of_the_same_person_and_needs_no_nonce() {
    let mut said = claims();
    said.as_object_mut().unwrap().remove("nonce");
    let token = signed(&json!({"alg": "EdDSA"}), &said);
    let refreshed = |subject| Expected {
        nonce: None,
        subject: Some(subject),
        ..expected()
    };
    let keys = set(&[ed_jwk("k")]);
    assert!(verify(&token, &keys, &refreshed("s1")).is_ok());
    assert_eq!(
        verify(&token, &keys, &refreshed("s2")),
        Err(TokenError::Claim("sub"))
    );
}

#[test]
fn signatures_that_prove_nothing_are_refused() {
    let keys = set(&[ed_jwk("k"), rsa_jwk("r", Some("RS256"))]);
    let refused = |token: &str| verify(token, &keys, &expected()).unwrap_err();
    for alg in ["none", "None", "HS256", "HS512", "RS1", ""] {
        let token = format!("{}.", input(&json!({"alg": alg, "kid": "k"}), &claims()));
        assert_eq!(
            refused(&token),
            TokenError::Algorithm(alg.to_owned()),
            "{alg}"
        );
    }
    // The public key taken for a shared secret.
    let text = input(&json!({"alg": "HS256", "kid": "k"}), &claims());
    for secret in [
        pair().public().0.to_vec(),
        pair().public().to_base64().into_bytes(),
    ] {
        let mut mac = Hmac::<sha2::Sha256>::new_from_slice(&secret).unwrap();
        mac.update(text.as_bytes());
        let token = format!("{text}.{}", keys::encode(&mac.finalize().into_bytes()));
        assert_eq!(refused(&token), TokenError::Algorithm("HS256".to_owned()));
    }
    // Another key under the same id; another algorithm than the key is for.
    let foreign = KeyPair::from_seed(&[8; 32]);
    let text = input(&json!({"alg": "EdDSA", "kid": "k"}), &claims());
    let token = format!("{text}.{}", keys::encode(&foreign.sign(text.as_bytes())));
    assert_eq!(refused(&token), TokenError::Signature);
    assert_eq!(
        refused(&rsa_signed("PS256", &claims())),
        TokenError::UnknownKey
    );
    let token = signed(&json!({"alg": "EdDSA", "kid": "other"}), &claims());
    assert_eq!(refused(&token), TokenError::UnknownKey);
    // The provider says that it signs otherwise.
    let token = signed(&json!({"alg": "EdDSA", "kid": "k"}), &claims());
    let only = Expected {
        algorithms: &[Algorithm::RS256],
        ..expected()
    };
    assert_eq!(
        verify(&token, &keys, &only),
        Err(TokenError::Algorithm("EdDSA".to_owned()))
    );
}

#[test]
fn what_is_no_token_is_refused_unread() {
    let keys = set(&[ed_jwk("k")]);
    let critical = signed(
        &json!({"alg": "EdDSA", "kid": "k", "crit": ["b64"], "b64": false}),
        &claims(),
    );
    let odd = signed(&json!({"alg": "EdDSA", "kid": 7}), &claims());
    let huge = format!("{}.{}.x", "a".repeat(MAX_TOKEN), "b");
    for token in ["", "a.b", "a.b.c.d", "!.!.!", &critical, &odd, &huge] {
        assert_eq!(
            verify(token, &keys, &expected()),
            Err(TokenError::Shape),
            "{token:.40}"
        );
    }
}

#[test]
fn a_key_set_holds_what_can_sign_and_is_bounded() {
    let short = json!({"kty": "RSA", "kid": "s", "n": keys::encode(&[0xff; 128]), "e": "AQAB"});
    let mut encryption = ed_jwk("e");
    encryption["use"] = "enc".into();
    let useless = [
        json!({"kty": "oct", "kid": "o", "k": "c2VjcmV0"}),
        json!({"kty": "of-tomorrow"}),
        json!({"kty": "EC", "crv": "P-521", "x": "AA", "y": "AA"}),
        rsa_jwk("r", Some("HS256")),
        rsa_jwk("r", Some("RSA-OAEP")),
        short,
        encryption,
        json!(7),
    ];
    let parse = |keys: &[Value]| Keys::parse(json!({"keys": keys}).to_string().as_bytes());
    for key in &useless {
        assert_eq!(
            parse(std::slice::from_ref(key)).unwrap_err(),
            KeysError::Empty,
            "{key}"
        );
    }
    let mut with_one = useless.to_vec();
    with_one.push(ed_jwk("k"));
    assert_eq!(parse(&with_one).unwrap().0.len(), 1);
    let many = vec![ed_jwk("k"); MAX_KEYS + 1];
    assert_eq!(parse(&many).unwrap_err(), KeysError::TooMany);
    for text in ["", "[]", "{}", "{\"keys\": {}}"] {
        assert_eq!(
            Keys::parse(text.as_bytes()).unwrap_err(),
            KeysError::Shape,
            "{text}"
        );
    }
}

#[test]
fn userinfo_adds_to_the_same_person_only() {
    let mut said = Claims::of("s1", OffsetDateTime::UNIX_EPOCH);
    assert_eq!(
        said.add(&json!({"sub": "s2", "groups": ["admin"]})),
        Err(TokenError::Claim("sub"))
    );
    assert_eq!(
        said.add(&json!({"groups": ["admin"]})),
        Err(TokenError::Claim("sub"))
    );
    said.add(&json!({"sub": "s1", "groups": ["sre"]})).unwrap();
    // What was said first stays.
    said.add(&json!({"sub": "s1", "groups": ["admin"]}))
        .unwrap();
    assert_eq!(said.get("groups"), Some(&json!(["sre"])));
}

proptest! {
    /// Nothing that a peer sends makes verification panic, and nothing unsigned passes.
    #[test]
    fn noise_never_passes(token in "[A-Za-z0-9_.-]{0,200}", flip in 0_usize..400) {
        let keys = set(&[ed_jwk("k")]);
        prop_assert!(verify(&token, &keys, &expected()).is_err());
        let mut good = signed(&json!({"alg": "EdDSA", "kid": "k"}), &claims()).into_bytes();
        let at = flip % good.len();
        good[at] = if good[at] == b'A' { b'B' } else { b'A' };
        let read = verify(std::str::from_utf8(&good).unwrap(), &keys, &expected());
        // The last bits of base64 may be without meaning; the claims are never changed.
        prop_assert!(read.is_err() || read.unwrap().subject == "s1");
    }
}

use super::*;

const HUB_ID: &str = "hub-1";

fn agent<'a>(identity: &'a KeyPair, cluster: &'a ClusterName, build: &'a AgentBuild) -> Agent<'a> {
    Agent {
        cluster,
        identity,
        hub: HUB_ID,
        host: "hub.example:8443",
        nonce: [1; 32],
        instance: "i",
        resumes: None,
        cap: None,
        build,
        keyset: &[],
    }
}

fn made() -> (KeyPair, Bytes, Bytes) {
    let (identity, cluster, build) = (
        KeyPair::from_seed(&[1; 32]),
        "eu1".parse().unwrap(),
        AgentBuild::default(),
    );
    let asked = challenge(HUB_ID, [2; 32], 0);
    let answer = hello(&asked, &agent(&identity, &cluster, &build)).unwrap();
    (identity, asked, answer)
}

#[test]
fn both_ends_prove_themselves() {
    let (identity, asked, answer) = made();
    let read = check_hello(
        &asked,
        &answer,
        identity.public(),
        HUB_ID,
        &["HUB.example:8443"],
    )
    .unwrap();
    assert_eq!((read.cluster.as_str(), read.v), ("eu1", 1));
    let key = KeyPair::from_seed(&[9; 32]);
    let text = Welcome {
        epoch: 7,
        session: "s".into(),
        replica: "r".into(),
        time_ms: 5,
        features: vec![],
        limits: Limits::default(),
        keyset: None,
    };
    let payload = welcome(&answer, &text, |message| key.sign(message));
    let mut set = vec![HubKey {
        kid: "k".into(),
        key: key.public().to_base64(),
        not_after: None,
    }];
    assert_eq!(check_welcome(&answer, &payload, &set, 100), Ok(text));
    set[0].not_after = Some(100);
    assert_eq!(
        check_welcome(&answer, &payload, &set, 100),
        Err(HandshakeError::Signature)
    );
    assert_eq!(
        check_welcome(&answer, &payload, &[], 0),
        Err(HandshakeError::Signature)
    );
}

#[test]
fn a_hello_holds_for_one_challenge_key_hub_and_host() {
    let (identity, asked, answer) = made();
    let code = |asked: &[u8], answer: &[u8], key: Public, hub, host| {
        check_hello(asked, answer, key, hub, &[host])
            .unwrap_err()
            .code
    };
    let key = identity.public();
    let other = challenge(HUB_ID, [3; 32], 0);
    assert_eq!(
        code(&other, &answer, key, HUB_ID, "hub.example:8443"),
        Code::BadSignature
    );
    let stranger = KeyPair::from_seed(&[5; 32]).public();
    assert_eq!(
        code(&asked, &answer, stranger, HUB_ID, "hub.example:8443"),
        Code::BadSignature
    );
    assert_eq!(
        code(&asked, &answer, key, "hub-2", "hub.example:8443"),
        Code::BadSignature
    );
    assert_eq!(
        code(&asked, &answer, key, HUB_ID, "evil.example"),
        Code::BadSignature
    );
    assert_eq!(
        code(&asked, &answer[1..], key, HUB_ID, "hub.example:8443"),
        Code::Protocol
    );
    let mut changed = answer.to_vec();
    let at = changed.windows(3).position(|w| w == b"eu1").unwrap();
    changed[at + 2] = b'2';
    assert_eq!(
        code(&asked, &changed, key, HUB_ID, "hub.example:8443"),
        Code::BadSignature
    );
}

#[test]
fn another_hub_and_another_version_are_named() {
    let (identity, cluster, build) = (
        KeyPair::from_seed(&[1; 32]),
        "eu1".parse().unwrap(),
        AgentBuild::default(),
    );
    let agent = agent(&identity, &cluster, &build);
    let error = hello(&challenge("hub-2", [0; 32], 0), &agent).unwrap_err();
    assert_eq!(
        error,
        HandshakeError::OtherHub {
            found: "hub-2".into(),
            expected: HUB_ID.into()
        }
    );
    let newer = br#"{"v":[2,3],"hub":"hub-1","nonce":"","time_ms":0,"later":true}"#;
    assert_eq!(
        hello(newer, &agent).unwrap_err(),
        HandshakeError::Version(2, 3)
    );
    let both = br#"{"v":[1,3],"hub":"hub-1","nonce":"","time_ms":0,"later":true}"#;
    assert!(hello(both, &agent).is_ok());
}

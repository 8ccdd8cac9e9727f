use super::*;
use crate::hub::store::records::Redemption;
use crate::keys::{self, KeyPair};
use crate::wire::api::{AdoptionOptions, EngineKind, GitRoute, Policy};
use crate::wire::id::Digest;

mod accept;
mod recover;

const NOW: OffsetDateTime = OffsetDateTime::UNIX_EPOCH.saturating_add(Duration::days(20_000));

fn public(seed: u8) -> Public {
    KeyPair::from_seed(&[seed; 32]).public()
}

fn text() -> TokenText {
    TokenText::new([1; 16], [2; 32])
}

fn claim() -> Claim {
    Claim {
        token: text(),
        cluster: "eu1".to_owned(),
        incarnation: "uid-1".to_owned(),
        identity: public(1),
        deploy: public(2),
        agent: AgentBuild::default(),
        facts: Facts::default(),
        addr: "192.0.2.1:1".to_owned(),
    }
}

fn token() -> JoinToken {
    JoinToken {
        id: text().id,
        cluster_id: "c1".to_owned(),
        hash: text().hash(),
        kind: TokenKind::Join,
        new_cluster: false,
        adoption: AdoptionOptions::default(),
        issued_by: "admin".to_owned(),
        expires_at: NOW + Duration::hours(1),
        redeemed: None,
        revoked_at: None,
        created_at: NOW,
    }
}

fn cluster() -> Cluster {
    Cluster {
        id: "c1".to_owned(),
        name: "eu1".parse().unwrap(),
        labels: std::collections::BTreeMap::default(),
        engine: EngineKind::Flux,
        engine_version: "2.9.5".to_owned(),
        bundle: Digest::from_bytes([0; 32]),
        catalog_path: "clusters/eu1".to_owned(),
        engine_change: 0,
        engine_within: 300,
        image_registry: None,
        image_pull_secret: None,
        git_route: GitRoute::Auto,
        git_no_route: false,
        adoption: AdoptionOptions::default(),
        policy: Policy::default(),
        desired_image: None,
        image_wish: 0,
        incarnation: None,
        epoch: 0,
        agent_version: None,
        synced_revision: None,
        assignment_revision: 0,
        joined_at: None,
        last_seen: None,
        removed_at: None,
        created_at: NOW,
        rev: 1,
    }
}

fn key(cluster_id: &str, kind: KeyKind, seed: u8, state: KeyState) -> ClusterKey {
    ClusterKey {
        cluster_id: cluster_id.to_owned(),
        cluster: "eu1".parse().unwrap(),
        removed: false,
        kind,
        public: public(seed),
        fingerprint: public(seed).fingerprint(),
        state,
        created_at: NOW,
        replace: false,
    }
}

fn redeemed(seed: u8, incarnation: &str, ago: Duration) -> Redemption {
    Redemption {
        at: NOW - ago,
        fingerprint: public(seed).fingerprint(),
        incarnation: incarnation.to_owned(),
        addr: "192.0.2.1:1".to_owned(),
    }
}

/// A whole case: what is known, and the verdict on the same claim.
#[derive(Default)]
struct Case {
    token: Option<JoinToken>,
    cluster: Option<Cluster>,
    identity: Option<ClusterKey>,
    deploy: Option<ClusterKey>,
}

fn case(change: impl FnOnce(&mut Case, &mut Claim)) -> Verdict {
    let mut case = Case {
        token: Some(token()),
        cluster: Some(cluster()),
        ..Case::default()
    };
    let mut claim = claim();
    change(&mut case, &mut claim);
    let known = Known {
        token: case.token.as_ref(),
        cluster: case.cluster.as_ref(),
        identity: case.identity.as_ref(),
        deploy: case.deploy.as_ref(),
    };
    redeem(NOW, &claim, known)
}

fn with_token(change: impl FnOnce(&mut JoinToken)) -> Verdict {
    case(|case, _| change(case.token.as_mut().unwrap()))
}

const BIND: Verdict = Verdict::Bind {
    replace: false,
    deploy: Deploy::Register,
};

fn refuse(refusal: Refusal) -> Verdict {
    Verdict::Refuse(refusal)
}

#[test]
fn a_live_token_binds_a_new_key() {
    assert_eq!(case(|_, _| {}), BIND);
    assert_eq!(
        with_token(|t| t.kind = TokenKind::Readopt),
        Verdict::Bind {
            replace: true,
            deploy: Deploy::Register
        }
    );
}

#[test]
fn unknown_wrong_expired_revoked_and_misnamed_are_one_answer() {
    let invalid = refuse(Refusal::TokenInvalid);
    assert_eq!(case(|c, _| c.token = None), invalid);
    assert_eq!(with_token(|t| t.hash = [9; 32]), invalid);
    assert_eq!(with_token(|t| t.expires_at = NOW), invalid);
    assert_eq!(with_token(|t| t.revoked_at = Some(NOW)), invalid);
    assert_eq!(case(|c, _| c.cluster = None), invalid);
    assert_eq!(case(|_, claim| claim.cluster = "us1".to_owned()), invalid);
    assert_eq!(
        with_token(|t| t.expires_at = NOW + Duration::milliseconds(1)),
        BIND
    );
}

/// H4, H5: whatever is wrong with a token, one way is gone to the same no; its end is judged by the time that is passed in.
#[test]
fn a_token_shows_its_yaml_while_it_is_good() {
    let token = token();
    let end = token.expires_at;
    let moment = Duration::milliseconds(1);
    let shown = |record: Option<JoinToken>, now| shows(&text(), record, now).is_some();
    assert!(shown(Some(token.clone()), NOW));
    assert!(shown(Some(token.clone()), end - moment));
    let other = TokenText::new([1; 16], [3; 32]);
    let wrong: [(Option<JoinToken>, OffsetDateTime); 5] = [
        (None, NOW),
        (Some(token.clone()), end),
        (
            Some(JoinToken {
                hash: other.hash(),
                ..token.clone()
            }),
            NOW,
        ),
        (
            Some(JoinToken {
                revoked_at: Some(NOW),
                ..token.clone()
            }),
            NOW,
        ),
        (
            Some(JoinToken {
                redeemed: Some(redeemed(1, "uid-1", Duration::ZERO)),
                ..token.clone()
            }),
            NOW,
        ),
    ];
    for (record, now) in wrong {
        assert!(!shown(record.clone(), now), "{record:?}");
    }
}

#[test]
fn the_same_key_repeats_for_a_day() {
    let repeat = |ago: Duration, state: KeyState| {
        case(|case, _| {
            case.token.as_mut().unwrap().redeemed = Some(redeemed(1, "uid-1", ago));
            // Long past its life: a repetition is not a redemption.
            case.token.as_mut().unwrap().expires_at = NOW - Duration::hours(20);
            case.identity = Some(key("c1", KeyKind::Identity, 1, state));
            case.deploy = Some(key("c1", KeyKind::Deploy, 2, KeyState::Active));
        })
    };
    let hours = Duration::hours;
    assert_eq!(
        repeat(hours(23), KeyState::Active),
        Verdict::Repeat(Deploy::Known)
    );
    assert_eq!(
        repeat(hours(24), KeyState::Active),
        refuse(Refusal::TokenInvalid)
    );
    assert_eq!(
        repeat(hours(1), KeyState::Revoked),
        refuse(Refusal::KeyKnown)
    );
}

#[test]
fn a_spent_token_names_the_conflict() {
    assert_eq!(
        with_token(|t| t.redeemed = Some(redeemed(7, "uid-1", Duration::ZERO))),
        refuse(Refusal::TokenRedeemed)
    );
    assert_eq!(
        with_token(|t| t.redeemed = Some(redeemed(1, "uid-2", Duration::ZERO))),
        refuse(Refusal::IncarnationChanged)
    );
}

/// Older YAML applied again to a cluster whose identity was rotated or recovered is no conflict.
#[test]
fn a_spent_token_answers_the_key_that_took_the_redeemers_place() {
    let judged = |identity: ClusterKey, incarnation: &str, ago: Duration| {
        case(|case, claim| {
            case.token.as_mut().unwrap().redeemed = Some(redeemed(7, "uid-1", ago));
            case.cluster.as_mut().unwrap().incarnation = Some("uid-1".to_owned());
            case.identity = Some(identity);
            case.deploy = Some(key("c1", KeyKind::Deploy, 2, KeyState::Active));
            incarnation.clone_into(&mut claim.incarnation);
        })
    };
    let own = || key("c1", KeyKind::Identity, 1, KeyState::Active);
    let (hour, day) = (Duration::hours(1), Duration::hours(24));
    assert_eq!(judged(own(), "uid-1", hour), Verdict::Repeat(Deploy::Known));
    assert_eq!(judged(own(), "uid-1", day), refuse(Refusal::TokenInvalid));
    // Another cluster, with its own key or with a copy of this one's.
    let conflict = refuse(Refusal::TokenRedeemed);
    assert_eq!(judged(own(), "uid-2", hour), conflict);
    for other in [
        key("c2", KeyKind::Identity, 1, KeyState::Active),
        key("c1", KeyKind::Identity, 1, KeyState::Revoked),
        key("c1", KeyKind::Deploy, 1, KeyState::Active),
    ] {
        assert_eq!(judged(other.clone(), "uid-1", hour), conflict, "{other:?}");
    }
}

#[test]
fn a_key_of_elsewhere_is_refused() {
    for known in [
        key("c2", KeyKind::Identity, 1, KeyState::Active),
        key("c2", KeyKind::Identity, 1, KeyState::Revoked),
        key("c1", KeyKind::Deploy, 1, KeyState::Active),
    ] {
        let verdict = case(|case, _| case.identity = Some(known));
        assert_eq!(verdict, refuse(Refusal::KeyKnown));
    }
    let own = key("c1", KeyKind::Identity, 1, KeyState::Active);
    assert_eq!(case(|case, _| case.identity = Some(own)), BIND);
}

/// H17: what was revoked does not come back by a token; the token is not spent, and good for another key.
#[test]
fn a_key_that_was_revoked_needs_a_successor() {
    let revoked = key("c1", KeyKind::Identity, 1, KeyState::Revoked);
    for kind in [TokenKind::Join, TokenKind::Readopt] {
        let verdict = case(|case, _| {
            case.identity = Some(revoked.clone());
            case.token.as_mut().unwrap().kind = kind;
        });
        assert_eq!(verdict, refuse(Refusal::KeyRevoked));
    }
}

/// H17
#[test]
fn a_cluster_is_revoked_when_no_identity_is_in_force() {
    use KeyState::{Active, Pending, Retiring, Revoked};
    let rows: [(&[(KeyKind, KeyState)], bool); 7] = [
        (&[], false),
        (&[(KeyKind::Identity, Active)], false),
        (&[(KeyKind::Identity, Retiring)], false),
        (
            &[(KeyKind::Identity, Revoked), (KeyKind::Identity, Active)],
            false,
        ),
        (
            &[(KeyKind::Identity, Revoked), (KeyKind::Deploy, Active)],
            true,
        ),
        (
            &[(KeyKind::Identity, Revoked), (KeyKind::Identity, Pending)],
            true,
        ),
        (&[(KeyKind::Deploy, Revoked)], false),
    ];
    for (states, revoked) in rows {
        let keys = states
            .iter()
            .map(|(kind, state)| key("c1", *kind, 1, *state));
        let keys: Vec<ClusterKey> = keys.collect();
        assert_eq!(is_revoked(&keys), revoked, "{states:?}");
    }
}

#[test]
fn another_incarnation_needs_the_owners_word() {
    let moved = |new_cluster| {
        case(|case, _| {
            case.cluster.as_mut().unwrap().incarnation = Some("uid-0".to_owned());
            case.token.as_mut().unwrap().new_cluster = new_cluster;
        })
    };
    assert_eq!(moved(false), refuse(Refusal::IncarnationChanged));
    assert_eq!(moved(true), BIND);
}

#[test]
fn a_deploy_key_of_elsewhere_does_not_stop_the_join() {
    let with = |known| match case(|case, _| case.deploy = Some(known)) {
        Verdict::Bind { deploy, .. } => deploy,
        other => panic!("{other:?}"),
    };
    let key = |cluster, state| key(cluster, KeyKind::Deploy, 2, state);
    assert_eq!(with(key("c2", KeyState::Active)), Deploy::InUse);
    assert_eq!(with(key("c1", KeyState::Revoked)), Deploy::InUse);
    assert_eq!(with(key("c1", KeyState::Active)), Deploy::Known);
}

#[test]
fn a_removed_cluster_is_told_so() {
    let verdict = case(|case, _| case.cluster.as_mut().unwrap().removed_at = Some(NOW));
    assert_eq!(verdict, refuse(Refusal::Removed));
}

#[test]
fn token_text_is_read_in_its_one_form() {
    let token = text();
    let line = token.text(Prefix::Join);
    let back = TokenText::parse(Prefix::Join, line.expose()).unwrap();
    assert!(back.matches(Some(&token.hash())) && back.id == token.id);
    assert!(!back.matches(None) && !back.matches(Some(&[0; 32])));
    let short = "lmj1.AAAAAAAAAAAAAAAAAAAAAA.AAAA";
    for bad in [
        "",
        "lmj1",
        "lmj1.a.b",
        short,
        &format!("{}.x", line.expose()),
    ] {
        assert!(TokenText::parse(Prefix::Join, bad).is_none(), "{bad}");
    }
    assert!(TokenText::parse(Prefix::Api, line.expose()).is_none());
    assert!(!format!("{token:?}").contains(&keys::encode(&[2; 32])));
}

/// hub.md §8: a restored hub never gives out a lower epoch.
#[test]
fn epochs_after_a_restore_are_above_all_before_it() {
    let first = epoch_after_a_restore(NOW);
    assert!(first > 1 << 40, "{first}");
    assert!(i64::try_from(first).is_ok());
    let second = epoch_after_a_restore(NOW + Duration::seconds(1));
    assert_eq!(second - first, 1 << 20);
}

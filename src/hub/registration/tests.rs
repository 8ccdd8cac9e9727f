use super::*;
use crate::hub::store::UnknownReason;
use crate::hub::store::records::Redemption;
use crate::keys::KeyPair;
use crate::wire::api::{AdoptionOptions, EngineKind, GitRoute, Policy};
use crate::wire::id::Digest;

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
        git_route: GitRoute::Auto,
        git_no_route: false,
        adoption: AdoptionOptions::default(),
        policy: Policy::default(),
        desired_image: None,
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

#[test]
fn a_lost_identity_is_recovered_by_a_deploy_key_of_the_same_cluster_alone() {
    let cluster = Cluster {
        incarnation: Some("uid-1".to_owned()),
        ..cluster()
    };
    let deploy = |cluster: &str, state| key(cluster, KeyKind::Deploy, 2, state);
    let judged = |change: &dyn Fn(&mut Lost<'_>), deploy: &ClusterKey| {
        let mut lost = Lost {
            cluster: Some(&cluster),
            incarnation: "uid-1",
            identity: None,
            deploy: Some(deploy),
            revoked: false,
            allowed: true,
            wait: None,
        };
        change(&mut lost);
        recover(lost)
    };
    let own = deploy("c1", KeyState::Active);
    assert_eq!(judged(&|_| {}, &own), Recovery::Bind);
    let retiring = deploy("c1", KeyState::Retiring);
    assert_eq!(judged(&|_| {}, &retiring), Recovery::Bind);
    let wait = Duration::seconds(40);
    assert_eq!(judged(&|l| l.wait = Some(wait), &own), Recovery::Live(wait));
    assert_eq!(judged(&|l| l.allowed = false, &own), Recovery::Manual);
    assert_eq!(
        judged(&|l| l.incarnation = "uid-2", &own),
        Recovery::IncarnationChanged
    );
    // Revoked is said to who held a key of the cluster, and to nobody else.
    let ended = deploy("c1", KeyState::Revoked);
    assert_eq!(judged(&|l| l.revoked = true, &ended), Recovery::Revoked);
    assert_eq!(judged(&|l| l.revoked = true, &own), Recovery::Revoked);
    let unknown = |genuine| Recovery::Unknown { genuine };
    let stranger = deploy("c2", KeyState::Active);
    assert_ne!(judged(&|l| l.revoked = true, &stranger), Recovery::Revoked);
    for foreign in [
        deploy("c2", KeyState::Active),
        deploy("c1", KeyState::Revoked),
        deploy("c1", KeyState::Pending),
        key("c1", KeyKind::Identity, 2, KeyState::Active),
    ] {
        assert_eq!(judged(&|_| {}, &foreign), unknown(true), "{foreign:?}");
        let outsider = judged(&|l| l.incarnation = "guessed", &foreign);
        assert_eq!(outsider, unknown(false), "{foreign:?}");
    }
    assert_eq!(judged(&|l| l.deploy = None, &own), unknown(true));
    assert_eq!(judged(&|l| l.cluster = None, &own), unknown(false));
    let removed = ClusterKey {
        removed: true,
        ..own.clone()
    };
    assert_eq!(judged(&|l| l.cluster = None, &removed), Recovery::Removed);
}

#[test]
fn a_recovery_is_repeated_for_its_own_key_and_for_no_other() {
    let cluster = Cluster {
        incarnation: Some("uid-1".to_owned()),
        ..cluster()
    };
    let deploy = key("c1", KeyKind::Deploy, 2, KeyState::Active);
    let judged = |identity: &ClusterKey| {
        recover(Lost {
            cluster: Some(&cluster),
            incarnation: "uid-1",
            identity: Some(identity),
            deploy: Some(&deploy),
            revoked: false,
            allowed: false,
            wait: Some(Duration::SECOND),
        })
    };
    let own = key("c1", KeyKind::Identity, 1, KeyState::Active);
    assert_eq!(judged(&own), Recovery::Repeat);
    for other in [
        key("c2", KeyKind::Identity, 1, KeyState::Active),
        key("c1", KeyKind::Identity, 1, KeyState::Revoked),
        key("c1", KeyKind::Deploy, 1, KeyState::Active),
    ] {
        assert_eq!(judged(&other), Recovery::KeyKnown, "{other:?}");
    }
}

fn listed() -> UnknownAgent {
    UnknownAgent {
        public: public(1),
        cluster: "eu1".parse().unwrap(),
        incarnation: None,
        reason: UnknownReason::UnknownIdentity,
        addr: "192.0.2.1:1".to_owned(),
        first_seen: NOW,
        last_seen: NOW,
    }
}

/// Agent, the record of its key, the cluster that it claims, that one's identities, and whether it has a line.
type Listing<'a> = (
    Option<&'a UnknownAgent>,
    Option<&'a ClusterKey>,
    Option<&'a Cluster>,
    Vec<ClusterKey>,
    bool,
);

/// H22, H23: what is known of a listed agent, and the verdict on it, without and with the word that the other key ends.
#[test]
fn an_unknown_agent_is_let_in_where_nothing_of_another_is_lost() {
    use AcceptRefusal::{KeyKnown, Live, NeedsReplace, Revoked, Unknown};
    use Acceptance::{Already, Bind, Create, Refuse};
    let agent = listed();
    let elsewhere = UnknownAgent {
        incarnation: Some("uid-2".to_owned()),
        ..listed()
    };
    let eu1 = Cluster {
        incarnation: Some("uid-1".to_owned()),
        ..cluster()
    };
    let identity = |seed, state| key("c1", KeyKind::Identity, seed, state);
    let (other, gone) = (
        identity(9, KeyState::Active),
        identity(9, KeyState::Revoked),
    );
    let (own, revoked) = (
        identity(1, KeyState::Active),
        identity(1, KeyState::Revoked),
    );
    let (foreign, deploy) = (
        key("c2", KeyKind::Identity, 1, KeyState::Active),
        key("c1", KeyKind::Deploy, 1, KeyState::Active),
    );
    let none = || (None, None, None, vec![], false);
    let at = |key, identities: &[&ClusterKey], live| {
        let identities = identities.iter().map(|k| (*k).clone()).collect();
        (Some(&agent), key, Some(&eu1), identities, live)
    };
    let rows: [(Listing<'_>, [Acceptance; 2]); 11] = [
        (none(), [Refuse(Unknown); 2]),
        ((Some(&agent), None, None, vec![], false), [Create; 2]),
        (at(None, &[], false), [Bind; 2]),
        (at(None, &[], true), [Bind; 2]),
        (at(None, &[&other], false), [Refuse(NeedsReplace), Bind]),
        (at(None, &[&other], true), [Refuse(Live); 2]),
        (at(None, &[&gone], false), [Refuse(Revoked); 2]),
        (at(Some(&own), &[&own], true), [Already; 2]),
        (at(Some(&revoked), &[&revoked], false), [Refuse(Revoked); 2]),
        (at(Some(&foreign), &[&other], false), [Refuse(KeyKnown); 2]),
        (at(Some(&deploy), &[&other], false), [Refuse(KeyKnown); 2]),
    ];
    let judged = |case: &Listing<'_>| {
        let (agent, key, cluster, identities, live) = case;
        [false, true].map(|replace| {
            accept(Accepting {
                agent: *agent,
                key: *key,
                cluster: *cluster,
                identities,
                live: *live,
                replace,
            })
        })
    };
    for (case, expected) in &rows {
        assert_eq!(judged(case), *expected, "{case:?}");
    }
    // One key in two clusters: whose identity it is, nobody can say.
    let cloned = (
        Some(&elsewhere),
        Some(&own),
        Some(&eu1),
        vec![own.clone()],
        false,
    );
    assert_eq!(judged(&cloned), [Refuse(KeyKnown); 2]);
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

use super::*;

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

/// An agent that joined anew with a deploy key that was revoked has to hear that its identity is in force.
#[test]
fn an_identity_in_force_is_known_whatever_became_of_the_deploy_key() {
    let cluster = Cluster {
        incarnation: Some("uid-1".to_owned()),
        ..cluster()
    };
    let judged = |identity: &ClusterKey, deploy: Option<&ClusterKey>, incarnation: &str| {
        recover(Lost {
            cluster: Some(&cluster),
            incarnation,
            identity: Some(identity),
            deploy,
            revoked: false,
            allowed: false,
            wait: Some(Duration::SECOND),
        })
    };
    let own = key("c1", KeyKind::Identity, 1, KeyState::Active);
    let revoked = key("c1", KeyKind::Deploy, 2, KeyState::Revoked);
    let stranger = key("c2", KeyKind::Deploy, 2, KeyState::Active);
    for deploy in [None, Some(&revoked), Some(&stranger)] {
        assert_eq!(judged(&own, deploy, "uid-1"), Recovery::Repeat);
        let elsewhere = judged(&own, deploy, "uid-2");
        assert_eq!(elsewhere, Recovery::Unknown { genuine: false });
        for other in [
            key("c2", KeyKind::Identity, 1, KeyState::Active),
            key("c1", KeyKind::Identity, 1, KeyState::Revoked),
        ] {
            let verdict = judged(&other, deploy, "uid-1");
            assert_eq!(verdict, Recovery::Unknown { genuine: true }, "{other:?}");
        }
    }
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

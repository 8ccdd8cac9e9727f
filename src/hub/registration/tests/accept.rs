use super::*;
use crate::hub::store::{UnknownAgent, UnknownReason};

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

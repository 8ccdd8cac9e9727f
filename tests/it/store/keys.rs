//! Keys: of clusters, of Git hosts, of those who sign the catalog.

use futures_util::future::join_all;
use linesman::hub::githost::hostkeys::{Standing, TrustedKey};
use linesman::hub::registration::{Claim, Redeemed, Refusal};
use linesman::hub::store::{
    ClusterKey, JoinToken, KeyKind, KeyState, Store, StoreError, TokenKind, UnknownAgent,
    UnknownReason,
};
use linesman::keys::{KeyPair, Public};
use linesman::ssh::known_hosts::HostKey;
use linesman::wire::api::MAX_HOST_KEY;
use linesman::wire::report::{Condition, ConditionType, Status};

use super::{at, claim, cluster, join_token, on_both};

on_both! {
    an_identity_retires_and_ends_once_its_successor_is_used,
    a_retired_identity_ends_with_its_time,
    a_key_that_ended_says_whether_its_agent_had_moved_on,
    a_deploy_key_belongs_to_one_cluster,
    a_cluster_has_a_bounded_number_of_keys,
    a_repeated_join_brings_a_bounded_number_of_deploy_keys,
    a_lost_identity_is_recovered_by_the_deploy_key_once,
    an_expired_token_is_refused_by_the_time_of_the_claim,
    a_revoked_cluster_has_no_key_and_gets_none_without_a_token,
    unknown_agents_are_a_bounded_list,
    host_keys_change_from_what_they_were,
}

fn public(seed: u8) -> Public {
    KeyPair::from_seed(&[seed; 32]).public()
}

/// A cluster that joined with the identity 1 and the deploy key 101.
async fn joined(store: &Store) -> String {
    let eu1 = cluster(store, "eu1").await;
    let (token, text) = join_token(&eu1, 1);
    store.issue_join_token(token).await.unwrap();
    store.redeem(claim(&text, "eu1", 1), at(1)).await.unwrap();
    eu1.id
}

async fn states(store: &Store, id: &str, kind: KeyKind) -> Vec<(Public, KeyState)> {
    let keys = store.cluster_keys(id).await.unwrap().into_iter();
    let of = keys.filter(|k| k.kind == kind);
    of.map(|k| (k.public, k.state)).collect()
}

async fn key(store: &Store, seed: u8) -> ClusterKey {
    let print = public(seed).fingerprint();
    let found = store.cluster_key_by_fingerprint(&print).await.unwrap();
    found.unwrap()
}

/// H5: nothing has to have removed it; no timer of a hub runs here.
async fn an_expired_token_is_refused_by_the_time_of_the_claim(store: Store) {
    let eu1 = cluster(&store, "eu1").await;
    let (token, text) = join_token(&eu1, 1);
    let end = token.expires_at;
    store.issue_join_token(token).await.unwrap();
    let late = store.redeem(claim(&text, "eu1", 1), end).await.unwrap();
    assert!(
        matches!(
            late,
            Redeemed::Refused {
                refusal: Refusal::TokenInvalid,
                ..
            }
        ),
        "{late:?}"
    );
    assert!(store.cluster_keys(&eu1.id).await.unwrap().is_empty());
    // It was not spent by that, and is good to its last moment.
    let moment = end - time::Duration::milliseconds(1);
    let bound = store.redeem(claim(&text, "eu1", 1), moment).await.unwrap();
    assert!(matches!(bound, Redeemed::Bound { .. }), "{bound:?}");
}

async fn an_identity_retires_and_ends_once_its_successor_is_used(store: Store) {
    let id = joined(&store).await;
    let asked = store
        .ask_to_replace(&id, KeyKind::Identity, at(2))
        .await
        .unwrap();
    assert!(asked.unwrap().replace);
    let same = (0..4).map(|_| store.add_identity(&id, public(2), at(3)));
    for added in join_all(same).await {
        assert_eq!(added.unwrap().unwrap().state, KeyState::Active);
    }
    assert_eq!(
        states(&store, &id, KeyKind::Identity).await,
        [
            (public(1), KeyState::Retiring),
            (public(2), KeyState::Active)
        ]
    );
    let present = key(&store, 2).await;
    let settled = (0..4).map(|_| store.settle_key(&present, at(4)));
    let ended: Vec<ClusterKey> = join_all(settled)
        .await
        .into_iter()
        .flat_map(Result::unwrap)
        .collect();
    assert_eq!(
        ended.iter().map(|k| k.public).collect::<Vec<_>>(),
        [public(1)]
    );
    assert_eq!(key(&store, 1).await.state, KeyState::Revoked);
    assert_eq!(
        store.add_identity(&id, public(1), at(5)).await.unwrap(),
        None
    );
}

/// H16, L41: what becomes of its line hangs on that.
async fn a_key_that_ended_says_whether_its_agent_had_moved_on(store: Store) {
    let id = joined(&store).await;
    let told = |seeds: &[(u8, bool)]| {
        let told = seeds.iter();
        let mut told: Vec<_> = told
            .map(|(seed, moved)| (public(*seed).fingerprint(), *moved))
            .collect();
        told.sort();
        told
    };
    let ended = async || {
        let asked = [1, 2, 3, 4, 9].map(|seed| public(seed).fingerprint());
        let mut ended = store.ended_keys(asked.to_vec()).await.unwrap();
        ended.sort();
        ended
    };
    assert_eq!(ended().await, told(&[]));
    store.add_identity(&id, public(2), at(2)).await.unwrap();
    assert_eq!(ended().await, told(&[]));
    let present = key(&store, 2).await;
    store.settle_key(&present, at(3)).await.unwrap();
    assert_eq!(ended().await, told(&[(1, true)]));

    // Another place joins: of none before it is that true any more.
    let eu1 = store.cluster(&"eu1".parse().unwrap()).await.unwrap();
    let (token, text) = join_token(&eu1.unwrap(), 2);
    let readopt = JoinToken {
        kind: TokenKind::Readopt,
        new_cluster: true,
        ..token
    };
    store.issue_join_token(readopt).await.unwrap();
    let bound = store.redeem(claim(&text, "eu1", 3), at(4)).await.unwrap();
    assert!(matches!(bound, Redeemed::Bound { .. }), "{bound:?}");
    assert_eq!(ended().await, told(&[(1, false), (2, false)]));

    // Its time was over, and its successor was not seen.
    store.add_identity(&id, public(4), at(5)).await.unwrap();
    let print = public(3).fingerprint();
    assert!(store.end_retired(&print, at(6)).await.unwrap());
    let all = [(1, false), (2, false), (3, false)];
    assert_eq!(ended().await, told(&all));
    // The lines of a cluster that is removed end by that.
    assert!(store.remove_cluster(&id, at(7)).await.unwrap().is_some());
    assert_eq!(ended().await, told(&[]));
}

async fn a_retired_identity_ends_with_its_time(store: Store) {
    let id = joined(&store).await;
    store.add_identity(&id, public(2), at(10)).await.unwrap();
    assert_eq!(store.retired(at(10)).await.unwrap(), []);
    let retired = store.retired(at(11)).await.unwrap();
    assert_eq!(
        retired.iter().map(|k| k.public).collect::<Vec<_>>(),
        [public(1)]
    );
    for (seed, ended) in [(1, true), (1, false), (2, false), (3, false)] {
        let print = public(seed).fingerprint();
        let done = store.end_retired(&print, at(12)).await.unwrap();
        assert_eq!(done, ended, "{seed}");
    }
    assert_eq!(store.retired(at(99)).await.unwrap(), []);
    let states = states(&store, &id, KeyKind::Identity).await;
    let (one, two) = (KeyState::Revoked, KeyState::Active);
    assert_eq!(states, [(public(1), one), (public(2), two)]);
}

async fn a_deploy_key_belongs_to_one_cluster(store: Store) {
    let id = joined(&store).await;
    let us1 = cluster(&store, "us1").await;
    let add = |of: &str, seed| {
        let of = of.to_owned();
        let store = store.clone();
        async move {
            store
                .add_deploy_key(&of, public(seed), Some(public(101)), at(2))
                .await
                .unwrap()
        }
    };
    assert_eq!(add(&us1.id, 101).await, None);
    assert_eq!(add(&id, 1).await, None, "an identity is no deploy key");
    let (mine, theirs) = tokio::join!(add(&id, 7), add(&us1.id, 7));
    assert!(mine.is_some() ^ theirs.is_some());
    add(&id, 8).await.unwrap();
    let states = states(&store, &id, KeyKind::Deploy).await;
    assert_eq!(states[0], (public(101), KeyState::Retiring));
    assert_eq!(*states.last().unwrap(), (public(8), KeyState::Active));
}

async fn a_cluster_has_a_bounded_number_of_keys(store: Store) {
    let id = joined(&store).await;
    let adds = (11..40).map(|seed| store.add_identity(&id, public(seed), at(2)));
    let refused = join_all(adds).await.into_iter().filter_map(Result::err);
    let refused: Vec<StoreError> = refused.collect();
    assert!(
        refused.iter().all(|e| matches!(e, StoreError::Full(_))),
        "{refused:?}"
    );
    assert_eq!(states(&store, &id, KeyKind::Identity).await.len(), 8);
}

async fn a_repeated_join_brings_a_bounded_number_of_deploy_keys(store: Store) {
    let eu1 = cluster(&store, "eu1").await;
    let (token, text) = join_token(&eu1, 1);
    store.issue_join_token(token).await.unwrap();
    let mut refused = Vec::new();
    for seed in 101..130 {
        let again = Claim {
            deploy: public(seed),
            ..claim(&text, "eu1", 1)
        };
        refused.extend(store.redeem(again, at(1)).await.err());
    }
    assert!(
        refused.iter().all(|e| matches!(e, StoreError::Full(_))),
        "{refused:?}"
    );
    assert_eq!(states(&store, &eu1.id, KeyKind::Deploy).await.len(), 8);
}

async fn a_lost_identity_is_recovered_by_the_deploy_key_once(store: Store) {
    let id = joined(&store).await;
    let deploy = key(&store, 101).await;
    let claims = (2..8).map(|_| store.recover_identity(&deploy, public(2), at(3)));
    let ended: Vec<_> = join_all(claims)
        .await
        .into_iter()
        .filter_map(Result::unwrap)
        .collect();
    assert_eq!(ended.len(), 1);
    assert_eq!(
        ended[0].iter().map(|k| k.public).collect::<Vec<_>>(),
        [public(1)]
    );
    assert_eq!(
        states(&store, &id, KeyKind::Identity).await,
        [
            (public(1), KeyState::Revoked),
            (public(2), KeyState::Active)
        ]
    );
    assert_eq!(
        states(&store, &id, KeyKind::Deploy).await,
        [(public(101), KeyState::Active)]
    );
}

fn by_ada() -> Condition {
    Condition {
        kind: ConditionType::IdentityRevoked,
        status: Status::True,
        reason: "Revoked".to_owned(),
        message: "by ada".to_owned(),
        since: "2026-01-01T00:00:00.000Z".to_owned(),
    }
}

/// H17
async fn a_revoked_cluster_has_no_key_and_gets_none_without_a_token(store: Store) {
    let id = joined(&store).await;
    let us1 = cluster(&store, "us1").await;
    let names = || vec!["eu1".to_owned(), "us1".to_owned(), "none".to_owned()];
    let token = |n| {
        let of = us1.clone();
        let (token, text) = join_token(&of, n);
        let cluster_id = id.clone();
        (
            JoinToken {
                cluster_id,
                ..token
            },
            text,
        )
    };
    let (open, open_text) = token(2);
    store.issue_join_token(open).await.unwrap();
    assert_eq!(store.revoked(names()).await.unwrap(), []);
    let condition = by_ada();
    let revoke = || store.revoke_cluster(&id, condition.clone(), at(3));
    let ended: Vec<Vec<ClusterKey>> = join_all((0..3).map(|_| revoke()))
        .await
        .into_iter()
        .map(Result::unwrap)
        .filter(|ended| !ended.is_empty())
        .collect();
    let ended: Vec<Vec<Public>> = ended
        .iter()
        .map(|keys| keys.iter().map(|k| k.public).collect())
        .collect();
    assert_eq!(ended, [[public(1), public(101)]]);
    assert_eq!(
        store.revoked(names()).await.unwrap(),
        ["eu1".parse().unwrap()]
    );
    let told = async || {
        let details = store.details(std::slice::from_ref(&id)).await.unwrap();
        details[0].conditions.clone()
    };
    assert_eq!(told().await, std::slice::from_ref(&condition));
    // Who was let in a moment before gets no key in.
    assert_eq!(
        store.add_identity(&id, public(5), at(4)).await.unwrap(),
        None
    );
    let deploy = store.add_deploy_key(&id, public(105), None, at(4)).await;
    assert_eq!(deploy.unwrap(), None);
    let redeem = async |text, seed| store.redeem(claim(text, "eu1", seed), at(5)).await.unwrap();
    let refusal = |redeemed| match redeemed {
        Redeemed::Refused { refusal, .. } => Some(refusal),
        Redeemed::Bound { .. } => None,
    };
    assert_eq!(
        refusal(redeem(&open_text, 6).await),
        Some(Refusal::TokenInvalid)
    );
    let (readopt, text) = token(3);
    let readopt = JoinToken {
        kind: TokenKind::Readopt,
        new_cluster: true,
        ..readopt
    };
    store.issue_join_token(readopt).await.unwrap();
    assert_eq!(refusal(redeem(&text, 1).await), Some(Refusal::KeyRevoked));
    assert_eq!(refusal(redeem(&text, 6).await), None);
    assert_eq!(store.revoked(names()).await.unwrap(), []);
    assert_eq!(told().await, []);
    assert_eq!(key(&store, 1).await.state, KeyState::Revoked);
}

/// H23: agents that come again keep their place; a newcomer gets the place of one that is quiet, or none.
async fn unknown_agents_are_a_bounded_list(store: Store) {
    let agent = |n: u16, ms| {
        let mut seed = [0; 32];
        seed[..2].copy_from_slice(&n.to_be_bytes());
        UnknownAgent {
            public: KeyPair::from_seed(&seed).public(),
            cluster: "eu1".parse().unwrap(),
            incarnation: (n == 0).then(|| "uid-1".to_owned()),
            reason: UnknownReason::UnknownIdentity,
            addr: "192.0.2.1:1".to_owned(),
            first_seen: at(ms),
            last_seen: at(ms),
        }
    };
    for n in 0..256 {
        assert!(store.note_unknown(agent(n, i64::from(n))).await.unwrap());
    }
    assert!(!store.note_unknown(agent(256, 300)).await.unwrap());
    let print = agent(0, 0).public.fingerprint();
    let first = async || store.unknown_agent(&print).await.unwrap();
    // It comes again and again, and says once where it is.
    for (said, kept) in [(19_000, 0), (21_000, 21_000), (40_000, 21_000)] {
        let again = UnknownAgent {
            incarnation: None,
            ..agent(0, said)
        };
        assert!(store.note_unknown(again).await.unwrap());
        let expected = UnknownAgent {
            last_seen: at(kept),
            ..agent(0, 0)
        };
        assert_eq!(first().await, Some(expected));
    }
    assert!(store.note_unknown(agent(256, 60_002)).await.unwrap());
    let gone = agent(1, 1).public.fingerprint();
    assert_eq!(store.unknown_agent(&gone).await.unwrap(), None);
    assert_eq!(store.unknown_agents().await.unwrap().len(), 256);
    // A key that is known by now is not unknown.
    let id = joined(&store).await;
    let known = agent(0, 0).public;
    store.add_identity(&id, known, at(70_000)).await.unwrap();
    assert_eq!(store.unknown_agents().await.unwrap().len(), 255);
}

async fn host_keys_change_from_what_they_were(store: Store) {
    let trusted = |seed: u8| TrustedKey {
        key: HostKey::parse(&public(seed).openssh("").unwrap(), MAX_HOST_KEY).unwrap(),
        standing: Standing::Next,
        source: "file".to_owned(),
        added_by: "ada".to_owned(),
        added_at: at(i64::from(seed)),
        since: at(9),
    };
    let change = |before: Vec<TrustedKey>, after: Vec<TrustedKey>| {
        store.change_host_keys("ssh://git.invalid", before, after)
    };
    let firsts = (1..=6).map(|seed| change(vec![], vec![trusted(seed)]));
    let done: Vec<bool> = join_all(firsts)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    assert_eq!(done.iter().filter(|d| **d).count(), 1, "{done:?}");
    let first = store.host_keys("ssh://git.invalid").await.unwrap();
    let both = vec![first[0].clone(), trusted(99)];
    assert!(change(first.clone(), both.clone()).await.unwrap());
    assert!(!change(first, vec![]).await.unwrap());
    assert_eq!(store.host_keys("ssh://git.invalid").await.unwrap(), both);
    assert_eq!(store.host_keys("ssh://other.invalid").await.unwrap(), []);
}

//! Clusters, their tokens and the counts that never repeat.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use linesman::hub::registration::{Redeemed, Refusal};
use linesman::hub::store::{
    Cluster, EndedAccess, Images, JoinToken, Joined, Reported, Revision, Store, StoreError,
    TokenKind,
};
use linesman::wire::api::{GitRoute, Policy};
use linesman::wire::report::{StepName, StepReport, StepState};

use super::{at, claim, cluster, digest, join_token, new, on_both, with_bundle};

on_both! {
    the_hub_keeps_its_id,
    a_name_is_taken_until_its_cluster_is_removed,
    lists_go_on_behind_the_last_name_in_the_order_of_bytes,
    every_change_counts_up_the_revision,
    labels_are_changed_as_they_were_seen,
    of_many_claims_with_one_token_one_is_bound,
    another_cluster_of_a_name_is_adopted_from_the_beginning,
    a_newer_join_token_ends_the_one_before,
    of_a_clusters_join_tokens_the_newest_are_known,
    an_epoch_is_given_once,
    an_assignment_gets_a_number_a_content,
    an_assignments_number_is_above_what_an_older_copy_of_the_records_gave,
    what_was_seen_only_rises,
    what_was_seen_by_a_clock_that_was_ahead_counts_for_nothing,
    who_joined_and_lives_is_on_the_roll,
}

async fn the_hub_keeps_its_id(store: Store) {
    let ids = join_all((0..8).map(|_| store.hub_id())).await;
    let ids: BTreeSet<String> = ids.into_iter().map(Result::unwrap).collect();
    assert_eq!(ids.len(), 1, "{ids:?}");
    store.check().await.unwrap();
}

async fn a_name_is_taken_until_its_cluster_is_removed(store: Store) {
    let first = cluster(&store, "eu1").await;
    let taken = store.create_cluster(new("eu1"), at(1)).await.unwrap_err();
    assert!(matches!(&taken, StoreError::Exists(what) if what == "cluster eu1"));
    let nothing = EndedAccess::default();
    let removed = store.remove_cluster(&first.id, at(2)).await.unwrap();
    assert_eq!(removed, Some(nothing));
    assert_eq!(store.remove_cluster(&first.id, at(3)).await.unwrap(), None);
    let second = store.create_cluster(new("eu1"), at(4)).await.unwrap();
    let name = "eu1".parse().unwrap();
    assert_eq!(store.cluster(&name).await.unwrap(), Some(second));
    let tombstone = store.cluster_by_id(&first.id).await.unwrap().unwrap();
    assert_eq!(tombstone.removed_at, Some(at(2)));
}

async fn lists_go_on_behind_the_last_name_in_the_order_of_bytes(store: Store) {
    with_bundle(&store).await;
    // Other languages put the hyphen aside.
    let ordered = ["a", "a-c", "a0", "ab", "b-1", "b-10", "b-2", "b0"];
    for name in ["b0", "a-c", "b-10", "a", "b-2", "ab", "b-1", "a0"] {
        store.create_cluster(new(name), at(0)).await.unwrap();
    }
    let mut names = Vec::new();
    loop {
        let after = names.last().cloned();
        let page = store.clusters(after.as_deref(), 3).await.unwrap();
        if page.is_empty() {
            break;
        }
        names.extend(page.into_iter().map(|c| c.name.as_str().to_owned()));
    }
    assert_eq!(names, ordered);
}

async fn labels_are_changed_as_they_were_seen(store: Store) {
    let made = cluster(&store, "eu1").await;
    let blue = [("env".to_owned(), "blue".to_owned())].into();
    let dev = [("env".to_owned(), "dev".to_owned())].into();
    let seen = made.revision();
    assert!(store.relabel(seen, &blue, at(1)).await.unwrap());
    // Somebody else was quicker.
    assert!(!store.relabel(seen, &dev, at(2)).await.unwrap());
    let name = "eu1".parse().unwrap();
    let now = store.cluster(&name).await.unwrap().unwrap();
    assert_eq!((&now.labels, now.rev), (&blue, made.rev + 1));
    store.remove_cluster(&made.id, at(3)).await.unwrap();
    let gone = store.cluster_by_id(&made.id).await.unwrap().unwrap();
    for seen in [now.revision(), gone.revision()] {
        assert!(!store.relabel(seen, &dev, at(4)).await.unwrap());
    }
}

async fn every_change_counts_up_the_revision(store: Store) {
    let made = cluster(&store, "eu1").await;
    let seen = |rev| Revision { id: &made.id, rev };
    let policy = Policy::default();
    let route = (GitRoute::Line, true);
    let images = Some(Images {
        registry: "registry.invalid".to_owned(),
        pull_secret: Some("regcred".to_owned()),
    });
    let bundle = store.bundle(&digest()).await.unwrap().unwrap();
    let image = Some("agent:2".to_owned());
    // What somebody else has changed meanwhile stays as that one made it.
    for (rev, stale) in [(1, false), (100, true)] {
        let set = store.set_policy(seen(rev), policy.clone(), at(1));
        assert_eq!(set.await.unwrap(), !stale);
        let set = store.set_git_route(seen(rev + 1), route, at(2));
        assert_eq!(set.await.unwrap(), !stale);
        let wish = store.set_registry(seen(rev + 2), images.clone(), at(3));
        assert_eq!(wish.await.unwrap(), (!stale).then_some(1));
        let wish = store.set_engine(seen(rev + 3), &bundle, 77, at(4));
        assert_eq!(wish.await.unwrap(), (!stale).then_some(2));
        let wish = store.set_agent_image(seen(rev + 4), image.clone(), at(5));
        assert_eq!(wish.await.unwrap(), (!stale).then_some(1));
    }
    let now = store.cluster_by_id(&made.id).await.unwrap().unwrap();
    let changed = Cluster {
        git_route: GitRoute::Line,
        git_no_route: true,
        engine_change: 2,
        engine_within: 77,
        image_registry: Some("registry.invalid".to_owned()),
        image_pull_secret: Some("regcred".to_owned()),
        desired_image: image,
        image_wish: 1,
        rev: 6,
        ..made.clone()
    };
    assert_eq!(now, changed);
    let image = changed.desired_image;
    for (rev, image, wish) in [
        (6, image.clone(), 1),
        (7, None, 2),
        (8, None, 2),
        (9, image, 3),
    ] {
        let given = store.set_agent_image(Revision { id: &made.id, rev }, image, at(6));
        assert_eq!(given.await.unwrap(), Some(wish), "{rev}");
    }
}

/// H3
async fn of_many_claims_with_one_token_one_is_bound(store: Store) {
    let eu1 = cluster(&store, "eu1").await;
    let (token, text) = join_token(&eu1, 1);
    store.issue_join_token(token).await.unwrap();
    let claims = (1..=20).map(|seed| store.redeem(claim(&text, "eu1", seed), at(10)));
    let answers = join_all(claims).await;
    let (mut bound, mut refused) = (Vec::new(), 0);
    for (seed, answer) in (1_u8..).zip(answers) {
        match answer.unwrap() {
            Redeemed::Bound { repeated, .. } => bound.push((seed, repeated)),
            Redeemed::Refused { refusal, .. } => {
                assert_eq!(refusal, Refusal::TokenRedeemed);
                refused += 1;
            }
        }
    }
    assert_eq!((bound.len(), refused), (1, 19));
    let seed = bound[0].0;
    let again = store.redeem(claim(&text, "eu1", seed), at(20)).await;
    assert!(matches!(again, Ok(Redeemed::Bound { repeated: true, .. })));
    let keys = store.cluster_keys(&eu1.id).await.unwrap();
    assert_eq!(keys.len(), 2, "one identity, one deploy key");
    let joined = store.cluster_by_id(&eu1.id).await.unwrap().unwrap();
    let won = (joined.incarnation, joined.joined_at);
    assert_eq!(won, (Some(format!("uid-{seed}")), Some(at(10))));
    let spent = store.join_token(&text.id).await.unwrap().unwrap();
    assert_eq!(spent.redeemed.unwrap().incarnation, format!("uid-{seed}"));
}

/// It was said to be adopted the moment it had joined.
async fn another_cluster_of_a_name_is_adopted_from_the_beginning(store: Store) {
    let eu1 = cluster(&store, "eu1").await;
    let adopted = StepReport {
        step: StepName::Adopted,
        state: StepState::Done,
        reason: String::new(),
        at: "2026-01-01T00:00:00.000Z".to_owned(),
    };
    let report = Reported {
        steps: vec![adopted.clone()],
        ..Reported::default()
    };
    store.report(&eu1.id, report, at(1)).await.unwrap();
    // The seed says which cluster it is.
    for (number, seed, left) in [
        (1, 1, vec![adopted.clone()]),
        (2, 1, vec![adopted]),
        (3, 2, vec![]),
    ] {
        let (token, text) = join_token(&eu1, number);
        let token = JoinToken {
            kind: TokenKind::Readopt,
            new_cluster: true,
            ..token
        };
        store.issue_join_token(token).await.unwrap();
        let joined = store.redeem(claim(&text, "eu1", seed), at(10)).await;
        assert!(matches!(joined, Ok(Redeemed::Bound { .. })), "{number}");
        let ids = std::slice::from_ref(&eu1.id);
        let details = store.details(ids).await.unwrap().remove(0);
        assert_eq!(details.steps, left, "{number}");
    }
}

async fn a_newer_join_token_ends_the_one_before(store: Store) {
    let eu1 = cluster(&store, "eu1").await;
    let ((first, old), (second, new)) = (join_token(&eu1, 1), join_token(&eu1, 2));
    store.issue_join_token(first).await.unwrap();
    store.issue_join_token(second.clone()).await.unwrap();
    let ended = store.join_token(&old.id).await.unwrap().unwrap();
    assert!(ended.revoked_at.is_some());
    assert_eq!(store.join_token(&new.id).await.unwrap(), Some(second));
    let refused = store.redeem(claim(&old, "eu1", 1), at(1)).await.unwrap();
    assert!(matches!(refused, Redeemed::Refused { .. }));
}

/// Each readoption makes one.
async fn of_a_clusters_join_tokens_the_newest_are_known(store: Store) {
    let eu1 = cluster(&store, "eu1").await;
    let issue = async |n: u8, created_at| {
        let (token, text) = join_token(&eu1, n);
        let token = JoinToken {
            created_at,
            ..token
        };
        store.issue_join_token(token).await.unwrap();
        text.id
    };
    let mut ids = Vec::new();
    for n in 1..=51 {
        ids.push(issue(n, at(i64::from(n))).await);
    }
    // By a clock that was set back it is the oldest, and the one that is in force.
    ids.push(issue(52, at(0)).await);
    let mut known = Vec::new();
    for id in &ids {
        known.push(store.join_token(id).await.unwrap().is_some());
    }
    let expected: Vec<bool> = (1..=52).map(|n| n > 2).collect();
    assert_eq!(known, expected);
}

async fn an_epoch_is_given_once(store: Store) {
    let eu1 = cluster(&store, "eu1").await;
    let epochs = join_all((0..50).map(|_| store.next_epoch(&eu1.id))).await;
    let epochs: BTreeSet<u64> = epochs.into_iter().map(Result::unwrap).collect();
    assert_eq!(epochs, (1..=50).collect());
}

/// Of an assignment that is made at [`at`] zero.
const NUMBER: u64 = 1_790_000_000_000;

async fn an_assignment_gets_a_number_a_content(store: Store) {
    let eu1 = cluster(&store, "eu1").await;
    let of = |hash: &'static str| store.assignment_revision(&eu1.id, hash, at(0));
    let same = join_all((0..20).map(|_| of("a"))).await;
    let same: BTreeSet<u64> = same.into_iter().map(Result::unwrap).collect();
    assert_eq!(same, [NUMBER].into());
    let b = (of("b").await.unwrap(), of("b").await.unwrap());
    assert_eq!(b, (NUMBER + 1, NUMBER + 1));
    assert_eq!(of("a").await.unwrap(), NUMBER + 2);
}

/// How often the copy has counted, nobody knows; the clock has gone on.
async fn an_assignments_number_is_above_what_an_older_copy_of_the_records_gave(store: Store) {
    let eu1 = cluster(&store, "eu1").await;
    let mut numbers = Vec::new();
    // The last one is by a clock that was set back.
    for (hash, ms) in [("a", 0), ("b", 70_000), ("c", 70_000), ("d", 9)] {
        let number = store.assignment_revision(&eu1.id, hash, at(ms)).await;
        numbers.push(number.unwrap() - NUMBER);
    }
    assert_eq!(numbers, [0, 70_000, 70_001, 70_002]);
}

async fn what_was_seen_only_rises(store: Store) {
    let (a, b) = (cluster(&store, "a").await, cluster(&store, "b").await);
    let seen = |ms: [i64; 2]| vec![(b.id.clone(), at(ms[1])), (a.id.clone(), at(ms[0]))];
    let all = [[30, 5], [10, 7], [20, 6]].map(|ms| store.seen(seen(ms), at(30)));
    for done in join_all(all).await {
        done.unwrap();
    }
    let last = async |id: String| store.cluster_by_id(&id).await.unwrap().unwrap().last_seen;
    assert_eq!(
        (last(a.id.clone()).await, last(b.id.clone()).await),
        (Some(at(30)), Some(at(7)))
    );
}

async fn what_was_seen_by_a_clock_that_was_ahead_counts_for_nothing(store: Store) {
    let eu1 = cluster(&store, "eu1").await;
    let (ahead, now) = (at(2 * 3_600_000), at(1_000));
    for clock in [ahead, now] {
        let seen = vec![(eu1.id.clone(), clock)];
        store.seen(seen, clock).await.unwrap();
        let stored = store.cluster_by_id(&eu1.id).await.unwrap().unwrap();
        assert_eq!(stored.last_seen, Some(clock));
    }
}

/// F50: whoever never joined cannot be lost, nor a cluster that was removed.
async fn who_joined_and_lives_is_on_the_roll(store: Store) {
    cluster(&store, "never").await;
    let mut made = Vec::new();
    for (n, name) in (1..).zip(["us1", "eu1", "gone"]) {
        let cluster = cluster(&store, name).await;
        let (token, text) = join_token(&cluster, n);
        store.issue_join_token(token).await.unwrap();
        let joins = store.redeem(claim(&text, name, n), at(i64::from(n))).await;
        assert!(matches!(joins, Ok(Redeemed::Bound { .. })), "{joins:?}");
        made.push(cluster);
    }
    let [us1, eu1, gone] = made.try_into().unwrap();
    store.remove_cluster(&gone.id, at(9)).await.unwrap();
    let of = |cluster: &Cluster, ms| Joined {
        id: cluster.id.clone(),
        name: cluster.name.clone(),
        epoch: 0,
        last_seen: Some(at(ms)),
    };
    assert_eq!(store.joined().await.unwrap(), [of(&eu1, 2), of(&us1, 1)]);
    let asked = [us1.id.clone(), gone.id];
    assert_eq!(store.joined_of(&asked).await.unwrap(), [of(&us1, 1)]);
}

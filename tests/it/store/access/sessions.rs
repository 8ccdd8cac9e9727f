//! Sessions, and their pairs of tokens.

use futures_util::future::join_all;
use linesman::hub::store::{Pair, Session, Store, UserRow};
use time::OffsetDateTime;

use super::super::{at, on_both, user};
use super::{pair, session};

on_both! {
    a_session_goes_on_pair_by_pair_until_it_ends,
    a_session_has_one_pair_that_was_not_used,
    all_sessions_of_a_user_end_at_once,
    of_a_users_sessions_that_are_over_the_newest_are_kept,
}

async fn a_session_goes_on_pair_by_pair_until_it_ends(store: Store) {
    let ada = user(&store, "ada", "viewer").await;
    store
        .add_session(session(&ada), "192.0.2.1", pair(1), at(0))
        .await
        .unwrap();
    let rotate = |n, idle: OffsetDateTime, now| store.rotate("pair-1", pair(n), idle, now);
    assert!(rotate(2, at(500), at(10)).await.unwrap());
    // The first use counts; nothing lasts beyond the session's own end.
    assert!(rotate(3, at(99_000), at(20)).await.unwrap());
    let (used, of, who) = store.session_token("pair-1").await.unwrap().unwrap();
    assert_eq!((used.used_at, used.refresh_hash), (Some(at(10)), [101; 32]));
    assert_eq!(
        (of.idle_until, of.sealed, who),
        (at(10_000), Some(vec![0, 200]), ada.clone())
    );
    store.asked_provider("s1", None, at(30)).await.unwrap();
    let asked = store.sessions_of(&ada.id).await.unwrap().remove(0);
    assert_eq!((asked.asked_at, asked.sealed), (at(30), None));
    assert!(store.end_session("s1", "logout", at(40)).await.unwrap());
    assert!(!store.end_session("s1", "logout", at(41)).await.unwrap());
    assert!(!rotate(4, at(500), at(50)).await.unwrap());
    assert!(store.session_token("pair-4").await.unwrap().is_none());
    assert!(store.session("s1").await.unwrap().unwrap().0.ended);
}

/// H33: of a token that is shown twice within its grace, what came first is used up with the second. So one line goes on, and
/// whoever holds the other one is found out.
async fn a_session_has_one_pair_that_was_not_used(store: Store) {
    let ada = user(&store, "ada", "viewer").await;
    let other = Session {
        id: "s2".to_owned(),
        ..session(&ada)
    };
    for (session, n) in [(session(&ada), 1), (other, 11)] {
        let added = store.add_session(session, "192.0.2.1", pair(n), at(0));
        added.await.unwrap();
    }
    let rotate = async |used, n, ms| {
        let used = format!("pair-{used}");
        let rotated = store.rotate(&used, pair(n), at(500), at(ms)).await;
        assert!(rotated.unwrap());
    };
    let used = async |pairs: std::ops::RangeInclusive<u8>| {
        let mut all = Vec::new();
        for n in pairs {
            let found = store.session_token(&format!("pair-{n}")).await.unwrap();
            all.push(found.unwrap().0.used_at);
        }
        all
    };
    rotate(1, 2, 10).await;
    rotate(1, 3, 20).await;
    assert_eq!(used(1..=3).await, [Some(at(10)), Some(at(20)), None]);
    // Either goes on for a moment, the one in the place of the other.
    rotate(2, 4, 30).await;
    rotate(3, 5, 40).await;
    let times = [10, 20, 30, 40].map(|ms| Some(at(ms)));
    assert_eq!(used(1..=4).await, times);
    assert_eq!(used(5..=5).await, [None]);
    let at_once = join_all((6..10).map(|n| rotate(5, n, 50)));
    at_once.await;
    let left = used(6..=9).await;
    assert_eq!(
        left.iter().filter(|used| used.is_none()).count(),
        1,
        "{left:?}"
    );
    assert_eq!(used(11..=11).await, [None]);
}

async fn all_sessions_of_a_user_end_at_once(store: Store) {
    let ada = user(&store, "ada", "viewer").await;
    let bob = user(&store, "bob", "viewer").await;
    let of = |id: &str, user: &UserRow| Session {
        id: id.to_owned(),
        ..session(user)
    };
    let all = [
        of("s1", &ada),
        of("s2", &ada),
        of("s3", &ada),
        of("s4", &bob),
    ];
    for (n, session) in (1..).zip(all) {
        let added = store.add_session(session, "192.0.2.1", pair(n), at(0));
        added.await.unwrap();
    }
    assert!(store.end_session("s2", "logout", at(1)).await.unwrap());
    let end = async || {
        let ended = store.end_sessions(&ada.id, "ended by admin", at(2)).await;
        let mut ended = ended.unwrap();
        ended.sort();
        ended
    };
    assert_eq!(end().await, ["s1", "s3"]);
    assert_eq!(end().await, [""; 0]);
    let (of_bob, _) = store.session("s4").await.unwrap().unwrap();
    assert!(!of_bob.ended);
    assert!(store.session("s1").await.unwrap().unwrap().0.ended);
}

/// Somebody who logs in again and again fills no database.
async fn of_a_users_sessions_that_are_over_the_newest_are_kept(store: Store) {
    let (ada, bob) = (
        user(&store, "ada", "viewer").await,
        user(&store, "bob", "viewer").await,
    );
    let add = async |of: &UserRow, n: i64, idle_until| {
        let session = Session {
            id: format!("{}-{n}", of.name),
            idle_until,
            ..session(of)
        };
        let pair = Pair {
            id: format!("pair-{}-{n}", of.name),
            ..pair(1)
        };
        let added = store.add_session(session, "192.0.2.1", pair, at(n));
        added.await.unwrap();
    };
    add(&bob, 0, at(1)).await;
    // This one holds all the time.
    add(&ada, 0, at(9_000)).await;
    for n in 1..=202 {
        add(&ada, n, at(n + 1)).await;
    }
    let mut there = Vec::new();
    for id in ["bob-0", "ada-0", "ada-1", "ada-2", "ada-202"] {
        let pair = store.session_token(&format!("pair-{id}")).await.unwrap();
        let session = store.session(id).await.unwrap();
        there.push((session.is_some(), pair.is_some()));
    }
    let expected = [true, true, false, true, true].map(|is| (is, is));
    assert_eq!(there, expected);
}

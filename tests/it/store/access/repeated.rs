//! Calls that come twice, and what a call made.

use futures_util::future::join_all;
use linesman::hub::access::Grant;
use linesman::hub::store::{ApiToken, Call, Called, Ended, Store, StoreError, UserRow, calls};

use super::super::{Place, api_token, at, on_both, user};
use super::{as_made, grant};

on_both! {
    a_call_that_comes_twice_is_noted_once,
    a_token_of_the_same_call_gets_the_new_secret,
    what_an_old_call_made_is_not_found_by_its_key,
    what_another_call_made_is_not_given_out,
    a_call_whose_answer_is_lost_is_known_by_what_it_stored,
    a_call_that_is_dated_ahead_does_not_run_until_then,
}

async fn a_call_that_comes_twice_is_noted_once(store: Store) {
    let calls = (0..16_u8).map(|n| store.idempotent("u", "key", [n; 32], at(1)));
    let known: Vec<_> = join_all(calls)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    let first = known.iter().position(Option::is_none).unwrap();
    let digest = [u8::try_from(first).unwrap(); 32];
    assert_eq!(known.iter().filter(|k| **k == Some(digest)).count(), 15);
    assert_eq!(
        store.idempotent("v", "key", [9; 32], at(1)).await.unwrap(),
        None
    );
    let day = at(24 * 3_600_000 + 2);
    assert_eq!(
        store.idempotent("u", "key", [9; 32], day).await.unwrap(),
        None
    );
}

async fn a_token_of_the_same_call_gets_the_new_secret(store: Store) {
    let ada = user(&store, "ada", "viewer").await;
    let key = || Some("call".to_owned());
    let first = store
        .add_api_token(api_token(&ada, 1), key())
        .await
        .unwrap();
    let second = store
        .add_api_token(api_token(&ada, 2), key())
        .await
        .unwrap();
    assert_eq!((second.id.as_str(), second.hash), ("token-1", [2; 32]));
    let (stored, of) = store.api_token(&first.id).await.unwrap().unwrap();
    assert_eq!((stored, of), (second, ada.clone()));
    let named = store.api_tokens(Some(&ada.id), at(1)).await.unwrap();
    assert_eq!(named.len(), 1);
    assert_eq!(
        store.revoke_api_token("token-1", at(2)).await.unwrap(),
        Ended::Done
    );
    let late = store.add_api_token(api_token(&ada, 3), key()).await;
    assert!(matches!(late, Err(StoreError::Exists(_))));
}

/// H57: after a day the key is free, and so is what it made from it.
async fn what_an_old_call_made_is_not_found_by_its_key(store: Store) {
    let ada = user(&store, "ada", "access").await;
    let key = || Some("call".to_owned());
    let by_ada = |id: &str| Grant {
        created_by: "ada".to_owned(),
        ..grant(id, "user:bob")
    };
    let token = |n| ApiToken {
        created_by: "ada".to_owned(),
        ..api_token(&ada, n)
    };
    let note = |day: i64| store.idempotent(&ada.id, "call", [1; 32], at(day * 24 * 3_600_000 + 1));
    assert_eq!(note(0).await.unwrap(), None);
    let first = store.add_api_token(token(1), key()).await.unwrap();
    store.add_grant(by_ada("g1"), key(), at(0)).await.unwrap();
    // Within the day they are one call's.
    assert_eq!(note(0).await.unwrap(), Some([1; 32]));
    let again = store.add_grant(by_ada("g2"), key(), at(1)).await.unwrap();
    assert_eq!(again.id, "g1");
    assert_eq!(note(2).await.unwrap(), None);
    let second = store.add_api_token(token(2), key()).await.unwrap();
    let other = store.add_grant(by_ada("g3"), key(), at(2)).await.unwrap();
    assert_eq!((second.id.as_str(), other.id.as_str()), ("token-2", "g3"));
    let (stored, _) = store.api_token("token-1").await.unwrap().unwrap();
    assert_eq!(stored.hash, first.hash);
}

/// H57: what was revoked, or differs, is no answer to the call.
async fn what_another_call_made_is_not_given_out(store: Store) {
    let ada = user(&store, "ada", "viewer").await;
    let key = || Some("call".to_owned());
    store
        .add_api_token(api_token(&ada, 1), key())
        .await
        .unwrap();
    let other = ApiToken {
        scopes: vec!["admin".to_owned()],
        ..api_token(&ada, 2)
    };
    let exists = |refused: StoreError| matches!(refused, StoreError::Exists(_));
    let refused = store.add_api_token(other, key()).await.unwrap_err();
    assert!(exists(refused));
    let (stored, _) = store.api_token("token-1").await.unwrap().unwrap();
    assert_eq!(stored.hash, [1; 32]);
    let add = |grant| store.add_grant(grant, key(), at(0));
    add(grant("g1", "user:ada")).await.unwrap();
    let longer = Grant {
        expires_at: Some(at(6_000)),
        ..grant("g2", "user:ada")
    };
    for differs in [longer, grant("g2", "user:bob")] {
        assert!(exists(add(differs).await.unwrap_err()));
    }
    let revoked = store.revoke_grant(as_made("g1"), "admin", at(1));
    revoked.await.unwrap();
    assert!(exists(add(grant("g2", "user:ada")).await.unwrap_err()));
    assert_eq!(store.grants(None, 9).await.unwrap(), []);
}

/// H57: whether a call stored anything is known by its key, although nobody heard what it was answered; and one that is overtaken
/// by its repetition stores nothing.
async fn a_call_whose_answer_is_lost_is_known_by_what_it_stored(store: Store) {
    let ada = user(&store, "ada", "admin").await;
    let call = |key: &str| Call {
        user_id: ada.id.clone(),
        key: key.to_owned(),
        digest: [1; 32],
    };
    let minutes = |n: i64| at(n * 60_000 + n);
    let begin = async |key: &str, n: i64| {
        let begun = store.begin_call(&call(key), minutes(n)).await;
        begun.unwrap()
    };
    let add = async |key: &str, n: i64, name: &str| {
        let made = UserRow {
            id: format!("id-{name}"),
            name: name.to_owned(),
            ..ada.clone()
        };
        let made = store.add_user(made, minutes(n));
        calls::within(call(key), minutes(n), made).await.map(drop)
    };
    // It stored nothing: ended or not, it may come again.
    assert_eq!(begin("none", 1).await, Called::First);
    store.lose_call(&call("none")).await.unwrap();
    assert_eq!(begin("none", 1).await, Called::First);
    let again = (begin("none", 1).await, begin("none", 3).await);
    assert_eq!(again, (Called::Running, Called::First));

    assert_eq!(begin("some", 1).await, Called::First);
    add("some", 1, "bob").await.unwrap();
    assert_eq!(begin("some", 1).await, Called::Running);
    // By the time, as after a crash, and at once where it is said.
    assert_eq!(begin("some", 3).await, Called::Changed);
    assert_eq!(begin("told", 1).await, Called::First);
    add("told", 1, "cid").await.unwrap();
    store.lose_call(&call("told")).await.unwrap();
    assert_eq!(begin("told", 1).await, Called::Changed);
    // It was refused in the end.
    store.end_call(&call("told"), None).await.unwrap();
    assert_eq!(begin("told", 2).await, Called::First);

    assert_eq!(begin("late", 1).await, Called::First);
    assert_eq!(begin("late", 3).await, Called::First);
    let late = add("late", 1, "dan").await.unwrap_err();
    assert!(matches!(late, StoreError::Overtaken(_)), "{late}");
    assert_eq!(store.user("dan").await.unwrap(), None);
    add("late", 3, "dan").await.unwrap();
    assert!(store.user("dan").await.unwrap().is_some());
}

/// H57: the hub's clock was an hour ahead when it died in the middle of two calls, and is right again.
async fn a_call_that_is_dated_ahead_does_not_run_until_then(store: Store) {
    let ada = user(&store, "ada", "admin").await;
    let call = |key: &str| Call {
        user_id: ada.id.clone(),
        key: key.to_owned(),
        digest: [1; 32],
    };
    let begin = async |key: &str, seconds: i64| {
        let begun = store.begin_call(&call(key), at(seconds * 1_000)).await;
        begun.unwrap()
    };
    for key in ["none", "some"] {
        assert_eq!(begin(key, 3_600).await, Called::First);
    }
    let bob = UserRow {
        id: "id-bob".to_owned(),
        name: "bob".to_owned(),
        ..ada.clone()
    };
    let made = store.add_user(bob, at(3_600_000));
    calls::within(call("some"), at(3_600_000), made)
        .await
        .unwrap();
    assert_eq!(begin("none", 0).await, Called::First);
    assert_eq!(begin("some", 0).await, Called::Changed);
    // Another replica's clock may be a moment ahead.
    assert_eq!(begin("near", 30).await, Called::First);
    assert_eq!(begin("near", 0).await, Called::Running);
}

/// Keys 2 to 20,000 of the user `u`, as copies of the first one's.
const MANY: &str = "INSERT INTO idempotency (user_id, key, digest, created_at)
    WITH RECURSIVE n (i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
    SELECT c.user_id, 'key-' || i, c.digest, c.created_at FROM idempotency c, n WHERE c.user_id = 'u'";

/// Each key is kept for a day, whatever becomes of its call: nobody has them without end.
async fn a_user_has_so_many_keys_at_once(place: Place) {
    let store = place.open().await;
    let note = async |user: &str, key: &str, ms| {
        let noted = store.idempotent(user, key, [1; 32], at(ms)).await;
        noted.map_err(|error| error.to_string())
    };
    assert_eq!(note("u", "key-1", 1).await, Ok(None));
    place.execute(MANY).await;
    let full = "20000 calls with an Idempotency-Key came from the user within 24 hours";
    assert_eq!(note("u", "one-more", 2).await, Err(full.to_owned()));
    let call = Call {
        user_id: "u".to_owned(),
        key: "one-more".to_owned(),
        digest: [1; 32],
    };
    let begun = store.begin_call(&call, at(2)).await;
    assert!(matches!(begun, Err(StoreError::Full(_))), "{begun:?}");
    // Those that are known are, others have their own, and a day later there is room.
    assert_eq!(note("u", "key-20000", 2).await, Ok(Some([1; 32])));
    assert_eq!(note("v", "one-more", 2).await, Ok(None));
    let day = 24 * 3_600_000 + 2;
    assert_eq!(note("u", "one-more", day).await, Ok(None));
}

#[tokio::test]
async fn a_user_has_so_many_keys_at_once_in_sqlite() {
    a_user_has_so_many_keys_at_once(Place::file("many-keys")).await;
}

#[tokio::test]
async fn a_user_has_so_many_keys_at_once_in_postgres() {
    a_user_has_so_many_keys_at_once(Place::server().await).await;
}

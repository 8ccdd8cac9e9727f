//! How many hub tokens there may be, and what becomes of those that are over.

use linesman::hub::store::{ApiToken, Arrival, Ended, Store, StoreError, UserRow};
use time::{Duration, OffsetDateTime};

use super::{Place, api_token, at, on_both, user};

on_both! {
    a_user_has_so_many_tokens_in_force,
    whom_nobody_vouches_for_is_no_admin,
}

async fn a_user_has_so_many_tokens_in_force(store: Store) {
    let (ada, bob) = (
        user(&store, "ada", "viewer").await,
        user(&store, "bob", "viewer").await,
    );
    let key = || Some("call".to_owned());
    store
        .add_api_token(api_token(&ada, 1), key())
        .await
        .unwrap();
    for n in 2..=200 {
        store.add_api_token(api_token(&ada, n), None).await.unwrap();
    }
    let full = store.add_api_token(api_token(&ada, 201), None).await;
    let full = full.unwrap_err();
    assert!(matches!(full, StoreError::Full(_)), "{full}");
    assert_eq!(full.to_string(), "the user has 200 tokens in force");
    assert_eq!(store.api_token("token-201").await.unwrap(), None);
    // A call that comes again asks for no other one, and another user has room of their own.
    let again = store.add_api_token(api_token(&ada, 202), key()).await;
    assert_eq!(again.unwrap().id, "token-1");
    store
        .add_api_token(api_token(&bob, 203), None)
        .await
        .unwrap();
    let gone = store.revoke_api_token("token-7", at(1)).await.unwrap();
    assert_eq!(gone, Ended::Done);
    store
        .add_api_token(api_token(&ada, 204), None)
        .await
        .unwrap();
    let listed = store.api_tokens(Some(&ada.id), at(1)).await.unwrap();
    assert_eq!(listed.len(), 200);
}

/// Of an identity provider's user a token is refused a while after it vouched for them last: it is no way in that others could rely on.
async fn whom_nobody_vouches_for_is_no_admin(store: Store) {
    let within = Duration::days(30);
    let store = store.vouched_within(Some(within));
    let arrival = Arrival {
        id: "id-eva".to_owned(),
        issuer: "https://id.invalid".to_owned(),
        subject: "42".to_owned(),
        name: "eva".to_owned(),
        groups: [].into(),
    };
    store.arrive(arrival, at(0)).await.unwrap();
    let eva = store.user("eva").await.unwrap().unwrap();
    let admin = vec!["admin".to_owned()];
    let eva = UserRow {
        roles: admin,
        ..eva
    };
    assert_eq!(
        store.set_user(eva.clone(), at(0)).await.unwrap(),
        Ended::Done
    );
    let root = user(&store, "root", "admin").await;
    for (of, n) in [(&eva, 1), (&root, 2)] {
        store.add_api_token(api_token(of, n), None).await.unwrap();
    }
    let over = at(0) + within;
    let count = async |now| store.live_admin_tokens(now).await.unwrap();
    let moment = Duration::milliseconds(1);
    assert_eq!((count(over - moment).await, count(over).await), (2, 1));
    let revoked = store.revoke_api_token("token-2", over).await.unwrap();
    let removed = store.remove_user(root.revision(), over).await.unwrap();
    let less = UserRow {
        roles: vec![],
        ..root.clone()
    };
    let set = store.set_user(less, over).await.unwrap();
    assert_eq!([revoked, removed, set], [Ended::LastAdmin; 3]);
    // Hers ends, for it is none that anybody is let in by.
    let revoked = store.revoke_api_token("token-1", over).await.unwrap();
    assert_eq!(revoked, Ended::Done);
    // To its own end, where that was said.
    let store = store.vouched_within(None);
    store.add_api_token(api_token(&eva, 3), None).await.unwrap();
    assert_eq!(store.live_admin_tokens(over).await.unwrap(), 2);
}

/// As many tokens as may be in force, all with one end, as copies of `token-1`.
macro_rules! many {
    ($id:literal, $end:literal) => {
        concat!(
            "INSERT INTO api_token (id, user_id, hash, title, scopes, created_by, expires_at, created_at)
             WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000)
             SELECT '", $id, "-' || i, t.user_id, t.hash, t.title, t.scopes, t.created_by, ", $end, ", 0
             FROM api_token t, n WHERE t.id = 'token-1'"
        )
    };
}

/// Those that are over take no place, and are looked up as long as there is room for them, 30 days at most.
async fn ended_tokens_leave_room(place: Place) {
    let store = place.open().await;
    let bot = user(&store, "bot", "viewer").await;
    let (ada, root) = (
        user(&store, "ada", "viewer").await,
        user(&store, "root", "admin").await,
    );
    let end = at(10_000);
    let add = async |of: &UserRow, n, created_at: OffsetDateTime| {
        let token = ApiToken {
            created_at,
            ..api_token(of, n)
        };
        store.add_api_token(token, None).await.map(|token| token.id)
    };
    add(&bot, 1, at(0)).await.unwrap();
    place.execute(many!("a", "1790000010000")).await;
    let before = end - Duration::SECOND;
    let full = add(&ada, 2, before).await.unwrap_err();
    assert!(matches!(full, StoreError::Full(_)), "{full}");
    assert_eq!(full.to_string(), "the hub has 10000 tokens in force");
    // The hub is never without a way in: the first token of an admin, and none beside it.
    assert_eq!(add(&root, 3, before).await.unwrap(), "token-3");
    assert!(add(&root, 4, before).await.is_err());
    assert_eq!(add(&ada, 2, end).await.unwrap(), "token-2");
    place.execute(many!("b", "1790000011000")).await;
    let later = end + Duration::MINUTE;
    let is_there = async |id: &str| store.api_token(id).await.unwrap().is_some();
    // The oldest of them make room, some with each that comes.
    for n in 5..25 {
        add(&ada, n, later).await.unwrap();
    }
    assert!(!is_there("a-1").await && is_there("b-1").await);
    for n in 25..45 {
        add(&ada, n, later + Duration::days(30)).await.unwrap();
    }
    assert!(!is_there("b-1").await);
    for id in ["token-1", "token-2", "token-3", "token-5"] {
        assert!(is_there(id).await, "{id}");
    }
}

#[tokio::test]
async fn ended_tokens_leave_room_in_sqlite() {
    ended_tokens_leave_room(Place::file("ended-tokens")).await;
}

#[tokio::test]
async fn ended_tokens_leave_room_in_postgres() {
    ended_tokens_leave_room(Place::server().await).await;
}

//! Users, tokens, sessions, grants, and calls that come twice.

use futures_util::future::join_all;
use linesman::hub::access::{Clusters, Grant, Mode, Subject};
use linesman::hub::store::{
    ApiToken, Arrival, Call, Called, Ended, EndedAccess, Known, Pair, Revision, Session, SshKey,
    Store, StoreError, UserRow, calls,
};
use linesman::keys::KeyPair;
use time::OffsetDateTime;

use super::{Place, api_token, at, cluster, new, on_both, user};

on_both! {
    of_changes_by_the_same_revision_one_is_made,
    the_last_admin_stays,
    a_removed_name_comes_back_without_what_it_had,
    a_removed_clusters_name_comes_back_without_its_grants_and_tokens,
    a_call_that_comes_twice_is_noted_once,
    a_token_of_the_same_call_gets_the_new_secret,
    grants_are_found_by_subject_until_they_are_revoked,
    the_default_grant_comes_once,
    a_session_goes_on_pair_by_pair_until_it_ends,
    a_session_has_one_pair_that_was_not_used,
    who_gets_a_new_name_keeps_the_grants,
    an_ssh_key_has_one_owner,
    what_an_old_call_made_is_not_found_by_its_key,
    what_another_call_made_is_not_given_out,
    a_call_whose_answer_is_lost_is_known_by_what_it_stored,
}

/// As it was made.
fn as_made(id: &str) -> Revision<'_> {
    Revision { id, rev: 1 }
}

async fn of_changes_by_the_same_revision_one_is_made(store: Store) {
    let ada = user(&store, "ada", "viewer").await;
    let to = |role: &str| UserRow {
        roles: vec![role.to_owned()],
        ..ada.clone()
    };
    let changes =
        ["operator", "viewer", "operator", "viewer"].map(|r| store.set_user(to(r), at(1)));
    let done = join_all(changes).await.into_iter().map(Result::unwrap);
    assert_eq!(done.filter(|d| *d == Ended::Done).count(), 1);
    let now = store.user("ada").await.unwrap().unwrap();
    assert_eq!((now.rev, now.groups), (2, ada.groups));
}

async fn the_last_admin_stays(store: Store) {
    let (root, ada) = (
        user(&store, "root", "admin").await,
        user(&store, "ada", "admin").await,
    );
    for (user, n) in [(&root, 1), (&ada, 2)] {
        store.add_api_token(api_token(user, n), None).await.unwrap();
    }
    assert_eq!(store.live_admin_tokens(at(1)).await.unwrap(), 2);
    // Each of both could go; not both.
    let ends = [
        store.remove_user(root.revision(), at(1)),
        store.remove_user(ada.revision(), at(1)),
    ];
    let mut ends: Vec<Ended> = join_all(ends)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    ends.sort_by_key(|end| *end == Ended::LastAdmin);
    assert_eq!(ends, [Ended::Done, Ended::LastAdmin]);
    let left = store.users().await.unwrap().remove(0);
    let n = if left.name == "root" { 1 } else { 2 };
    let token = format!("token-{n}");
    assert_eq!(
        store.revoke_api_token(&token, at(2)).await.unwrap(),
        Ended::LastAdmin
    );
    let less = UserRow {
        roles: vec![],
        ..left
    };
    assert_eq!(store.set_user(less, at(2)).await.unwrap(), Ended::LastAdmin);
    assert_eq!(store.live_admin_tokens(at(3)).await.unwrap(), 1);
}

async fn a_removed_name_comes_back_without_what_it_had(store: Store) {
    let ada = user(&store, "ada", "viewer").await;
    store.add_api_token(api_token(&ada, 1), None).await.unwrap();
    store
        .add_grant(grant("g1", "user:ada"), None, at(0))
        .await
        .unwrap();
    let taken = store.add_user(ada.clone(), at(1)).await.unwrap_err();
    assert!(matches!(taken, StoreError::Exists(_)));
    assert_eq!(
        store.remove_user(ada.revision(), at(2)).await.unwrap(),
        Ended::Done
    );
    assert_eq!(
        store.remove_user(ada.revision(), at(3)).await.unwrap(),
        Ended::Unknown
    );
    assert_eq!(store.user("ada").await.unwrap(), None);
    let again = store.add_user(ada.clone(), at(4)).await.unwrap();
    assert_eq!((again.id, again.rev, again.disabled), (ada.id, 3, false));
    assert_eq!(store.api_tokens(None, at(5)).await.unwrap(), []);
    assert_eq!(store.grants(None, 9).await.unwrap(), []);
}

/// H44: of two clusters that have a name one after the other, what was for the first is not for the second.
async fn a_removed_clusters_name_comes_back_without_its_grants_and_tokens(store: Store) {
    let named = |names: &[&str]| {
        let names = names.iter().map(|name| name.parse().unwrap());
        Clusters::Named(names.collect())
    };
    let ada = user(&store, "ada", "viewer").await;
    let first = cluster(&store, "eu1").await;
    let labelled = Clusters::Labelled("env=eu1".parse().unwrap());
    for (id, clusters) in [
        ("all", Clusters::All),
        ("alone", named(&["eu1"])),
        ("both", named(&["eu1", "us1"])),
        ("labels", labelled.clone()),
        ("other", named(&["eu10"])),
    ] {
        let grant = Grant {
            clusters,
            ..grant(id, "user:ada")
        };
        store.add_grant(grant, None, at(0)).await.unwrap();
    }
    for (n, clusters) in [(1, &["eu1"][..]), (2, &["eu1", "us1"]), (3, &["us1"])] {
        let of = clusters.iter().map(|name| name.parse().unwrap()).collect();
        let token = ApiToken {
            clusters: Some(of),
            ..api_token(&ada, n)
        };
        store.add_api_token(token, None).await.unwrap();
    }
    let ended = EndedAccess {
        revoked_grants: vec!["alone".to_owned()],
        narrowed_grants: vec!["both".to_owned()],
        revoked_tokens: vec!["token-1".to_owned()],
        narrowed_tokens: vec!["token-2".to_owned()],
    };
    let removed = store.remove_cluster(&first.id, at(2)).await.unwrap();
    assert_eq!(removed, Some(ended));
    let left = store.grants(None, 9).await.unwrap();
    let left: Vec<_> = left
        .into_iter()
        .map(|g| (g.id, g.clusters, g.rev))
        .collect();
    let of = |id: &str, clusters, rev| (id.to_owned(), clusters, rev);
    let wanted = [
        of("all", Clusters::All, 1),
        of("both", named(&["us1"]), 2),
        of("labels", labelled, 1),
        of("other", named(&["eu10"]), 1),
    ];
    assert_eq!(left, wanted);
    let tokens = store.api_tokens(None, at(3)).await.unwrap();
    let mut tokens: Vec<_> = tokens
        .into_iter()
        .map(|(t, _)| (t.id, t.clusters))
        .collect();
    tokens.sort();
    let us1 = || Some(["us1".parse().unwrap()].into());
    let wanted = [("token-2".to_owned(), us1()), ("token-3".to_owned(), us1())];
    assert_eq!(tokens, wanted);
    // The next cluster of that name may be granted to; a late second call about the first one ends none of it.
    store.create_cluster(new("eu1"), at(4)).await.unwrap();
    let again = Grant {
        clusters: named(&["eu1"]),
        ..grant("again", "user:ada")
    };
    store.add_grant(again.clone(), None, at(5)).await.unwrap();
    assert_eq!(store.remove_cluster(&first.id, at(6)).await.unwrap(), None);
    assert_eq!(store.grant("again").await.unwrap(), Some(again));
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
    store.revoke_grant(as_made("g1"), at(1)).await.unwrap();
    assert!(exists(add(grant("g2", "user:ada")).await.unwrap_err()));
    assert_eq!(store.grants(None, 9).await.unwrap(), []);
}

/// As many grants as may be in force, all with one end.
macro_rules! many {
    ($id:literal, $end:literal) => {
        concat!(
            "INSERT INTO access_grant (id, subject, clusters, groups, mode, reason, created_by, expires_at, created_at, updated_at)
             WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000)
             SELECT '", $id, "-' || i, 'user:x', '\"all\"', '[\"edit\"]', 'full', '', 'admin', ", $end, ", 0, 0 FROM n"
        )
    };
}

/// Those that are over take no place, and are looked up as long as there is room for them.
async fn ended_grants_leave_room(place: Place) {
    let store = place.open().await;
    let end = at(10_000);
    place.execute(many!("a", "1790000010000")).await;
    let add = async |id: &str, now| {
        let grant = Grant {
            expires_at: None,
            ..grant(id, "user:ada")
        };
        store
            .add_grant(grant, None, now)
            .await
            .map(|grant| grant.id)
    };
    let full = add("g1", end - time::Duration::SECOND).await.unwrap_err();
    assert!(matches!(full, StoreError::Full(_)), "{full}");
    assert_eq!(add("g1", end).await.unwrap(), "g1");
    place.execute(many!("b", "1790000011000")).await;
    let later = end + time::Duration::MINUTE;
    assert_eq!(add("g2", later).await.unwrap(), "g2");
    // The oldest of them made room.
    assert_eq!(store.grant("a-1").await.unwrap(), None);
    assert!(store.grant("b-1").await.unwrap().is_some());
    assert!(store.grant("g1").await.unwrap().is_some());
}

#[tokio::test]
async fn ended_grants_leave_room_in_sqlite() {
    ended_grants_leave_room(Place::file("ended-grants")).await;
}

#[tokio::test]
async fn ended_grants_leave_room_in_postgres() {
    ended_grants_leave_room(Place::server().await).await;
}

pub(super) fn grant(id: &str, subject: &str) -> Grant {
    Grant {
        id: id.to_owned(),
        subject: subject.parse().unwrap(),
        clusters: Clusters::All,
        groups: ["edit".to_owned()].into(),
        act_as: [Subject::Group("dev".to_owned())].into(),
        namespaces: Some(["web".to_owned()].into()),
        mode: Mode::Read,
        expires_at: Some(at(5_000)),
        reason: "T-1: \"why\" – ünïcode".to_owned(),
        created_by: "admin".to_owned(),
        created_at: at(0),
        rev: 1,
    }
}

async fn grants_are_found_by_subject_until_they_are_revoked(store: Store) {
    let key = || Some("call".to_owned());
    let first = store
        .add_grant(grant("g1", "user:ada"), key(), at(0))
        .await
        .unwrap();
    assert_eq!(first, grant("g1", "user:ada"));
    let again = store
        .add_grant(grant("g2", "user:ada"), key(), at(0))
        .await
        .unwrap();
    assert_eq!(again, first);
    let later = Grant {
        expires_at: None,
        namespaces: None,
        ..grant("g3", "group:sre")
    };
    store.add_grant(later.clone(), None, at(0)).await.unwrap();
    let of = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
    let found = store
        .grants_of(&of(&["user:ada", "group:sre", "x'y\""]))
        .await
        .unwrap();
    assert_eq!(found, [first.clone(), later.clone()]);
    assert_eq!(store.grants_of(&[]).await.unwrap(), []);
    assert_eq!(store.grants(Some("g1"), 9).await.unwrap(), [later]);
    assert_eq!(store.next_grant_end(at(1)).await.unwrap(), Some(at(5_000)));
    let ends = join_all((0..4).map(|_| store.revoke_grant(as_made("g1"), at(2)))).await;
    assert_eq!(ends.into_iter().filter(|e| *e.as_ref().unwrap()).count(), 1);
    assert_eq!(store.grant("g1").await.unwrap(), None);
    assert_eq!(store.next_grant_end(at(1)).await.unwrap(), None);
    assert_eq!(store.grants_of(&of(&["user:ada"])).await.unwrap(), []);
}

async fn the_default_grant_comes_once(store: Store) {
    for id in ["g1", "g2"] {
        store
            .ensure_default_grant(grant(id, "user:admin"))
            .await
            .unwrap();
    }
    assert!(store.revoke_grant(as_made("g1"), at(1)).await.unwrap());
    store
        .ensure_default_grant(grant("g3", "user:admin"))
        .await
        .unwrap();
    assert_eq!(store.grants(None, 9).await.unwrap(), []);
}

pub(super) fn pair(n: u8) -> Pair {
    Pair {
        id: format!("pair-{n}"),
        access_hash: [n; 32],
        refresh_hash: [n + 100; 32],
        access_until: at(1_000),
    }
}

pub(super) fn session(user: &UserRow) -> Session {
    Session {
        id: "s1".to_owned(),
        user_id: user.id.clone(),
        sealed: Some(vec![0, 200]),
        asked_at: at(0),
        idle_until: at(100),
        expires_at: at(10_000),
        ended: false,
    }
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

async fn who_gets_a_new_name_keeps_the_grants(store: Store) {
    let arrival = |name: &str| Arrival {
        id: format!("id-{name}"),
        issuer: "https://id.invalid".to_owned(),
        subject: "42".to_owned(),
        name: name.to_owned(),
        groups: ["dev".to_owned()].into(),
    };
    user(&store, "bob", "viewer").await;
    let new = store.arrive(arrival("ada"), at(0)).await.unwrap();
    assert!(matches!(new, Known::User { before: None, .. }));
    store
        .add_grant(grant("g1", "user:ada"), None, at(0))
        .await
        .unwrap();
    let taken = store.arrive(arrival("bob"), at(1)).await.unwrap();
    assert!(matches!(taken, Known::Taken));
    let Known::User { user, before } = store.arrive(arrival("eva"), at(2)).await.unwrap() else {
        panic!("she is known");
    };
    assert_eq!((user.id.as_str(), user.rev), ("id-ada", 2));
    // Vouched for again is no change of the user, and to the hour only.
    let vouched = async |now| {
        let Known::User { user, .. } = store.arrive(arrival("eva"), now).await.unwrap() else {
            panic!("she is known");
        };
        (user.rev, user.provider.unwrap().vouched_at)
    };
    let hour = time::Duration::hours(1);
    assert_eq!(vouched(at(3)).await, (2, at(2)));
    assert_eq!(vouched(at(2) + hour).await, (2, at(2) + hour));
    // A clock that was an hour ahead is right again.
    assert_eq!(vouched(at(4)).await, (2, at(4)));
    assert_eq!(before.unwrap().name, "ada");
    let subject = store.grant("g1").await.unwrap().unwrap().subject;
    assert_eq!(subject, Subject::User("eva".to_owned()));
    let ada = store.user_by_id("id-ada").await.unwrap().unwrap();
    assert_eq!(
        store.remove_user(ada.revision(), at(3)).await.unwrap(),
        Ended::Done
    );
    let gone = store.arrive(arrival("eva"), at(4)).await.unwrap();
    assert!(matches!(gone, Known::Removed));
}

async fn an_ssh_key_has_one_owner(store: Store) {
    let (ada, bob) = (
        user(&store, "ada", "viewer").await,
        user(&store, "bob", "viewer").await,
    );
    let key = |of: &UserRow| SshKey {
        id: format!("key-{}", of.name),
        user_id: of.id.clone(),
        public: KeyPair::from_seed(&[1; 32]).public(),
        title: "laptop".to_owned(),
    };
    let hers = store.add_ssh_key(key(&ada), at(0)).await.unwrap();
    assert_eq!(hers, Some(key(&ada)));
    assert_eq!(store.add_ssh_key(key(&ada), at(1)).await.unwrap(), hers);
    assert_eq!(store.add_ssh_key(key(&bob), at(1)).await.unwrap(), None);
    let print = key(&ada).public.fingerprint();
    let found = store.ssh_key_by_fingerprint(&print).await.unwrap();
    assert_eq!(found, Some((key(&ada), ada.clone())));
    assert_eq!(store.ssh_keys(&bob.id).await.unwrap(), []);
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

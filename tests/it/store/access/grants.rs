//! Grants: how they are found, how they end, and what of them goes with a cluster.

use futures_util::future::join_all;
use linesman::hub::access::{Clusters, Grant};
use linesman::hub::store::{ApiToken, EndedAccess, Store, StoreError};

use super::super::{Place, api_token, at, cluster, new, on_both, user};
use super::{as_made, grant};

on_both! {
    a_removed_clusters_name_comes_back_without_its_grants_and_tokens,
    grants_are_found_by_subject_until_they_are_revoked,
    the_default_grant_comes_once,
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
    let revoke = |_| store.revoke_grant(as_made("g1"), "bob", at(2));
    let ends = join_all((0..4).map(revoke)).await;
    assert_eq!(ends.into_iter().filter(|e| *e.as_ref().unwrap()).count(), 1);
    assert_eq!(store.grant("g1").await.unwrap(), None);
    assert_eq!(store.next_grant_end(at(1)).await.unwrap(), None);
    assert_eq!(store.grants_of(&of(&["user:ada"])).await.unwrap(), []);
    let revoked = Grant {
        revoked_at: Some(at(2)),
        revoked_by: Some("bob".to_owned()),
        rev: 2,
        ..first
    };
    let names = of(&["user:ada", "group:sre"]);
    let told = store.revoked_grants_of(&names, 9).await.unwrap();
    assert_eq!(told, std::slice::from_ref(&revoked));
    let ended = async |after| store.ended_grants(after, 9, at(3)).await.unwrap();
    assert_eq!(ended(None).await, [revoked]);
    assert_eq!(ended(Some("g1")).await, []);
}

async fn the_default_grant_comes_once(store: Store) {
    for id in ["g1", "g2"] {
        store
            .ensure_default_grant(grant(id, "user:admin"))
            .await
            .unwrap();
    }
    let revoked = store.revoke_grant(as_made("g1"), "admin", at(1));
    assert!(revoked.await.unwrap());
    store
        .ensure_default_grant(grant("g3", "user:admin"))
        .await
        .unwrap();
    assert_eq!(store.grants(None, 9).await.unwrap(), []);
}

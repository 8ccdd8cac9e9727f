//! What the hub keeps in memory of the store, to judge requests by.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use linesman::hub::lookups::Lookups;
use linesman::hub::store::{Arrival, Ended, Revision, Store, UserRow};

use super::access::{grant, pair, session};
use super::{Place, api_token, at, cluster, on_both, user};

on_both! {
    what_was_asked_a_moment_ago_is_not_asked_again,
    what_changes_is_never_said_from_memory,
}

/// One of each kind.
struct Asked<'a> {
    store: &'a Store,
    lookups: Lookups,
}

impl Asked<'_> {
    async fn user(&self, id: &str) -> UserRow {
        self.store.user_by_id(id).await.unwrap().unwrap()
    }

    /// What is known now, which is what the database has.
    async fn now(&self) -> String {
        let name = "eu1".parse().unwrap();
        let subjects = ["user:ada", "user:eva", "group:sre"].map(str::to_owned);
        let (known, store) = (&self.lookups, self.store);
        same(
            known.api_token("token-1").await.unwrap().as_deref(),
            store.api_token("token-1").await.unwrap().as_ref(),
        ) + &same(
            known.session_token("pair-1").await.unwrap().as_deref(),
            store.session_token("pair-1").await.unwrap().as_ref(),
        ) + &same(
            known.cluster(&name).await.unwrap().as_deref(),
            store.cluster(&name).await.unwrap().as_ref(),
        ) + &same(
            &*known.grants_of(subjects.to_vec()).await.unwrap(),
            &store.grants_of(&subjects).await.unwrap(),
        )
    }
}

fn same<T: Debug>(known: T, stored: T) -> String {
    let stored = format!("{stored:?}\n");
    assert_eq!(format!("{known:?}\n"), stored);
    stored
}

async fn what_was_asked_a_moment_ago_is_not_asked_again(store: Store) {
    let ada = user(&store, "ada", "viewer").await;
    store.add_api_token(api_token(&ada, 1), None).await.unwrap();
    let lookups = Lookups::new(store.clone());
    let first = lookups.api_token("token-1").await.unwrap().unwrap();
    // What requests write themselves is no reason to ask again.
    store.audit_position("sink").await.unwrap();
    store.set_audit_position("sink", 1).await.unwrap();
    let again = lookups.api_token("token-1").await.unwrap().unwrap();
    assert!(Arc::ptr_eq(&first, &again));
    assert!(lookups.api_token("token-2").await.unwrap().is_none());
    store.add_api_token(api_token(&ada, 2), None).await.unwrap();
    assert!(lookups.api_token("token-2").await.unwrap().is_some());
}

async fn what_changes_is_never_said_from_memory(store: Store) {
    let ada = user(&store, "ada", "viewer").await;
    let eu1 = cluster(&store, "eu1").await;
    store
        .add_session(session(&ada), "192.0.2.1", pair(1), at(0))
        .await
        .unwrap();
    let key = || Some("call".to_owned());
    store
        .add_api_token(api_token(&ada, 1), key())
        .await
        .unwrap();
    let asked = Asked {
        store: &store,
        lookups: Lookups::new(store.clone()),
    };
    let mut before = asked.now().await;
    macro_rules! changes {
        ($($change:expr),* $(,)?) => {
            $(
                $change.await.unwrap();
                let now = asked.now().await;
                assert_ne!(before, now, stringify!($change));
                before = now;
            )*
        };
    }
    let other_groups = UserRow {
        groups: vec!["dev".to_owned()],
        ..ada.clone()
    };
    let arrival = |name: &str| Arrival {
        id: "id-eva".to_owned(),
        issuer: "https://id.invalid".to_owned(),
        subject: "42".to_owned(),
        name: name.to_owned(),
        groups: ["sre".to_owned()].into(),
    };
    store.arrive(arrival("bob"), at(1)).await.unwrap();
    let g2 = Revision { id: "g2", rev: 1 };
    changes!(
        store.add_grant(grant("g1", "user:ada"), None, at(1)),
        store.ensure_default_grant(grant("g2", "group:sre")),
        store.set_user(other_groups, at(2)),
        store.revoke_grant(g2, "admin", at(3)),
    );
    store
        .add_grant(grant("g3", "user:bob"), None, at(3))
        .await
        .unwrap();
    assert_eq!(before, asked.now().await);
    // A new name takes the grants along.
    store.arrive(arrival("eva"), at(4)).await.unwrap();
    let now = asked.now().await;
    assert_ne!(before, now);
    before = now;
    changes!(
        store.add_api_token(api_token(&ada, 2), key()),
        store.revoke_api_token("token-1", at(5)),
        store.rotate("pair-1", pair(2), at(500), at(6)),
        store.asked_provider("s1", None, at(7)),
        store.end_session("s1", "logout", at(8)),
        store.remove_user(asked.user(&ada.id).await.revision(), at(9)),
        store.add_user(ada.clone(), at(10)),
        store.remove_cluster(&eu1.id, at(11)),
    );
    assert!(before.contains("None"), "the cluster is gone");
}

/// Behind the hub's back, such as by hand or by a replica that was not heard.
#[tokio::test]
async fn what_changed_elsewhere_is_seen_a_second_later() {
    let place = Place::file("lookups-elsewhere");
    let store = place.open().await;
    let ada = user(&store, "ada", "viewer").await;
    store.add_api_token(api_token(&ada, 1), None).await.unwrap();
    let lookups = Lookups::new(store.clone());
    let revoked = async || {
        let known = lookups.api_token("token-1").await.unwrap().unwrap();
        known.0.revoked_at.is_some()
    };
    assert!(!revoked().await);
    place.execute("UPDATE api_token SET revoked_at = 1").await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(1)).await;
    tokio::time::resume();
    assert!(revoked().await);
    assert_eq!(
        store.revoke_api_token("token-1", at(1)).await.unwrap(),
        Ended::Unknown
    );
}

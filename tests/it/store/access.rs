//! Users, tokens, sessions, grants, and calls that come twice.

use futures_util::future::join_all;
use linesman::hub::access::{Clusters, Grant, Mode, Subject};
use linesman::hub::store::{
    Arrival, Ended, Known, Pair, Revision, Session, SshKey, Store, StoreError, UserRow,
};
use linesman::keys::KeyPair;

use super::{api_token, at, on_both, user};

mod grants;
mod repeated;
mod sessions;

on_both! {
    of_changes_by_the_same_revision_one_is_made,
    the_last_admin_stays,
    a_removed_name_comes_back_without_what_it_had,
    who_gets_a_new_name_keeps_the_grants,
    a_removed_local_users_name_is_free_for_whom_a_provider_knows,
    an_ssh_key_has_one_owner,
    users_are_looked_up_by_their_ids,
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
    // Nor does whoever has the name now hear of them.
    let own = ["user:ada".to_owned()];
    assert_eq!(store.revoked_grants_of(&own, 9).await.unwrap(), []);
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
        revoked_at: None,
        revoked_by: None,
        reason: "T-1: \"why\" – ünïcode".to_owned(),
        created_by: "admin".to_owned(),
        created_at: at(0),
        rev: 1,
    }
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

/// A page of tokens needs their holders, of however many users there are.
async fn users_are_looked_up_by_their_ids(store: Store) {
    for name in ["ada", "bob", "eve"] {
        user(&store, name, "viewer").await;
    }
    let eve = store.user("eve").await.unwrap().unwrap();
    let removed = store.remove_user(eve.revision(), at(1)).await.unwrap();
    assert_eq!(removed, Ended::Done);
    for (ids, expected) in [
        (&["id-eve", "id-ada", "id-nobody"][..], &["ada", "eve"][..]),
        (&["id-bob", "id-bob"], &["bob"]),
        (&[], &[]),
    ] {
        let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
        let found = store.users_of(&ids).await.unwrap();
        let names: Vec<&str> = found.iter().map(|user| user.name.as_str()).collect();
        assert_eq!(names, expected, "{ids:?}");
    }
    let all = ["id-ada", "id-bob"].map(str::to_owned);
    let users = store.users().await.unwrap();
    assert_eq!(store.users_of(&all).await.unwrap(), users);
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
    for id in ["g1", "g2"] {
        let given = store.add_grant(grant(id, "user:ada"), None, at(0));
        given.await.unwrap();
    }
    let revoked = store.revoke_grant(as_made("g2"), "admin", at(1));
    assert!(revoked.await.unwrap());
    let taken = store.arrive(arrival("bob"), at(1)).await.unwrap();
    assert!(matches!(taken, Known::Taken));
    let renamed = store.arrive(arrival("eva"), at(2)).await.unwrap();
    let Known::User { user, before, .. } = renamed else {
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
    // Whoever has her old name next hears of none that was revoked.
    let revoked = async |name: &str| {
        let told = store.revoked_grants_of(&[format!("user:{name}")], 9).await;
        told.unwrap().into_iter().map(|g| g.id).collect::<Vec<_>>()
    };
    assert_eq!(revoked("ada").await, [""; 0]);
    assert_eq!(revoked("eva").await, ["g2"]);
    let ada = store.user_by_id("id-ada").await.unwrap().unwrap();
    assert_eq!(
        store.remove_user(ada.revision(), at(3)).await.unwrap(),
        Ended::Done
    );
    // Whatever the provider calls her now, the record that keeps her out has that name.
    for name in ["eva", "zoe"] {
        let gone = store.arrive(arrival(name), at(4)).await.unwrap();
        assert!(
            matches!(&gone, Known::Removed { name } if name == "eva"),
            "{gone:?}"
        );
    }
}

/// Local users first, an identity provider later: its people have the names of those whom an admin removes.
async fn a_removed_local_users_name_is_free_for_whom_a_provider_knows(store: Store) {
    let meet = async |subject: &str, name: &str| {
        let arrival = Arrival {
            id: format!("id-{subject}"),
            issuer: "https://id.invalid".to_owned(),
            subject: subject.to_owned(),
            name: name.to_owned(),
            groups: [].into(),
        };
        match store.arrive(arrival, at(9)).await.unwrap() {
            Known::User { user, freed, .. } => {
                let how = if freed { "becomes" } else { "is" };
                format!("{} {how} {}", user.name, user.id)
            }
            Known::Removed { .. } => "removed".to_owned(),
            Known::Taken => "taken".to_owned(),
        }
    };
    assert_eq!(meet("1", "eva").await, "eva is id-1");
    for name in ["ada", "admin", "bob"] {
        let local = user(&store, name, "viewer").await;
        let given = grant(&format!("g-{name}"), &format!("user:{name}"));
        store.add_grant(given, None, at(0)).await.unwrap();
        assert_eq!(meet("2", name).await, "taken");
        let removed = store.remove_user(local.revision(), at(8)).await;
        assert_eq!(removed.unwrap(), Ended::Done);
    }
    assert_eq!(meet("2", "ada").await, "ada becomes id-2");
    assert_eq!(meet("2", "ada").await, "ada is id-2");
    let own = ["user:ada".to_owned()];
    assert_eq!(store.revoked_grants_of(&own, 9).await.unwrap(), []);
    assert_eq!(store.user("ada").await.unwrap().unwrap().roles, [""; 0]);
    // The hub makes its own admin anew, and who had another name would be told of grants that were never theirs.
    assert_eq!(meet("3", "admin").await, "taken");
    assert_eq!(meet("1", "bob").await, "taken");
    // One whom a provider knew stays out, and has the name.
    let ada = store.user("ada").await.unwrap().unwrap();
    let removed = store.remove_user(ada.revision(), at(10)).await;
    assert_eq!(removed.unwrap(), Ended::Done);
    assert_eq!(meet("2", "ada").await, "removed");
    assert_eq!(meet("4", "ada").await, "taken");
}

async fn an_ssh_key_has_one_owner(store: Store) {
    let (ada, bob) = (
        user(&store, "ada", "viewer").await,
        user(&store, "bob", "viewer").await,
    );
    let key = |of: &UserRow, ms| SshKey {
        id: format!("key-{}-{ms}", of.name),
        user_id: of.id.clone(),
        public: KeyPair::from_seed(&[1; 32]).public(),
        title: "laptop".to_owned(),
        created_at: at(ms),
    };
    let hers = store.add_ssh_key(key(&ada, 0)).await.unwrap();
    assert_eq!(hers, Some(key(&ada, 0)));
    assert_eq!(store.add_ssh_key(key(&ada, 1)).await.unwrap(), hers);
    assert_eq!(store.add_ssh_key(key(&bob, 1)).await.unwrap(), None);
    let print = key(&ada, 0).public.fingerprint();
    let found = store.ssh_key_by_fingerprint(&print).await.unwrap();
    assert_eq!(found, Some((key(&ada, 0), ada.clone())));
    let keys = async |of: Option<&str>| store.ssh_keys(of).await.unwrap();
    let listed = [(key(&ada, 0), "ada".to_owned())];
    assert_eq!(keys(None).await, listed);
    assert_eq!(keys(Some(&ada.id)).await, listed);
    assert_eq!(keys(Some(&bob.id)).await, []);
    // Once it is gone, it is whoever's comes first.
    assert!(store.remove_ssh_key("key-ada-0").await.unwrap());
    assert!(!store.remove_ssh_key("key-ada-0").await.unwrap());
    assert_eq!(store.ssh_key_by_fingerprint(&print).await.unwrap(), None);
    let his = store.add_ssh_key(key(&bob, 2)).await.unwrap();
    assert_eq!(his, Some(key(&bob, 2)));
}

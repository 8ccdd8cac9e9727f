//! By what clusters know the hub and what they run: none of it is replaced unasked, and what is replaced is on record.

use std::time::Duration;

use linesman::clock;
use linesman::hub::serve::{CannotStart, renew};
use linesman::hub::store::Noted;
use linesman::hub::{git, start};
use tokio_util::sync::CancellationToken;

use super::support::TestHub;
use crate::wait::until_some;

const PATIENCE: Duration = Duration::from_secs(30);

/// In the place of the catalog a hub made one to start from, and clusters pruned what they ran; another key or CA cut them off.
#[tokio::test]
async fn a_hub_with_clusters_does_not_start_without_its_catalog_its_key_or_its_ca() {
    let hub = TestHub::start("identity-lost").await;
    hub.add("eu1").await;
    let (config, data) = (hub.hub.config.clone(), hub.data().to_owned());
    hub.leave().await;
    let refused = async || {
        let started = start(config.clone(), CancellationToken::new()).await;
        let why = started.err().expect("it is refused");
        why.downcast::<CannotStart>().unwrap()
    };
    let aside = data.join("aside");
    let mounted = "see that the data directory's volume is mounted";
    for (name, first) in [
        ("catalog.git", "restore "),
        ("hub.key", mounted),
        ("ca.crt", "restore "),
    ] {
        let path = data.join(name);
        std::fs::rename(&path, &aside).unwrap();
        let CannotStart { what, next } = refused().await;
        assert!(what.contains(&path.display().to_string()), "{what}");
        assert!(next.starts_with(first), "{next}");
        assert!(!path.exists(), "{name} was made anew");
        std::fs::rename(&aside, &path).unwrap();
    }
    let hub = TestHub::open("identity-lost", data.clone()).await;
    // What the hub commits itself, and what is pushed, is noted at once, and this at the next start.
    hub.add("eu2").await;
    let noted = hub.hub.store.noted(Noted::CatalogHead).await.unwrap();
    let head = git::head(&data.join("catalog.git"), git::BRANCH).await;
    assert_eq!(noted, head.unwrap());
    let branch = data.join("catalog.git/refs/heads/main");
    let older = std::fs::read_to_string(&branch).unwrap();
    let change = git::Change {
        files: [("a.yaml".to_owned(), b"a".to_vec())].into(),
        only_missing: false,
        gone: [].into(),
        author: git::Author::hub(),
        message: "a".to_owned(),
    };
    let repo = data.join("catalog.git");
    let newer = git::commit(&repo, git::BRANCH, change).await.unwrap();
    let hub = hub.restart().await;
    hub.leave().await;
    std::fs::write(&branch, older).unwrap();
    // An older copy has nothing of it.
    let newer = newer.unwrap();
    let (fan, rest) = newer.split_at(2);
    std::fs::remove_file(repo.join("objects").join(fan).join(rest)).unwrap();
    let CannotStart { what, .. } = refused().await;
    assert!(what.contains(&newer), "{what}");
    std::fs::remove_dir_all(data).unwrap();
}

#[tokio::test]
async fn another_key_and_another_ca_are_on_record_as_the_command_prints_them() {
    let hub = TestHub::start("identity-record").await;
    let store = &hub.hub.store;
    until_some("it is noted what was before", PATIENCE, async || {
        let noted = store.noted(Noted::Known).await.unwrap();
        noted.ok_or("nothing yet")
    })
    .await;
    let times = renew::times(clock::now(), time::Duration::minutes(5));
    let key = renew::key(hub.data(), times).await.unwrap();
    let ca = renew::ca(hub.data(), times).await.unwrap();
    let recorded = until_some("both are on record", PATIENCE, async || {
        let rows = store.audit_tail(None, 100).await.unwrap();
        let rows = rows.into_iter().filter(|row| row.action == "hub.rotate");
        let rows: Vec<_> = rows.map(|row| (row.actor, row.target)).collect();
        (rows.len() == 2).then_some(rows).ok_or("not yet")
    })
    .await;
    let told = |what: &str, of: &renew::Renewed| {
        let target = format!("{what} {} -> {}", of.before, of.after);
        ("hub".to_owned(), target)
    };
    assert_eq!(recorded, [told("key", &key), told("ca", &ca)]);
    hub.stop().await;
}

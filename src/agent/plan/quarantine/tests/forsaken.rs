//! What the catalog no longer has, and a person gives back.

use std::slice;

use super::dropped::{in_git, says};
use super::ordered::{NAME, order};
use super::*;
use crate::agent::engine::GIT_OWNER_NAMESPACE;
use crate::agent::plan::ownership;

/// A commit took a controller out of the catalog, which the last snapshot has as Git's. It is held, and works.
fn removed_and_held() -> Cluster {
    let mut cluster = in_git();
    says(&mut cluster, slice::from_ref(&deployment(NAME)));
    fetched(&mut cluster, "main@sha1:2");
    let plan = cluster.plan();
    assert_eq!(writes(&plan), [("hold", NAME)]);
    do_all(&mut cluster, &plan);
    works(&mut cluster);
    cluster.history.faults.clear();
    cluster.now += Duration::seconds(1);
    assert_eq!(writes(&cluster.plan()), [], "nobody said so");
    cluster
}

#[test]
fn what_the_catalog_no_longer_has_is_the_agents_again_by_order() {
    let mut cluster = removed_and_held();
    order(&mut cluster, Duration::ZERO);
    let plan = cluster.plan();
    assert_eq!(writes(&plan), [("reclaim", NAME)]);
    do_all(&mut cluster, &plan);
    let id = deployment(NAME);
    let live = &cluster.objects[&id];
    let labels = [GIT_OWNER, GIT_OWNER_NAMESPACE].map(|name| live.label(name));
    let annotations = [HELD, RECONCILE].map(|name| live.annotation(name));
    assert_eq!([labels, annotations], [[None; 2]; 2]);
    assert!(!is_gits(&cluster), "whatever the snapshot says");
    assert_eq!(writes(&cluster.plan()), []);

    // The next commit may come before the next snapshot.
    begins(&mut cluster);
    assert!(!is_gits(&cluster), "while Flux is at it");
    let plan = cluster.plan();
    let mut writes = writes(&plan).into_iter();
    assert!(writes.all(|(action, _)| action != "hold"));
}

fn is_gits(cluster: &Cluster) -> bool {
    let seen = cluster.observed();
    let install = ownership::taken(&cluster.install, &seen);
    install.wanted[&deployment(NAME)].git_owned
}

/// Flux begins with another commit.
fn begins(cluster: &mut Cluster) {
    let root = cluster.install.sync.clone();
    let root = cluster.objects.get_mut(&root).unwrap();
    root.fields["status"]["lastAttemptedRevision"] = json!("main@sha1:3");
}

/// What Git had in another version than the bundle is not made the bundle's, whoever took the marks off.
#[test]
fn what_git_had_in_another_version_is_not_the_agents_for_want_of_marks() {
    for (image, expected) in [(None, true), (Some("x:v2"), false)] {
        let mut cluster = removed_and_held();
        let id = deployment(NAME);
        let wanted = cluster.install.wanted.get_mut(&id).unwrap();
        let mut expect = Value::clone(&wanted.expect);
        if let Some(image) = image {
            *expect.pointer_mut(IMAGE).unwrap() = json!(image);
        }
        wanted.expect = Arc::new(expect);
        let metadata = &mut cluster.objects.get_mut(&id).unwrap().fields["metadata"];
        metadata["labels"] = json!({});
        metadata["annotations"] = json!({});
        let (seen, wanted) = (cluster.observed(), &cluster.install.wanted[&id]);
        let back = is_back(&cluster.install, &seen, (&id, wanted));
        assert_eq!(back, expected, "{image:?}");
    }
}

/// Flux would have it, or may yet say that it has; and the agent would change what it takes back.
#[test]
fn what_is_not_surely_left_or_is_another_version_is_not_taken_back() {
    let listed = |cluster: &mut Cluster| says(cluster, &[]);
    let another = |cluster: &mut Cluster| {
        let live = cluster.objects.get_mut(&deployment(NAME)).unwrap();
        *live.fields.pointer_mut(IMAGE).unwrap() = json!("x:v2");
    };
    let cases: [&dyn Fn(&mut Cluster); 3] = [&listed, &begins, &another];
    for (case, change) in cases.into_iter().enumerate() {
        let mut cluster = removed_and_held();
        change(&mut cluster);
        order(&mut cluster, Duration::ZERO);
        let plan = cluster.plan();
        let mut writes = writes(&plan).into_iter();
        assert!(writes.all(|(action, _)| action != "reclaim"), "{case}");
        let seen = cluster.observed();
        let id = deployment(NAME);
        assert!(!is_forsaken(&cluster.install, &seen, &id), "{case}");
    }
}

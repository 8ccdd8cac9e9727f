//! What the catalog no longer has, and a person gives back.

use std::slice;

use super::dropped::{in_git, policy, says};
use super::ordered::{NAME, order};
use super::*;
use crate::agent::engine::{GIT_OWNER_NAMESPACE, Install};
use crate::agent::gate::policy::Mending;
use crate::agent::plan::ownership;
use crate::agent::plan::tests::{desired_with, flux_with_helm};
use crate::bundle::Bundle;
use crate::wire::api::EngineKind;

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

/// The same with a policy that the roots do without; both are the agent's again by order, and the snapshot says so.
fn taken_back() -> Cluster {
    let mut cluster = in_git();
    let all = [deployment(NAME), policy()];
    says(&mut cluster, &all);
    fetched(&mut cluster, "main@sha1:2");
    for act in ["hold", "reclaim"] {
        let mut done: Vec<String> = Vec::new();
        for _ in &all {
            let plan = cluster.plan();
            done.extend(writes(&plan).iter().map(|(did, to)| format!("{did} {to}")));
            do_all(&mut cluster, &plan);
            cluster.keep_regained();
        }
        done.sort();
        let expected = ["allow-egress", NAME].map(|name| format!("{act} {name}"));
        assert_eq!(done, expected);
        works(&mut cluster);
        cluster.history.faults.clear();
        cluster.now += Duration::seconds(1);
        order(&mut cluster, Duration::ZERO);
    }
    assert_eq!(writes(&cluster.plan()), []);
    cluster
}

/// W5: nothing of an object that is gone says whose it was, and what the roots do without would be let go.
#[test]
fn what_is_the_agents_again_and_deleted_is_made_as_the_bundle_has_it() {
    for lost in [deployment(NAME), policy()] {
        let mut cluster = taken_back();
        assert!(cluster.objects.remove(&lost).is_some());
        let plan = cluster.plan();
        assert_eq!(writes(&plan), [("create", lost.name.as_str())]);
        do_all(&mut cluster, &plan);
        let live = &cluster.objects[&lost];
        let labels = [GIT_OWNER, GIT_OWNER_NAMESPACE].map(|name| live.label(name));
        assert_eq!((labels, hold(live)), ([None; 2], None), "{lost}");
    }
}

/// What the snapshot had as Git's would be held as the version of before.
#[test]
fn what_is_the_agents_again_goes_with_the_next_version_of_the_bundle() {
    let mut cluster = taken_back();
    let mut desired = desired_with(EngineKind::Flux, flux_with_helm());
    let objects = desired.install.bundle.objects.iter();
    let objects = objects.map(|object| {
        let mut object = object.whole().into_owned();
        if object["kind"] == "Deployment" && object["metadata"]["name"] == NAME {
            *object.pointer_mut(IMAGE).unwrap() = json!("ghcr.io/fluxcd/source-controller:v2");
        }
        object
    });
    let bundle = Bundle::from_objects(objects.collect()).unwrap();
    desired.install.bundle = Arc::new(bundle);
    let (policy, install) = (cluster.install.policy.clone(), &cluster.install);
    let gits = install.wanted.iter().filter(|(_, w)| w.git_owned);
    let gits = gits.map(|(id, _)| (id.clone(), install.body(id).unwrap()));
    cluster.install = Install::new(&desired, &gits.collect(), Some(Mending::default()));
    cluster.install.policy = policy;
    assert_eq!(writes(&cluster.plan()), [("apply", NAME)]);
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
        let seen = cluster.observed();
        let back = regained(&cluster.install, &seen).contains(&id);
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
    // Only what waits for the end of a commit may yet be the agent's.
    let changes: [&dyn Fn(&mut Cluster); 3] = [&listed, &begins, &another];
    let waits = [false, true, false];
    for (case, (change, waits)) in changes.into_iter().zip(waits).enumerate() {
        let mut cluster = removed_and_held();
        change(&mut cluster);
        order(&mut cluster, Duration::ZERO);
        let plan = cluster.plan();
        let mut writes = writes(&plan).into_iter();
        assert!(writes.all(|(action, _)| action != "reclaim"), "{case}");
        let seen = cluster.observed();
        let id = deployment(NAME);
        assert!(!is_forsaken(&cluster.install, &seen, &id), "{case}");
        let may_be = may_be_ours(&cluster.install, &seen, &id);
        assert_eq!(may_be, waits, "{case}");
    }
}

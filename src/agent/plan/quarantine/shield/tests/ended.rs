//! What ends a hold, and what does not.

use super::*;

/// What a person gives back at the hub is given back by the Application, too.
#[test]
fn an_order_gives_back_what_the_root_brought() {
    let mut cluster = owned("linesman");
    let before = root_ignores(&cluster);
    bad_commit(&mut cluster, "linesman", "2");
    let plan = after_a_while(&mut cluster);
    do_all(&mut cluster, &plan);
    works_again(&mut cluster);
    cluster.history.faults.clear();
    assert_eq!(writes(&cluster.plan()), []);
    cluster.now += Duration::seconds(1);
    cluster.install.policy.lift_before = Some(cluster.now);
    let plan = cluster.plan();
    assert_eq!(writes(&plan), [("lift", SERVER), ("shield", "linesman")]);
    do_all(&mut cluster, &plan);
    assert_eq!(root_ignores(&cluster), before);
    assert_eq!(cluster.objects[&server()].annotation(OPTIONS), None);
}

/// W38: without a repo-server, or with Git away, an Application names its branch where the commit was, and would prune
/// all that it brought. That is no commit that mends anything.
#[test]
fn a_catalog_that_cannot_be_read_ends_no_hold() {
    for by in ["linesman", "engine"] {
        let mut cluster = held(by);
        let unreadable = json!({
            "reconciledAt": rfc3339(cluster.now),
            "sync": {"status": "Unknown", "revision": "main"},
            "conditions": [{
                "type": "ComparisonError",
                "message": "Failed to load target state: failed to generate manifest for source 1 of 1",
            }],
            "operationState": {"phase": "Succeeded", "syncResult": {"revision": "2"}},
            "resources": [{
                "group": "apps", "version": "v1", "kind": "Deployment", "namespace": "argocd",
                "name": SERVER, "status": "Unknown", "requiresPruning": true,
            }],
        });
        let id = application(by);
        match cluster.objects.get_mut(&id) {
            Some(root) => root.fields["status"] = unreadable,
            None => cluster.applications.get_mut(&id).unwrap()["status"] = unreadable,
        }
        assert_eq!(writes(&cluster.plan()), [], "{by}");
        cluster.objects.remove(&server());
        assert_eq!(writes(&cluster.plan()), [("create-held", SERVER)], "{by}");
    }
}

/// W17, W20: given back then, it would be broken once more, and held for longer.
#[test]
fn an_operation_of_the_bad_commit_that_still_runs_is_waited_for() {
    for by in ["linesman", "engine"] {
        let mut cluster = held(by);
        let id = application(by);
        let mut says = |phase: &str| {
            let status = json!({
                "reconciledAt": rfc3339(cluster.now), "sync": {"status": "OutOfSync", "revision": "3"},
                "operationState": {"phase": phase, "operation": {"sync": {"revision": "2"}}},
            });
            match cluster.objects.get_mut(&id) {
                Some(root) => root.fields["status"] = status,
                None => cluster.applications.get_mut(&id).unwrap()["status"] = status,
            }
            let plan = cluster.plan();
            let steps = plan.steps.iter().filter(|s| s.target == server());
            steps.map(|s| s.action.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(says("Running"), [] as [&str; 0], "{by}");
        assert_eq!(says("Succeeded"), ["lift"], "{by}");
    }
}

/// A person's way to end a hold: another word in place of ours.
#[test]
fn another_word_on_the_object_ends_its_hold() {
    let mut cluster = held("engine");
    let object = cluster.objects.get_mut(&server()).unwrap();
    object.fields["metadata"]["annotations"][HELD] = json!("over");
    assert_eq!(
        holds(&cluster.install, &cluster.observed()),
        BTreeMap::new()
    );
    let plan = cluster.plan();
    assert_eq!(writes(&plan), [("apply", "linesman")]);
    do_all(&mut cluster, &plan);
    let plan = cluster.plan();
    assert_eq!(writes(&plan), [("shield", "engine"), ("settle", SERVER)]);
    do_all(&mut cluster, &plan);
    assert_eq!(cluster.objects[&server()].annotation(OPTIONS), None);
    assert_eq!(writes(&cluster.plan()), []);
}

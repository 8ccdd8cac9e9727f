//! For which commit a root is held, and which one gives it back.

use super::*;
use crate::agent::plan::quarantine::shield::HOLDS;
use crate::clock::parse_rfc3339;

/// F28, W18: the next commit that was looked at where the hub says, and not where the bad one led.
#[test]
fn a_root_is_given_back_by_the_next_commit_of_its_own_catalog() {
    let mut cluster = brought_by(ROOT);
    let before = ignores(root(&cluster));
    bad_commit(&mut cluster, ROOT, "2");
    let held = [("shield", ROOT), ("hold", ROOT), ("apply", ROOT)];
    assert_eq!(writes(&cluster.plan()), held);
    do_all(&mut cluster);
    let live = &cluster.objects[&application(ROOT)];
    assert_eq!(hold(live).unwrap().revision, "2", "not the one before");
    assert_eq!(
        ignores(root(&cluster)),
        [before.clone(), vec![of_root()]].concat()
    );
    let mut lifts = |revision, elsewhere| {
        looked_at(&mut cluster, ROOT, revision, elsewhere);
        !writes(&cluster.plan()).is_empty()
    };
    assert!(!lifts("2", None), "the same commit");
    assert!(!lifts("e", Some("ssh://git@elsewhere.test/c.git")));
    assert!(lifts("3", None));
    for (phase, done, lifted) in [
        ("Succeeded", "2", false),
        ("Running", "3", false),
        ("Failed", "3", true),
    ] {
        looked_at(&mut cluster, ROOT, "3", None);
        let live = cluster.objects.get_mut(&application(ROOT)).unwrap();
        live.fields["status"]["sync"]["status"] = json!("OutOfSync");
        live.fields["status"]["operationState"] = json!({"phase": phase, "operation": {"sync": {"revision": done}}, "syncResult": {"revision": done}});
        let lifts = cluster
            .plan()
            .steps
            .iter()
            .any(|s| s.action.as_str() == "lift");
        assert_eq!(lifts, lifted, "{phase} {done}");
    }

    let pruned = json!([{
        "group": "argoproj.io", "version": "v1alpha1", "kind": "Application", "namespace": "argocd",
        "name": ROOT, "status": "OutOfSync", "requiresPruning": true,
    }]);
    let live = cluster.objects.get_mut(&application(ROOT)).unwrap();
    live.fields["status"]["resources"] = pruned;
    assert_eq!(writes(&cluster.plan()), [], "it would be pruned");
    looked_at(&mut cluster, ROOT, "3", None);
    assert_eq!(writes(&cluster.plan()), [("lift", ROOT), ("shield", ROOT)]);
    do_all(&mut cluster);
    let live = &cluster.objects[&application(ROOT)];
    assert_eq!(
        (live.annotation(OPTIONS), live.annotation(HOLDS)),
        (None, None)
    );
    assert!(!is_held(&cluster));
    assert_eq!(ignores(root(&cluster)), before);
    assert_eq!(writes(&cluster.plan()), []);

    // It still has it so: held again, for longer.
    cluster.now += Duration::seconds(30);
    bad_commit(&mut cluster, ROOT, "3");
    assert_eq!(writes(&cluster.plan()), held);
    do_all(&mut cluster);
    assert_eq!(
        hold(&cluster.objects[&application(ROOT)]).unwrap().attempt,
        2
    );
}

/// F28, W18: while nothing is told of the operation that wrote the root, the commit before is all that there is to name. The
/// hold would end with the next look, and the root would be broken a second time.
#[test]
fn a_root_is_held_for_the_commit_that_rewrote_it_and_not_for_the_one_before() {
    let before = |cluster: &Cluster| {
        let ended = rfc3339(cluster.now - Duration::seconds(3));
        json!({"phase": "Succeeded", "finishedAt": ended, "syncResult": {"revision": "1"}})
    };
    let silent = |forgotten: bool| {
        let mut cluster = brought_by(ROOT);
        let (pointer, value, _) = rewrites().into_iter().next().unwrap();
        applies(&mut cluster, pointer, &value);
        let operation = if forgotten {
            Value::Null
        } else {
            before(&cluster)
        };
        let root = cluster.objects.get_mut(&application(ROOT)).unwrap();
        root.fields["status"]["operationState"] = operation;
        cluster
    };
    let steps = [("shield", ROOT), ("hold", ROOT), ("apply", ROOT)];
    for forgotten in [true, false] {
        let mut cluster = silent(forgotten);
        assert_eq!(writes(&cluster.plan()), []);
        bad_commit(&mut cluster, ROOT, "2");
        let plan = cluster.plan();
        assert_eq!(plan.findings[0].commit, "2");
        assert_eq!(writes(&plan), steps);

        for seconds in [5, -5] {
            let mut cluster = silent(forgotten);
            cluster.now += Duration::seconds(seconds);
            assert_eq!(writes(&cluster.plan()), steps, "{seconds} s");
        }
    }
    // An operation mostly ends within the second of its last write.
    let mut cluster = silent(false);
    let ended = rfc3339(cluster.now);
    let root = cluster.objects.get_mut(&application(ROOT)).unwrap();
    root.written = parse_rfc3339(&ended);
    root.fields["status"]["operationState"]["finishedAt"] = json!(ended);
    assert_eq!(writes(&cluster.plan()), steps);
}

//! A root that a person stopped, and of which something else is mended (F29).

use super::*;
use crate::agent::plan::argocd::suspended;

/// F28, F29: who stops the root and alters it, or has it altered by somebody else, is not overruled with what is put back: what he
/// holds back would be delivered.
#[test]
fn a_stopped_root_of_which_something_else_is_mended_stays_stopped() {
    let commit = "0123456789abcdef0123456789abcdef01234567";
    for (what, stop, mended) in [
        ("/spec/syncPolicy", Value::Null, vec!["apply"]),
        ("/spec/syncPolicy/automated", Value::Null, vec![]),
        (
            "/spec/syncPolicy/automated",
            json!({"enabled": false}),
            vec![],
        ),
        ("/spec/source/targetRevision", json!(commit), vec![]),
    ] {
        for (altered, mend) in [
            (None, mended),
            (Some(("path", json!("elsewhere"))), vec!["apply"]),
            (
                Some(("sources", json!([{"repoURL": "elsewhere"}]))),
                vec!["replace"],
            ),
        ] {
            let mut cluster = working();
            let root = cluster.install.sync.clone();
            let live = cluster.objects.get_mut(&root).unwrap();
            *live.fields.pointer_mut(what).unwrap() = stop.clone();
            match altered {
                Some(("path", other)) => live.fields["spec"]["source"]["path"] = other,
                Some((field, other)) => live.fields["spec"][field] = other,
                None => {}
            }
            "kubectl-patch".clone_into(&mut live.writer);
            let plan = cluster.round();
            let done = remedies(&plan).into_iter();
            let done: Vec<&str> = done.map(|(_, action, _)| action).collect();
            assert_eq!(done, mend, "{what}");
            let live = &cluster.objects[&root];
            assert!(suspended(live).is_some());
            let classes: Vec<Class> = cluster.plan().findings.iter().map(|f| f.class).collect();
            assert_eq!(classes, [Class::SuspendedByHuman], "{what} {mend:?}");
        }
    }
}

/// F28: of a root that somebody emptied nothing says what it is to deliver, and that is put back as a whole.
#[test]
fn an_emptied_root_is_no_stopped_one() {
    let mut cluster = working();
    let root = cluster.install.sync.clone();
    let live = cluster.objects.get_mut(&root).unwrap();
    live.fields["spec"] = json!({});
    "kubectl-replace".clone_into(&mut live.writer);
    cluster.round();
    let live = &cluster.objects[&root];
    assert_eq!((suspended(live), cluster.plan().findings), (None, vec![]));
}

/// F23, F29: with a root goes what stopped it, and made again without that it would deliver what somebody holds back.
#[test]
fn a_stopped_root_that_is_made_again_stays_stopped() {
    let commit = "0123456789abcdef0123456789abcdef01234567";
    for (engine, source, what, stop) in [
        (EngineKind::Flux, true, "/spec/suspend", json!(true)),
        (EngineKind::Flux, false, "/spec/suspend", json!(true)),
        (
            EngineKind::Argocd,
            true,
            "/spec/source/targetRevision",
            json!(commit),
        ),
    ] {
        let mut cluster = Cluster::working_of(engine);
        let (fetches, applies) = (cluster.install.source.clone(), cluster.install.sync.clone());
        let root = if source { fetches } else { applies };
        let asked = cluster.objects[&root].fields.pointer(what).cloned();
        let set = |cluster: &mut Cluster, value: &Value| {
            let live = cluster.objects.get_mut(&root).unwrap();
            live.fields["spec"]["suspend"] = Value::Null;
            *live.fields.pointer_mut(what).unwrap() = value.clone();
            "kubectl-patch".clone_into(&mut live.writer);
        };
        set(&mut cluster, &stop);
        // The one that finds it, and the next one.
        cluster.round();
        cluster.round();
        cluster.objects.remove(&root);
        let made = cluster.round();
        assert!(remedies(&made).contains(&(Class::RootDeleted, "create", root.name.as_str())));
        let of_root = |cluster: &Cluster| cluster.objects[&root].fields.pointer(what).cloned();
        assert_eq!(of_root(&cluster), Some(stop.clone()), "{root}");
        let found = |cluster: &Cluster| -> Vec<Class> {
            cluster.plan().findings.iter().map(|f| f.class).collect()
        };
        assert_eq!(found(&cluster), [Class::SuspendedByHuman], "{root}");
        // One that was set going again is made so.
        set(&mut cluster, &asked.clone().unwrap_or_default());
        cluster.round();
        cluster.round();
        cluster.now += Duration::seconds(10);
        cluster.objects.remove(&root);
        cluster.round();
        assert_eq!(of_root(&cluster), asked, "{root}");
        assert_eq!(found(&cluster), [], "{root}");
    }
}

/// F29: to take a field away leaves no mark, and that it was the agent who wrote the root last is no sign that it stopped it.
#[test]
fn a_stop_of_which_nothing_tells_is_not_called_the_agents() {
    let mut cluster = working();
    let root = cluster.install.sync.clone();
    let live = cluster.objects.get_mut(&root).unwrap();
    live.fields["spec"]["syncPolicy"]["automated"] = Value::Null;
    assert_eq!(live.writer, "linesman");
    let plan = cluster.plan();
    let told: Vec<&str> = plan.findings.iter().map(|f| f.evidence.as_str()).collect();
    let text = "spec.syncPolicy.automated is off; by whom is on no record";
    assert_eq!(told, [text]);
}

/// Else what the Application said before a hold would be told of what is held, or stopped.
#[test]
fn what_the_root_is_wanted_as_is_known_however_often_it_was_replaced() {
    let install = install_of(EngineKind::Argocd);
    let (root, base) = (&install.sync, install.base(&install.sync));
    assert!(base.is_some());
    let held = install.with(root, json!({"spec": {"ignoreDifferences": []}}));
    let stopped = held.with(root, json!({"spec": {}}));
    assert_eq!([held.base(root), stopped.base(root)], [base; 2]);
}

/// F29, F51: windows for syncs are whose they are. While one keeps the root from a commit that is told, for Argo CD says nothing of it.
#[test]
fn a_window_that_keeps_the_root_from_a_commit_is_told_and_stays() {
    let project = id(Kind::AppProject, "default");
    let window = |of: &str| json!({"kind": "deny", "schedule": "0 22 * * *", "duration": "9h", "applications": [of]});
    let says = "keeps the root from commit 2: syncWindows has deny at '0 22 * * *' for 9h";
    for (of, head, phase, prunes, is_told) in [
        ("*", "2", "Succeeded", true, true),
        ("shop", "2", "Succeeded", true, false),
        // It is at that commit, or about to be.
        ("*", "1", "Succeeded", true, false),
        ("*", "2", "Running", true, false),
        // It may be behind for what it does not prune.
        ("*", "2", "Succeeded", false, false),
    ] {
        let mut cluster = working();
        let root = cluster.install.sync.clone();
        let live = cluster.objects.get_mut(&root).unwrap();
        live.fields["spec"]["syncPolicy"]["automated"]["prune"] = json!(prunes);
        let live = cluster.objects.get_mut(&project).unwrap();
        live.fields["spec"]["syncWindows"] = json!([window(of)]);
        "kubectl-edit".clone_into(&mut live.writer);
        cluster.says(&json!({
            "sync": {"status": "OutOfSync", "revision": head},
            "operationState": {"phase": phase, "syncResult": {"revision": "1"}},
        }));
        let plan = cluster.plan();
        let stops = plan.findings.iter();
        let stops = stops.filter(|f| f.class == Class::SuspendedByHuman);
        let found: Vec<(&ObjectId, &str, &str)> = stops
            .map(|f| (&f.object, f.evidence.as_str(), f.writer.as_str()))
            .collect();
        let told = is_told.then_some((&project, says, "kubectl-edit"));
        assert_eq!(found, Vec::from_iter(told), "{of} {head} {phase}");
        if prunes {
            assert_eq!(remedies(&plan), []);
        }
    }
}

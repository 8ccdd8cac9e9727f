//! Argo CD's controller of `ApplicationSet`s.

use super::*;
use crate::agent::engine::argocd::{APPLICATIONSETS, PARAMS, PROBED_AT, REFRESH_SET};
use crate::agent::plan::diagnosis::{Moment, components};
use crate::agent::plan::tests::{argocd, desired_with, install_for};
use crate::wire::api::EngineKind;

/// One that may be asked, and was not.
fn unasked() -> Witness {
    Witness {
        fit: true,
        ..Witness::default()
    }
}

fn controller() -> ObjectId {
    ObjectId::new(Kind::Deployment, "argocd", APPLICATIONSETS)
}

fn set(name: &str) -> ObjectId {
    ObjectId::new(Kind::ApplicationSet, "argocd", name)
}

/// Argo CD with that controller, for so long that its Pod has had the time to answer.
fn with_sets() -> Cluster {
    let mut objects = argocd();
    objects.extend([
        (Kind::ServiceAccount, APPLICATIONSETS),
        (Kind::Deployment, APPLICATIONSETS),
    ]);
    let desired = desired_with(EngineKind::Argocd, objects);
    let mut cluster = Cluster::working_with(install_for(&desired));
    cluster.now += Duration::hours(1);
    cluster
}

fn seen(cluster: &Cluster, all: &[(&str, Witness)]) -> Observed {
    let all = all.iter().map(|(name, one)| (set(name), *one));
    Observed {
        witnesses: all.collect(),
        ..cluster.observed()
    }
}

/// Those that are asked now.
fn asks(cluster: &Cluster, all: &[(&str, Witness)]) -> Vec<ObjectId> {
    let observed = seen(cluster, all);
    let (steps, _) = probes(cluster.now, &cluster.install, &observed, &cluster.history);
    steps.into_iter().map(|step| step.target).collect()
}

/// Those that are not answered for.
fn unanswered_for(cluster: &Cluster, all: &[(&str, Witness)]) -> Vec<(Class, ObjectId)> {
    let (observed, mut found) = (seen(cluster, all), Vec::new());
    silent(cluster.now, &cluster.install, &observed, &mut found);
    found.into_iter().map(|f| (f.class, f.object)).collect()
}

/// F12: it has neither a probe of the kubelet's nor a Lease, and stays available when it hangs.
#[test]
fn a_controller_of_applicationsets_that_does_not_answer_is_restarted() {
    let cluster = with_sets();
    let now = cluster.now;
    assert_eq!(
        asks(&cluster, &[("a", unasked()), ("b", unasked())]),
        [set("a")]
    );
    assert_eq!(asks(&cluster, &[("a", Witness::default())]), []);
    assert_eq!(asks(&cluster, &[]), []);
    for (ago, wedged) in [(330, false), (331, true)] {
        let observed = seen(&cluster, &[("a", asked(now, SECOND * ago, false))]);
        let plan = plan(now, &cluster.install, &observed, &cluster.history);
        let found = plan.findings.iter().map(|f| (f.class, f.object.clone()));
        let found = found.filter(|(class, _)| *class == Class::QueueWedged);
        let restarts = plan.steps.iter().filter(|s| s.action.as_str() == "restart");
        let restarts = restarts.map(|step| step.target.clone());
        let (found, restarts): (Vec<_>, Vec<_>) = (found.collect(), restarts.collect());
        if wedged {
            assert_eq!(found, [(Class::QueueWedged, set("a"))]);
            assert_eq!(restarts, [controller()]);
        } else {
            assert_eq!((found, restarts), (vec![], vec![]));
        }
    }
}

/// Who is busy with others comes to this one in its turn; and what fetches from a host that is away takes its whole time.
#[test]
fn one_that_is_busy_with_other_sets_is_left_alone() {
    let mut cluster = with_sets();
    let now = cluster.now;
    let after = |ago: i32| asked(now, SECOND * ago, false);
    let beside = |served: Option<i32>, takes: i64| Witness {
        served: served.map(|ago| now - SECOND * ago),
        takes: Duration::minutes(takes),
        ..unasked()
    };
    for (ago, other, wedged) in [
        (331, beside(None, 0), true),
        (331, beside(Some(330), 0), false),
        (331, beside(Some(331), 0), true),
        // Ten minutes, a minute, and the turns of both.
        (667, beside(None, 10), false),
        (668, beside(None, 10), true),
    ] {
        let found = unanswered_for(&cluster, &[("a", after(ago)), ("b", other)]);
        let expected = (Class::QueueWedged, set("a"));
        let expected: Vec<_> = wedged.then_some(expected).into_iter().collect();
        assert_eq!(found, expected, "{ago} {other:?}");
    }
    let of_git = Witness {
        takes: Duration::minutes(3),
        ..after(400)
    };
    assert_eq!(unanswered_for(&cluster, &[("a", of_git)]).len(), 1);
    let root = cluster.install.source.clone();
    cluster.objects.get_mut(&root).unwrap().fields["status"]["conditions"] = json!([{
        "type": "ComparisonError", "message": "dial tcp 192.0.2.1:22: i/o timeout",
    }]);
    assert_eq!(unanswered_for(&cluster, &[("a", of_git)]), []);
    assert_eq!(unanswered_for(&cluster, &[("a", after(400))]).len(), 1);
}

/// In a dry run it takes no question away.
#[test]
fn one_that_was_told_to_change_nothing_is_not_asked() {
    const ARGS: &str = "/spec/template/spec/containers/0/args";
    let name = "ARGOCD_APPLICATIONSET_CONTROLLER_DRY_RUN";
    for (what, args, env, param, dry) in [
        ("nothing", json!([]), json!("false"), json!("false"), false),
        (
            "argument",
            json!(["--dry-run"]),
            json!(null),
            json!(null),
            true,
        ),
        (
            "another",
            json!(["--dry-run=false"]),
            json!(null),
            json!(null),
            false,
        ),
        ("environment", json!([]), json!("True"), json!(null), true),
        ("setting", json!([]), json!(null), json!("true"), true),
    ] {
        let mut cluster = with_sets();
        let live = cluster.objects.get_mut(&controller()).unwrap();
        *live.fields.pointer_mut(ARGS).unwrap() = args;
        let container = &mut live.fields["spec"]["template"]["spec"]["containers"][0];
        container["env"] = json!([{"name": name, "value": env}]);
        let params = ObjectId::new(Kind::ConfigMap, "argocd", PARAMS);
        let params = cluster.objects.get_mut(&params).unwrap();
        params.fields["data"]["applicationsetcontroller.dryrun"] = param;
        assert_eq!(
            asks(&cluster, &[("a", unasked())]).is_empty(),
            dry,
            "{what}"
        );
        let late = asked(cluster.now, SECOND * 400, false);
        let found = unanswered_for(&cluster, &[("a", late)]);
        assert_eq!(found.is_empty(), dry, "{what}");
    }
}

/// A diagnosis says why nothing is known of it but its Pod.
#[test]
fn a_diagnosis_says_why_no_applicationset_is_asked() {
    let said = |cluster: &Cluster, all: &[(&str, Witness)]| {
        let observed = seen(cluster, all);
        let plan = plan(cluster.now, &cluster.install, &observed, &cluster.history);
        let rows = components(&Moment {
            now: cluster.now,
            install: &cluster.install,
            observed: &observed,
            history: &cluster.history,
            plan: &plan,
            snapshot: None,
        });
        let name = format!("{APPLICATIONSETS} asked with ApplicationSet");
        let row = rows.into_iter().find(|row| row.name == name);
        row.unwrap().found
    };
    let mut cluster = with_sets();
    let none = "there is no ApplicationSet to ask it with: its Pod is all that is known of it";
    assert_eq!(said(&cluster, &[]), none);
    let unfit = "none of 1 may be asked: not well, written over by an answer, made from what is neither in the cluster nor in Git, or \
                 looked at more seldom than every 10 min";
    assert_eq!(said(&cluster, &[("a", Witness::default())]), unfit);
    let params = ObjectId::new(Kind::ConfigMap, "argocd", PARAMS);
    let params = cluster.objects.get_mut(&params).unwrap();
    params.fields["data"]["applicationsetcontroller.dryrun"] = json!("true");
    let dry = format!(
        "not asked: {} was told to change nothing (--dry-run)",
        controller()
    );
    assert_eq!(said(&cluster, &[("a", unasked())]), dry);
}

fn live(generators: &Value, conditions: &Value) -> DynamicObject {
    let live = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet",
        "metadata": {"name": "a", "namespace": "argocd"},
        "spec": {"generators": generators}, "status": {"conditions": conditions},
    });
    serde_json::from_value(live).unwrap()
}

/// The generators as their controller writes them.
fn written(generators: &Value) -> Value {
    let mut all = generators.clone();
    for generator in all.as_array_mut().unwrap() {
        let parts = generator.as_object_mut().unwrap().iter_mut();
        for (name, said) in parts.filter(|(name, _)| *name != "selector") {
            said["template"] = json!({"metadata": {}, "spec": {"destination": {}, "project": ""}});
            match name.as_str() {
                "clusters" => said["selector"] = json!({}),
                "clusterDecisionResource" => said["labelSelector"] = json!({}),
                "matrix" | "merge" => said["generators"] = written(&said["generators"]),
                _ => {}
            }
        }
    }
    all
}

fn read(live: &DynamicObject) -> Witness {
    Witness::of(Kind::ApplicationSet, live)
}

/// What its controller says of one that came to its end.
fn done() -> Value {
    json!([
        {"type": "ErrorOccurred", "status": "False"},
        {"type": "ResourcesUpToDate", "status": "True"},
    ])
}

/// A look asks whom the set is made from: nobody is asked that would not be within minutes.
#[test]
fn only_a_set_is_asked_that_looks_often_and_in_the_cluster_or_in_git() {
    let git = |every: i64| json!({"git": {"requeueAfterSeconds": every}});
    let (list, of_git) = (json!({"list": {}}), json!({"git": {}}));
    let nested = json!({"matrix": {"generators": [of_git, of_git]}});
    for (generators, fit, takes) in [
        (json!([list]), true, 0),
        (json!([{"clusters": {}, "selector": {"git": {}}}]), true, 0),
        (json!([{"clusterDecisionResource": {}}]), true, 0),
        (json!([of_git]), true, 3),
        (json!([git(600)]), true, 3),
        (json!([git(601)]), false, 3),
        (json!([git(0)]), false, 3),
        (json!([{"merge": {"generators": [list, nested]}}]), true, 6),
        (json!([list, {"scmProvider": {}}]), false, 10),
        (json!([{"pullRequest": {}}, of_git]), false, 13),
        (
            json!([{"matrix": {"generators": [list, {"plugin": {}}]}}]),
            false,
            10,
        ),
    ] {
        let said = read(&live(&written(&generators), &done()));
        let takes = Duration::minutes(takes);
        assert_eq!((said.fit, said.takes), (fit, takes), "{generators}");
    }
}

/// Of one whose looks fail it cannot be told whether there was another one.
#[test]
fn only_a_set_is_asked_whose_last_look_came_to_its_end() {
    let says = |kind: &str, status: &str| json!({"type": kind, "status": status});
    let (error, done_with) = ("ErrorOccurred", "ResourcesUpToDate");
    for (conditions, fit) in [
        (done(), true),
        (json!([]), false),
        (json!([says(done_with, "True")]), true),
        (json!([says(error, "False")]), false),
        (json!([says(error, "True"), says(done_with, "True")]), false),
        (
            json!([says(error, "True"), says(done_with, "False")]),
            false,
        ),
    ] {
        let mut set = live(&written(&json!([{"list": {}}])), &conditions);
        assert_eq!(read(&set).fit, fit, "{conditions}");
        set.metadata.deletion_timestamp =
            serde_json::from_value(json!("2027-01-15T08:00:00Z")).unwrap();
        assert!(!read(&set).fit);
    }
}

/// Its controller writes all of the set with an answer. An Application that brings the set would set that back each time.
#[test]
fn only_a_set_is_asked_that_an_answer_leaves_as_it_is() {
    let (list, git) = (json!({"list": {}}), json!({"git": {}}));
    let matrix = json!({"matrix": {"generators": [list, git]}});
    let bare = |name: &str| {
        let mut all = written(&json!([{name: {}}]));
        all[0][name].as_object_mut().unwrap().remove("template");
        all
    };
    let mut inside = written(&json!([matrix]));
    inside[0]["matrix"]["generators"][1] = git;
    let deeper = json!([{"merge": {"generators": [matrix]}}]);
    let mut kept = written(&deeper);
    kept[0]["merge"]["generators"][0] = matrix.clone();
    for (generators, fit) in [
        (written(&json!([list, matrix])), true),
        (bare("list"), false),
        (bare("clusters"), false),
        (json!([{"clusters": {"template": {}}}]), false),
        (inside, false),
        (written(&deeper), true),
        // What is in two others is not written anew.
        (kept, true),
    ] {
        assert_eq!(read(&live(&generators, &done())).fit, fit, "{generators}");
    }
    let generators = written(&json!([{"list": {"elements": [{"on": false}]}}]));
    for (template, fit) in [
        (
            json!({"project": "", "syncPolicy": {"automated": {"prune": true}}}),
            true,
        ),
        (json!({"helm": {"valuesObject": {"on": false}}}), true),
        (
            json!({"syncPolicy": {"automated": {"prune": false}}}),
            false,
        ),
        (json!({"destination": {"namespace": ""}}), false),
        (json!({"sources": [{"path": "a"}, {"path": ""}]}), false),
        (json!({"sources": []}), false),
        (json!({"revisionHistoryLimit": 0}), false),
        (json!({"source": null}), false),
    ] {
        let mut set = live(&generators, &done());
        set.data["spec"]["template"] = json!({"spec": template});
        assert_eq!(read(&set).fit, fit, "{template}");
        // Somebody else has asked: it is written over all the same.
        let asked = [(REFRESH_SET.to_owned(), "true".to_owned())];
        set.metadata.annotations = Some(asked.into());
        assert!(read(&set).fit, "{template}");
    }
}

/// By itself its controller looks at all of them when it starts.
#[test]
fn a_controller_of_many_sets_has_the_time_to_look_at_all_of_them() {
    let cluster = with_sets();
    let waits = |listed: u16, fetching: u16, more: bool| {
        let takes = |n| if n < fetching { 3 } else { 0 };
        let all = (0..listed + fetching).map(|n| {
            let takes = Duration::minutes(takes(n));
            (set(&n.to_string()), Witness { takes, ..unasked() })
        });
        let mut observed = Observed {
            witnesses: all.collect(),
            ..cluster.observed()
        };
        let crowd = more.then(|| (Kind::ApplicationSet, Crowd::default()));
        observed.crowds.extend(crowd);
        patience(&cluster.install, &observed, Kind::ApplicationSet).whole_seconds()
    };
    assert_eq!(waits(1, 0, false), 330);
    assert_eq!(waits(1000, 0, false), 1000 + 60);
    assert_eq!(waits(0, 100, false), 180 + 600 + 60);
    assert_eq!(waits(1, 1000, false), 1800 + 60);
    assert_eq!(waits(1, 0, true), 1800 + 60);
}

/// Its controller takes away the question and leaves the time. A webhook asks in the same way, and says no time.
#[test]
fn the_answer_is_that_the_question_is_gone() {
    const ASKED: &str = "2027-01-15T08:00:00Z";
    const LATER: &str = "2027-01-15T08:04:00Z";
    let (none, time): (&[&str], &[&str]) = (&[], &[PROBED_AT]);
    let (ours, theirs): (&[&str], &[&str]) = (&[REFRESH_SET, PROBED_AT], &[REFRESH_SET]);
    for (what, carries, writers, expected) in [
        ("not asked", none, vec![], None),
        ("answered", time, vec![time], Some((ASKED, true))),
        ("not answered", ours, vec![ours], Some((ASKED, false))),
        (
            "a webhook's, later",
            ours,
            vec![time, theirs],
            Some((LATER, false)),
        ),
        (
            "a webhook's alone",
            theirs,
            vec![theirs],
            Some((LATER, false)),
        ),
        ("nobody's", ours, vec![], Some((ASKED, false))),
    ] {
        let mut set = live(&json!([]), &done());
        let annotations = carries.iter().map(|name| {
            let value = if *name == PROBED_AT { ASKED } else { "true" };
            ((*name).to_owned(), value.to_owned())
        });
        set.metadata.annotations = Some(annotations.collect());
        let entries = writers.iter().map(|names| {
            let names = names.iter().map(|name| (format!("f:{name}"), json!({})));
            let names: serde_json::Map<String, Value> = names.collect();
            json!({
                "manager": "m", "operation": "Update", "time": LATER, "fieldsType": "FieldsV1",
                "fieldsV1": {"f:metadata": {"f:annotations": names}},
            })
        });
        let entries = serde_json::from_value(entries.collect()).unwrap();
        set.metadata.managed_fields = Some(entries);
        let expected = expected.map(|(at, answered)| Probe {
            sent: parse_rfc3339(at).unwrap(),
            answered,
        });
        assert_eq!(read(&set).probe, expected, "{what}");
    }
}

/// It writes only what is new.
#[test]
fn what_its_controller_said_last_shows_that_it_works() {
    let at = |minute: u8| format!("2027-01-15T08:0{minute}:00Z");
    let mut set = live(
        &json!([]),
        &json!([
            {"type": "ErrorOccurred", "lastTransitionTime": at(1)},
            {"type": "ResourcesUpToDate", "lastTransitionTime": at(2)},
        ]),
    );
    assert_eq!(read(&set).served, parse_rfc3339(&at(2)));
    set.data["status"]["applicationStatus"] = json!([
        {"application": "a", "lastTransitionTime": at(3)},
        {"application": "b"},
    ]);
    assert_eq!(read(&set).served, parse_rfc3339(&at(3)));
}

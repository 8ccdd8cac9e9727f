//! Argo CD's controller of `ApplicationSet`s.

use super::*;
use crate::agent::engine::argocd::{APPLICATIONSETS, CANARY, PARAMS};
use crate::agent::engine::{MANAGER, Site, extras};
use crate::agent::plan::diagnosis::{Moment, components};
use crate::agent::plan::tests::{argocd, desired_with, install_for, install_of};
use crate::manifests::EngineNamespaces;
use crate::wire::api::{Component, EngineKind, Verdict};

mod read;

/// Ours, which may be asked, and was not.
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

/// Argo CD with that controller.
fn just_working() -> Cluster {
    let mut objects = argocd();
    objects.extend([
        (Kind::ServiceAccount, APPLICATIONSETS),
        (Kind::Deployment, APPLICATIONSETS),
    ]);
    let desired = desired_with(EngineKind::Argocd, objects);
    Cluster::working_with(install_for(&desired))
}

/// The same for so long that its Pod has had the time to answer.
fn with_sets() -> Cluster {
    let mut cluster = just_working();
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
    let others = ("a", Witness::default());
    assert_eq!(
        asks(&cluster, &[others, (CANARY, unasked())]),
        [set(CANARY)]
    );
    assert_eq!(asks(&cluster, &[others]), []);
    assert_eq!(asks(&cluster, &[]), []);
    for (ago, wedged) in [(90, false), (91, true)] {
        let observed = seen(&cluster, &[(CANARY, asked(now, SECOND * ago, false))]);
        let plan = plan(now, &cluster.install, &observed, &cluster.history);
        let found = plan.findings.iter().map(|f| (f.class, f.object.clone()));
        let found = found.filter(|(class, _)| *class == Class::QueueWedged);
        let restarts = plan.steps.iter().filter(|s| s.action.as_str() == "restart");
        let restarts = restarts.map(|step| step.target.clone());
        let (found, restarts): (Vec<_>, Vec<_>) = (found.collect(), restarts.collect());
        if wedged {
            assert_eq!(found, [(Class::QueueWedged, set(CANARY))]);
            assert_eq!(restarts, [controller()]);
        } else {
            assert_eq!((found, restarts), (vec![], vec![]));
        }
    }
}

/// What it is asked with is in no catalog: it is made with Argo CD where that has the controller, and goes with it. Nothing is made of
/// it, and with its answer nothing of it changes.
#[test]
fn it_is_asked_with_a_set_of_nothing_that_goes_with_argo_cd() {
    let cluster = just_working();
    let body = cluster.install.body(&set(CANARY)).unwrap();
    assert_eq!(body["spec"]["generators"], json!([]));
    let project = ObjectId::new(Kind::AppProject, "argocd", CANARY);
    assert_eq!(body["spec"]["template"]["spec"]["project"], json!(CANARY));
    assert!(!cluster.install.wanted.contains_key(&project));
    assert_eq!(cluster.objects[&set(CANARY)].fields["spec"], body["spec"]);
    let site = Site::of(EngineKind::Argocd, &EngineNamespaces::default());
    assert!(extras(&site).contains(&set(CANARY)));
    let without = install_of(EngineKind::Argocd);
    assert!(!without.wanted.contains_key(&set(CANARY)));
    let crd = ObjectId::crd_of(Kind::ApplicationSet);
    let mut objects = argocd();
    objects.retain(|(_, name)| *name != crd.name);
    objects.push((Kind::Deployment, APPLICATIONSETS));
    let without = install_for(&desired_with(EngineKind::Argocd, objects));
    assert!(!without.wanted.contains_key(&set(CANARY)));
}

/// Somebody tidied up, or made use of it.
#[test]
fn ours_is_as_before_again_where_it_is_gone_or_another() {
    let mut cluster = just_working();
    let known = cluster.objects[&set(CANARY)].fields["spec"].clone();
    cluster.objects.remove(&set(CANARY));
    let found = cluster.plan().findings;
    let found: Vec<_> = found.iter().map(|f| (f.class, &f.object)).collect();
    assert_eq!(found, [(Class::ObjectMissing, &set(CANARY))]);
    cluster.settle(100);
    assert_eq!(cluster.objects[&set(CANARY)].writer, MANAGER);
    let live = cluster.objects.get_mut(&set(CANARY)).unwrap();
    live.fields["spec"]["generators"] = json!([{"list": {"elements": [{"a": "b"}]}}]);
    live.generation += 1;
    cluster.settle(100);
    assert_eq!(cluster.objects[&set(CANARY)].fields["spec"], known);
}

/// While fewer than it has workers for are there beside ours, nothing that they take keeps it from that.
#[test]
fn one_that_is_busy_with_other_sets_is_left_alone() {
    let cluster = with_sets();
    let now = cluster.now;
    let beside = |served: Option<i32>, takes: i64| Witness {
        served: served.map(|ago| now - SECOND * ago),
        takes: Duration::minutes(takes),
        ..Witness::default()
    };
    let names: Vec<String> = (0..10).map(|n| n.to_string()).collect();
    for (ago, many, other, wedged) in [
        (90, 9, beside(None, 10), false),
        (91, 9, beside(None, 10), true),
        (91, 9, beside(Some(90), 10), false),
        (91, 9, beside(Some(91), 10), true),
        (330, 10, beside(None, 0), false),
        (331, 10, beside(None, 0), true),
        (331, 10, beside(Some(330), 0), false),
        (331, 10, beside(Some(331), 0), true),
        // Ten minutes, a minute, and the turns of all.
        (721, 10, beside(None, 10), false),
        (722, 10, beside(None, 10), true),
    ] {
        let mut all: Vec<(&str, Witness)> = names[..many]
            .iter()
            .map(|name| (name.as_str(), other))
            .collect();
        all.push((CANARY, asked(now, SECOND * ago, false)));
        let found = unanswered_for(&cluster, &all);
        let expected = (Class::QueueWedged, set(CANARY));
        let expected: Vec<_> = wedged.then_some(expected).into_iter().collect();
        assert_eq!(found, expected, "{ago} {many} {other:?}");
    }
}

/// Nothing is fetched for ours, so that a Git host which is away is no excuse.
#[test]
fn where_the_git_host_is_away_it_answers_for_ours_all_the_same() {
    let mut cluster = with_sets();
    let late = asked(cluster.now, SECOND * 91, false);
    let root = cluster.install.source.clone();
    cluster.objects.get_mut(&root).unwrap().fields["status"]["conditions"] = json!([{
        "type": "ComparisonError", "message": "dial tcp 192.0.2.1:22: i/o timeout",
    }]);
    let expected = [(Class::QueueWedged, set(CANARY))];
    assert_eq!(unanswered_for(&cluster, &[(CANARY, late)]), expected);
}

/// With fewer workers, or sets elsewhere that nobody here knows of, ours may have to wait.
#[test]
fn one_that_was_told_how_much_to_do_has_longer() {
    const ARGS: &str = "/spec/template/spec/containers/0/args";
    let from_map = json!({"configMapKeyRef": {"name": PARAMS, "key": "x", "optional": true}});
    let env = |place: &str, said: Value| json!([{"name": "ARGOCD_APPLICATIONSET_CONTROLLER_NAMESPACES", place: said}]);
    let key = "applicationsetcontroller.concurrent.reconciliations.max";
    for (args, env, params, limit) in [
        (json!([]), json!(null), json!({}), 90),
        (json!([]), env("valueFrom", from_map), json!({key: ""}), 90),
        (
            json!(["--concurrent-reconciliations=1"]),
            json!(null),
            json!({}),
            330,
        ),
        (
            json!(["--applicationset-namespaces", "*"]),
            json!(null),
            json!({}),
            330,
        ),
        (json!([]), env("value", json!("apps")), json!({}), 330),
        (json!([]), json!(null), json!({key: "1"}), 330),
    ] {
        let mut cluster = with_sets();
        let live = cluster.objects.get_mut(&controller()).unwrap();
        *live.fields.pointer_mut(ARGS).unwrap() = args.clone();
        live.fields["spec"]["template"]["spec"]["containers"][0]["env"] = env.clone();
        let map = ObjectId::new(Kind::ConfigMap, "argocd", PARAMS);
        cluster.objects.get_mut(&map).unwrap().fields["data"] = params.clone();
        let observed = seen(&cluster, &[(CANARY, unasked())]);
        let waits = patience(&cluster.install, &observed, Kind::ApplicationSet);
        assert_eq!(waits, SECOND * limit, "{args} {env} {params}");
    }
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
            asks(&cluster, &[(CANARY, unasked())]).is_empty(),
            dry,
            "{what}"
        );
        let late = asked(cluster.now, SECOND * 400, false);
        let found = unanswered_for(&cluster, &[(CANARY, late)]);
        assert_eq!(found.is_empty(), dry, "{what}");
    }
}

/// A diagnosis says what became of the last question, or why there is none.
#[test]
fn a_diagnosis_says_how_ours_fares() {
    let row = |cluster: &Cluster, all: &[(&str, Witness)]| -> Component {
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
        let mut of = rows.into_iter().filter(|row| row.name == name);
        let row = of.next().unwrap();
        assert!(of.next().is_none());
        row
    };
    let mut cluster = with_sets();
    let ours = set(CANARY);
    let said = |cluster: &Cluster, all: &[(&str, Witness)]| {
        let row = row(cluster, all);
        (row.ok(), row.found)
    };
    let unseen = format!("{ours} was not asked yet");
    assert_eq!(said(&cluster, &[]), (true, unseen.clone()));
    assert_eq!(said(&cluster, &[(CANARY, unasked())]), (true, unseen));
    let failed =
        format!("not asked: the last look at {ours} failed, see its condition ErrorOccurred");
    assert_eq!(
        said(&cluster, &[(CANARY, Witness::default())]),
        (true, failed)
    );
    let late = row(
        &cluster,
        &[(CANARY, asked(cluster.now, SECOND * 91, false))],
    );
    assert_eq!((late.works, late.fresh), (Verdict::No, Verdict::No));
    assert!(late.found.starts_with("F12 QueueWedged: "), "{late:?}");
    let live = cluster.objects.remove(&ours).unwrap();
    let gone = row(&cluster, &[]);
    assert_eq!(gone.exists, Verdict::No, "{gone:?}");
    assert_eq!(gone.found, format!("1 of 1 missing: {ours}"));
    cluster.objects.insert(ours, live);
    let params = ObjectId::new(Kind::ConfigMap, "argocd", PARAMS);
    let params = cluster.objects.get_mut(&params).unwrap();
    params.fields["data"]["applicationsetcontroller.dryrun"] = json!("true");
    let dry = format!(
        "not asked: {} was told to change nothing (--dry-run)",
        controller()
    );
    assert_eq!(said(&cluster, &[(CANARY, unasked())]), (true, dry));
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
    assert_eq!(waits(1, 0, false), 90);
    assert_eq!(waits(5, 5, false), 90);
    assert_eq!(waits(11, 0, false), 330);
    assert_eq!(waits(1000, 0, false), 1000 + 60);
    assert_eq!(waits(0, 100, false), 180 + 600 + 60);
    assert_eq!(waits(1, 1000, false), 1800 + 60);
    assert_eq!(waits(1, 0, true), 1800 + 60);
}

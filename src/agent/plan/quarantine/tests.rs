use std::sync::Arc;

use serde_json::{Value, json};

use super::harm::{UNANSWERED, WINDOW};
use super::*;
use crate::agent::engine::{GIT_OWNER, MANAGER as OURS, REQUESTED_AT, is_workload};
use crate::agent::plan::tests::{Cluster, deployment};
use crate::agent::plan::{Class, Plan, Pod};
use crate::bundle::Kind;

mod again;
mod ahead;
mod below;
mod dropped;
mod forsaken;
mod lifted;
mod looked;
mod needed;
mod ordered;
mod pruned;
mod removed;

/// A working cluster whose controllers stand in Git.
fn owned() -> Cluster {
    let mut cluster = Cluster::working();
    for (id, wanted) in &mut cluster.install.wanted {
        wanted.git_owned = is_workload(id.kind);
    }
    cluster.now += Duration::seconds(30);
    cluster
}

/// The controllers are up, and have answered what they were asked.
fn works(cluster: &mut Cluster) {
    for (id, object) in &mut cluster.objects {
        if is_workload(id.kind) {
            object.fields["status"] =
                json!({"observedGeneration": 99, "availableReplicas": 1, "updatedReplicas": 1});
        }
        if let Some(asked) = object.annotation(REQUESTED_AT).map(str::to_owned) {
            object.fields["status"]["lastHandledReconcileAt"] = json!(asked);
        }
    }
}

/// Git's new version of a controller, as Flux applies it.
fn commit(cluster: &mut Cluster, revision: &str, name: &str, field: &str, value: Value) {
    let now = cluster.now;
    let applier = cluster.install.traits.applier;
    let object = cluster.objects.get_mut(&deployment(name)).unwrap();
    *object.fields.pointer_mut(field).unwrap() = value;
    object.generation += 1;
    applier.clone_into(&mut object.writer);
    object.written = Some(now);
    fetched(cluster, revision);
}

fn fetched(cluster: &mut Cluster, revision: &str) {
    for root in [cluster.install.source.clone(), cluster.install.sync.clone()] {
        let status = &mut cluster.objects.get_mut(&root).unwrap().fields["status"];
        status["artifact"]["revision"] = json!(revision);
        status["lastAppliedRevision"] = json!(revision);
        status["lastAttemptedRevision"] = json!(revision);
    }
}

const IMAGE: &str = "/spec/template/spec/containers/0/image";
const ARGS: &str = "/spec/template/spec/containers/0/args";

fn pod_waits(cluster: &mut Cluster, name: &str, reason: &str) {
    let pod = Pod {
        app: name.to_owned(),
        waiting: Some((reason.to_owned(), "no such tag".to_owned())),
        image: "bad:0".to_owned(),
        ..Pod::default()
    };
    cluster.pods.insert(name.to_owned(), pod);
}

/// Plans now, and again when what was found is old enough.
fn after_a_while(cluster: &mut Cluster) -> Plan {
    let plan = cluster.plan();
    cluster.history.saw(cluster.now, &plan);
    cluster.now += Duration::seconds(11);
    cluster.plan()
}

fn writes(plan: &Plan) -> Vec<(&str, &str)> {
    let steps = plan.steps.iter().filter(|s| s.action != Action::Nudge);
    steps
        .map(|s| (s.action.as_str(), s.target.name.as_str()))
        .collect()
}

fn do_all(cluster: &mut Cluster, plan: &Plan) {
    for step in &plan.steps {
        cluster.act(step);
    }
}

fn is_held(cluster: &Cluster, id: &ObjectId) -> bool {
    holds(&cluster.install, &cluster.observed()).contains_key(id)
}

/// F48, W22: left alone for ten minutes, or for as long as the commit itself gives the new version.
#[test]
fn an_upgrade_by_git_is_left_alone_until_it_is_stuck() {
    let minutes = Duration::minutes;
    for (deadline, window) in [
        (None, WINDOW),
        (Some(60), WINDOW),
        (Some(600), WINDOW),
        (Some(1_800), minutes(30)),
        (Some(-1), WINDOW),
    ] {
        let mut cluster = owned();
        commit(
            &mut cluster,
            "main@sha1:2",
            "source-controller",
            IMAGE,
            json!("x:v2"),
        );
        let object = cluster
            .objects
            .get_mut(&deployment("source-controller"))
            .unwrap();
        object.fields["status"] = json!({"observedGeneration": 99});
        if let Some(deadline) = deadline {
            object.fields["spec"]["progressDeadlineSeconds"] = json!(deadline);
        }
        cluster.now += window - minutes(1);
        assert_eq!(writes(&after_a_while(&mut cluster)), [], "{deadline:?}");
        cluster.now += minutes(1);
        let plan = after_a_while(&mut cluster);
        assert_eq!(
            writes(&plan),
            [
                ("hold", "source-controller"),
                ("apply", "source-controller")
            ],
            "{deadline:?}"
        );
        assert_eq!(plan.findings[0].class, Class::EngineUpgradeStuck);
        assert!(
            plan.findings[0].evidence.starts_with(&format!(
                "has not come up for {} min",
                window.whole_minutes()
            )),
            "{}",
            plan.findings[0].evidence
        );
    }
}

/// W17
#[test]
fn a_commit_whose_image_cannot_be_pulled_is_held_and_undone() {
    let mut cluster = owned();
    commit(
        &mut cluster,
        "main@sha1:2",
        "source-controller",
        IMAGE,
        json!("bad:0"),
    );
    let id = deployment("source-controller");
    cluster.objects.get_mut(&id).unwrap().fields["status"] = json!({"observedGeneration": 99});
    assert_eq!(
        writes(&cluster.plan()),
        [],
        "nothing shows that it does harm"
    );
    pod_waits(&mut cluster, "source-controller", "ErrImagePull");
    let plan = after_a_while(&mut cluster);
    assert_eq!(plan.findings[0].class, Class::BadEngineCommit);
    assert_eq!(plan.findings[0].writer, "kustomize-controller");
    assert_eq!(
        plan.findings[0].evidence,
        "ErrImagePull: no such tag (bad:0); commit main@sha1:2 changed /spec/template/spec/containers/manager/image"
    );
    assert_eq!(
        writes(&plan),
        [
            ("hold", "source-controller"),
            ("apply", "source-controller")
        ]
    );
    do_all(&mut cluster, &plan);
    let live = &cluster.objects[&id];
    assert!(is_held(&cluster, &id));
    assert_eq!(
        hold(live).unwrap(),
        Hold {
            revision: "main@sha1:2".to_owned(),
            since: rfc3339(cluster.now),
            reason: plan.findings[0].evidence.clone(),
            attempt: 1,
            lifted: None,
            order: None,
            removal: false,
        }
    );
    assert_eq!(live.writer, OURS);
}

/// W18
#[test]
fn a_commit_that_scales_to_zero_or_deafens_a_controller_is_held() {
    let mut cluster = owned();
    let two = "main@sha1:2";
    commit(
        &mut cluster,
        two,
        "kustomize-controller",
        "/spec/replicas",
        json!(0),
    );
    let plan = after_a_while(&mut cluster);
    let expected = [
        ("hold", "kustomize-controller"),
        ("apply", "kustomize-controller"),
    ];
    assert_eq!(writes(&plan), expected);

    let mut cluster = owned();
    let deaf = json!(["--watch-label-selector=none"]);
    commit(&mut cluster, two, "kustomize-controller", ARGS, deaf);
    works(&mut cluster);
    let asked = |cluster: &Cluster| {
        let plan = cluster.plan();
        plan.steps.iter().any(|s| s.action == Action::Nudge)
    };
    assert!(asked(&cluster), "a change of the engine is a reason to ask");
    let sync = cluster.install.sync.clone();
    let now = cluster.now + Duration::seconds(1);
    let root = cluster.objects.get_mut(&sync).unwrap();
    root.fields["metadata"]["annotations"][REQUESTED_AT] = json!(rfc3339(now));
    cluster.now += UNANSWERED;
    assert_eq!(writes(&cluster.plan()), []);
    cluster.now += Duration::seconds(2);
    assert_eq!(writes(&after_a_while(&mut cluster)), expected);
}

/// W17, W20
#[test]
fn the_next_commit_lifts_a_hold_and_a_second_bad_one_makes_it_longer() {
    let mut cluster = owned();
    let id = deployment("source-controller");
    let name = "source-controller";
    commit(
        &mut cluster,
        "main@sha1:2",
        name,
        "/spec/replicas",
        json!(0),
    );
    let plan = after_a_while(&mut cluster);
    do_all(&mut cluster, &plan);
    cluster.history.faults.clear();
    works(&mut cluster);
    assert_eq!(
        writes(&cluster.plan()),
        [],
        "held while the catalog stands still"
    );
    fetched(&mut cluster, "main@sha1:3");
    let plan = cluster.plan();
    assert_eq!(writes(&plan), [("lift", name)]);
    assert_eq!(
        plan.steps[1].target, cluster.install.sync,
        "Flux applies at once"
    );
    do_all(&mut cluster, &plan);
    assert!(!is_held(&cluster, &id));
    works(&mut cluster);

    commit(
        &mut cluster,
        "main@sha1:4",
        name,
        "/spec/replicas",
        json!(0),
    );
    let plan = after_a_while(&mut cluster);
    assert_eq!(writes(&plan), [("hold", name), ("apply", name)]);
    do_all(&mut cluster, &plan);
    cluster.history.faults.clear();
    works(&mut cluster);
    assert_eq!(hold(&cluster.objects[&id]).unwrap().attempt, 2);
    fetched(&mut cluster, "main@sha1:5");
    assert_eq!(writes(&cluster.plan()), [], "later than the first time");
    cluster.now += PROBATION;
    cluster.history.last_write = None;
    let plan = cluster.plan();
    assert_eq!(writes(&plan), [("lift", name)]);
    do_all(&mut cluster, &plan);
    works(&mut cluster);
    cluster.now += PROBATION;
    let plan = cluster.plan();
    assert_eq!(writes(&plan), [("settle", name)]);
    do_all(&mut cluster, &plan);
    assert_eq!(hold(&cluster.objects[&id]), None);
}

#[test]
fn a_persons_own_annotation_is_no_hold_of_ours() {
    let mut cluster = owned();
    let id = deployment("source-controller");
    let object = cluster.objects.get_mut(&id).unwrap();
    object.fields["metadata"]["annotations"] = json!({RECONCILE: "disabled"});
    fetched(&mut cluster, "main@sha1:9");
    assert_eq!(writes(&cluster.plan()), []);
    for junk in ["", "{}", "[1]", r#"{"attempt": -1}"#] {
        let object = cluster.objects.get_mut(&id).unwrap();
        object.fields["metadata"]["annotations"] = json!({RECONCILE: "disabled", HELD: junk});
        assert_eq!(hold(object), None, "{junk}");
    }
}

/// W18: what was asked while the new Pod came up may have been answered by the old one.
#[test]
fn a_changed_controller_is_asked_again_when_its_new_pod_is_there() {
    let mut cluster = owned();
    let deaf = json!(["--watch-label-selector=none"]);
    commit(
        &mut cluster,
        "main@sha1:2",
        "kustomize-controller",
        ARGS,
        deaf,
    );
    let asked = rfc3339(cluster.now + Duration::seconds(1));
    for root in [cluster.install.source.clone(), cluster.install.sync.clone()] {
        let root = cluster.objects.get_mut(&root).unwrap();
        root.fields["metadata"]["annotations"][REQUESTED_AT] = json!(asked);
    }
    works(&mut cluster);
    let asks = |cluster: &Cluster| {
        let plan = cluster.plan();
        plan.steps.iter().any(|s| s.action == Action::Nudge)
    };
    cluster.now += Duration::seconds(10);
    assert!(!asks(&cluster));
    assert!(cluster.plan().next_look <= cluster.now + Duration::seconds(5));
    cluster.now += Duration::seconds(10);
    assert!(asks(&cluster));
}

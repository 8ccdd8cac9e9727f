use time::Duration;

use super::*;
use crate::agent::plan::tests::{Cluster, source};
use crate::agent::plan::{Action, Plan};
use crate::bundle::{Kind, ObjectId};

fn evicted(cluster: &Cluster) -> Pod {
    Pod {
        uid: "old".to_owned(),
        app: "source-controller".to_owned(),
        created: Some(cluster.now - Duration::hours(1)),
        failed: Some("Evicted: The node was low on resource: memory".to_owned()),
        ..Pod::default()
    }
}

fn later(cluster: &mut Cluster, seconds: i64) -> Plan {
    let plan = cluster.plan();
    cluster.history.saw(cluster.now, &plan);
    cluster.now += Duration::seconds(seconds);
    cluster.plan()
}

/// F37: the engine works, and what a kubelet evicted is in everybody's way.
#[test]
fn a_failed_pod_that_nobody_removes_is_dropped() {
    let mut cluster = Cluster::working();
    let failed = evicted(&cluster);
    cluster.pods.insert("old".to_owned(), failed);
    let plan = later(&mut cluster, 25);
    let text = "1 of its Pods failed and were left there: old: Evicted: The node was low on resource: memory";
    assert_eq!(
        plan.findings,
        [Finding::new(Class::Unschedulable, &source(), text)]
    );
    let steps: Vec<_> = plan
        .steps
        .into_iter()
        .map(|s| (s.action, s.target))
        .collect();
    assert_eq!(steps, [(Action::DropFailed, source())]);
}

/// Its age is not the engine's: older than its ServiceAccount, and long without an answer.
#[test]
fn a_failed_pod_is_no_pod_of_the_controller() {
    let mut cluster = Cluster::working();
    let failed = evicted(&cluster);
    cluster.pods.insert("old".to_owned(), failed);
    let classes: Vec<_> = cluster.plan().findings.iter().map(|f| f.class).collect();
    assert_eq!(classes, [Class::Unschedulable]);
}

/// F37: what no node takes stays reported; only what failed is dropped.
#[test]
fn a_pod_that_no_node_takes_is_left_to_people() {
    let mut cluster = Cluster::working();
    let live = cluster.objects.get_mut(&source()).unwrap();
    live.fields["status"]["availableReplicas"] = 0.into();
    let pod = cluster.pods.get_mut("source-controller").unwrap();
    pod.unschedulable = Some("0/3 nodes are available".to_owned());
    let plan = later(&mut cluster, 25);
    let mut expected = Finding::new(Class::Unschedulable, &source(), "0/3 nodes are available");
    expected.reported = true;
    assert_eq!(
        (&plan.findings[..], &plan.steps[..]),
        (&[expected][..], &[][..])
    );

    let failed = evicted(&cluster);
    cluster.pods.insert("old".to_owned(), failed);
    let plan = later(&mut cluster, 25);
    let actions: Vec<_> = plan.steps.into_iter().map(|s| s.action).collect();
    assert_eq!(actions, [Action::DropFailed]);
    assert_eq!(plan.findings.len(), 1);
    assert!(
        plan.findings[0]
            .evidence
            .starts_with("0/3 nodes are available; 1 of")
    );
}

/// F37: a fault of another controller, or another fault of this one, goes on to say what it says.
#[test]
fn what_failed_is_told_with_no_fault_but_that_no_node_takes_the_next_pod() {
    let mut cluster = Cluster::working();
    let failed = evicted(&cluster);
    cluster.pods.insert("old".to_owned(), failed);
    let other = ObjectId::new(Kind::Deployment, "flux-system", "kustomize-controller");
    let before = [
        Finding::new(Class::Unschedulable, &other, "no node"),
        Finding::new(Class::CrashLoop, &source(), "ends"),
    ];
    let mut found = before.to_vec();
    left(&cluster.install, &cluster.observed(), &mut found);
    let text = "1 of its Pods failed and were left there: old: Evicted: The node was low on resource: memory";
    let [first, second] = before;
    let third = Finding::new(Class::Unschedulable, &source(), text);
    assert_eq!(found, [first, second, third]);
}

/// F37: each of two controllers has its own.
#[test]
fn what_failed_of_a_controller_is_not_told_with_what_no_node_takes_of_another() {
    let mut cluster = Cluster::working();
    let other = ObjectId::new(Kind::Deployment, "flux-system", "kustomize-controller");
    let live = cluster.objects.get_mut(&other).unwrap();
    live.fields["status"]["availableReplicas"] = 0.into();
    let pod = cluster.pods.get_mut("kustomize-controller").unwrap();
    pod.unschedulable = Some("0/3 nodes are available".to_owned());
    let failed = evicted(&cluster);
    cluster.pods.insert("old".to_owned(), failed);
    let mut waits = Finding::new(Class::Unschedulable, &other, "0/3 nodes are available");
    waits.reported = true;
    let text = "1 of its Pods failed and were left there: old: Evicted: The node was low on resource: memory";
    let left = Finding::new(Class::Unschedulable, &source(), text);
    assert_eq!(cluster.plan().findings, [waits, left]);
}

/// The node evicts again and again: three an hour, then one.
#[test]
fn failed_pods_are_dropped_within_the_budget() {
    let mut cluster = Cluster::working();
    for _ in 0..400 {
        let failed = evicted(&cluster);
        cluster.pods.insert("old".to_owned(), failed);
        cluster.round();
        if cluster.now - crate::agent::plan::tests::start() > Duration::minutes(50) {
            break;
        }
    }
    let dropped = cluster.steps.iter();
    let dropped = dropped.filter(|(_, s)| s.action == Action::DropFailed);
    assert_eq!(dropped.count(), 3);
}

use serde_json::json;

use super::*;
use crate::agent::plan::history::Outcome;
use crate::agent::plan::tests::{Cluster, deployment};
use crate::agent::plan::{Class, MAINTENANCE, Mode, plan};
use crate::clock::rfc3339;

const SECOND: Duration = Duration::SECOND;

/// A cluster in which the API server takes no Pods of this controller.
fn refusing(name: &str) -> Cluster {
    let mut cluster = Cluster::working();
    let live = cluster.objects.get_mut(&deployment(name)).unwrap();
    live.fields["status"] = json!({"conditions": [{
        "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate",
        "message": "Internal error occurred: failed calling webhook \"pods.nobody.test\"",
    }]});
    cluster.pods.retain(|_, pod| pod.app != name);
    cluster
}

/// Goes on for so many seconds and returns when what was asked; a dry run passes from `taken` on.
fn asked(cluster: &mut Cluster, seconds: i64, taken: i64) -> Vec<i64> {
    let (began, mut asked) = (cluster.now, Vec::new());
    for second in 0..seconds {
        cluster.now = began + SECOND * i32::try_from(second).unwrap();
        let observed = cluster.observed();
        let plan = plan(cluster.now, &cluster.install, &observed, &cluster.history);
        assert_eq!(plan.mode, Mode::Act);
        cluster.history.saw(cluster.now, &plan);
        for step in plan.steps.iter().filter(|s| s.action == Action::Retry) {
            assert_eq!(step.target, deployment("source-controller"));
            let outcome = if second < taken {
                Outcome::Unchanged
            } else {
                Outcome::Done
            };
            cluster
                .history
                .acted(cluster.now, step, &outcome, &observed);
            asked.push(second);
        }
    }
    asked
}

/// W16: what the API server takes again is known within ten seconds, however long it took none.
#[test]
fn a_dry_run_is_asked_for_every_ten_seconds() {
    let mut cluster = refusing("source-controller");
    let every = (1..60).map(|n| n * 10).collect::<Vec<i64>>();
    assert_eq!(asked(&mut cluster, 600, 600), every);
    assert!(cluster.history.retried.is_empty());
    assert_eq!(cluster.history.last_write, None, "nothing was written");
}

/// W16: at most five attempts in an hour, should the webhook take in a dry run what it refuses otherwise.
#[test]
fn kubernetes_is_made_to_look_five_times_in_an_hour() {
    let mut cluster = refusing("source-controller");
    let seen = asked(&mut cluster, 3700, 25);
    assert_eq!(seen, [10, 20, 30, 60, 150, 420, 1230, 3630]);
}

/// A controller that was scaled down, works, or was only just found without a Pod is not asked for.
#[test]
fn only_a_controller_that_is_refused_its_pods_is_asked_for() {
    let mut cluster = Cluster::working();
    assert_eq!(asked(&mut cluster, 60, 60), [0_i64; 0]);
    let mut cluster = refusing("source-controller");
    let id = deployment("source-controller");
    let live = cluster.objects.get_mut(&id).unwrap();
    live.fields["spec"]["replicas"] = json!(0);
    let live = &cluster.objects[&id];
    assert!(!waits(&id, live, &cluster.observed()));
}

/// W24: to have Kubernetes look is to write to the controller.
#[test]
fn a_controller_with_a_window_of_its_own_is_not_asked_for_until_that_is_over() {
    let mut cluster = refusing("source-controller");
    let until = rfc3339(cluster.now + Duration::MINUTE);
    let id = deployment("source-controller");
    let live = cluster.objects.get_mut(&id).unwrap();
    live.fields["metadata"]["annotations"][MAINTENANCE] = json!(until);
    assert_eq!(asked(&mut cluster, 80, 80), [60, 70]);
}

/// A Deployment says that its Pods are refused; a StatefulSet does not, and lacks one where all Pods are known and none is its.
#[test]
fn a_stateful_set_waits_while_none_of_all_pods_is_its() {
    let cluster = Cluster::working();
    let name = "source-controller";
    let mut live = cluster.objects[&deployment(name)].clone();
    live.fields["status"] = json!({});
    for (kind, has_pod, cut, expected) in [
        (Kind::StatefulSet, false, false, true),
        (Kind::StatefulSet, false, true, false),
        (Kind::StatefulSet, true, false, false),
        (Kind::Deployment, false, false, false),
    ] {
        let mut observed = cluster.observed();
        observed.pods_cut = cut;
        observed.pods.retain(|_, pod| has_pod || pod.app != name);
        let id = ObjectId::new(kind, "flux-system", name);
        let said = waits(&id, &live, &observed);
        assert_eq!(said, expected, "{kind:?} {has_pod} {cut}");
    }
}

/// W16: as soon as the next question is due, and no sooner; of one that was asked in another episode nothing is due before that.
#[test]
fn what_is_not_due_yet_is_looked_at_when_it_is() {
    let mut cluster = refusing("source-controller");
    let began = cluster.now;
    cluster.history.saw(began, &cluster.plan());
    let observed = cluster.observed();
    for before in [None, Some(Duration::minutes(20))] {
        let mut history = cluster.history.clone();
        let asked = before.map(|ago| (deployment("source-controller"), began - ago));
        history.nudged.extend(asked);
        let said = |seconds: i32| {
            let now = began + SECOND * seconds;
            let (steps, next) = asks(now, &cluster.install, &observed, &history);
            (steps.len(), next.map(|at| at - began))
        };
        let expected = [
            (0, Some(SPACING)),
            (0, Some(SPACING)),
            (1, Some(SPACING * 2)),
        ];
        assert_eq!([0, 9, 10].map(said), expected, "{before:?}");
    }
}

/// W16: a Deployment has said by then why it has no Pod, a StatefulSet says it with the answer alone. Within half a minute both are called.
#[test]
fn a_stateful_set_is_asked_for_sooner_and_then_as_often() {
    let now = Cluster::working().now;
    let at = |seconds: i32| now + SECOND * seconds;
    for (kind, asked, next) in [
        (Kind::Deployment, None, 10),
        (Kind::StatefulSet, None, 5),
        // In another episode.
        (Kind::StatefulSet, Some(-60), 5),
        (Kind::StatefulSet, Some(5), 15),
    ] {
        let id = ObjectId::new(kind, "flux-system", "source-controller");
        let mut history = History::default();
        let past = history.faults.entry((Class::NotAvailable, id.clone()));
        past.or_default().since = Some(now);
        let nudged = asked.map(|asked| (id.clone(), at(asked)));
        history.nudged.extend(nudged);
        assert_eq!(
            due(now, &history, &id),
            Some(at(next)),
            "{kind:?} {asked:?}"
        );
    }
}

/// W16: what was taken once may be refused again.
#[test]
fn a_dry_run_that_is_refused_after_an_attempt_is_asked_for_every_ten_seconds_again() {
    let mut cluster = refusing("source-controller");
    assert_eq!(asked(&mut cluster, 35, 25), [10, 20, 30]);
    // From second 34 on: the patience of that attempt ends at 60.
    assert_eq!(asked(&mut cluster, 60, 60), [26, 36, 46, 56]);
}

//! What a person gives back to Git at the hub.

use super::*;
use crate::agent::plan::MAINTENANCE;
use crate::agent::plan::history::Outcome;
use crate::agent::plan::tests::{install, start};

pub(super) const NAME: &str = "source-controller";

/// Commit 2 scaled a controller to zero; it is held, and works again.
pub(super) fn held() -> Cluster {
    let mut cluster = owned();
    scaled_to_zero(&mut cluster);
    cluster
}

pub(super) fn scaled_to_zero(cluster: &mut Cluster) {
    is_scaled_to_zero(cluster, NAME);
}

fn is_scaled_to_zero(cluster: &mut Cluster, name: &str) {
    commit(cluster, "main@sha1:2", name, "/spec/replicas", json!(0));
    let plan = after_a_while(cluster);
    assert_eq!(writes(&plan), [("hold", name), ("apply", name)]);
    do_all(cluster, &plan);
    cluster.history.faults.clear();
    works(cluster);
    assert_eq!(writes(&cluster.plan()), []);
}

pub(super) fn order(cluster: &mut Cluster, ahead: Duration) -> OffsetDateTime {
    // As the hub writes it.
    let order = rfc3339(cluster.now + ahead);
    let order = parse_rfc3339(&order);
    cluster.install.policy.lift_before = order;
    order.unwrap()
}

/// Its commit is good meanwhile: somebody pushed the image that it names, or means what it says.
#[test]
fn a_person_gives_back_what_the_same_commit_may_apply_now() {
    let mut cluster = held();
    let since = cluster.now;
    cluster.now += Duration::minutes(3);
    let order = order(&mut cluster, Duration::ZERO);
    let plan = cluster.plan();
    assert_eq!(writes(&plan), [("lift", NAME)]);
    assert_eq!(
        plan.steps[1].target, cluster.install.sync,
        "it is asked to apply at once"
    );
    do_all(&mut cluster, &plan);
    let expected = Hold {
        revision: "main@sha1:2".to_owned(),
        since: rfc3339(since),
        reason: "is scaled to 0 by Git; commit main@sha1:2 changed /spec/replicas".to_owned(),
        attempt: 1,
        lifted: Some(rfc3339(cluster.now)),
        order: Some(rfc3339(order)),
        removal: false,
    };
    assert_eq!(hold(&cluster.objects[&deployment(NAME)]), Some(expected));
    works(&mut cluster);
    assert_eq!(writes(&cluster.plan()), []);
    cluster.now += PROBATION;
    assert_eq!(writes(&cluster.plan()), [("settle", NAME)]);
}

/// Whatever the two clocks say, one order gives back once: where the commit still does harm, it is held again, and stays so.
#[test]
fn an_order_is_obeyed_once() {
    for ahead in [Duration::ZERO, Duration::hours(1)] {
        let mut cluster = held();
        cluster.now += Duration::seconds(1);
        let first = order(&mut cluster, ahead);
        let plan = cluster.plan();
        assert_eq!(writes(&plan), [("lift", NAME)], "{ahead}");
        do_all(&mut cluster, &plan);
        works(&mut cluster);
        scaled_to_zero(&mut cluster);
        let live = &cluster.objects[&deployment(NAME)];
        assert_eq!(hold(live).unwrap().order, Some(rfc3339(first)));
        cluster.now += Duration::hours(2);
        assert_eq!(writes(&cluster.plan()), [], "{ahead}");
        order(&mut cluster, Duration::ZERO);
        assert_eq!(writes(&cluster.plan()), [("lift", NAME)], "{ahead}");
    }
}

#[test]
fn an_order_is_for_what_was_held_by_then() {
    let mut cluster = owned();
    order(&mut cluster, Duration::ZERO);
    cluster.now += Duration::seconds(1);
    scaled_to_zero(&mut cluster);
    cluster.now += Duration::hours(1);
    assert_eq!(writes(&cluster.plan()), []);
}

/// It means what began before it, and what began at a time that is yet to come, for the clock was set back since.
#[test]
fn a_hold_that_begins_at_this_very_moment_is_no_older_than_an_order_of_before() {
    let (now, mut policy) = (start(), install().policy);
    let at = |seconds: i64| now + Duration::seconds(seconds);
    for (since, obeyed, meant) in [
        (-9, None, true),
        (-5, None, true),
        (-4, None, false),
        (0, None, false),
        (1, None, true),
        (-9, Some(-6), true),
        (-9, Some(-5), false),
        (-9, Some(-4), false),
    ] {
        let hold = Hold {
            revision: "main@sha1:2".to_owned(),
            since: rfc3339(at(since)),
            reason: String::new(),
            attempt: 1,
            lifted: None,
            order: obeyed.map(|seconds| rfc3339(at(seconds))),
            removal: false,
        };
        policy.lift_before = Some(at(-5));
        let expected = policy.lift_before.filter(|_| meant);
        let order = hold.ordered(now, &policy);
        assert_eq!(order, expected, "{since} {obeyed:?}");
    }
}

/// It would be pruned at once.
#[test]
fn what_is_not_in_git_is_not_given_back_by_order() {
    let mut cluster = held();
    let sync = cluster.install.sync.clone();
    let id = deployment(NAME);
    let label = json!({ GIT_OWNER: sync.name });
    cluster.objects.get_mut(&id).unwrap().fields["metadata"]["labels"] = label;
    let root = cluster.objects.get_mut(&sync).unwrap();
    root.fields["status"]["inventory"] =
        json!({"entries": [{"id": "flux-system_other_apps_Deployment", "v": "v1"}]});
    cluster.now += Duration::seconds(1);
    assert!(removed(&cluster.install, &cluster.observed(), &id));
    order(&mut cluster, Duration::ZERO);
    let lifted = |plan: &Plan| writes(plan).iter().any(|(action, _)| *action == "lift");
    assert!(!lifted(&cluster.plan()));

    // What it lists is told in one write, and that it is ready in another.
    fetched(&mut cluster, "main@sha1:3");
    for ready in ["True", "Unknown"] {
        let status = &mut cluster.objects.get_mut(&sync).unwrap().fields["status"];
        status["conditions"] = json!([{"type": "Ready", "status": ready, "reason": "Progressing"}]);
        assert!(!lifted(&cluster.plan()), "{ready}");
    }
}

/// W24: who opened a window on an object that is held is at work on it. The hub's order is obeyed all the same: it is somebody's word
/// on that hold.
#[test]
fn an_object_with_a_window_of_its_own_is_given_back_by_order_alone() {
    let mut cluster = held();
    let since = cluster.now;
    fetched(&mut cluster, "main@sha1:3");
    cluster.now += Duration::seconds(1);
    assert_eq!(writes(&cluster.plan()), [("lift", NAME)]);
    let window = |cluster: &mut Cluster, end: Option<OffsetDateTime>| {
        let live = cluster.objects.get_mut(&deployment(NAME)).unwrap();
        let said = end.map(rfc3339);
        live.fields["metadata"]["annotations"][MAINTENANCE] = json!(said);
    };
    window(&mut cluster, Some(since + Duration::hours(1)));
    assert_eq!(writes(&cluster.plan()), []);
    order(&mut cluster, Duration::ZERO);
    let plan = cluster.plan();
    assert_eq!(writes(&plan), [("lift", NAME)]);
    do_all(&mut cluster, &plan);
    works(&mut cluster);
    cluster.now += PROBATION;
    assert_eq!(writes(&cluster.plan()), []);
    window(&mut cluster, None);
    assert_eq!(writes(&cluster.plan()), [("settle", NAME)]);
}

/// W22: a webhook that refuses each change of one object would keep all others held for as long.
#[test]
fn an_object_that_cannot_be_given_back_keeps_no_other_one_waiting() {
    const FIRST: &str = "kustomize-controller";
    let mut cluster = held();
    is_scaled_to_zero(&mut cluster, FIRST);
    fetched(&mut cluster, "main@sha1:3");
    cluster.now += Duration::seconds(1);
    let refuse = |cluster: &mut Cluster, plan: &Plan| {
        let (now, observed) = (cluster.now, cluster.observed());
        let outcome = Outcome::Failed("the webhook denied the request".to_owned());
        cluster
            .history
            .acted(now, &plan.steps[0], &outcome, &observed);
    };
    let plan = cluster.plan();
    assert_eq!(writes(&plan), [("lift", FIRST)]);
    refuse(&mut cluster, &plan);
    let plan = cluster.plan();
    assert_eq!(writes(&plan), [("lift", NAME)]);
    do_all(&mut cluster, &plan);
    works(&mut cluster);
    // It is tried again in its own time, and not later than that.
    let plan = cluster.plan();
    assert_eq!(writes(&plan), []);
    cluster.now += Duration::seconds(2);
    assert!(plan.next_look <= cluster.now, "{}", plan.next_look);
    let plan = cluster.plan();
    assert_eq!(writes(&plan), [("lift", FIRST)]);
    refuse(&mut cluster, &plan);
    // Nor does it hold up the end of what was given back.
    cluster.now += PROBATION;
    let plan = cluster.plan();
    assert_eq!(writes(&plan), [("lift", FIRST)]);
    refuse(&mut cluster, &plan);
    assert_eq!(writes(&cluster.plan()), [("settle", NAME)]);
}

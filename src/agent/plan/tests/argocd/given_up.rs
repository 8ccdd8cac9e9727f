//! A look that Argo CD gives up, because it does not know the project that the root refers to (F51, W33).

use super::*;
use crate::agent::engine::argocd::PROBED_FROM;

const MISSING: &str = "Application referencing project default which does not exist";

/// The project was gone, and is back: the root is asked, and the controller has not heard of it yet.
fn asked_too_early() -> Cluster {
    let mut cluster = working();
    cluster.now += Duration::minutes(1);
    cluster.history.last_write = Some(cluster.now);
    let root = cluster.install.sync.clone();
    let before = rfc3339(cluster.now - Duration::minutes(1));
    let fields = &mut cluster.objects.get_mut(&root).unwrap().fields;
    fields["metadata"]["annotations"][PROBED_AT] = json!(rfc3339(cluster.now));
    fields["metadata"]["annotations"][PROBED_FROM] = json!(before);
    let said = json!({"type": "InvalidSpecError", "message": MISSING});
    cluster.says(&json!({"conditions": [said], "reconciledAt": before}));
    cluster
}

fn nudged(plan: &Plan) -> bool {
    plan.steps.iter().any(|s| s.action == Action::Nudge)
}

/// It took the question, names no time, and would look again by itself minutes later.
#[test]
fn a_root_whose_look_was_given_up_for_want_of_its_project_is_asked_again_soon() {
    let mut cluster = asked_too_early();
    let (asked, plan) = (cluster.now, cluster.plan());
    assert!(!nudged(&plan), "a moment ago");
    let soon = asked + Duration::seconds(5);
    assert!(plan.next_look <= soon, "{}", plan.next_look - asked);
    cluster.now = soon;
    assert!(nudged(&cluster.plan()));
    let root = cluster.install.sync.clone();
    cluster.history.nudged.insert(root, cluster.now);
    assert!(!nudged(&cluster.plan()), "at a pace");
}

/// While the question stands, nobody has taken it.
#[test]
fn a_root_that_still_carries_its_question_is_not_asked_again() {
    let mut cluster = asked_too_early();
    let root = cluster.install.sync.clone();
    let fields = &mut cluster.objects.get_mut(&root).unwrap().fields;
    fields["metadata"]["annotations"][REFRESH] = json!("normal");
    cluster.now += Duration::seconds(60);
    assert!(!nudged(&cluster.plan()));
}

/// F12: who gives up is alive; who then leaves a question alone is silent from that one on.
#[test]
fn a_controller_that_gives_up_is_not_silent() {
    let mut cluster = asked_too_early();
    let silent = |cluster: &mut Cluster| {
        let (now, install) = (cluster.now, cluster.install.clone());
        let observed = cluster.observed();
        cluster.history.noted(now, &install, &observed);
        let plan = cluster.plan();
        let mut found = plan.findings.iter();
        found.any(|f| f.class == Class::QueueWedged)
    };
    for _ in 0..4 {
        assert!(!silent(&mut cluster));
        cluster.now += Duration::seconds(45);
    }
    let root = cluster.install.sync.clone();
    let fields = &mut cluster.objects.get_mut(&root).unwrap().fields;
    fields["metadata"]["annotations"][PROBED_AT] = json!(rfc3339(cluster.now));
    fields["metadata"]["annotations"][REFRESH] = json!("normal");
    for (after, expected) in [(0, false), (90, false), (1, true)] {
        cluster.now += Duration::seconds(after);
        assert_eq!(silent(&mut cluster), expected, "{after}");
    }
}

//! When Argo CD is asked to look again, and when it counts as hung because no answer comes.

use super::*;
use crate::agent::engine::argocd::SKIP;

/// F12, W39: no answer for 90 s although the Pod is ready.
#[test]
fn a_controller_that_does_not_answer_is_restarted_and_one_that_was_not_asked_is_not() {
    let mut cluster = working();
    cluster.now += Duration::hours(1);
    assert_eq!(remedies(&cluster.plan()), []);
    let root = cluster.install.sync.clone();
    let asked = rfc3339(cluster.now);
    let annotations =
        &mut cluster.objects.get_mut(&root).unwrap().fields["metadata"]["annotations"];
    annotations[PROBED_AT] = json!(asked);
    annotations[REFRESH] = json!("normal");
    cluster.now += Duration::seconds(90);
    assert_eq!(remedies(&cluster.plan()), []);
    cluster.now += Duration::seconds(1);
    assert_eq!(
        remedies(&cluster.plan()),
        [(Class::QueueWedged, "restart", CONTROLLER)]
    );
    // Who stops the root stops its answers, too.
    let annotations =
        &mut cluster.objects.get_mut(&root).unwrap().fields["metadata"]["annotations"];
    annotations[SKIP] = json!("true");
    assert_eq!(remedies(&cluster.plan()), []);
}

/// F12: `argocd app get --refresh`, or a webhook, long after our own probe was answered.
#[test]
fn a_refresh_that_somebody_else_asks_for_is_no_controller_that_hangs() {
    let mut cluster = working();
    let root = cluster.install.sync.clone();
    let asked = rfc3339(cluster.now);
    cluster.now += Duration::seconds(1);
    cluster.says(&json!({"reconciledAt": rfc3339(cluster.now)}));
    let annotations =
        &mut cluster.objects.get_mut(&root).unwrap().fields["metadata"]["annotations"];
    annotations[PROBED_AT] = json!(asked);
    annotations[REFRESH] = json!("normal");
    cluster.now += Duration::seconds(130);
    assert_eq!(remedies(&cluster.plan()), []);
    // Had it been at work, it would have looked by itself meanwhile.
    cluster.now += Duration::seconds(11);
    assert_eq!(
        remedies(&cluster.plan()),
        [(Class::QueueWedged, "restart", CONTROLLER)]
    );
}

/// W2: what the kubelet brings a moment later is asked for until it is there, for two minutes.
#[test]
fn host_keys_that_were_just_written_are_asked_for_until_they_are_read() {
    let mut cluster = working();
    let root = cluster.install.sync.clone();
    let nudged = |cluster: &Cluster| {
        let plan = cluster.plan();
        plan.steps.iter().any(|s| s.action == Action::Nudge)
    };
    cluster.history.host_keys = Some(cluster.now);
    assert!(!nudged(&cluster), "its probe is answered");
    let annotations =
        &mut cluster.objects.get_mut(&root).unwrap().fields["metadata"]["annotations"];
    annotations[PROBED_AT] = json!(rfc3339(cluster.now));
    annotations[REFRESH] = json!("normal");
    for (later, asked) in [(4, false), (1, true), (80, true), (35, false)] {
        cluster.now += Duration::seconds(later);
        assert_eq!(nudged(&cluster), asked, "{later} s later");
    }
    let annotations =
        &mut cluster.objects.get_mut(&root).unwrap().fields["metadata"]["annotations"];
    annotations[PROBED_AT] = json!(rfc3339(cluster.now));
    annotations.as_object_mut().unwrap().remove(REFRESH);
    let doubt = json!({"type": "ComparisonError", "message": "knownhosts: key is unknown"});
    cluster.says(&json!({"conditions": [doubt], "reconciledAt": rfc3339(cluster.now)}));
    cluster.now += Duration::seconds(5);
    assert!(!nudged(&cluster), "nothing says that this will be over");
    cluster.history.host_keys = Some(cluster.now);
    assert!(nudged(&cluster));
}

/// W2: an answer may be of a look that met the old keys, which Argo CD says nothing of for three minutes.
#[test]
fn an_answer_is_not_believed_while_host_keys_are_on_their_way() {
    let mut cluster = working();
    let root = cluster.install.sync.clone();
    let written = cluster.now;
    cluster.history.host_keys = Some(written);
    let mut asked = Vec::new();
    for second in 1..200 {
        cluster.now = written + Duration::seconds(second);
        let plan = cluster.plan();
        if plan.steps.iter().any(|s| s.action == Action::Nudge) {
            asked.push(second);
            let live = cluster.objects.get_mut(&root).unwrap();
            live.fields["metadata"]["annotations"][PROBED_AT] = json!(rfc3339(cluster.now));
            cluster.says(&json!({"reconciledAt": rfc3339(cluster.now)}));
        }
    }
    // The answer that is there is five seconds old.
    assert_eq!(asked, [25, 55, 85, 115]);
}

/// A controller that should have looked by itself and has not is asked before the next probe is due.
#[test]
fn a_stale_root_is_asked_at_once() {
    let mut cluster = working();
    cluster.install.policy.probe_every = Duration::hours(1);
    cluster.says(&json!({"reconciledAt": rfc3339(cluster.now)}));
    for (silent, asked) in [(140, false), (141, true)] {
        let mut later = cluster.observed();
        let now = cluster.now + Duration::seconds(silent);
        for scope in later.scopes.values_mut() {
            scope.answered = Some(now);
        }
        let plan = plan(now, &cluster.install, &later, &cluster.history);
        let nudges = plan.steps.iter().filter(|s| s.action == Action::Nudge);
        assert_eq!(nudges.count() == 1, asked, "{silent} s");
    }
}

/// Asked before its repo-server was up, the controller would look again only after a minute.
#[test]
fn a_root_that_stumbled_over_argo_cds_own_parts_is_asked_again_soon() {
    let mut cluster = working();
    let refused = "rpc error: code = Unavailable desc = connection error: dial tcp 10.96.0.7:8081";
    for (message, asked) in [
        (refused, true),
        ("failed to list refs: no such host", false),
    ] {
        let condition = json!({"type": "ComparisonError", "message": message});
        let now = rfc3339(cluster.now);
        cluster.says(&json!({"conditions": [condition], "reconciledAt": now}));
        cluster.now += Duration::seconds(6);
        let nudge = cluster
            .plan()
            .steps
            .iter()
            .any(|s| s.action == Action::Nudge);
        assert_eq!(nudge, asked, "{message}");
    }
}

/// Argo CD itself would leave it so for a minute or two.
#[test]
fn applications_that_were_looked_at_before_their_project_was_known_are_asked_again() {
    let mut cluster = working();
    let trouble = |text: &str| Child {
        trouble: Some(("InvalidSpecError".to_owned(), text.to_owned())),
        ..Child::default()
    };
    let missing = "Application referencing project default which does not exist";
    let mut observed = cluster.observed();
    observed.children = Arc::new(BTreeMap::from([
        (id(Kind::Application, "web"), trouble(missing)),
        (id(Kind::Application, "other"), trouble("no destination")),
    ]));
    let asked = |cluster: &Cluster| -> Vec<String> {
        let plan = plan(cluster.now, &cluster.install, &observed, &cluster.history);
        let nudges = plan.steps.iter().filter(|s| s.action == Action::Nudge);
        nudges.map(|s| s.target.name.clone()).collect()
    };
    assert_eq!(asked(&cluster), ["web"]);
    cluster
        .history
        .nudged
        .insert(id(Kind::Application, "web"), cluster.now);
    assert_eq!(asked(&cluster), Vec::<String>::new());
}

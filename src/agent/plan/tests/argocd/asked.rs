//! When Argo CD is asked to look again, and when it counts as hung because no answer comes.

use super::*;
use crate::agent::engine::argocd::{PROBED_FROM, SKIP};

/// The root is asked now; it had looked `before`, as far as that is known. Its controller may have taken the question.
fn ask(cluster: &mut Cluster, before: Option<&str>, taken: bool) {
    let (root, now) = (cluster.install.sync.clone(), rfc3339(cluster.now));
    let annotations =
        &mut cluster.objects.get_mut(&root).unwrap().fields["metadata"]["annotations"];
    annotations[PROBED_AT] = json!(now);
    annotations[PROBED_FROM] = json!(before);
    annotations[REFRESH] = if taken { Value::Null } else { json!("normal") };
}

fn is_asked(cluster: &Cluster) -> bool {
    let plan = cluster.plan();
    plan.steps.iter().any(|s| s.action == Action::Nudge)
}

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

/// F12: each node has a clock of its own. Who takes a question away is at work, and has all of his time for the next one.
#[test]
fn a_question_that_was_taken_by_a_clock_that_is_behind_restarts_nobody() {
    let restart = [(Class::QueueWedged, "restart", CONTROLLER)];
    // An agent of before does not say what it asked from.
    for before in [Some(60), Some(3), None] {
        let mut cluster = working();
        cluster.now += Duration::hours(1);
        let now = cluster.now;
        let ago = |seconds: i64| rfc3339(now - Duration::seconds(seconds));
        cluster.says(&json!({"reconciledAt": ago(3)}));
        ask(&mut cluster, before.map(ago).as_deref(), true);
        noted(&mut cluster);
        cluster.now += Duration::seconds(91);
        assert_eq!(remedies(&cluster.plan()), [], "{before:?}");
        noted(&mut cluster);
        ask(&mut cluster, Some(&ago(3)), false);
        for (after, wedged) in [(0, 0), (90, 0), (1, 1)] {
            cluster.now += Duration::seconds(after);
            noted(&mut cluster);
            let plan = cluster.plan();
            assert_eq!(remedies(&plan), restart[..wedged], "{before:?} {after}");
        }
    }
}

fn noted(cluster: &mut Cluster) {
    let (now, install, observed) = (cluster.now, cluster.install.clone(), cluster.observed());
    cluster.history.noted(now, &install, &observed);
}

/// W23: by a clock that is far behind each look is an old one.
#[test]
fn a_root_whose_looks_are_always_old_is_asked_at_a_pace() {
    let mut cluster = working();
    let now = cluster.now;
    let ago = |minutes: i64| rfc3339(now - Duration::minutes(minutes));
    cluster.says(&json!({"reconciledAt": ago(10)}));
    ask(&mut cluster, Some(&ago(11)), true);
    for (after, asked) in [(5, false), (139, false), (140, true)] {
        cluster.now = now + Duration::seconds(after);
        assert_eq!(is_asked(&cluster), asked, "{after} s");
    }
}

/// F52: a look that is given up has no time, and need not say why.
#[test]
fn a_question_that_was_taken_without_a_look_is_asked_again_in_its_time() {
    for (taken, after, asked) in [(true, 59, false), (true, 60, true), (false, 60, false)] {
        let mut cluster = working();
        cluster.install.policy.probe_every = Duration::MINUTE;
        let before = rfc3339(cluster.now - Duration::seconds(3));
        cluster.says(&json!({"reconciledAt": before}));
        ask(&mut cluster, Some(&before), taken);
        cluster.now += Duration::seconds(after);
        assert_eq!(is_asked(&cluster), asked, "{taken} {after}");
    }
}

/// A look that began before what was written since takes away the question that was asked after that, and shows nothing of it.
#[test]
fn a_question_that_a_look_from_before_it_took_away_is_asked_again_soon() {
    for (before, after, asked) in [(None, 4, false), (None, 5, true), (Some(3), 5, false)] {
        let mut cluster = working();
        let now = cluster.now;
        let ago = |seconds: i64| rfc3339(now - Duration::seconds(seconds));
        cluster.says(&json!({"reconciledAt": ago(3)}));
        ask(&mut cluster, before.map(ago).as_deref(), true);
        cluster.now += Duration::seconds(after);
        let proven = health::proven_since(&cluster.install, &cluster.observed());
        assert_eq!(
            (is_asked(&cluster), proven),
            (asked, None),
            "{before:?} {after}"
        );
    }
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

//! The operation of the root Application.

use super::*;
use crate::wire::api::EngineKind;

const FAILED: &str = "one or more objects failed to apply, reason: x";
const BEGINS: &str = "Retrying operation with latest revisions. Attempt #1";
const WAITS: &str = "waiting for healthy state of apps/Deployment/a";

fn working() -> Cluster {
    Cluster::working_of(EngineKind::Argocd)
}

fn fault() -> Vec<(Class, String)> {
    vec![(Class::ApplyFailed, format!("operation Failed: {FAILED}"))]
}

fn again(tries: i64) -> String {
    format!("{FAILED}. Retrying attempt #{tries} at 8:{tries:02}AM.")
}

/// What Argo CD says of an operation that has been tried again so often; `ended` = its last try was.
fn operates(cluster: &mut Cluster, phase: &str, (tries, message): (i64, &str), ended: bool) {
    let (at, revision) = if ended {
        ("2027-01-15T08:00:05Z", "2")
    } else {
        ("", "")
    };
    let root = cluster.install.sync.clone();
    let live = cluster.objects.get_mut(&root).unwrap();
    live.fields["status"]["sync"] = json!({"status": "OutOfSync", "revision": "2"});
    live.fields["status"]["operationState"] = json!({
        "phase": phase, "startedAt": "2027-01-15T08:00:00Z", "finishedAt": at,
        "retryCount": tries, "message": message, "syncResult": {"revision": revision},
        "reached": format!("{tries} {message}"),
    });
}

/// F39: of an operation that it tries again and again Argo CD says that it runs, and no more.
#[test]
fn an_operation_that_is_tried_again_fails_until_a_try_comes_further() {
    let mut cluster = working();
    operates(&mut cluster, "Running", (1, &again(1)), true);
    assert_eq!(found(&mut cluster, 0), fault());
    // Versions of before leave what it said.
    let former = again(1);
    for words in [BEGINS, former.as_str(), ""] {
        operates(&mut cluster, "Running", (1, words), false);
        assert_eq!(found(&mut cluster, 1_000), fault(), "{words}");
        let all = cluster.plan().findings;
        let recalled: Vec<bool> = all.iter().map(|f| f.recalled).collect();
        assert_eq!(recalled, [true], "{words}");
    }
    operates(&mut cluster, "Running", (1, WAITS), false);
    assert_eq!(found(&mut cluster, 1_000), []);
}

/// Of a long message the end is not kept, and with it that there is another try.
#[test]
fn a_try_that_begins_with_a_long_message_of_the_one_before_has_not_come_further() {
    let long = "is not ready, ".repeat(36);
    let mut cluster = working();
    operates(&mut cluster, "Running", (1, &long), true);
    let fault = found(&mut cluster, 0);
    assert_eq!(fault.len(), 1);
    operates(&mut cluster, "Running", (1, &long), false);
    assert_eq!(found(&mut cluster, 1_000), fault);
    operates(&mut cluster, "Running", (1, WAITS), false);
    assert_eq!(found(&mut cluster, 1_000), []);
}

/// Its words are the same with each try, and what is said of the catalog by itself is not said twice.
#[test]
fn an_operation_that_waits_for_its_next_try_is_told_of_once() {
    let mut cluster = working();
    for tries in [1, 2, 30] {
        operates(&mut cluster, "Running", (tries, &again(tries)), true);
        assert_eq!(found(&mut cluster, 0), fault(), "{tries}");
    }
    let root = cluster.install.sync.clone();
    let mut says = |field: &str, value: Value| {
        let live = cluster.objects.get_mut(&root).unwrap();
        live.fields["status"][field] = value;
        let all = found(&mut cluster, 0).into_iter();
        all.map(|(class, _)| class).collect::<Vec<Class>>()
    };
    let compared = json!([{"type": "ComparisonError", "message": "yaml: line 3"}]);
    assert_eq!(says("conditions", compared), [Class::BuildFailed]);
    assert_eq!(says("conditions", json!([])), [Class::ApplyFailed]);
    assert_eq!(says("sync", json!({"status": "Synced"})), []);
}

/// A try comes to what failed once others have been waited for, and so does the next one.
fn in_waves(cluster: &mut Cluster, first: OffsetDateTime) -> OffsetDateTime {
    const AGAIN: i64 = 70;
    let ran = (cluster.now - first).whole_seconds();
    let tries = ran / AGAIN + 1;
    let (message, until) = match ran % AGAIN {
        0..60 => (again(tries), 60),
        60..63 => (BEGINS.to_owned(), 63),
        _ => (WAITS.to_owned(), AGAIN),
    };
    operates(cluster, "Running", (tries, &message), until == 60);
    first + Duration::seconds(ran - ran % AGAIN + until)
}

/// F39
#[test]
fn an_operation_that_fails_with_each_try_is_one_fault_until_it_succeeds() {
    let mut cluster = working();
    let first = cluster.now;
    let since = since(&mut cluster, Class::ApplyFailed, 1, in_waves);
    assert_eq!(since, [Some(first)].into());
    let mut steps = cluster.steps.iter();
    assert!(steps.all(|(_, step)| step.action == Action::Nudge));
    let round = cluster.round();
    assert_eq!(round.findings, []);
}

/// A hook runs with each try before what fails, and the pause before that is over a moment before the fault counts.
fn with_a_hook(cluster: &mut Cluster, first: OffsetDateTime) -> OffsetDateTime {
    const AGAIN: i64 = 75;
    let ran = (cluster.now - first).whole_seconds();
    let tries = ran / AGAIN + OFTEN;
    let failed = again(tries);
    let (message, until) = match ran % AGAIN {
        0..59 => (failed.as_str(), 59),
        _ => ("waiting for completion of hook batch/Job/a", AGAIN),
    };
    operates(cluster, "Running", (tries, message), until == 59);
    first + Duration::seconds(ran - ran % AGAIN + until)
}

/// F39: where each try comes further at first, it was none that counts.
#[test]
fn an_operation_that_was_tried_often_fails_also_while_its_hooks_run() {
    let mut cluster = working();
    let first = cluster.now;
    let since = since(&mut cluster, Class::ApplyFailed, 1, with_a_hook);
    assert_eq!(since, [Some(first)].into());
    let round = cluster.round();
    assert_eq!(round.findings, []);
}

/// Another commit, or whoever asks for it, begins an operation anew.
#[test]
fn a_fault_on_record_goes_on_in_the_next_operation_for_a_minute_or_until_all_is_applied() {
    let mut cluster = working();
    operates(&mut cluster, "Failed", (0, FAILED), true);
    assert_eq!(found(&mut cluster, 0), fault());
    assert_eq!(found(&mut cluster, 60_000), fault());
    operates(&mut cluster, "Running", (0, ""), false);
    assert_eq!(found(&mut cluster, 1_000), fault());
    operates(&mut cluster, "Running", (0, WAITS), false);
    assert_eq!(found(&mut cluster, 59_999), fault());
    let root = cluster.install.sync.clone();
    let status = |cluster: &mut Cluster, said: &str| {
        let live = cluster.objects.get_mut(&root).unwrap();
        live.fields["status"]["sync"]["status"] = json!(said);
    };
    let before = cluster.history.complaints.clone();
    status(&mut cluster, "Synced");
    assert_eq!(found(&mut cluster, 0), []);
    cluster.history.complaints = before;
    status(&mut cluster, "OutOfSync");
    assert_eq!(found(&mut cluster, 0), fault());
    assert_eq!(found(&mut cluster, 1), []);
}

/// As the next operation is asked for, what was known of the one before is taken away.
#[test]
fn a_fault_of_an_operation_goes_on_while_the_next_one_is_yet_to_begin() {
    let mut cluster = working();
    operates(&mut cluster, "Failed", (0, FAILED), true);
    assert_eq!(found(&mut cluster, 0), fault());
    let root = cluster.install.sync.clone();
    let live = cluster.objects.get_mut(&root).unwrap();
    let status = live.fields["status"].as_object_mut().unwrap();
    status.remove("operationState").unwrap();
    assert_eq!(found(&mut cluster, 1_000), fault());
    operates(&mut cluster, "Running", (0, ""), false);
    assert_eq!(found(&mut cluster, 1_000), fault());
    operates(&mut cluster, "Succeeded", (0, ""), true);
    assert_eq!(found(&mut cluster, 1_000), []);
}

/// A controller that is at an end begins no other try: the operation is stuck by then.
#[test]
fn an_operation_that_says_nothing_anew_is_waited_for_as_long_as_one_may_stand_still() {
    let mut cluster = working();
    operates(&mut cluster, "Running", (1, &again(1)), true);
    found(&mut cluster, 0);
    operates(&mut cluster, "Running", (1, BEGINS), false);
    assert_eq!(found(&mut cluster, 0), fault());
    assert_eq!(found(&mut cluster, 599_999), fault());
    let classes = found(&mut cluster, 2).into_iter().map(|f| f.0);
    assert_eq!(classes.collect::<Vec<_>>(), [Class::OperationStuck]);
}

/// W46: what an agent before this one had on record.
#[test]
fn of_what_is_on_record_only_a_failed_operation_is_told_of_while_another_one_runs() {
    for (class, expected) in [
        (Class::ApplyFailed, vec![Class::ApplyFailed]),
        (Class::BuildFailed, vec![]),
    ] {
        for words in ["", WAITS] {
            let mut cluster = working();
            let root = cluster.install.sync.clone();
            let before = Complaint::on_record(class, "its words");
            cluster.history.complaints.insert(root, before);
            operates(&mut cluster, "Running", (0, words), false);
            let classes = found(&mut cluster, 0).into_iter().map(|f| f.0);
            assert_eq!(classes.collect::<Vec<_>>(), expected, "{class} {words}");
        }
    }
}

/// An engine's new version is not to blame for a catalog that could not be applied before, also while that is tried again.
#[test]
fn what_is_tried_again_is_known_from_before_a_change() {
    let mut cluster = working();
    operates(&mut cluster, "Running", (1, &again(1)), true);
    found(&mut cluster, 0);
    let (plan, observed) = (cluster.plan(), cluster.observed());
    cluster
        .history
        .saw_catalog(&cluster.install, &observed, &plan.findings);
    operates(&mut cluster, "Running", (1, BEGINS), false);
    found(&mut cluster, 1_000);
    let (plan, observed) = (cluster.plan(), cluster.observed());
    let known = plan.findings.iter();
    let known = known.map(|f| (f.recalled, cluster.history.ailing.knows(&observed, f)));
    assert_eq!(known.collect::<Vec<_>>(), [(true, true)]);
}

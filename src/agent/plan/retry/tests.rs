use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::agent::plan::Action;
use crate::agent::plan::state::Child;
use crate::agent::plan::tests::Cluster;

mod argocd;
mod lasts;

fn says(cluster: &mut Cluster, status: &str, reason: &str) {
    let root = cluster.install.sync.clone();
    let live = cluster.objects.get_mut(&root).unwrap();
    let ready =
        json!({"type": "Ready", "status": status, "reason": reason, "message": "its words"});
    live.fields["status"]["conditions"] = json!([ready]);
}

/// The root tries again, and says in these words how far it has come.
fn tries_at(cluster: &mut Cluster, words: &str) {
    says(cluster, "Unknown", "Progressing");
    let root = cluster.install.sync.clone();
    let live = cluster.objects.get_mut(&root).unwrap();
    let message = format!("{words} for revision main@sha1:1 with a timeout of 5m0s");
    let conditions = live.fields["status"]["conditions"].as_array_mut().unwrap();
    conditions.push(json!({
        "type": "Reconciling", "status": "True", "reason": "Progressing", "message": message,
    }));
}

/// When that try began.
fn began(cluster: &mut Cluster, at: &str) {
    let root = cluster.install.sync.clone();
    let live = cluster.objects.get_mut(&root).unwrap();
    live.fields["status"]["conditions"][0]["lastTransitionTime"] = json!(at);
}

/// Since when a fault was there, at each round of so many hours in which the engine says this: it returns when it says something else.
fn since(
    cluster: &mut Cluster,
    class: Class,
    hours: i64,
    says: fn(&mut Cluster, OffsetDateTime) -> OffsetDateTime,
) -> BTreeSet<Option<OffsetDateTime>> {
    let began = cluster.now;
    let key = (class, cluster.install.sync.clone());
    let mut since = BTreeSet::new();
    while cluster.now < began + Duration::hours(hours) {
        let next = says(cluster, began);
        cluster.round();
        let past = cluster.history.faults.get(&key);
        since.insert(past.and_then(|past| past.since));
        cluster.now = cluster.now.min(next);
    }
    since
}

/// What is found at the root by the round that is so many milliseconds later.
fn found(cluster: &mut Cluster, later: i64) -> Vec<(Class, String)> {
    cluster.now += Duration::milliseconds(later);
    let root = cluster.install.sync.clone();
    let observed = cluster.observed();
    cluster
        .history
        .noted(cluster.now, &cluster.install, &observed);
    let plan = cluster.plan();
    cluster.history.saw(cluster.now, &plan);
    let at_root = plan.findings.into_iter().filter(|f| f.object == root);
    at_root.map(|f| (f.class, f.evidence)).collect()
}

/// F38: it was on record for 0.3 s, at the first of its tries that began a debounce after the one before.
#[test]
fn a_fault_of_a_root_goes_on_while_it_tries_again() {
    let mut cluster = Cluster::working();
    let fault = vec![(Class::BuildFailed, "BuildFailed: its words".to_owned())];
    says(&mut cluster, "False", "BuildFailed");
    assert_eq!(found(&mut cluster, 0), fault);
    let key = (Class::BuildFailed, cluster.install.sync.clone());
    let since = cluster.history.faults[&key].since;
    for _ in 0..3 {
        says(&mut cluster, "Unknown", "Progressing");
        assert_eq!(found(&mut cluster, 59_900), fault);
        says(&mut cluster, "False", "BuildFailed");
        assert_eq!(found(&mut cluster, 100), fault);
    }
    assert_eq!(cluster.history.faults[&key].since, since);
}

/// F38: its next try begins a minute after the one before, and so long ago it may have been looked at last.
#[test]
fn a_fault_of_a_root_goes_on_however_long_ago_it_was_seen_to_say_so() {
    let mut cluster = Cluster::working();
    let fault = vec![(Class::BuildFailed, "BuildFailed: its words".to_owned())];
    says(&mut cluster, "False", "BuildFailed");
    assert_eq!(found(&mut cluster, 0), fault);
    for pause in [59_950, 60_000, 60_050] {
        says(&mut cluster, "Unknown", "Progressing");
        assert_eq!(found(&mut cluster, pause), fault, "{pause}");
        assert_eq!(found(&mut cluster, 100), fault, "{pause}");
        says(&mut cluster, "False", "BuildFailed");
        assert_eq!(found(&mut cluster, 100), fault, "{pause}");
    }
}

/// Nothing is known of what it said before the agent came.
#[test]
fn a_root_that_tries_when_it_is_seen_first_has_no_fault() {
    let mut cluster = Cluster::working();
    says(&mut cluster, "Unknown", "Progressing");
    assert_eq!(found(&mut cluster, 0), []);
}

/// F39: while its source is away for a moment a root says nothing of the catalog, and what it said before was over.
#[test]
fn a_fault_of_a_root_goes_on_while_its_source_is_away() {
    let lacks = |cluster: &mut Cluster| {
        let words = "Source artifact not found, retrying in 30s";
        says_so(cluster, "ArtifactFailed", words);
    };
    let mut cluster = Cluster::working();
    lacks(&mut cluster);
    assert_eq!(found(&mut cluster, 0), [], "it has complained of nothing");
    let words = "ReconciliationFailed: its words".to_owned();
    let fault = vec![(Class::ApplyFailed, words)];
    says(&mut cluster, "False", "ReconciliationFailed");
    assert_eq!(found(&mut cluster, 1_000), fault);
    lacks(&mut cluster);
    assert_eq!(found(&mut cluster, 1_000), fault);
    assert_eq!(found(&mut cluster, 60_000), fault);
    tries_at(&mut cluster, "Fetching manifests");
    assert_eq!(found(&mut cluster, 1_000), fault);
    says(&mut cluster, "True", "ReconciliationSucceeded");
    assert_eq!(found(&mut cluster, 1_000), []);
    lacks(&mut cluster);
    assert_eq!(found(&mut cluster, 1_000), []);
}

/// A root Application says all at once, any other root one thing after the other.
#[test]
fn only_what_shows_itself_earlier_hides_a_fault() {
    for (kind, was, by, hidden) in [
        (
            Kind::Kustomization,
            Class::ApplyFailed,
            Class::DependencyNotReady,
            true,
        ),
        (
            Kind::Kustomization,
            Class::ApplyFailed,
            Class::ArtifactUnreachable,
            true,
        ),
        (
            Kind::Kustomization,
            Class::BuildFailed,
            Class::ArtifactUnreachable,
            true,
        ),
        (
            Kind::GitRepository,
            Class::SignatureFailed,
            Class::GitUnreachable,
            true,
        ),
        (
            Kind::Kustomization,
            Class::HealthCheckFailed,
            Class::BuildFailed,
            true,
        ),
        (
            Kind::Kustomization,
            Class::PathMissing,
            Class::BuildFailed,
            false,
        ),
        (
            Kind::Kustomization,
            Class::ApplyFailed,
            Class::SuspendedByHuman,
            false,
        ),
        (
            Kind::Kustomization,
            Class::QueueWedged,
            Class::DependencyNotReady,
            false,
        ),
        (
            Kind::Application,
            Class::HealthCheckFailed,
            Class::ApplyFailed,
            false,
        ),
    ] {
        let id = ObjectId::new(kind, "flux-system", "flux-system");
        let found = [Finding::new(by, &id, "")];
        let key = (was, id);
        let is = is_hidden(&Observed::default(), &found, &key);
        assert_eq!(is, hidden, "{kind:?}: {was}, then {by}");
        assert!(
            !is_hidden(&Observed::default(), &[], &key),
            "it says nothing"
        );
    }
}

/// F39: where more of them are broken than are named, one that is not named any more is broken all the same.
#[test]
fn a_fault_for_which_others_are_named_is_not_over() {
    let id = |n: usize| ObjectId::new(Kind::Kustomization, "apps", &format!("a{n}"));
    let broken = Child {
        trouble: Some(("BuildFailed".to_owned(), "its words".to_owned())),
        ..Child::default()
    };
    let observed = Observed {
        children: Arc::new((0..9).map(|n| (id(n), broken.clone())).collect()),
        ..Observed::default()
    };
    let named = |count: usize| -> Vec<Finding> {
        let all = (0..count).map(|n| Finding::new(Class::BuildFailed, &id(n), ""));
        all.collect()
    };
    let key = |class| (class, id(8));
    let build = key(Class::BuildFailed);
    assert!(is_hidden(&observed, &named(8), &build));
    assert!(!is_hidden(&observed, &named(7), &build), "it would be");
    let ready = key(Class::DependencyNotReady);
    assert!(!is_hidden(&observed, &named(8), &ready), "it came further");
}

fn says_so(cluster: &mut Cluster, reason: &str, words: &str) {
    says(cluster, "False", reason);
    let root = cluster.install.sync.clone();
    let live = cluster.objects.get_mut(&root).unwrap();
    live.fields["status"]["conditions"][0]["message"] = json!(words);
}

/// F38, F40: what it said before is no longer so.
#[test]
fn while_a_root_tries_again_what_it_said_last_stands() {
    for (before, last, class) in [
        (
            ["HealthCheckFailed", "one"],
            ["HealthCheckFailed", "another"],
            Class::HealthCheckFailed,
        ),
        (
            ["HealthCheckFailed", "one"],
            ["BuildFailed", "another"],
            Class::BuildFailed,
        ),
    ] {
        let mut cluster = Cluster::working();
        for [reason, words] in [before, last] {
            says_so(&mut cluster, reason, words);
            found(&mut cluster, 100);
        }
        says(&mut cluster, "Unknown", "Progressing");
        let told = vec![(class, last.join(": "))];
        assert_eq!(found(&mut cluster, 100), told, "{before:?}");
    }
}

#[test]
fn only_a_root_that_gets_on_says_how_far_it_has_come() {
    for (status, reason, stage) in [
        ("True", "Progressing", Some(Stage::Checks)),
        ("True", "ProgressingWithRetry", None),
        ("False", "Progressing", None),
    ] {
        let mut cluster = Cluster::working();
        let root = cluster.install.sync.clone();
        let live = cluster.objects.get_mut(&root).unwrap();
        live.fields["status"]["conditions"] = json!([{
            "type": "Reconciling", "status": status, "reason": reason, "message": "Running health checks for x",
        }]);
        let live = cluster.observed().objects[&root].clone();
        assert_eq!(Stage::of(&live), stage, "{status} {reason}");
    }
}

/// F40: a commit that comes meanwhile ends the check before that fails once more.
#[test]
fn a_check_that_the_next_try_cancels_is_no_other_fault() {
    let mut cluster = Cluster::working();
    says(&mut cluster, "False", "HealthCheckFailed");
    let fault = found(&mut cluster, 0);
    tries_at(&mut cluster, "Running health checks");
    assert_eq!(found(&mut cluster, 100_000), fault);
    says(&mut cluster, "False", "HealthCheckCanceled");
    let words = "HealthCheckCanceled: its words".to_owned();
    let canceled = [(Class::HealthCheckFailed, words)];
    assert_eq!(found(&mut cluster, 1_000), canceled);
    tries_at(&mut cluster, "Running health checks");
    assert_eq!(found(&mut cluster, 1_000), fault);
    assert_eq!(found(&mut cluster, 300_000), fault);
}

/// A root with `wait: true` brought what never becomes healthy: 5 min of a check, a minute's pause, and anew.
fn waits(cluster: &mut Cluster, first: OffsetDateTime) -> OffsetDateTime {
    const AGAIN: i64 = 360;
    let ran = (cluster.now - first).whole_seconds();
    let tries = first + Duration::seconds(ran - ran % AGAIN);
    let (words, until) = match ran % AGAIN {
        0..2 => ("Fetching manifests", 2),
        2..4 => ("Building manifests", 4),
        4..10 => ("Detecting drift", 10),
        10..300 => ("Running health checks", 300),
        _ => ("", AGAIN),
    };
    if words.is_empty() {
        says(cluster, "False", "HealthCheckFailed");
    } else {
        tries_at(cluster, words);
        began(cluster, &crate::clock::rfc3339(tries));
    }
    tries + Duration::seconds(until)
}

/// F40: it was one that began and was over with each try.
#[test]
fn a_root_that_waits_for_minutes_in_vain_has_one_fault_until_it_is_ready() {
    let mut cluster = Cluster::working();
    let failed = cluster.now + Duration::minutes(5);
    let since = since(&mut cluster, Class::HealthCheckFailed, 2, waits);
    assert_eq!(since, [None, Some(failed)].into());
    let mut steps = cluster.steps.iter();
    assert!(steps.all(|(_, step)| step.action == Action::Nudge));
    let round = cluster.round();
    assert_eq!(round.findings, []);
}

/// W46: the agent that begins in the midst of a try has but the record of the one before it.
#[test]
fn what_is_on_record_of_a_root_is_there_until_the_end_of_the_try_that_an_agent_finds() {
    let fault = |class: Class| (class, format!("{class}: its words"));
    for (status, reason, expected) in [
        (
            "Unknown",
            "Progressing",
            vec![fault(Class::HealthCheckFailed)],
        ),
        ("False", "BuildFailed", vec![fault(Class::BuildFailed)]),
        ("True", "ReconciliationSucceeded", vec![]),
    ] {
        let mut cluster = Cluster::working();
        let (class, text) = fault(Class::HealthCheckFailed);
        let before = Complaint::on_record(class, &text);
        let root = cluster.install.sync.clone();
        cluster.history.complaints.insert(root, before);
        // Nothing is seen yet.
        let nothing = Observed::default();
        cluster
            .history
            .noted(cluster.now, &cluster.install, &nothing);
        says(&mut cluster, status, reason);
        assert_eq!(found(&mut cluster, 600_000), expected, "{status}");
        assert_eq!(found(&mut cluster, 600_000), expected, "{status}");
        says(&mut cluster, "True", "ReconciliationSucceeded");
        assert_eq!(found(&mut cluster, 1), [], "{status}");
    }
}

#[test]
fn what_is_on_record_of_a_root_that_is_gone_is_over() {
    let mut cluster = Cluster::working();
    let root = cluster.install.sync.clone();
    let before = Complaint::on_record(Class::HealthCheckFailed, "its words");
    cluster.history.complaints.insert(root.clone(), before);
    cluster.objects.remove(&root);
    found(&mut cluster, 0);
    assert_eq!(cluster.history.complaints, BTreeMap::new());
}

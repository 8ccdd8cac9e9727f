use serde_json::json;

use super::*;
use crate::agent::plan::tests::Cluster;

fn root() -> ObjectId {
    ObjectId::new(Kind::Kustomization, "flux-system", "flux-system")
}

fn said(class: Class, evidence: &str) -> Finding {
    Finding::new(class, &root(), evidence)
}

/// Whether what is said of a root, `now`, was known of it `before`.
fn is_old(before: &[(Class, &str)], now: (Class, &str)) -> bool {
    is_old_at(before, now, ["1", "1"])
}

/// The same where the root speaks of these commits, before and now.
fn is_old_at(
    before: &[(Class, &str)],
    (class, text): (Class, &str),
    [then, commit]: [&str; 2],
) -> bool {
    let all = before
        .iter()
        .map(|(class, text)| Ail::of(&said(*class, text), then));
    let ailing = Ailing([(root(), all.collect())].into());
    ailing.has(&said(class, text), commit)
}

/// Another version may refuse what this one applied, by the same reason as what was wrong before.
#[test]
fn a_fault_is_an_old_one_by_its_reason_and_by_what_it_names() {
    let (apply, health) = (Class::ApplyFailed, Class::HealthCheckFailed);
    let one = "ReconciliationFailed: Deployment/team-a/web dry-run failed (Invalid): Deployment.apps \"web\" is invalid";
    let again =
        "ReconciliationFailed: Deployment/team-a/web dry-run failed: conversion webhook: timeout";
    let other = "ReconciliationFailed: HelmRelease/team-b/db dry-run failed: no matches for kind \"HelmRelease\"";
    let role = "ReconciliationFailed: ClusterRole/system:web: dry-run failed (Forbidden)";
    let none = "ReconciliationFailed: context deadline exceeded";
    let waits = |names: &str| format!("HealthCheckFailed: timeout waiting for: [{names}]");
    let [a, b] = [
        "Deployment/apps/a status: 'InProgress'",
        "Job/apps/b status: 'Failed'",
    ];
    let [of_a, of_both] = [a.to_owned(), format!("{b}, {a}")].map(|names| waits(&names));
    for (before, now, expected) in [
        (one, one, true),
        (one, again, true),
        (one, other, false),
        (one, role, false),
        (role, role, true),
        (one, none, false),
        (none, one, false),
        (none, none, true),
        (of_both.as_str(), of_a.as_str(), true),
        (of_a.as_str(), of_both.as_str(), false),
    ] {
        assert_eq!(
            is_old(&[(apply, before)], (apply, now)),
            expected,
            "{before} {now}"
        );
    }
    assert!(!is_old(&[(apply, one)], (health, one)));
    assert!(is_old(
        &[(health, of_a.as_str()), (apply, one)],
        (apply, again)
    ));
    // Of a fault of the engine's own nothing is known.
    let wedged = (Class::QueueWedged, one);
    assert!(!is_old(&[wedged], wedged));
}

#[test]
fn what_each_look_has_other_words_for_is_the_same_fault() {
    for (class, before, now) in [
        (
            Class::BuildFailed,
            "BuildFailed: kustomize build failed: open /tmp/kustomization-123/clusters/eu1/x.yaml: no such file",
            "BuildFailed: kustomize build failed: open /tmp/kustomization-987/clusters/eu1/x.yaml: no such file",
        ),
        (
            Class::SignatureFailed,
            "InvalidCommitSignature: signature verification of commit 'a1' failed: unknown key",
            "InvalidCommitSignature: signature verification of commit 'b2' failed: unknown key",
        ),
        (
            Class::HealthCheckFailed,
            "HealthCheckFailed: health check failed after 30.1s: failed early: [Job/a/b status: 'Failed']",
            "HealthCheckFailed: health check failed after 29.8s: failed early: [Job/a/b status: 'Failed']",
        ),
        (
            Class::ApplyFailed,
            "operation Failed: one or more tasks are not valid (retried 5 times).",
            "operation Failed: one or more tasks are not valid (retried 2 times).",
        ),
    ] {
        assert!(is_old(&[(class, before)], (class, now)), "{now}");
    }
}

/// What is kept of a message is bounded; beyond that the reason alone tells two faults apart.
#[test]
fn so_many_objects_are_told_apart_and_no_more() {
    let names = |from: usize, to: usize| {
        let all: Vec<String> = (from..to).map(|n| format!("Job/apps/j{n}")).collect();
        format!("HealthCheckFailed: [{}]", all.join(" "))
    };
    let class = Class::HealthCheckFailed;
    let is_old = |before: &str, now: &str| is_old(&[(class, before)], (class, now));
    assert!(!is_old(&names(0, MOST), &names(1, MOST + 1)));
    assert!(is_old(&names(0, MOST + 1), &names(40, 50)));
    assert!(!is_old(&names(0, 1), &names(0, MOST + 1)));
    let long = format!("Job/{}", "a".repeat(LONGEST));
    assert_eq!(named(&long), BTreeSet::new());
    let ail = Ail::of(&said(class, &"R".repeat(1_000)), &"c".repeat(1_000));
    assert_eq!((ail.reason.len(), ail.commit.len()), (REASON, COMMIT));
    let commit = "c".repeat(1_000);
    let long = [commit.as_str(), commit.as_str()];
    assert!(is_old_at(&[(class, "x")], (class, "x"), long));
}

/// Another commit may fail of something else, in the very words of before: so it is with most that Argo CD says.
#[test]
fn words_that_tell_no_objects_are_the_same_fault_only_of_the_same_commit() {
    let (build, apply, health) = (
        Class::BuildFailed,
        Class::ApplyFailed,
        Class::HealthCheckFailed,
    );
    let many: Vec<String> = (0..=MOST).map(|n| format!("Job/apps/j{n}")).collect();
    let many = format!("HealthCheckFailed: [{}]", many.join(" "));
    let failed = "operation Failed: one or more objects failed to apply";
    let named = "ReconciliationFailed: Deployment/team-a/web dry-run failed (Invalid): x";
    let few = "HealthCheckFailed: [Job/apps/j1]";
    let none = "HealthCheckFailed: context deadline exceeded";
    for (class, before, now, of_one, of_another) in [
        (build, "BuildFailed: x", "BuildFailed: y", true, false),
        (apply, failed, failed, true, false),
        (apply, named, named, true, true),
        (health, many.as_str(), many.as_str(), true, false),
        (health, many.as_str(), few, true, false),
        (health, many.as_str(), none, false, false),
        (health, few, many.as_str(), false, false),
    ] {
        let is_old = |commits| is_old_at(&[(class, before)], (class, now), commits);
        let told = [is_old(["1", "1"]), is_old(["1", "2"])];
        assert_eq!(told, [of_one, of_another], "{before} {now}");
        // A root that names no commit says nothing of another one.
        assert_eq!(is_old(["", ""]), of_one, "{before} {now}");
        assert_eq!(is_old(["", "1"]), of_another, "{before} {now}");
    }
}

#[test]
fn a_root_speaks_of_the_commit_that_it_tried_fetched_or_compared() {
    let mut live = Cluster::working().objects[&root()].clone();
    live.fields["status"] = json!({
        "lastAttemptedRevision": "main@sha1:tried", "artifact": {"revision": "refs/heads/main@sha1:fetched"},
        "sync": {"revision": "compared"}, "operationState": {"syncResult": {"revision": "applied"}},
    });
    for (kind, text, expected) in [
        (Kind::Kustomization, "BuildFailed: x", "sha1:tried"),
        (Kind::GitRepository, "VerificationError: x", "sha1:fetched"),
        (Kind::Application, "ComparisonError: x", "compared"),
        (Kind::Application, "operation Failed: x", "applied"),
        (Kind::Application, "operation Error: x", "applied"),
        (Kind::Application, "SyncError: x", "applied"),
    ] {
        let id = ObjectId::new(kind, "flux-system", "flux-system");
        let finding = Finding::new(Class::BuildFailed, &id, text);
        assert_eq!(commit(&live, &finding), expected, "{kind:?} {text}");
    }
    live.fields["status"] = json!({});
    let finding = said(Class::BuildFailed, "BuildFailed: x");
    assert_eq!(commit(&live, &finding), "");
    // What was compared stands in for what an operation has no result of yet, and for nothing else.
    live.fields["status"] = json!({"sync": {"revision": "compared"}});
    for (kind, text, expected) in [
        (Kind::Application, "operation Running: x", "compared"),
        (Kind::Application, "SyncError: x", "compared"),
        (Kind::Kustomization, "BuildFailed: x", ""),
        (Kind::GitRepository, "VerificationError: x", ""),
    ] {
        let id = ObjectId::new(kind, "flux-system", "flux-system");
        let finding = Finding::new(Class::BuildFailed, &id, text);
        assert_eq!(commit(&live, &finding), expected, "{kind:?} {text}");
    }
}

#[test]
fn only_what_looks_like_an_object_is_one() {
    let text = "Deployment/apps/web, [ClusterRole/system:x] 'Job/a/b.c-1': Namespace/apps.";
    let all = [
        "ClusterRole/system:x",
        "Deployment/apps/web",
        "Job/a/b.c-1",
        "Namespace/apps",
    ];
    assert_eq!(named(text), all.into());
    for text in [
        "main@sha1:0123",
        "refs/heads/main@sha1:0123",
        "https://git.example.org/Team/catalog",
        "/tmp/Kustomization-1/x",
        "apps/v1",
        "A/b/c/d",
        "A//b",
        "A/B",
        "A/",
    ] {
        assert_eq!(named(text), BTreeSet::new(), "{text}");
    }
}

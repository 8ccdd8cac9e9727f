//! What is wrong with the catalog, before a change and since.

use serde_json::json;

use super::*;
use crate::agent::plan::tests::Cluster;
use crate::clock::rfc3339;

/// A root says so from now on; without a reason, that all is well.
fn says(cluster: &mut Cluster, root: &ObjectId, reason: &str) {
    says_that(cluster, root, (reason, "x"));
}

fn says_that(cluster: &mut Cluster, root: &ObjectId, (reason, message): (&str, &str)) {
    let status = if reason.is_empty() { "True" } else { "False" };
    let live = cluster.objects.get_mut(root).unwrap();
    live.fields["status"]["conditions"] =
        json!([{"type": "Ready", "status": status, "reason": reason, "message": message}]);
}

/// A round while no change is under way.
fn notes(cluster: &mut Cluster) {
    let (plan, observed) = (cluster.plan(), cluster.observed());
    let Cluster {
        install, history, ..
    } = cluster;
    history.saw_catalog(install, &observed, &plan.findings);
}

/// A round while one is under way.
fn recovers(cluster: &mut Cluster) {
    let (plan, observed) = (cluster.plan(), cluster.observed());
    let Cluster {
        install, history, ..
    } = cluster;
    history.saw_recovery(install, &observed, &plan.findings);
}

/// What is said of a change whose time is over, and since when the engine works.
fn judged(cluster: &Cluster) -> (Progress, Option<OffsetDateTime>) {
    let mut running = change(1, 2, false);
    let began = cluster.now - running.limit();
    running.since = rfc3339(began);
    let (plan, observed) = (cluster.plan(), cluster.observed());
    let seen = Seen {
        now: cluster.now,
        followed: began,
        held: None,
        install: &cluster.install,
        observed: &observed,
        plan: &plan,
        ailing: &cluster.history.ailing,
        adopted: true,
    };
    (progress(&running, &seen), works_since(&seen))
}

/// F29: who stops a delivery stops no upgrade of the engine, which would be taken back after its time.
#[test]
fn a_root_that_somebody_suspended_holds_no_change_up() {
    for root in [true, false] {
        let mut cluster = Cluster::working();
        let (source, sync) = (cluster.install.source.clone(), cluster.install.sync.clone());
        let id = if root { source } else { sync };
        let live = cluster.objects.get_mut(&id).unwrap();
        live.fields["spec"]["suspend"] = json!(true);
        let classes: Vec<Class> = cluster.plan().findings.iter().map(|f| f.class).collect();
        assert_eq!(classes, [Class::SuspendedByHuman]);
        let (progress, since) = judged(&cluster);
        let works = (progress, since.is_some());
        assert_eq!(works, (Progress::Rolled, true), "{id}");
    }
}

/// A security upgrade of an engine whose catalog cannot be applied, in whichever way: every controller runs and answers.
#[test]
fn what_was_wrong_with_the_catalog_before_a_change_is_not_the_new_versions_fault() {
    let install = Cluster::working().install;
    let (source, sync) = (&install.source, &install.sync);
    for (root, reason, tries) in [
        (sync, "BuildFailed", true),
        (sync, "ReconciliationFailed", true),
        (sync, "HealthCheckFailed", true),
        (sync, "DependencyNotReady", false),
        (source, "VerificationError", true),
    ] {
        let mut cluster = Cluster::working();
        says(&mut cluster, root, reason);
        if !tries {
            let live = cluster.objects.get_mut(sync).unwrap();
            live.fields["status"]["lastAttemptedRevision"] = json!("main@sha1:0");
        }
        // What came with the new version is its own.
        let (progress, _) = judged(&cluster);
        assert!(matches!(progress, Progress::Failed(_)), "{reason}");
        notes(&mut cluster);
        let (progress, works) = judged(&cluster);
        assert_eq!(progress, Progress::Rolled, "{reason}");
        assert!(works.is_some(), "{reason}");
        // Each has to answer all the same.
        let live = cluster.objects.get_mut(root).unwrap();
        live.fields["status"]["lastHandledReconcileAt"] = json!("");
        assert_eq!(judged(&cluster).1, None, "{reason}");
    }
}

#[test]
fn a_fault_of_the_catalog_is_an_old_one_only_as_the_version_before_said_it() {
    let mut cluster = Cluster::working();
    let sync = cluster.install.sync.clone();
    let is_old = |cluster: &Cluster| judged(cluster).0 == Progress::Rolled;
    says(&mut cluster, &sync, "BuildFailed");
    notes(&mut cluster);
    // One of another class came with the change.
    says(&mut cluster, &sync, "HealthCheckFailed");
    assert!(!is_old(&cluster));
    notes(&mut cluster);
    assert!(is_old(&cluster));
    // While the root is at work it says nothing of it.
    let live = cluster.objects.get_mut(&sync).unwrap();
    live.fields["status"]["conditions"][0]["status"] = json!("Unknown");
    notes(&mut cluster);
    says(&mut cluster, &sync, "HealthCheckFailed");
    assert!(is_old(&cluster));
    // What it said before that is over.
    says(&mut cluster, &sync, "BuildFailed");
    assert!(!is_old(&cluster));
    // It was well in between.
    says(&mut cluster, &sync, "");
    notes(&mut cluster);
    says(&mut cluster, &sync, "HealthCheckFailed");
    assert!(!is_old(&cluster));
    // The word may be that of a version that was given up a moment ago.
    cluster.history.last_write = Some(cluster.now + Duration::HOUR);
    notes(&mut cluster);
    assert!(!is_old(&cluster));
}

/// The root whose fault is known is not all that has to work.
#[test]
fn the_engine_does_not_work_while_the_other_root_goes_or_fails() {
    let mut cluster = Cluster::working();
    let (source, sync) = (cluster.install.source.clone(), cluster.install.sync.clone());
    says(&mut cluster, &sync, "BuildFailed");
    let live = cluster.objects.get_mut(&sync).unwrap();
    live.fields["status"]["lastAttemptedRevision"] = json!("main@sha1:0");
    notes(&mut cluster);
    assert!(judged(&cluster).1.is_some());
    cluster.objects.get_mut(&source).unwrap().deleting = Some(cluster.now);
    assert_eq!(judged(&cluster).1, None, "it goes");
    cluster.objects.get_mut(&source).unwrap().deleting = None;
    says(&mut cluster, &source, "GitOperationFailed");
    assert_eq!(judged(&cluster).1, None, "it fails of something else");
}

/// One team's object could not be applied before; the new version applies nothing any more, and says so by the same reason.
#[test]
fn a_fault_of_another_object_is_the_new_versions_although_its_reason_was_there_before() {
    let mut cluster = Cluster::working();
    let sync = cluster.install.sync.clone();
    let reason = "ReconciliationFailed";
    let before = "Deployment/team-a/web dry-run failed (Invalid): spec.replicas";
    says_that(&mut cluster, &sync, (reason, before));
    notes(&mut cluster);
    let (progress, works) = judged(&cluster);
    assert_eq!((progress, works.is_some()), (Progress::Rolled, true));
    let after = "HelmRelease/team-b/db dry-run failed: no matches for kind";
    says_that(&mut cluster, &sync, (reason, after));
    let (progress, _) = judged(&cluster);
    assert!(matches!(progress, Progress::Failed(_)), "{progress:?}");
}

/// A commit mends what could not be built, and the new version can build nothing any more: both say the same words.
#[test]
fn words_without_a_name_are_the_new_versions_for_another_commit_and_once_the_root_was_well() {
    let (reason, named) = ("BuildFailed", "Job/a/b dry-run failed: x");
    let mut cluster = Cluster::working();
    let sync = cluster.install.sync.clone();
    let is_old = |cluster: &Cluster| judged(cluster).0 == Progress::Rolled;
    let tries = |cluster: &mut Cluster, commit: &str| {
        let live = cluster.objects.get_mut(&sync).unwrap();
        live.fields["status"]["lastAttemptedRevision"] = json!(format!("main@sha1:{commit}"));
    };
    says(&mut cluster, &sync, reason);
    notes(&mut cluster);
    for (commit, expected) in [("1", true), ("2", false), ("1", true)] {
        tries(&mut cluster, commit);
        recovers(&mut cluster);
        assert_eq!(is_old(&cluster), expected, "{commit}");
    }
    says(&mut cluster, &sync, "");
    recovers(&mut cluster);
    says(&mut cluster, &sync, reason);
    assert!(!is_old(&cluster));
    // The object says that it is what failed before.
    let fails = |cluster: &mut Cluster| says_that(cluster, &sync, ("ReconciliationFailed", named));
    fails(&mut cluster);
    notes(&mut cluster);
    says(&mut cluster, &sync, "");
    recovers(&mut cluster);
    fails(&mut cluster);
    tries(&mut cluster, "3");
    assert!(is_old(&cluster));
}

/// What another root complains of is no fault of the one that is well.
#[test]
fn a_root_that_is_well_again_is_so_while_another_one_fails() {
    let mut cluster = Cluster::working();
    let (source, sync) = (cluster.install.source.clone(), cluster.install.sync.clone());
    says(&mut cluster, &sync, "BuildFailed");
    notes(&mut cluster);
    says(&mut cluster, &sync, "");
    says(&mut cluster, &source, "VerificationError");
    recovers(&mut cluster);
    says(&mut cluster, &source, "");
    says(&mut cluster, &sync, "BuildFailed");
    let (progress, _) = judged(&cluster);
    assert!(matches!(progress, Progress::Failed(_)), "{progress:?}");
}

/// Argo CD names none of the objects that it could not apply.
#[test]
fn a_failed_operation_is_an_old_fault_only_of_the_same_commit() {
    let fails = |cluster: &mut Cluster, commit: &str| {
        let sync = cluster.install.sync.clone();
        let status = &mut cluster.objects.get_mut(&sync).unwrap().fields["status"];
        status["sync"] = json!({"status": "OutOfSync", "revision": commit});
        status["operationState"] = json!({
            "phase": "Failed", "message": "one or more objects failed to apply",
            "syncResult": {"revision": commit},
        });
    };
    let is_old = |cluster: &Cluster| judged(cluster).0 == Progress::Rolled;
    let mut cluster = Cluster::working_of(EngineKind::Argocd);
    fails(&mut cluster, "2");
    assert!(!is_old(&cluster));
    notes(&mut cluster);
    recovers(&mut cluster);
    assert!(is_old(&cluster));
    fails(&mut cluster, "3");
    assert!(!is_old(&cluster));
    // The root is at work: that says nothing yet.
    let sync = cluster.install.sync.clone();
    let live = cluster.objects.get_mut(&sync).unwrap();
    live.fields["status"]["operationState"]["phase"] = json!("Running");
    recovers(&mut cluster);
    notes(&mut cluster);
    fails(&mut cluster, "2");
    assert!(is_old(&cluster));
    let live = cluster.objects.get_mut(&sync).unwrap();
    live.fields["status"]["operationState"]["phase"] = json!("Succeeded");
    recovers(&mut cluster);
    fails(&mut cluster, "2");
    assert!(!is_old(&cluster));
}

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::agent::engine::flux::HELM;
use crate::agent::gate::policy::Mending;
use crate::agent::plan::tests::{Cluster, Damage, bundle_of, desired_of, flux};
use crate::agent::plan::{self, Class};
use crate::clock::rfc3339;

fn form(n: u8) -> Form {
    Form {
        kind: Some(EngineKind::Flux),
        version: format!("2.9.{n}"),
        bundle: Digest::from_bytes([n; 32]),
        registry: None,
        pull_secret: None,
        path: String::new(),
    }
}

fn wish(n: u8, change: u64) -> EngineRef {
    EngineRef {
        kind: EngineKind::Flux,
        version: form(n).version,
        bundle: form(n).bundle,
        size: 1,
        registry: None,
        pull_secret: None,
        within: 300,
        change,
    }
}

pub(super) fn change(from: u8, to: u8, failed: bool) -> Change {
    Change {
        from: form(from),
        to: form(to),
        number: 7,
        since: "2026-01-02T03:00:00Z".to_owned(),
        within: 300,
        both: false,
        objects: Vec::new(),
        failed: failed.then(|| "x".to_owned()),
        ending: None,
    }
}

#[test]
fn a_wish_begins_once_and_one_that_failed_only_when_it_is_wished_again() {
    let begin = |from: u8| Next::Begin { from: form(from) };
    let mut left = change(1, 2, true);
    left.objects = vec![Place::of(&ObjectId::new(Kind::Service, "a", "b"))];
    let cases = [
        // Nothing new; something new.
        (wish(1, 0), 1, None, Next::Keep),
        (wish(2, 7), 1, None, begin(1)),
        // Under way, also for an agent that has just started.
        (wish(2, 7), 2, Some(change(1, 2, false)), Next::Keep),
        // It was killed before it kept the new bundle.
        (wish(2, 7), 1, Some(change(1, 2, false)), begin(1)),
        // Yet another wish, and the one back: what worked last is what is gone back to.
        (wish(3, 8), 2, Some(change(1, 2, false)), begin(1)),
        (wish(1, 8), 2, Some(change(1, 2, false)), begin(1)),
        // It failed: back, and not again.
        (wish(2, 7), 2, Some(change(1, 2, true)), Next::Back),
        (wish(2, 7), 1, Some(change(1, 2, true)), Next::Keep),
        (wish(2, 8), 1, Some(change(1, 2, true)), begin(1)),
        // What failed is remembered until all of it is gone, and until something else is wished.
        (wish(1, 8), 1, Some(left), Next::Keep),
        (wish(1, 8), 1, Some(change(1, 2, true)), Next::Forget),
        (wish(3, 8), 1, Some(change(1, 2, true)), begin(1)),
        // It failed, it was killed on the way back, and something else is wished.
        (wish(3, 8), 2, Some(change(1, 2, true)), begin(1)),
    ];
    for (wish, in_force, change, expected) in cases {
        let found = next(&wish, &form(in_force), change.as_ref());
        assert_eq!(found, expected, "{wish:?} {in_force} {change:?}");
    }
    let mirrored = EngineRef {
        registry: Some("mirror.lan".to_owned()),
        ..wish(1, 0)
    };
    assert_eq!(next(&mirrored, &form(1), None), begin(1));
    let private = EngineRef {
        pull_secret: Some("regcred".to_owned()),
        ..wish(1, 0)
    };
    assert_eq!(next(&private, &form(1), None), begin(1));
    assert_eq!(next(&private, &Form::of(&private), None), Next::Keep);
}

/// Otherwise nothing would be known of what worked when it fails the second time.
#[test]
fn a_failed_change_that_is_wished_again_before_it_is_undone_keeps_its_way_back() {
    let failed = change(1, 2, true);
    let again = next(&wish(2, 8), &form(2), Some(&failed));
    assert_eq!(again, Next::Begin { from: form(1) });
    let anew = Change {
        number: 8,
        ..change(1, 2, false)
    };
    assert_eq!(next(&wish(2, 8), &form(2), Some(&anew)), Next::Keep);
    let failed = Change {
        failed: Some("again".to_owned()),
        ..anew
    };
    assert_eq!(next(&wish(2, 8), &form(2), Some(&failed)), Next::Back);
}

#[test]
fn a_version_that_never_worked_is_never_the_one_to_go_back_to() {
    let begin = Next::Begin { from: form(1) };
    for (in_force, what) in [
        (2, "it runs and was not seen to work yet"),
        (1, "it was not in force yet"),
        (
            3,
            "the next one was put in force, and its change was not kept",
        ),
    ] {
        for failed in [false, true] {
            let known = change(1, 2, failed);
            let found = next(&wish(3, 9), &form(in_force), Some(&known));
            assert_eq!(found, begin, "{what}, failed: {failed}");
        }
    }
}

#[test]
fn what_is_not_as_wanted_is_waited_for_and_then_given_up() {
    let mut cluster = Cluster::working();
    let began = cluster.now;
    let mut running = change(1, 2, false);
    running.since = rfc3339(began);
    let judge = |cluster: &Cluster, running: &Change, adopted: bool| {
        let plan = cluster.plan();
        let observed = cluster.observed();
        let seen = Seen {
            now: cluster.now,
            followed: began,
            held: None,
            install: &cluster.install,
            observed: &observed,
            plan: &plan,
            ailing: &cluster.history.ailing,
            adopted,
        };
        progress(running, &seen)
    };
    assert_eq!(judge(&cluster, &running, true), Progress::Rolled);
    // What may stay for good is no matter of the new version's.
    let mut beside = cluster.observed();
    beside.elsewhere.insert("elsewhere".to_owned());
    let plan = plan::plan(cluster.now, &cluster.install, &beside, &cluster.history);
    let classes: Vec<Class> = plan.findings.iter().map(|f| f.class).collect();
    assert_eq!(classes, [Class::TwoInstalls]);
    let seen = Seen {
        now: cluster.now,
        followed: began,
        held: None,
        install: &cluster.install,
        observed: &beside,
        plan: &plan,
        ailing: &Ailing::default(),
        adopted: true,
    };
    assert_eq!(progress(&running, &seen), Progress::Rolled);
    cluster.damage(&Damage::Image("source-controller"));
    let Progress::Going(text) = judge(&cluster, &running, true) else {
        panic!("it has time");
    };
    assert!(text.contains("source-controller"), "{text}");
    cluster.now += running.limit();
    assert!(matches!(
        judge(&cluster, &running, true),
        Progress::Failed(_)
    ));
    // Nothing worked before; it is the way back itself.
    assert!(matches!(
        judge(&cluster, &running, false),
        Progress::Going(_)
    ));
    let back = Change {
        to: running.from.clone(),
        ..running
    };
    assert!(matches!(judge(&cluster, &back, true), Progress::Going(_)));
}

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
    fails(&mut cluster, "2");
    assert!(is_old(&cluster));
    let live = cluster.objects.get_mut(&sync).unwrap();
    live.fields["status"]["operationState"]["phase"] = json!("Succeeded");
    recovers(&mut cluster);
    fails(&mut cluster, "2");
    assert!(!is_old(&cluster));
}

#[test]
fn what_no_bundle_that_stays_has_goes_in_reverse_but_no_crd_and_no_namespace() {
    let cluster = Cluster::working();
    let place = |kind: Kind, namespace: &str, name: &str| {
        Place(
            kind.as_str().to_owned(),
            namespace.to_owned(),
            name.to_owned(),
        )
    };
    let ours = "flux-system";
    let mut gone = change(1, 2, false);
    gone.objects = places(&cluster.install.bundle).collect();
    gone.objects.extend([
        place(Kind::ServiceAccount, ours, "source-watcher"),
        place(Kind::Deployment, ours, "source-watcher"),
        place(Kind::Namespace, "", "old"),
        place(Kind::CustomResourceDefinition, "", "old.fluxcd.io"),
        Place("Unheard".to_owned(), String::new(), "x".to_owned()),
    ]);
    let names: Vec<String> = surplus(&gone, &cluster.install)
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        names,
        [
            "Deployment flux-system/source-watcher",
            "ServiceAccount flux-system/source-watcher"
        ]
    );
}

/// W10: what helm-controller is asked with is in no bundle, and pinned by it.
#[test]
fn what_helm_controller_is_asked_with_goes_before_it_where_the_install_has_it_no_more() {
    let without = Cluster::working().install;
    let mut objects = flux();
    objects.push((Kind::Deployment, HELM));
    let mut desired = desired_of(EngineKind::Flux);
    desired.install.bundle = Arc::new(bundle_of(EngineKind::Flux, objects));
    let with = Install::new(&desired, &BTreeMap::new(), Some(Mending::default()));
    let left = |from: &Install, to: &Install| {
        let mut gone = change(1, 2, false);
        gone.objects = all_places([&from.bundle, &to.bundle], &[], None);
        let left = surplus(&gone, to);
        left.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let (probe, controller) = (
        "HelmRelease flux-system/linesman-probe",
        "Deployment flux-system/helm-controller",
    );
    assert_eq!(left(&with, &without), [probe, controller]);
    assert_eq!(left(&without, &with), [""; 0]);
    assert_eq!(left(&with, &with), [""; 0]);
    // Left there by an agent that did not take it away.
    assert_eq!(left(&without, &without), [probe]);
}

#[test]
fn the_other_side_of_a_change_is_that_which_is_not_given() {
    let change = change(1, 2, false);
    assert_eq!(change.other(&form(1)), &form(2));
    assert_eq!(change.other(&form(2)), &form(1));
}

fn argocd(n: u8) -> Form {
    Form {
        kind: Some(EngineKind::Argocd),
        ..form(n)
    }
}

fn of_both(from: Form, to: Form) -> Change {
    Change {
        from,
        to,
        both: true,
        ..change(1, 2, false)
    }
}

#[test]
fn a_form_is_another_ones_only_where_both_kinds_are_known() {
    let unknown = Form {
        kind: None,
        ..form(1)
    };
    assert!(form(1).is_another(&argocd(1)) && argocd(1).is_another(&form(2)));
    assert!(!form(1).is_another(&form(2)));
    assert!(!unknown.is_another(&argocd(1)) && !argocd(1).is_another(&unknown));
    assert!(of_both(form(1), argocd(2)).replaces());
    assert!(!change(1, 2, false).replaces());
}

#[test]
fn a_form_is_told_with_its_engine_digest_and_registry() {
    let plain = form(1);
    assert_eq!(plain.words(), "flux 2.9.1 (sha256:010101010101…)");
    let mirrored = Form {
        kind: None,
        registry: Some("mirror.lan".to_owned()),
        ..plain
    };
    let text = "2.9.1 (sha256:010101010101…), images of mirror.lan";
    assert_eq!(mirrored.words(), text);
    let private = Form {
        pull_secret: Some("regcred".to_owned()),
        ..mirrored.clone()
    };
    let text = format!("{text}, pulled with Secret regcred");
    assert_eq!(private.words(), text);
    assert_ne!(private, mirrored);
    assert_eq!(form(1).following("clusters/a").path, "clusters/a");
    assert_ne!(form(1), mirrored);
    assert_ne!(form(1), form(2));
}

#[test]
fn a_change_is_open_while_it_is_under_way_or_something_of_it_is_there() {
    let left = vec![Place::of(&ObjectId::new(Kind::Service, "a", "b"))];
    for (failed, left, open) in [
        (false, vec![], true),
        (true, left.clone(), true),
        (true, vec![], false),
    ] {
        let change = Change {
            objects: left,
            ..change(1, 2, failed)
        };
        assert_eq!(change.is_open(), open);
        let both = Change {
            both: true,
            ..change.clone()
        };
        assert!(prunes(None) && prunes(Some(&change)));
        assert_eq!(prunes(Some(&both)), !open);
        assert_eq!(is_of_both(&form(1), &form(1), &form(2), Some(&both)), open);
        assert!(!is_of_both(&form(1), &form(1), &form(2), Some(&change)));
    }
    assert!(!is_of_both(&form(1), &form(1), &form(2), None));
    assert!(is_of_both(&form(1), &form(1), &argocd(2), None));
    assert!(is_of_both(&argocd(1), &form(1), &form(2), None));
    assert!(is_of_both(&form(1), &argocd(1), &form(2), None));
}

#[test]
fn an_engine_rests_while_the_other_one_takes_its_place() {
    let replacing = of_both(form(1), argocd(2));
    let keep = Next::Begin { from: form(1) };
    assert!(rests(&Next::Switch, &form(1), None));
    assert!(rests(&Next::Back, &argocd(2), Some(&replacing)));
    assert!(!rests(&Next::Back, &form(1), Some(&replacing)));
    assert!(!rests(&Next::Back, &argocd(2), None));
    assert!(!rests(&Next::Keep, &argocd(2), Some(&replacing)));
    assert!(!rests(&keep, &argocd(2), Some(&replacing)));
}

#[test]
fn an_engine_is_switched_only_for_the_wish_that_was_begun() {
    let wish = EngineRef {
        kind: EngineKind::Argocd,
        ..wish(2, 7)
    };
    let begun = of_both(form(1), argocd(2));
    assert_eq!(next(&wish, &form(1), Some(&begun)), Next::Switch);
    let first = Next::Begin { from: form(1) };
    let another = Change {
        number: 6,
        ..begun.clone()
    };
    assert_eq!(next(&wish, &form(1), Some(&another)), first);
    let to_another = Change {
        to: argocd(3),
        ..begun
    };
    assert_eq!(next(&wish, &form(1), Some(&to_another)), first);
    assert_eq!(next(&wish, &form(1), None), first);
}

/// No time passes while nothing may be done, nor before a new agent has looked.
#[test]
fn the_time_of_a_change_runs_from_the_last_moment_in_which_it_could_not_go_on() {
    let cluster = Cluster::working();
    let began = cluster.now;
    let mut running = change(1, 2, false);
    running.since = rfc3339(began);
    let limit = running.limit();
    let second = Duration::SECOND;
    let late = |now, followed, held: Option<Duration>, mode, since: &str| {
        let change = Change {
            since: since.to_owned(),
            ..running.clone()
        };
        let plan = Plan {
            mode,
            ..cluster.plan()
        };
        is_late(
            &change,
            &Seen {
                now: began + now,
                followed: began + followed,
                held: held.map(|at| began + at),
                install: &cluster.install,
                observed: &cluster.observed(),
                plan: &plan,
                ailing: &Ailing::default(),
                adopted: true,
            },
        )
    };
    let none = Duration::ZERO;
    let since = running.since.as_str();
    for (now, followed, held, expected) in [
        (limit - second, none, None, false),
        (limit, none, None, true),
        (limit + LOOK - second, limit, None, false),
        (limit + LOOK, limit, None, true),
        (limit + second * 9, none, Some(second * 10), false),
        (limit + second * 10, none, Some(second * 10), true),
    ] {
        let said = late(now, followed, held, Mode::Act, since);
        assert_eq!(said, expected, "{now} {followed} {held:?}");
        assert!(!late(now, followed, held, Mode::Learning, since));
    }
    // Of a time that cannot be read, the agent's own counts.
    assert!(late(limit, none, None, Mode::Act, "soon"));
    assert!(!late(limit, second, None, Mode::Act, "soon"));
}

#[test]
fn a_workload_is_rolled_when_every_pod_is_of_the_present_template_and_available() {
    let id = ObjectId::new(Kind::Deployment, "flux-system", "source-controller");
    let live = Cluster::working().objects[&id].clone();
    let status = |generation: i64, all, updated, available, missing| {
        let mut live = live.clone();
        live.fields["status"] = serde_json::json!({
            "observedGeneration": live.generation + generation, "replicas": all, "updatedReplicas": updated,
            "availableReplicas": available, "unavailableReplicas": missing,
        });
        is_rolled(&live)
    };
    assert!(status(0, 1, 1, 1, 0) && status(1, 2, 2, 1, 0));
    assert!(!status(-1, 1, 1, 1, 0));
    assert!(!status(0, 0, 0, 1, 0));
    assert!(!status(0, 1, 1, 0, 0));
    assert!(!status(0, 2, 1, 1, 0));
    assert!(!status(0, 1, 1, 1, 1));
}

#[test]
fn the_agents_own_rights_go_last() {
    let mut gone = change(1, 2, false);
    let of = |kind, name: &str| ObjectId::new(kind, "argocd", name);
    let rights = of(Kind::RoleBinding, ENGINE_ROLE);
    let ids = [
        rights.clone(),
        of(Kind::RoleBinding, "another"),
        of(Kind::Service, ENGINE_ROLE),
        of(Kind::Deployment, "a"),
        of(Kind::Deployment, "b"),
        of(Kind::Deployment, "b"),
    ];
    gone.objects = ids.iter().map(Place::of).collect();
    let order = surplus(&gone, &Cluster::working().install);
    assert_eq!(order.len(), 5, "{order:?}");
    assert_eq!(
        order[..2],
        [of(Kind::Deployment, "b"), of(Kind::Deployment, "a")]
    );
    assert_eq!(order[4], rights);
}

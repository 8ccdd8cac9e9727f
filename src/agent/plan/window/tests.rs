use std::collections::BTreeSet;

use serde_json::json;

use super::*;
use crate::agent::plan::tests::{Cluster, Damage};
use crate::agent::plan::{Action, Plan};
use crate::clock::rfc3339;

fn annotate(cluster: &mut Cluster, id: &ObjectId, name: &str, until: OffsetDateTime) {
    let object = cluster.objects.get_mut(id).unwrap();
    object.fields["metadata"]["annotations"][name] = json!(rfc3339(until));
}

fn actions(plan: &Plan) -> Vec<(&str, &str)> {
    let named = plan
        .steps
        .iter()
        .filter(|s| s.action != Action::Nudge)
        .map(|s| (s.action.as_str(), s.target.name.as_str()));
    named.collect()
}

#[test]
fn a_window_on_one_object_holds_back_that_object_alone() {
    let mut cluster = Cluster::working();
    let id = ObjectId::new(Kind::Deployment, "flux-system", "source-controller");
    let end = cluster.now + Duration::hours(1);
    cluster.damage(&Damage::Image("source-controller"));
    cluster.damage(&Damage::Image("kustomize-controller"));
    annotate(&mut cluster, &id, MAINTENANCE, end);
    let plan = cluster.plan();
    assert_eq!(plan.mode, Mode::Act);
    assert_eq!(actions(&plan), [("apply", "kustomize-controller")]);
    assert_eq!(plan.findings.len(), 2, "{:?}", plan.findings);
    cluster.now = end;
    assert_eq!(
        actions(&cluster.plan()),
        [
            ("apply", "kustomize-controller"),
            ("apply", "source-controller")
        ]
    );
}

/// W26: what is missing comes back, what was changed stays as it is, until the hub's wish is over.
#[test]
fn while_many_clusters_fail_alike_only_what_is_missing_is_put_back() {
    let mut cluster = Cluster::working();
    cluster.damage(&Damage::Image("source-controller"));
    let gone = ObjectId::new(Kind::Deployment, "flux-system", "kustomize-controller");
    cluster.objects.remove(&gone);
    let all = [
        ("create", "kustomize-controller"),
        ("apply", "source-controller"),
    ];
    let end = cluster.now + Duration::minutes(10);
    cluster.install.policy.safe_until = Some(end);
    let plan = cluster.plan();
    assert_eq!((plan.mode, actions(&plan)), (Mode::Act, all[..1].to_vec()));
    assert_eq!(plan.findings.len(), 2, "{:?}", plan.findings);
    cluster.now = end;
    let plan = cluster.plan();
    let both: BTreeSet<_> = actions(&plan).into_iter().collect();
    assert_eq!(both, all.into());
    // A hub cannot keep an agent from its work for longer.
    cluster.install.policy.safe_until = Some(end + Duration::minutes(61));
    assert_eq!(actions(&cluster.plan()).len(), 2);
}

#[test]
fn the_hub_opens_a_window_and_one_of_more_than_a_day_counts_for_nothing() {
    let mut cluster = Cluster::working();
    cluster.damage(&Damage::Image("source-controller"));
    for (ahead, paused) in [
        (Duration::hours(24), true),
        (Duration::seconds(1), true),
        (Duration::hours(25), false),
        (Duration::seconds(-1), false),
    ] {
        let until = cluster.now + ahead;
        cluster.install.policy.paused_until = Some(until);
        let plan = cluster.plan();
        let expected = if paused {
            Mode::Paused(until)
        } else {
            Mode::Act
        };
        assert_eq!((plan.mode, plan.steps.is_empty()), (expected, paused));
    }
}

/// W24: untouched to the end of the window, then an alarm.
#[test]
fn a_fault_that_outlasts_its_window_is_overdue_and_one_that_came_later_is_not() {
    let mut cluster = Cluster::working();
    let names = |cluster: &Cluster, plan: &Plan| -> Vec<String> {
        let observed = cluster.observed();
        let history = &cluster.history;
        let found = &plan.findings;
        let all = overdue(cluster.now, &cluster.install, &observed, history, found);
        all.into_iter().map(|((_, id), _)| id.name).collect()
    };
    let end = cluster.now + Duration::hours(1);
    cluster.install.policy.paused_until = Some(end);
    cluster.damage(&Damage::Image("source-controller"));
    let plan = cluster.plan();
    cluster.history.saw(cluster.now, &plan);
    assert_eq!(names(&cluster, &plan), [""; 0], "the window is open");
    cluster.now = end;
    cluster.damage(&Damage::Image("kustomize-controller"));
    let plan = cluster.plan();
    cluster.history.saw(cluster.now, &plan);
    assert_eq!(plan.mode, Mode::Act);
    assert_eq!(names(&cluster, &plan), ["source-controller"]);
    assert_eq!(actions(&plan).len(), 2, "both are mended");
    cluster.now = end + TOLD;
    assert_eq!(names(&cluster, &plan), [""; 0], "it is an old story");
    cluster.now = end;
    cluster.install.policy.paused_until = None;
    assert_eq!(names(&cluster, &plan), [""; 0], "somebody ended it");
    let id = ObjectId::new(Kind::Deployment, "flux-system", "source-controller");
    annotate(&mut cluster, &id, MAINTENANCE, end);
    let plan = cluster.plan();
    assert_eq!(
        names(&cluster, &plan),
        ["source-controller"],
        "its own window"
    );
}

#[test]
fn the_guard_works_in_a_window_unless_the_deletion_was_allowed() {
    let mut cluster = Cluster::working();
    let crd = "kustomizations.kustomize.toolkit.fluxcd.io";
    let crd = ObjectId::new(Kind::CustomResourceDefinition, "", crd);
    let end = cluster.now + Duration::hours(1);
    cluster.install.policy.paused_until = Some(end);
    cluster.objects.get_mut(&crd).unwrap().deleting = Some(cluster.now);
    let plan = cluster.plan();
    let kinds: Vec<&str> = actions(&plan).iter().map(|(a, _)| *a).collect();
    assert_eq!(
        kinds,
        ["cut-rights", "cut-rights", "scale-to-zero", "release"]
    );
    annotate(&mut cluster, &crd, ALLOW_DELETE, end);
    assert_eq!(actions(&cluster.plan()), Vec::new());
    cluster.install.policy.paused_until = None;
    assert_eq!(actions(&cluster.plan()).len(), 4);
}

/// A word counts from before its end, and for so far ahead.
#[test]
fn a_word_counts_until_its_end_and_within_its_reach() {
    let mut cluster = Cluster::working();
    let now = cluster.now;
    let second = Duration::SECOND;
    let mut safe = |ahead| {
        cluster.install.policy.safe_until = Some(now + ahead);
        safe_until(now, &cluster.install).is_some()
    };
    assert_eq!(
        [Duration::ZERO, second, SAFE, SAFE + second].map(&mut safe),
        [false, true, true, false]
    );
    let far = |ahead| counts(now, now + ahead);
    assert_eq!(
        [Duration::ZERO, second, LONGEST, LONGEST + second].map(far),
        [false, true, true, false]
    );
}

/// A deletion is held back by nobody, and allowed only where each of them is.
#[test]
fn a_window_of_an_object_holds_its_faults_but_not_its_deletion() {
    let mut cluster = Cluster::working();
    let crds = ["gitrepositories.source", "kustomizations.kustomize"].map(|name| {
        let name = format!("{name}.toolkit.fluxcd.io");
        ObjectId::new(Kind::CustomResourceDefinition, "", &name)
    });
    let end = cluster.now + Duration::HOUR;
    annotate(&mut cluster, &crds[0], MAINTENANCE, end);
    annotate(&mut cluster, &crds[0], ALLOW_DELETE, end);
    let observed = cluster.observed();
    let of = |class, id: &ObjectId| Finding::new(class, id, "");
    let held = |class, id| held(cluster.now, &observed, &of(class, id));
    assert!(held(Class::ObjectAltered, &crds[0]));
    assert!(!held(Class::ObjectAltered, &crds[1]));
    assert!(!held(Class::CrdTerminating, &crds[0]));
    let allowed = |all: &[Finding]| allowed_to_die(cluster.now, &observed, all);
    let dying = crds.each_ref().map(|id| of(Class::CrdTerminating, id));
    assert!(allowed(&dying[..1]) && !allowed(&dying));
    // What does not die has nothing to be allowed.
    assert!(allowed(&[dying[0].clone(), of(Class::BadImage, &crds[1])]));
}

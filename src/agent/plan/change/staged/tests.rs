use std::collections::BTreeSet;

use serde_json::json;
use time::Duration;

use super::*;
use crate::agent::engine::is_workload;
use crate::agent::plan::change::tests::change;
use crate::agent::plan::change::{Change, Place};
use crate::agent::plan::tests::{Cluster, Damage, deployment, desired_of, install_for};
use crate::agent::plan::{Action, MAINTENANCE};
use crate::clock::{parse_rfc3339, rfc3339};
use crate::wire::api::EngineKind;

fn service() -> ObjectId {
    ObjectId::new(Kind::Service, "flux-system", "source-controller")
}

/// A working engine that is being changed, or changed back: these are not as they are to be, and those rest.
fn changing(failed: bool, differ: &[&ObjectId], rest: &[&ObjectId]) -> Cluster {
    let mut desired = desired_of(EngineKind::Flux);
    desired.install.change = Some(Change {
        objects: vec![Place::of(&service())],
        ..change(1, 2, failed)
    });
    let mut cluster = Cluster::working();
    cluster.install = install_for(&desired);
    for id in differ {
        let fields = &mut cluster.objects.get_mut(*id).unwrap().fields;
        if is_workload(id.kind) {
            fields["spec"]["template"]["spec"]["containers"][0]["args"] = json!(["--b"]);
        } else {
            fields["spec"] = json!({});
        }
    }
    let until = rfc3339(cluster.now + Duration::HOUR);
    for id in rest {
        let fields = &mut cluster.objects.get_mut(*id).unwrap().fields;
        fields["metadata"]["annotations"][MAINTENANCE] = json!(until);
    }
    cluster
}

/// What is done to the install now.
fn acts(cluster: &Cluster) -> BTreeSet<(&'static str, ObjectId)> {
    let steps = cluster.plan().steps.into_iter();
    let steps = steps.filter(|s| s.target.kind.installable() && !s.action.asks());
    steps.map(|s| (s.action.as_str(), s.target)).collect()
}

fn awaited(cluster: &Cluster) -> Option<ObjectId> {
    let (plan, observed) = (cluster.plan(), cluster.observed());
    let (now, install) = (cluster.now, &cluster.install);
    waits(now, install, &observed, &cluster.history, &plan.findings).cloned()
}

fn crd() -> ObjectId {
    ObjectId::crd_of(Kind::GitRepository)
}

/// Changed to another registry by an agent that saw it begin, which all controllers wait for: somebody is at work on a CRD.
fn moving() -> Cluster {
    let mut desired = desired_of(EngineKind::Flux);
    desired.install.form.registry = Some("mirror.lan".to_owned());
    desired.install.change = Some(change(1, 2, false));
    let mut cluster = changing(false, &[], &[&crd()]);
    let former = Cluster::working().install;
    cluster.history.changes_from(&former);
    cluster.install = install_for(&desired);
    cluster.objects.get_mut(&crd()).unwrap().fields["spec"] = json!({});
    cluster
}

/// Its Pods do not become ready, since so many seconds ago.
fn goes_down(cluster: &mut Cluster, id: &ObjectId, seconds: i64) {
    let live = cluster.objects.get_mut(id).unwrap();
    live.fields["status"]["availableReplicas"] = json!(0);
    let since = cluster.now - Duration::seconds(seconds);
    cluster.history.down.insert(id.clone(), since);
}

#[test]
fn a_change_waits_for_what_rests_and_for_nothing_else() {
    let service = service();
    let [one, other] = ["source-controller", "kustomize-controller"].map(deployment);
    let cases: [(&[&ObjectId], &[&ObjectId], Option<&ObjectId>); 6] = [
        (&[&one], &[&one], Some(&one)),
        // The controller waits for its stage.
        (&[&service, &one], &[&service], Some(&service)),
        // These are to be done now.
        (&[&service, &one], &[&one], None),
        (&[&one, &other], &[&one], None),
        (&[&one], &[&service], None),
        (&[], &[&service], None),
    ];
    for (differ, rest, expected) in cases {
        let found = awaited(&changing(false, differ, rest));
        assert_eq!(found.as_ref(), expected, "{differ:?} {rest:?}");
    }
}

/// W24: an engine does not stay down for as long as somebody is at work on a Service of it. What is put right is so in the new
/// version; the time of the change runs until that works.
#[test]
fn what_is_missing_or_broken_is_mended_while_a_change_waits() {
    type Case<'a> = (
        &'a str,
        fn(&mut Cluster),
        Option<(&'a str, &'a ObjectId)>,
        &'a Option<ObjectId>,
    );
    let [one, other] = ["source-controller", "kustomize-controller"].map(deployment);
    let key = changing(false, &[], &[]).install.secret;
    let waits = Some(service());
    let cases: [Case<'_>; 5] = [
        ("all works", |_| {}, None, &waits),
        (
            "it is gone",
            |c| drop(c.objects.remove(&deployment("kustomize-controller"))),
            Some(("create", &other)),
            &None,
        ),
        (
            "its node is drained",
            |c| goes_down(c, &deployment("kustomize-controller"), 29),
            None,
            &None,
        ),
        (
            "it does not come up",
            |c| goes_down(c, &deployment("kustomize-controller"), 30),
            Some(("apply", &other)),
            &None,
        ),
        (
            "its key is gone",
            |c| drop(c.objects.remove(&c.install.secret)),
            Some(("write-key", &key)),
            &None,
        ),
    ];
    for (what, breaks, expected, waits) in cases {
        let mut cluster = changing(false, &[&service(), &one, &other], &[&service()]);
        breaks(&mut cluster);
        let expected = expected.map(|(action, id)| (action, id.clone()));
        let expected: BTreeSet<_> = expected.into_iter().collect();
        assert_eq!(acts(&cluster), expected, "{what}");
        assert_eq!(&awaited(&cluster), waits, "{what}");
    }
}

/// W24, F4, F10: an object that somebody alters is so in no version, be it one that the change leaves as it is. Of what he only takes away
/// no field has another writer.
#[test]
fn what_somebody_alters_while_a_change_waits_is_mended_at_once() {
    type Case<'a> = (&'a str, fn(&mut Cluster), Option<ObjectId>);
    const ARGS: &str = "/spec/template/spec/containers/0/args";
    let one = deployment("source-controller");
    let cases: [Case<'_>; 4] = [
        ("nobody", |_| {}, None),
        (
            "a Service",
            |c| c.objects.get_mut(&service()).unwrap().fields["spec"] = json!({}),
            Some(service()),
        ),
        (
            "arguments",
            |c| c.alter("source-controller", ARGS, json!(["--b"])),
            Some(one.clone()),
        ),
        (
            "an image",
            |c| c.damage(&Damage::Image("source-controller")),
            Some(one),
        ),
    ];
    for (what, alters, altered) in cases {
        let mut cluster = moving();
        alters(&mut cluster);
        let waits = altered.is_none().then(crd);
        assert_eq!(awaited(&cluster), waits, "{what}");
        let expected: BTreeSet<_> = altered.map(|id| ("apply", id)).into_iter().collect();
        assert_eq!(acts(&cluster), expected, "{what}");
    }
}

/// One wish after the other, before any of them works: what is left of each may be there still.
#[test]
fn what_is_as_any_of_the_versions_before_waits() {
    let mut cluster = moving();
    for registry in ["a.lan", "b.lan", "c.lan", "d.lan"] {
        let mut desired = desired_of(EngineKind::Flux);
        desired.install.form.registry = Some(registry.to_owned());
        desired.install.change = Some(change(1, 2, false));
        cluster.history.changes_from(&cluster.install);
        cluster.install = install_for(&desired);
    }
    let image = "/spec/template/spec/containers/0/image";
    let altered = ("apply", deployment("source-controller"));
    for (registry, expected) in [("ghcr.io", None), ("c.lan", None), ("x.lan", Some(altered))] {
        let value = json!(format!("{registry}/fluxcd/source-controller:v1"));
        cluster.alter("source-controller", image, value);
        let expected: BTreeSet<_> = expected.into_iter().collect();
        assert_eq!(acts(&cluster), expected, "{registry}");
    }
}

/// An agent that was started in the midst of the change does not know how the former version has an object.
#[test]
fn after_a_restart_what_somebody_else_wrote_since_the_change_began_is_mended() {
    let (service, crd) = (service(), crd());
    let mut cluster = changing(false, &[&service, &crd], &[&crd]);
    let began = parse_rfc3339(&change(1, 2, false).since).unwrap();
    for (writer, seconds, altered) in [
        (MANAGER, 5, false),
        // As an engine that was there before it was adopted.
        ("kubectl-client-side-apply", -5, false),
        ("kubectl-edit", 0, true),
        ("kubectl-edit", 5, true),
    ] {
        let live = cluster.objects.get_mut(&service).unwrap();
        writer.clone_into(&mut live.writer);
        live.written = Some(began + Duration::seconds(seconds));
        let expected = altered.then(|| ("apply", service.clone()));
        let expected: BTreeSet<_> = expected.into_iter().collect();
        assert_eq!(acts(&cluster), expected, "{writer} {seconds}");
        let waits = (!altered).then(|| crd.clone());
        assert_eq!(awaited(&cluster), waits, "{writer} {seconds}");
    }
}

/// A window of a day on a CRD, and a bad commit meanwhile: the version that cannot build it is the former one.
#[test]
fn what_a_commit_breaks_does_not_end_the_wait_before_a_controller_is_changed() {
    let mut cluster = moving();
    let sync = cluster.install.sync.clone();
    let says = |cluster: &mut Cluster, reason: &str, message: &str| {
        let live = cluster.objects.get_mut(&sync).unwrap();
        live.fields["status"]["conditions"] =
            json!([{"type": "Ready", "status": "False", "reason": reason, "message": message}]);
    };
    let invalid = "Deployment/team-a/web dry-run failed (Invalid): spec.replicas";
    for (reason, message) in [("BuildFailed", "x"), ("ReconciliationFailed", invalid)] {
        says(&mut cluster, reason, message);
        assert_eq!(awaited(&cluster), Some(crd()), "{reason}");
    }
    let unserved = "Bucket/team-a/b dry-run failed: no matches for kind \"Bucket\" in version \"source.toolkit.fluxcd.io/v1beta2\"";
    says(&mut cluster, "ReconciliationFailed", unserved);
    assert_eq!(awaited(&cluster), None);
    says(&mut cluster, "BuildFailed", "x");
    let live = cluster.objects.get_mut(&deployment("kustomize-controller"));
    live.unwrap().written = Some(cluster.now);
    assert_eq!(awaited(&cluster), None);
}

#[test]
fn rights_and_accounts_do_not_wait_for_a_role_that_rests() {
    let of = |kind, namespace: &str, name: &str| ObjectId::new(kind, namespace, name);
    let name = "crd-controller-flux-system";
    let role = of(Kind::ClusterRole, "", name);
    let binding = of(Kind::ClusterRoleBinding, "", name);
    let account = of(Kind::ServiceAccount, "flux-system", "source-controller");
    let one = deployment("source-controller");
    let differ = [&role, &binding, &service(), &one];
    let mut cluster = changing(false, &differ, &[&role]);
    cluster.objects.remove(&account);
    let expected = [("apply", binding), ("create", account)];
    assert_eq!(acts(&cluster), expected.into());
    assert_eq!(awaited(&cluster), None);
}

/// No controller runs in a new version beside what is of the old one; on the way back it does.
#[test]
fn what_rests_holds_up_what_comes_after_it_but_on_the_way_back() {
    let one = deployment("source-controller");
    for (failed, expected) in [(false, None), (true, Some(("apply", one.clone())))] {
        let cluster = changing(failed, &[&service(), &one], &[&service()]);
        let expected: BTreeSet<_> = expected.into_iter().collect();
        assert_eq!(acts(&cluster), expected, "{failed}");
    }
}

#[test]
fn a_change_goes_on_while_nobody_is_at_work_on_what_it_alters() {
    let service = service();
    let [one, other] = ["source-controller", "kustomize-controller"].map(deployment);
    let at_rest = |cluster: &Cluster| {
        let findings = cluster.plan().findings;
        is_at_rest(cluster.now, &cluster.observed(), &findings)
    };
    let cases: [(&[&ObjectId], bool); 3] = [
        (&[], false),
        // It is as it is to be.
        (&[&other], false),
        (&[&service], true),
    ];
    for (rest, expected) in cases {
        let cluster = changing(false, &[&service, &one], rest);
        assert_eq!(at_rest(&cluster), expected, "{rest:?}");
        let acts_on = (!expected).then(|| ("apply", service.clone()));
        let acts_on: BTreeSet<_> = acts_on.into_iter().collect();
        assert_eq!(acts(&cluster), acts_on, "{rest:?}");
    }
}

#[test]
fn a_change_goes_on_with_its_first_stage_and_what_is_no_part_of_the_manifest() {
    let id = |kind, name| ObjectId::new(kind, "flux-system", name);
    let crd = ObjectId::new(Kind::CustomResourceDefinition, "", "buckets");
    let (service, pods) = (service(), deployment("source-controller"));
    let root = id(Kind::Kustomization, "flux-system");
    let step = |target: &ObjectId| Step {
        action: Action::Apply,
        target: target.clone(),
        cause: None,
    };
    let all: Vec<Step> = [&crd, &service, &pods, &root].map(step).into();
    let left = |cluster: &Cluster, found: &[(Class, &ObjectId)]| {
        let found = found.iter().map(|(class, id)| Finding::new(*class, id, ""));
        let (mut steps, found) = (all.clone(), found.collect::<Vec<_>>());
        let known = (&cluster.observed(), &cluster.history);
        let (now, install) = (cluster.now, &cluster.install);
        stages(now, install, known, &mut steps, (&found, &found));
        steps
    };
    let (drift, report) = (Class::ObjectAltered, Class::RegistryDown);
    let later = [
        (drift, &service),
        (drift, &pods),
        (report, &crd),
        (drift, &root),
    ];
    let change = changing(false, &[], &[]);
    assert_eq!(left(&change, &later), [&crd, &service, &root].map(step));
    assert_eq!(
        left(&change, &[(drift, &crd), (drift, &pods)]),
        [&crd, &root].map(step)
    );
    assert_eq!(left(&change, &[(report, &crd), (drift, &root)]), all);
    assert_eq!(left(&Cluster::working(), &later), all);
    // What dies is guarded at once.
    let dies = [(Class::CrdTerminating, &crd), (drift, &service)];
    assert_eq!(left(&change, &dies), all);
}

#[test]
fn that_something_is_as_the_former_version_has_it_is_no_fault_while_it_works() {
    let mut cluster = moving();
    let [one, other] = ["source-controller", "kustomize-controller"].map(deployment);
    let is_fault = |cluster: &Cluster, class, id: &ObjectId| {
        let known = (&cluster.observed(), &cluster.history);
        let key = (class, id.clone());
        is_fault(cluster.now, &cluster.install, known, &key)
    };
    assert!(is_fault(&cluster, Class::ObjectMissing, &one));
    assert!(is_fault(&cluster, Class::CrashLoop, &one));
    assert!(!is_fault(&cluster, Class::BadImage, &one));
    goes_down(&mut cluster, &one, 30);
    assert!(is_fault(&cluster, Class::BadImage, &one));
    // Another one than in either version.
    cluster.damage(&Damage::Image("kustomize-controller"));
    assert!(is_fault(&cluster, Class::BadImage, &other));
}

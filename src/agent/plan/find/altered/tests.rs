use serde_json::json;

use super::*;
use crate::agent::engine::argocd::{KNOWN_HOSTS, REDIS, SKIP};
use crate::agent::plan::Action;
use crate::agent::plan::find::stopped::{stopper, suspended};
use crate::agent::plan::find::tests::{flux_told, id, object, told};
use crate::agent::plan::tests::{Cluster, install_signed};
use crate::wire::api::EngineKind;

mod workloads;

/// F3, F4, F10
#[test]
#[expect(clippy::too_many_lines, reason = "a row for each case")]
fn what_differs_has_the_class_of_its_kind_and_field() {
    let live = |replicas: i64, writer: &str| Object {
        writer: writer.to_owned(),
        ..object(json!({"spec": {"replicas": replicas}}))
    };
    let zero = live(0, "kubectl");
    for (kind, name, path, live, class) in [
        (Kind::Deployment, "a", "/0/image", &zero, Class::BadImage),
        (Kind::StatefulSet, "a", "/0/image", &zero, Class::BadImage),
        (
            Kind::Deployment,
            "a",
            "/0/args",
            &zero,
            Class::ReadyButUseless,
        ),
        (
            Kind::Deployment,
            "a",
            "/0/env",
            &zero,
            Class::ReadyButUseless,
        ),
        (
            Kind::Deployment,
            "a",
            "/spec/template/spec/imagePullSecrets/regcred",
            &zero,
            Class::ObjectAltered,
        ),
        (
            Kind::Deployment,
            "a",
            "/spec/template/spec/serviceAccountName",
            &zero,
            Class::ReadyButUseless,
        ),
        (
            Kind::Deployment,
            "a",
            "/spec/replicas",
            &zero,
            Class::ScaledToZero,
        ),
        (
            Kind::Deployment,
            "a",
            "/spec/replicas",
            &live(2, "kubectl"),
            Class::ObjectAltered,
        ),
        (
            Kind::Deployment,
            "a",
            "/spec/replicas",
            &live(0, GUARD),
            Class::ObjectAltered,
        ),
        (
            Kind::Deployment,
            "a",
            "/metadata/labels",
            &zero,
            Class::ObjectAltered,
        ),
        (Kind::ClusterRole, "a", "/rules", &zero, Class::RbacAltered),
        (
            Kind::RoleBinding,
            "a",
            "/subjects",
            &zero,
            Class::RbacAltered,
        ),
        (
            Kind::Secret,
            flux::NAME,
            "/data",
            &zero,
            Class::GitSecretBad,
        ),
        (
            Kind::Secret,
            REDIS,
            "/data",
            &zero,
            Class::EngineSecretMissing,
        ),
        (Kind::Secret, "a", "/data", &zero, Class::ObjectAltered),
        (
            Kind::ConfigMap,
            KNOWN_HOSTS,
            "/data",
            &zero,
            Class::GitSecretBad,
        ),
        (Kind::ConfigMap, "a", "/data", &zero, Class::ObjectAltered),
        (Kind::AppProject, "a", "/spec", &zero, Class::ProjectMissing),
        (
            Kind::GitRepository,
            "a",
            "/spec",
            &zero,
            Class::SourceAltered,
        ),
        (
            Kind::Kustomization,
            "a",
            "/spec",
            &zero,
            Class::SourceAltered,
        ),
        (Kind::Application, "a", "/spec", &zero, Class::SourceAltered),
        (Kind::Service, "a", "/spec", &zero, Class::ObjectAltered),
    ] {
        let said = altered_class(&id(kind, name), &[path.to_owned()], live);
        assert_eq!(said, class, "{kind} {name} {path}");
    }
    let settings = ObjectId::new(Kind::ConfigMap, "argocd", "argocd-cm");
    let said = altered_class(&settings, &["/data".to_owned()], &zero);
    assert_eq!(said, Class::EngineConfigBroken);
}

#[test]
fn an_object_that_is_held_by_finalizers_for_a_minute_is_told() {
    let service = id(Kind::Service, "source-controller");
    for (seconds, finalizers, told) in [
        (61, &["a", "b"][..], true),
        (60, &["a", "b"], false),
        (61, &[], false),
    ] {
        let mut since = String::new();
        let said = flux_told(|cluster| {
            let at = cluster.now - Duration::seconds(seconds);
            since = crate::clock::rfc3339(at);
            let live = cluster.objects.get_mut(&service).unwrap();
            live.deleting = Some(at);
            live.finalizers = finalizers.iter().map(|f| (*f).to_owned()).collect();
        });
        let text = format!("is being deleted, held by a, b; since {since}");
        let expected = if told {
            vec![(Class::LeftoverFinalizers, text)]
        } else {
            vec![]
        };
        assert_eq!(said, expected, "{seconds} {finalizers:?}");
    }
    // A dying CRD is the guard's.
    let said = flux_told(|cluster| {
        let crd = id(
            Kind::CustomResourceDefinition,
            "gitrepositories.source.toolkit.fluxcd.io",
        );
        let live = cluster.objects.get_mut(&crd).unwrap();
        live.deleting = Some(cluster.now - Duration::hours(1));
        live.finalizers = vec!["customresourcecleanup.apiextensions.k8s.io".to_owned()];
    });
    assert_eq!(
        said,
        [(Class::CrdTerminating, "is being deleted".to_owned())]
    );
}

/// Each is left as it is: that nobody of the install does.
#[test]
fn a_suspension_is_told_of_the_installs_own_objects_only() {
    let said = |namespace: &str, flag: Value| {
        let install = Cluster::working().install;
        let id = ObjectId::new(Kind::Kustomization, namespace, "a");
        suspended(
            &install,
            &History::default(),
            (&id, &object(json!({"spec": {"suspend": flag}}))),
        )
    };
    let text = Some("spec.suspend is set by 'kubectl'".to_owned());
    assert_eq!(said("flux-system", json!(true)), text);
    assert_eq!(said("flux-system", json!(false)), None);
    assert_eq!(said("team-a", json!(true)), None);
}

/// F29: who, and since when, also where somebody else wrote something later; and that a window's end over it is an alarm.
#[test]
fn a_suspension_tells_whose_it_is_and_since_when() {
    let mut cluster = Cluster::working();
    let sync = cluster.install.sync.clone();
    let since = cluster.now - Duration::minutes(3);
    let end = cluster.now + Duration::minutes(10);
    let live = cluster.objects.get_mut(&sync).unwrap();
    live.fields["spec"]["suspend"] = json!(true);
    "kustomize-controller".clone_into(&mut live.writer);
    live.written = Some(cluster.now);
    live.stopped = Some(("flux".to_owned(), Some(since)));
    cluster.install.policy.paused_until = Some(end);
    let plan = cluster.plan();
    let said: Vec<_> = plan
        .findings
        .iter()
        .map(|f| (f.class, f.evidence.as_str(), f.writer.as_str(), f.fault_at))
        .collect();
    let text = "spec.suspend is set by 'flux'";
    assert_eq!(said, [(Class::SuspendedByHuman, text, "flux", Some(since))]);
    cluster.history.saw(cluster.now, &plan);
    cluster.now = end;
    let (observed, plan) = (cluster.observed(), cluster.plan());
    let overdue = crate::agent::plan::window::overdue(
        cluster.now,
        &cluster.install,
        &observed,
        &cluster.history,
        &plan,
    );
    assert_eq!(overdue, [((Class::SuspendedByHuman, sync), end)]);
}

/// What stopped it before, and does not now, is nobody's doing of today.
#[test]
fn a_field_that_does_not_stop_it_names_nobody() {
    let by = Some(("flux".to_owned(), None));
    let of = |fields: Value| Object {
        stopped: by.clone(),
        ..object(fields)
    };
    let skip = |word: &str| json!({"metadata": {"annotations": {SKIP: word}}});
    for (fields, expected) in [
        (json!({"spec": {"suspend": true}}), Some(("flux", None))),
        (json!({"spec": {"suspend": false}}), None),
        (skip("true"), Some(("flux", None))),
        (skip("false"), None),
    ] {
        assert_eq!(stopper(&of(fields.clone())), expected, "{fields}");
    }
}

/// Only where somebody stopped it is a difference how he did that.
#[test]
fn a_root_that_follows_another_branch_differs_and_one_that_is_pinned_is_stopped() {
    let pinned = "a".repeat(40);
    for (revision, expected) in [
        (
            "feature",
            (
                Class::SourceAltered,
                "differs at /spec/source/targetRevision",
            ),
        ),
        (
            pinned.as_str(),
            (
                Class::SuspendedByHuman,
                "spec.source.targetRevision is pinned to a commit by 'kubectl'",
            ),
        ),
    ] {
        let said = told(EngineKind::Argocd, |cluster| {
            let sync = cluster.install.sync.clone();
            let live = cluster.objects.get_mut(&sync).unwrap();
            live.fields["spec"]["source"]["targetRevision"] = json!(revision);
            "kubectl".clone_into(&mut live.writer);
        });
        assert_eq!(said, [(expected.0, expected.1.to_owned())]);
    }
    // What else somebody altered of a root that he stopped is put back.
    let said = told(EngineKind::Argocd, |cluster| {
        let sync = cluster.install.sync.clone();
        let live = cluster.objects.get_mut(&sync).unwrap();
        live.fields["spec"]["source"]["targetRevision"] = json!(pinned);
        live.fields["spec"]["source"]["path"] = json!("elsewhere");
        "kubectl".clone_into(&mut live.writer);
    });
    let classes: Vec<Class> = said.iter().map(|(class, _)| *class).collect();
    assert_eq!(classes, [Class::SuspendedByHuman, Class::SourceAltered]);
    assert_eq!(said[1].1, "differs at /spec/source/path");
}

/// F24, F30, W43: one more of them, and somebody else's commits are applied.
#[test]
fn a_key_that_somebody_put_beside_the_signers_is_taken_away() {
    let id = ObjectId::new(Kind::Secret, flux::NAME, SIGNERS);
    let mut cluster = Cluster::working_with(install_signed());
    assert_eq!(cluster.plan().findings, []);
    let live = cluster.objects.get_mut(&id).unwrap();
    live.fields["data"]["theirs.asc"] = json!("hash");
    let plan = cluster.plan();
    let found = plan.findings.iter();
    let found: Vec<_> = found.map(|f| (f.class, &f.object, &*f.evidence)).collect();
    let text = "differs at /data/theirs.asc";
    assert_eq!(found, [(Class::GitSecretBad, &id, text)]);
    let steps = plan.steps.iter().map(|step| (&step.action, &step.target));
    assert_eq!(steps.collect::<Vec<_>>(), [(&Action::WriteSecret, &id)]);
}

/// What somebody adds to the guard policy or its binding may be all that it takes to switch it off.
#[test]
fn a_guard_policy_that_somebody_narrowed_differs() {
    let of = |kind| ObjectId::new(kind, "", "linesman-guard");
    let policy = of(Kind::ValidatingAdmissionPolicy);
    let binding = of(Kind::ValidatingAdmissionPolicyBinding);
    for (id, pointer, field, value) in [
        (
            &policy,
            "/spec/matchConstraints",
            "objectSelector",
            json!({"matchLabels": {"a": "b"}}),
        ),
        (&binding, "/spec", "paramRef", json!({"name": "a"})),
    ] {
        let said = flux_told(|cluster| {
            let live = cluster.objects.get_mut(id).unwrap();
            live.fields.pointer_mut(pointer).unwrap()[field] = value;
            "kubectl".clone_into(&mut live.writer);
        });
        let text = format!("differs at {pointer}/{field}");
        assert_eq!(said, [(Class::ObjectAltered, text)], "{id}");
    }
}

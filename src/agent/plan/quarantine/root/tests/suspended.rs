//! A root of Flux that is suspended: what a person means is left, what a commit has is held back.

use serde_json::json;

use super::{root, writes};
use crate::agent::plan::Class;
use crate::agent::plan::tests::Cluster;
use crate::bundle::Kind;

/// The root is suspended by this field manager; somebody else may have written something since.
fn suspended(kind: Kind, by: &str, writer: &str) -> Cluster {
    let mut cluster = Cluster::working();
    let live = cluster.objects.get_mut(&root(kind)).unwrap();
    live.fields["spec"]["suspend"] = json!(true);
    live.generation += 1;
    live.stopped = Some((by.to_owned(), None));
    writer.clone_into(&mut live.writer);
    cluster
}

/// F29, W18: no other commit would arrive, so it is mended as one that leads the root elsewhere, once.
#[test]
fn a_root_that_a_commit_suspends_is_held_and_resumed() {
    for kind in [Kind::GitRepository, Kind::Kustomization] {
        for writer in ["kustomize-controller", "flux"] {
            let mut cluster = suspended(kind, "kustomize-controller", writer);
            let plan = cluster.plan();
            let found: Vec<_> = plan
                .findings
                .iter()
                .map(|f| (f.class, f.evidence.as_str(), f.commit.as_str()))
                .collect();
            let said = "differs at /spec/suspend; commit main@sha1:1 has it so";
            assert_eq!(found, [(Class::SourceAltered, said, "main@sha1:1")]);
            assert_eq!(writes(&plan), [("hold", kind), ("replace", kind)]);
            for step in &plan.steps {
                cluster.act(step);
            }
            let live = &cluster.objects[&root(kind)];
            assert_eq!(live.fields.pointer("/spec/suspend"), None);
            let plan = cluster.plan();
            assert_eq!(writes(&plan), []);
            assert_eq!(plan.findings, []);
        }
    }
}

/// F29: a person's is left, also where Flux wrote something else of the root since, or said what it tried last to nobody.
#[test]
fn a_root_that_a_person_suspends_is_reported_and_left() {
    for kind in [Kind::GitRepository, Kind::Kustomization] {
        for by in ["flux", "kubectl-edit"] {
            let cluster = suspended(kind, by, "kustomize-controller");
            let plan = cluster.plan();
            let found: Vec<_> = plan.findings.iter().map(|f| (f.class, &f.writer)).collect();
            assert_eq!(found, [(Class::SuspendedByHuman, &by.to_owned())]);
            assert_eq!(writes(&plan), []);
        }
        let mut cluster = suspended(kind, "kustomize-controller", "kustomize-controller");
        let sync = cluster.install.sync.clone();
        let status = &mut cluster.objects.get_mut(&sync).unwrap().fields["status"];
        status["lastAttemptedRevision"] = json!("");
        let plan = cluster.plan();
        assert_eq!(plan.findings[0].class, Class::SuspendedByHuman);
        assert_eq!(writes(&plan), []);
    }
}

/// F29: before it takes away what a person set with kubectl, Flux calls it its own for a moment.
#[test]
fn a_root_that_a_person_suspended_is_no_commits_when_flux_takes_the_field_over() {
    for kind in [Kind::GitRepository, Kind::Kustomization] {
        let mut cluster = suspended(kind, "kubectl-patch", "kubectl-patch");
        cluster.round();
        let live = cluster.objects.get_mut(&root(kind)).unwrap();
        live.stopped = Some(("kustomize-controller".to_owned(), None));
        let plan = cluster.round();
        let found: Vec<Class> = plan.findings.iter().map(|f| f.class).collect();
        assert_eq!(found, [Class::SuspendedByHuman]);
        assert_eq!(writes(&plan), []);
        // Once it was resumed, a commit is a commit.
        let live = cluster.objects.get_mut(&root(kind)).unwrap();
        live.fields["spec"]
            .as_object_mut()
            .unwrap()
            .remove("suspend");
        cluster.settle(20);
        let live = cluster.objects.get_mut(&root(kind)).unwrap();
        live.fields["spec"]["suspend"] = json!(true);
        let found = &cluster.plan().findings[0];
        assert_eq!(found.class, Class::SourceAltered);
    }
}

use serde_json::{Value, json};
use time::Duration;

use crate::agent::plan::quarantine::{RECONCILE, hold, holds};
use crate::agent::plan::tests::Cluster;
use crate::agent::plan::{Action, Class, Plan};
use crate::bundle::{Kind, ObjectId};

mod argocd;
mod suspended;

fn root(kind: Kind) -> ObjectId {
    ObjectId::new(kind, "flux-system", "flux-system")
}

/// The fields of F28, and what a commit makes of them.
fn rewrites() -> [(ObjectId, &'static str, Value); 6] {
    let (source, sync) = (root(Kind::GitRepository), root(Kind::Kustomization));
    [
        (
            source.clone(),
            "/spec/url",
            json!("ssh://git@elsewhere.test/c.git"),
        ),
        (source.clone(), "/spec/ref/branch", json!("other")),
        (source, "/spec/secretRef/name", json!("other")),
        (sync.clone(), "/spec/path", json!("./elsewhere")),
        (sync.clone(), "/spec/sourceRef/name", json!("other")),
        (sync, "/spec/deletionPolicy", json!("Delete")),
    ]
}

/// Flux applies a commit's version of a root, where nothing keeps it from that.
fn applies(cluster: &mut Cluster, id: &ObjectId, pointer: &str, value: &Value) {
    let applier = cluster.install.traits.applier;
    let now = cluster.now;
    let live = cluster.objects.get_mut(id).unwrap();
    let field = live.fields.pointer_mut(pointer).unwrap();
    if field == value {
        return;
    }
    *field = value.clone();
    live.generation += 1;
    applier.clone_into(&mut live.writer);
    live.written = Some(now);
}

fn is_disabled(cluster: &Cluster, id: &ObjectId) -> bool {
    cluster.objects[id].annotation(RECONCILE) == Some("disabled")
}

fn is_held(cluster: &Cluster, id: &ObjectId) -> bool {
    holds(&cluster.install, &cluster.observed()).contains_key(id)
}

/// source-controller looked at its object as it is now; both are at this revision.
fn followed(cluster: &mut Cluster, revision: &str) {
    let (source, sync) = (root(Kind::GitRepository), root(Kind::Kustomization));
    let live = cluster.objects.get_mut(&source).unwrap();
    live.fields["status"]["observedGeneration"] = json!(live.generation);
    for id in [source, sync] {
        let status = &mut cluster.objects.get_mut(&id).unwrap().fields["status"];
        status["artifact"]["revision"] = json!(revision);
        status["lastAppliedRevision"] = json!(revision);
        status["lastAttemptedRevision"] = json!(revision);
    }
}

fn writes(plan: &Plan) -> Vec<(&str, Kind)> {
    let steps = plan.steps.iter().filter(|s| s.action != Action::Nudge);
    steps.map(|s| (s.action.as_str(), s.target.kind)).collect()
}

/// F28: Flux has the bad commit and takes back each repair, so it is held back before the first.
#[test]
fn a_root_that_a_commit_rewrites_is_held_and_mended_once() {
    for (id, pointer, value) in rewrites() {
        let mut cluster = Cluster::working();
        let assigned = cluster.objects[&id].fields.pointer(pointer).cloned();
        for _ in 0..60 {
            if !is_disabled(&cluster, &id) {
                applies(&mut cluster, &id, pointer, &value);
            }
            cluster.round();
        }
        let mended = cluster
            .steps
            .iter()
            .filter(|(_, s)| s.action == Action::Apply);
        assert_eq!(mended.count(), 1, "{pointer}");
        let live = &cluster.objects[&id];
        assert_eq!(live.fields.pointer(pointer), assigned.as_ref());
        let held = hold(live).unwrap();
        assert_eq!(
            (held.revision.as_str(), held.reason.as_str(), held.attempt),
            (
                "main@sha1:1",
                format!("differs at {pointer}; commit main@sha1:1 has it so").as_str(),
                1
            )
        );
        assert_eq!(cluster.plan().findings, [], "{pointer}");
    }
}

/// F28: what a person changed no commit brings again.
#[test]
fn a_root_that_a_person_rewrites_is_mended_and_not_held() {
    for (id, pointer, value) in rewrites() {
        let mut cluster = Cluster::working();
        applies(&mut cluster, &id, pointer, &value);
        "kubectl-edit".clone_into(&mut cluster.objects.get_mut(&id).unwrap().writer);
        let plan = cluster.plan();
        let found = &plan.findings[0];
        assert_eq!(
            (found.class, found.commit.as_str()),
            (Class::SourceAltered, "")
        );
        assert_eq!(writes(&plan), [("apply", id.kind)], "{pointer}");
    }
}

/// F28, W18: the next commit that Flux applied from the catalog, and not from where the bad one led it.
#[test]
fn a_root_is_given_back_by_the_next_commit_of_its_own_catalog() {
    let mut cluster = Cluster::working();
    let (id, pointer, value) = rewrites().into_iter().next().unwrap();
    applies(&mut cluster, &id, pointer, &value);
    let plan = cluster.plan();
    assert_eq!(writes(&plan), [("hold", id.kind), ("apply", id.kind)]);
    for step in &plan.steps {
        cluster.act(step);
    }
    let mut lifts = |revision: &str, anew: bool| {
        followed(&mut cluster, revision);
        if !anew {
            let live = cluster.objects.get_mut(&id).unwrap();
            live.fields["status"]["observedGeneration"] = json!(live.generation - 1);
        }
        let plan = cluster.plan();
        !writes(&plan).is_empty()
    };
    assert!(!lifts("main@sha1:1", true), "the same commit");
    assert!(!lifts("main@sha1:e", false), "a commit of another catalog");
    assert!(lifts("main@sha1:2", true));
    let plan = cluster.plan();
    assert_eq!(writes(&plan), [("lift", id.kind)]);
    for step in &plan.steps {
        cluster.act(step);
    }
    assert!(!is_held(&cluster, &id) && !is_disabled(&cluster, &id));
    // It still has it so: held again, for longer.
    cluster.now += Duration::seconds(30);
    cluster.history.faults.clear();
    applies(&mut cluster, &id, pointer, &value);
    let plan = cluster.plan();
    assert_eq!(writes(&plan), [("hold", id.kind), ("apply", id.kind)]);
    for step in &plan.steps {
        cluster.act(step);
    }
    assert_eq!(hold(&cluster.objects[&id]).unwrap().attempt, 2);
}

/// F24, W18: the keys with which Flux fetches, and the host keys that it trusts, are the hub's word, whatever a commit has.
#[test]
fn a_git_secret_that_a_commit_rewrites_is_held_and_written_again() {
    let mut cluster = Cluster::working();
    let id = root(Kind::Secret);
    let before = cluster.objects[&id].fields["data"].clone();
    let live = cluster.objects.get_mut(&id).unwrap();
    live.fields["data"]["known_hosts"] = json!("another");
    cluster.install.traits.applier.clone_into(&mut live.writer);
    let plan = cluster.plan();
    assert_eq!(writes(&plan), [("hold", id.kind), ("write-key", id.kind)]);
    for step in &plan.steps {
        cluster.act(step);
    }
    assert!(is_held(&cluster, &id) && is_disabled(&cluster, &id));
    assert_eq!(cluster.objects[&id].fields["data"], before);
    assert_eq!(writes(&cluster.plan()), []);
    followed(&mut cluster, "main@sha1:2");
    assert_eq!(writes(&cluster.plan()), [("lift", id.kind)]);
}

/// F28, W18: what a root follows instead of its branch is taken away: a commit's is held back, a person's is not. Otherwise no
/// commit would arrive any more, and nothing would be broken.
#[test]
fn a_root_that_is_pinned_follows_its_branch_again() {
    let id = root(Kind::GitRepository);
    for (field, value) in [
        ("commit", "c0ffee"),
        ("tag", "v1"),
        ("semver", "1.x"),
        ("name", "refs/heads/other"),
    ] {
        for by_commit in [true, false] {
            let mut cluster = Cluster::working();
            let before = cluster.objects[&id].fields["spec"].clone();
            let writer = cluster.install.traits.applier;
            let live = cluster.objects.get_mut(&id).unwrap();
            live.fields["spec"]["ref"][field] = json!(value);
            if by_commit { writer } else { "kubectl-edit" }.clone_into(&mut live.writer);
            let plan = cluster.plan();
            let found = &plan.findings[0];
            let commit = if by_commit {
                "; commit main@sha1:1 has it so"
            } else {
                ""
            };
            assert_eq!(
                (found.class, found.evidence.clone()),
                (
                    Class::SourceAltered,
                    format!("differs at /spec/ref/{field}{commit}")
                )
            );
            let steps: &[_] = if by_commit {
                &[("hold", id.kind), ("replace", id.kind)]
            } else {
                &[("replace", id.kind)]
            };
            assert_eq!(writes(&plan), steps);
            for step in &plan.steps {
                cluster.act(step);
            }
            assert_eq!(cluster.objects[&id].fields["spec"], before);
            assert_eq!(writes(&cluster.plan()), []);
        }
    }
}

/// F28: where a root applies to, and under which names, is no more anybody's than what it follows.
#[test]
fn a_root_that_applies_elsewhere_applies_here_again() {
    let id = root(Kind::Kustomization);
    for (field, value) in [
        ("kubeConfig", json!({"secretRef": {"name": "elsewhere"}})),
        ("targetNamespace", json!("default")),
        ("namePrefix", json!("new-")),
        ("nameSuffix", json!("-new")),
    ] {
        let mut cluster = Cluster::working();
        let live = cluster.objects.get_mut(&id).unwrap();
        let before = live.fields["spec"].clone();
        live.fields["spec"][field] = value;
        "kubectl-edit".clone_into(&mut live.writer);
        let plan = cluster.plan();
        assert_eq!(writes(&plan), [("replace", id.kind)], "{field}");
        let found: Vec<_> = plan
            .findings
            .iter()
            .map(|f| (f.class, f.evidence.clone()))
            .collect();
        let said = format!("differs at /spec/{field}");
        assert_eq!(found, [(Class::SourceAltered, said)]);
        cluster.act(&plan.steps[0]);
        assert_eq!(cluster.objects[&id].fields["spec"], before);
        assert_eq!(writes(&cluster.plan()), []);
    }
}

/// F18, F28: with a duration that Go cannot hold Flux reads no source any more, the root first. One that it can is people's.
#[test]
fn a_timeout_of_the_root_that_cannot_be_read_is_taken_away() {
    let id = root(Kind::GitRepository);
    for (timeout, steps) in [("99999999h", &[("replace", id.kind)][..]), ("90s", &[])] {
        let mut cluster = Cluster::working();
        let before = cluster.objects[&id].fields["spec"].clone();
        let live = cluster.objects.get_mut(&id).unwrap();
        live.fields["spec"]["timeout"] = json!(timeout);
        "kubectl-edit".clone_into(&mut live.writer);
        let plan = cluster.plan();
        assert_eq!(writes(&plan), steps, "{timeout}");
        let found: Vec<_> = plan.findings.iter().map(|f| f.evidence.as_str()).collect();
        let said = ["differs at /spec/timeout"];
        assert_eq!(found, &said[..steps.len()], "{timeout}");
        for step in &plan.steps {
            cluster.act(step);
            assert_eq!(cluster.objects[&id].fields["spec"], before);
        }
        assert_eq!(writes(&cluster.plan()), []);
    }
}

/// A reference that says nothing is none.
#[test]
fn a_root_with_an_empty_reference_is_as_assigned() {
    let mut cluster = Cluster::working();
    let live = cluster.objects.get_mut(&root(Kind::GitRepository)).unwrap();
    live.fields["spec"]["ref"]["tag"] = json!("");
    assert_eq!(cluster.plan().findings, []);
}

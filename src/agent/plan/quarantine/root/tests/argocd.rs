//! The same with Argo CD, whose root is one object and is told of its own hold.

use serde_json::{Value, json};
use time::Duration;

use crate::agent::engine::TRACKING;
use crate::agent::plan::quarantine::shield::OPTIONS;
use crate::agent::plan::quarantine::{hold, holds};
use crate::agent::plan::tests::Cluster;
use crate::agent::plan::{Action, Class, Plan};
use crate::bundle::{Kind, ObjectId};
use crate::clock::rfc3339;
use crate::wire::api::EngineKind;

mod commits;
mod trust;

const ROOT: &str = "linesman";
const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

fn application(name: &str) -> ObjectId {
    ObjectId::new(Kind::Application, "argocd", name)
}

/// The fields of F28 and what leads past them, what a commit makes of them, and how that is mended.
fn rewrites() -> [(&'static str, Value, &'static str); 7] {
    let elsewhere = json!("ssh://git@elsewhere.test/c.git");
    let source = json!({"repoURL": elsewhere, "path": ".", "targetRevision": "main"});
    [
        ("/spec/source/repoURL", elsewhere, "apply"),
        ("/spec/source/path", json!("elsewhere"), "apply"),
        ("/spec/source/targetRevision", json!("other"), "apply"),
        ("/spec/source/targetRevision", json!(COMMIT), "apply"),
        ("/spec/syncPolicy/automated", Value::Null, "apply"),
        ("/spec/sources", json!([source]), "replace"),
        (
            "/spec/sourceHydrator",
            json!({"drySource": source}),
            "replace",
        ),
    ]
}

/// The catalog holds the root, and this Application brings it.
fn brought_by(name: &str) -> Cluster {
    let mut cluster = Cluster::working_of(EngineKind::Argocd);
    let root = cluster.objects.get_mut(&application(ROOT)).unwrap();
    let tracked = format!("{name}:argoproj.io/Application:argocd/{ROOT}");
    root.fields["metadata"]["annotations"][TRACKING] = json!(tracked);
    if name != ROOT {
        let live = json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
            "metadata": {"name": name, "namespace": "argocd", "resourceVersion": "7"},
            "spec": {"syncPolicy": {"automated": {}}},
        });
        cluster.applications.insert(application(name), live);
    }
    cluster.now += Duration::seconds(30);
    looked_at(&mut cluster, name, "1", None);
    cluster
}

fn says(cluster: &mut Cluster, name: &str, status: Value) {
    match cluster.objects.get_mut(&application(name)) {
        Some(root) => root.fields["status"] = status,
        None => cluster.applications.get_mut(&application(name)).unwrap()["status"] = status,
    }
}

/// An Application has seen and applied this commit, of another repository or its own.
fn looked_at(cluster: &mut Cluster, name: &str, revision: &str, elsewhere: Option<&str>) {
    let root = &cluster.objects[&application(ROOT)];
    let mut source = root.fields["spec"]["source"].clone();
    if let Some(url) = elsewhere {
        source["repoURL"] = json!(url);
    }
    let status = json!({
        "reconciledAt": rfc3339(cluster.now),
        "sync": {"status": "Synced", "revision": revision, "comparedTo": {"source": source}},
        "operationState": {"phase": "Succeeded", "syncResult": {"revision": revision}},
    });
    says(cluster, name, status);
}

/// Argo CD applies a commit's version of the root, where nothing keeps it from that.
fn applies(cluster: &mut Cluster, pointer: &str, value: &Value) {
    let root = cluster.objects.get_mut(&application(ROOT)).unwrap();
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    let parent = root.fields.pointer_mut(parent).unwrap();
    if parent[field] == *value {
        return;
    }
    parent[field] = value.clone();
    root.generation += 1;
    cluster.install.traits.applier.clone_into(&mut root.writer);
    root.written = Some(cluster.now);
}

/// The operation goes on that applied it, and has the result of the one before.
fn bad_commit(cluster: &mut Cluster, name: &str, revision: &str) {
    let (pointer, value, _) = rewrites().into_iter().next().unwrap();
    applies(cluster, pointer, &value);
    let status = json!({
        "reconciledAt": rfc3339(cluster.now), "sync": {"status": "OutOfSync", "revision": revision},
        "operationState": {
            "phase": "Running", "operation": {"sync": {"revision": revision}}, "syncResult": {"revision": "1"},
        },
    });
    says(cluster, name, status);
}

fn ignores(live: &Value) -> Vec<Value> {
    let all = live["spec"]["ignoreDifferences"].as_array();
    all.cloned().unwrap_or_default()
}

fn root(cluster: &Cluster) -> &Value {
    &cluster.objects[&application(ROOT)].fields
}

fn of_root() -> Value {
    json!({
        "group": "argoproj.io", "kind": "Application", "namespace": "argocd", "name": ROOT,
        "jsonPointers": ["/spec"],
    })
}

fn is_held(cluster: &Cluster) -> bool {
    holds(&cluster.install, &cluster.observed()).contains_key(&application(ROOT))
}

fn writes(plan: &Plan) -> Vec<(&str, &str)> {
    let steps = plan.steps.iter().filter(|s| s.action != Action::Nudge);
    let named = steps.map(|s| (s.action.as_str(), s.target.name.as_str()));
    named.collect()
}

fn do_all(cluster: &mut Cluster) {
    for step in &cluster.plan().steps {
        cluster.act(step);
    }
}

/// F28, W18: Argo CD has the bad commit and takes back each repair, so the root is told to leave itself alone before the
/// first, and is not told otherwise by it.
#[test]
fn a_root_that_a_commit_rewrites_is_held_and_mended_once() {
    for (pointer, value, mend) in rewrites() {
        let mut cluster = brought_by(ROOT);
        let assigned = root(&cluster).pointer(pointer).cloned();
        for _ in 0..60 {
            if !ignores(root(&cluster)).contains(&of_root()) {
                applies(&mut cluster, pointer, &value);
            }
            cluster.round();
        }
        let steps = cluster.steps.iter().map(|(_, step)| step.action.as_str());
        let steps = steps.filter(|action| *action != "nudge");
        assert_eq!(
            steps.collect::<Vec<_>>(),
            ["shield", "hold", mend],
            "{pointer}"
        );
        assert_eq!(root(&cluster).pointer(pointer), assigned.as_ref());
        let live = &cluster.objects[&application(ROOT)];
        let held = hold(live).unwrap();
        assert_eq!(
            (held.revision.as_str(), held.reason.as_str(), held.attempt),
            (
                "1",
                format!("differs at {pointer}; commit 1 has it so").as_str(),
                1
            )
        );
        assert_eq!(live.annotation(OPTIONS), Some("Prune=false"));
        assert_eq!(cluster.plan().findings, [], "{pointer}");
    }
}

/// F28, F29: what a person changed no commit brings again; what a person stopped stays so.
#[test]
fn a_root_that_a_person_rewrites_is_mended_and_not_held() {
    for (pointer, value, mend) in rewrites() {
        let mut cluster = brought_by(ROOT);
        applies(&mut cluster, pointer, &value);
        let live = cluster.objects.get_mut(&application(ROOT)).unwrap();
        "kubectl-edit".clone_into(&mut live.writer);
        let plan = cluster.plan();
        let (class, steps) = if value == json!(COMMIT) || value.is_null() {
            (Class::SuspendedByHuman, vec![])
        } else {
            (Class::SourceAltered, vec![(mend, ROOT)])
        };
        let found = &plan.findings[0];
        assert_eq!((found.class, found.commit.as_str()), (class, ""));
        assert_eq!(writes(&plan), steps, "{pointer}");
    }
}

/// F29: whoever has Argo CD skip the root means it, whatever it wrote before.
#[test]
fn a_root_that_is_skipped_stays_stopped_whoever_wrote_it_last() {
    let mut cluster = brought_by(ROOT);
    applies(&mut cluster, "/spec/source/targetRevision", &json!(COMMIT));
    let live = cluster.objects.get_mut(&application(ROOT)).unwrap();
    live.fields["metadata"]["annotations"][super::super::SKIP] = json!("true");
    let plan = cluster.plan();
    let classes: Vec<Class> = plan.findings.iter().map(|f| f.class).collect();
    assert_eq!(classes, [Class::SuspendedByHuman]);
    assert_eq!(writes(&plan), []);
}

/// F28: while it is held nobody's version of it lasts, and what the engine wrote in the very second of the hold is no
/// person's stop.
#[test]
fn a_held_root_that_is_rewritten_again_is_mended_and_stays_held() {
    for (pointer, value, mend) in rewrites() {
        let mut cluster = brought_by(ROOT);
        bad_commit(&mut cluster, ROOT, "2");
        do_all(&mut cluster);
        applies(&mut cluster, pointer, &value);
        assert_eq!(writes(&cluster.plan()), [(mend, ROOT)], "{pointer}");
        do_all(&mut cluster);
        assert!(is_held(&cluster) && ignores(root(&cluster)).contains(&of_root()));
        assert_eq!(writes(&cluster.plan()), [], "{pointer}");
    }
}

/// F28: where another Application brings the root, that one is told; one that is not known cannot be.
#[test]
fn a_root_that_another_application_brings_is_held_there() {
    let by = "platform";
    let mut cluster = brought_by(by);
    let before = (root(&cluster)["spec"].clone(), cluster.applications.clone());
    bad_commit(&mut cluster, by, "2");
    let known = std::mem::take(&mut cluster.applications);
    assert_eq!(writes(&cluster.plan()), [("apply", ROOT)]);
    cluster.applications = known;
    assert_eq!(
        writes(&cluster.plan()),
        [
            ("shield", ROOT),
            ("shield", by),
            ("hold", ROOT),
            ("apply", ROOT)
        ]
    );
    do_all(&mut cluster);
    assert_eq!(
        ignores(&cluster.applications[&application(by)]),
        [of_root()]
    );
    let parent = json!({
        "group": "argoproj.io", "kind": "Application", "namespace": "argocd", "name": by,
        "jsonPointers": ["/spec/ignoreDifferences", "/spec/syncPolicy/syncOptions"],
    });
    assert_eq!(ignores(root(&cluster)).last(), Some(&parent));
    assert_eq!(writes(&cluster.plan()), []);

    looked_at(&mut cluster, by, "3", None);
    assert_eq!(
        writes(&cluster.plan()),
        [("lift", ROOT), ("shield", by), ("shield", ROOT)]
    );
    do_all(&mut cluster);
    let after = &cluster.applications[&application(by)]["spec"];
    let specs = (root(&cluster)["spec"].clone(), after);
    assert_eq!(specs, (before.0, &before.1[&application(by)]["spec"]));
}

use serde_json::json;
use time::Duration;

use super::super::{HELD, hold, holds};
use super::*;
use crate::agent::engine::is_workload;
use crate::agent::plan::tests::Cluster;
use crate::agent::plan::{Action, Class, MAINTENANCE, Plan, Pod};
use crate::clock::rfc3339;

mod ended;
mod forsaken;
mod gone;
mod looked;
mod parents;
mod said;
mod told;
mod undone;

const SERVER: &str = "argocd-repo-server";
const IMAGE: &str = "/spec/template/spec/containers/0/image";

fn server() -> ObjectId {
    ObjectId::new(Kind::Deployment, "argocd", SERVER)
}

fn application(name: &str) -> ObjectId {
    ObjectId::new(Kind::Application, "argocd", name)
}

/// A working cluster whose catalog holds Argo CD itself, brought by this Application.
fn owned(by: &str) -> Cluster {
    let mut cluster = Cluster::working_of(EngineKind::Argocd);
    for (id, wanted) in &mut cluster.install.wanted {
        wanted.git_owned = is_workload(id.kind);
    }
    for (id, object) in &mut cluster.objects {
        if is_workload(id.kind) {
            let tracked = format!("{by}:apps/{}:argocd/{}", id.kind, id.name);
            object.fields["metadata"]["annotations"] = json!({TRACKING: tracked});
        }
    }
    if by != "linesman" {
        let live = json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
            "metadata": {"name": by, "namespace": "argocd", "resourceVersion": "7"},
            "spec": {
                "ignoreDifferences": [{"kind": "Secret", "jsonPointers": ["/data"]}],
                "syncPolicy": {"automated": {}, "syncOptions": ["CreateNamespace=true"]},
            },
        });
        cluster.applications.insert(application(by), live);
    }
    cluster.now += Duration::seconds(30);
    looked_at(&mut cluster, by, "1");
    cluster
}

/// The Application has seen and applied this commit.
fn looked_at(cluster: &mut Cluster, by: &str, revision: &str) {
    let (id, now) = (application(by), rfc3339(cluster.now));
    let status = json!({
        "reconciledAt": now, "sync": {"status": "Synced", "revision": revision},
        "operationState": {"phase": "Succeeded", "syncResult": {"revision": revision}},
    });
    match cluster.objects.get_mut(&id) {
        Some(root) => root.fields["status"] = status,
        None => cluster.applications.get_mut(&id).unwrap()["status"] = status,
    }
}

/// Git's new version of the repo-server, as Argo CD applies it; its image cannot be pulled.
fn bad_commit(cluster: &mut Cluster, by: &str, revision: &str) {
    let now = cluster.now;
    let object = cluster.objects.get_mut(&server()).unwrap();
    *object.fields.pointer_mut(IMAGE).unwrap() = json!("bad:0");
    object.generation += 1;
    "argocd-controller".clone_into(&mut object.writer);
    object.written = Some(now);
    object.fields["status"] = json!({"observedGeneration": 99});
    let pod = Pod {
        app: SERVER.to_owned(),
        waiting: Some(("ErrImagePull".to_owned(), "no such tag".to_owned())),
        ..Pod::default()
    };
    cluster.pods.insert(SERVER.to_owned(), pod);
    looked_at(cluster, by, revision);
}

fn works_again(cluster: &mut Cluster) {
    let object = cluster.objects.get_mut(&server()).unwrap();
    object.fields["status"] =
        json!({"observedGeneration": 99, "availableReplicas": 1, "updatedReplicas": 1});
    cluster.pods.get_mut(SERVER).unwrap().waiting = None;
}

fn writes(plan: &Plan) -> Vec<(&str, &str)> {
    let steps = plan.steps.iter().filter(|s| s.action != Action::Nudge);
    steps
        .map(|s| (s.action.as_str(), s.target.name.as_str()))
        .collect()
}

fn after_a_while(cluster: &mut Cluster) -> Plan {
    let plan = cluster.plan();
    cluster.history.saw(cluster.now, &plan);
    cluster.now += Duration::seconds(11);
    cluster.plan()
}

fn do_all(cluster: &mut Cluster, plan: &Plan) {
    for step in &plan.steps {
        cluster.act(step);
    }
}

fn held(by: &str) -> Cluster {
    let mut cluster = owned(by);
    bad_commit(&mut cluster, by, "2");
    let plan = after_a_while(&mut cluster);
    do_all(&mut cluster, &plan);
    works_again(&mut cluster);
    cluster.history.faults.clear();
    cluster
}

fn ignored_server() -> Value {
    json!({
        "group": "apps", "kind": "Deployment", "namespace": "argocd", "name": SERVER,
        "jsonPointers": ["/spec"],
    })
}

fn root_ignores(cluster: &Cluster) -> Vec<Value> {
    let root = &cluster.objects[&application("linesman")];
    items(root.fields.pointer("/spec/ignoreDifferences"))
}

/// W24: an Application that somebody is at work on is told nothing, and would undo what is mended below it.
#[test]
fn nothing_is_held_by_a_root_with_a_window_of_its_own() {
    let mut cluster = owned("linesman");
    bad_commit(&mut cluster, "linesman", "2");
    let end = cluster.now + Duration::seconds(20);
    let root = cluster.objects.get_mut(&application("linesman")).unwrap();
    root.fields["metadata"]["annotations"][MAINTENANCE] = json!(rfc3339(end));
    let plan = after_a_while(&mut cluster);
    assert_eq!(plan.findings[0].class, Class::BadEngineCommit);
    assert_eq!(writes(&plan), []);
    cluster.now = end;
    assert_eq!(
        writes(&cluster.plan()),
        [("shield", "linesman"), ("hold", SERVER), ("apply", SERVER)]
    );
}

/// W17, W18: the root brings the engine itself.
#[test]
fn what_the_root_brought_is_held_by_the_root() {
    let mut cluster = owned("linesman");
    let before = root_ignores(&cluster);
    bad_commit(&mut cluster, "linesman", "2");
    let plan = after_a_while(&mut cluster);
    assert_eq!(plan.findings[0].class, Class::BadEngineCommit);
    assert_eq!(
        plan.findings[0].evidence,
        "ErrImagePull: no such tag (); commit 2 changed /spec/template/spec/containers/manager/image"
    );
    assert_eq!(
        writes(&plan),
        [("shield", "linesman"), ("hold", SERVER), ("apply", SERVER)]
    );
    do_all(&mut cluster, &plan);
    works_again(&mut cluster);
    assert_eq!(
        root_ignores(&cluster),
        [before.clone(), vec![ignored_server()]].concat()
    );
    let live = &cluster.objects[&server()];
    assert_eq!(live.annotation(OPTIONS), Some("Prune=false"));
    cluster.history.faults.clear();
    let plan = cluster.plan();
    assert_eq!(
        (writes(&plan), plan.findings.as_slice()),
        (vec![], &[][..]),
        "held while Git stands still"
    );

    cluster.now += Duration::seconds(5);
    looked_at(&mut cluster, "linesman", "3");
    let plan = cluster.plan();
    assert_eq!(writes(&plan), [("lift", SERVER), ("shield", "linesman")]);
    do_all(&mut cluster, &plan);
    assert_eq!(root_ignores(&cluster), before);
    assert_eq!(cluster.objects[&server()].annotation(OPTIONS), None);
    assert_eq!(
        cluster.objects[&application("linesman")].annotation(HOLDS),
        None
    );
    assert_eq!(writes(&cluster.plan()), []);
}

/// W17, W18: the catalog's own Application brings it, and comes from the catalog itself.
#[test]
fn what_an_application_below_brought_is_held_there_and_the_root_lets_it() {
    let by = "engine";
    let mut cluster = owned(by);
    let before = (root_ignores(&cluster), cluster.applications.clone());
    bad_commit(&mut cluster, by, "2");
    let plan = after_a_while(&mut cluster);
    assert_eq!(
        writes(&plan),
        [
            ("shield", "linesman"),
            ("shield", by),
            ("hold", SERVER),
            ("apply", SERVER)
        ]
    );
    do_all(&mut cluster, &plan);
    works_again(&mut cluster);
    let live = &cluster.applications[&application(by)];
    assert_eq!(
        live["spec"],
        json!({
            "ignoreDifferences": [{"kind": "Secret", "jsonPointers": ["/data"]}, ignored_server()],
            "syncPolicy": {
                "automated": {}, "syncOptions": ["CreateNamespace=true", "RespectIgnoreDifferences=true"],
            },
        })
    );
    assert_eq!(
        root_ignores(&cluster).last().unwrap(),
        &json!({
            "group": "argoproj.io", "kind": "Application", "namespace": "argocd", "name": by,
            "jsonPointers": ["/spec/ignoreDifferences", "/spec/syncPolicy/syncOptions"],
        })
    );
    cluster.history.faults.clear();
    let plan = cluster.plan();
    assert_eq!((writes(&plan), plan.findings.as_slice()), (vec![], &[][..]));

    looked_at(&mut cluster, by, "3");
    let plan = cluster.plan();
    assert_eq!(
        writes(&plan),
        [("lift", SERVER), ("shield", by), ("shield", "linesman")],
        "the Application first, then the root"
    );
    do_all(&mut cluster, &plan);
    let mut after = cluster.applications.clone();
    let live = after.get_mut(&application(by)).unwrap();
    live["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("annotations");
    looked_at(&mut cluster, by, "1");
    for (id, live) in &mut after {
        live["status"] = before.1[id]["status"].clone();
    }
    assert_eq!((root_ignores(&cluster), after), before);
}

/// W17, W18: of several sources Argo CD names a revision each, and none in the place of the one.
#[test]
fn what_an_application_with_several_sources_broke_is_given_back_when_one_of_them_moves_on() {
    let by = "engine";
    let looks = |cluster: &mut Cluster, revisions: [&str; 2]| {
        let live = cluster.applications.get_mut(&application(by)).unwrap();
        live["status"]["sync"] = json!({"status": "Synced", "revisions": revisions});
        live["status"]["operationState"]["syncResult"] = json!({"revisions": revisions});
    };
    let mut cluster = owned(by);
    bad_commit(&mut cluster, by, "2");
    looks(&mut cluster, ["3.5.0", "8"]);
    let plan = after_a_while(&mut cluster);
    assert_eq!(plan.findings[0].commit, "3.5.0,8");
    do_all(&mut cluster, &plan);
    works_again(&mut cluster);
    cluster.history.faults.clear();
    assert_eq!(writes(&cluster.plan()), []);
    looks(&mut cluster, ["3.5.0", "9"]);
    assert_eq!(
        writes(&cluster.plan()),
        [("lift", SERVER), ("shield", by), ("shield", "linesman")]
    );
}

fn live_without_word(cluster: &mut Cluster) {
    let live = cluster
        .applications
        .get_mut(&application("engine"))
        .unwrap();
    live["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("annotations");
}

/// F9: the old Pod serves, and would not after its next restart.
#[test]
fn a_new_version_that_does_not_come_up_beside_the_old_one_is_held_after_a_minute() {
    let mut cluster = owned("linesman");
    bad_commit(&mut cluster, "linesman", "2");
    let object = cluster.objects.get_mut(&server()).unwrap();
    object.fields["status"] = json!({
        "observedGeneration": 99, "availableReplicas": 1, "updatedReplicas": 1, "unavailableReplicas": 1,
    });
    assert_eq!(writes(&after_a_while(&mut cluster)), []);
    cluster.now += Duration::seconds(61);
    let plan = after_a_while(&mut cluster);
    assert_eq!(writes(&plan)[1..], [("hold", SERVER), ("apply", SERVER)]);
}

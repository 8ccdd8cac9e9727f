use std::sync::Arc;

use serde_json::{Value, json};
use time::Duration;

use super::*;
use crate::agent::engine::argocd::PROJECT;
use crate::agent::engine::{MANAGER, TRACKING, comparable, is_workload};
use crate::agent::plan::quarantine::{self, HELD};
use crate::agent::plan::tests::{Cluster, source};
use crate::agent::plan::{Action, Class, Plan, Pod};

mod marks;

const IMAGE: &str = "/spec/template/spec/containers/0/image";

/// Marks an object as one that `by` brought, a Kustomization or an Application.
fn mark(cluster: &mut Cluster, id: &ObjectId, by: &ObjectId) {
    let metadata = &mut cluster.objects.get_mut(id).unwrap().fields["metadata"];
    if by.kind == Kind::Application {
        metadata["annotations"][TRACKING] = json!(format!("{}:x", by.name));
    } else {
        metadata["labels"][GIT_OWNER] = json!(by.name);
        metadata["labels"][GIT_OWNER_NAMESPACE] = json!(by.namespace);
    }
}

/// What the engine applies from Git over an object.
fn applied(cluster: &mut Cluster, id: &ObjectId, field: &str, value: Value) {
    let root = cluster.install.sync.clone();
    mark(cluster, id, &root);
    let (now, applier) = (cluster.now, cluster.install.traits.applier);
    let live = cluster.objects.get_mut(id).unwrap();
    *live.fields.pointer_mut(field).unwrap() = value;
    live.generation += 1;
    live.version += 1000;
    live.marked = true;
    applier.clone_into(&mut live.writer);
    live.written = Some(now);
}

/// All of it, with other images and fields.
fn taken_over(engine: EngineKind) -> Cluster {
    let mut cluster = Cluster::working_of(engine);
    cluster.now += Duration::seconds(30);
    let install = &cluster.install;
    let gits = |id: &&ObjectId| install.may_be_gits(id) || id.kind == Kind::Namespace;
    let all: Vec<ObjectId> = install.wanted.keys().filter(gits).cloned().collect();
    for id in all {
        if is_workload(id.kind) {
            let image = json!(format!("mirror.test/{}:v1", id.name));
            applied(&mut cluster, &id, IMAGE, image);
        } else {
            let other = json!({"app.kubernetes.io/version": "v2"});
            applied(&mut cluster, &id, "/metadata/labels", other);
            let root = cluster.install.sync.clone();
            mark(&mut cluster, &id, &root);
        }
    }
    rolled(&mut cluster);
    cluster
}

fn rolled(cluster: &mut Cluster) {
    for (id, live) in &mut cluster.objects {
        if is_workload(id.kind) {
            live.fields["status"] = json!({
                "observedGeneration": live.generation, "replicas": 1, "availableReplicas": 1, "updatedReplicas": 1,
            });
        }
    }
}

fn writes(plan: &Plan) -> Vec<(&str, &str)> {
    let steps = plan.steps.iter().filter(|s| s.action != Action::Nudge);
    steps
        .map(|s| (s.action.as_str(), s.target.name.as_str()))
        .collect()
}

fn found(plan: &Plan) -> Vec<(Class, &str)> {
    let all = plan.findings.iter();
    all.map(|f| (f.class, f.object.name.as_str())).collect()
}

/// Plans now, and again when what was found is old enough.
fn after_a_while(cluster: &mut Cluster) -> Plan {
    let plan = cluster.plan();
    cluster.history.saw(cluster.now, &plan);
    cluster.now += Duration::seconds(11);
    cluster.plan()
}

/// W22
#[test]
fn what_git_takes_over_is_gits_at_once_whatever_it_has() {
    for engine in [EngineKind::Flux, EngineKind::Argocd] {
        let cluster = taken_over(engine);
        let plan = cluster.plan();
        assert_eq!((found(&plan), writes(&plan)), (vec![], vec![]), "{engine}");
    }
}

/// F48: while it comes up it is an upgrade, and stuck after its time.
#[test]
fn a_version_that_git_brings_has_the_time_of_an_upgrade() {
    let mut cluster = taken_over(EngineKind::Flux);
    cluster.objects.get_mut(&source()).unwrap().fields["status"] =
        json!({"observedGeneration": 99});
    let plan = after_a_while(&mut cluster);
    let name = "source-controller";
    assert_eq!(found(&plan), [(Class::NotAvailable, name)]);
    assert_eq!(writes(&plan), []);
    cluster.now += Duration::minutes(10);
    let plan = after_a_while(&mut cluster);
    assert_eq!(found(&plan), [(Class::EngineUpgradeStuck, name)]);
    assert_eq!(writes(&plan), [("hold", name), ("apply", name)]);
}

/// What was in force before comes back: no snapshot knows of Git yet, so that is the bundle.
#[test]
fn a_take_over_that_does_not_work_is_a_bad_commit() {
    let mut cluster = taken_over(EngineKind::Flux);
    let live = cluster.objects.get_mut(&source()).unwrap();
    live.fields["status"] = json!({"observedGeneration": 99});
    let pod = Pod {
        app: "source-controller".to_owned(),
        waiting: Some(("ErrImagePull".to_owned(), "no such tag".to_owned())),
        ..Pod::default()
    };
    cluster.pods.insert("source-controller".to_owned(), pod);
    let plan = after_a_while(&mut cluster);
    let name = "source-controller";
    assert_eq!(found(&plan), [(Class::BadEngineCommit, name)]);
    assert_eq!(writes(&plan), [("hold", name), ("apply", name)]);
    for step in &plan.steps {
        cluster.act(step);
    }
    let live = &cluster.objects[&source()];
    assert_eq!(live.text(IMAGE), "ghcr.io/fluxcd/source-controller:v1");
    assert!(live.annotation(HELD).is_some());
    rolled(&mut cluster);
    cluster.pods.clear();
    cluster.history.faults.clear();
    let observed = cluster.observed();
    assert!(quarantine::holds(&cluster.install, &observed).contains_key(&source()));
    assert_eq!(found(&cluster.plan()), [], "held, and as it was");
}

/// Git's object that a person breaks is mended, and one that a person only touches is left alone.
#[test]
fn what_git_took_over_is_healed_for_function_only() {
    let mut cluster = taken_over(EngineKind::Flux);
    let service = ObjectId::new(Kind::Service, "flux-system", "source-controller");
    for id in [source(), service] {
        let live = cluster.objects.get_mut(&id).unwrap();
        "kubectl-annotate".clone_into(&mut live.writer);
    }
    assert_eq!(found(&cluster.plan()), []);
    let live = cluster.objects.get_mut(&source()).unwrap();
    live.fields["status"] = json!({"observedGeneration": 99});
    assert_eq!(writes(&cluster.plan()), [], "it comes up");
    let live = cluster.objects.get_mut(&source()).unwrap();
    live.fields["spec"]["replicas"] = json!(0);
    assert_eq!(writes(&cluster.plan()), [("apply", "source-controller")]);
    cluster.objects.remove(&source());
    assert_eq!(writes(&cluster.plan()), [("create", "source-controller")]);
}

/// §9 of the engines' page: these are the agent's, whatever Git has.
#[test]
fn some_objects_are_always_the_agents() {
    for engine in [EngineKind::Flux, EngineKind::Argocd] {
        let mut cluster = taken_over(engine);
        let ids: Vec<ObjectId> = cluster.objects.keys().cloned().collect();
        for id in &ids {
            let root = cluster.install.sync.clone();
            mark(&mut cluster, id, &root);
            cluster.objects.get_mut(id).unwrap().marked = true;
        }
        let observed = cluster.observed();
        let install = taken(&cluster.install, &observed);
        let ours = install.wanted.iter().filter(|(_, w)| !w.git_owned);
        let ours: Vec<&ObjectId> = ours.map(|(id, _)| id).collect();
        let install = &cluster.install;
        for id in [
            &install.source,
            &install.sync,
            &install.secret,
            &install.rights,
        ] {
            assert!(ours.contains(&id), "{id}");
        }
        let kinds = |kind: Kind| ours.iter().any(|id| id.kind == kind);
        assert!(kinds(Kind::Namespace) && kinds(Kind::ValidatingAdmissionPolicy));
        let project = ObjectId::new(Kind::AppProject, "argocd", PROJECT);
        assert_eq!(ours.contains(&&project), engine == EngineKind::Argocd);
        assert!(!kinds(Kind::Deployment) && !kinds(Kind::CustomResourceDefinition));
    }
}

/// Flux lists what it applied at the end of its commit: until then nothing says that Git has it no more.
#[test]
fn what_flux_is_about_to_list_is_not_called_removed() {
    let mut cluster = taken_over(EngineKind::Flux);
    let sync = cluster.install.sync.clone();
    let other = json!([{"id": "default_marker__ConfigMap", "v": "v1"}]);
    let at = |seconds: i64| crate::clock::rfc3339(cluster.now + Duration::seconds(seconds));
    for (ready, since, removed) in [
        ("Unknown", at(1), false),
        ("True", at(-60), false),
        ("True", at(1), true),
    ] {
        let status = &mut cluster.objects.get_mut(&sync).unwrap().fields["status"];
        status["inventory"] = json!({"entries": other});
        status["conditions"] =
            json!([{"type": "Ready", "status": ready, "lastTransitionTime": since}]);
        let plan = cluster.plan();
        let said = found(&plan)
            .iter()
            .any(|(class, _)| *class == Class::EngineRemovedByCommit);
        assert_eq!(said, removed, "{ready} {since}");
    }
}

/// Once a snapshot has it, that is what it is healed from.
#[test]
fn a_snapshot_ends_what_was_in_force_before() {
    let mut cluster = taken_over(EngineKind::Flux);
    let live = cluster.objects[&source()].fields.clone();
    let wanted = cluster.install.wanted.get_mut(&source()).unwrap();
    wanted.git_owned = true;
    wanted.expect = Arc::new(comparable(Kind::Deployment, live));
    MANAGER.clone_into(&mut cluster.objects.get_mut(&source()).unwrap().writer);
    let observed = cluster.observed();
    assert!(!taken(&cluster.install, &observed).wanted[&source()].taken);
    assert_eq!(found(&cluster.plan()), []);
}

/// A proxy, certificates, the nodes that the engine may use: what a cluster needs of the engine, and what nobody has in Git.
#[test]
fn what_people_added_before_last_known_good_is_neither_a_fault_nor_lost() {
    let mut cluster = Cluster::working();
    let pod = "/spec/template/spec";
    let proxy = json!([{"name": "HTTPS_PROXY", "value": "http://proxy.test"}]);
    let affinity = json!({"nodeAffinity": {}});
    let added = json!({"spec": {"template": {"spec": {
        "affinity": affinity, "containers": [{"name": "manager", "env": proxy}],
    }}}});
    cluster.install.keep(&[(source(), added)].into());
    cluster.objects.remove(&source());
    cluster.settle(100);
    let has = |cluster: &Cluster| {
        let spec = cluster.objects[&source()].fields.pointer(pod).unwrap();
        (
            spec["affinity"].clone(),
            spec["containers"][0]["env"].clone(),
        )
    };
    assert_eq!(has(&cluster), (affinity.clone(), proxy.clone()));
    // A node is drained for longer than a debounce, and somebody has added a volume that is nowhere.
    let live = cluster.objects.get_mut(&source()).unwrap();
    live.fields["status"]["availableReplicas"] = json!(0);
    let since = cluster.now - Duration::minutes(5);
    cluster.history.down.insert(source(), since);
    let differs = |plan: &Plan| -> Vec<String> {
        let all = plan.findings.iter().map(|f| f.evidence.clone());
        all.filter(|text| text.starts_with("differs")).collect()
    };
    assert_eq!(differs(&cluster.plan()), [""; 0]);
    let live = cluster.objects.get_mut(&source()).unwrap();
    live.fields.pointer_mut(pod).unwrap()["volumes"] = json!([{"name": "gone"}]);
    let plan = cluster.plan();
    assert_eq!(
        differs(&plan),
        ["differs at /spec/template/spec/volumes/gone"]
    );
    assert_eq!(writes(&plan), [("replace", "source-controller")]);
    for step in &plan.steps {
        cluster.act(step);
    }
    assert_eq!(has(&cluster), (affinity, proxy));
    let spec = cluster.objects[&source()].fields.pointer(pod).unwrap();
    assert_eq!(spec.get("volumes"), None);
}

/// A later version of the engine may store its objects in a version that the bundle has not heard of.
#[test]
fn versions_of_a_crd_that_git_brings_are_gits() {
    for (by_git, found) in [(true, vec![]), (false, vec![Class::CrdStoredVersion])] {
        let mut cluster = taken_over(EngineKind::Flux);
        let name = "kustomizations.kustomize.toolkit.fluxcd.io";
        let id = ObjectId::new(Kind::CustomResourceDefinition, "", name);
        let versions = |name: &str| json!({"versions": [{"name": name, "storage": true}]});
        let wanted = cluster.install.wanted.get_mut(&id).unwrap();
        let mut expect = wanted.expect.as_ref().clone();
        expect["spec"] = versions("v1");
        wanted.expect = Arc::new(expect);
        let live = cluster.objects.get_mut(&id).unwrap();
        live.marked = by_git;
        live.fields["spec"] = versions("v2");
        live.fields["status"]["storedVersions"] = json!(["v2"]);
        let plan = cluster.plan();
        let said: Vec<Class> = plan.findings.iter().map(|f| f.class).collect();
        assert_eq!(said, found, "{by_git}");
    }
}

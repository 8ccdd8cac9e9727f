//! What runs nothing itself: roles, bindings, settings (W18, F53).

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::agent::engine::argocd::{PROBED_AT, PROBED_FROM};
use crate::agent::engine::{REQUESTED_AT, TRACKING};
use crate::agent::plan::tests::Cluster;
use crate::agent::plan::{Action, Plan, Pod};
use crate::clock::rfc3339;
use crate::wire::api::EngineKind;

mod anew;
mod beside;
mod blamed;
mod runs;

const BINDING: &str = "cluster-reconciler-flux-system";
const PARAMS: &str = "argocd-cmd-params-cm";

fn binding() -> ObjectId {
    ObjectId::new(Kind::ClusterRoleBinding, "", BINDING)
}

fn settings_map(name: &str) -> ObjectId {
    ObjectId::new(Kind::ConfigMap, "argocd", name)
}

/// A working cluster whose engine stands in Git, or does not.
fn working(engine: EngineKind, git: bool) -> Cluster {
    let mut cluster = Cluster::working_of(engine);
    for (id, wanted) in &mut cluster.install.wanted {
        wanted.git_owned = git && id.kind.installable();
        if id.kind == Kind::ConfigMap {
            let data = wanted.expect.get("data").cloned();
            wanted.known = Some(Arc::new(data.unwrap_or_else(|| json!({}))));
        }
    }
    for object in cluster.objects.values_mut() {
        if git && engine == EngineKind::Argocd {
            object.fields["metadata"]["annotations"][TRACKING] = json!("linesman:x");
        }
    }
    cluster.now += Duration::seconds(30);
    cluster
}

/// Somebody writes fields of an object.
fn written(cluster: &mut Cluster, id: &ObjectId, by: &str, field: &str, value: Value) {
    let now = cluster.now;
    let object = cluster.objects.get_mut(id).unwrap();
    object.fields[field] = value;
    object.version += 1;
    by.clone_into(&mut object.writer);
    object.written = Some(now);
}

fn root_says(cluster: &mut Cluster, status: &Value) {
    let root = cluster.install.sync.clone();
    let fields = &mut cluster.objects.get_mut(&root).unwrap().fields;
    let old = fields["status"].as_object_mut().unwrap();
    old.extend(status.as_object().unwrap().clone());
}

/// A question to the root without an answer, sent now.
fn asked_in_vain(cluster: &mut Cluster) {
    let (root, asked) = (
        cluster.install.sync.clone(),
        rfc3339(cluster.now + Duration::seconds(1)),
    );
    let name = match root.kind {
        Kind::Application => PROBED_AT,
        _ => REQUESTED_AT,
    };
    let fields = &mut cluster.objects.get_mut(&root).unwrap().fields;
    let before = fields["status"]["reconciledAt"].clone();
    fields["metadata"]["annotations"][name] = json!(asked);
    fields["metadata"]["annotations"][PROBED_FROM] = before;
}

fn after(cluster: &mut Cluster, seconds: i64) -> Plan {
    let plan = cluster.plan();
    cluster.history.saw(cluster.now, &plan);
    cluster.now += Duration::seconds(seconds);
    let plan = cluster.plan();
    cluster.history.saw(cluster.now, &plan);
    cluster.now += Duration::seconds(11);
    cluster.plan()
}

fn writes(plan: &Plan) -> Vec<(&str, &str)> {
    let steps = plan.steps.iter().filter(|s| s.action != Action::Nudge);
    steps
        .map(|s| (s.action.as_str(), s.target.name.as_str()))
        .collect()
}

/// A commit takes everybody out of a binding.
fn emptied(cluster: &mut Cluster, id: &ObjectId) {
    let wanted = cluster.install.wanted.get_mut(id).unwrap();
    let mut expect = wanted.expect.as_ref().clone();
    expect["subjects"] = json!([{"kind": "ServiceAccount", "name": "kustomize-controller"}]);
    expect["roleRef"] = json!({"kind": "ClusterRole", "name": "cluster-admin"});
    wanted.expect = Arc::new(expect);
    let by = cluster.install.traits.applier;
    written(cluster, id, by, "subjects", json!([]));
}

/// W18: a binding that a commit emptied is held when the root says what it may no longer do, or says nothing.
#[test]
fn a_binding_that_a_commit_emptied_is_held_when_the_engine_shows_it() {
    let held = [("hold", BINDING), ("apply", BINDING)];

    let mut cluster = working(EngineKind::Flux, true);
    emptied(&mut cluster, &binding());
    assert_eq!(writes(&after(&mut cluster, 10)), [], "it may be meant so");
    let message = "Deployment is forbidden: User cannot patch resource";
    root_says(
        &mut cluster,
        &json!({"conditions": [{
            "type": "Ready", "status": "False", "reason": "ReconciliationFailed", "message": message,
        }]}),
    );
    let plan = after(&mut cluster, 10);
    assert_eq!(writes(&plan), held);
    let found: Vec<(Class, &str)> = plan
        .findings
        .iter()
        .map(|f| (f.class, f.object.name.as_str()))
        .collect();
    assert!(
        found.contains(&(Class::BadEngineCommit, BINDING)),
        "{found:?}"
    );

    let mut cluster = working(EngineKind::Flux, true);
    emptied(&mut cluster, &binding());
    asked_in_vain(&mut cluster);
    assert_eq!(writes(&after(&mut cluster, 20)), []);
    assert_eq!(writes(&after(&mut cluster, 25)), held);
}

/// W18: Argo CD compares by what it has watched so far, and goes on answering; what shows the harm is that it may not apply.
#[test]
fn a_binding_that_a_commit_emptied_is_held_when_argo_cd_may_not_apply_the_rest_of_it() {
    let id = ObjectId::new(
        Kind::ClusterRoleBinding,
        "",
        "argocd-application-controller",
    );
    let refused = |by: &str| {
        let message = format!(
            "error when patching:\ndeployments.apps \"x\" is forbidden: User \"{by}\" cannot patch resource"
        );
        let result = json!({"kind": "Deployment", "name": "x", "message": message});
        json!({"operationState": {
            "phase": "Running", "retryCount": 1, "startedAt": "2027-01-15T08:00:00Z",
            "syncResult": {"revision": "2", "resources": [result]},
        }})
    };
    for (by, held) in [
        (
            "system:serviceaccount:argocd:argocd-application-controller",
            true,
        ),
        ("system:serviceaccount:team:deployer", false),
    ] {
        let mut cluster = working(EngineKind::Argocd, true);
        emptied(&mut cluster, &id);
        assert_eq!(writes(&after(&mut cluster, 10)), [], "it may be meant so");
        root_says(&mut cluster, &refused(by));
        let expected: &[(&str, &str)] = if held {
            &[
                ("shield", "linesman"),
                ("hold", &id.name),
                ("apply", &id.name),
            ]
        } else {
            &[]
        };
        assert_eq!(writes(&after(&mut cluster, 10)), expected, "{by}");
    }
}

/// W18, F53: all that Argo CD says is that it does not know, of each Application, and of none why.
#[test]
fn settings_that_argo_cd_cannot_read_are_put_back() {
    let complains = json!([{"type": "ComparisonError", "message": "app path does not exist"}]);
    let put_back = vec![("reset", "argocd-cm")];
    for (sync, health, conditions, expected) in [
        ("Unknown", "Unknown", json!([]), put_back),
        ("Unknown", "Unknown", complains, vec![]),
        ("Unknown", "Healthy", json!([]), vec![]),
        ("OutOfSync", "Unknown", json!([]), vec![]),
    ] {
        let mut cluster = working(EngineKind::Argocd, false);
        let id = settings_map("argocd-cm");
        let mut data = cluster.objects[&id].fields["data"].clone();
        data["resource.inclusions"] = json!("[");
        written(&mut cluster, &id, "kubectl", "data", data);
        asked_in_vain(&mut cluster);
        cluster.now += Duration::seconds(2);
        let status = json!({
            "sync": {"status": sync}, "health": {"status": health}, "conditions": conditions,
            "reconciledAt": rfc3339(cluster.now),
        });
        root_says(&mut cluster, &status);
        assert_eq!(writes(&cluster.plan()), [], "it may have just started");
        assert_eq!(writes(&after(&mut cluster, 6)), expected, "{status}");
    }
}

/// W18: Argo CD's manifest leaves the number of Pods to people.
#[test]
fn a_commit_of_no_pods_is_held_although_the_install_names_no_number() {
    for (replicas, mended) in [(3, false), (0, true)] {
        let mut cluster = working(EngineKind::Argocd, true);
        let id = ObjectId::new(Kind::Deployment, "argocd", "argocd-repo-server");
        let wanted = cluster.install.wanted.get_mut(&id).unwrap();
        let mut expect = wanted.expect.as_ref().clone();
        expect["spec"].as_object_mut().unwrap().remove("replicas");
        wanted.expect = Arc::new(expect);
        let mut spec = cluster.objects[&id].fields["spec"].clone();
        spec["replicas"] = json!(replicas);
        let by = cluster.install.traits.applier;
        written(&mut cluster, &id, by, "spec", spec);
        let plan = after(&mut cluster, 10);
        let found = plan.findings.iter();
        let found = found.filter(|f| f.class == Class::BadEngineCommit);
        let found: Vec<&ObjectId> = found.map(|f| &f.object).collect();
        assert_eq!(!found.is_empty(), mended, "{replicas}");
        let writes = writes(&plan);
        for step in ["hold", "apply"] {
            let does = writes.contains(&(step, "argocd-repo-server"));
            assert_eq!(does, mended, "{replicas} {step}: {writes:?}");
        }
    }
}

/// A binding to another role is made anew: with the hold that the old one has by then.
#[test]
fn a_binding_to_another_role_is_held_and_made_anew() {
    let mut cluster = working(EngineKind::Flux, true);
    let other = json!({"kind": "ClusterRole", "name": "view"});
    let by = cluster.install.traits.applier;
    written(&mut cluster, &binding(), by, "roleRef", other);
    asked_in_vain(&mut cluster);
    let plan = after(&mut cluster, 60);
    assert_eq!(writes(&plan), [("hold", BINDING), ("recreate", BINDING)]);
}

/// F53 by kubectl, W18 by a commit: keys that were added are taken away again, too.
#[test]
fn settings_of_argo_cd_are_put_back_when_it_does_not_work_with_them() {
    let unreachable = json!({"type": "ComparisonError", "message": "code = Unavailable: dial tcp"});
    for (git, class, expected) in [
        (false, Class::EngineConfigBroken, vec![("reset", PARAMS)]),
        (
            true,
            Class::BadEngineCommit,
            vec![("shield", "linesman"), ("hold", PARAMS), ("reset", PARAMS)],
        ),
    ] {
        let mut cluster = working(EngineKind::Argocd, git);
        let by = if git { "argocd-controller" } else { "kubectl" };
        let id = settings_map(PARAMS);
        let bad = json!({"repo.server": "nowhere:8081"});
        written(&mut cluster, &id, by, "data", bad);
        assert_eq!(
            writes(&after(&mut cluster, 10)),
            [],
            "theirs while it works"
        );
        let looked = rfc3339(cluster.now);
        root_says(
            &mut cluster,
            &json!({"conditions": [unreachable], "reconciledAt": looked}),
        );
        let plan = after(&mut cluster, 1);
        assert_eq!(writes(&plan), expected);
        let of = |f: &&Finding| f.object == id;
        let found = plan.findings.iter().find(of).unwrap();
        assert_eq!(found.class, class);
        assert!(
            found.evidence.contains("/data/repo.server"),
            "{}",
            found.evidence
        );
        for step in plan.steps.iter().filter(|s| s.action != Action::Nudge) {
            cluster.act(step);
        }
        assert_eq!(cluster.objects[&id].fields["data"], json!({}));
    }
}

/// W39: how often Argo CD looks by itself is the catalog's to say; once it has worked so, it is not that which makes it silent.
#[test]
fn settings_of_the_catalog_that_argo_cd_worked_with_are_not_blamed_for_its_silence() {
    for (known, expected) in [(false, vec!["shield", "hold", "reset"]), (true, vec![])] {
        let mut cluster = working(EngineKind::Argocd, true);
        let id = settings_map("argocd-cm");
        let mut data = cluster.objects[&id].fields["data"].clone();
        data["timeout.reconciliation"] = json!("0");
        written(&mut cluster, &id, "argocd-controller", "data", data.clone());
        if known {
            let wanted = cluster.install.wanted.get_mut(&id).unwrap();
            wanted.known = Some(Arc::new(data));
        }
        asked_in_vain(&mut cluster);
        let plan = after(&mut cluster, 50);
        let steps: Vec<&str> = writes(&plan).into_iter().map(|(step, _)| step).collect();
        assert_eq!(steps, expected, "{known}");
    }
}

/// F6: a controller that crashes with new settings.
#[test]
fn settings_with_which_a_controller_crashes_are_put_back() {
    let mut cluster = working(EngineKind::Argocd, false);
    let id = settings_map(PARAMS);
    written(&mut cluster, &id, "kubectl", "data", json!({"x": "y"}));
    let name = "argocd-repo-server";
    let server = ObjectId::new(Kind::Deployment, "argocd", name);
    let live = cluster.objects.get_mut(&server).unwrap();
    live.fields["status"] = json!({});
    let pod = Pod {
        app: name.to_owned(),
        waiting: Some(("CrashLoopBackOff".to_owned(), String::new())),
        ..Pod::default()
    };
    cluster.pods.insert(name.to_owned(), pod);
    assert_eq!(writes(&after(&mut cluster, 1)), [("reset", PARAMS)]);
}

/// What is held is ours: whoever changes it, it comes back at once.
#[test]
fn held_settings_are_kept_as_they_were() {
    let mut cluster = working(EngineKind::Argocd, true);
    let id = settings_map(PARAMS);
    let note = r#"{"revision":"2","since":"2027-01-15T08:00:00Z","reason":"x","attempt":1}"#;
    cluster.act(&crate::agent::plan::Step {
        action: Action::Hold {
            note: note.to_owned(),
        },
        target: id.clone(),
        cause: None,
    });
    written(
        &mut cluster,
        &id,
        "argocd-controller",
        "data",
        json!({"x": "y"}),
    );
    assert!(writes(&cluster.plan()).contains(&("reset", PARAMS)));
}

/// What one complaint says of one kind of object, and not of the others.
#[test]
fn a_complaint_blames_what_can_be_its_cause() {
    let id = |kind| ObjectId::new(kind, "argocd", "x");
    for (class, text, blamed, not) in [
        (
            Class::ApplyFailed,
            "is forbidden",
            Kind::Role,
            Kind::ConfigMap,
        ),
        (Class::ArtifactUnreachable, "", Kind::Service, Kind::Role),
        (Class::RedisDown, "", Kind::NetworkPolicy, Kind::ClusterRole),
        (
            Class::GitUnreachable,
            "",
            Kind::NetworkPolicy,
            Kind::Service,
        ),
        (Class::BuildFailed, "", Kind::ConfigMap, Kind::Service),
    ] {
        assert!(disturbs(&id(blamed), class, text), "{class} {blamed}");
        assert!(!disturbs(&id(not), class, text), "{class} {not}");
    }
    // The guard policy's word against a commit that removes the engine.
    let kept = "PruneFailed: delete failed, errors: Namespace/flux-system delete failed: forbidden";
    assert!(!disturbs(&id(Kind::ClusterRole), Class::ApplyFailed, kept));
    for class in [
        Class::KeyRevoked,
        Class::HostKeyMismatch,
        Class::SignatureFailed,
    ] {
        assert!(
            !Kind::ALL.iter().any(|k| disturbs(&id(*k), class, "")),
            "{class}"
        );
    }
}

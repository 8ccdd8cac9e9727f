use std::sync::Arc;

use serde_json::json;
use time::Duration;

use super::*;
use crate::agent::engine::{GIT_OWNER, GIT_OWNER_NAMESPACE};
use crate::agent::plan::quarantine::{HELD, Hold};
use crate::agent::plan::tests::{Cluster, start};
use crate::agent::plan::{MAINTENANCE, Plan, plan};
use crate::clock::rfc3339;

mod refused;

/// What is given up.
const NOTHING: [&ObjectId; 0] = [];

/// What is wrong with an object, and how it gets so.
type Case<'a> = (&'a str, &'a dyn Fn(&mut Object));

fn entries(all: &Value) -> Vec<ManagedFieldsEntry> {
    serde_json::from_value(all.clone()).unwrap()
}

fn entry(manager: &str, operation: &str, version: &str, fields: &Value) -> Value {
    json!({
        "manager": manager, "operation": operation, "apiVersion": version, "time": "2026-01-02T03:04:05Z",
        "fieldsType": "FieldsV1", "fieldsV1": fields,
    })
}

/// What we apply of a controller, and what Git does: without the port, and with an argument of its own.
fn both() -> (Value, Value) {
    let ours = json!({
        "f:metadata": {"f:labels": {"f:a": {}}},
        "f:spec": {
            "f:replicas": {},
            "f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"manager\"}": {
                ".": {}, "f:name": {}, "f:image": {},
                "f:ports": {"k:{\"containerPort\":8080,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}},
            }}}},
        },
    });
    let gits = json!({
        "f:metadata": {"f:labels": {"f:a": {}, "f:kustomize.toolkit.fluxcd.io/name": {}}},
        "f:spec": {"f:selector": {}, "f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"manager\"}": {
            ".": {}, "f:name": {}, "f:image": {}, "f:args": {},
        }}}}},
    });
    (ours, gits)
}

/// What somebody else owns, too, stays when we apply without it; so does what we wrote by another way.
#[test]
fn secrets_that_we_alone_applied_are_told_from_those_of_others() {
    let pulls_with = |names: &[&str]| {
        let mut all = json!({".": {}});
        for name in names {
            all[format!("k:{{\"name\":\"{name}\"}}")] = json!({});
        }
        json!({"f:spec": {"f:template": {"f:spec": {"f:imagePullSecrets": all}}}})
    };
    let said = |all: &[(&str, &str, &[&str])]| {
        let all = all.iter().map(|(manager, operation, names)| {
            entry(manager, operation, "apps/v1", &pulls_with(names))
        });
        pulls(&entries(&all.collect()))
    };
    let ours = ("linesman", "Apply", &["regcred", "own"][..]);
    assert_eq!(said(&[ours]), ["own", "regcred"]);
    for (manager, operation) in [
        ("kubectl-edit", "Update"),
        ("linesman-kept", "Apply"),
        ("linesman", "Update"),
    ] {
        let all = [ours, (manager, operation, &["own"][..])];
        assert_eq!(said(&all), ["regcred"], "{manager} {operation}");
    }
    assert_eq!(said(&[("kubectl", "Apply", &["regcred"][..])]), [""; 0]);
}

/// F17, engines.md §10: a field removed in Git goes only where nobody else owns it.
#[test]
fn the_engine_owns_all_but_the_metadata_of_what_both_applied() {
    let (ours, gits) = both();
    let status = json!({"f:status": {"f:replicas": {}}});
    let controller = entry("kube-controller-manager", "Update", "apps/v1", &status);
    let before = entries(&json!([
        entry("linesman", "Apply", "apps/v1", &ours),
        entry("kustomize-controller", "Apply", "apps/v1", &gits),
        controller,
    ]));
    assert_eq!(of(Kind::Deployment, &before), Claim::Beside);
    let mut metadata = ours.clone();
    metadata.as_object_mut().unwrap().remove("f:spec");
    let mut all = gits.clone();
    all["f:spec"] = json!({
        "f:replicas": {}, "f:selector": {},
        "f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"manager\"}": {
            ".": {}, "f:name": {}, "f:image": {}, "f:args": {},
            "f:ports": {"k:{\"containerPort\":8080,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}},
        }}}},
    });
    let after = entries(&json!([
        entry("kustomize-controller", "Apply", "apps/v1", &all),
        controller,
        entry("linesman", "Apply", "apps/v1", &metadata),
    ]));
    let given = given_up(&before, "kustomize-controller").unwrap();
    assert_eq!(given, after);
    assert_eq!(of(Kind::Deployment, &given), Claim::None);
    assert_eq!(given_up(&given, "kustomize-controller"), None, "once");
}

#[test]
fn what_the_engine_has_not_applied_in_that_version_becomes_an_entry_of_its_own() {
    let (ours, gits) = both();
    let content = json!({"f:spec": ours["f:spec"]});
    let metadata = json!({"f:metadata": ours["f:metadata"]});
    let older = entry("kustomize-controller", "Apply", "apps/v1beta2", &gits);
    let by_field = entry("kustomize-controller", "Update", "apps/v1", &gits);
    for (there, claim) in [
        (None, Claim::Alone),
        (Some(older), Claim::Beside),
        (Some(by_field), Claim::Alone),
    ] {
        let mut before = vec![entry("linesman", "Apply", "apps/v1", &ours)];
        before.extend(there.clone());
        let before = entries(&json!(before));
        assert_eq!(of(Kind::Deployment, &before), claim, "{there:?}");
        let mut after: Vec<Value> = there.into_iter().collect();
        after.push(entry("linesman", "Apply", "apps/v1", &metadata));
        after.push(entry("kustomize-controller", "Apply", "apps/v1", &content));
        let given = given_up(&before, "kustomize-controller");
        assert_eq!(given, Some(entries(&json!(after))));
    }
}

/// W8: what `reinstate` wrote is given up, too.
#[test]
fn a_patched_field_is_given_up_with_what_was_applied() {
    let volume = |name: &str| {
        json!({"f:spec": {"f:template": {"f:spec": {"f:volumes": {
            format!("k:{{\"name\":\"{name}\"}}"): {".": {}, "f:emptyDir": {}, "f:name": {}},
        }}}}})
    };
    let before = entries(&json!([
        entry("linesman", "Update", "apps/v1", &volume("temp")),
        entry("kustomize-controller", "Apply", "apps/v1", &volume("data")),
        entry(
            "linesman",
            "Apply",
            "apps/v1",
            &json!({"f:spec": {"f:replicas": {}}})
        ),
    ]));
    let mut all = merged(&volume("data"), &volume("temp"));
    all["f:spec"]["f:replicas"] = json!({});
    let after = entries(&json!([entry(
        "kustomize-controller",
        "Apply",
        "apps/v1",
        &all
    )]));
    assert_eq!(given_up(&before, "kustomize-controller"), Some(after));
    // Of an object that it has not applied yet it has the field as if it had.
    let alone = entries(&json!([entry(
        "linesman",
        "Update",
        "apps/v1",
        &volume("temp")
    )]));
    let applied = entry("kustomize-controller", "Apply", "apps/v1", &volume("temp"));
    let given = given_up(&alone, "kustomize-controller");
    assert_eq!(given, Some(entries(&json!([applied]))));
}

#[test]
fn what_others_own_and_what_we_say_in_metadata_is_no_claim() {
    let (ours, _) = both();
    let metadata = json!({"f:metadata": ours["f:metadata"]});
    let mut scaled = entry("linesman", "Apply", "apps/v1", &ours);
    scaled["subresource"] = json!("scale");
    let all = json!([
        entry("linesman", "Update", "apps/v1", &metadata),
        entry("linesman", "Apply", "apps/v1", &metadata),
        entry("linesman-kept", "Apply", "apps/v1", &ours),
        entry("kubectl", "Apply", "apps/v1", &ours),
        scaled,
        json!({"manager": "linesman", "operation": "Apply"}),
    ]);
    assert_eq!(of(Kind::Deployment, &entries(&all)), Claim::None);
    assert_eq!(given_up(&entries(&all), "kustomize-controller"), None);
    assert_eq!(of(Kind::Deployment, &[]), Claim::None);
}

/// What becomes of our claim beside these fields of the engine's.
fn beside(kind: Kind, set: &Value) -> Claim {
    let all = json!([
        entry("linesman", "Apply", "v1", &json!({"f:spec": {"f:a": {}}})),
        entry("kustomize-controller", "Apply", "v1", set),
    ]);
    of(kind, &entries(&all))
}

/// Git may have but a part of an object, beside what the agent has of it: without that there is no such object.
#[test]
fn an_object_of_which_the_engine_applied_a_part_is_not_given_up() {
    for (kind, whole, part) in [
        (Kind::Service, "/f:spec/f:ports", "/f:spec/f:type"),
        (Kind::NetworkPolicy, "/f:spec/f:podSelector", "/f:spec/f:a"),
        (Kind::ResourceQuota, "/f:spec/f:hard", "/f:spec/f:scopes"),
        (Kind::Role, "/f:rules", "/f:metadata/f:labels"),
        (Kind::ClusterRole, "/f:aggregationRule", "/f:metadata"),
        (Kind::ConfigMap, "/f:data/f:a", "/f:immutable"),
        (Kind::Receiver, "/f:spec/f:type", "/f:metadata/f:labels"),
    ] {
        let set = |pointer: &str| {
            let parts = pointer.trim_start_matches('/').rsplit('/');
            parts.fold(json!({}), |within, part| json!({part: within}))
        };
        assert_eq!(beside(kind, &set(whole)), Claim::Beside, "{kind}");
        assert_eq!(beside(kind, &set(part)), Claim::Partly, "{kind}");
    }
    for kind in [Kind::RoleBinding, Kind::ClusterRoleBinding] {
        let mut set = json!({"f:roleRef": {}});
        assert_eq!(beside(kind, &set), Claim::Partly);
        set["f:subjects"] = json!({});
        assert_eq!(beside(kind, &set), Claim::Beside);
    }
    let mut crd = json!({"f:spec": {"f:names": {}}});
    let kind = Kind::CustomResourceDefinition;
    assert_eq!(beside(kind, &crd), Claim::Partly);
    crd["f:spec"]["f:versions"] = json!({});
    assert_eq!(beside(kind, &crd), Claim::Beside);
}

#[test]
fn a_controller_is_whole_with_its_selector_and_an_image_in_each_container() {
    let image = json!({".": {}, "f:image": {}, "f:name": {}});
    let args = json!({"f:args": {}});
    let spec = |containers: Value| {
        let pod = json!({"f:containers": containers});
        json!({"f:spec": {"f:selector": {}, "f:template": {"f:spec": pod}}})
    };
    let (one, other) = ("k:{\"name\":\"manager\"}", "k:{\"name\":\"proxy\"}");
    let mut unselected = spec(json!({one: image}));
    let of_spec = unselected["f:spec"].as_object_mut().unwrap();
    of_spec.remove("f:selector");
    for (set, claim) in [
        (spec(json!({one: image, ".": {}})), Claim::Beside),
        (spec(json!({one: args})), Claim::Partly),
        (spec(json!({one: args, other: image})), Claim::Partly),
        (unselected, Claim::Partly),
        (json!({"f:spec": {"f:replicas": {}}}), Claim::Partly),
    ] {
        assert_eq!(beside(Kind::Deployment, &set), claim, "{set}");
        assert_eq!(beside(Kind::StatefulSet, &set), claim, "{set}");
    }
}

fn controller() -> ObjectId {
    ObjectId::new(Kind::Deployment, "flux-system", "source-controller")
}

fn other() -> ObjectId {
    ObjectId::new(Kind::Deployment, "flux-system", "kustomize-controller")
}

/// Flux with controllers that a commit has just brought beside us.
fn taken() -> Cluster {
    let mut cluster = Cluster::working();
    let now = cluster.now;
    for id in [controller(), other()] {
        let live = cluster.objects.get_mut(&id).unwrap();
        live.fields["metadata"]["labels"][GIT_OWNER] = json!("flux-system");
        live.fields["metadata"]["labels"][GIT_OWNER_NAMESPACE] = json!("flux-system");
        "kustomize-controller".clone_into(&mut live.writer);
        (live.marked, live.claim, live.written) = (true, Claim::Beside, Some(now));
    }
    cluster
}

fn given(plan: &Plan) -> Vec<&ObjectId> {
    let steps = plan
        .steps
        .iter()
        .filter(|s| matches!(s.action, Action::Relinquish { .. }));
    steps.map(|step| &step.target).collect()
}

/// F17: not before it has been quiet for as long as it takes to be last known good.
#[test]
fn what_git_owns_is_given_up_once_it_has_worked_for_a_while() {
    let mut cluster = taken();
    let due = cluster.now + cluster.install.policy.snapshot_after;
    let given_until = |cluster: &mut Cluster, end: OffsetDateTime| -> Vec<ObjectId> {
        while cluster.now < end {
            cluster.round();
        }
        let all = cluster.steps.iter().map(|(_, step)| step);
        let all = all.filter(|step| matches!(step.action, Action::Relinquish { .. }));
        all.map(|step| step.target.clone()).collect()
    };
    assert_eq!(given_until(&mut cluster, due - Duration::minutes(1)), []);
    let written = cluster.history.last_write;
    let targets = given_until(&mut cluster, due + Duration::minutes(5));
    assert_eq!(targets, [other(), controller()], "each once");
    assert_eq!(
        cluster.history.last_write, written,
        "the install is as it was"
    );
    // Our own objects stay ours.
    let rest = cluster
        .objects
        .iter()
        .filter(|(id, _)| ![controller(), other()].contains(id));
    assert!(rest.clone().any(|(_, o)| o.claim == Claim::Alone));
    assert!(rest.clone().all(|(_, o)| o.claim != Claim::None || !o.ours));
}

/// It is ours, and is put back as ours: nobody would, once it is given up.
#[test]
fn what_an_engine_brought_for_nothing_that_hangs_on_the_root_is_not_given_up() {
    let mut cluster = taken();
    cluster.now += cluster.install.policy.snapshot_after + Duration::seconds(1);
    let live = cluster.objects.get_mut(&controller()).unwrap();
    live.fields["metadata"]["labels"][GIT_OWNER] = json!("another");
    let observed = cluster.observed();
    let install = super::super::ownership::taken(&cluster.install, &observed);
    let steps = settled(cluster.now, &install, &observed, &[]);
    let targets: Vec<ObjectId> = steps.into_iter().map(|s| s.target).collect();
    assert_eq!(targets, [other()]);
}

#[test]
fn what_is_held_broken_going_or_marked_by_others_is_not_given_up() {
    let held = Hold {
        revision: "main@sha1:1".to_owned(),
        since: rfc3339(start()),
        reason: "x".to_owned(),
        attempt: 1,
        lifted: None,
        order: None,
        removal: false,
    };
    let held = serde_json::to_string(&held).unwrap();
    let until = rfc3339(start() + Duration::hours(12));
    let cases: [Case<'_>; 8] = [
        ("held", &|live| {
            live.fields["metadata"]["annotations"][HELD] = json!(held);
        }),
        ("broken", &|live| live.fields["spec"]["replicas"] = json!(0)),
        ("going", &|live| live.deleting = Some(start())),
        ("marked by others", &|live| live.marked = false),
        ("ours alone", &|live| live.claim = Claim::Alone),
        ("Git's in part", &|live| live.claim = Claim::Partly),
        ("to be merged", &|live| {
            live.fields["metadata"]["annotations"][MERGED] = json!("merge");
        }),
        ("somebody's at work", &|live| {
            live.fields["metadata"]["annotations"][MAINTENANCE] = json!(until);
        }),
    ];
    for (case, change) in cases {
        let mut cluster = taken();
        cluster.now += cluster.install.policy.snapshot_after + Duration::seconds(1);
        change(cluster.objects.get_mut(&controller()).unwrap());
        let observed = cluster.observed();
        let findings = cluster.plan().findings;
        let taken = super::super::ownership::taken(&cluster.install, &observed);
        let steps = settled(cluster.now, &taken, &observed, &findings);
        let targets: Vec<ObjectId> = steps.into_iter().map(|s| s.target).collect();
        assert_eq!(targets, [other()], "{case}");
    }
}

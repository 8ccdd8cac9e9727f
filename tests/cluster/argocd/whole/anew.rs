//! F39: an operation of the root that Argo CD tries no more, and what was in the way of it is gone.

use std::collections::BTreeMap;

use linesman::clock::parse_rfc3339;
use serde_json::{Value, json};
use time::{Duration, OffsetDateTime};

use super::super::commits::{is_there, push_map};
use crate::blocked::pods_of_engine;
use crate::healing::{LIMIT, install, on_record, settle, since, unchanged, whole, workloads};
use crate::support::api::path_of;
use crate::support::argocd::root;
use crate::support::place::output;
use crate::support::world::{self, CLUSTER, World};
use crate::support::{eventually, figure, seconds, shown, until};

/// Of the ConfigMap that a commit brings, and of the policy that takes none of that name.
const NAME: &str = "begun-anew";
const API: &str = "admissionregistration.k8s.io/v1";

/// In force for as long as the value lives, also in a test that fails: others share the cluster.
struct Refused<'w>(&'w World);

impl<'w> Refused<'w> {
    fn new(world: &'w World) -> Self {
        let refused = Self(world);
        let rule = json!({
            "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"],
        });
        let policy = json!({
            "failurePolicy": "Fail", "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": format!("object.metadata.name != '{NAME}'")}],
        });
        let binding = json!({"policyName": NAME, "validationActions": ["Deny"]});
        for (kind, spec) in [
            ("ValidatingAdmissionPolicy", policy),
            ("ValidatingAdmissionPolicyBinding", binding),
        ] {
            let object = json!({
                "apiVersion": API, "kind": kind, "metadata": {"name": NAME}, "spec": spec,
            });
            world.api.create(&collection(kind), &object);
        }
        until("the policy is in force", seconds(60), || !is_taken(world));
        refused
    }
}

impl Drop for Refused<'_> {
    fn drop(&mut self) {
        for kind in [
            "ValidatingAdmissionPolicyBinding",
            "ValidatingAdmissionPolicy",
        ] {
            let path = format!("{}/{NAME}", collection(kind));
            let _gone = self.0.api.try_delete(&path);
        }
    }
}

fn collection(kind: &str) -> String {
    let plural = match kind {
        "ValidatingAdmissionPolicy" => "validatingadmissionpolicies",
        _ => "validatingadmissionpolicybindings",
    };
    format!("/apis/{API}/{plural}")
}

/// Whether the API server would take the ConfigMap.
fn is_taken(world: &World) -> bool {
    let mut create = world.place.kubectl();
    create.args(["-n", "default", "create", "configmap", NAME]);
    output(create.arg("--dry-run=server")).status.success()
}

fn operation(world: &World) -> Value {
    let live = world.api.get(&root()).unwrap_or_default();
    live["status"]["operationState"].clone()
}

/// A commit whose one operation, begun by a person, has failed, and Argo CD says that it begins no other: that operation.
fn given_up(world: &World) -> Value {
    let policy = world.api.get(&root()).unwrap()["spec"]["syncPolicy"].clone();
    let automated = |how: &Value| {
        let patch = json!({"spec": {"syncPolicy": {"automated": how}}});
        world.api.patch(&root(), &patch);
    };
    // By itself it would begin one that it tries again and again.
    automated(&Value::Null);
    push_map(world, NAME);
    let head = world.head().unwrap();
    // As `argocd app sync` does.
    let begun = json!({"operation": {
        "sync": {"revision": head, "syncOptions": policy["syncOptions"]},
        "initiatedBy": {"username": "somebody"},
    }});
    world.api.patch(&root(), &begun);
    let (failed, _) = eventually("the operation has failed", seconds(LIMIT), || {
        let state = operation(world);
        let of_head = state["syncResult"]["revision"] == json!(head);
        if of_head && state["phase"] == "Failed" {
            Ok(state)
        } else {
            Err(state.to_string())
        }
    });
    automated(&policy["automated"]);
    until("Argo CD begins no other", seconds(LIMIT), || {
        let live = world.api.get(&root()).unwrap_or_default();
        let conditions = live["status"]["conditions"].as_array();
        conditions.into_iter().flatten().any(|c| {
            let said = c["message"].as_str().unwrap_or_default();
            c["type"] == "SyncError" && said.starts_with("Failed last sync attempt to ")
        })
    });
    assert_eq!(operation(world)["startedAt"], failed["startedAt"]);
    let refused = failed["syncResult"]["resources"].to_string();
    assert!(refused.contains("ValidatingAdmissionPolicy"), "{failed:#}");
    failed
}

fn time_of(state: &Value, field: &str) -> OffsetDateTime {
    parse_rfc3339(state[field].as_str().unwrap()).unwrap()
}

/// UIDs of the engine's objects, and of what it syncs by with what is wanted of that.
fn objects(world: &World) -> [BTreeMap<String, Value>; 2] {
    let all = install(world).into_iter();
    let uid = |object: Value| (path_of(&object), object["metadata"]["uid"].clone());
    [all.map(uid).collect(), world.synced_by()]
}

/// F39: the agent has it begun anew a minute after it had failed, and the commit is applied. Nothing else is made anew.
#[test]
#[ignore = "takes minutes: make chaos"]
fn what_argo_cd_tries_no_more_is_begun_anew_when_the_cause_is_over() {
    let world = world::adopted_argocd();
    settle(&world);
    let (known, workloads) = (on_record(&world), workloads(&world));
    let (objects, pods) = (objects(&world), pods_of_engine(&world));
    let refused = Refused::new(&world);
    let failed = given_up(&world);
    drop(refused);
    let took = until("the commit is applied", seconds(LIMIT), || {
        is_there(&world, NAME)
    });
    figure(
        "F39",
        "Argo CD: operation that it tries no more, its cause removed → commit applied (the agent waits for 60 s)",
        "≤ 120 s",
        shown(took),
    );
    let (done, _) = eventually("the operation is over", seconds(LIMIT), || {
        let state = operation(&world);
        if state["phase"] == "Succeeded" {
            Ok(state)
        } else {
            Err(state.to_string())
        }
    });
    let by = &done["operation"]["initiatedBy"];
    assert_eq!(by, &json!({"automated": true}), "{done:#}");
    // Both in whole seconds, by the same clock.
    let pause = time_of(&done, "startedAt") - time_of(&failed, "finishedAt");
    assert!(pause >= Duration::MINUTE, "begun anew after {pause}");
    let (told, _) = eventually("it is over and told", seconds(LIMIT), || {
        let mut new = since(&world, &known).into_iter();
        let over = |heal: &Value| heal["class"] == "ApplyFailed" && heal["restoredAt"].is_string();
        let heal = new.find(over).ok_or("it is not")?;
        Ok::<_, &str>(whole(&world, &heal))
    });
    let steps = told["steps"].as_array().unwrap().iter();
    let done = steps.filter(|step| step["action"] == "retry" && step["outcome"] == "ok");
    assert_eq!((done.count(), &told["result"]), (1, &json!("reported")));
    settle(&world);
    assert_eq!(self::objects(&world), objects);
    assert_eq!(pods_of_engine(&world), pods);
    unchanged(&world, &workloads);
    let file = format!("clusters/{CLUSTER}/{NAME}.yaml");
    world.push(&file, "# nothing\n");
    until("it is pruned", seconds(LIMIT), || !is_there(&world, NAME));
    settle(&world);
}

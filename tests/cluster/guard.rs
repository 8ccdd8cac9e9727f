//! What the engine lives on cannot be deleted by accident (W11, guard policy on).

use serde_json::{Value, json};

use crate::support::api::path_of;
use crate::support::world::{self, ARGOCD, FLUX, World};
use crate::support::{figure, seconds, shown, until};

pub(crate) mod crds;

const CRD: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/kustomizations.kustomize.toolkit.fluxcd.io";
pub(crate) const POLICY: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/linesman-guard";
pub(crate) const BINDING: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/linesman-guard";

/// W11: CRD, Namespace and roots: 403 for the cluster's admin, with the way in the message, and nothing changes.
#[test]
#[ignore = "needs a real cluster: make test"]
fn deleting_what_the_engine_lives_on_is_refused_and_the_message_names_the_way() {
    let world = world::adopted();
    active(&world);
    let namespace = format!("/api/v1/namespaces/{FLUX}");
    for path in [
        CRD,
        &namespace,
        &world::git_repository(FLUX),
        &world::kustomization(FLUX),
    ] {
        let uid = world.uid(path).unwrap();
        let (code, message) = world.api.try_delete(path).unwrap_err();
        assert_eq!(code, 403, "{path}: {message}");
        assert!(
            message.contains("kubectl annotate --overwrite ")
                && message.contains(" linesman.dev/allow-delete="),
            "{path}: {message}"
        );
        assert_eq!(world.uid(path), Some(uid), "{path}");
    }
    // A whole collection carries no name in its request.
    let sources = world::git_repository(FLUX);
    let (collection, _) = sources.rsplit_once('/').unwrap();
    let (code, message) = world.api.try_delete(collection).unwrap_err();
    assert_eq!(code, 403, "{message}");
    assert!(world.uid(&sources).is_some());
}

/// F28: whoever leads a root elsewhere has the engine prune what it brought: 403 for the cluster's admin, with the way in the
/// message. All else of a root is anybody's, and what the root follows is still written by the agent.
#[test]
#[ignore = "needs a real cluster: make test"]
fn leading_a_root_elsewhere_is_refused_and_the_message_names_the_way() {
    let world = world::adopted();
    active(&world);
    let [source, sync] = [world::git_repository(FLUX), world::kustomization(FLUX)];
    let spec = |path: &str| world.api.get(path).unwrap()["spec"].clone();
    let before = [spec(&source), spec(&sync)];
    for (path, changed) in [
        (
            &source,
            json!({ "url": "ssh://git@hub.lab.test:1/other.git" }),
        ),
        (&source, json!({ "ref": { "tag": "v1" } })),
        (&source, json!({ "ref": null })),
        (&sync, json!({ "path": "./elsewhere" })),
        (&sync, json!({ "sourceRef": { "name": "other" } })),
        (
            &sync,
            json!({ "kubeConfig": { "secretRef": { "name": "elsewhere" } } }),
        ),
        (&sync, json!({ "targetNamespace": "default" })),
        (&sync, json!({ "namePrefix": "a-" })),
        (&sync, json!({ "nameSuffix": "-a" })),
    ] {
        let patch = json!({ "spec": changed });
        let (code, message) = world.api.try_patch(path, &patch).unwrap_err();
        assert_eq!(code, 403, "{path}: {patch}: {message}");
        assert!(
            message.contains("led elsewhere the engine prunes what it brought")
                && message.contains("kubectl annotate --overwrite ")
                && message.contains(" linesman.dev/allow-delete="),
            "{path}: {message}"
        );
    }
    assert_eq!([spec(&source), spec(&sync)], before);
    let label = json!({ "metadata": { "labels": { "example.test/a": "b" } } });
    let none = json!({ "metadata": { "labels": { "example.test/a": null } } });
    for path in [&source, &sync] {
        world.api.patch(path, &label);
        world.api.patch(path, &none);
    }
}

/// A permission that is over is taken away, and what is not guarded can be deleted as ever.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_permission_that_is_over_is_taken_away() {
    let world = world::adopted();
    active(&world);
    let word = "linesman.dev/allow-delete";
    let past = json!({ "metadata": { "annotations": { word: "2020-01-01T00:00:00Z" } } });
    world.api.patch(CRD, &past);
    let took = until("the annotation is gone", seconds(90), || {
        let crd = world.api.get(CRD).unwrap();
        crd["metadata"]["annotations"][word].is_null()
    });
    figure(
        "guard",
        "expired permission to delete → taken away",
        "",
        shown(took),
    );
    assert_eq!(world.api.try_delete(CRD).unwrap_err().0, 403);
}

/// The policy itself is kept like any object of the install.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_deleted_guard_policy_comes_back() {
    let world = world::adopted();
    active(&world);
    for path in [BINDING, POLICY] {
        let uid = world.uid(path).unwrap();
        assert!(world.api.delete(path));
        let took = until(&format!("{path} is back"), seconds(60), || {
            world.uid(path).is_some_and(|new| new != uid)
        });
        let kind = path.rsplit('/').nth(1).unwrap();
        figure(
            "guard",
            &format!("{kind} deleted → back"),
            "≤ 5 s",
            shown(took),
        );
    }
    active(&world);
}

/// Each of these switches it off with one edit, and to apply the policy again would leave it so.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_guard_policy_that_was_weakened_is_as_before() {
    let world = world::adopted();
    active(&world);
    let spec = |path: &str| world.api.get(path).unwrap()["spec"].clone();
    let warns = json!({ "spec": { "validationActions": ["Warn"] } });
    let none = json!([{
        "op": "add", "path": "/spec/matchConditions/-",
        "value": { "name": "off", "expression": "false" },
    }]);
    let labels = json!({ "matchLabels": { "example.test/a": "b" } });
    let few = json!({ "spec": { "matchConstraints": { "objectSelector": labels } } });
    for (what, path, patch) in [
        ("validationActions", BINDING, &warns),
        ("matchConditions", POLICY, &none),
        ("objectSelector", POLICY, &few),
    ] {
        let before = spec(path);
        if patch.is_array() {
            world.api.json_patch(path, patch);
        } else {
            world.api.patch(path, patch);
        }
        let took = until(&format!("{what} is as before"), seconds(60), || {
            spec(path) == before
        });
        figure(
            "guard",
            &format!("policy weakened by {what} → as before"),
            "",
            shown(took),
        );
        active(&world);
    }
}

/// The API server takes a moment to follow its policies: a dry run tells.
fn active(world: &World) {
    until("the guard policy is active", seconds(60), || {
        let refused = world.api.dry_delete(CRD);
        refused.is_err_and(|(code, _)| code == 403)
    });
}

#[test]
#[ignore = "needs a real cluster: make test"]
fn objects_stored_in_a_version_that_is_gone_are_migrated() {
    migrated(&world::adopted());
}

/// A kind of the engine whose objects a test may make: the group, the kind, its plural, and what an object of it says.
fn of_users(world: &World) -> (&'static str, &'static str, &'static str, Value) {
    if world.engine == ARGOCD {
        let project = json!({ "description": "kept" });
        ("argoproj.io", "AppProject", "appprojects", project)
    } else {
        let bucket =
            json!({ "bucketName": "b", "endpoint": "e", "interval": "1h", "suspend": true });
        ("source.toolkit.fluxcd.io", "Bucket", "buckets", bucket)
    }
}

/// W15: a version that objects were stored in and that the bundle does not have is migrated away, no object is lost.
pub(crate) fn migrated(world: &World) {
    let (group, kind, plural, spec) = of_users(world);
    let crd = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.{group}");
    let stored = || world.api.get(&crd).unwrap()["status"]["storedVersions"].clone();
    let mut old = world.api.get(&crd).unwrap()["spec"]["versions"][0].clone();
    let today = old["name"].clone();
    old["name"] = json!("v1alpha9");
    old["storage"] = json!(false);
    let added = json!([{ "op": "add", "path": "/spec/versions/-", "value": old }]);
    world.api.json_patch(&crd, &added);
    let object = json!({
        "apiVersion": format!("{group}/v1alpha9"), "kind": kind,
        "metadata": { "name": "kept", "namespace": world.namespace() }, "spec": spec,
    });
    let path = path_of(&object);
    let (collection, _) = path.rsplit_once('/').unwrap();
    until("the old version is served", seconds(60), || {
        let list = world.api.try_get(collection);
        list.is_ok_and(|list| list.is_some())
    });
    world.api.create(collection, &object);
    let uid = world.uid(&path).unwrap();
    let both = json!({ "status": { "storedVersions": ["v1alpha9", today] } });
    world.api.patch(&format!("{crd}/status"), &both);
    let took = until("nothing is stored in it", seconds(240), || {
        stored() == json!([today])
    });
    figure(
        "W15",
        &world.case("lost version in storedVersions → objects written anew, version gone"),
        "≤ 120 s",
        shown(took),
    );
    let kept = path.replace("v1alpha9", today.as_str().unwrap());
    let live = world.api.get(&kept).unwrap();
    assert_eq!(live["metadata"]["uid"], json!(uid));
    let managed = live["metadata"]["managedFields"].to_string();
    assert!(!managed.contains("v1alpha9"), "{managed}");
    assert!(world.api.delete(&kept));
    let removed = json!([{ "op": "remove", "path": "/spec/versions/1" }]);
    world.api.json_patch(&crd, &removed);
}

//! What is kept of a sync object, to make it anew where its CRD or its Namespace takes it along.

use super::*;

/// An Application that somebody made by hand.
fn application() -> Value {
    json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
        "metadata": {
            "name": "shop", "namespace": "argocd", "uid": "u", "resourceVersion": "7",
            "labels": {"team": "a"},
            "annotations": {
                "example.com/note": "n", "argocd.argoproj.io/refresh": "normal",
                "kubectl.kubernetes.io/restartedAt": "2026-01-02T03:04:05Z",
            },
            "finalizers": ["example.com/backup", "resources-finalizer.argocd.argoproj.io"],
            "managedFields": [{"manager": "kubectl-client-side-apply", "operation": "Update"}],
        },
        "spec": {"project": "default"}, "status": {"sync": {"status": "Synced"}},
    })
}

fn kept(live: &Value) -> Option<Value> {
    let live = serde_json::from_value(live.clone()).unwrap();
    keepsake("argoproj.io/v1alpha1", "Application", &live)
}

/// W11: without what says only what was done with it, and what is another's.
#[test]
fn what_nobody_else_makes_again_is_kept_as_its_owner_wants_it() {
    let mut expected = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
        "metadata": {
            "name": "shop", "namespace": "argocd", "labels": {"team": "a"},
            "annotations": {"example.com/note": "n"},
            "finalizers": ["resources-finalizer.argocd.argoproj.io"],
        },
        "spec": {"project": "default"},
    });
    let mut live = application();
    assert_eq!(kept(&live), Some(expected.clone()));
    let object = serde_json::from_value(live.clone()).unwrap();
    let said = child("argocd", Kind::Application, &object).and_then(|said| said.keepsake);
    assert_eq!(said.as_deref(), Some(&expected));
    // Its end is to take nothing with it.
    live["metadata"]["finalizers"] = json!(["example.com/backup"]);
    let metadata = expected["metadata"].as_object_mut().unwrap();
    metadata.remove("finalizers");
    assert_eq!(kept(&live), Some(expected));
}

/// Made by us, it would be in the way of what Git has by then.
#[test]
fn what_git_a_set_or_the_agent_makes_again_is_not_kept() {
    let tracked = "linesman:argoproj.io/Application:argocd/shop";
    let set = json!([{
        "apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet", "name": "all", "uid": "s",
    }]);
    let ours = json!([{"manager": MANAGER, "operation": "Apply"}]);
    for (field, value) in [
        ("labels", json!({GIT_OWNER: "apps"})),
        ("annotations", json!({TRACKING: tracked})),
        ("ownerReferences", set),
        ("managedFields", ours),
    ] {
        let mut live = application();
        live["metadata"][field] = value;
        assert_eq!(kept(&live), None, "{field}");
    }
}

/// W11: by its inventory a Kustomization that is made again prunes what left the catalog meanwhile.
#[test]
fn an_inventory_is_kept_of_a_kustomization_that_has_brought_something() {
    let some = json!({"entries": [{"id": "shop_web_apps_Deployment", "v": "v1"}]});
    for (plural, said, expected) in [
        ("kustomizations", some.clone(), Some(some.clone())),
        ("helmreleases", some, None),
        ("kustomizations", json!({"entries": []}), None),
        ("kustomizations", json!({}), None),
        ("kustomizations", Value::Null, None),
    ] {
        let live = json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": "shop"}, "status": {"inventory": said},
        });
        let live = serde_json::from_value(live).unwrap();
        assert_eq!(inventory(plural, &live), expected, "{plural} {said}");
    }
}

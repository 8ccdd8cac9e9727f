use serde_json::json;
use time::Duration;

use super::*;
use crate::agent::plan::tests::start;
use crate::clock::rfc3339;

fn event(kind: &str, seconds: i64, message: &str) -> Event {
    let at = rfc3339(start() + Duration::seconds(seconds));
    serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"name": "x", "namespace": "flux-system"},
        "involvedObject": {"kind": kind, "name": "shop"}, "type": "Normal", "reason": "Progressing",
        "message": message, "lastTimestamp": at, "count": 1,
    }))
    .unwrap()
}

fn remade(objects: &[&str]) -> BTreeSet<String> {
    objects.iter().map(|o| (*o).to_owned()).collect()
}

#[test]
fn flux_tells_what_it_created_a_line_each() {
    let all = [
        event(
            "Kustomization",
            5,
            "ConfigMap/shop/a created\nConfigMap/shop/b configured\nNamespace/shop created",
        ),
        event(
            "Kustomization",
            9,
            "(combined from similar events): ConfigMap/shop/c created\nConfigMap/shop/a created",
        ),
        event("Kustomization", 3, "Kustomization/flux-system/web created"),
        event("Kustomization", 0, "ConfigMap/shop/before created"),
        event("GitRepository", 5, "ConfigMap/shop/of-another created"),
        event(
            "Kustomization",
            5,
            "Reconciliation finished, next run is created",
        ),
    ];
    let expected = ["ConfigMap shop/a", "ConfigMap shop/c", "Namespace shop"];
    assert_eq!(by_flux(start(), &all), remade(&expected));
    assert_eq!(by_flux(start() + Duration::minutes(1), &all), remade(&[]));
}

fn application(seconds: i64, resources: &Value) -> DynamicObject {
    let at = rfc3339(start() + Duration::seconds(seconds));
    serde_json::from_value(json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
        "metadata": {"name": "shop", "namespace": "argocd"},
        "status": {"operationState": {"startedAt": at, "syncResult": {"resources": resources}}},
    }))
    .unwrap()
}

#[test]
fn argo_cd_tells_what_its_last_sync_created() {
    let one = |kind: &str, namespace: &str, message: &str| json!({"kind": kind, "namespace": namespace, "name": "a", "message": message});
    let resources = json!([
        one("ConfigMap", "shop", "configmap/a created"),
        one("Secret", "shop", "secret/a configured"),
        one("ClusterRole", "", "clusterrole.rbac.authorization.k8s.io/a created"),
        one("Application", "argocd", "application.argoproj.io/a created"),
        {"kind": "ConfigMap"},
    ]);
    let all = [
        application(2, &resources),
        application(0, &json!([one("Service", "shop", "service/a created")])),
        application(2, &Value::Null),
    ];
    let expected = ["ClusterRole a", "ConfigMap shop/a"];
    assert_eq!(by_argocd(start(), &all), remade(&expected));
}

#[test]
fn of_many_some_are_named_and_all_are_counted() {
    let lines = |count: usize, name: &str| {
        let lines: Vec<String> = (0..count)
            .map(|n| format!("ConfigMap/shop/{name}{n} created"))
            .collect();
        told(by_flux(
            start(),
            &[event("Kustomization", 5, &lines.join("\n"))],
        ))
    };
    let many = lines(300, "a");
    assert_eq!((many.count, many.objects.len()), (300, MAX_NAMED));
    let long = lines(40, &"x".repeat(200));
    assert_eq!((long.count, long.objects.len()), (40, MAX_ALL / 217));
}

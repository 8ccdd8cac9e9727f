use super::*;
use crate::wire::report::{HealResult, Scene};

fn heal(class: &str, object: &str, fault_at: Option<&str>) -> HealRecord {
    HealRecord {
        id: "1".to_owned(),
        class: class.to_owned(),
        number: 3,
        meaning: String::new(),
        object: object.to_owned(),
        evidence: String::new(),
        writer: String::new(),
        revision: String::new(),
        commit: String::new(),
        steps: Vec::new(),
        fault_at: fault_at.map(str::to_owned),
        detected_at: "2026-01-01T12:00:00.000Z".to_owned(),
        acted_at: None,
        restored_at: None,
        result: HealResult::Open,
        next: String::new(),
        scene: Scene::default(),
    }
}

#[test]
fn requests_are_found_that_wrote_to_the_object_or_a_part_of_it() {
    let controller = "/apis/apps/v1/namespaces/flux-system/deployments/source-controller";
    let scale = format!("{controller}/scale");
    for (object, action, path, is) in [
        (
            "Deployment flux-system/source-controller",
            "kube.patch",
            controller,
            true,
        ),
        (
            "Deployment flux-system/source-controller",
            "kube.patch",
            scale.as_str(),
            true,
        ),
        (
            "Deployment flux-system/source",
            "kube.patch",
            controller,
            false,
        ),
        (
            "Deployment shop/source-controller",
            "kube.patch",
            controller,
            false,
        ),
        (
            "StatefulSet flux-system/source-controller",
            "kube.patch",
            controller,
            false,
        ),
        (
            "Deployment flux-system/source-controller",
            "kube.deletecollection",
            "/apis/apps/v1/namespaces/flux-system/deployments",
            true,
        ),
        // Something else was made beside it.
        (
            "Deployment flux-system/source-controller",
            "kube.create",
            "/apis/apps/v1/namespaces/flux-system/deployments",
            false,
        ),
    ] {
        assert_eq!(
            is_written(object, action, path),
            is,
            "{object} {action} {path}"
        );
    }
}

#[test]
fn so_are_those_to_objects_of_other_kinds_and_of_none() {
    let controller = "/apis/apps/v1/namespaces/flux-system/deployments/source-controller";
    for (object, action, path, is) in [
        (
            "NetworkPolicy flux-system/allow-egress",
            "kube.delete",
            "/apis/networking.k8s.io/v1/namespaces/flux-system/networkpolicies/allow-egress",
            true,
        ),
        (
            "GitRepository flux-system/flux-system",
            "kube.update",
            "/apis/source.toolkit.fluxcd.io/v1/namespaces/flux-system/gitrepositories/flux-system",
            true,
        ),
        (
            "ClusterRole cluster-reconciler",
            "kube.delete",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/cluster-reconciler",
            true,
        ),
        (
            "Namespace flux-system",
            "kube.delete",
            "/api/v1/namespaces/flux-system",
            true,
        ),
        (
            "Namespace flux-system",
            "kube.update",
            "/api/v1/namespaces/flux-system/finalize",
            true,
        ),
        // What is in it is not it.
        (
            "Namespace flux-system",
            "kube.deletecollection",
            "/api/v1/namespaces/flux-system/pods",
            false,
        ),
        ("Namespace flux-system", "kube.patch", controller, false),
    ] {
        assert_eq!(
            is_written(object, action, path),
            is,
            "{object} {action} {path}"
        );
    }
}

fn is_written(object: &str, action: &str, path: &str) -> bool {
    let heal = heal("ScaledToZero", object, None);
    Object::of(&heal).unwrap().is_written(action, path)
}

#[test]
fn kinds_are_served_under_their_plurals() {
    for (kind, resource) in [
        ("Ingress", "ingresses"),
        ("Endpoints", "endpoints"),
        ("Gateway", "gateways"),
        ("HelmRepository", "helmrepositories"),
        ("AppProject", "appprojects"),
    ] {
        assert!(is_plural(kind, resource), "{kind}");
    }
    assert!(!is_plural("Pod", "pod"));
}

#[test]
fn it_is_looked_for_before_the_fault_and_not_long_before_its_detection() {
    let text = |fault_at: Option<&str>| {
        let heal = heal("ScaledToZero", "Deployment a/b", fault_at);
        span(&heal).map(|(since, until)| (rfc3339(since), rfc3339(until)))
    };
    let until = "2026-01-01T12:00:02.000Z";
    for (fault_at, since) in [
        (None, "2026-01-01T11:58:00.000Z"),
        (Some("2026-01-01T11:57:00.000Z"), "2026-01-01T11:55:00.000Z"),
        // Its clock, or what it says of it.
        (Some("2026-01-01T12:30:00.000Z"), "2026-01-01T11:58:00.000Z"),
        (Some("2025-01-01T00:00:00.000Z"), "2026-01-01T11:50:00.000Z"),
    ] {
        let expected = Some((since.to_owned(), until.to_owned()));
        assert_eq!(text(fault_at), expected, "{fault_at:?}");
    }
}

#[test]
fn what_is_no_object_of_the_cluster_was_written_by_nobody() {
    for (class, object) in [
        ("AgentLost", "Cluster eu1"),
        ("DuplicateAgent", "Cluster eu1"),
        ("ApiUnhealthy", "kube-apiserver"),
        ("ObjectMissing", "ConfigMap a/b, a/c"),
    ] {
        assert_eq!(Object::of(&heal(class, object, None)), None, "{object}");
    }
}

#[test]
fn the_newest_are_told_in_their_order() {
    let heal = heal("ScaledToZero", "Deployment a/b", None);
    let row = |n: i64| AuditRow {
        action: "kube.patch".to_owned(),
        target: format!(
            "/apis/apps/v1/namespaces/a/deployments/{}",
            if n == 1 { "c" } else { "b" }
        ),
        request_id: n.to_string(),
        ..AuditRow::event(n)
    };
    let told = Object::of(&heal)
        .unwrap()
        .writes((0..20).rev().map(row).collect());
    let ids: Vec<&str> = told.iter().map(|write| write.request_id.as_str()).collect();
    assert_eq!(
        ids,
        ["10", "11", "12", "13", "14", "15", "16", "17", "18", "19"]
    );
    assert_eq!(
        told[0],
        HubWrite {
            at: "1970-01-01T00:00:00.010Z".to_owned(),
            actor: "user:ada".to_owned(),
            action: "kube.patch".to_owned(),
            target: "/apis/apps/v1/namespaces/a/deployments/b".to_owned(),
            request_id: "10".to_owned(),
        }
    );
}

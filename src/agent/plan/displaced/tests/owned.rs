//! Who owns what of an object's fields.

use super::*;

#[test]
fn what_an_engine_applied_and_owns_no_more_than_the_name_of_is_told_apart() {
    let owned = json!({"f:spec": {"f:template": {"f:spec": {
        "f:volumes": {
            ".": {},
            "k:{\"name\":\"temp\"}": {".": {}, "f:name": {}},
            "k:{\"name\":\"data\"}": {".": {}, "f:name": {}, "f:emptyDir": {}},
        },
        "f:containers": {"k:{\"name\":\"manager\"}": {
            ".": {}, "f:image": {},
            "f:env": {
                "k:{\"name\":\"LOG\"}": {".": {}, "f:name": {}},
                "k:{\"name\":\"HOME\"}": {".": {}, "f:name": {}, "f:value": {}},
            },
        }},
    }}}});
    let entries = |manager: &str, operation: &str| -> Vec<ManagedFieldsEntry> {
        let entry = json!({"manager": manager, "operation": operation, "fieldsV1": owned});
        serde_json::from_value(json!([entry])).unwrap()
    };
    for (manager, operation, kind, expected) in [
        (
            "kustomize-controller",
            "Apply",
            Kind::Deployment,
            vec![temp(), log()],
        ),
        (
            "argocd-controller",
            "Apply",
            Kind::StatefulSet,
            vec![temp(), log()],
        ),
        // Its patches take away what is in the way.
        ("argocd-controller", "Update", Kind::Deployment, vec![]),
        ("kubectl", "Apply", Kind::Deployment, vec![]),
        ("kustomize-controller", "Apply", Kind::ConfigMap, vec![]),
    ] {
        let found = emptied(kind, &entries(manager, operation));
        assert_eq!(found, expected, "{manager} {operation} {kind}");
    }
}

fn owned(manager: &str, operation: &str, spec: &Value) -> ManagedFieldsEntry {
    let entry = json!({
        "apiVersion": "apps/v1", "manager": manager, "operation": operation,
        "fieldsType": "FieldsV1", "time": "2026-01-02T03:04:05Z", "fieldsV1": {"f:spec": spec},
    });
    serde_json::from_value(entry).unwrap()
}

/// A Pod template of which somebody owns this much of the container.
fn template(container: &Value) -> Value {
    json!({"f:spec": {"f:containers": {"k:{\"name\":\"manager\"}": container}}})
}

/// What an engine owns, where it has the probe like that.
fn engines(probe: &Value, strategy: bool) -> ManagedFieldsEntry {
    let mut container = json!({".": {}, "f:image": {}, "f:name": {}});
    if !probe.is_null() {
        container["f:livenessProbe"] = probe.clone();
    }
    let mut spec = json!({"f:replicas": {}, "f:selector": {}, "f:template": template(&container)});
    if strategy {
        spec["f:strategy"] = json!({"f:type": {}});
    }
    owned("kustomize-controller", "Apply", &spec)
}

/// As the API server keeps them: what a person changed is his, and the engine's entry has nothing of it any more.
#[test]
fn a_handler_or_strategy_that_somebody_else_owns_in_the_engines_place_is_told_apart() {
    let by_person = |spec: Value| owned("kubectl-patch", "Update", &spec);
    let probes = |probe: Value| {
        let container = json!({"f:livenessProbe": probe});
        by_person(json!({"f:template": template(&container)}))
    };
    let socket = || probes(json!({"f:tcpSocket": {".": {}, "f:port": {}}}));
    let rolling = json!({".": {}, "f:maxSurge": {}, "f:maxUnavailable": {}});
    let rolls = by_person(json!({"f:strategy": {"f:rollingUpdate": rolling, "f:type": {}}}));
    let whole = json!({"f:httpGet": {"f:path": {}, "f:port": {}}, "f:periodSeconds": {}});
    let (rest, none) = (json!({"f:periodSeconds": {}}), Value::Null);
    let strategy = vec![Item::Strategy("strategy")];
    for (what, engine, other, expected) in [
        (
            "the handler",
            engines(&rest, true),
            socket(),
            vec![liveness()],
        ),
        (
            "the probe",
            engines(&none, true),
            socket(),
            vec![liveness()],
        ),
        (
            "another field of the probe",
            engines(&whole, true),
            probes(json!({"f:timeoutSeconds": {}})),
            vec![],
        ),
        (
            "a handler that a commit brought since",
            engines(&whole, true),
            socket(),
            vec![],
        ),
        (
            "the strategy",
            engines(&whole, false),
            rolls.clone(),
            strategy,
        ),
        ("a commit's strategy", engines(&whole, true), rolls, vec![]),
    ] {
        assert_eq!(
            emptied(Kind::Deployment, &[other, engine]),
            expected,
            "{what}"
        );
    }
    let alone = emptied(Kind::Deployment, &[engines(&none, false)]);
    assert_eq!(alone, [], "nobody has any");
}

use super::*;

fn live(managed: Value) -> DynamicObject {
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {
            "name": "x", "namespace": "n", "labels": {"a": "1", GIT_OWNER: "root", GIT_OWNER_NAMESPACE: "n"},
            "managedFields": managed,
        },
        "spec": {"replicas": 1},
    });
    serde_json::from_value(object).unwrap()
}

/// A label that a person wrote makes no snapshot call an object Git's; one of the engine's does, also put back by us.
#[test]
fn a_mark_is_kept_only_where_the_engine_or_the_agent_wrote_it() {
    let owner = format!("f:{GIT_OWNER}");
    let space = format!("f:{GIT_OWNER_NAMESPACE}");
    for (manager, operation, kept) in [
        ("kustomize-controller", "Apply", true),
        (MANAGER, "Apply", true),
        ("kubectl-label", "Update", false),
        ("kustomize-controller", "Update", false),
    ] {
        let managed = json!([
            {"manager": MANAGER, "operation": "Apply", "fieldsType": "FieldsV1",
             "fieldsV1": {"f:metadata": {"f:labels": {"f:a": {}}}, "f:spec": {"f:replicas": {}}}},
            {"manager": manager, "operation": operation, "fieldsType": "FieldsV1",
             "fieldsV1": {"f:metadata": {"f:labels": {owner.as_str(): {}, space.as_str(): {}}}}},
        ]);
        let mut labels = json!({"a": "1"});
        if kept {
            labels[GIT_OWNER] = json!("root");
            labels[GIT_OWNER_NAMESPACE] = json!("n");
        }
        let expected = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "x", "namespace": "n", "labels": labels},
            "spec": {"replicas": 1},
        });
        assert_eq!(
            as_set(&live(managed)).unwrap(),
            expected,
            "{manager} {operation}"
        );
    }
}

//! Which fields of an object somebody set, told from those that the API server added: read from `managedFields`.

use serde_json::{Map, Value};

/// The part of `object` that the managers' field sets (`FieldsV1`) name. Status and bookkeeping are left out.
pub fn owned(object: &Value, sets: &[&Value]) -> Value {
    let mut all = Value::Object(Map::new());
    for set in sets {
        merge(&mut all, set);
    }
    let mut kept = select(object, &all);
    for key in ["apiVersion", "kind"] {
        if let (Some(map), Some(value)) = (kept.as_object_mut(), object.get(key)) {
            map.insert(key.to_owned(), value.clone());
        }
    }
    let metadata = |field: &str| object.pointer(&format!("/metadata/{field}")).cloned();
    let mut meta = kept
        .get("metadata")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    meta.retain(|key, _| matches!(key.as_str(), "labels" | "annotations"));
    if let Some(annotations) = meta.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.retain(|key, _| !TRANSIENT.contains(&key.as_str()));
    }
    for field in ["name", "namespace"] {
        if let Some(value) = metadata(field) {
            meta.insert(field.to_owned(), value);
        }
    }
    if let Some(map) = kept.as_object_mut() {
        map.insert("metadata".to_owned(), Value::Object(meta));
        map.remove("status");
    }
    if let Some(spec) = kept.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("clusterIP");
        spec.remove("clusterIPs");
    }
    kept
}

/// Annotations that say what was done, not what is wanted.
pub const TRANSIENT: [&str; 11] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    "deployment.kubernetes.io/revision",
    "kustomize.toolkit.fluxcd.io/reconcile",
    "reconcile.fluxcd.io/requestedAt",
    "argocd.argoproj.io/refresh",
    "argocd.argoproj.io/application-set-refresh",
    "linesman.dev/probed-at",
    "linesman.dev/probed-from",
    "linesman.dev/retried-at",
    "linesman.dev/allow-delete",
    "linesman.dev/held",
];

fn merge(into: &mut Value, from: &Value) {
    if let (Some(into), Some(from)) = (into.as_object_mut(), from.as_object()) {
        for (key, value) in from {
            let entry = into
                .entry(key.clone())
                .or_insert_with(|| Value::Object(Map::new()));
            merge(entry, value);
        }
    }
}

/// An empty set takes the whole value.
fn select(value: &Value, set: &Value) -> Value {
    let Some(set) = set.as_object().filter(|s| s.keys().any(|k| k != ".")) else {
        return value.clone();
    };
    match value {
        Value::Object(map) => {
            let mut kept = Map::new();
            for (key, set) in set {
                if let Some(name) = key.strip_prefix("f:")
                    && let Some(value) = map.get(name)
                {
                    kept.insert(name.to_owned(), select(value, set));
                }
            }
            Value::Object(kept)
        }
        Value::Array(items) => {
            let chosen = items.iter().filter_map(|item| {
                let set = set.iter().find(|(key, _)| names(key, item))?.1;
                Some(with_keys(item, select(item, set)))
            });
            Value::Array(chosen.collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// Whether `k:{"name":"x"}` or `v:"x"` names this item.
fn names(key: &str, item: &Value) -> bool {
    if let Some(keys) = key.strip_prefix("k:") {
        let keys: Value = serde_json::from_str(keys).unwrap_or_default();
        let keys = keys.as_object().cloned().unwrap_or_default();
        return !keys.is_empty() && keys.iter().all(|(k, v)| item.get(k) == Some(v));
    }
    key.strip_prefix("v:")
        .is_some_and(|text| serde_json::from_str::<Value>(text).ok().as_ref() == Some(item))
}

/// A keyed item keeps what tells it from the others.
fn with_keys(item: &Value, mut kept: Value) -> Value {
    if let (Some(item), Some(kept)) = (item.as_object(), kept.as_object_mut()) {
        for key in ["name", "containerPort", "port", "protocol", "mountPath"] {
            if let Some(value) = item.get(key) {
                kept.entry(key).or_insert_with(|| value.clone());
            }
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_of_all_managers_are_kept_and_defaults_are_not() {
        let object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {
                "name": "x", "namespace": "n", "uid": "u", "labels": {"a": "1", "b": "2"},
                "annotations": {"deployment.kubernetes.io/revision": "3", "keep": "me"},
            },
            "spec": {
                "replicas": 1, "paused": false,
                "containers": [
                    {"name": "m", "image": "i:1", "pull": "Always", "args": ["a", "b"]},
                    {"name": "injected", "image": "j:1"},
                ],
                "finalizers": ["one", "two"],
            },
            "status": {"ready": 1},
        });
        let ours = json!({
            "f:metadata": {"f:labels": {"f:a": {}}, "f:annotations": {".": {}, "f:keep": {}, "f:deployment.kubernetes.io/revision": {}}},
            "f:spec": {"f:containers": {"k:{\"name\":\"m\"}": {".": {}, "f:image": {}, "f:args": {}}}, "f:finalizers": {"v:\"one\"": {}}},
        });
        let theirs = json!({"f:spec": {"f:replicas": {}}});
        assert_eq!(
            owned(&object, &[&ours, &theirs]),
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": "x", "namespace": "n", "labels": {"a": "1"}, "annotations": {"keep": "me"}},
                "spec": {
                    "replicas": 1,
                    "containers": [{"name": "m", "image": "i:1", "args": ["a", "b"]}],
                    "finalizers": ["one"],
                },
            })
        );
    }
}

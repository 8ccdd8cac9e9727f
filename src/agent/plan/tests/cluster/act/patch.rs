//! What the API server makes of a patch.

use serde_json::{Value, json};

const PULLS: &str = "/spec/template/spec/imagePullSecrets";

/// The Secrets that Pods pull with.
pub(super) fn pulled(object: &Value) -> Vec<String> {
    let all = object.pointer(PULLS).and_then(Value::as_array);
    let names = all.into_iter().flatten().filter_map(|s| s["name"].as_str());
    names.map(str::to_owned).collect()
}

/// What an applier alone owned of these goes where it does not name it any more.
pub(super) fn let_go(live: &mut Value, owned: &[String], named: &[String]) {
    let all = live.pointer_mut(PULLS).and_then(Value::as_array_mut);
    if let Some(all) = all {
        let is_of = |names: &[String], one: &Value| names.iter().any(|n| one["name"] == n.as_str());
        all.retain(|one| !is_of(owned, one) || is_of(named, one));
    }
}

/// Server-side apply of `wanted`: what only `live` has stays, also in lists whose items have names.
pub(super) fn over(live: &mut Value, wanted: &Value, field: &str) {
    let keyed = [
        "containers",
        "initContainers",
        "env",
        "volumes",
        "imagePullSecrets",
    ]
    .contains(&field);
    match (live, wanted) {
        // Taken as one value.
        (live, wanted) if field == "selector" => *live = wanted.clone(),
        (Value::Object(live), Value::Object(wanted)) => {
            for (key, value) in wanted {
                over(live.entry(key).or_insert(Value::Null), value, key);
            }
        }
        (Value::Array(live), Value::Array(wanted)) if keyed => {
            for item in wanted {
                let same = live.iter_mut().find(|l| l["name"] == item["name"]);
                match same {
                    Some(live) => over(live, item, ""),
                    None => live.push(item.clone()),
                }
            }
        }
        (live, wanted) => *live = wanted.clone(),
    }
}

/// JSON Merge Patch (RFC 7396).
pub(super) fn merge(into: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *into = patch.clone();
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    for (key, value) in patch {
        let map = into.as_object_mut().unwrap();
        if value.is_null() {
            map.remove(key);
        } else {
            merge(map.entry(key).or_insert(Value::Null), value);
        }
    }
}

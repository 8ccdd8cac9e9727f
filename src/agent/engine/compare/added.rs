//! What somebody added to a workload and that can keep its Pods from running: to apply takes none of it away.

use serde_json::{Map, Value, json};

use super::{MAX_PATHS, escaped, is_zero, items, keys_of, same_item};

/// Fields of a workload that keep another version of its Pods from taking over, the one that is mended, too.
const STOPS: [&str; 3] = [
    "/spec/paused",
    "/spec/minReadySeconds",
    "/spec/updateStrategy/rollingUpdate/partition",
];

/// Fields of a Pod template that stop a controller when somebody else adds them.
const ADDED: [&str; 17] = [
    "nodeSelector",
    "affinity",
    "runtimeClassName",
    "hostNetwork",
    // As the one above, a namespace's Pod Security may take no such Pod.
    "hostPID",
    "hostIPC",
    "schedulingGates",
    "activeDeadlineSeconds",
    "nodeName",
    "readinessGates",
    "resourceClaims",
    "priorityClassName",
    "schedulerName",
    "dnsPolicy",
    "dnsConfig",
    "hostAliases",
    "automountServiceAccountToken",
];

/// The same of a container.
const ADDED_TO_CONTAINER: [&str; 6] = [
    "command",
    "envFrom",
    "lifecycle",
    "startupProbe",
    "livenessProbe",
    "readinessProbe",
];

/// Where a Pod or container has more rights than a namespace's Pod Security may allow.
const RIGHTS: [&str; 5] = [
    "/securityContext/capabilities/add",
    "/securityContext/privileged",
    "/securityContext/procMount",
    "/securityContext/runAsUser",
    "/securityContext/sysctls",
];

/// Items and fields of a workload that nobody wanted and that can keep its Pods from running.
pub fn additions(wanted: &Value, live: &Value) -> Vec<String> {
    let pod = "/spec/template/spec";
    let stops = STOPS.iter().filter(|at| {
        let added = live.pointer(at).is_some_and(|v| !is_zero(v));
        added && wanted.pointer(at).is_none()
    });
    let mut paths: Vec<String> = stops.map(|at| (*at).to_owned()).collect();
    let (Some(wanted), Some(live)) = (wanted.pointer(pod), live.pointer(pod)) else {
        return Vec::new();
    };
    for field in ADDED {
        if wanted.get(field).is_none() && live.get(field).is_some_and(|v| !is_usual(field, v)) {
            paths.push(format!("{pod}/{field}"));
        }
    }
    added_rights(wanted, live, pod, &mut paths);
    for list in ["containers", "initContainers", "volumes"] {
        added_items(
            wanted.get(list),
            live.get(list),
            &format!("{pod}/{list}"),
            &mut paths,
        );
    }
    for container in items(wanted.get("containers")) {
        let same = items(live.get("containers")).find(|c| c.get("name") == container.get("name"));
        let at = format!("{pod}/containers");
        added_rights(container, same.unwrap_or(&Value::Null), &at, &mut paths);
        added_bounds(container, same.unwrap_or(&Value::Null), &at, &mut paths);
        for list in ["env", "volumeMounts"] {
            let there = same.and_then(|c| c.get(list));
            added_items(
                container.get(list),
                there,
                &format!("{at}/{list}"),
                &mut paths,
            );
        }
        for field in ADDED_TO_CONTAINER {
            if container.get(field).is_none() && same.is_some_and(|c| c.get(field).is_some()) {
                paths.push(format!("{at}/{field}"));
            }
        }
    }
    paths.truncate(MAX_PATHS);
    paths
}

/// Rights of a Pod or container that nobody wanted. As a user 0 is one, too: root.
fn added_rights(wanted: &Value, live: &Value, at: &str, paths: &mut Vec<String>) {
    let added = RIGHTS.iter().filter(|right| {
        let of = |object: &Value| object.pointer(right).is_some_and(|v| !v.is_null());
        of(live) && !of(wanted)
    });
    paths.extend(added.map(|right| format!("{at}{right}")));
}

/// What the API server gives a field that nobody wrote (kubernetes, `SetDefaults_PodSpec`), or a Pod has without it.
fn is_usual(field: &str, value: &Value) -> bool {
    match field {
        "schedulerName" => value == "default-scheduler",
        "dnsPolicy" => value == "ClusterFirst",
        // Without a token a controller reaches no API server.
        "automountServiceAccountToken" => value.as_bool() == Some(true),
        _ => is_zero(value),
    }
}

/// Bounds and wishes that nobody wanted: Argo CD's manifests give their containers none.
fn added_bounds(wanted: &Value, live: &Value, at: &str, paths: &mut Vec<String>) {
    for part in ["limits", "requests"] {
        let given: Vec<&String> = bounded(wanted, part).collect();
        let more = bounded(live, part).filter(|name| !given.contains(name));
        paths.extend(more.map(|name| format!("{at}/resources/{part}/{}", escaped(name))));
    }
}

/// The same of all containers that `known` has, as a part of the workload: what admission gave (defaults of a policy, GKE Autopilot)
/// no field manager has, and yet the engine works with it.
pub fn bounds(known: &Value, live: &Value) -> Option<Value> {
    let all = "/spec/template/spec/containers";
    let more = items(live.pointer(all)).filter_map(|container| {
        let name = container.get("name")?;
        let known = items(known.pointer(all)).find(|c| c.get("name") == Some(name))?;
        let mut resources = container.get("resources")?.clone();
        for part in ["limits", "requests"] {
            let given: Vec<&String> = bounded(known, part).collect();
            if let Some(of_part) = resources.get_mut(part).and_then(Value::as_object_mut) {
                of_part.retain(|name, _| !given.contains(&name));
            }
        }
        let parts = resources.as_object_mut()?;
        parts.retain(|part, all| ["limits", "requests"].contains(&part.as_str()) && !is_zero(all));
        (!parts.is_empty()).then(|| json!({"name": name, "resources": resources}))
    });
    let more: Vec<Value> = more.collect();
    (!more.is_empty()).then(|| json!({"spec": {"template": {"spec": {"containers": more}}}}))
}

fn bounded<'a>(container: &'a Value, part: &str) -> impl Iterator<Item = &'a String> {
    let all = container.get("resources").and_then(|all| all.get(part));
    let all = all.and_then(Value::as_object);
    all.into_iter().flat_map(Map::keys)
}

fn added_items(wanted: Option<&Value>, live: Option<&Value>, at: &str, paths: &mut Vec<String>) {
    let keys = keys_of(at);
    for item in items(live) {
        if !items(wanted).any(|w| same_item(w, item, keys)) {
            let name = keys
                .iter()
                .find_map(|k| item.get(*k))
                .and_then(Value::as_str);
            paths.push(format!("{at}/{}", name.unwrap_or("?")));
        }
    }
}

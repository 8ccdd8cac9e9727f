//! Whether anybody writes to the engine's workloads and to what the catalog brought, and who it was (W23).

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::healing::{LIMIT, workloads};
use crate::support::api::deployment;
use crate::support::world::{World, condition};
use crate::support::{figure, seconds, until};

/// Paths of objects, and their `metadata`.
pub(super) type Written = BTreeMap<String, Value>;

/// All Deployments and `StatefulSets` of the cluster, the agent's own among them, and what else the catalog brought. Pods, Leases,
/// ConfigMaps and what the engine syncs by are not among them: kubelet and engine write to these in the best of times.
fn written(world: &World) -> Written {
    let brought = workloads(world).into_keys().map(|path| {
        let live = world.api.get(&path).unwrap();
        (path, live["metadata"].clone())
    });
    // Its Deployment is among those, under the same path.
    brought.chain(of_apps(world)).collect()
}

/// The same once those that were adopted or mended just now are as they are wanted.
pub(super) fn settled(world: &World) -> Written {
    let last = [
        deployment("hello", "hello"),
        deployment("linesman", "linesman-agent"),
    ];
    let is_settled = |path: &String| world.api.get(path).is_some_and(|live| rolled_out(&live));
    until("the workloads are settled", seconds(LIMIT), || {
        world.engine_available() && last.iter().all(is_settled)
    });
    written(world)
}

fn of_apps(world: &World) -> Vec<(String, Value)> {
    let of_kind = |kind: &str| {
        let list = world.api.get(&format!("/apis/apps/v1/{kind}")).unwrap();
        let told = |live: &Value| {
            let meta = live["metadata"].clone();
            let text = |field: &str| meta[field].as_str().unwrap().to_owned();
            let (namespace, name) = (text("namespace"), text("name"));
            let path = format!("/apis/apps/v1/namespaces/{namespace}/{kind}/{name}");
            (path, meta)
        };
        let all = list["items"].as_array().unwrap();
        all.iter().map(told).collect::<Vec<_>>()
    };
    ["deployments", "statefulsets"].map(of_kind).concat()
}

/// Its controller has seen the last change, and has nothing more to say of it.
fn rolled_out(live: &Value) -> bool {
    let (wanted, status) = (&live["spec"]["replicas"], &live["status"]);
    let counts = ["replicas", "updatedReplicas", "availableReplicas"];
    status["observedGeneration"] == live["metadata"]["generation"]
        && counts.iter().all(|count| status[*count] == *wanted)
        && condition(live, "Available")
}

/// Nobody has written to them since, but for the status that a controller tells of its Pods: a probe that a busy machine lets wait is
/// no deed of the agent's, and is told.
pub(super) fn left_alone(world: &World, before: &Written) {
    let now = written(world);
    let paths = |all: &Written| all.keys().cloned().collect::<Vec<_>>();
    assert_eq!(paths(&now), paths(before));
    let moved: Vec<Moved> = now
        .iter()
        .filter_map(|(path, meta)| Moved::of(path, [&before[path], meta]))
        .collect();
    for one in &moved {
        println!("written while idle: {}: {:?}", one.path, one.by);
    }
    figure(
        "W23",
        &world.said("workloads whose resourceVersion is another one, idle"),
        "0",
        moved.len(),
    );
    let touched: Vec<&Moved> = moved.iter().filter(|one| !one.is_status()).collect();
    assert!(touched.is_empty(), "{touched:#?}");
}

/// An object that somebody wrote to.
#[derive(Debug, PartialEq)]
struct Moved {
    path: String,
    /// Manager, operation, subresource and time of each entry of `managedFields` that is new.
    by: Vec<Value>,
}

impl Moved {
    /// As it was and as it is; none where that is one version.
    fn of(path: &str, [before, now]: [&Value; 2]) -> Option<Self> {
        if now["resourceVersion"] == before["resourceVersion"] {
            return None;
        }
        let entries = |meta: &Value| {
            meta["managedFields"]
                .as_array()
                .cloned()
                .unwrap_or_default()
        };
        let known = entries(before);
        let new = entries(now).into_iter().filter(|one| !known.contains(one));
        let fields = ["manager", "operation", "subresource", "time"];
        let by = new.map(|one| Value::from(fields.map(|field| one[field].clone()).to_vec()));
        Some(Self {
            path: path.to_owned(),
            by: by.collect(),
        })
    }

    /// Somebody is named, and none of them has written anything but a status, nor is any of them the agent.
    fn is_status(&self) -> bool {
        let status = |by: &Value| {
            let agent = by[0].as_str().is_none_or(|name| name.contains("linesman"));
            by[2] == json!("status") && !agent
        };
        !self.by.is_empty() && self.by.iter().all(status)
    }
}

#[test]
#[ignore = "with all others of this program: make test"]
fn who_wrote_is_told_and_a_status_alone_is_left_to_its_controller() {
    let entry = |manager: &str, subresource: Value, time: &str| json!({"manager": manager, "operation": "Update", "subresource": subresource, "time": time});
    let meta = |version: &str, entries: &[Value]| json!({"resourceVersion": version, "managedFields": entries});
    let engine = entry("kustomize-controller", Value::Null, "01");
    let said = |time| entry("kube-controller-manager", json!("status"), time);
    let before = meta("1", &[engine.clone(), said("01")]);
    let moved = |now: &[Value]| Moved::of("a", [&before, &meta("2", now)]).unwrap();
    assert_eq!(Moved::of("a", [&before, &before]), None);

    let status = moved(&[engine.clone(), said("02")]);
    let who = json!(["kube-controller-manager", "Update", "status", "02"]);
    assert_eq!((status.is_status(), status.by), (true, vec![who]));
    let both = vec![entry("kubectl", Value::Null, "02"), said("02")];
    for (now, managers) in [
        (vec![entry("linesman", Value::Null, "02")], "linesman"),
        (vec![entry("linesman", json!("status"), "02")], "linesman"),
        (both, "kubectl kube-controller-manager"),
        // It is another version, and nobody says why.
        (vec![], ""),
    ] {
        let now = moved(&now);
        let names = now.by.iter().filter_map(|by| by[0].as_str());
        let names = names.collect::<Vec<_>>().join(" ");
        assert_eq!((now.is_status(), names.as_str()), (false, managers));
    }
}

//! Pods of the engine, with how often they were restarted.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::support::world::World;

const APP: &str = "app.kubernetes.io/name";

/// Pods of all but the controllers that prune, which the guard stops, with how often they were restarted.
pub(super) fn pods_that_run_through(world: &World) -> BTreeMap<String, Value> {
    let prunes =
        |pod: &Value| pod["metadata"]["labels"][APP] == json!("argocd-applicationset-controller");
    let all = pods(world)
        .into_iter()
        .filter(|pod| !is_of_controller(pod) && !prunes(pod));
    let told = all.map(|pod| {
        let uid = pod["metadata"]["uid"].as_str().unwrap().to_owned();
        (uid, restarts(&pod))
    });
    told.collect()
}

pub(super) fn restarts_of_controller(world: &World) -> Vec<Value> {
    let all = pods(world).into_iter().filter(is_of_controller);
    all.map(|pod| restarts(&pod)).collect()
}

fn pods(world: &World) -> Vec<Value> {
    let list = world.api.get("/api/v1/namespaces/argocd/pods").unwrap();
    list["items"].as_array().unwrap().clone()
}

fn is_of_controller(pod: &Value) -> bool {
    pod["metadata"]["labels"][APP] == json!("argocd-application-controller")
}

fn restarts(pod: &Value) -> Value {
    pod["status"]["containerStatuses"][0]["restartCount"].clone()
}

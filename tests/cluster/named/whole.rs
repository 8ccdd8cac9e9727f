//! What takes minutes to show, for `make chaos` only.

use std::time::Duration;

use serde_json::{Value, json};

use crate::children::condition as condition_of;
use crate::healing::{LIMIT, since};
use crate::support::world::{CLUSTER, World};
use crate::support::{eventually, seconds};

mod children;
mod leader;
mod pods;

/// The heal of that class and object that came on record since, and how long that took.
fn named(world: &World, known: &[Value], [class, object]: [&str; 2]) -> (Value, Duration) {
    let what = format!("{object} is called {class}");
    eventually(&what, seconds(LIMIT), || {
        let new = since(world, known);
        let mut all = new.iter();
        let found = all.find(|heal| heal["class"] == class && heal["object"] == object);
        found.cloned().ok_or_else(|| format!("{new:#?}"))
    })
}

/// What is on record of a heal, once that is over.
fn over(world: &World, heal: &Value) -> Value {
    let id = heal["id"].as_str().unwrap();
    let look = || {
        let told = world.hub.try_json(&["heal", "show", id])?;
        let over = told["restoredAt"].is_string();
        over.then_some(told.clone()).ok_or_else(|| told.to_string())
    };
    eventually("it is over, on record", seconds(LIMIT), look).0
}

/// What was done about it, and what came of that.
fn steps(heal: &Value) -> Value {
    let all = heal["steps"].as_array().into_iter().flatten();
    let all = all.map(|step| json!([step["action"], step["outcome"]]));
    all.collect()
}

/// It is told of, with what people do about it, and was so at the end: nothing was done.
fn only_told_of(world: &World, heal: &Value, advice: &str) {
    let said = (&heal["result"], &heal["next"]);
    assert_eq!(said, (&json!("reported"), &json!(advice)), "{heal:#}");
    let ended = over(world, heal);
    let came = (&ended["result"], steps(&ended));
    assert_eq!(came, (&json!("reported"), json!([])), "{ended:#}");
}

/// A condition of the cluster, as the hub shows it.
fn condition(world: &World, kind: &str) -> Value {
    let view = world.hub.json(&["cluster", "show", CLUSTER]);
    condition_of(&view, kind)
}

/// The Pods of a Deployment of the engine, but those that end.
fn pods(world: &World, deployment: &str) -> Vec<Value> {
    let namespace = world.namespace();
    let list = world
        .api
        .get(&format!("/api/v1/namespaces/{namespace}/pods"));
    let list = list.unwrap_or_default()["items"].clone();
    let prefix = format!("{deployment}-");
    let is_of = |pod: &&Value| {
        let meta = &pod["metadata"];
        let name = meta["name"].as_str().unwrap_or_default();
        meta["deletionTimestamp"].is_null() && name.starts_with(&prefix)
    };
    let all = list.as_array().into_iter().flatten();
    all.filter(is_of).cloned().collect()
}

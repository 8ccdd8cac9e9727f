//! What is on record of heals, at the hub or, while that is away, in the cluster.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use super::LIMIT;
use crate::support::world::{CLUSTER, World};
use crate::support::{seconds, shown, until};

/// Before the next fault the last one has to be over and on record, or they become one.
pub(crate) fn settle(world: &World) {
    // What was not over for one test is seldom so for the next: that shall not cost each of them the whole wait.
    let limit = if UNSETTLED.swap(true, Ordering::Relaxed) {
        seconds(30)
    } else {
        seconds(LIMIT)
    };
    until("the engine is available", limit, || {
        world.engine_available()
    });
    world.function(limit);
    // While the hub is away they wait in the cluster, and come one after the other once it is back.
    until("all records are at the hub", limit, || {
        !world.hub.runs() || kept(world).is_empty()
    });
    until("no heal is open", limit, || none_is_open(world));
    UNSETTLED.store(false, Ordering::Relaxed);
}

/// Whether the last wait for that was in vain.
static UNSETTLED: AtomicBool = AtomicBool::new(false);

/// Those on record at the hub; while that is away, those that the agent keeps for it in the cluster.
pub(crate) fn heals(world: &World) -> Vec<Value> {
    told(world).unwrap_or_default()
}

/// The same; none where the hub did not say.
fn told(world: &World) -> Option<Vec<Value>> {
    if !world.hub.runs() {
        return Some(kept(world));
    }
    let list = world.hub.try_json(&["heal", "list", CLUSTER]).ok()?;
    list.as_array().cloned()
}

/// Somebody said so: a hub that does not answer has not.
pub(crate) fn none_is_open(world: &World) -> bool {
    told(world).is_some_and(|all| all.iter().all(|heal| heal["result"] != json!("open")))
}

/// All that is on record of a heal: a list at the hub has less of it.
pub(crate) fn whole(world: &World, heal: &Value) -> Value {
    if !world.hub.runs() {
        return heal.clone();
    }
    let id = heal["id"].as_str().unwrap();
    world.hub.json(&["heal", "show", id])
}

/// What the hub does not have yet.
fn kept(world: &World) -> Vec<Value> {
    let map = "/api/v1/namespaces/linesman/configmaps/linesman-heals";
    let map = world.api.get(map).unwrap_or_default();
    let heals = map["data"]["heals.json"].as_str().unwrap_or("[]");
    serde_json::from_str(heals).unwrap()
}

/// Ids of the heals on record. A list has only the newest, so that its length tells nothing.
pub(crate) fn on_record(world: &World) -> Vec<Value> {
    if !world.hub.runs() {
        return kept(world).iter().map(|h| h["id"].clone()).collect();
    }
    let list = world.hub.json(&["heal", "list", CLUSTER]);
    let all = list.as_array().unwrap().iter();
    all.map(|h| h["id"].clone()).collect()
}

/// Heals that were not yet `on_record`.
pub(crate) fn since(world: &World, before: &[Value]) -> Vec<Value> {
    let mut all = heals(world);
    all.retain(|h| !before.contains(&h["id"]));
    all
}

/// Heals that happened while the hub was away are on its record once it is back.
pub(super) fn records_arrive(world: &World, before: &[Value]) {
    let took = until("heal records arrive at the hub", seconds(120), || {
        !since(world, before).is_empty()
    });
    println!(
        "heal records arrived {} after the hub was back",
        shown(took)
    );
}

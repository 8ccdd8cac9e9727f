//! W46: ConfigMaps of the agent that somebody spoilt.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{LIMIT, settle, with_hub_and_with_git_alone};
use crate::blocked::fetcher;
use crate::cascade::kill;
use crate::keys::{another_leads, leader, start_agent, stop_agent};
use crate::support::api::path;
use crate::support::world::{self, World};
use crate::support::{figure, seconds, shown, until};

const MAPS: &str = "/api/v1/namespaces/linesman/configmaps";
const OPEN: &str = "linesman-open-heals";
/// Neither a digest nor a list.
const SPOILT: &str = "?";

/// As it was, at the end, also of a test that fails: others share the cluster.
struct Spoilt<'a> {
    world: &'a World,
    map: String,
    key: &'static str,
    before: Value,
}

impl<'a> Spoilt<'a> {
    fn new(world: &'a World, name: &str, key: &'static str) -> Self {
        let map = format!("{MAPS}/{name}");
        // An agent that has had nothing to mend has kept nothing.
        if world.api.get(&map).is_none() {
            let empty = json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": { "name": name }, "data": { key: "[]" },
            });
            world.api.create(MAPS, &empty);
        }
        let before = world.api.get(&map).unwrap()["data"][key].clone();
        let spoilt = Self {
            world,
            map,
            key,
            before,
        };
        spoilt.write(&json!(SPOILT));
        spoilt
    }

    fn write(&self, value: &Value) {
        let data = json!({ "data": { self.key: value } });
        self.world.api.patch(&self.map, &data);
    }
}

impl Drop for Spoilt<'_> {
    fn drop(&mut self) {
        // The agent may have written it anew.
        let now = self.world.api.get(&self.map).unwrap_or_default();
        if now["data"][self.key] == SPOILT {
            self.write(&self.before);
        }
    }
}

/// The newest of the agent's snapshots.
fn snapshot(world: &World) -> String {
    let all = world.api.get(MAPS).unwrap();
    let all = all["items"].as_array().unwrap().iter();
    let number = |map: &Value| map["data"]["number"].as_str()?.parse::<u64>().ok();
    let name = |map: &Value| map["metadata"]["name"].as_str().unwrap().to_owned();
    let snapshots = all.filter(|map| name(map).starts_with("linesman-snapshot-"));
    name(snapshots.max_by_key(|map| number(map)).unwrap())
}

/// What the agent has said that it cannot read: the Events' names, and what they say.
fn told(world: &World) -> BTreeMap<String, String> {
    let events = "/apis/events.k8s.io/v1/namespaces/linesman/events";
    let all = world.api.get(events).unwrap_or_default();
    let all = all["items"].as_array().cloned().unwrap_or_default();
    let of_it = all.iter().filter(|e| e["reason"] == "RecordUnreadable");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    of_it
        .map(|e| (text(&e["metadata"]["name"]), text(&e["note"])))
        .collect()
}

#[test]
#[ignore = "needs a real cluster: make test"]
fn what_somebody_spoilt_of_the_agents_records_is_told_of_and_the_engine_mended() {
    with_hub_and_with_git_alone(&mut world::adopted(), told_of_and_mended);
}

/// W46: each of them is told of, and all else is mended, also what breaks while they are so.
pub(crate) fn told_of_and_mended(world: &World) {
    let service = path("v1", "Service", world.namespace(), fetcher(world).1);
    let (before, snapshot) = (told(world), snapshot(world));
    let spoilt = [
        Spoilt::new(world, &snapshot, "sha256"),
        Spoilt::new(world, OPEN, "heals.json"),
    ];
    kill(world);
    let took = until("each is told of", seconds(LIMIT), || {
        let mut new = told(world);
        new.retain(|name, _| !before.contains_key(name));
        let of = |map: &str| new.values().any(|note| note.contains(map));
        of(&snapshot) && of(OPEN)
    });
    let what = "two of the agent's records spoilt, agent killed";
    figure(
        "W46",
        &world.case(&format!("{what} → each told of")),
        "",
        shown(took),
    );
    let uid = world.uid(&service);
    assert!(world.api.delete(&service));
    let took = until("the Service is back", seconds(LIMIT), || {
        world.uid(&service).is_some_and(|new| Some(new) != uid)
    });
    figure(
        "W46",
        &world.case(&format!("{what}, Service deleted → back")),
        "≤ 5 s",
        shown(took),
    );
    settle(world);
    drop(spoilt);
    // Another one reads them. Its Pod is another one, too: the kubelet waits ever longer before it starts again what was killed.
    let former = leader(world);
    stop_agent(world);
    start_agent(world);
    another_leads(world, &former);
}

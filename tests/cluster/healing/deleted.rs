//! Objects of the install deleted: in turn, all at once, the same one again and again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{CONTROLLERS, LIMIT, on_record, records_arrive, settle, works};
use crate::blocked::fetcher;
use crate::support::api::{deployment, path, path_of};
use crate::support::place::run;
use crate::support::world::{ARGOCD, FLUX, World};
use crate::support::{argocd, figure, seconds, shown, until};

pub(crate) fn all_deleted_in_turn(world: &mut World) {
    settle(world);
    let mut known = Vec::new();
    for hub in ["hub there", "hub stopped"] {
        if hub == "hub stopped" {
            settle(world);
            known = on_record(world);
            world.hub.stop();
        }
        let mut times = BTreeMap::new();
        for object in install(world) {
            let path = path_of(&object);
            let uid = world
                .uid(&path)
                .unwrap_or_else(|| panic!("{path} is not there before the test"));
            assert!(world.api.delete(&path));
            let took = until(&format!("{path} is back"), seconds(LIMIT), || {
                world.uid(&path).is_some_and(|new| new != uid)
            });
            times.insert(path, took);
        }
        let (slowest, worst) = times.iter().max_by_key(|(_, took)| **took).unwrap();
        let mut sorted: Vec<Duration> = times.values().copied().collect();
        sorted.sort();
        figure(
            "W5",
            &world.said(&format!(
                "each of {} install objects deleted → back, median ({hub})",
                times.len()
            )),
            "≤ 5 s",
            shown(sorted[sorted.len() / 2]),
        );
        figure(
            "W5",
            &world.said(&format!("… slowest: {slowest} ({hub})")),
            "≤ 5 s",
            shown(*worst),
        );
        works(
            world,
            "W5",
            &world.said(&format!("function after all of them were deleted ({hub})")),
            "≤ 60 s",
        );
    }
    world.hub.up();
    records_arrive(world, &known);
}

/// Deletes the Service of what fetches so many times, as soon as it is back; gives how long the slowest return took.
pub(crate) fn deleted_again(world: &World, times: usize) -> Duration {
    let path = path("v1", "Service", world.namespace(), fetcher(world).1);
    let mut slowest = Duration::ZERO;
    for time in 1..=times {
        let uid = world.uid(&path).unwrap();
        assert!(world.api.delete(&path));
        let took = until(
            &format!("back for the {time}th time"),
            seconds(LIMIT),
            || world.uid(&path).is_some_and(|new| new != uid),
        );
        slowest = slowest.max(took);
    }
    slowest
}

/// How long it takes until all of these are back that are deleted together.
pub(crate) fn deleted_at_once(world: &World, parts: &[String]) -> Duration {
    let uids: Vec<_> = parts.iter().map(|part| world.uid(part)).collect();
    let began = Instant::now();
    for part in parts {
        assert!(world.api.delete(part), "{part} was not there");
    }
    until("all parts are back", seconds(LIMIT), || {
        let mut pairs = parts.iter().zip(&uids);
        pairs.all(|(part, uid)| {
            let now = world.uid(part);
            now.is_some() && now != *uid
        })
    });
    began.elapsed()
}

/// The bundle's objects without CRDs and Namespace, which have tests of their own.
pub(crate) fn install(world: &World) -> Vec<Value> {
    let text = run(world
        .place
        .kubectl()
        .args(["get", "-o", "json", "--namespace", world.namespace(), "-f"])
        .arg(world.directory.join(format!("{}.yaml", world.engine))));
    let list: Value = serde_json::from_str(&text).unwrap();
    let kind = |o: &Value| o["kind"].as_str().unwrap().to_owned();
    let items = list["items"].as_array().unwrap().iter();
    items
        .filter(|o| !["CustomResourceDefinition", "Namespace"].contains(&kind(o).as_str()))
        .cloned()
        .collect()
}

/// Two of the engine's workloads, the second of which is a Deployment.
pub(crate) fn controllers(world: &World) -> [String; 2] {
    if world.engine == ARGOCD {
        return [
            argocd::CONTROLLER.to_owned(),
            deployment(ARGOCD, "argocd-repo-server"),
        ];
    }
    CONTROLLERS.map(|name| deployment(FLUX, name))
}

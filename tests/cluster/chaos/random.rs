//! A random day: some objects of the install deleted, changed or stopped within a second, by a seed that is told.

use serde_json::{Value, json};

use super::{AsBefore, Fault, There, episode};
use crate::healing::install;
use crate::support::api::path_of;
use crate::support::world::World;

/// splitmix64: the same days on every machine.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % u64::try_from(sides).unwrap()).unwrap()
    }
}

/// What is done to one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Harm {
    Delete,
    ScaleToZero,
    Image,
    Arguments,
    /// Labels by which Services and the engine find it.
    Labels,
    /// Rules, subjects' ports, data: what makes it up.
    Content,
}

pub(super) fn day(world: &mut World, seed: u64) {
    let harms = drawn(&install(world), seed);
    let kinds: Vec<String> = harms
        .iter()
        .map(|(harm, o)| format!("{harm:?} {}", name(o)))
        .collect();
    println!("seed {seed}: {}", kinds.join(", "));
    let what = format!("random day, seed {seed}: {} objects harmed", harms.len());
    let fault = Fault {
        row: "W29",
        what,
        goal: "≤ 180 s",
        damage: Box::new(move |world| {
            let before: Vec<(String, Value)> = harms
                .iter()
                .map(|(_, object)| path_of(object))
                .map(|path| (path.clone(), content(&world.api.get(&path).unwrap())))
                .collect();
            for (harm, object) in &harms {
                harm.on(world, object);
            }
            restored(before)
        }),
    };
    // Half of the days are days without a hub, half of these without Git.
    let there = match seed % 4 {
        0 | 2 => There::Both,
        3 => There::Git,
        _ => There::Neither,
    };
    episode(world, there, &fault);
}

fn restored(before: Vec<(String, Value)>) -> AsBefore {
    Box::new(move |world| {
        before.iter().all(|(path, good)| {
            let live = world.api.try_get(path).ok().flatten();
            live.is_some_and(|live| {
                live["metadata"]["deletionTimestamp"].is_null() && content(&live) == *good
            })
        })
    })
}

/// Two to seven different objects, each with a harm that its kind can take.
fn drawn(install: &[Value], seed: u64) -> Vec<(Harm, Value)> {
    let mut dice = Dice(seed);
    let mut objects: Vec<Value> = install.to_vec();
    let count = 2 + dice.roll(6);
    let mut harms = Vec::new();
    for _ in 0..count.min(objects.len()) {
        let object = objects.remove(dice.roll(objects.len()));
        let fit = Harm::fit_for(object["kind"].as_str().unwrap());
        harms.push((fit[dice.roll(fit.len())], object));
    }
    harms
}

fn name(object: &Value) -> String {
    format!(
        "{}/{}",
        object["kind"].as_str().unwrap(),
        object["metadata"]["name"].as_str().unwrap()
    )
}

/// What somebody set, without what the API server and the controllers add.
fn content(object: &Value) -> Value {
    let containers = &object["spec"]["template"]["spec"]["containers"];
    let images: Vec<[&Value; 2]> = containers
        .as_array()
        .into_iter()
        .flatten()
        .map(|c| [&c["image"], &c["args"]])
        .collect();
    json!({
        "labels": object["metadata"]["labels"],
        "replicas": object["spec"]["replicas"],
        "selector": object["spec"]["selector"],
        "ingress": object["spec"]["ingress"],
        "containers": images,
        "rules": object["rules"],
        "subjects": object["subjects"],
        "data": object["data"],
    })
}

impl Harm {
    fn fit_for(kind: &str) -> &'static [Self] {
        match kind {
            "Deployment" | "StatefulSet" => &[
                Self::Delete,
                Self::ScaleToZero,
                Self::Image,
                Self::Arguments,
            ],
            "ClusterRole" | "Role" | "ClusterRoleBinding" | "RoleBinding" | "Service"
            | "NetworkPolicy" => &[Self::Delete, Self::Content],
            "ServiceAccount" => &[Self::Delete, Self::Labels],
            _ => &[Self::Delete],
        }
    }

    fn on(self, world: &World, object: &Value) {
        let path = path_of(object);
        let container = "/spec/template/spec/containers/0";
        match self {
            Self::Delete => assert!(world.api.delete(&path), "{path} was not there"),
            Self::ScaleToZero => drop(world.api.patch(&path, &json!({"spec": {"replicas": 0}}))),
            Self::Image => {
                let patch = json!([{"op": "replace", "path": format!("{container}/image"), "value": "lab.invalid/none:0"}]);
                drop(world.api.json_patch(&path, &patch));
            }
            Self::Arguments => {
                let patch = json!([{"op": "replace", "path": format!("{container}/args"), "value": ["--no-such-flag"]}]);
                drop(world.api.json_patch(&path, &patch));
            }
            Self::Labels => drop(
                world
                    .api
                    .patch(&path, &json!({"metadata": {"labels": null}})),
            ),
            Self::Content => {
                let patch = match object["kind"].as_str().unwrap() {
                    "ClusterRole" | "Role" => json!({"rules": []}),
                    "ClusterRoleBinding" | "RoleBinding" => json!({"subjects": []}),
                    "Service" => json!({"spec": {"selector": {"app": "nobody"}}}),
                    _ => json!({"spec": {"ingress": []}}),
                };
                drop(world.api.patch(&path, &patch));
            }
        }
    }
}

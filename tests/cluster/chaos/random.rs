//! A random day: some objects of the install deleted, changed or stopped within a second, and on most days something beside that goes
//! on for a while, by a seed that is told.

use std::cell::RefCell;

use serde_json::{Value, json};

use super::budget::{Class, left, tried};
use super::{AsBefore, Fault, There, episode};
use crate::guard::crds::crds;
use crate::healing::{LIMIT, install, settle};
use crate::support::api::path_of;
use crate::support::world::World;
use crate::support::{seconds, until};

mod tests;
mod trouble;

use trouble::{GoesOn, Trouble};

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
    /// The `ServiceAccount` that its Pods run as.
    Account,
    /// What one of its Pods' volumes is made of.
    Volume,
    /// Labels by which Services and the engine find it.
    Labels,
    /// Rules, subjects' ports, data: what makes it up.
    Content,
}

/// What is done on a day.
#[derive(Debug, Clone, PartialEq)]
struct Day {
    /// Of different objects.
    harms: Vec<(Harm, Value)>,
    trouble: Option<Trouble>,
}

pub(super) fn day(world: &mut World, seed: u64) {
    settle(world);
    let drawn = Day::drawn(&install(world), &crds(world), seed);
    let day = drawn.clone().within(left);
    if day != drawn {
        let words = drawn.words();
        println!("seed {seed}: {words}; what has no budget left in this hour is deleted instead");
    }
    let words = day.words();
    println!("seed {seed}: {words}");
    let mut what = format!(
        "random day, seed {seed}: {} objects harmed",
        day.harms.len()
    );
    if let Some(trouble) = &day.trouble {
        what = format!("{what}, {}", trouble.words());
    }
    let fault = Fault {
        row: "W29",
        what,
        goal: "≤ 180 s",
        damage: Box::new(move |world| day.begin(world)),
    };
    // Half of the days are days without a hub, half of these without Git.
    let there = match seed % 4 {
        0 | 2 => There::Both,
        3 => There::Git,
        _ => There::Neither,
    };
    let synced = synced(world);
    episode(world, there, &fault);
    until("all that syncs is there", seconds(LIMIT), || {
        self::synced(world) == synced
    });
}

/// The names of all that the engine syncs by.
fn synced(world: &World) -> Vec<String> {
    let all = world.synced_by().into_values();
    let mut names: Vec<String> = all.map(|o| format!("{}/{}", o[0], o[1])).collect();
    names.sort();
    names
}

/// Once whoever goes on does no more, and all of it has what it had.
fn restored(before: Vec<(String, Value)>, goes_on: Option<GoesOn>) -> AsBefore {
    let goes_on = RefCell::new(goes_on);
    Box::new(move |world| {
        let mut goes_on = goes_on.borrow_mut();
        let over = goes_on.as_mut().is_none_or(|goes_on| goes_on(world));
        over && before
            .iter()
            .all(|(path, good)| is_right(world, path, good))
    })
}

fn is_right(world: &World, path: &str, good: &Value) -> bool {
    let live = world.api.try_get(path).ok().flatten();
    live.is_some_and(|live| {
        live["metadata"]["deletionTimestamp"].is_null() && content(&live) == *good
    })
}

impl Day {
    /// Two to seven different objects, each with a harm that its kind can take; and what goes on beside that.
    fn drawn(install: &[Value], crds: &[String], seed: u64) -> Self {
        let mut dice = Dice(seed);
        let mut objects: Vec<Value> = install.to_vec();
        let count = 2 + dice.roll(6);
        let mut harms = Vec::new();
        for _ in 0..count.min(objects.len()) {
            let object = objects.remove(dice.roll(objects.len()));
            let fit = Harm::fit_for(&object);
            harms.push((fit[dice.roll(fit.len())], object));
        }
        let trouble = Trouble::drawn(seed, &objects, crds, &mut dice);
        Self { harms, trouble }
    }

    /// The same day, but that an object whose budget of this hour is spent is deleted: that is mended each time.
    fn within(mut self, left: impl Fn(&str, Class) -> usize) -> Self {
        let fits = |harm: Harm, object: &Value, times: usize| {
            let class = harm.class();
            class.is_none_or(|class| left(&path_of(object), class) >= times)
        };
        for (harm, object) in &mut self.harms {
            if !fits(*harm, object, 1) {
                *harm = Harm::Delete;
            }
        }
        if let Some(Trouble::Rival(harm, object, times)) = &mut self.trouble
            && !fits(*harm, object, 1 + *times)
        {
            *harm = Harm::Delete;
        }
        self
    }

    fn words(&self) -> String {
        let harms = self.harms.iter();
        let mut all: Vec<String> = harms
            .map(|(harm, o)| format!("{harm:?} {}", name(o)))
            .collect();
        all.extend(self.trouble.as_ref().map(Trouble::words));
        all.join(", ")
    }

    /// All of it is done; what it comes to is that all is as before.
    fn begin(&self, world: &World) -> AsBefore {
        let trouble = self.trouble.as_ref();
        let harmed = self.harms.iter().map(|(_, object)| object);
        let before: Vec<(String, Value)> = harmed
            .chain(trouble.and_then(Trouble::object))
            .map(path_of)
            .map(|path| (path.clone(), content(&world.api.get(&path).unwrap())))
            .collect();
        for (harm, object) in &self.harms {
            harm.on(world, object);
        }
        restored(before, trouble.map(|trouble| trouble.begin(world)))
    }
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
    let pod = &object["spec"]["template"]["spec"];
    let containers = &pod["containers"];
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
        "account": pod["serviceAccountName"],
        "volumes": pod["volumes"],
        "rules": object["rules"],
        "subjects": object["subjects"],
        "data": object["data"],
    })
}

impl Harm {
    fn fit_for(object: &Value) -> &'static [Self] {
        // Redis has no volumes.
        let volumes = object["spec"]["template"]["spec"]["volumes"].is_array();
        match object["kind"].as_str().unwrap() {
            "Deployment" | "StatefulSet" if volumes => &[
                Self::Delete,
                Self::ScaleToZero,
                Self::Image,
                Self::Arguments,
                Self::Account,
                Self::Volume,
            ],
            "Deployment" | "StatefulSet" => &[
                Self::Delete,
                Self::ScaleToZero,
                Self::Image,
                Self::Arguments,
                Self::Account,
            ],
            "ClusterRole" | "Role" | "ClusterRoleBinding" | "RoleBinding" | "Service"
            | "NetworkPolicy" => &[Self::Delete, Self::Content],
            "ServiceAccount" => &[Self::Delete, Self::Labels],
            _ => &[Self::Delete],
        }
    }

    /// Of what is mended a few times an hour only.
    fn class(self) -> Option<Class> {
        match self {
            Self::Delete => None,
            Self::ScaleToZero => Some(Class::ScaledToZero),
            Self::Image => Some(Class::BadImage),
            Self::Arguments | Self::Account => Some(Class::ReadyButUseless),
            Self::Volume | Self::Labels | Self::Content => Some(Class::Altered),
        }
    }

    fn on(self, world: &World, object: &Value) {
        let path = path_of(object);
        if let Some(class) = self.class() {
            tried(&path, class);
        }
        let pod = "/spec/template/spec";
        let set = |place: &str, value: Value| {
            let patch =
                json!([{"op": "replace", "path": format!("{pod}/{place}"), "value": value}]);
            drop(world.api.json_patch(&path, &patch));
        };
        match self {
            Self::Delete => assert!(world.api.delete(&path), "{path} was not there"),
            Self::ScaleToZero => drop(world.api.patch(&path, &json!({"spec": {"replicas": 0}}))),
            Self::Image => set("containers/0/image", json!("lab.invalid/none:0")),
            Self::Arguments => set("containers/0/args", json!(["--no-such-flag"])),
            Self::Account => set("serviceAccountName", json!("nobody")),
            Self::Volume => {
                // By the name that something mounts.
                let name = &object["spec"]["template"]["spec"]["volumes"][0]["name"];
                set(
                    "volumes/0",
                    json!({"name": name, "configMap": {"name": "nobody"}}),
                );
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

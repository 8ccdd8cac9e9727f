//! W28: what the metrics say of a heal, beside what is seen from outside.

use std::collections::BTreeMap;

use linesman::clock;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::{LIMIT, controllers, on_record, settle, since};
use crate::support::audit::Mark;
use crate::support::world::{self, World};
use crate::support::{eventually, figure, seconds};

/// A writer's time in `managedFields` has whole seconds, and that is when the fault began for the agent.
const WHOLE_SECOND: f64 = 1.0;
/// What lies between a step of the agent and its line in the API server's log at most, on a busy machine, too.
const STEP: f64 = 5.0;
/// Records have milliseconds.
const ROUNDED: f64 = 0.01;

/// The metrics of heals, of the agent and of the hub, each by its name and labels.
struct Exported([BTreeMap<String, f64>; 2]);

impl Exported {
    fn now(world: &World) -> Self {
        let pods = world.api.get("/api/v1/namespaces/linesman/pods").unwrap();
        let pods = pods["items"].as_array().unwrap().iter();
        let lives = |pod: &&Value| pod["metadata"]["deletionTimestamp"].is_null();
        let pods: Vec<&Value> = pods.filter(lives).collect();
        assert_eq!(pods.len(), 1, "{pods:#?}");
        let pod = pods[0]["metadata"]["name"].as_str().unwrap();
        let path = format!("/api/v1/namespaces/linesman/pods/{pod}:8080/proxy/metrics");
        let agent = world.api.text(&path).unwrap();
        let hub = world.hub.health("/metrics").unwrap();
        Self([agent, hub].map(|text| heals_of(&text)))
    }

    /// By how much all those together went up since `before` whose text begins and ends so.
    fn more(&self, before: &Self, starts: &str, ends: &str) -> [f64; 2] {
        let sum = |all: &BTreeMap<String, f64>| -> f64 {
            let of = all
                .iter()
                .filter(|(name, _)| name.starts_with(starts) && name.ends_with(ends));
            of.map(|(_, value)| value).sum()
        };
        [0, 1].map(|n| sum(&self.0[n]) - sum(&before.0[n]))
    }
}

fn heals_of(text: &str) -> BTreeMap<String, f64> {
    let lines = text
        .lines()
        .filter(|line| line.starts_with("linesman_heal"));
    lines
        .filter_map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.trim().parse().ok()?))
        })
        .collect()
}

/// What a test sees of a fault and its end, in seconds since the fault.
struct Seen {
    record: Value,
    /// The API server answered the first write that mends it.
    acted: f64,
    /// It was available again; where it never ceased to be, when it was that first.
    available: f64,
    /// The hub has the record, and the heal is over.
    over: f64,
}

#[test]
#[ignore = "needs a real cluster: make test"]
fn exported_times_of_heals_are_those_seen_from_outside() {
    times_are_exported(&world::adopted());
}

/// W28: agent and hub count each heal once, by its class, and tell the times that it took.
pub(crate) fn times_are_exported(world: &World) {
    let [_, controller] = controllers(world);
    let image = "/spec/template/spec/containers/0/image";
    let wrong = json!([{ "op": "replace", "path": image, "value": "lab.invalid/none:0" }]);
    let told = |world: &World, what: &str, break_it: &dyn Fn()| {
        settle(world);
        let before = Exported::now(world);
        let seen = suffered(world, &controller, break_it);
        agrees(world, what, &seen, &before);
    };
    told(world, "Deployment deleted", &|| {
        assert!(world.api.delete(&controller));
    });
    told(world, "wrong image by kubectl", &|| {
        world.api.json_patch(&controller, &wrong);
    });
}

fn suffered(world: &World, controller: &str, break_it: &dyn Fn()) -> Seen {
    let (known, mark) = (on_record(world), Mark::now(&world.audit));
    let (_, name) = controller.rsplit_once('/').unwrap();
    let object = format!("Deployment {}/{name}", world.namespace());
    let fault = clock::now();
    break_it();
    let (record, _) = eventually("the heal is over", seconds(LIMIT), || {
        let new = since(world, &known);
        let open = new.iter().any(|heal| heal["result"] == "open");
        let mut of_it = new.iter().filter(|heal| heal["object"] == object);
        let healed = of_it.find(|heal| heal["result"] == "healed").cloned();
        healed.filter(|_| !open).ok_or_else(|| format!("{new:#?}"))
    });
    let acted = mark.first_mending_write().expect("the agent wrote");
    let after = |at: OffsetDateTime| (at - fault).as_seconds_f64();
    let over = after(clock::now());
    Seen {
        record,
        acted: after(acted),
        available: after(available_since(&world.api.get(controller).unwrap())),
        over,
    }
}

fn available_since(deployment: &Value) -> OffsetDateTime {
    let all = deployment["status"]["conditions"].as_array().unwrap();
    let mut all = all.iter();
    let available = all.find(|c| c["type"] == "Available" && c["status"] == "True");
    let since = available.unwrap_or_else(|| panic!("{deployment:#}"));
    let since = since["lastTransitionTime"].as_str().unwrap();
    OffsetDateTime::parse(since, &Rfc3339).unwrap()
}

/// The times of `seen` lie within what the metrics say, as far as a second, and agent and hub say the same.
fn agrees(world: &World, what: &str, seen: &Seen, before: &Exported) {
    let class = seen.record["class"].as_str().unwrap();
    let ended = format!("linesman_heals_total{{class=\"{class}\"");
    let healed = "result=\"healed\"}";
    // The agent counts before it tells the hub.
    let now = Exported::now(world);
    let counted = now.more(before, &ended, healed);
    // Whole numbers, which a float holds as they are.
    let each_one = counted.iter().all(|more| (more - 1.0).abs() < 0.5);
    assert!(each_one, "{counted:?} {:#}", seen.record);
    let phase = |phase: &str, part: &str| {
        let name = format!("linesman_heal_seconds_{part}{{class=\"{class}\",phase=\"{phase}\"}}");
        let [agent, hub] = now.more(before, &name, "");
        let apart = (agent - hub).abs();
        assert!(
            apart < ROUNDED,
            "{name}: {agent} at the agent, {hub} at the hub"
        );
        agent
    };
    for name in ["act", "restore"] {
        assert!((phase(name, "count") - 1.0).abs() < ROUNDED, "{name}");
    }
    let knows = phase("detect", "count") > 0.5;
    let [detect, act, restore] = ["detect", "act", "restore"].map(|name| phase(name, "sum"));
    let (acted, over) = (seen.acted, seen.over);
    let said = format!(
        "{detect:.2} + {act:.2} + {restore:.2} s; from outside {acted:.2} s to the first write, {over:.2} s to the record"
    );
    figure(
        "W28",
        &world.said(&format!(
            "{what}: times to detect, act, restore in the metrics"
        )),
        "",
        &said,
    );
    let to_act = detect + act;
    // Each takes a call to the API server at least.
    assert!(act >= 0.0 && to_act > 0.0 && restore > 0.0, "{said}");
    assert_eq!(detect > 0.0, knows, "{said}");
    // Without the moment of the fault the first part is missing, and what is left is no longer than the whole.
    let least = if knows { acted - STEP } else { 0.0 };
    assert!(
        least <= to_act && to_act <= acted + WHOLE_SECOND + STEP,
        "{said}"
    );
    let all = to_act + restore;
    assert!(all <= over + WHOLE_SECOND + ROUNDED, "{said}");
    // Nothing is restored before it is available, by the word of a controller that has whole seconds, too.
    let unknown = if knows { STEP } else { acted + STEP };
    assert!(
        all + unknown >= seen.available,
        "{said}, {:.2} s to available",
        seen.available
    );
}

//! F55: Argo CD's Redis hangs, or parts of it are gone.

use std::collections::BTreeSet;
use std::time::Instant;

use linesman::clock::{now, parse_rfc3339};
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::commits::{is_there, push_map};
use crate::healing::{LIMIT, on_record, settle, since, unchanged, whole, workloads, works};
use crate::support::api::{deployment, path};
use crate::support::argocd::{application, reconciled};
use crate::support::place::{lab, run};
use crate::support::world::{self, ARGOCD, World};
use crate::support::{eventually, figure, seconds, shown, until};

const REDIS: &str = "argocd-redis";

/// UIDs of the Pods, Redis' first, then those of all others.
fn pods(world: &World) -> (Vec<String>, Vec<String>) {
    let list = world.api.get(&format!("/api/v1/namespaces/{ARGOCD}/pods"));
    let list = list.unwrap_or_default()["items"].clone();
    let (redis, others): (Vec<&Value>, Vec<&Value>) = list
        .as_array()
        .into_iter()
        .flatten()
        .partition(|pod| pod["metadata"]["labels"]["app.kubernetes.io/name"] == REDIS);
    let uids = |all: Vec<&Value>| {
        let uids = all.iter().map(|pod| pod["metadata"]["uid"].as_str());
        let mut uids: Vec<String> = uids.flatten().map(str::to_owned).collect();
        uids.sort();
        uids
    };
    (uids(redis), uids(others))
}

/// The Pod that was there before may take half a minute to end, and the next test counts them.
fn one_pod(world: &World) {
    until("its former Pod is gone", seconds(LIMIT), || {
        pods(world).0.len() == 1
    });
}

fn detected(heal: &Value) -> OffsetDateTime {
    parse_rfc3339(heal["detectedAt"].as_str().unwrap()).unwrap()
}

fn classes(told: &[Value]) -> BTreeSet<&str> {
    told.iter().filter_map(|h| h["class"].as_str()).collect()
}

#[test]
#[ignore = "needs a real cluster: make test"]
fn a_redis_that_hangs_is_named_and_restarted() {
    redis_hangs(&world::adopted_argocd(), "redis");
}

/// F55: it takes connections and answers nothing on them, and its Pod stays ready; no Application below the root is looked at.
/// `name` is that of what a commit brings afterwards.
pub(crate) fn redis_hangs(world: &World, name: &str) {
    settle(world);
    let (known, workloads) = (on_record(world), workloads(world));
    let (redis, others) = pods(world);
    let script = "kill -STOP $(pgrep -f '^/usr/bin/redis-serve[r]')";
    run(lab().args(["exec", world.place.lab(), "sh", "-c", script]));
    let (began, stopped) = (Instant::now(), now());
    let (heal, _) = eventually("it is called down", seconds(2 * LIMIT), || {
        let mut new = since(world, &known).into_iter();
        new.find(|heal| heal["class"] == "RedisDown").ok_or("not")
    });
    let what = "Redis stopped (SIGSTOP)";
    figure(
        "F55",
        &world.case(&format!("{what} → called RedisDown")),
        "≤ probe + 90 s",
        shown(began.elapsed()),
    );
    let evidence = heal["evidence"].to_string();
    assert!(evidence.contains("no request of a controller"), "{heal:#}");
    until("there is another Pod of it", seconds(LIMIT), || {
        pods(world).0.iter().any(|uid| !redis.contains(uid))
    });
    figure(
        "F55",
        &world.case(&format!("{what} → restarted")),
        "≤ probe + 90 s",
        shown(began.elapsed()),
    );
    let looked = || {
        let live = world.api.get(&application("app-hello"));
        live.and_then(|live| reconciled(&live))
    };
    let before = looked();
    push_map(world, name);
    let took = until("a commit is applied", seconds(LIMIT), || {
        is_there(world, name)
    });
    let what = "hanging Redis restarted";
    let told = world.case(&format!("{what}, commit pushed → applied"));
    // Without the hub nobody tells Argo CD of a push: it looks every minute and up to another one later, at what it remembers for a minute.
    let bar = if world.hub.runs() {
        "≤ 60 s"
    } else {
        "≤ 180 s"
    };
    figure("F55", &told, bar, shown(took));
    let took = until("other Applications are looked at", seconds(LIMIT), || {
        looked() > before
    });
    let told = world.case(&format!(
        "{what}, … → Applications below the root looked at"
    ));
    figure("F55", &told, "", shown(took));
    let told = world.case(&format!("{what}: function"));
    works(world, "F55", &told, "≤ 60 s");
    settle(world);
    is_all_that_was_called(world, &known, &heal, stopped);
    let now = pods(world).1;
    let new = now.iter().find(|uid| !others.contains(uid));
    assert_eq!(new, None, "something else was restarted");
    one_pod(world);
    unchanged(world, &workloads);
}

/// Where Git went from the hub to its stand-in just before, an Application may have asked in between.
fn is_all_that_was_called(world: &World, known: &[Value], heal: &Value, stopped: OffsetDateTime) {
    let mut told = since(world, known);
    told.retain(|heal| detected(heal) >= stopped);
    assert_eq!(classes(&told), BTreeSet::from(["RedisDown"]), "{told:#?}");
    let story = told.iter().find(|told| told["id"] == heal["id"]);
    let told = whole(world, story.unwrap());
    let step = &told["steps"][0];
    assert_eq!(
        (&told["result"], &step["action"], &step["outcome"]),
        (&json!("healed"), &json!("restart"), &json!("ok")),
        "{told:#}"
    );
}

/// F1: what is missing is named, not what comes of that; and to be made anew is no hanging.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_redis_that_lacks_a_part_is_called_by_that() {
    let world = world::adopted_argocd();
    for part in [
        path("v1", "Service", ARGOCD, REDIS),
        deployment(ARGOCD, REDIS),
    ] {
        settle(&world);
        let known = on_record(&world);
        let uid = world.uid(&part).unwrap();
        assert!(world.api.delete(&part));
        until(&format!("{part} is back"), seconds(LIMIT), || {
            world.uid(&part).is_some_and(|new| new != uid)
        });
        settle(&world);
        let told = since(&world, &known);
        let named = classes(&told);
        println!("{part}: called {named:?}");
        assert!(named.contains("ObjectMissing"), "{told:#?}");
        assert!(!named.contains("RedisDown"), "{told:#?}");
        one_pod(&world);
    }
}

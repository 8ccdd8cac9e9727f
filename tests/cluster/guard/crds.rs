//! W11 for each CRD of the install: kept where the guard policy stands, and back where somebody took it out of the way.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::active;
use crate::healing::{LIMIT, on_record, settle, since, whole, workloads};
use crate::support::world::{self, ARGOCD, World};
use crate::support::{eventually, figure, seconds, shown, until};

const ALL: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// The paths of those that the engine brought.
pub(crate) fn crds(world: &World) -> Vec<String> {
    let group = if world.engine == ARGOCD {
        ".argoproj.io"
    } else {
        ".toolkit.fluxcd.io"
    };
    let list = world.api.get(ALL).unwrap();
    let names = list["items"].as_array().unwrap().iter();
    let names = names.map(|crd| crd["metadata"]["name"].as_str().unwrap());
    let own = names.filter(|name| name.ends_with(group));
    own.map(|name| format!("{ALL}/{name}")).collect()
}

fn kept_and_back(world: &World, least: usize) {
    settle(world);
    let mut before = workloads(world);
    let all = crds(world);
    assert!(all.len() >= least, "{all:?}");
    for crd in &all {
        let uid = world.uid(crd);
        let (code, message) = world.api.try_delete(crd).unwrap_err();
        assert_eq!(code, 403, "{crd}: {message}");
        assert!(uid.is_some() && world.uid(crd) == uid, "{crd}");
    }
    let mut slowest = (Duration::ZERO, "");
    for crd in &all {
        let name = crd.rsplit('/').next().unwrap();
        let (took, mut lost) = deleted(world, crd, &before);
        slowest = slowest.max((took, name));
        // Without the policy it is a race, which a busy machine loses more often than the five times in a hundred that the
        // reference grants. A CRD that nobody races for loses each time.
        let mut times = 1;
        while lost > 0 {
            assert!(times < 3, "{crd}: workload objects were lost {times} times");
            before = workloads(world);
            lost = deleted(world, crd, &before).1;
            times += 1;
        }
    }
    let (took, name) = slowest;
    figure(
        "W11",
        &world.said(&format!(
            "each of {} CRDs deleted, past the guard policy → back and function, slowest: {name}",
            all.len()
        )),
        "≤ 120 s",
        shown(took),
    );
    settle(world);
}

/// The CRD is deleted past the guard policy: how long that takes to be mended, and how many workload objects were lost to the
/// engine, which had rights to prune for too long. Each of these has to be told of.
fn deleted(world: &World, crd: &str, before: &BTreeMap<String, String>) -> (Duration, usize) {
    let known = on_record(world);
    let uid = world.uid(crd).unwrap();
    world.delete_guarded(crd);
    let back = until(&format!("{crd} is back"), seconds(LIMIT), || {
        world.uid(crd).is_some_and(|new| new != uid)
    });
    let took = back + world.function(seconds(LIMIT));
    let after = workloads(world);
    let lost: Vec<String> = after
        .iter()
        .filter(|(path, uid)| before.get(*path) != Some(uid))
        .map(|(path, _)| told_as(path))
        .collect();
    if !lost.is_empty() {
        println!("{crd}: {lost:?} lost");
        eventually("the heal names what was lost", seconds(300), || {
            let new = since(world, &known);
            let heal = new.iter().find(|h| h["class"] == json!("CrdTerminating"));
            let scene = heal.map_or(Value::Null, |heal| whole(world, heal)["scene"].clone());
            let named = scene["remade"]["objects"].as_array().cloned();
            let named = named.unwrap_or_default();
            let all = lost.iter().all(|name| named.contains(&json!(name)));
            all.then_some(()).ok_or(scene)
        });
        // Until they are all back, the next loss would not be one.
        settle(world);
    }
    (took, lost.len())
}

/// As a heal names the object at this path.
fn told_as(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').collect();
    let name = parts[parts.len() - 1];
    match parts[parts.len() - 2] {
        "namespaces" => format!("Namespace {name}"),
        "services" => format!("Service {}/{name}", parts[parts.len() - 3]),
        "deployments" => format!("Deployment {}/{name}", parts[parts.len() - 3]),
        other => panic!("{other}: how is {path} told?"),
    }
}

/// W11
#[test]
#[ignore = "needs a real cluster: make test"]
fn each_crd_of_flux_is_kept_and_comes_back_where_it_is_deleted_all_the_same() {
    let world = world::adopted();
    active(&world);
    kept_and_back(&world, 7);
}

/// W11, W30
#[test]
#[ignore = "needs a real cluster: make test"]
fn each_crd_of_argo_cd_is_kept_and_comes_back_where_it_is_deleted_all_the_same() {
    kept_and_back(&world::adopted_argocd(), 3);
}

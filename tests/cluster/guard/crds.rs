//! W11 for each CRD of the install: kept where the guard policy stands, and back where somebody took it out of the way.

use std::time::Duration;

use super::active;
use crate::healing::{LIMIT, settle, unchanged, workloads};
use crate::support::world::{self, ARGOCD, World};
use crate::support::{figure, seconds, shown, until};

const ALL: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// The paths of those that the engine brought.
fn crds(world: &World) -> Vec<String> {
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
    let before = workloads(world);
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
        let uid = world.uid(crd).unwrap();
        world.delete_guarded(crd);
        let took = until(&format!("{crd} is back"), seconds(LIMIT), || {
            world.uid(crd).is_some_and(|new| new != uid)
        });
        let took = took + world.function(seconds(LIMIT));
        let name = crd.rsplit('/').next().unwrap();
        slowest = slowest.max((took, name));
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
    unchanged(world, &before);
    settle(world);
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

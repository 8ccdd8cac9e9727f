//! The same with the hub stopped and Git there: nobody tells the agent of a commit, and nobody hears of what it does.

use serde_json::{Value, json};

use super::super::super::is_of_commit;
use super::super::catalog::Catalog;
use super::super::{
    SERVER, WORKLOADS, a_good_commit, a_held_object_deleted_and_removed_from_git,
    a_server_whose_image_is_missing, an_engine_that_is_removed, another_version_and_back, image_of,
};
use super::{breaks, commits_in_turn, held_and_given_back, told_afterwards};
use crate::healing::{LIMIT, on_record, settle, since};
use crate::support::api::{deployment, path};
use crate::support::argocd::CONTROLLER;
use crate::support::world::{self, ARGOCD, CLUSTER, World};
use crate::support::{at_first_sight, figure, seconds, shown, until};

/// W17, W18, W19, W20, W22, W25, and the records once the hub is back: each names its commit.
#[test]
#[ignore = "takes minutes: make chaos"]
fn commits_that_break_argo_cd_are_held_back_without_the_hub() {
    let mut world = world::adopted_argocd();
    settle(&world);
    let server = deployment(ARGOCD, SERVER);
    let catalog = Catalog::managing(&mut world, &WORKLOADS, &[CONTROLLER, &server]);
    let known = on_record(catalog.world);
    catalog.world.lose_hub();
    let bad = broken_in_many_ways(&catalog);
    catalog.world.hub_back();
    let took = until("each is on record, by its commit", seconds(240), || {
        let told = since(catalog.world, &known);
        let removed = told.iter().any(|h| h["class"] == "EngineRemovedByCommit");
        removed
            && bad
                .iter()
                .all(|head| place(catalog.world, &told, head).is_some())
    });
    figure(
        "W25",
        "Argo CD: hub back, the agent restarted while it was away → each commit held meanwhile on record",
        "",
        shown(took),
    );
    let told = since(catalog.world, &known);
    let named: Vec<&Value> = told.iter().map(|heal| &heal["class"]).collect();
    println!("on record afterwards: {named:?}");
    // The newest stands first.
    let places = bad.iter().map(|head| place(catalog.world, &told, head));
    assert!(places.is_sorted_by(|one, next| one > next), "{told:#?}");
    all_is_given_back(&catalog);
    catalog.give_up();
    settle(&world);
}

/// W38: what is held is deleted, then no longer in Git and deleted again, and then in Git once more, mended. The record names the commit
/// once the hub is back.
#[test]
#[ignore = "takes minutes: make chaos"]
fn a_held_object_is_never_pruned_nor_as_git_has_it_without_the_hub() {
    let mut world = world::adopted_argocd();
    settle(&world);
    let server = deployment(ARGOCD, SERVER);
    let mut catalog = Catalog::managing(&mut world, &WORKLOADS, &[CONTROLLER, &server]);
    told_afterwards(&mut catalog, |catalog| {
        catalog.probation_is_over(&[CONTROLLER, &server]);
        let bad = a_server_whose_image_is_missing(catalog);
        a_held_object_deleted_and_removed_from_git(catalog);
        restored_and_mended(catalog);
        vec![bad]
    });
    catalog.told("False");
    catalog.give_up();
    settle(&world);
}

/// As the object is now, it stays until it is the catalog's again.
fn restored_and_mended(catalog: &Catalog) {
    let (world, server) = (&*catalog.world, deployment(ARGOCD, SERVER));
    let uid = world.uid(&server).unwrap();
    catalog.push(&catalog.good, "restored");
    let ((), took) = at_first_sight("it is given back", seconds(300), || {
        let live = world.api.get(&server).expect("it was pruned");
        assert_eq!(live["metadata"]["uid"], uid, "it was pruned");
        assert!(!image_of(&live).contains("missing-"), "{live}");
        let over = !catalog.is_held(&server)
            && catalog.is_unshielded()
            && catalog.delivered() == json!("restored");
        over.then_some(()).ok_or("it is not")
    });
    figure(
        "W38",
        &world.case("held object in Git again, mended → given back, never pruned"),
        "≤ 300 s",
        shown(took),
    );
    world.function(seconds(LIMIT));
}

/// Where in the list the heal is that is of that commit.
fn place(world: &World, told: &[Value], head: &str) -> Option<usize> {
    let of_it =
        |heal: &Value| heal["class"] == "BadEngineCommit" && is_of_commit(world, heal, head);
    told.iter().position(of_it)
}

/// Returns the commits that are to be on record, in their order.
fn broken_in_many_ways(catalog: &Catalog) -> Vec<String> {
    let server = deployment(ARGOCD, SERVER);
    let both = [CONTROLLER, &server];
    catalog.probation_is_over(&both);
    another_version_and_back(catalog);
    let first = a_server_whose_image_is_missing(catalog);
    a_good_commit(catalog, "mended");
    another_agent(catalog);
    let scaled = &breaks()[0];
    assert_eq!(scaled.object, CONTROLLER);
    let second = held_and_given_back(catalog, 0, scaled);
    an_engine_that_is_removed(catalog);
    a_good_commit(catalog, "whole");
    catalog.probation_is_over(&both);
    let turns = commits_in_turn(catalog, "four", 2);
    [first, second]
        .into_iter()
        .chain(turns.into_iter().take(1))
        .collect()
}

/// W25: what the next agent knows of holds and heals is what is in the cluster.
fn another_agent(catalog: &Catalog) {
    let world = &*catalog.world;
    let lease = path(
        "coordination.k8s.io/v1",
        "Lease",
        "linesman",
        "linesman-agent",
    );
    let leader = || catalog.live(&lease)["spec"]["holderIdentity"].clone();
    let before = leader();
    for pod in catalog.agents() {
        assert!(world.api.delete(&pod));
    }
    until("another agent leads", seconds(LIMIT), || {
        let now = leader();
        now != before && now.as_str().is_some_and(|name| !name.is_empty())
    });
}

/// What broke again within ten minutes is held until its probation is over, or until a person says otherwise.
fn all_is_given_back(catalog: &Catalog) {
    let world = &*catalog.world;
    let server = deployment(ARGOCD, SERVER);
    catalog.told("True");
    assert!(catalog.is_held(&server));
    let reason = "the last commit is good";
    let lift = ["cluster", "lift", CLUSTER, "--reason", reason, "--wait"];
    world.hub.linesman(&lift);
    a_good_commit(catalog, "last");
    assert!(!catalog.is_held(&server));
    assert_eq!(catalog.delivered(), json!("last"));
}

//! The same with the hub stopped and Git there: nobody tells the agent of a commit, and nobody hears of what it does.

use serde_json::{Value, json};

use super::super::turns::Turns;
use super::super::{
    CONTROLLERS, Catalog, FLUX, HELD, a_good_commit, an_engine_that_is_removed,
    an_image_that_is_missing, another_version_and_back, names,
};
use super::{commits_in_turn, held_and_given_back, removed_bindings, without_replicas};
use crate::healing::{on_record, since};
use crate::support::api::deployment;
use crate::support::{seconds, until};

impl Catalog {
    /// What was given back is on probation for ten minutes, and held for as long where it breaks in them. A test has no time for
    /// that: the mark that says so goes.
    fn probation_is_over(&self) {
        let none = json!({ "metadata": { "annotations": { HELD: null } } });
        for name in CONTROLLERS {
            assert!(!self.is_held(name), "{name}");
            self.world.api.patch(&deployment(FLUX, name), &none);
        }
    }
}

/// W17, W18, W19, W20, W22, and the records once the hub is back: each names its commit.
#[test]
#[ignore = "takes minutes: make chaos"]
fn commits_that_break_flux_are_held_back_without_the_hub() {
    let mut catalog = Catalog::adopted();
    let known = on_record(&catalog.world);
    catalog.world.lose_hub();
    let bad = broken_in_many_ways(&catalog);
    catalog.world.hub_back();
    until("each is on record, by its commit", seconds(240), || {
        let told = since(&catalog.world, &known);
        let mut broken = told.clone();
        broken.retain(|heal| heal["class"] == "BadEngineCommit");
        let of = |head: &String| {
            let mut all = broken.iter();
            all.any(|heal| names(&catalog.world, heal, head))
        };
        bad.iter().all(of) && told.iter().any(|h| h["class"] == "EngineRemovedByCommit")
    });
    // What broke in the last commits but one is held until its probation is over.
    until("the hub shows what is held", seconds(60), || {
        catalog.condition("Quarantined") == "True" && catalog.is_held("kustomize-controller")
    });
    let told = since(&catalog.world, &known);
    let named: Vec<&Value> = told.iter().map(|heal| &heal["class"]).collect();
    println!("on record afterwards: {named:?}");
    catalog.world.close();
}

/// Returns the commits that are to be on record.
fn broken_in_many_ways(catalog: &Catalog) -> Vec<String> {
    catalog.probation_is_over();
    another_version_and_back(catalog);
    let mut bad = vec![an_image_that_is_missing(catalog, "absent-")];
    a_good_commit(catalog);
    for (n, broken) in removed_bindings().into_iter().enumerate() {
        held_and_given_back(catalog, n, broken);
    }
    an_engine_that_is_removed(catalog, "");
    catalog.probation_is_over();
    // Of another controller: each object is mended only so often in an hour.
    let turns = Turns {
        number: "four",
        rounds: 2,
        controller: "kustomize-controller",
    };
    let scaled = without_replicas(&catalog.good, "kustomize-controller");
    let heads = commits_in_turn(catalog, &turns, &scaled, |catalog| {
        catalog.controller("kustomize-controller")["spec"]["replicas"] == 0
    });
    bad.extend(heads);
    bad
}

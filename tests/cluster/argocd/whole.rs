//! What takes minutes to show, for `make chaos` only.

use std::collections::BTreeSet;

use super::follows;
use super::slow::comes_to_its_end;
use crate::healing::{on_record, settle, since, unchanged, workloads, works};
use crate::support::place::{lab, run};
use crate::support::world;
use crate::support::{figure, shown};

/// W12: longer than an operation may stand still, each hook longer than an answer of a controller is waited for.
#[test]
#[ignore = "takes minutes: make chaos"]
fn a_sync_that_gets_on_for_longer_than_one_may_stand_still_is_left_alone() {
    comes_to_its_end(&world::adopted_argocd(), 4, 170);
}

/// W12: a repo-server that hangs is ended by the kubelet, which asks it; a commit that came meanwhile is applied, and nobody is told
/// that the network is at fault.
#[test]
#[ignore = "takes minutes: make chaos"]
fn a_repo_server_that_hangs_is_no_fault_of_the_network() {
    let world = world::adopted_argocd();
    settle(&world);
    let (known, workloads) = (on_record(&world), workloads(&world));
    let script = "kill -STOP $(pgrep -f '^/usr/local/bin/argocd-repo-serve[r]')";
    run(lab().args(["exec", world.place.lab(), "sh", "-c", script]));
    let took = follows(&world, "served");
    figure(
        "W12",
        "Argo CD: repo-server stopped (SIGSTOP), commit pushed → applied",
        "≤ probe + 150 s",
        shown(took),
    );
    works(&world, "W12", "Argo CD: function after that", "≤ 60 s");
    unchanged(&world, &workloads);
    settle(&world);
    let told = since(&world, &known);
    let classes: BTreeSet<&str> = told.iter().filter_map(|h| h["class"].as_str()).collect();
    println!("called: {classes:?}");
    assert!(!classes.contains("PolicyBlocks"), "{told:#?}");
}

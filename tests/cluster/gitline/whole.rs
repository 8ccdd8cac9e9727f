//! With Argo CD the catalog's Applications follow the way to Git, by whomever it was changed: for `make chaos` only.

use serde_json::json;

use super::{LINE, a_push_arrives, found_in_an_adoption, reaches, told, wall_in};
use crate::support::api::deployment;
use crate::support::argocd::application;
use crate::support::world::{ARGOCD, CLUSTER, World};
use crate::support::{eventually, seconds, until};

/// L51: added without a word of the line, in a cluster that reaches nothing but the hub: what it is to run comes all the same.
#[test]
#[ignore = "takes minutes: make chaos"]
fn what_the_catalog_begins_with_is_synced_by_the_way_that_the_agent_found() {
    let world = World::open_with("gitauto", ARGOCD);
    wall_in(&world);
    assert!(
        !reaches(&world, world.hub.git_port()),
        "the wall has a hole"
    );
    let began = found_in_an_adoption(&world);
    all_synced_from(&world, LINE);
    until("the workload is there", seconds(60), || {
        world.uid(&deployment("hello", "hello")).is_some()
    });
    told(
        &world,
        "no route, added without --git-over-line: adoption YAML applied → the catalog's Applications synced",
        "",
        began.elapsed(),
    );
    a_push_arrives(&world, "adopted-by-itself");
    world.close();
}

/// L51: chosen for a cluster that has either way, there and back: no workload is made anew for it.
#[test]
#[ignore = "takes minutes: make chaos"]
fn the_catalogs_applications_follow_a_chosen_way_and_the_way_back() {
    let mut world = World::open_with("gitways", ARGOCD);
    world.adopt();
    let hello = world.api.get(&application("app-hello")).unwrap();
    let direct = hello["spec"]["source"]["repoURL"].as_str().unwrap();
    assert_ne!(direct, LINE);
    all_synced_from(&world, direct);
    let workload = world.uid(&deployment("hello", "hello")).unwrap();
    for (way, url) in [("line", LINE), ("direct", direct)] {
        let choose = ["cluster", "git", CLUSTER, way, "--wait"];
        world.hub.linesman(&choose);
        let took = all_synced_from(&world, url);
        let what = format!("{way} is in force → the catalog's Applications synced by it");
        told(&world, &what, "", took);
        a_push_arrives(&world, way);
    }
    let kept = world.uid(&deployment("hello", "hello"));
    assert_eq!(kept, Some(workload));
    world.close();
}

/// Waits until what the hub wrote for the cluster is read by this URL.
fn all_synced_from(world: &World, url: &str) -> std::time::Duration {
    let names = ["base", "app-hello"];
    let all = || {
        names
            .iter()
            .try_for_each(|name| synced_from(world, name, url))
    };
    let what = format!("the Applications are synced from {url}");
    let ((), took) = eventually(&what, seconds(240), all);
    took
}

fn synced_from(world: &World, name: &str, url: &str) -> Result<(), String> {
    let live = world.api.try_get(&application(name))?;
    let live = live.ok_or_else(|| format!("no Application {name}"))?;
    let (source, status) = (&live["spec"]["source"], &live["status"]);
    let sync = &status["sync"];
    // What it says may be of the source of before.
    let compared = &sync["comparedTo"]["source"]["repoURL"];
    let of_it = [&source["repoURL"], compared].map(|named| *named == json!(url));
    if of_it == [true; 2] && sync["status"] == json!("Synced") {
        return Ok(());
    }
    Err(format!(
        "{name}: {source}, {sync}, {}",
        status["conditions"]
    ))
}

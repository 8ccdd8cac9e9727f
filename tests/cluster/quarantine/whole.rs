//! Commits that break the engine over and over, for `make chaos` only.

use serde_json::{Value, json};

use super::Catalog;
use super::taken::{newest, taken_over};
use crate::healing::LIMIT;
use crate::support::world::CLUSTER;
use crate::support::{figure, seconds, shown, until};

const COMMITS: usize = 5;
/// A snapshot follows ten minutes after the last change.
const SETTLED: u64 = 780;

/// W20: ten commits, each second one with an image of source-controller that does not exist. What was given back and broke
/// again stays held, so there are no more heals than bad commits and one; each names its commit.
#[test]
#[ignore = "takes minutes: make chaos"]
fn commits_that_break_and_mend_in_turn_are_followed_with_few_heals() {
    let catalog = Catalog::adopted();
    let world = &catalog.world;
    let image = "ghcr.io/fluxcd/source-controller:";
    let bad = catalog.good.replace(image, &format!("{image}missing-"));
    let mut heads = Vec::new();
    let mut slowest = seconds(0);
    for n in 0..COMMITS {
        for (engine, marker) in [
            (&bad, format!("bad-{n}")),
            (&catalog.good, format!("good-{n}")),
        ] {
            heads.push(catalog.push(engine, &marker));
            let took = until(
                "it is delivered, and the engine works",
                seconds(LIMIT),
                || {
                    catalog.delivered() == marker
                        && !catalog.runs("source-controller", "image", "missing-")
                        && world.engine_available()
                },
            );
            let took = took + world.function(seconds(LIMIT));
            slowest = slowest.max(took);
        }
    }
    figure(
        "W20",
        "ten commits that break source-controller and mend it in turn: slowest from push to delivered and function",
        "≤ 120 s",
        shown(slowest),
    );
    let heals = world.hub.json(&["heal", "list", CLUSTER]);
    let all = heals.as_array().unwrap().iter();
    let broken = all.filter(|heal| heal["class"] == "BadEngineCommit");
    let ids: Vec<&str> = broken.filter_map(|heal| heal["id"].as_str()).collect();
    figure("W20", "… heals", "≤ 6", ids.len());
    assert!((1..=COMMITS + 1).contains(&ids.len()), "{heals:#}");
    let bad: Vec<Value> = heads.iter().step_by(2).map(|head| json!(head)).collect();
    for id in ids {
        let told = world.hub.json(&["heal", "show", id]);
        assert!(bad.contains(&told["author"]["id"]), "{told:#}");
    }
    catalog.world.close();
}

/// W22: what Git took over becomes last known good, and stays as Git has it.
#[test]
#[ignore = "takes minutes: make chaos"]
fn an_engine_that_git_took_over_becomes_last_known_good() {
    taken_over(|world, before| {
        until("the next snapshot is kept", seconds(SETTLED), || {
            newest(world) > before
        });
    });
}

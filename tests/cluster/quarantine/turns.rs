//! Commits that follow each other, as both engines are judged by: W20, those that break it and mend it in turn, and W22, those
//! that only change it.

use std::time::Duration;

use serde_json::Value;

use super::{is_of_commit, names};
use crate::healing::{LIMIT, on_record, since};
use crate::support::audit::Mark;
use crate::support::world::World;
use crate::support::{figure, seconds, shown, until};

/// How many commits there are, in words, and of them the bad ones, each followed by one that mends it; and what they break.
pub(super) struct Turns {
    pub(super) number: &'static str,
    pub(super) rounds: usize,
    pub(super) controller: &'static str,
}

/// W20: what was given back and broke again stays held, so there are no more heals than bad commits and one. Each names its commit, and
/// the last one the commits that came while the object was held for it, so that every bad one is named.
/// `commit` pushes the bad or the good one of a round and waits until it is delivered and the engine works: its id, and how long that
/// took. Returns the ids of the bad ones.
pub(super) fn broken_and_mended(
    world: &World,
    turns: &Turns,
    commit: impl Fn(usize, bool) -> (String, Duration),
) -> Vec<String> {
    let known = on_record(world);
    let Turns {
        number,
        rounds,
        controller,
    } = turns;
    let (mut bad, mut slowest) = (Vec::new(), seconds(0));
    for round in 0..*rounds {
        for breaks in [true, false] {
            let (head, took) = commit(round, breaks);
            slowest = slowest.max(took + world.function(seconds(LIMIT)));
            bad.extend(Some(head).filter(|_| breaks));
        }
    }
    figure(
        "W20",
        &world.case(&format!(
            "{number} commits that break {controller} and mend it in turn: slowest from push to delivered and function"
        )),
        "≤ 120 s",
        shown(slowest),
    );
    let mut all: Vec<Value> = since(world, &known);
    all.retain(|heal| heal["class"] == "BadEngineCommit");
    let most = rounds + 1;
    let told = world.case(&format!("… heals of {number}"));
    figure("W20", &told, &format!("≤ {most}"), all.len());
    assert!((1..=most).contains(&all.len()), "{all:#?}");
    for heal in &all {
        let named = bad.iter().any(|head| is_of_commit(world, heal, head));
        assert!(named, "{heal:#}");
    }
    until("each bad commit is named", seconds(60), || {
        let all = since(world, &known);
        let is_named = |head: &String| all.iter().any(|heal| names(world, heal, head));
        bad.iter().all(is_named)
    });
    bad
}

/// W22: the agent writes nothing, and nobody changes what the engine syncs by. `roll` pushes the newer version, or the one before, by
/// the name that its marker has, and waits until the engine runs it.
pub(super) fn another_version_and_back(world: &World, roll: impl Fn(&str, bool) -> Duration) {
    let (mark, synced) = (Mark::now(&world.audit), world.synced_by());
    for (marker, newer) in [("newer", true), ("older", false)] {
        let took = roll(marker, newer) + world.function(seconds(LIMIT));
        figure(
            "W22",
            &world.case(&format!(
                "commit that changes all controllers ({marker}) → rolled, function"
            )),
            "",
            shown(took),
        );
    }
    assert_eq!(
        mark.written_in(world.namespace()),
        [""; 0],
        "the agent wrote"
    );
    let rewritten = world.rewritten(&synced);
    assert!(rewritten.is_empty(), "{rewritten:#?}");
}

//! A commit that brings a controller of the agent's, which cannot run, and is reverted: the catalog no longer has it.

use crate::healing::{LIMIT, none_is_open, settle};
use crate::quarantine::lifted::{Former, WHEN};
use crate::quarantine::{Catalog, FLUX};
use crate::support::api::deployment;
use crate::support::audit::Mark;
use crate::support::place::Place;
use crate::support::world::World;
use crate::support::{seconds, until};

const CONTROLLER: &str = "source-controller";

/// Its document of the install.
fn document() -> String {
    let install = Place::bundle("flux");
    let has = |part: &str, line: &str| part.lines().any(|l| l == line);
    let is_it =
        |part: &&str| has(part, "kind: Deployment") && has(part, &format!("  name: {CONTROLLER}"));
    let found = install.split("\n---\n").find(is_it);
    found.unwrap().to_owned()
}

/// W5, W17
#[test]
#[ignore = "takes minutes: make chaos"]
fn what_a_reverted_commit_brought_is_the_agents_again_by_order() {
    let mut world = World::open("reverted");
    world.adopt();
    settle(&world);
    let former = Former::of(&world, &deployment(FLUX, CONTROLLER));
    let catalog = Catalog::new(world, document());
    for (when, later) in WHEN {
        reverted(&catalog, &former, when, later);
    }
    former.made_again(&catalog.world);
    settle(&catalog.world);
    catalog.world.close();
}

fn reverted(catalog: &Catalog, former: &Former, when: &str, later: bool) {
    let world = &catalog.world;
    let (bad, good) = (format!("bad-{later}"), format!("reverted-{later}"));
    let image = "ghcr.io/fluxcd/source-controller:";
    let missing = catalog.good.replace(image, &format!("{image}missing-"));
    assert_ne!(missing, catalog.good);
    catalog.push(&missing, &bad);
    until("it is held, and the engine works", seconds(300), || {
        catalog.is_held(CONTROLLER)
            && !catalog.runs(CONTROLLER, "image", "missing-")
            && catalog.delivered() == bad
            && world.engine_available()
    });
    world.function(seconds(LIMIT));
    catalog.told("Quarantined", "True");

    let mark = Mark::now(&world.audit);
    catalog.push("", &good);
    if later {
        until("Flux is done with the revert", seconds(LIMIT), || {
            former.stands(world);
            catalog.delivered() == good && world.synced().is_ok()
        });
        assert!(catalog.is_held(CONTROLLER), "nobody said so");
    }
    former.given_back(world, when);
    assert_eq!(catalog.delivered(), good);
    let written = mark.written_in(FLUX);
    let of_it = format!("patch deployments/{CONTROLLER}");
    let alone = !written.is_empty() && written.iter().all(|did| *did == of_it);
    assert!(alone, "{written:?}");
    catalog.told("Quarantined", "False");
    until("no heal is open", seconds(LIMIT), || none_is_open(world));
}

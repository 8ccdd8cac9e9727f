//! F48: a commit's version of a controller that runs, says nothing, and never becomes ready.

use std::time::Instant;

use serde_json::{Value, json};

use super::super::{Catalog, FLUX, is_of_commit};
use super::{SETTLED, with};
use crate::healing::{LIMIT, on_record, settle, since, unchanged, whole, workloads};
use crate::support::{closely, eventually, figure, seconds, shown, until};

const CONTROLLER: &str = "source-controller";
/// Ten minutes, but for Kubernetes' times, which are cut to the second before.
const WINDOW: u64 = 599;

/// F48: for ten minutes it is an upgrade, and nobody's business but Git's. Then it is held, as last known good, and the next commit
/// gives it back.
#[test]
#[ignore = "takes minutes: make chaos"]
fn a_commit_whose_controller_never_becomes_ready_is_held_after_its_time() {
    let catalog = Catalog::of("stuckup", "flux");
    let world = &catalog.world;
    settle(world);
    let (known, workloads) = (on_record(world), workloads(world));
    let port = || {
        let spec = &catalog.controller(CONTROLLER)["spec"]["template"]["spec"];
        spec["containers"][0]["readinessProbe"]["httpGet"]["port"].clone()
    };
    let before = port();
    assert_eq!(before, json!("http"));
    let bad = with(&catalog.good, ["Deployment", CONTROLLER], |part| {
        part.replace("            port: http\n", "            port: 9\n")
    });
    let began = Instant::now();
    let head = catalog.push(&bad, "stuck");
    until("Flux applies the commit", seconds(120), || {
        catalog.delivered() == "stuck" && port() == json!(9)
    });
    closely("it is held", seconds(SETTLED + LIMIT), || {
        catalog.is_held(CONTROLLER)
    });
    let waited = began.elapsed();
    assert!(waited >= seconds(WINDOW), "held after {}", shown(waited));
    until("the engine works", seconds(LIMIT), || {
        port() == before && world.engine_available()
    });
    let took = began.elapsed() + world.function(seconds(LIMIT));
    figure(
        "F48",
        &world.case(
            "commit whose source-controller never becomes ready → held (after 10 min), function",
        ),
        "",
        shown(took),
    );
    assert_eq!(catalog.delivered(), "stuck", "the rest of the commit");
    catalog.told("Quarantined", "True");
    let heal = stuck(&catalog, &known);
    assert!(is_of_commit(world, &heal, &head), "{heal:#}");

    catalog.push(&catalog.good, "unstuck");
    let took = until("it is given back", seconds(300), || {
        let mended = !catalog.is_held(CONTROLLER) && port() == before;
        mended && catalog.delivered() == "unstuck"
    });
    figure(
        "F48",
        &world.case("… then a commit that mends it → given back to Git"),
        "≤ 300 s",
        shown(took),
    );
    catalog.told("Quarantined", "False");
    settle(world);
    unchanged(world, &workloads);
    catalog.world.close();
}

/// What is on record of it, once it is over.
fn stuck(catalog: &Catalog, known: &[Value]) -> Value {
    let world = &catalog.world;
    let object = format!("Deployment {FLUX}/{CONTROLLER}");
    let (heal, _) = eventually("the heal is over", seconds(LIMIT), || {
        let new = since(world, known);
        let mut all = new.iter();
        let of_it = |h: &&Value| h["class"] == "EngineUpgradeStuck" && h["object"] == *object;
        let found = all.find(|h| of_it(h) && h["result"] == "healed");
        found.cloned().ok_or_else(|| format!("{new:#?}"))
    });
    let told = whole(world, &heal);
    let evidence = told["evidence"].as_str().unwrap();
    let said = evidence.starts_with("has not come up for 10 min; commit ")
        && evidence.contains("readinessProbe");
    assert!(said, "{told:#}");
    let first = &told["steps"][0];
    let did = (&first["action"], &first["outcome"]);
    assert_eq!(did, (&json!("hold"), &json!("ok")), "{told:#}");
    heal
}

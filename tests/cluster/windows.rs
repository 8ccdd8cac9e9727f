//! W24: in a maintenance window the agent only looks.

use std::thread;

use serde_json::json;

use crate::healing::settle;
use crate::support::api::deployment;
use crate::support::world::{self, CLUSTER, FLUX};
use crate::support::{figure, seconds, shown, until};

/// W24: paused at the hub: a fault is shown and left; resumed: it is mended.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_paused_cluster_is_left_alone_until_it_is_resumed() {
    let world = world::adopted();
    settle(&world);
    world.hub.linesman(&[
        "cluster", "pause", CLUSTER, "--for", "1h", "--reason", "a test",
    ]);
    let paused = || {
        let view = world.hub.json(&["cluster", "show", CLUSTER]);
        let all = view["conditions"].as_array().cloned().unwrap_or_default();
        let mut told = all.into_iter().filter(|c| c["type"] == json!("Paused"));
        told.any(|c| {
            c["status"] == json!("True") && c["message"].as_str().unwrap().contains("a test")
        })
    };
    let took = until("the agent says that it is paused", seconds(60), paused);
    figure("W24", "paused at the hub → agent says so", "", shown(took));
    let path = deployment(FLUX, "source-controller");
    assert!(world.api.delete(&path));
    // The absence of a heal has no event to wait for: longer than any heal of this fault takes.
    let shown_at_hub = || {
        let heals = world.hub.json(&["heal", "list", CLUSTER]);
        let all = heals.as_array().cloned().unwrap_or_default();
        all.iter().any(|h| {
            h["object"] == json!(format!("Deployment {FLUX}/source-controller"))
                && h["result"] == json!("open")
        })
    };
    until("the hub shows the fault", seconds(60), shown_at_hub);
    thread::sleep(seconds(10));
    assert!(world.api.get(&path).is_none(), "it was mended in a window");
    world.hub.linesman(&["cluster", "resume", CLUSTER]);
    let took = until("it is back", seconds(60), || world.uid(&path).is_some());
    figure(
        "W24",
        "resumed at the hub → deleted Deployment back",
        "",
        shown(took),
    );
    until("the engine is available", seconds(240), || {
        world.engine_available()
    });
    world.function(seconds(240));
}

//! W21 with Flux: what is held stays held over another adoption of the cluster.

use serde_json::{Value, json};

use super::{Catalog, FLUX, HELD};
use crate::healing::LIMIT;
use crate::keys::{start_agent, stop_agent};
use crate::support::api::{deployment, path};
use crate::support::audit::Mark;
use crate::support::world::CLUSTER;
use crate::support::{figure, seconds, shown, until};

/// The hold, and what Flux is told by it.
fn hold(catalog: &Catalog) -> [Value; 2] {
    let live = catalog.controller("source-controller");
    let annotations = &live["metadata"]["annotations"];
    [HELD, "kustomize.toolkit.fluxcd.io/reconcile"].map(|name| annotations[name].clone())
}

/// While there is no agent Flux asks for the commit's version again and again, and the one that comes has joined anew.
pub(super) fn a_hold_over_a_readoption(catalog: &Catalog) {
    let world = &catalog.world;
    let before = (
        hold(catalog),
        world.uid(&deployment(FLUX, "source-controller")),
    );
    let yaml = world.directory.join("readopt.yaml");
    let file = yaml.to_str().unwrap();
    let args = ["cluster", "readopt", CLUSTER, "--file", file];
    world.hub.linesman(&args);
    stop_agent(world);
    let mark = Mark::now(&world.audit);
    world.apply(&yaml);
    start_agent(world);
    let join = path("v1", "Secret", "linesman", "linesman-join");
    let took = until("the agent joined by the new token", seconds(LIMIT), || {
        let join = world.api.try_get(&join).ok().flatten();
        let token = join.unwrap_or_default()["data"]["token"].clone();
        token.as_str().is_none_or(str::is_empty) && world.line_is_up()
    });
    let took = took + world.function(seconds(LIMIT));
    figure(
        "W21",
        "held object, agent away, readopted → joined, function, and held as before",
        "",
        shown(took),
    );
    let now = (
        hold(catalog),
        world.uid(&deployment(FLUX, "source-controller")),
    );
    assert_eq!(now, before);
    assert!(catalog.is_held("source-controller"));
    assert!(!catalog.runs("source-controller", "image", "missing-"));
    let written = mark.written_in(FLUX);
    let touched = written
        .iter()
        .any(|w| *w == "patch deployments/source-controller");
    assert!(!touched, "{written:?}");
    assert_eq!(catalog.condition("Quarantined"), json!("True"));
}

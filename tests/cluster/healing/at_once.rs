//! The whole engine at once: all that runs scaled to zero (W7), or deleted together with all that lets it (W6).

use std::time::Instant;

use serde_json::{Value, json};

use super::{LIMIT, deleted_at_once, install, unchanged, workloads, works};
use crate::support::api::path_of;
use crate::support::world::World;
use crate::support::{figure, seconds, shown, until};

const RUN: [&str; 2] = ["Deployment", "StatefulSet"];
const LET: [&str; 3] = ["ServiceAccount", "RoleBinding", "ClusterRoleBinding"];

/// Paths of all that runs of the install.
pub(crate) fn all_that_runs(world: &World) -> Vec<String> {
    of_kinds(world, &RUN)
}

/// The same with the accounts and bindings that they run by.
pub(crate) fn all_that_lets_it_run(world: &World) -> Vec<String> {
    of_kinds(world, &[&RUN[..], &LET[..]].concat())
}

fn of_kinds(world: &World, kinds: &[&str]) -> Vec<String> {
    let mut all = install(world);
    all.retain(|object| kinds.contains(&object["kind"].as_str().unwrap()));
    assert!(!all.is_empty(), "the install has none of {kinds:?}");
    all.iter().map(path_of).collect()
}

/// W7: each is back ≤ 35 s, for which they wait together.
pub(crate) fn scaled_to_zero(world: &World, case: &str) {
    let all = all_that_runs(world);
    for path in &all {
        let none = json!({ "spec": { "replicas": 0 } });
        let live = world.api.patch(path, &none);
        assert_eq!(live["spec"]["replicas"], json!(0), "{path}");
    }
    let took = until("each has a replica again", seconds(LIMIT), || {
        let scaled = |d: Value| d["spec"]["replicas"] == json!(1);
        all.iter()
            .all(|path| world.api.get(path).is_some_and(scaled))
    });
    let what = format!(
        "all {} controllers scaled to 0 → each scaled back ({case})",
        all.len()
    );
    figure("W7", &world.said(&what), "≤ 35 s", shown(took));
    let what = format!("function after all were scaled to 0 ({case})");
    works(world, "W7", &world.said(&what), "≤ 60 s");
}

/// W6: function ≤ 90 s after that, and no workload of the catalog is another one.
pub(crate) fn all_deleted_at_once(world: &World) {
    let (all, before) = (all_that_lets_it_run(world), workloads(world));
    let began = Instant::now();
    let back = deleted_at_once(world, &all);
    until("controllers are available", seconds(LIMIT), || {
        world.engine_available()
    });
    world.answers(seconds(LIMIT));
    let function = began.elapsed();
    let what = format!(
        "all {} workloads, ServiceAccounts and bindings deleted at once",
        all.len()
    );
    let case = |end: &str| world.case(&format!("{what} → {end}"));
    figure("W6", &case("each back"), "", shown(back));
    figure("W6", &case("function"), "≤ 90 s", shown(function));
    unchanged(world, &before);
}

//! Commits of a ConfigMap, and whether it arrived.

use std::time::Duration;

use crate::healing::LIMIT;
use crate::support::api::path;
use crate::support::world::{CLUSTER, World};
use crate::support::{seconds, until};

/// A commit of a new ConfigMap arrives; how long that took.
pub(super) fn follows(world: &World, name: &str) -> Duration {
    push_map(world, name);
    until("the commit is applied", seconds(LIMIT), || {
        is_there(world, name)
    })
}

/// A commit of a new ConfigMap.
pub(super) fn push_map(world: &World, name: &str) {
    let text = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: default}}\n"
    );
    world.push(&format!("clusters/{CLUSTER}/{name}.yaml"), &text);
}

pub(super) fn is_there(world: &World, name: &str) -> bool {
    let map = path("v1", "ConfigMap", "default", name);
    world.uid(&map).is_some()
}

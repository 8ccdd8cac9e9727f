//! W35: the root deleted, or led elsewhere.

use serde_json::json;

use crate::healing::{LIMIT, settle, unchanged, workloads, works};
use crate::support::argocd::root;
use crate::support::world::World;
use crate::support::{figure, seconds, shown, until};

/// W35: the root is as before, and nothing is pruned. The catalog holds `elsewhere/`.
pub(super) fn root_deleted_or_changed(world: &World, hub: &str) {
    let workloads = workloads(world);
    let uid = world.uid(&root()).unwrap();
    world.delete_guarded(&root());
    let took = until("the root is back", seconds(LIMIT), || {
        world.uid(&root()).is_some_and(|new| new != uid)
    });
    figure(
        "W35",
        &format!("Argo CD: root deleted → back ({hub})"),
        "≤ 5 s",
        shown(took),
    );
    let good = world.api.get(&root()).unwrap()["spec"]["source"].clone();
    // What is there can be compared, and would be synced and pruned by: the guard policy does not let it come to that.
    let elsewhere = json!({ "spec": { "source": { "path": "elsewhere" } } });
    let (code, message) = world.api.try_patch(&root(), &elsewhere).unwrap_err();
    assert_eq!(code, 403, "{message}");
    // What cannot be fetched is not pruned by: with that the second line is seen, which mends what somebody allowed.
    let led = json!({ "repoURL": "ssh://git@hub.lab.test:1/other.git", "path": "none" });
    for again in ["changed", "changed again"] {
        world.patch_guarded(&root(), &json!({ "spec": { "source": led } }));
        let took = until("the root's source is as before", seconds(LIMIT), || {
            let live = world.api.get(&root());
            live.is_some_and(|o| o["spec"]["source"] == good)
        });
        let what = format!("Argo CD: root's repoURL and path {again} → as before ({hub})");
        figure("W35", &what, "≤ 5 s", shown(took));
    }
    let what = format!("Argo CD: function after that ({hub})");
    works(world, "W35", &what, "≤ 60 s");
    unchanged(world, &workloads);
}

/// What the root may be led to.
pub(super) fn push_elsewhere(world: &World) {
    world.push(
        "elsewhere/map.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: elsewhere, namespace: default}\n",
    );
    settle(world);
}

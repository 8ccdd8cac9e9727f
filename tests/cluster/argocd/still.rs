//! F54: an operation of the root that does not get on.

use std::time::Instant;

use serde_json::json;

use super::commits::{is_there, push_map};
use super::slow::{commit, runs};
use crate::blocked::pods_of_engine;
use crate::healing::{LIMIT, on_record, settle, since, unchanged, whole, workloads, works};
use crate::support::api::path;
use crate::support::argocd::root;
use crate::support::audit::Mark;
use crate::support::world::{CLUSTER, World};
use crate::support::{eventually, figure, seconds, shown, until};

/// F54: an operation that waits for what never comes, and the head is another one already. It is ended, and nothing else is. `name` is
/// that of what the next commit brings.
pub(crate) fn stands_still(world: &World, name: &str) {
    settle(world);
    let (known, pods) = (on_record(world), pods_of_engine(world));
    let workloads = workloads(world);
    let mark = Mark::now(&world.audit);
    let file = format!("clusters/{CLUSTER}/never.yaml");
    let head = world.push(&file, &commit(1, 1_000_000));
    eventually("the operation has begun", seconds(LIMIT), || {
        let live = world.api.get(&root()).unwrap_or_default();
        runs(&live, &head).ok_or("it has not")
    });
    let began = Instant::now();
    world.push(&file, "# nothing\n");
    push_map(world, name);
    let (heal, _) = eventually("it is called stuck", seconds(900), || {
        let mut new = since(world, &known).into_iter();
        let stuck = new.find(|heal| heal["class"] == "OperationStuck");
        stuck.ok_or("no record")
    });
    let what = "operation waits for a hook that never ends";
    figure(
        "F54",
        &world.case(&format!(
            "{what}, the next commit pushed → called OperationStuck"
        )),
        "",
        shown(began.elapsed()),
    );
    let back = until("the head is applied", seconds(LIMIT), || {
        is_there(world, name)
    });
    let what = world.case(&format!("{what}, … → head applied"));
    figure("F54", &what, "", shown(back));
    works(world, "F54", &world.case("function after that"), "≤ 60 s");
    settle(world);
    let mut all = since(world, &known).into_iter();
    let now = all.find(|now| now["id"] == heal["id"]).unwrap();
    let told = whole(world, &now);
    let step = &told["steps"][0];
    assert_eq!(
        (&told["result"], &step["action"], &step["outcome"]),
        (&json!("healed"), &json!("terminate"), &json!("ok")),
        "{told:#}"
    );
    let job = path("batch/v1", "Job", "default", "slow-0");
    until("the hook is gone", seconds(LIMIT), || {
        world.uid(&job).is_none()
    });
    assert_eq!(mark.first_mending_write(), None, "the agent wrote");
    assert_eq!(pods_of_engine(world), pods);
    unchanged(world, &workloads);
}

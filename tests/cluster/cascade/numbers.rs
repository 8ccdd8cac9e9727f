//! Sync objects that are deleted in numbers, one by one: no policy stands before that.

use std::time::{Duration, Instant};

use super::{OBJECTS, Sync, cut_since, gone, removed, whole_again, workloads};
use crate::healing::{LIMIT, settle};
use crate::support::audit::Mark;
use crate::support::world::{ARGOCD, CLUSTER, FLUX, World, kustomization};
use crate::support::{eventually, figure, seconds, shown, until};

/// W11: what Git brings is deleted one after the other, as by `kubectl delete --all`. What the engine had not pruned by the third one
/// stays; all come back. When a commit removes them at last, no right is touched.
pub(super) fn deleted_in_numbers(world: &World, resource: &str, sync: &Sync) {
    whole_again(world, sync);
    settle(world);
    let before = workloads(world);
    if world.engine != ARGOCD {
        another_commit(world);
    }
    let mark = Mark::now(&world.audit);
    let began = Instant::now();
    for name in sync.names() {
        world.api.delete(&Sync::path(world, &name));
    }
    let took = began.elapsed();
    let (cut, _) = eventually("the engine has no rights", seconds(30), || {
        cut_after(&mark, resource).ok_or("it has")
    });
    settle(world);
    until("all sync objects are back", seconds(LIMIT), || {
        sync.all_there(world)
    });
    let back = began.elapsed();
    let lost = gone(&before, &workloads(world)).len();
    println!(
        "{lost} of {OBJECTS} lost, deleted in {}, rights cut after {:.3} s, all back {}",
        shown(took),
        cut.as_secs_f64(),
        shown(back)
    );
    let count = sync.count;
    figure(
        "W11",
        &world.said(&format!(
            "{count} {resource} deleted one after the other over {OBJECTS} objects: objects lost"
        )),
        "",
        lost,
    );
    figure(
        "W11",
        &world.said("… first of them deleted → the engine has no rights to prune"),
        "",
        format!("{} ms", cut.as_millis()),
    );
    whole_again(world, sync);
    settle(world);
    let mark = Mark::now(&world.audit);
    removed(world, sync);
    assert_eq!(
        cut_after(&mark, resource),
        None,
        "a commit's own deletions cost the engine its rights"
    );
    // All would be lost without the guard.
    assert!(lost * 2 <= OBJECTS, "{lost} objects were lost");
}

/// One that takes nothing away. That the root was at work on something new a moment ago is no reason to let go what it brings.
fn another_commit(world: &World) {
    let head = world.push(
        &format!("clusters/{CLUSTER}/next.yaml"),
        "# one more commit\n",
    );
    until("the root is done with another commit", seconds(60), || {
        let root = world.api.get(&kustomization(FLUX));
        let applied = &root.expect("the root is there")["status"]["lastAppliedRevision"];
        applied.as_str().is_some_and(|said| said.ends_with(&head))
    });
}

/// From the first deletion of an object of this kind to the answer that took the engine's last right.
fn cut_after(since: &Mark, resource: &str) -> Option<Duration> {
    cut_since(since, &|a| a.resource == resource)
}

//! A test with the hub there, and again with the hub away.

use super::settle;
use crate::support::world::World;

pub(crate) fn with_and_without_hub(world: &mut World, mut test: impl FnMut(&World, &str)) {
    settle(world);
    test(world, "hub there");
    settle(world);
    world.hub.stop();
    test(world, "hub stopped");
    world.hub.up();
}

/// The same, and once more with the hub stopped and Git there.
pub(crate) fn with_and_without_hub_and_git(world: &mut World, mut test: impl FnMut(&World, &str)) {
    with_and_without_hub(world, &mut test);
    settle(world);
    world.lose_hub();
    test(world, "hub stopped, Git there");
    world.hub_back();
}

/// With the hub there, then with the hub stopped and Git there.
pub(crate) fn with_hub_and_with_git_alone(world: &mut World, mut test: impl FnMut(&World)) {
    settle(world);
    test(world);
    settle(world);
    world.lose_hub();
    test(world);
    world.hub_back();
    settle(world);
}

/// Only with the hub stopped, where a second time would cost a minute.
pub(crate) fn without_hub(world: &mut World, mut test: impl FnMut(&World, &str)) {
    settle(world);
    world.hub.stop();
    test(world, "hub stopped");
    world.hub.up();
}

/// Only with the hub stopped and Git there, so that function can be asked for.
pub(crate) fn with_git_alone(world: &mut World, test: impl FnOnce(&World)) {
    settle(world);
    world.lose_hub();
    test(world);
    world.hub_back();
    settle(world);
}

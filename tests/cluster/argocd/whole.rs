//! What takes minutes to show, for `make chaos` only.

use super::slow::comes_to_its_end;
use crate::support::world;

/// W12: longer than an operation may stand still, each hook longer than an answer of a controller is waited for.
#[test]
#[ignore = "takes minutes: make chaos"]
fn a_sync_that_gets_on_for_longer_than_one_may_stand_still_is_left_alone() {
    comes_to_its_end(&world::adopted_argocd(), 4, 170);
}

//! What is done to an agent that runs as a process of the test's machine, as with Flux (`crate::boundaries`).

use crate::boundaries::adopted_over_kills;
use crate::boundaries::errors::with_half_of_the_answers;
use crate::support::world::{ARGOCD, World};

/// W30, W3, W25: killed after each step of an adoption with Argo CD, then met by an API server half of whose answers are errors.
#[test]
#[ignore = "needs a real cluster: make test"]
fn an_agent_that_is_killed_and_lied_to_adopts_argo_cd_and_mends_it() {
    let world = World::open_with("argokills", ARGOCD);
    adopted_over_kills(&world);
    with_half_of_the_answers(&world);
    world.close();
}

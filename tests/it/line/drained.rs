//! What follows a line that drained to its end.

use std::sync::atomic::Ordering;
use std::time::Duration;

use linesman::wire::frame::Code;
use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout;

use super::open;
use super::world::{PATIENCE, World};
use crate::wait::{measured, until};

/// L16: a hub that has no other beside it takes nobody while it drains, it may be for minutes. However often the agent found that,
/// the next one has it back about as soon as a hub that was killed.
#[tokio::test]
async fn the_hub_after_one_that_drained_for_long_is_dialled_soon() {
    let world = World::new().await;
    let mut agent = world.agent();
    let old = agent.up().await;
    let hub_end = world.line(1).await;
    let mut ours = open(&hub_end).await;
    let mut theirs = agent.incoming.recv().await.unwrap().stream;
    world.shut.send_replace(true);
    let before = world.dials.load(Ordering::Relaxed);
    hub_end.goaway(Code::Draining, Duration::ZERO, PATIENCE, "the hub stops");
    // By then it waits for up to sixteen seconds, and mostly for more than five.
    let tired = async || world.dials.load(Ordering::Relaxed) >= before + 6;
    until("it was not taken six times", PATIENCE, tired).await;
    world.shut.send_replace(false);
    theirs.shutdown().await.unwrap();
    ours.shutdown().await.unwrap();
    timeout(PATIENCE, old.closed())
        .await
        .expect("the line ends");
    let row = ("L16", "drained for minutes → next hub's line", "≤ 2 s");
    measured(row, Duration::from_secs(5), world.line(2)).await;
    world.end().await;
}

//! What follows a line that drained to its end.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use linesman::wire::frame::Code;
use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout;

use super::open;
use super::world::{PATIENCE, World};
use crate::wait::until;

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
    // By then it waits for up to eight seconds, and mostly for more than two.
    let tired = async || world.dials.load(Ordering::Relaxed) >= before + 5;
    until("it was not taken five times", PATIENCE, tired).await;
    world.shut.send_replace(false);
    theirs.shutdown().await.unwrap();
    ours.shutdown().await.unwrap();
    timeout(PATIENCE, old.closed())
        .await
        .expect("the line ends");
    let ended = Instant::now();
    world.line(2).await;
    let took = ended.elapsed();
    assert!(took <= Duration::from_secs(2), "{took:?}");
    world.end().await;
}

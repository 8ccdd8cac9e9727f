//! A line that drains, and what follows it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use linesman::agent::link::{LinkState, ProxyConfig};
use linesman::wire::frame::Code;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::watch;
use tokio::time::timeout;

use super::open;
use super::world::{PATIENCE, World};
use crate::wait::{measured, until};

/// L16: the next line is up before the old one ends, and what runs on the old one ends well.
#[tokio::test]
async fn a_drained_line_is_replaced_before_it_ends() {
    let world = World::new().await;
    let mut agent = world.agent();
    let old = agent.up().await;
    let hub_end = world.line(1).await;
    let mut ours = open(&hub_end).await;
    let mut theirs = agent.incoming.recv().await.unwrap().stream;
    hub_end.goaway(Code::Draining, Duration::ZERO, PATIENCE, "rebalanced");
    let new = world.line(2).await;
    assert_eq!(old.draining().await.text, "rebalanced");
    let _kept = open(&new).await;
    let moved = timeout(PATIENCE, agent.incoming.recv()).await.unwrap();
    assert_eq!(moved.unwrap().epoch, new.facts().epoch);
    theirs.write_all(b"to the end").await.unwrap();
    theirs.shutdown().await.unwrap();
    ours.shutdown().await.unwrap();
    let mut text = String::new();
    let read = timeout(PATIENCE, ours.read_to_string(&mut text)).await;
    read.expect("the old stream ends").unwrap();
    assert_eq!(text, "to the end");
    timeout(PATIENCE, old.closed())
        .await
        .expect("then the old line ends");
    assert!(new.takes_streams());
    assert!(matches!(&*agent.state.borrow(), LinkState::Up { line, .. } if line.takes_streams()));
    world.end().await;
}

#[tokio::test]
async fn a_stopping_hub_lets_running_streams_end() {
    let world = World::new().await;
    let mut agent = world.agent();
    let line = agent.up().await;
    let mut ours = open(&world.line(1).await).await;
    let mut theirs = agent.incoming.recv().await.unwrap().stream;
    world.hub.stop.cancel();
    assert_eq!(
        timeout(PATIENCE, line.draining()).await.unwrap().code,
        Code::Draining
    );
    theirs.write_all(b"late").await.unwrap();
    theirs.shutdown().await.unwrap();
    ours.shutdown().await.unwrap();
    let mut text = String::new();
    timeout(PATIENCE, ours.read_to_string(&mut text))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(text, "late");
    assert_eq!(
        timeout(PATIENCE, line.closed()).await.unwrap().code,
        Code::Draining
    );
    agent.stop.cancel();
    world.end().await;
}

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

/// L15, L41: an agent that is asked to wait does so also where the way to the hub became another one in the life of its line, it may
/// be weeks ago. Its state says that it has none meanwhile.
#[tokio::test]
async fn a_way_that_changed_while_the_line_was_up_cuts_no_wait_short() {
    let world = World::new().await;
    let (way_out, way) = watch::channel(None);
    let mut agent = world.agent_by(way);
    let old = agent.up().await;
    // One by which the hub is reached as before.
    let past = ProxyConfig {
        address: "proxy.invalid:3128".to_owned(),
        credentials: None,
        bypass: vec!["127.0.0.1".to_owned()],
    };
    way_out.send_replace(Some(past));
    let hub_end = world.line(1).await;
    hub_end.goaway(Code::Superseded, Duration::ZERO, PATIENCE, "taken over");
    let ended = timeout(PATIENCE, old.closed()).await.expect("it is empty");
    assert_eq!(ended.code, Code::Superseded);
    let down = |state: &LinkState| matches!(state, LinkState::Down { .. });
    let waits = timeout(PATIENCE, agent.state.wait_for(down)).await;
    drop(waits.expect("the agent waits").unwrap());
    assert_eq!(world.dials.load(Ordering::Relaxed), 1);
    world.end().await;
}

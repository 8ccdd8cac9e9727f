//! L23: streams that nobody reads.

use std::time::Duration;

use bytes::Bytes;
use linesman::keys::sha256;
use linesman::tunnel::Line;
use linesman::wire::frame::{Class, Code, Kind};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};

use super::world::{PATIENCE, World};
use super::{echo, open, pattern, round_trip};

/// L23
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_streams_hold_up_no_other() {
    let world = World::new().await;
    let mut agent = world.agent();
    agent.up().await;
    let line = world.line(1).await;
    let mut unread = Vec::new();
    for _ in 0..100 {
        let mut stream = open(&line).await;
        // More than any window: what the peer does not read is not taken.
        drop(
            timeout(
                Duration::from_millis(2),
                stream.write_all(&vec![7; 256 << 10]),
            )
            .await,
        );
        unread.push((stream, agent.incoming.recv().await.unwrap()));
    }
    let _echo = echo(agent.incoming);
    let data = pattern(1 << 20, 1);
    let back = timeout(PATIENCE, round_trip(open(&line).await, data.clone()))
        .await
        .expect("the others run");
    assert_eq!(sha256(&back), sha256(&data));
    // The reverse direction of an unread stream is free, too.
    let (mut ours, mut theirs) = unread.pop().unwrap();
    theirs.stream.write_all(b"hello").await.unwrap();
    let mut hello = [0; 5];
    timeout(PATIENCE, ours.read_exact(&mut hello))
        .await
        .expect("the reverse direction runs")
        .unwrap();
    assert_eq!(&hello, b"hello");
    world.end().await;
}

/// As many as fill the agent's memory for the line four times over: they are what goes, and whoever comes then is served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_streams_keep_nobody_out() {
    let world = World::new().await;
    let mut agent = world.agent();
    agent.up().await;
    let line = world.line(1).await;
    // The agent keeps what comes and reads none of it.
    let (stop, mut stopped) = oneshot::channel();
    let mut keeps = JoinSet::new();
    keeps.spawn(async move {
        let mut unread = Vec::new();
        loop {
            tokio::select! {
                biased;
                _ = &mut stopped => return (unread, agent),
                Some(theirs) = agent.incoming.recv() => unread.push(theirs),
            }
        }
    });
    let (mut unread, window) = (Vec::new(), vec![7; 64 << 10]);
    for _ in 0..1500 {
        let mut ours = open(&line).await;
        let sent = timeout(PATIENCE, ours.write_all(&window)).await;
        drop(sent.expect("what is queued goes"));
        unread.push(ours);
    }
    stop.send(()).unwrap();
    let (kept, agent) = keeps.join_next().await.unwrap().unwrap();
    assert!(kept.len() < unread.len(), "the agent took all");
    let _echo = echo(agent.incoming);
    let data = pattern(1 << 10, 1);
    let back = timeout(PATIENCE, served(&line, &data))
        .await
        .expect("room is made within 5 s");
    assert_eq!(back, data);
    world.end().await;
}

/// The echo of `data`, by as many streams as are refused before.
async fn served(line: &Line, data: &[u8]) -> Vec<u8> {
    let mut looks = interval(Duration::from_millis(50));
    loop {
        looks.tick().await;
        let mut stream = line
            .open(Kind::Api, Class::Normal, Bytes::from_static(b"{}"))
            .await
            .unwrap();
        let mut back = Vec::new();
        let done = async {
            stream.write_all(data).await?;
            stream.shutdown().await?;
            stream.read_to_end(&mut back).await
        };
        match done.await {
            Ok(_) => return back,
            Err(error) => assert_eq!(super::code(&error), Some(Code::OverBudget), "{error}"),
        }
    }
}

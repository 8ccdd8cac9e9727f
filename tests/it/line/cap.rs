//! L12: what stands on the way ends every connection at a certain age.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use linesman::hub::tunnels::Tunnels;
use linesman::tunnel::Incoming;
use linesman::wire::frame::{Class, Kind};
use linesman::wire::id::ClusterName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::world::World;

const LIFE: Duration = Duration::from_secs(30);
/// What a short request takes, and how often one comes.
const SHORT: Duration = Duration::from_secs(2);
const EVERY: Duration = Duration::from_millis(500);
/// By which the clock is set on.
const STEP: Duration = Duration::from_millis(50);

/// Answers every stream after a while.
fn answering(mut incoming: mpsc::Receiver<Incoming>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut streams = JoinSet::new();
        while let Some(Incoming { mut stream, .. }) = incoming.recv().await {
            streams.spawn(async move {
                sleep(SHORT).await;
                if stream.write_all(b"done").await.is_ok() {
                    drop(stream.shutdown().await);
                }
            });
        }
    });
    tasks
}

/// What the hub does for a request: it waits for a line, and the answer has to be whole.
async fn request(tunnels: Tunnels, cluster: ClusterName) -> Result<(), String> {
    let wait = Duration::from_secs(10);
    let line = tunnels.wait(&cluster, None, wait).await;
    let line = line.map_err(|none| format!("{none:?}"))?;
    let stream = line.open(Kind::Api, Class::Normal, Bytes::from_static(b"{}"));
    let mut stream = stream.await.map_err(|error| error.to_string())?;
    let mut answer = String::new();
    let read = stream.read_to_string(&mut answer).await;
    read.map_err(|error| error.to_string())?;
    drop(stream.shutdown().await);
    (answer == "done").then_some(()).ok_or(answer)
}

/// The clock stands while someone dials, and otherwise runs many times as fast as it does outside.
fn hurry(world: &World) -> JoinSet<()> {
    let (dials, tunnels, cluster) = (
        world.dials.clone(),
        world.hub.tunnels.clone(),
        world.cluster.clone(),
    );
    tokio::time::pause();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut newest = 0;
        loop {
            // A task that is always ready keeps the paused clock from advancing by itself. Connections are looked at
            // after so many turns, and what the store's threads do takes time.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            std::thread::sleep(Duration::from_micros(500));
            if let Some(facts) = tunnels.view(&cluster).up {
                newest = facts.epoch;
            }
            // Each dial makes a line.
            if newest == dials.load(Ordering::Relaxed) {
                tokio::time::advance(STEP).await;
            }
        }
    });
    tasks
}

/// L12: short requests never fail behind a proxy that cuts at 30 s, once three lines have shown that it does.
#[tokio::test]
async fn a_line_is_renewed_before_the_age_at_which_something_cuts_it() {
    let world = World::cutting(LIFE).await;
    let mut agent = world.agent();
    agent.up().await;
    let _answering = answering(agent.incoming);
    let _hurry = hurry(&world);
    let known = |world: &World| world.hub.tunnels.view(&world.cluster).up?.cap;
    let started = Instant::now();
    while known(&world).is_none() {
        assert!(started.elapsed() < LIFE * 6, "four lines have time");
        sleep(EVERY).await;
    }
    let facts = world.hub.tunnels.view(&world.cluster).up.unwrap();
    let cap = facts.cap.unwrap();
    assert_eq!(facts.epoch, 4, "the fourth line knows");
    // Where the machine is busy, an end is heard of when the clock has gone one step further.
    assert!(
        cap <= LIFE + STEP && cap + Duration::from_secs(1) >= LIFE,
        "{cap:?}"
    );

    let mut requests = JoinSet::new();
    for _ in 0..300 {
        requests.spawn(request(world.hub.tunnels.clone(), world.cluster.clone()));
        sleep(EVERY).await;
    }
    let failed: Vec<_> = requests
        .join_all()
        .await
        .into_iter()
        .filter_map(Result::err)
        .collect();
    assert_eq!(failed, Vec::<String>::new(), "of 300 requests");
    let epoch = world.line(1).await.facts().epoch;
    assert!((9..=12).contains(&epoch), "a new line each 24 s: {epoch}");
    tokio::time::resume();
    world.end().await;
}

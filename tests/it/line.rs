//! The line between a real hub and a real link: TLS and WebSocket on loopback.

use std::time::{Duration, Instant};

use bytes::Bytes;
use linesman::hub::tunnels::NoLine;
use linesman::keys::{KeyPair, sha256};
use linesman::tunnel::{ClassLoad, Incoming, LineError, LineLoad, Stream};
use linesman::wire::frame::{Class, Code, Kind};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

mod cap;
mod churn;
mod crowd;
mod drained;
mod full;
mod git;
mod later;
mod many;
pub(crate) mod proxy;
mod real;
mod roots;
mod skew;
mod transcript;
mod unread;
mod world;

use world::{PATIENCE, World};

/// Echoes every stream until its end.
fn echo(mut incoming: mpsc::Receiver<Incoming>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut streams = JoinSet::new();
        while let Some(Incoming { stream, .. }) = incoming.recv().await {
            streams.spawn(async move {
                let (mut read, mut write) = tokio::io::split(stream);
                if tokio::io::copy(&mut read, &mut write).await.is_ok() {
                    drop(write.shutdown().await);
                }
            });
        }
    });
    tasks
}

async fn open(line: &linesman::tunnel::Line) -> Stream {
    line.open(Kind::Api, Class::Normal, Bytes::from_static(b"{}"))
        .await
        .unwrap()
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len)
        .map(|n| u8::try_from((n * 31 + seed) % 251).unwrap())
        .collect()
}

/// Sends `data` and reads its echo at the same time.
async fn round_trip(stream: Stream, data: Vec<u8>) -> Vec<u8> {
    let (mut read, mut write) = tokio::io::split(stream);
    let send = async {
        write.write_all(&data).await.unwrap();
        write.shutdown().await.unwrap();
    };
    let mut back = Vec::new();
    let receive = async { read.read_to_end(&mut back).await.unwrap() };
    tokio::join!(send, receive);
    back
}

fn code(error: &std::io::Error) -> Option<Code> {
    error
        .get_ref()?
        .downcast_ref::<LineError>()
        .map(|error| error.code)
}

/// L21, with 2 MiB each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_full_duplex_streams_give_every_byte_back() {
    let world = World::new().await;
    let mut agent = world.agent();
    agent.up().await;
    let _echo = echo(agent.incoming);
    let line = world.line(1).await;
    let mut streams = JoinSet::new();
    for seed in 0..16 {
        let stream = open(&line).await;
        streams.spawn(async move {
            let data = pattern(2 << 20, seed);
            let back = round_trip(stream, data.clone()).await;
            assert_eq!(
                (back.len(), sha256(&back)),
                (data.len(), sha256(&data)),
                "stream {seed}"
            );
        });
    }
    let all = async {
        while let Some(done) = streams.join_next().await {
            done.unwrap();
        }
    };
    timeout(PATIENCE, all).await.expect("all streams complete");
    assert_eq!(line.facts().live, 0);
    world.end().await;
}

/// L50: what a line carries is shown by kind and by class, and a writer that waits for its reader is counted.
#[tokio::test]
async fn a_line_shows_what_it_carries() {
    let world = World::new().await;
    let mut agent = world.agent();
    agent.up().await;
    let line = world.line(1).await;
    let load = || world.hub.tunnels.load(&world.cluster).unwrap().1;
    assert_eq!(load(), LineLoad::default());
    let mut stalled = open(&line).await;
    let _idle = open(&line).await;
    let all = vec![7; 256 << 10];
    drop(timeout(Duration::from_millis(50), stalled.write_all(&all)).await);
    let now = load();
    assert_eq!((now.api, now.git, now.report), (2, 0, 0));
    assert!(now.stalls >= 1, "{now:?}");
    // What arrived was sent: all that a window lets through, the first turn as sparse, the rest as bulk.
    let mut reads = agent.incoming.recv().await.unwrap().stream;
    let mut window = vec![0; 64 << 10];
    timeout(PATIENCE, reads.read_exact(&mut window))
        .await
        .expect("a window's bytes arrive")
        .unwrap();
    let classes = load().classes;
    assert!(
        classes.sparse.sent > 0 && classes.sparse.delay.is_some(),
        "{classes:?}"
    );
    assert!(
        classes.bulk.sent > 0 && classes.bulk.delay.is_some(),
        "{classes:?}"
    );
    assert_eq!(classes.background, ClassLoad::default());
    assert!(
        classes.sparse.sent + classes.bulk.sent >= 64 << 10,
        "{classes:?}"
    );
    drop((stalled, reads, agent.incoming));
    world.end().await;
}

/// L28: what one target does ends its own stream, with its code.
#[tokio::test]
async fn a_reset_reaches_its_stream_only_and_says_why() {
    let world = World::new().await;
    let mut agent = world.agent();
    agent.up().await;
    let line = world.line(1).await;
    let (mut one, mut two) = (open(&line).await, open(&line).await);
    let (first, mut second) = (
        agent.incoming.recv().await.unwrap(),
        agent.incoming.recv().await.unwrap(),
    );
    let cancelled = one.cancelled();
    first.stream.reset(Code::DialRefused, "10.0.0.1:443");
    timeout(PATIENCE, cancelled.cancelled())
        .await
        .expect("the token fires");
    let error = one.read_u8().await.unwrap_err();
    assert_eq!(
        (code(&error), error.to_string()),
        (
            Some(Code::DialRefused),
            "connection refused: 10.0.0.1:443".into()
        )
    );
    second.stream.write_all(b"x").await.unwrap();
    assert_eq!(two.read_u8().await.unwrap(), b'x');
    drop(two);
    let error = timeout(PATIENCE, second.stream.read_u8())
        .await
        .unwrap()
        .unwrap_err();
    assert_eq!(
        code(&error),
        Some(Code::Cancelled),
        "a handle dropped without shutdown resets"
    );
    world.end().await;
}

#[tokio::test]
async fn agents_reach_their_routes_over_the_line() {
    let world = World::new().await;
    let mut agent = world.agent();
    let line = agent.up().await;
    let mut stream = line
        .open(Kind::Report, Class::Normal, Bytes::from_static(b"{}"))
        .await
        .unwrap();
    stream
        .write_all(b"GET /v1/nothing HTTP/1.1\r\nhost: hub\r\n\r\n")
        .await
        .unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut answer))
        .await
        .expect("an answer")
        .unwrap();
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    let mut stream = line
        .open(Kind::State, Class::Background, Bytes::new())
        .await
        .unwrap();
    let error = timeout(PATIENCE, stream.read_u8())
        .await
        .unwrap()
        .unwrap_err();
    assert_eq!(code(&error), Some(Code::Refused));
    world.end().await;
}

#[tokio::test]
async fn the_newest_line_wins() {
    let world = World::new().await;
    let mut old = world.agent();
    let old_line = old.up().await;
    let waiting = open(&world.line(1).await).await;
    let mut new = world.agent();
    new.up().await;
    let line = world.line(2).await;
    let _kept = open(&line).await;
    assert!(
        timeout(PATIENCE, new.incoming.recv())
            .await
            .expect("the new one is asked")
            .is_some()
    );
    assert_eq!(
        timeout(PATIENCE, old_line.draining())
            .await
            .expect("the old one hears")
            .code,
        Code::Superseded
    );
    let ended = timeout(PATIENCE, old_line.closed())
        .await
        .expect("the old line ends");
    assert_eq!(ended.code, Code::Superseded);
    timeout(PATIENCE, waiting.cancelled().cancelled())
        .await
        .expect("its streams end with it");
    world.end().await;
}

/// L41: refused, and on record: a stranger's, and the cluster's own deploy key, which its engine holds as well.
#[tokio::test]
async fn a_key_that_is_not_the_clusters_identity_is_refused() {
    for engines in [false, true] {
        let world = World::new().await;
        let key = if engines {
            world.deploy.clone()
        } else {
            KeyPair::from_seed(&[3; 32])
        };
        let print = key.public().fingerprint();
        let cause = world.agent_as(key).failure().await;
        assert!(
            cause.starts_with("the hub refused the line: unknown cluster"),
            "{cause}"
        );
        assert!(world.hub.tunnels.get(&world.cluster).is_none());
        let rows = world.hub.store.audit_tail(Some("eu1"), 10).await.unwrap();
        let told = rows.iter().map(|r| [&*r.action, &*r.verdict, &*r.target]);
        let attempt = ["line.open", "deny", print.as_str()];
        assert_eq!(told.collect::<Vec<_>>(), [attempt]);
        world.end().await;
    }
}

/// L41
#[tokio::test]
async fn a_removed_cluster_loses_its_line_and_gets_no_other() {
    let world = World::new().await;
    let mut agent = world.agent();
    let line = agent.up().await;
    let record = world
        .hub
        .store
        .cluster(&world.cluster)
        .await
        .unwrap()
        .unwrap();
    world
        .hub
        .store
        .remove_cluster(&record.id, linesman::clock::now())
        .await
        .unwrap();
    world.line(1).await;
    world
        .hub
        .tunnels
        .close(&world.cluster, Code::Revoked, "the cluster was removed");
    let ended = timeout(PATIENCE, line.closed())
        .await
        .expect("the line ends");
    assert_eq!((ended.code, ended.by_peer), (Code::Revoked, true));
    let cause = agent.failure().await;
    assert!(
        cause.starts_with("the hub refused the line: revoked"),
        "{cause}"
    );
    world.end().await;
}

#[tokio::test]
async fn a_cut_line_comes_back_and_requests_wait_for_it() {
    let world = World::new().await;
    let mut agent = world.agent();
    let line = agent.up().await;
    let mut stream = open(&world.line(1).await).await;
    world.cut.send_modify(|cuts| *cuts += 1);
    let error = timeout(PATIENCE, stream.read_u8())
        .await
        .expect("the stream ends")
        .unwrap_err();
    assert_eq!(code(&error), Some(Code::LineLost));
    timeout(PATIENCE, line.closed())
        .await
        .expect("the agent's end ends");
    let parked = world
        .hub
        .tunnels
        .wait(&world.cluster, None, Duration::from_secs(10))
        .await
        .expect("the line is back");
    assert!(parked.facts().epoch >= 2);
    let _kept = open(&parked).await;
    assert!(
        timeout(PATIENCE, agent.incoming.recv())
            .await
            .unwrap()
            .is_some()
    );
    world.end().await;
}

/// L25: a line whose way went silent is not waited for: requests go over the next one at once, and what ran on it ends.
#[tokio::test]
async fn a_frozen_line_is_left_for_the_next_one() {
    let world = World::new().await;
    let mut old = world.agent();
    old.up().await;
    let mut stuck = open(&world.line(1).await).await;
    world.freeze.send_modify(|freezes| *freezes += 1);
    let mut new = world.agent();
    new.up().await;
    let connected = Instant::now();
    let _echo = echo(new.incoming);
    let line = world.line(2).await;
    let data = pattern(1 << 10, 1);
    let back = timeout(PATIENCE, round_trip(open(&line).await, data.clone()));
    assert_eq!(back.await.expect("the new line is asked"), data);
    let took = connected.elapsed();
    println!("figure | L25 | a request on the line after a frozen one | ≤ 1 s | {took:.1?}");
    // The hub gives up the frozen one after 5 s.
    assert!(took < Duration::from_secs(4), "{took:?}");
    let cancelled = stuck.cancelled();
    let ended = timeout(PATIENCE, cancelled.cancelled());
    ended.await.expect("the stream of the old line ends");
    // And not as if its peer had said all: who reads is told that the line went.
    let error = timeout(PATIENCE, stuck.read_u8()).await.unwrap();
    assert_eq!(code(&error.unwrap_err()), Some(Code::LineLost));
    world.end().await;
}

/// A hub that gives each line up as soon as it has let it in is not dialled as fast as it does so.
#[tokio::test]
async fn a_line_that_the_hub_gives_up_is_dialled_again_after_a_pause() {
    let world = World::new().await;
    let mut agent = world.agent();
    agent.up().await;
    let _echo = echo(agent.incoming);
    for epoch in 1..=2 {
        let line = world.line(epoch).await;
        // Where nothing runs, the end may be read along with the reason, and is a loss by itself.
        let _running = open(&line).await;
        let given_up = Instant::now();
        line.goaway(Code::Unavailable, Duration::ZERO, PATIENCE, "ill");
        world.line(epoch + 1).await;
        let took = given_up.elapsed();
        assert!(took >= Duration::from_millis(500), "{took:?}");
    }
    world.end().await;
}

#[tokio::test]
async fn nobody_waits_for_a_cluster_that_never_came() {
    let world = World::new().await;
    let wait = world.hub.tunnels.wait(&world.cluster, None, PATIENCE);
    let waited = timeout(Duration::from_secs(1), wait).await;
    assert_eq!(waited.expect("at once").unwrap_err(), NoLine::Offline);
    world.end().await;
}

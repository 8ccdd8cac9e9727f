//! L29: streams that open, say something and close, thousands in a minute, over a line that breaks again and again. None of them stays,
//! at either end, and nothing grows with their number.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use linesman::agent::link::LinkState;
use linesman::hub::Hub;
use linesman::tunnel::Incoming;
use linesman::wire::frame::{Class, Code, Kind};
use linesman::wire::id::ClusterName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy, split};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, interval_at, sleep, timeout};

use super::world::{PATIENCE, World};
use super::{code, pattern};
use crate::process::{files, resident_kib};
use crate::wait::until;

/// 5,000 in a minute.
const EACH: Duration = Duration::from_millis(12);
/// One of so many is dropped when it has asked, and never hears the answer.
const DROPPED: usize = 10;
const LOOK: Duration = Duration::from_secs(1);
/// As requests of users wait for a line.
const PARKED: Duration = Duration::from_secs(10);
/// How much of this process may come and go with what is under way: files, tasks, KiB.
const SPARE: [u64; 3] = [4, 16, 4 << 10];

/// How a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Echoed,
    Dropped,
    /// The line went.
    Lost,
    /// There was no line, and too many waited for it; or they came all at once when it was there.
    Refused,
}

/// Files, tasks, and memory in KiB of this process, in which both ends are.
type Sample = [u64; 3];

fn sample() -> Sample {
    let (id, tasks) = (std::process::id(), Handle::current().metrics());
    let tasks = tasks.num_alive_tasks().try_into().unwrap();
    [files(id), tasks, resident_kib(id)]
}

/// What came of it.
struct Churned {
    ends: Vec<End>,
    cuts: usize,
    samples: Vec<Sample>,
}

impl Churned {
    fn count(&self, end: End) -> usize {
        self.ends.iter().filter(|seen| **seen == end).count()
    }

    /// The middle of what was seen in that quarter of the time.
    fn quarter(&self, number: usize) -> Sample {
        let len = self.samples.len() / 4;
        let mut seen = self.samples[len * (number - 1)..len * number].to_vec();
        [0, 1, 2].map(|what| {
            seen.sort_by_key(|sample| sample[what]);
            seen[seen.len() / 2][what]
        })
    }
}

/// Echoes each stream, as long as agents come.
async fn echo(mut incoming: mpsc::Receiver<Incoming>) {
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            next = incoming.recv() => {
                let Some(Incoming { stream, .. }) = next else { return };
                open.spawn(async move {
                    let (mut read, mut write) = split(stream);
                    if copy(&mut read, &mut write).await.is_ok() {
                        drop(write.shutdown().await);
                    }
                });
            }
            Some(_) = open.join_next() => {}
        }
    }
}

/// One stream, from its opening to its end.
async fn exchange(hub: Arc<Hub>, cluster: ClusterName, number: usize) -> End {
    let Ok(line) = hub.tunnels.wait(&cluster, None, PARKED).await else {
        return End::Refused;
    };
    let meta = Bytes::from_static(b"{}");
    let Ok(mut stream) = line.open(Kind::Api, Class::Normal, meta).await else {
        return End::Lost;
    };
    let (data, mut back) = (pattern(64, number), Vec::new());
    let exchanged = async {
        stream.write_all(&data).await?;
        if number.is_multiple_of(DROPPED) {
            return Ok(End::Dropped);
        }
        stream.shutdown().await?;
        stream.read_to_end(&mut back).await?;
        Ok::<_, std::io::Error>(End::Echoed)
    };
    match exchanged.await {
        Ok(End::Echoed) => {
            assert_eq!(back, data, "what looks complete is");
            End::Echoed
        }
        Ok(end) => end,
        Err(error) => match code(&error) {
            Some(Code::LineLost) => End::Lost,
            Some(Code::Limit) => End::Refused,
            _ => panic!("{error}"),
        },
    }
}

/// Opens streams at that rate for so long, and cuts the connection each `cut`; waits until the last of them has ended.
async fn churned(time: Duration, cut: Duration) -> Churned {
    let world = World::new().await;
    let mut agent = world.agent();
    agent.up().await;
    let (state, mut serving, mut exchanges) = (agent.state, JoinSet::new(), JoinSet::new());
    serving.spawn(echo(agent.incoming));
    let (mut ends, mut cuts, mut samples, mut opened) = (Vec::new(), 0, Vec::new(), 0);
    let (mut opens, mut looks) = (interval(EACH), interval(LOOK));
    let mut breaks = interval_at(Instant::now() + cut, cut);
    let over = sleep(time);
    tokio::pin!(over);
    loop {
        tokio::select! {
            // In this order each cut is made, however late a busy machine is.
            biased;
            _ = breaks.tick() => {
                world.cut.send_modify(|cuts| *cuts += 1);
                cuts += 1;
            }
            () = &mut over => break,
            _ = opens.tick() => {
                let (hub, cluster) = (world.hub.clone(), world.cluster.clone());
                let exchange = exchange(hub, cluster, opened);
                exchanges.spawn(timeout(PATIENCE, exchange));
                opened += 1;
            }
            _ = looks.tick() => samples.push(sample()),
            Some(end) = exchanges.join_next() => ends.push(end.unwrap().expect("it is stuck")),
        }
    }
    while let Some(end) = exchanges.join_next().await {
        ends.push(end.unwrap().expect("it is stuck"));
    }
    assert_eq!(ends.len(), opened);
    // What was dropped ends a round trip later.
    let none = async || {
        let here = world.line(1).await.facts().live;
        let there = match &*state.borrow() {
            LinkState::Up { line, .. } => line.facts().live,
            LinkState::Down { .. } => return false,
        };
        (here, there) == (0, 0)
    };
    until("no stream is left at either end", PATIENCE, none).await;
    world.end().await;
    Churned {
        ends,
        cuts,
        samples,
    }
}

/// L29, for a few seconds: none is stuck, and none is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_come_and_go_over_a_line_that_breaks() {
    let churned = churned(Duration::from_secs(5), Duration::from_secs(2)).await;
    assert!(churned.cuts >= 2, "{}", churned.cuts);
    let [echoed, dropped] = [End::Echoed, End::Dropped].map(|end| churned.count(end));
    // Of 416, some of which find no line.
    assert!(echoed > 100 && dropped > 10, "{echoed}, {dropped}");
}

/// L29 for as long as it asks for, with figures: `make large`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes ten minutes: make large"]
async fn nothing_grows_in_ten_minutes_of_streams_over_a_line_that_breaks() {
    let given = std::env::var_os("LINESMAN_LARGE_MINUTES");
    let given = given.map(|given| given.to_str().unwrap().parse().unwrap());
    let minutes: u64 = given.unwrap_or(10);
    let churned = churned(Duration::from_mins(minutes), Duration::from_secs(20)).await;
    let (second, last) = (churned.quarter(2), churned.quarter(4));
    let mib = |kib: u64| kib.div_ceil(1 << 10);
    println!(
        "figure | L29 | {} streams in {minutes} minutes, {} cuts of the line ({} lost, {} refused, none stuck): files, tasks, MiB of quarter 2 → of quarter 4 | ±5 % | {} → {}, {} → {}, {} → {}",
        churned.ends.len(),
        churned.cuts,
        churned.count(End::Lost),
        churned.count(End::Refused),
        second[0],
        last[0],
        second[1],
        last[1],
        mib(second[2]),
        mib(last[2]),
    );
    for what in 0..3 {
        let most = second[what] + second[what] / 20 + SPARE[what];
        assert!(last[what] <= most, "{second:?} became {last:?}");
    }
    let echoed = churned.count(End::Echoed);
    assert!(echoed > churned.ends.len() * 3 / 4, "{echoed} were echoed");
}

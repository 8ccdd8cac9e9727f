//! L21 at its full size, which no run of all tests has the time for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use linesman::clock;
use linesman::tunnel::Stream;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::world::World;
use super::{echo, open};

const STREAMS: usize = 16;
const EACH: usize = 1 << 30;
const CHUNK: usize = 64 << 10;
/// A prime, so that no frame is like another at its place.
const PERIOD: usize = 1_000_003;
/// For all of it, on a slow machine.
const LIMIT: Duration = Duration::from_hours(1);

/// Endless bytes of which any piece can be looked at.
struct Noise(Vec<u8>);

impl Noise {
    fn new() -> Self {
        let mut state = u64::from_le_bytes(clock::random()) | 1;
        let mut bytes: Vec<u8> = (0..PERIOD)
            .map(|_| {
                // xorshift64
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state.to_le_bytes()[0]
            })
            .collect();
        bytes.extend_from_within(..CHUNK);
        Self(bytes)
    }

    fn at(&self, place: usize, len: usize) -> &[u8] {
        let from = place % PERIOD;
        &self.0[from..from + len]
    }
}

/// Sends [`EACH`] bytes from `seed` on and compares what comes back, as both go.
async fn there_and_back(stream: Stream, noise: Arc<Noise>, seed: usize) -> usize {
    let (mut read, mut write) = tokio::io::split(stream);
    let sends = noise.clone();
    let out = async {
        for place in (0..EACH).step_by(CHUNK) {
            write
                .write_all(sends.at(seed + place, CHUNK))
                .await
                .unwrap();
        }
        write.shutdown().await.unwrap();
    };
    let compare = async {
        let (mut back, mut buffer) = (0, vec![0; CHUNK]);
        while let len @ 1.. = read.read(&mut buffer).await.unwrap() {
            let same = buffer[..len] == *noise.at(seed + back, len);
            assert!(same, "stream {seed}: other bytes behind {back}");
            back += len;
        }
        back
    };
    tokio::join!(out, compare).1
}

/// L21, with figures: `make large`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "sixteen gibibytes there and back: make large"]
async fn a_gibibyte_on_each_of_sixteen_streams_comes_back() {
    let world = World::new().await;
    let mut agent = world.agent();
    agent.up().await;
    let _echo = echo(agent.incoming);
    let line = world.line(1).await;
    let noise = Arc::new(Noise::new());
    let (mut streams, began) = (JoinSet::new(), Instant::now());
    for seed in 0..STREAMS {
        streams.spawn(there_and_back(open(&line).await, noise.clone(), seed));
    }
    let all = timeout(LIMIT, streams.join_all()).await;
    let took = began.elapsed();
    assert_eq!(all.expect("all streams complete"), [EACH; STREAMS]);
    assert_eq!((line.facts().live, line.facts().epoch), (0, 1));
    let seconds = took.as_secs_f64();
    let rate = f64::from(u32::try_from((STREAMS * EACH) >> 20).unwrap()) / seconds;
    println!(
        "figure | L21 | full-duplex echo of 1 GiB on each of {STREAMS} streams | equal | all equal, {seconds:.0} s, {rate:.0} MiB/s each way"
    );
    world.end().await;
}

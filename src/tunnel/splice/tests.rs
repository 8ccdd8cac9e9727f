//! An entry and an agent with an owner between them that splices, on a clock that the tests move.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use time::OffsetDateTime;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::clock::Steady;
use crate::tunnel::driver::{self, Identity, Line, Socket};
use crate::tunnel::session::{Config, Role};
use crate::tunnel::{Incoming, LineError};
use crate::wire::frame::{Class, Kind};

/// Longer than anything here takes on its own clock.
const PATIENCE: Duration = Duration::from_mins(10);

/// Entry, owner and agent.
struct Chain {
    entry: Line,
    arriving: mpsc::Receiver<Incoming>,
    to_agent: Line,
    agent: mpsc::Receiver<Incoming>,
    tasks: JoinSet<()>,
    /// Ends the entry's process, and the agent's.
    cuts: [CancellationToken; 2],
}

fn end(
    tasks: &mut JoinSet<()>,
    io: DuplexStream,
    role: Role,
    cut: &CancellationToken,
) -> (Line, mpsc::Receiver<Incoming>) {
    let identity = Identity {
        epoch: 1,
        session: String::new(),
        remote: String::new(),
        instance: String::new(),
        since: OffsetDateTime::UNIX_EPOCH,
        hub_clock: Steady::new(0, driver::now()),
        cap: None,
    };
    let (streams, incoming) = mpsc::channel(16);
    let socket = Socket::new(io, role, Bytes::new());
    let stop = CancellationToken::new();
    let (line, run) = driver::line(socket, Config::new(role), identity, streams, stop);
    let cut = cut.clone();
    tasks.spawn(async move {
        // Dropping the future drops the connection: as when the process is gone.
        drop(cut.run_until_cancelled(run).await);
    });
    (line, incoming)
}

impl Chain {
    fn new() -> Self {
        let mut tasks = JoinSet::new();
        let cuts = [CancellationToken::new(), CancellationToken::new()];
        let (a, b) = duplex(4 << 10);
        let (entry, _) = end(&mut tasks, a, Role::Agent, &cuts[0]);
        let (_, arriving) = end(&mut tasks, b, Role::Hub, &CancellationToken::new());
        let (c, d) = duplex(4 << 10);
        let (to_agent, _) = end(&mut tasks, c, Role::Hub, &CancellationToken::new());
        let (_, agent) = end(&mut tasks, d, Role::Agent, &cuts[1]);
        Self {
            entry,
            arriving,
            to_agent,
            agent,
            tasks,
            cuts,
        }
    }

    /// Both ends of a stream through the owner.
    async fn stream(&mut self) -> (Stream, Stream) {
        let meta = Bytes::from_static(b"{}");
        let near = self.entry.open(Kind::Api, Class::Normal, meta.clone());
        let near = near.await.unwrap();
        let arrived = self.arriving.recv().await.unwrap();
        let (kind, class) = (arrived.kind, arrived.class);
        let far = self.to_agent.open(kind, class, meta).await.unwrap();
        self.tasks.spawn(async move {
            drop(splice(arrived.stream, far).await);
        });
        (near, self.agent.recv().await.unwrap().stream)
    }
}

async fn failed(stream: &Stream) -> LineError {
    let cancelled = stream.cancelled();
    timeout(PATIENCE, cancelled.cancelled()).await.unwrap();
    stream.failure().unwrap()
}

/// Bytes that tell their place.
fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len)
        .map(|n| u8::try_from((n.wrapping_mul(31) ^ (n >> 8) ^ seed) & 0xff).unwrap())
        .collect()
}

/// Writes all of it in pieces of `piece` with a pause after each, and says FIN.
async fn give(
    stream: &mut (impl tokio::io::AsyncWrite + Unpin),
    data: &[u8],
    piece: usize,
    pause: u64,
) {
    for part in data.chunks(piece) {
        stream.write_all(part).await.unwrap();
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
    stream.shutdown().await.unwrap();
}

/// Reads to the end in pieces.
async fn take(
    stream: &mut (impl tokio::io::AsyncRead + Unpin),
    piece: usize,
    pause: u64,
) -> Vec<u8> {
    let (mut all, mut space) = (Vec::new(), vec![0; piece]);
    loop {
        let len = stream.read(&mut space).await.unwrap();
        if len == 0 {
            return all;
        }
        all.extend_from_slice(&space[..len]);
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Both directions at once, each end at its own pace: nothing is lost, doubled or out of order, and each direction's
    /// end is its own.
    #[test]
    fn every_byte_arrives_once_and_in_order(
        lengths in [0_usize..300_000, 0_usize..300_000],
        pieces in [1_000_usize..70_000, 1_000_usize..70_000, 1_000_usize..70_000, 1_000_usize..70_000],
        pauses in [0_u64..20, 0_u64..20, 0_u64..20, 0_u64..20],
    ) {
        let [there, back] = [bytes(lengths[0], 0), bytes(lengths[1], 5)];
        paused(async {
            let mut chain = Chain::new();
            let (near, far) = chain.stream().await;
            let (mut near_reads, mut near_writes) = tokio::io::split(near);
            let (mut far_reads, mut far_writes) = tokio::io::split(far);
            let ((), at_far, (), at_near) = tokio::join!(
                give(&mut near_writes, &there, pieces[0], pauses[0]),
                take(&mut far_reads, pieces[1], pauses[1]),
                give(&mut far_writes, &back, pieces[2], pauses[2]),
                take(&mut near_reads, pieces[3], pauses[3]),
            );
            assert!(at_far == there, "there");
            assert!(at_near == back, "back");
        });
    }

    /// Wherever a stream is cut by RST, what came before is a beginning of what was sent, and the code is the sender's.
    #[test]
    fn a_reset_keeps_its_code_at_any_byte(
        sent in 0_usize..200_000, code in 1_u16..40, by_agent: bool, read in 0_usize..200_000,
    ) {
        let data = bytes(sent, 3);
        // Not said on the wire by the end of a line.
        let code = if code == 8 { 1 } else { code };
        paused(async {
            let mut chain = Chain::new();
            let (near, far) = chain.stream().await;
            let (mut one, mut other) = if by_agent { (far, near) } else { (near, far) };
            let writing = async {
                drop(timeout(Duration::from_secs(1), one.write_all(&data)).await);
                one.reset(code.into(), "why");
            };
            let reading = async {
                let (mut all, mut space) = (Vec::new(), [0; 7_000]);
                while all.len() < read {
                    match other.read(&mut space).await {
                        Ok(len) => all.extend_from_slice(&space[..len]),
                        Err(_) => break,
                    }
                }
                (failed(&other).await, all)
            };
            let ((), (error, got)) = tokio::join!(writing, reading);
            assert_eq!(error, LineError::new(code.into(), "why"));
            assert!(data.starts_with(&got));
        });
    }
}

/// Runs on a clock of its own.
fn paused(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async { timeout(PATIENCE, work).await.expect("it comes to an end") });
}

/// L3: a process that reads its input to the end answers behind that.
#[tokio::test(start_paused = true)]
async fn half_close_stays_half_close() {
    let mut chain = Chain::new();
    let (mut near, mut far) = chain.stream().await;
    near.write_all(b"input").await.unwrap();
    near.shutdown().await.unwrap();
    let mut input = Vec::new();
    far.read_to_end(&mut input).await.unwrap();
    far.write_all(b"output").await.unwrap();
    far.shutdown().await.unwrap();
    let mut output = Vec::new();
    near.read_to_end(&mut output).await.unwrap();
    assert_eq!((&input[..], &output[..]), (&b"input"[..], &b"output"[..]));
}

/// L5: an answer that comes before the whole request is not lost with the rest of that.
#[tokio::test(start_paused = true)]
async fn stop_is_told_to_the_other_end_and_its_answer_arrives() {
    let mut chain = Chain::new();
    let (mut near, mut far) = chain.stream().await;
    near.write_all(b"a long upload").await.unwrap();
    far.read_exact(&mut [0; 6]).await.unwrap();
    far.stop(Code::None);
    let muted = near.muted();
    let told = async {
        while !muted() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, told).await.unwrap();
    far.write_all(b"too large").await.unwrap();
    far.shutdown().await.unwrap();
    let mut answer = String::new();
    near.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "too large");
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_goes_away_stops_the_source_and_not_its_own_request() {
    let mut chain = Chain::new();
    let (mut near, mut far) = chain.stream().await;
    near.write_all(b"watch").await.unwrap();
    near.shutdown().await.unwrap();
    far.write_all(&[0; 1000]).await.unwrap();
    near.read_exact(&mut [0; 1000]).await.unwrap();
    drop(near);
    let muted = far.muted();
    let told = async {
        while !muted() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, told).await.unwrap();
    let mut request = String::new();
    far.read_to_string(&mut request).await.unwrap();
    assert_eq!((request.as_str(), far.failure()), ("watch", None));
}

/// L8, L9: what each end hears of the loss of a line.
#[tokio::test(start_paused = true)]
async fn the_loss_of_either_line_reaches_the_other_end() {
    let mut chain = Chain::new();
    let (_near, far) = chain.stream().await;
    chain.cuts[0].cancel();
    assert_eq!(failed(&far).await.code, Code::Cancelled);
    let mut chain = Chain::new();
    let (near, _far) = chain.stream().await;
    chain.cuts[1].cancel();
    assert_eq!(failed(&near).await.code, Code::LineLost);
}

/// L9, the other way round: an answer that is complete stays so, whatever becomes of its line behind it.
#[tokio::test(start_paused = true)]
async fn a_complete_answer_outlives_its_line() {
    let mut chain = Chain::new();
    let (mut near, mut far) = chain.stream().await;
    let sent = bytes(200_000, 1);
    let reading = async {
        let mut space = vec![0; 100_000];
        near.read_exact(&mut space).await.unwrap();
        tokio::time::sleep(Duration::from_secs(5)).await;
        let mut rest = Vec::new();
        near.read_to_end(&mut rest).await.unwrap();
        space.extend(rest);
        space
    };
    let writing = async {
        far.write_all(&sent).await.unwrap();
        far.shutdown().await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        chain.cuts[1].cancel();
    };
    let (got, ()) = tokio::join!(reading, writing);
    assert!(got == sent);
}

/// L23: what nobody reads is held up where it comes from, and others go on.
#[tokio::test(start_paused = true)]
async fn an_unread_stream_holds_up_its_source_and_nobody_else() {
    let mut chain = Chain::new();
    let (near, mut far) = chain.stream().await;
    let written = Arc::new(Mutex::new(0));
    let count = written.clone();
    chain.tasks.spawn(async move {
        let piece = [0; 4 << 10];
        while far.write_all(&piece).await.is_ok() {
            *count.lock().unwrap() += piece.len();
        }
    });
    let (mut other, mut answer) = chain.stream().await;
    for _ in 0..100 {
        other.write_all(b"ping").await.unwrap();
        answer.read_exact(&mut [0; 4]).await.unwrap();
        answer.write_all(b"pong").await.unwrap();
        other.read_exact(&mut [0; 4]).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // A window of each line, and what the agent has queued.
    let most = 4 * (64 << 10);
    let taken = *written.lock().unwrap();
    assert!(taken <= most, "{taken}");
    drop(near);
}

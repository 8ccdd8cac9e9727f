//! Two lines over a connection in memory, on a clock that the tests move.

use bytes::BytesMut;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex, split};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::super::session::Role;
use super::*;
use crate::wire::frame::{self, Frame};

mod isolation;
mod stopped;
mod turns;

/// Streams that wait to be taken, as at an agent.
const INCOMING: usize = 4_096;

/// Two ends of a running line, with what carries the bytes between them.
struct Pair {
    hub: Line,
    agent: Line,
    /// Streams that the hub opened.
    incoming: mpsc::Receiver<Incoming>,
    /// Streams that the agent opened.
    from_agent: mpsc::Receiver<Incoming>,
    tasks: JoinSet<()>,
}

fn identity() -> Identity {
    Identity {
        epoch: 1,
        session: String::new(),
        remote: String::new(),
        instance: String::new(),
        since: OffsetDateTime::UNIX_EPOCH,
        hub_clock: Steady::new(0, now()),
        cap: None,
    }
}

impl Pair {
    /// `relay` moves bytes between the two connections until it cuts them.
    fn new<R, F>(relay: R) -> Self
    where
        R: FnOnce(DuplexStream, DuplexStream) -> F,
        F: Future<Output = ()> + Send + 'static,
    {
        let (hub_io, one) = duplex(16 << 10);
        let (agent_io, other) = duplex(16 << 10);
        let mut tasks = JoinSet::new();
        tasks.spawn(relay(one, other));
        let mut end = |io, role, streams| {
            let socket = Socket::new(io, role, Bytes::new());
            let (line, run) = line(
                socket,
                Config::new(role),
                identity(),
                streams,
                CancellationToken::new(),
            );
            tasks.spawn(async move { drop(run.await) });
            line
        };
        let (streams, incoming) = mpsc::channel(INCOMING);
        let agent = end(agent_io, Role::Agent, streams);
        let (streams, from_agent) = mpsc::channel(INCOMING);
        let hub = end(hub_io, Role::Hub, streams);
        Self {
            hub,
            agent,
            incoming,
            from_agent,
            tasks,
        }
    }

    /// Takes the streams that arrive at either end.
    fn split(&mut self) -> [mpsc::Receiver<Incoming>; 2] {
        let none = || mpsc::channel(1).1;
        [
            std::mem::replace(&mut self.incoming, none()),
            std::mem::replace(&mut self.from_agent, none()),
        ]
    }

    async fn stream(&mut self) -> (Stream, Stream) {
        let open = self.hub.open(Kind::Api, Class::Normal, Bytes::new());
        let ours = open.await.unwrap();
        (ours, self.incoming.recv().await.unwrap().stream)
    }
}

/// Cuts a connection that carries nothing for `idle`, in either direction.
async fn balancer(mut one: DuplexStream, mut other: DuplexStream, idle: Duration) {
    let (mut here, mut there) = ([0; 4096], [0; 4096]);
    loop {
        let passed = async {
            tokio::select! {
                len = one.read(&mut here) => (len, true),
                len = other.read(&mut there) => (len, false),
            }
        };
        match timeout(idle, passed).await {
            Ok((Ok(len @ 1..), true)) => other.write_all(&here[..len]).await.unwrap(),
            Ok((Ok(len @ 1..), false)) => one.write_all(&there[..len]).await.unwrap(),
            _ => return,
        }
    }
}

/// Carries `rate` bytes a second in each direction.
async fn narrow(one: DuplexStream, other: DuplexStream, rate: usize) {
    let (one, other) = (split(one), split(other));
    let way = async |mut from: tokio::io::ReadHalf<DuplexStream>,
                     mut to: tokio::io::WriteHalf<DuplexStream>| {
        let mut buffer = vec![0; rate / 20];
        while let Ok(len @ 1..) = from.read(&mut buffer).await {
            let micros = u64::try_from(len * 1_000_000 / rate).unwrap();
            sleep(Duration::from_micros(micros)).await;
            if to.write_all(&buffer[..len]).await.is_err() {
                return;
            }
        }
    };
    tokio::join!(way(one.0, other.1), way(other.0, one.1));
}

/// Carries `rate` bytes a second in each direction, each `delay` long, with a queue of 20 ms before it.
async fn long(one: DuplexStream, other: DuplexStream, rate: u32, delay: Duration) {
    let (one, other) = (split(one), split(other));
    let way = async |mut from: tokio::io::ReadHalf<DuplexStream>,
                     mut to: tokio::io::WriteHalf<DuplexStream>| {
        let (queue, mut arriving) = mpsc::unbounded_channel::<(Instant, Bytes)>();
        let sent = async {
            let mut free = Instant::now();
            let mut buffer = vec![0; 64 << 10];
            while let Ok(len @ 1..) = from.read(&mut buffer).await {
                let passes = f64::from(u32::try_from(len).unwrap()) / f64::from(rate);
                free = free.max(Instant::now()) + Duration::from_secs_f64(passes);
                let bytes = Bytes::copy_from_slice(&buffer[..len]);
                if queue.send((free + delay, bytes)).is_err() {
                    return;
                }
                tokio::time::sleep_until(free - Duration::from_millis(20)).await;
            }
            drop(queue);
        };
        let arrives = async {
            while let Some((at, bytes)) = arriving.recv().await {
                tokio::time::sleep_until(at).await;
                if to.write_all(&bytes).await.is_err() {
                    return;
                }
            }
        };
        tokio::join!(sent, arrives);
    };
    tokio::join!(way(one.0, other.1), way(other.0, one.1));
}

/// L33: within 5 s one stream has 80 % of a path of 1 Gbit/s and 100 ms, in either direction.
#[tokio::test(start_paused = true)]
async fn one_stream_fills_a_long_fast_path() {
    const RATE: u32 = 125_000_000;
    for to_hub in [true, false] {
        let half = Duration::from_millis(50);
        let mut pair = Pair::new(|one, other| long(one, other, RATE, half));
        let (ours, theirs) = pair.stream().await;
        let (mut reader, mut writer) = if to_hub {
            (ours, theirs)
        } else {
            (theirs, ours)
        };
        pair.tasks.spawn(async move {
            let chunk = vec![5; 64 << 10];
            while writer.write_all(&chunk).await.is_ok() {}
        });
        let (start, mut buffer) = (Instant::now(), vec![0; 64 << 10]);
        let mut carried = [0_usize; 5];
        while start.elapsed() < Duration::from_secs(5) {
            let len = reader.read(&mut buffer).await.unwrap();
            let second = usize::try_from(start.elapsed().as_secs()).unwrap();
            carried[second.min(4)] += len;
        }
        let last = carried[4] * 100 / usize::try_from(RATE).unwrap();
        assert!(last >= 80, "{last} %; bytes each second: {carried:?}");
    }
}

/// L12: the PING of an idle line comes before the patience of what stands between.
#[tokio::test(start_paused = true)]
async fn an_idle_line_outlives_a_balancer_that_cuts_idle_connections() {
    for seconds in [60, 15] {
        let mut pair = Pair::new(|one, other| balancer(one, other, Duration::from_secs(seconds)));
        let ended = timeout(Duration::from_mins(10), pair.hub.closed()).await;
        assert!(ended.is_err(), "{ended:?}");
        let (mut ours, mut theirs) = pair.stream().await;
        ours.write_all(b"still there").await.unwrap();
        let mut text = [0; 11];
        theirs.read_exact(&mut text).await.unwrap();
        assert_eq!(&text, b"still there");
        assert!(pair.hub.facts().rtt.is_some(), "and the way is measured");
    }
}

/// Open, and nothing passes.
async fn dead(one: DuplexStream, other: DuplexStream) {
    std::future::pending::<()>().await;
    drop((one, other));
}

/// L13
#[tokio::test(start_paused = true)]
async fn both_ends_know_of_a_path_that_went_dead_within_25_s() {
    let start = Instant::now();
    let pair = Pair::new(dead);
    for line in [&pair.hub, &pair.agent] {
        let ended = timeout(Duration::from_secs(26), line.closed())
            .await
            .unwrap();
        assert_eq!(ended.code, Code::LineLost);
    }
    assert!(start.elapsed() <= Duration::from_secs(25));
}

/// L13: so does whoever runs one of them. The connection takes a goodbye, but the peer never answers it.
#[tokio::test(start_paused = true)]
async fn who_runs_a_line_is_told_of_a_dead_path_within_25_s() {
    for role in [Role::Hub, Role::Agent] {
        let start = Instant::now();
        let (io, _silent) = duplex(16 << 10);
        let (streams, _incoming) = mpsc::channel(INCOMING);
        let (_line, run) = line(
            Socket::new(io, role, Bytes::new()),
            Config::new(role),
            identity(),
            streams,
            CancellationToken::new(),
        );
        let ended = run.await;
        assert_eq!(ended.code, Code::LineLost);
        let took = start.elapsed();
        assert!(took < Duration::from_secs(25), "{took:?}");
    }
}

/// L13: what still waits to be sent keeps neither end from seeing it, nor from ending a drained line.
#[tokio::test(start_paused = true)]
async fn a_dead_path_is_seen_by_an_end_that_is_sending() {
    for drained in [false, true] {
        let pair = Pair::new(dead);
        let start = Instant::now();
        let open = pair.hub.open(Kind::Api, Class::Normal, Bytes::new());
        let mut stream = open.await.unwrap();
        let all = vec![7; 1 << 20];
        let written = timeout(Duration::from_secs(1), stream.write_all(&all)).await;
        assert!(written.is_err(), "nobody takes it");
        if drained {
            let limit = Duration::from_secs(5);
            pair.hub
                .goaway(Code::Draining, Duration::ZERO, limit, "the hub stops");
        }
        let ended = timeout(Duration::from_secs(30), pair.hub.closed()).await;
        let ended = ended.expect("the line ends");
        let (code, most) = if drained {
            (Code::Draining, 1 + 5 + 10)
        } else {
            (Code::LineLost, 25)
        };
        assert_eq!(ended.code, code, "{ended:?}");
        let took = start.elapsed();
        assert!(took <= Duration::from_secs(most), "{took:?}");
    }
}

/// L26: a message that takes long to arrive is a sign of life all the way, and nobody waits behind a long queue.
#[tokio::test(start_paused = true)]
async fn a_saturated_narrow_path_is_never_dead_and_lets_echoes_pass() {
    let mut pair = Pair::new(|one, other| narrow(one, other, 40_000));
    let (mut bulk, mut source) = pair.stream().await;
    pair.tasks.spawn(async move {
        let chunk = vec![5; 65_536];
        while source.write_all(&chunk).await.is_ok() {}
    });
    let (mut echo, mut far) = pair.stream().await;
    pair.tasks.spawn(async move {
        let mut buffer = [0; 64];
        while far.read_exact(&mut buffer).await.is_ok() && far.write_all(&buffer).await.is_ok() {}
    });
    pair.tasks.spawn(async move {
        let mut buffer = vec![0; 65_536];
        while bulk.read(&mut buffer).await.is_ok_and(|len| len > 0) {}
    });
    let start = Instant::now();
    let mut slowest = Duration::ZERO;
    while start.elapsed() < Duration::from_mins(10) {
        sleep(Duration::from_secs(5)).await;
        let sent = Instant::now();
        echo.write_all(&[1; 64]).await.unwrap();
        echo.read_exact(&mut [0; 64]).await.unwrap();
        // The first seconds measure the path.
        if start.elapsed() > Duration::from_secs(30) {
            slowest = slowest.max(sent.elapsed());
        }
    }
    assert!(pair.hub.takes_streams() && pair.agent.takes_streams());
    assert!(slowest < Duration::from_millis(1500), "{slowest:?}");
    let carried = pair.hub.facts().received;
    assert!(carried > 22_000_000, "{carried} of 24,000,000 possible");
}

/// What a hub's end of a line answers to these bytes, up to its close with `code`.
async fn answered(bytes: &[u8], code: u16) -> (Ended, Vec<u8>) {
    let (io, mut peer) = duplex(16 << 10);
    let socket = Socket::new(io, Role::Hub, Bytes::new());
    let stop = CancellationToken::new();
    let streams = mpsc::channel(1).0;
    let (_line, run) = line(socket, Config::new(Role::Hub), identity(), streams, stop);
    peer.write_all(bytes).await.unwrap();
    let close = [&[0x88, 2][..], &code.to_be_bytes()].concat();
    let watch = async {
        let mut answer = Vec::new();
        while !answer.windows(4).any(|part| part == close) {
            assert!(peer.read_buf(&mut answer).await.unwrap() > 0, "{answer:x?}");
        }
        drop(peer);
        answer
    };
    tokio::join!(run, watch)
}

/// L46
#[tokio::test]
async fn broken_framing_is_answered_with_its_close_code() {
    for (bytes, code) in [
        (&[0x81, 0x81, 0, 0, 0, 0, b'a'][..], 1002_u16),
        (&[0x82, 1, 0], 1002),
        (&[0x82, 0xff, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0], 1009),
    ] {
        let (ended, _) = answered(bytes, code).await;
        assert_eq!(ended.code, Code::Protocol);
    }
}

/// L32: a line error is said in a GOAWAY, and then the connection is closed with 1002.
#[tokio::test]
async fn a_line_error_is_told_and_closed_with_its_code() {
    let open = |id: u8| vec![0x10, 0, 0, 0, 6, 0, 0, 0, id, 2, 0, 0, 1, 0, 0];
    for (what, message, text) in [
        ("the wrong parity", open(4), "OPEN of stream 4"),
        (
            "an id that does not rise",
            [open(3), open(1)].concat(),
            "OPEN of stream 1",
        ),
        (
            "DATA on a stream never opened",
            vec![0x11, 0, 0, 0, 1, 0, 0, 0, 1, 0],
            "frame for stream 1, which was never opened",
        ),
    ] {
        let len = 0x80 | u8::try_from(message.len()).unwrap();
        let bytes = [&[0x82, len, 0, 0, 0, 0][..], &message].concat();
        let (ended, answer) = answered(&bytes, 1002).await;
        assert_eq!((ended.code, ended.text.as_str()), (Code::Protocol, text));
        let goaway = Frame::Goaway(Goaway {
            code: Code::Protocol,
            retry_after_ms: 0,
            drain_ms: 0,
            text: text.to_owned(),
        });
        let mut wanted = BytesMut::new();
        frame::encode(&goaway, &mut wanted);
        let told = answer.windows(wanted.len()).any(|part| part == wanted);
        assert!(told, "{what}: {answer:x?}");
    }
}

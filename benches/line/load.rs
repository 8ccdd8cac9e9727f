//! What the ends do: the agent's side serves, the hub's side asks and measures.
//!
//! A stream begins with one byte that names the service: `d` an endless download, `u` an upload that is thrown
//! away, `x` both at once, `t` an endless download of 16 bytes at a time, `e` an echo, `s` what this process has used so far.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::counts::{jain, moved, percentiles};
use crate::end::Opener;
use crate::machine::{self, Used};

const CHUNK: usize = 64 << 10;
const TINY: usize = 16;
const WARM: Duration = Duration::from_millis(500);
/// On a long way windows take this long to grow.
const LATE: Duration = Duration::from_secs(4);
/// A single echo beyond this counts as stuck.
const STUCK: Duration = Duration::from_secs(10);

pub(crate) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}
pub(crate) type Duplex = Box<dyn Io>;
pub(crate) type Figures = BTreeMap<String, f64>;

/// Serves one stream; how it ends is the other side's business.
pub(crate) async fn serve(mut stream: Duplex) {
    let Ok(service) = stream.read_u8().await else {
        return;
    };
    let chunk = vec![0x5a; CHUNK];
    match service {
        b'd' => while stream.write_all(&chunk).await.is_ok() {},
        b'u' => {
            let mut buffer = chunk;
            while stream.read(&mut buffer).await.is_ok_and(|len| len > 0) {}
        }
        b't' => {
            while stream.write_all(&chunk[..TINY]).await.is_ok() && stream.flush().await.is_ok() {}
        }
        b'x' => {
            let (mut read, mut write) = tokio::io::split(stream);
            let mut buffer = vec![0; CHUNK];
            let gives = async { while write.write_all(&chunk).await.is_ok() {} };
            let takes = async { while read.read(&mut buffer).await.is_ok_and(|len| len > 0) {} };
            tokio::join!(gives, takes);
        }
        b'e' => {
            let mut buffer = [0; 4096];
            while let Ok(len @ 1..) = stream.read(&mut buffer).await {
                if stream.write_all(&buffer[..len]).await.is_err() || stream.flush().await.is_err()
                {
                    return;
                }
            }
            drop(stream.shutdown().await);
        }
        _ => {
            let used = serde_json::to_vec(&machine::used()).unwrap();
            drop(stream.write_all(&used).await);
            drop(stream.shutdown().await);
        }
    }
}

/// Runs `scenario` on streams of `opener`.
pub(crate) async fn run(opener: Arc<Opener>, scenario: &[String]) -> Figures {
    let number = |at: usize| {
        scenario
            .get(at)
            .map_or(0, |word| word.parse::<u64>().unwrap())
    };
    let load = Load { opener };
    match scenario[0].as_str() {
        "download" => load.throughput(b'd', number(1), WARM, number(2)).await,
        "upload" => load.throughput(b'u', number(1), WARM, number(2)).await,
        "late-download" => load.throughput(b'd', number(1), LATE, number(2)).await,
        "late-upload" => load.throughput(b'u', number(1), LATE, number(2)).await,
        "duplex" => load.throughput(b'x', number(1), WARM, number(2)).await,
        "echo" => load.echo(number(1), number(2)).await,
        "tiny" => load.tiny(number(1), number(2)).await,
        "slow" => load.slow(number(1), number(2)).await,
        "openclose" => load.open_close(number(1), number(2)).await,
        "cancels" => load.cancels(number(1)).await,
        other => panic!("no such scenario: {other}"),
    }
}

/// What lines cost on which nothing happens: memory of both ends, and the hub's processor over 12 s, in which
/// each line has its PING.
pub(crate) async fn idle(opener: Arc<Opener>, before: Used, lines: usize, up: Duration) -> Figures {
    let load = Load { opener };
    sleep(Duration::from_secs(2)).await;
    let start = machine::used();
    let span = Duration::from_secs(12);
    sleep(span).await;
    let (hub, agent) = (machine::used(), load.agent().await);
    let each = |kib: f64| kib / lines as f64;
    Figures::from([
        ("KiB a line, hub".into(), each(hub.rss_kib - before.rss_kib)),
        ("KiB a line, agents".into(), each(agent.rss_kib)),
        ("hub MB".into(), hub.rss_kib / 1024.0),
        (
            "% of a core".into(),
            (hub.cpu_ns - start.cpu_ns) / span.as_secs_f64() / 1e7,
        ),
        ("s until all are up".into(), up.as_secs_f64()),
    ])
}

struct Load {
    opener: Arc<Opener>,
}

async fn takes(mut read: impl AsyncRead + Unpin, count: Arc<AtomicU64>) {
    let mut buffer = vec![0; CHUNK];
    while let Ok(moved @ 1..) = read.read(&mut buffer).await {
        count.fetch_add(u64::try_from(moved).unwrap(), Ordering::Relaxed);
    }
}

async fn gives(mut write: impl AsyncWrite + Unpin, count: Arc<AtomicU64>) {
    let buffer = vec![0x5a; CHUNK];
    while let Ok(moved @ 1..) = write.write(&buffer).await {
        count.fetch_add(u64::try_from(moved).unwrap(), Ordering::Relaxed);
    }
}

/// Streams that move bytes for as long as this lives.
struct Bulk {
    /// Ends with this.
    tasks: JoinSet<()>,
    counts: Vec<Arc<AtomicU64>>,
}

impl Bulk {
    fn counts(&self) -> Vec<u64> {
        self.counts
            .iter()
            .map(|count| count.load(Ordering::Relaxed))
            .collect()
    }
}

impl Load {
    /// A line whose memory is full takes no stream for some seconds.
    async fn open(&self, service: u8) -> Duplex {
        let start = Instant::now();
        loop {
            match self.try_open(service).await {
                Ok(stream) => return stream,
                Err(error) => assert!(start.elapsed() < STUCK, "{error}"),
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    async fn try_open(&self, service: u8) -> std::io::Result<Duplex> {
        let mut stream = self.opener.open().await?;
        stream.write_all(&[service]).await?;
        stream.flush().await?;
        Ok(stream)
    }

    async fn agent(&self) -> Used {
        let mut text = Vec::new();
        let mut stream = self.open(b's').await;
        stream.read_to_end(&mut text).await.unwrap();
        serde_json::from_slice(&text).unwrap()
    }

    async fn bulk(&self, service: u8, streams: u64) -> Bulk {
        let mut bulk = Bulk {
            tasks: JoinSet::new(),
            counts: vec![],
        };
        for _ in 0..streams {
            let mut stream = self.open(service).await;
            let count = Arc::new(AtomicU64::new(0));
            bulk.counts.push(count.clone());
            if service == b'x' {
                let (read, write) = tokio::io::split(stream);
                bulk.tasks.spawn(takes(read, count.clone()));
                bulk.tasks.spawn(gives(write, count));
                continue;
            }
            bulk.tasks.spawn(async move {
                let mut buffer = vec![0x5a; CHUNK];
                loop {
                    let moved = if service == b'u' {
                        stream.write(&buffer).await
                    } else {
                        stream.read(&mut buffer).await
                    };
                    let Ok(moved @ 1..) = moved else { return };
                    count.fetch_add(u64::try_from(moved).unwrap(), Ordering::Relaxed);
                }
            });
        }
        bulk
    }

    async fn throughput(&self, service: u8, streams: u64, warm: Duration, seconds: u64) -> Figures {
        let bulk = self.bulk(service, streams).await;
        sleep(warm).await;
        let (hub, agent) = (machine::used(), self.agent().await);
        let (before, start) = (bulk.counts(), Instant::now());
        sleep(Duration::from_secs(seconds)).await;
        let (after, span) = (bulk.counts(), start.elapsed().as_secs_f64());
        let (hub_after, agent_after) = (machine::used(), self.agent().await);
        let moved = moved(&before, &after);
        let sum: f64 = moved.iter().sum();
        Figures::from([
            ("MB/s".into(), sum / span / 1e6),
            (
                "hub ns/KB".into(),
                (hub_after.cpu_ns - hub.cpu_ns) / sum * 1024.0,
            ),
            (
                "agent ns/KB".into(),
                (agent_after.cpu_ns - agent.cpu_ns) / sum * 1024.0,
            ),
            ("Jain".into(), jain(&moved)),
            ("hub peak MB".into(), hub_after.peak_kib / 1024.0),
            ("agent peak MB".into(), agent_after.peak_kib / 1024.0),
        ])
    }

    async fn echo(&self, bulk: u64, seconds: u64) -> Figures {
        let mut echo = self.open(b'e').await;
        let bulk = self.bulk(b'd', bulk).await;
        sleep(WARM).await;
        let (before, start) = (bulk.counts(), Instant::now());
        let times = echoes(&mut echo, Duration::from_secs(seconds)).await;
        let (moved, span) = (moved(&before, &bulk.counts()), start.elapsed());
        let sum: f64 = moved.iter().sum();
        let mut figures = percentiles(times);
        figures.insert("bulk MB/s".into(), sum / span.as_secs_f64() / 1e6);
        figures.insert("Jain".into(), jain(&moved));
        figures
    }

    /// Streams that nobody reads, beside one that is read and an echo.
    async fn slow(&self, streams: u64, seconds: u64) -> Figures {
        let mut echo = self.open(b'e').await;
        let (hub, agent) = (machine::used(), self.agent().await);
        let (mut unread, mut refused) = (Vec::new(), 0.0);
        for _ in 0..streams {
            match self.try_open(b'd').await {
                Ok(stream) => unread.push(stream),
                Err(_) => refused += 1.0,
            }
        }
        let bulk = self.bulk(b'd', 1).await;
        sleep(WARM).await;
        let (before, start) = (bulk.counts()[0], Instant::now());
        let times = echoes(&mut echo, Duration::from_secs(seconds)).await;
        let moved = bulk.counts()[0] - before;
        let span = start.elapsed().as_secs_f64();
        let (hub_after, agent_after) = (machine::used(), self.agent().await);
        let mut figures = percentiles(times);
        figures.insert("bulk MB/s".into(), moved as f64 / span / 1e6);
        figures.insert("hub MB".into(), (hub_after.rss_kib - hub.rss_kib) / 1024.0);
        figures.insert(
            "agent MB".into(),
            (agent_after.rss_kib - agent.rss_kib) / 1024.0,
        );
        let mut reset = 0.0;
        for stream in &mut unread {
            let read = timeout(Duration::from_millis(100), stream.read(&mut [0; 1])).await;
            reset += f64::from(u8::from(!matches!(read, Ok(Ok(1)))));
        }
        figures.insert("refused".into(), refused);
        figures.insert("reset".into(), reset);
        figures
    }

    /// Streams of 16 bytes at a time, every other of which nobody reads, and an echo beside them.
    async fn tiny(&self, streams: u64, seconds: u64) -> Figures {
        let mut echo = self.open(b'e').await;
        let mut unread = Vec::new();
        for _ in 0..streams / 2 {
            unread.push(self.open(b't').await);
        }
        let read = self.bulk(b't', streams / 2).await;
        sleep(WARM).await;
        let before: u64 = read.counts().iter().sum();
        let start = Instant::now();
        let times = echoes(&mut echo, Duration::from_secs(seconds)).await;
        let moved = read.counts().iter().sum::<u64>() - before;
        let mut figures = percentiles(times);
        figures.insert(
            "k frames/s".into(),
            moved as f64 / TINY as f64 / start.elapsed().as_secs_f64() / 1e3,
        );
        figures
    }

    async fn open_close(&self, workers: u64, seconds: u64) -> Figures {
        let stop = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        let start = Instant::now();
        for _ in 0..workers {
            let (opener, stop) = (self.opener.clone(), stop.clone());
            tasks.spawn(async move {
                let load = Self { opener };
                let mut done = 0_u64;
                while !stop.load(Ordering::Relaxed) {
                    let mut stream = load.open(b'e').await;
                    stream.write_all(&[1; 64]).await.unwrap();
                    stream.flush().await.unwrap();
                    stream.read_exact(&mut [0; 64]).await.unwrap();
                    drop(stream.shutdown().await);
                    done += 1;
                }
                done
            });
        }
        sleep(Duration::from_secs(seconds)).await;
        stop.store(true, Ordering::Relaxed);
        let mut done = 0;
        while let Some(count) = tasks.join_next().await {
            done += count.unwrap();
        }
        Figures::from([("op/s".into(), done as f64 / start.elapsed().as_secs_f64())])
    }

    /// Downloads that are dropped as soon as they run, 32 at a time; then an echo has to pass.
    async fn cancels(&self, count: u64) -> Figures {
        let start = Instant::now();
        let left = Arc::new(AtomicU64::new(count));
        let mut tasks = JoinSet::new();
        for _ in 0..32 {
            let (opener, left) = (self.opener.clone(), left.clone());
            tasks.spawn(async move {
                let load = Self { opener };
                while left
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1))
                    .is_ok()
                {
                    let mut stream = load.open(b'd').await;
                    drop(stream.read(&mut [0; 1024]).await);
                }
            });
        }
        while tasks.join_next().await.is_some() {}
        let span = start.elapsed().as_secs_f64();
        let mut echo = self.open(b'e').await;
        let mut figures = percentiles(echoes(&mut echo, Duration::from_millis(200)).await);
        figures.insert("op/s".into(), count as f64 / span);
        figures
    }
}

/// 64 bytes to and fro, one after the other; in microseconds.
async fn echoes(stream: &mut Duplex, span: Duration) -> Vec<f64> {
    let start = Instant::now();
    let mut times = Vec::new();
    while start.elapsed() < span {
        let sent = Instant::now();
        let Ok(done) = timeout(STUCK, round(stream)).await else {
            times.push(STUCK.as_secs_f64() * 1e6);
            break;
        };
        done.unwrap();
        times.push(sent.elapsed().as_secs_f64() * 1e6);
    }
    times
}

/// 64 bytes to and fro.
pub(crate) async fn round(stream: &mut Duplex) -> std::io::Result<()> {
    stream.write_all(&[7; 64]).await?;
    stream.flush().await?;
    stream.read_exact(&mut [0; 64]).await?;
    Ok(())
}

//! L51: echoes beside a clone, with figures.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use linesman::clock;
use linesman::wire::api::GitRoute;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;
use tokio::time::timeout;

use super::super::world::{PATIENCE, World};
use super::super::{echo, open};
use super::{Client, Relay, up};

#[path = "../../../../benches/line/shaper.rs"]
#[allow(
    clippy::cast_precision_loss,
    reason = "lengths of single reads, as seconds"
)]
mod shaper;

/// L51: whatever a clone brings, interactive streams pass beside it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn echoes_pass_beside_a_big_clone() {
    let times = clone_beside_echoes(World::new().await, 24).await;
    assert!(times.len() > 10, "{} echoes", times.len());
}

/// L51, with figures: `make large`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "half a gigabyte through git, ssh and the line: make large"]
async fn echoes_beside_a_clone_of_five_hundred_megabytes() {
    println!("{}", told(World::new().await, (500, "")).await);
}

/// L51, L27: the same on 200 Mbit/s with a queue of 20 ms.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a minute of git and ssh over a narrow line: make large"]
async fn echoes_beside_a_clone_of_a_hundred_megabytes_on_a_narrow_way() {
    let narrow = |hub: SocketAddr| {
        let way = shaper::Way {
            megabits: 200,
            rtt: Duration::ZERO,
        };
        way.to(&hub.to_string())
    };
    let world = World::reached_by(narrow).await;
    println!(
        "{}",
        told(world, (100, " on 200 Mbit/s, 20 ms queue")).await
    );
}

/// The figure of a clone of so many MB.
async fn told(world: World, (megabytes, way): (usize, &str)) -> String {
    let began = std::time::Instant::now();
    let times = clone_beside_echoes(world, megabytes).await;
    let at = |part: usize| times[(times.len() * part / 100).min(times.len() - 1)];
    format!(
        "figure | L51 | 64 B echo beside a clone of {megabytes} MB{way}, {} echoes: p50 / p99 | ≤ 20 / ≤ 60 ms | {:.2?} / {:.2?}; all of it {:.1?}",
        times.len(),
        at(50),
        at(99),
        began.elapsed()
    )
}

/// Clones the world's catalog, made that large, over a line that carries echoes at the same time; their times, shortest first.
async fn clone_beside_echoes(world: World, megabytes: usize) -> Vec<Duration> {
    let assignment = world.route(GitRoute::Line).await;
    let (agent, _line) = up(&world).await;
    let relay = Relay::of(&agent).await;
    let _echo = echo(agent.incoming);
    grow(&world.hub.catalog.repo, megabytes).await;
    let client = Client::new(&world, &assignment.catalog.known_hosts);
    let mut stream = open(&world.line(1).await).await;
    let mut times = Vec::new();
    let echoes = async {
        loop {
            let sent = tokio::time::Instant::now();
            stream.write_all(&[7; 64]).await.unwrap();
            let mut back = [0; 64];
            stream.read_exact(&mut back).await.unwrap();
            assert_eq!(back, [7; 64]);
            times.push(sent.elapsed());
        }
    };
    let limit = PATIENCE * 10;
    let cloned = tokio::select! {
        cloned = timeout(limit, client.cloning(&relay, "big")) => cloned.expect("the clone ends"),
        () = echoes => unreachable!("echoes go on"),
    };
    assert!(cloned.status.success(), "{cloned:?}");
    // Git has checked every object by its hash.
    let big = std::fs::metadata(client.file("big/big/0")).unwrap();
    assert_eq!(big.len(), 1 << 20);
    assert!(client.file(&format!("big/big/{}", megabytes - 1)).exists());
    world.end().await;
    times.sort_unstable();
    times
}

/// Commits files of 1 MiB each that nothing compresses.
async fn grow(repository: &Path, megabytes: usize) {
    let git = |args: &[&str]| {
        let mut git = Command::new("git");
        git.arg("-C").arg(repository).args(args);
        git.env("GIT_CONFIG_GLOBAL", "/dev/null").kill_on_drop(true);
        git
    };
    // No attempt at deltas, here or where it is served.
    let config = ["config", "core.bigFileThreshold", "1k"];
    assert!(git(&config).status().await.unwrap().success());
    let mut import = git(&["fast-import", "--quiet"]);
    let mut import = import.stdin(Stdio::piped()).spawn().unwrap();
    let mut input = tokio::io::BufWriter::new(import.stdin.take().unwrap());
    let head = "commit refs/heads/main\ncommitter test <test@lab.invalid> 1700000000 +0000\ndata 3\nbig\nfrom refs/heads/main^0\n";
    input.write_all(head.as_bytes()).await.unwrap();
    let mut state = u64::from_le_bytes(clock::random()) | 1;
    for n in 0..megabytes {
        let mut block = Vec::with_capacity(1 << 20);
        while block.len() < 1 << 20 {
            // xorshift64
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            block.extend(state.to_le_bytes());
        }
        let file = format!("M 100644 inline big/{n}\ndata {}\n", block.len());
        input.write_all(file.as_bytes()).await.unwrap();
        input.write_all(&block).await.unwrap();
        input.write_all(b"\n").await.unwrap();
    }
    input.shutdown().await.unwrap();
    drop(input);
    assert!(import.wait().await.unwrap().success());
}

//! A bad day on the line: sessions, copies, watches and reads by several people at once while the network goes away
//! again and again, for as long as `LINESMAN_SOAK_MINUTES` says. What kubectl calls done has to be right, nothing may
//! be stuck, and neither end may grow. For `make soak` only.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use linesman::clock;
use linesman::keys::sha256_hex;

use super::sessions::cp_works;
use super::{NAMESPACE, POD, Protocol, ready};
use crate::figures::{Held, hub_pid, steady};
use crate::line::{agent_pid, dropped};
use crate::support::place::var;
use crate::support::world::{self, World};
use crate::support::{eventually, figure, seconds};

mod watched;

/// Longer than the line needs to notice that it is dead, to come back, and to answer: what takes longer is stuck.
const STUCK: &str = "150";
const FILE: usize = 8 << 20;
const SAMPLE: Duration = Duration::from_secs(5);

#[derive(Debug, Default, Clone, Copy)]
struct Count {
    done: u32,
    /// kubectl said that it failed: the network was away.
    failed: u32,
}

/// What the workers share.
struct Day<'w> {
    world: &'w World,
    until: Instant,
    counts: Mutex<BTreeMap<&'static str, Count>>,
}

impl Day<'_> {
    fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    fn kubectl(&self, args: &[&str]) -> Output {
        self.fed(Protocol::WebSocket, args, Vec::new())
    }

    /// kubectl with `input`; panics where it is stuck.
    fn fed(&self, protocol: Protocol, args: &[&str], input: Vec<u8>) -> Output {
        let kubectl = protocol.kubectl(self.world, args);
        let mut command = Command::new("timeout");
        command.args(["-k", "5", STUCK]).arg(kubectl.get_program());
        command.args(kubectl.get_args());
        for (key, value) in kubectl.get_envs() {
            command.env(key, value.unwrap_or_default());
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let writer = thread::spawn(move || {
            use std::io::Write as _;
            // kubectl that failed reads no more.
            drop(stdin.write_all(&input));
        });
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        assert_ne!(output.status.code(), Some(124), "kubectl {args:?} is stuck");
        output
    }

    fn count(&self, what: &'static str, done: bool) {
        let mut counts = self.counts.lock().unwrap();
        let count = counts.entry(what).or_default();
        if done {
            count.done += 1;
        } else {
            count.failed += 1;
        }
    }
}

fn bytes(len: usize) -> Vec<u8> {
    let seed: [u8; 8] = clock::random();
    let mut state = u64::from_be_bytes(seed) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_be_bytes()[0]
        })
        .collect()
}

/// Input goes in whole or the session fails. By SPDY kubectl calls a session that was cut off a success, whatever
/// carries it: there the answer alone says what came of it.
fn exec(day: &Day<'_>, protocol: Protocol) {
    while !day.is_over() {
        let input = bytes(2 << 20);
        let expected = format!("{}  -\n", sha256_hex(&input));
        let out = day.fed(protocol, &["exec", "-i", POD, "--", "sha256sum"], input);
        let answer = String::from_utf8_lossy(&out.stdout);
        match protocol {
            Protocol::WebSocket => {
                if out.status.success() {
                    assert_eq!(answer, expected);
                }
                day.count("exec with 2 MiB of input", out.status.success());
            }
            Protocol::Spdy => {
                assert!(answer.is_empty() || answer == expected, "{answer}");
                day.count("exec with 2 MiB of input, by SPDY", !answer.is_empty());
            }
        }
    }
}

/// A file there and back is the same file.
fn copy(day: &Day<'_>, name: &str) {
    let [there, back] =
        ["there", "back"].map(|end| day.world.directory.join(format!("{name}.{end}")));
    let (there_text, back_text) = (there.to_str().unwrap(), back.to_str().unwrap());
    let remote = format!("{POD}:/work/{name}");
    while !day.is_over() {
        let content = bytes(FILE);
        fs::write(&there, &content).unwrap();
        let sent = day.kubectl(&["cp", there_text, &remote]).status.success();
        day.count("cp of 8 MiB to the Pod", sent);
        if !sent {
            continue;
        }
        let sum = day.kubectl(&["exec", POD, "--", "sha256sum", &format!("/work/{name}")]);
        if sum.status.success() {
            let sum = String::from_utf8_lossy(&sum.stdout).into_owned();
            assert!(
                sum.starts_with(&sha256_hex(&content)),
                "cp says done: {sum}"
            );
        }
        let got = day.kubectl(&["cp", &remote, back_text]).status.success();
        if got {
            assert!(fs::read(&back).unwrap() == content, "cp says done");
        }
        day.count("cp of 8 MiB from the Pod", got);
    }
}

/// Reads and watches end by themselves.
fn read(day: &Day<'_>) {
    while !day.is_over() {
        let out = day.kubectl(&["get", "pods", "-o", "json"]);
        if out.status.success() {
            serde_json::from_slice::<serde_json::Value>(&out.stdout).unwrap();
        }
        day.count("get", out.status.success());
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods?watch=1&timeoutSeconds=15");
        let out = day.kubectl(&["get", "--raw", &path]);
        day.count("watch of 15 s", out.status.success());
    }
}

/// The network between cluster and hub goes away: mostly for a moment, sometimes for longer than a line lives.
fn cut(day: &Day<'_>, over: &Receiver<()>) {
    loop {
        let [wait, kind, long] = clock::random::<3>();
        match over.recv_timeout(Duration::from_millis(3000 + u64::from(wait) * 60)) {
            Err(RecvTimeoutError::Timeout) => {}
            _ => return,
        }
        let away = match kind % 8 {
            0 => Duration::from_secs(27),
            _ => Duration::from_millis(100 + u64::from(long) * 20),
        };
        dropped(day.world, "-I");
        let ended = over.recv_timeout(away);
        dropped(day.world, "-D");
        day.count(
            if away > seconds(20) {
                "cut of 27 s"
            } else {
                "cut of 0.1–5 s"
            },
            true,
        );
        if !matches!(ended, Err(RecvTimeoutError::Timeout)) {
            return;
        }
    }
}

/// What both ends hold, from time to time.
fn watch_both(world: &World, pids: [u32; 2], over: &Receiver<()>) -> Vec<[Held; 2]> {
    let mut samples = Vec::new();
    while matches!(over.recv_timeout(SAMPLE), Err(RecvTimeoutError::Timeout)) {
        samples.push(Held::both(world, pids));
    }
    samples
}

/// L4 at its full size, on a day on which nothing happens.
#[test]
#[ignore = "takes minutes, and 6 GiB of disk: make soak"]
fn cp_brings_two_gibibytes_both_ways() {
    cp_works(&world::adopted(), 2048, "");
}

/// L29: half an hour of cuts, sessions, copies and watches.
#[test]
#[ignore = "takes as long as LINESMAN_SOAK_MINUTES says: make soak"]
fn nothing_is_stuck_wrong_or_growing() {
    let world = world::adopted();
    ready(&world);
    let minutes = var("LINESMAN_SOAK_MINUTES").map_or(30, |text| text.parse().unwrap());
    let pids = [hub_pid(&world), agent_pid(&world)];
    let day = Day {
        world: &world,
        until: Instant::now() + Duration::from_mins(minutes),
        counts: Mutex::default(),
    };
    let samples = thread::scope(|scope| {
        let (stop_cuts, cuts) = channel();
        let (stop_samples, over) = channel();
        let shared = &day;
        let cutter = scope.spawn(move || cut(shared, &cuts));
        let samples = scope.spawn(move || watch_both(shared.world, pids, &over));
        let mut workers = vec![scope.spawn(|| watched::nothing_is_lost(&day, minutes))];
        for n in 0..2 {
            workers.push(scope.spawn(move || exec(shared, Protocol::ALL[n])));
            workers.push(scope.spawn(|| read(&day)));
            workers.push(scope.spawn(move || copy(shared, &format!("soak-{n}"))));
        }
        let results: Vec<_> = workers
            .into_iter()
            .map(thread::ScopedJoinHandle::join)
            .collect();
        drop((stop_cuts, stop_samples));
        cutter.join().unwrap();
        for result in results {
            result.unwrap();
        }
        samples.join().unwrap()
    });
    eventually("kubectl works when the network stays", seconds(60), || {
        let out = day.kubectl(&["get", "pods"]);
        out.status.success().then_some(()).ok_or("not yet")
    });
    let text = |what: &str, bar: &str, value: String| {
        figure("soak", &format!("{minutes} min: {what}"), bar, value);
    };
    for (what, count) in day.counts.lock().unwrap().iter() {
        text(
            what,
            "0 wrong, 0 stuck",
            format!(
                "{} done, {} failed, 0 wrong, 0 stuck",
                count.done, count.failed
            ),
        );
        assert!(count.done > 0, "{what} never worked");
    }
    steady(&samples, text);
    assert_eq!(
        [hub_pid(&world), agent_pid(&world)],
        pids,
        "neither restarted"
    );
}

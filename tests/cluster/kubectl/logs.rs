//! Logs that are followed: how long a line is on its way, and that silence ends none.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::{NAMESPACE, POD, Protocol, Running, line, ready};
use crate::support::idle::Impatient;
use crate::support::place::run;
use crate::support::world::{self, CLUSTER, World};
use crate::support::{figure, seconds, stays, until};

const LINES: usize = 200;
/// Logs whose first line is waited for, each way.
const FIRSTS: usize = 20;
/// A Pod that says nothing unless it is asked to, through a FIFO.
pub(super) const SILENT: &str = "silent";
/// Of a proxy before the hub. Longer than what is between two signs of life that the hub gives a user.
const PATIENCE: Duration = Duration::from_secs(25);

/// Follows the Pod's log; each line with the moment at which it came.
fn follow(mut kubectl: Command) -> (Running, Receiver<(Instant, String)>) {
    let logs = ["-n", NAMESPACE, "logs", "-f", "--tail=0", POD];
    let mut child: Child = kubectl.args(logs).stdout(Stdio::piped()).spawn().unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    let (send, lines) = channel();
    thread::spawn(move || {
        for line in out.lines().map_while(Result::ok) {
            if send.send((Instant::now(), line)).is_err() {
                return;
            }
        }
    });
    (Running(child), lines)
}

/// From the command to the first line of what is followed.
fn first_line(mut kubectl: Command) -> Duration {
    let logs = ["-n", NAMESPACE, "logs", "-f", "--tail=1", POD];
    let began = Instant::now();
    let (_running, lines) = Running::start(kubectl.args(logs));
    line(&lines, "the first line", |_| true);
    began.elapsed()
}

/// When this line came; others that were said before it are passed over.
fn came(lines: &Receiver<(Instant, String)>, wanted: &str, limit: Duration) -> Option<Instant> {
    let deadline = Instant::now() + limit;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match lines.recv_timeout(left) {
            Ok((at, line)) if line == wanted => return Some(at),
            Ok(_) => {}
            Err(_) => return None,
        }
    }
}

/// L2: each line of a followed log comes through the line nearly as soon as without it.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_line_of_a_log_comes_as_soon_as_without_the_hub() {
    let world = world::adopted();
    ready(&world);
    let mut attach = world.place.kubectl();
    attach.args(["-n", NAMESPACE, "attach", "-q", "-i", POD]);
    let (mut attached, _said) = Running::start(&mut attach);
    let mut input = attached.0.stdin.take().unwrap();
    let mut say = |text: &str| writeln!(input, "{text}").unwrap();
    let (_direct, direct) = follow(world.place.kubectl());
    let (_through, through) = follow(world.through_line());
    // Until both follow: what was said before is not shown.
    for (n, lines) in [&direct, &through].into_iter().enumerate() {
        let mut tries = 0..60;
        let follows = tries.any(|attempt| {
            let text = format!("are you {n} there {attempt}");
            say(&text);
            came(lines, &format!("got {text}"), seconds(1)).is_some()
        });
        assert!(follows, "the log is followed");
    }
    let mut later: Vec<f64> = (0..LINES)
        .map(|n| {
            let text = format!("line {n}");
            say(&text);
            let both = [&direct, &through].map(|lines| {
                let at = came(lines, &format!("got {text}"), seconds(30));
                at.expect("each line comes both ways")
            });
            let [direct, line] = both;
            match line.checked_duration_since(direct) {
                Some(later) => later.as_secs_f64() * 1e3,
                None => -(direct - line).as_secs_f64() * 1e3,
            }
        })
        .collect();
    later.sort_by(f64::total_cmp);
    let (middle, most) = (later[LINES / 2], later[LINES * 99 / 100]);
    for (which, later) in [("p50", middle), ("p99", most)] {
        figure(
            "L2",
            &format!("a line of logs -f later than without the hub, {which}"),
            "≤ 5 ms",
            format!("{later:.1} ms"),
        );
    }
    assert!(middle < 1_000.0, "{later:?}");
    let mut firsts: Vec<f64> = (0..FIRSTS)
        .map(|_| {
            let direct = first_line(world.place.kubectl());
            let through = first_line(world.through_line());
            (through.as_secs_f64() - direct.as_secs_f64()) * 1e3
        })
        .collect();
    firsts.sort_by(f64::total_cmp);
    figure(
        "L2",
        "first line of logs -f later than without the hub, with kubectl's start, p50",
        "≤ a round trip",
        format!("{:.1} ms", firsts[FIRSTS / 2]),
    );
}

pub(super) fn silent_pod(world: &World) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": SILENT, "namespace": NAMESPACE},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [{
            "name": SILENT, "image": "lab.invalid/busybox:1", "imagePullPolicy": "IfNotPresent",
            "command": ["sh", "-c", "mkfifo /tmp/say; echo ready; while read -r line; do echo \"$line\"; done <>/tmp/say"],
        }]},
    });
    let file = world.directory.join("silent.json");
    fs::write(&file, pod.to_string()).unwrap();
    world.apply(&file);
    let wait = [
        "wait",
        "--for=condition=Ready",
        "--timeout=60s",
        "pod",
        SILENT,
    ];
    run(world.place.kubectl().args(["-n", NAMESPACE]).args(wait));
}

/// Its log, through a proxy that lets nothing be silent for longer.
pub(super) fn follow_silence(
    world: &World,
    patience: Duration,
) -> (Running, Receiver<String>, Impatient) {
    let host = &world.place.host;
    let hub = (host.as_str(), world.hub.https_port());
    let proxy = Impatient::before(hub.to_socket_addrs().unwrap().next().unwrap(), patience);
    let server = format!(
        "--server=https://127.0.0.1:{}/clusters/{CLUSTER}",
        proxy.port
    );
    let name = format!("--tls-server-name={host}");
    let logs = [&server, &name, "logs", "-f", SILENT];
    let (running, lines) = Running::start(&mut Protocol::WebSocket.kubectl(world, &logs));
    line(&lines, "the log is followed", |line| line == "ready");
    (running, lines, proxy)
}

/// L2, L12: a log that says nothing outlives the patience of what stands between, by the signs of life that the hub gives.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_silent_log_outlives_a_proxy_that_cuts_what_is_silent() {
    let world = world::adopted();
    ready(&world);
    silent_pod(&world);
    let host = (world.place.host.as_str(), world.hub.https_port());
    let hub = host.to_socket_addrs().unwrap().next().unwrap();
    let short = Impatient::before(hub, seconds(1));
    let silent = TcpStream::connect(("127.0.0.1", short.port)).unwrap();
    until("it cuts what is silent", seconds(30), || {
        short.counts() == (1, 1)
    });
    drop(silent);
    let (mut follows, lines, proxy) = follow_silence(&world, PATIENCE);
    stays("the log is followed", PATIENCE * 2 + seconds(5), || {
        !follows.over()
    });
    let say = [
        "exec",
        SILENT,
        "--",
        "sh",
        "-c",
        "echo still there >/tmp/say",
    ];
    run(&mut Protocol::WebSocket.kubectl(&world, &say));
    line(&lines, "the log goes on", |line| line == "still there");
    assert_eq!(
        proxy.counts().0,
        0,
        "connections that were silent for too long"
    );
}

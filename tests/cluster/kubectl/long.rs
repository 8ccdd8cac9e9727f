//! What people leave open over an afternoon: watches, sessions, a log that says nothing, a port-forward; for as long as
//! `LINESMAN_LONG_MINUTES` says. For `make long` only.

use std::io::Write as _;
use std::process::{ChildStdin, Command};
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::logs::{SILENT, follow_silence, silent_pod};
use super::{NAMESPACE, POD, Protocol, Running, ask, body, line, ready};
use crate::figures::{Held, hub_pid, steady};
use crate::line::agent_pid;
use crate::support::audit::Mark;
use crate::support::figure;
use crate::support::place::{run, var};
use crate::support::world::{self, World};

mod k9s;

/// What stands between lets nothing be silent for longer.
const PATIENCE: Duration = Duration::from_mins(1);
const ROUND: Duration = Duration::from_mins(1);
/// `--min-request-timeout`: an API server ends a watch that names no time of its own after once to twice this.
const WATCH: Duration = Duration::from_mins(30);

/// A session that answers what is said to it.
struct Session {
    running: Running,
    input: ChildStdin,
    lines: Receiver<String>,
    what: String,
}

impl Session {
    fn start(mut command: Command, what: String) -> Self {
        let (mut running, lines) = Running::start(&mut command);
        let input = running.0.stdin.take().unwrap();
        Self {
            running,
            input,
            lines,
            what,
        }
    }

    fn answers(&mut self, said: &str) {
        assert!(!self.running.over(), "{} ended", self.what);
        writeln!(self.input, "{said}").unwrap();
        let wanted = format!("heard {said}");
        line(&self.lines, &self.what, |line| line == wanted);
    }
}

/// `kubectl get --watch`, begun anew where the API server ended it in its time.
struct Watch<'w> {
    world: &'w World,
    running: Running,
    lines: Receiver<String>,
    since: Instant,
    ended: usize,
}

impl<'w> Watch<'w> {
    fn start(world: &'w World) -> Self {
        let (running, lines) = Self::run(world);
        Self {
            world,
            running,
            lines,
            since: Instant::now(),
            ended: 0,
        }
    }

    fn run(world: &World) -> (Running, Receiver<String>) {
        let watch = ["get", "configmaps", "--watch-only", "-o", "name"];
        Running::start(&mut Protocol::WebSocket.kubectl(world, &watch))
    }

    fn goes_on(&mut self) {
        if self.running.over() {
            let lived = self.since.elapsed();
            assert!(lived >= WATCH, "the watch ended after {lived:?}");
            (self.running, self.lines) = Self::run(self.world);
            (self.since, self.ended) = (Instant::now(), self.ended + 1);
        }
    }
}

/// A watch that names a time of its own.
fn watch_for(world: &World, seconds: u64) -> (Running, Receiver<String>) {
    let path =
        format!("/api/v1/namespaces/{NAMESPACE}/configmaps?watch=1&timeoutSeconds={seconds}");
    Running::start(&mut Protocol::WebSocket.kubectl(world, &["get", "--raw", &path]))
}

/// A change in the cluster that every watch shows.
fn changed(world: &World, name: &str) {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    let maps = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
    world.api.create(&maps, &map);
}

/// A port that leads to the Pod, for as long as the program runs.
fn forwarded(world: &World, protocol: Protocol) -> (Running, Receiver<String>, u16) {
    let forward = ["port-forward", "pod/box", ":8080"];
    let (running, lines) = Running::start(&mut protocol.kubectl(world, &forward));
    let told = line(&lines, "the port is told", |line| {
        line.contains("127.0.0.1:")
    });
    let port = told.split("127.0.0.1:").nth(1).unwrap();
    let port = port.split(' ').next().unwrap().parse().unwrap();
    assert_eq!(body(ask(port, "/page")).len(), 1 << 20);
    (running, lines, port)
}

fn minutes() -> u64 {
    var("LINESMAN_LONG_MINUTES").map_or(130, |text| text.parse().unwrap())
}

/// L1, L2, L7, L12: watches, sessions that are asked once a minute, a silent log behind a proxy that cuts what is silent for a
/// minute, and port-forwards are all still there at the end, on the same line, and neither end has grown.
#[test]
#[ignore = "takes as long as LINESMAN_LONG_MINUTES says: make long"]
fn what_is_left_open_is_still_there_hours_later() {
    let world = world::adopted();
    ready(&world);
    silent_pod(&world);
    let (minutes, began) = (minutes(), Instant::now());
    let (epoch, pids, mark) = (
        world.epoch(),
        [hub_pid(&world), agent_pid(&world)],
        Mark::now(&world.audit),
    );
    let mut watch = Watch::start(&world);
    let (mut raw, raw_lines) = watch_for(&world, minutes * 60 + 3_600);
    let mut sessions = Protocol::ALL.map(|protocol| {
        let answer = "while read -r line; do echo \"heard $line\"; done";
        let exec = ["exec", "-i", POD, "--", "sh", "-c", answer];
        Session::start(
            protocol.kubectl(&world, &exec),
            format!("exec by {protocol:?}"),
        )
    });
    let (mut follows, log_lines, proxy) = follow_silence(&world, PATIENCE);
    let mut forwards = Protocol::ALL.map(|protocol| forwarded(&world, protocol));

    let (until, mut samples) = (began + Duration::from_mins(minutes), Vec::new());
    for round in 0_u64.. {
        for session in &mut sessions {
            session.answers(&format!("round {round}"));
        }
        watch.goes_on();
        assert!(!raw.over(), "the watch with a time of its own ended");
        assert!(!follows.over(), "the log ended");
        assert!(!forwards.iter_mut().any(|(forward, ..)| forward.over()));
        samples.push(Held::both(&world, pids));
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        // What is measured is time itself.
        thread::sleep(left.min(ROUND));
    }

    changed(&world, "at-the-end");
    line(&watch.lines, "the watch shows it", |line| {
        line == "configmap/at-the-end"
    });
    line(&raw_lines, "the other one, too", |line| {
        line.contains("\"at-the-end\"")
    });
    let say = ["exec", SILENT, "--", "sh", "-c", "echo at last >/tmp/say"];
    run(&mut Protocol::WebSocket.kubectl(&world, &say));
    line(&log_lines, "the log goes on", |line| line == "at last");
    for (_, _, port) in &forwards {
        assert_eq!(body(ask(*port, "/page")).len(), 1 << 20);
    }
    assert_eq!(
        proxy.counts().0,
        0,
        "connections that were silent for too long"
    );
    assert_eq!(world.epoch(), epoch, "the line was dialled anew");
    assert_eq!(
        [hub_pid(&world), agent_pid(&world)],
        pids,
        "neither restarted"
    );
    tell(
        &samples,
        (minutes, watch.ended),
        mark.requests_of_agent(),
        began.elapsed(),
    );
}

#[allow(clippy::cast_precision_loss, reason = "a few thousand requests")]
fn tell(samples: &[[Held; 2]], (minutes, ended): (u64, usize), requests: usize, took: Duration) {
    let told = |what: &str, bar: &str, value: String| {
        figure("L1", &format!("{minutes} min open: {what}"), bar, value);
    };
    told(
        "watches that the API server ended in their time",
        "",
        ended.to_string(),
    );
    let rate = requests as f64 / took.as_secs_f64();
    told(
        "requests a second of the agent",
        "≤ 1 /s",
        format!("{rate:.2} /s"),
    );
    steady(samples, told);
}

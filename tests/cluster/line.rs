//! The line: H30, reconnects, watches through it, and what the hub shows of a cluster that is gone (H46).

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use linesman::clock;
use serde_json::json;
use time::OffsetDateTime;

use crate::support::place::{lab, output, run};
use crate::support::world::{self, World};
use crate::support::{eventually, figure, seconds, shown, until};

mod stopped;

/// What the agent keeps of the hub.
const JOINED: &str = "/api/v1/namespaces/linesman/secrets/linesman-state";

/// H30: a push is in the cluster ≤ 10 s later, the interval left at its default.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_push_reaches_the_cluster() {
    let world = world::adopted();
    until("the line is up", seconds(60), || world.line_is_up());
    for round in 1..=3 {
        let name = format!("pushed-{round}");
        let content = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: default}}\n"
        );
        world.push(
            &format!("clusters/{}/{name}.yaml", world::CLUSTER),
            &content,
        );
        let path = format!("/api/v1/namespaces/default/configmaps/{name}");
        let took = until("the pushed object is in the cluster", seconds(120), || {
            world.uid(&path).is_some()
        });
        figure(
            "H30",
            &format!("push → object in the cluster ({round})"),
            "≤ 10 s",
            shown(took),
        );
    }
}

/// get, list, logs, apply and a large list work through the line, as the caller.
#[test]
#[ignore = "needs a real cluster: make test"]
fn kubectl_works_through_the_line() {
    let world = world::adopted();
    until("the line is up", seconds(60), || world.line_is_up());
    let line = |args: &[&str]| run(world.through_line().args(args));
    assert!(line(&["get", "nodes"]).contains("Ready"));
    assert!(
        line(&["auth", "whoami"]).contains("linesman:"),
        "the API server sees another user"
    );
    assert!(line(&["-n", "kube-system", "get", "pods,services", "-o", "json"]).len() > 2);
    assert!(
        !line(&[
            "-n",
            "linesman",
            "logs",
            "deployment/linesman-agent",
            "--tail=3"
        ])
        .is_empty()
    );
    assert!(
        line(&["get", "--raw", "/openapi/v2"]).len() > 1_000_000,
        "a large answer is cut"
    );
    let file = world.directory.join("applied.yaml");
    std::fs::write(&file, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: by-line, namespace: default}\ndata: {a: b}\n").unwrap();
    line(&["apply", "--server-side", "-f", file.to_str().unwrap()]);
    assert_eq!(
        world
            .api
            .get("/api/v1/namespaces/default/configmaps/by-line")
            .unwrap()["data"],
        json!({ "a": "b" })
    );
    line(&["delete", "-f", file.to_str().unwrap()]);
    let asked = output(
        world
            .through_line()
            .args(["get", "pods", "--as", "system:admin"]),
    );
    assert!(
        !asked.status.success(),
        "kubectl --as ran silently as the caller"
    );
    let audit = world.hub.json(&["audit", "list"]);
    assert!(
        audit.to_string().contains("configmaps"),
        "the requests are not on record: {audit}"
    );
}

/// The hub restarts: the line is back ≤ 30 s, and a watch started then works.
#[test]
#[ignore = "needs a real cluster: make test"]
fn the_line_comes_back_after_a_hub_restart() {
    let mut world = world::adopted();
    until("the line is up", seconds(60), || world.line_is_up());
    world.hub.stop();
    world.hub.up();
    let took = until("the line is back", seconds(120), || world.line_is_up());
    figure(
        "5",
        "hub restarted and ready → line back",
        "≤ 30 s",
        shown(took),
    );
    watch_works(&world, "after-restart");
    world.hub.kill();
    world.hub.up();
    let took = until("the line is back", seconds(120), || world.line_is_up());
    figure(
        "5",
        "hub killed, started and ready → line back",
        "≤ 30 s",
        shown(took),
    );
}

/// H19, L17: the hub comes back with another CA and another key: the agent follows by itself, and requests that the new key
/// signs are served. What the key before signed of the audit verifies still.
#[test]
#[ignore = "needs a real cluster: make test"]
fn the_line_comes_back_to_a_hub_with_another_ca_and_key() {
    let mut world = world::adopted();
    until("the line is up", seconds(60), || world.line_is_up());
    let pid = agent_pid(&world);
    let known = |world: &World| world.api.get(JOINED).unwrap()["data"]["trust.json"].clone();
    let (before, data) = (known(&world), world.hub.data());
    for what in ["key", "ca"] {
        let rotate = ["hub", "rotate", what, "--data", data.to_str().unwrap()];
        world.hub.linesman(&rotate);
    }
    // It has the CA before in it.
    std::fs::remove_file(world.line_kubeconfig()).unwrap();
    world.hub.stop();
    world.hub.up();
    let took = until("the line is back", seconds(120), || world.line_is_up());
    figure(
        "H19",
        "hub with another CA and key ready → line back",
        "≤ 30 s",
        shown(took),
    );
    until(
        "the agent keeps what is new of the hub",
        seconds(60),
        || known(&world) != before,
    );
    assert_eq!(agent_pid(&world), pid, "the agent was started again");
    watch_works(&world, "after-another-key");
    world.hub.linesman(&["audit", "verify"]);
    let offline = ["audit", "verify", "--data", data.to_str().unwrap()];
    world.hub.linesman(&offline);
}

/// The agent is killed: the line is back ≤ 30 s, and a watch started then works.
#[test]
#[ignore = "needs a real cluster: make test"]
fn the_line_comes_back_after_the_agent_is_killed() {
    let world = world::adopted();
    until("the line is up", seconds(60), || world.line_is_up());
    let before = world.epoch();
    let pid = agent_pid(&world);
    run(Command::new("kill").args(["-KILL", &pid.to_string()]));
    let took = until("a new line is up", seconds(120), || {
        world.epoch() > before && world.line_is_up()
    });
    figure("5", "agent killed → line back", "≤ 30 s", shown(took));
    watch_works(&world, "after-kill");
}

/// L16: while the agent's Deployment is rolled, no request is refused.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_rollout_of_the_agent_refuses_no_request() {
    let world = world::adopted();
    until("the line is up", seconds(60), || world.line_is_up());
    let mut rollout = world.place.kubectl();
    rollout.args(["-n", "linesman", "rollout"]);
    let deployment = "deployment/linesman-agent";
    run(rollout.args(["restart", deployment]));
    let mut status = world.place.kubectl();
    status.args([
        "-n",
        "linesman",
        "rollout",
        "status",
        "--timeout=120s",
        deployment,
    ]);
    let mut status = Ended(status.stdout(Stdio::null()).spawn().unwrap());
    let (mut slowest, mut asked) = (seconds(0), 0);
    let mut rolled = None;
    // A little beyond its end: the old Pod drains then.
    while rolled.is_none_or(|at: Instant| at.elapsed() < seconds(8)) {
        let began = Instant::now();
        let answer = output(world.through_line().args(["get", "--raw", "/version"]));
        assert!(answer.status.success(), "request {asked}: {answer:?}");
        slowest = slowest.max(began.elapsed());
        asked += 1;
        if rolled.is_none() && status.0.try_wait().unwrap().is_some() {
            rolled = Some(Instant::now());
        }
    }
    figure(
        "L16",
        &format!("agent rolled under {asked} requests, none refused: slowest"),
        "≤ 10 s",
        shown(slowest),
    );
    until("the line is up", seconds(60), || world.line_is_up());
}

/// L13, H46: of a cluster that goes silent both ends of the line know ≤ 25 s later; it is shown offline ≤ 45 s later, and back ≤ 10 s
/// after it returns. The line itself is back ≤ 2 s after that, however far the agent is with a dial then: three times.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_silent_cluster_is_shown_offline() {
    let world = world::adopted();
    until("the line is up", seconds(60), || world.line_is_up());
    dropped(&world, "-I");
    let (began, since) = (Instant::now(), clock::now());
    let known = both_know(&world, since);
    let known = known.map(|at| format!("{:.2} s", (at - since).as_seconds_f64()));
    figure(
        "L13",
        "cluster silent → the hub, the agent know that the line is dead",
        "≤ 25 s",
        known.join(", "),
    );
    until("the cluster is shown offline", seconds(120), || {
        world.phase() == "Offline"
    });
    figure(
        "H46",
        "cluster silent → shown offline",
        "≤ 45 s",
        shown(began.elapsed()),
    );
    let list = world.hub.linesman(&["cluster", "list"]);
    assert!(list.contains("Offline"), "{list}");
    let before = clock::now();
    dropped(&world, "-D");
    let healed = clock::now();
    let took = until("the cluster is back", seconds(120), || {
        world.line_is_up() && world.phase() != "Offline"
    });
    figure(
        "H46",
        "network back → shown as there",
        "≤ 10 s",
        shown(took),
    );
    let mut back = vec![back_since(&world, before, healed)];
    for later in [seconds(1), seconds(6)] {
        dropped(&world, "-I");
        both_know(&world, clock::now());
        // No wait for anything: where in a dial the network comes back.
        thread::sleep(later);
        let before = clock::now();
        dropped(&world, "-D");
        back.push(back_since(&world, before, clock::now()));
    }
    back.sort_unstable();
    figure(
        "L13",
        "network back → line back, three times: median / slowest",
        "≤ 2 s",
        format!("{} / {}", shown(back[1]), shown(back[2])),
    );
}

/// Packets between cluster and hub are dropped, not refused: nothing tells either side. `-I` from now on, `-D` no more.
pub(crate) fn dropped(world: &World, flag: &str) {
    let (name, host) = (world.place.lab(), &world.place.host);
    for direction in ["-s", "-d"] {
        run(lab().args([
            "exec", name, "iptables", "-w", flag, "FORWARD", direction, host, "-j", "DROP",
        ]));
    }
}

/// When hub and agent said that the line is dead.
fn both_know(world: &World, since: OffsetDateTime) -> [OffsetDateTime; 2] {
    let know = || {
        let log = std::fs::read_to_string(world.hub.log()).unwrap();
        let hub = said(&log, "line down", since).ok_or("the hub does not")?;
        let agent = said(&agent_log(world), "line down", since).ok_or("the agent does not")?;
        Ok::<_, &str>([hub, agent])
    };
    eventually("both ends know that the line is dead", seconds(60), know).0
}

/// How long after the network was healed the agent had its next line, by its own word. It may have one before the command that
/// heals has come back; it has none before that began.
fn back_since(world: &World, before: OffsetDateTime, healed: OffsetDateTime) -> Duration {
    let up = || said(&agent_log(world), "line up", before).ok_or("it has none");
    let (at, _) = eventually("the agent has a line", seconds(120), up);
    (at - healed).try_into().unwrap_or_default()
}

fn agent_log(world: &World) -> String {
    let mut logs = world.place.kubectl();
    let logs = logs.args(["-n", "linesman", "logs", "deployment/linesman-agent"]);
    String::from_utf8_lossy(&output(logs).stdout).into_owned()
}

/// When a log first has that since then, by its own times.
fn said(log: &str, what: &str, since: OffsetDateTime) -> Option<OffsetDateTime> {
    let lines = log.lines().filter(|line| line.contains(what));
    let mut times = lines.filter_map(|line| clock::parse_rfc3339(line.split_whitespace().next()?));
    times.find(|at| *at >= since)
}

/// `kubectl get -w` through the line shows an object that is made after it started.
pub(crate) fn watch_works(world: &World, name: &str) {
    let mut watch = world.through_line();
    watch
        .args(["-n", "default", "get", "configmaps", "-w", "-o", "name"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut watch = Ended(watch.spawn().unwrap());
    let (send, receive) = mpsc::channel();
    let out = BufReader::new(watch.0.stdout.take().unwrap());
    thread::spawn(move || {
        for line in out.lines().map_while(Result::ok) {
            if send.send(line).is_err() {
                return;
            }
        }
    });
    // The first line is the state before; only then is the watch there.
    receive
        .recv_timeout(seconds(60))
        .expect("kubectl get -w prints what is there");
    run(world.place.kubectl().args(["create", "configmap", name]));
    loop {
        let line = receive
            .recv_timeout(seconds(60))
            .expect("the watch shows the new object");
        if line.ends_with(name) {
            break;
        }
    }
    run(world.place.kubectl().args(["delete", "configmap", name]));
}

/// Killed and joined when the test is over, however it ends.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _joined = self.0.wait();
    }
}

/// The agent's process as this machine sees it.
pub(crate) fn agent_pid(world: &World) -> u32 {
    let first = agent_pids(world).first().copied();
    first.expect("an agent runs in the lab")
}

pub(crate) fn agent_pids(world: &World) -> Vec<u32> {
    // The name of one lab may be the beginning of another's.
    let group = format!("/linesman-lab-{}/", world.place.lab());
    let of = |pid: &str, file: &str| {
        std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default()
    };
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|e| e.unwrap().file_name().into_string().ok())
        .filter(|pid| pid.bytes().all(|b| b.is_ascii_digit()))
        .filter(|pid| of(pid, "cgroup").contains(&group))
        .filter(|pid| of(pid, "cmdline").starts_with("/linesman\0agent"))
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

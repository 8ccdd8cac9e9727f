//! What an adopted, healthy cluster costs: memory of the agent, requests to the API server (W23).

use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use crate::healing::settle;
use crate::line::agent_pid;
use crate::support::audit::Mark;
use crate::support::place::var;
use crate::support::world::{self, World};
use crate::support::{figure, seconds, until};

mod written;

/// What a healthy agent writes: its Lease, the questions to the engine's roots, and what changes nothing: tokens for its line,
/// and which rights it has.
const WRITES: [&str; 8] = [
    "leases",
    "gitrepositories",
    "kustomizations",
    "applications",
    // The agent's own set, by which it asks their controller.
    "applicationsets",
    "serviceaccounts/token",
    "selfsubjectrulesreviews",
    "selfsubjectaccessreviews",
];

/// W23: ≤ 24 MB resident and ≤ 1 request a second, healthy and idle; nothing is written but heartbeat and probes, and no
/// workload is touched. For a minute, or for `LINESMAN_IDLE_MINUTES`. Of processor time it tells what the manifest asks for.
#[test]
#[ignore = "needs a real cluster: make test"]
fn an_idle_agent_is_small_and_quiet() {
    small_and_quiet(&world::adopted(), 1);
}

/// For so many minutes where the environment names none.
pub(crate) fn small_and_quiet(world: &World, minutes: u64) {
    settle(world);
    until("the cluster is healthy", seconds(180), || {
        world.phase() == "Healthy"
    });
    let minutes: u64 = var("LINESMAN_IDLE_MINUTES").map_or(minutes, |m| m.parse().unwrap());
    let window = Duration::from_mins(minutes);
    let before = written::settled(world);
    let agent = agent_pid(world);
    let small = rss(agent);
    // A window of the API server's own audit log; not a wait for anything.
    let (mark, began) = (Mark::now(&world.audit), Instant::now());
    let used = processor(agent);
    thread::sleep(window);
    // Watches count when they end.
    let (new, took) = (mark.answered(), began.elapsed());
    let millicores = (processor(agent) - used) / took.as_secs_f64() * 1000.0;
    figure(
        "W23",
        &world.said("agent's processor time, idle"),
        "≤ 20 m",
        format!("{millicores:.1} m"),
    );
    for user in ["linesman:linesman-agent", "linesman:linesman-line"] {
        let n = new.iter().filter(|r| r.user.ends_with(user)).count();
        figure(
            "W23",
            &world.said(&format!("requests a second of {user}, idle")),
            "≤ 1 /s",
            format!("{:.2} /s", rate(n, took)),
        );
        // A minute may have one round more than its share.
        assert!(minutes < 10 || rate(n, took) <= 1.0, "{n} in {took:?}");
    }
    let mut writes: BTreeMap<String, usize> = BTreeMap::new();
    for request in new.iter().filter(|r| {
        r.user.ends_with("linesman:linesman-agent")
            && !["get", "list", "watch"].contains(&r.verb.as_str())
    }) {
        *writes.entry(request.resource.clone()).or_default() += 1;
    }
    let all: usize = writes.values().sum();
    figure(
        "W23",
        &world.said("writes of the agent, idle (Lease and probes)"),
        "",
        format!("{:.2} /s", rate(all, took)),
    );
    let what = format!("agent's resident memory, idle, after {minutes} min");
    figure("W23", &world.said(&what), "≤ 24 MB", resident(agent));
    figure(
        "",
        &world.said("hub's resident memory, one cluster"),
        "",
        resident(hub_pid(world)),
    );
    let others: Vec<_> = writes
        .iter()
        .filter(|(r, _)| !WRITES.contains(&r.as_str()))
        .collect();
    assert!(others.is_empty(), "{others:?}");
    written::left_alone(world, &before);
    let grown = rss(agent) - small;
    assert!(grown < 4.0, "{grown} MB more than {small}");
}

#[allow(clippy::cast_precision_loss, reason = "a few hundred requests")]
fn rate(n: usize, took: Duration) -> f64 {
    n as f64 / took.as_secs_f64()
}

fn resident(pid: u32) -> String {
    format!("{:.1} MB", rss(pid))
}

/// Resident memory in MB.
pub(crate) fn rss(pid: u32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|l| l.strip_prefix("VmRSS:"))
        .unwrap();
    let kb: u32 = line.split_whitespace().next().unwrap().parse().unwrap();
    f64::from(kb) / 1000.0
}

/// Seconds of processor time that a process has used (Linux, 100 ticks a second).
pub(crate) fn processor(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // Behind the name, which may hold anything: fields 3 and on; utime is 14, stime 15.
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    let ticks = |at: usize| fields[at - 3].parse::<f64>().unwrap();
    (ticks(14) + ticks(15)) / 100.0
}

/// What a process holds at one time: memory in MB, file descriptors, threads, and the tasks of its runtime.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Held {
    pub(crate) memory: f64,
    pub(crate) files: usize,
    pub(crate) threads: usize,
    /// None = it did not answer just now.
    pub(crate) tasks: Option<usize>,
}

impl Held {
    /// Of hub and agent.
    pub(crate) fn both(world: &World, [hub, agent]: [u32; 2]) -> [Self; 2] {
        let told = world.hub.health("/metrics").ok();
        [
            Self::by(hub, told.as_deref()),
            Self::by(agent, agents_metrics(world).as_deref()),
        ]
    }

    fn by(pid: u32, metrics: Option<&str>) -> Self {
        let entries = |of: &str| fs::read_dir(format!("/proc/{pid}/{of}")).unwrap().count();
        Self {
            memory: rss(pid),
            files: entries("fd"),
            threads: entries("task"),
            tasks: metrics.and_then(tasks),
        }
    }
}

/// What memory may grow by (L29).
const MORE: &str = "≤ 5 %";

/// In the form of [`MORE`], so that the table marks what is beyond it.
fn grown([first, last]: [f64; 2]) -> String {
    let more = (last / first - 1.0) * 100.0;
    format!("{more:.1} % more: {first:.1} / {last:.1} MB")
}

fn tasks(metrics: &str) -> Option<usize> {
    let told = |line: &str| line.strip_prefix("linesman_tasks ")?.trim().parse().ok();
    metrics.lines().find_map(told)
}

fn agents_metrics(world: &World) -> Option<String> {
    let pods = "/api/v1/namespaces/linesman/pods";
    let agent = "labelSelector=app.kubernetes.io/name%3Dlinesman-agent";
    let list = world.api.try_get(&format!("{pods}?{agent}")).ok()??;
    let name = list["items"][0]["metadata"]["name"].as_str()?;
    let path = format!("{pods}/{name}:8080/proxy/metrics");
    world.api.text(&path).ok()
}

/// L29: tells, of hub and agent, the most that each held in the first and in the last quarter, with the bar, and that it did not grow
/// without end. Between two quarters of one load memory may differ by a quarter and 8 MB: beyond the bar is told, beyond that fails.
/// Files, threads and tasks follow what is open at the moment, which is random: each session, copy and watch that runs is a handful
/// of connections at either end, so the last quarter may have half as many again and 32 more; one that is left behind with each of
/// hundreds of sessions is far beyond.
pub(crate) fn steady(samples: &[[Held; 2]], told: impl Fn(&str, &str, String)) {
    let quarter = (samples.len() / 4).max(1);
    let (first, last) = (&samples[..quarter], &samples[samples.len() - quarter..]);
    for (n, name) in ["hub", "agent"].into_iter().enumerate() {
        let memory = [first, last].map(|part| {
            let all = part.iter().map(|both| both[n].memory);
            all.fold(0.0, f64::max)
        });
        let most = |what: fn(&Held) -> usize| {
            [first, last].map(|part| part.iter().map(|both| what(&both[n])).max().unwrap())
        };
        let (files, threads) = (most(|held| held.files), most(|held| held.threads));
        let told_tasks = |part: &[[Held; 2]]| part.iter().filter_map(|both| both[n].tasks).max();
        let tasks = [first, last].map(|part| told_tasks(part).expect("it tells its tasks"));
        let what = |what: &str| format!("{name}'s {what}, most in the first and last quarter");
        told(&what("memory"), MORE, grown(memory));
        let counts = [
            ("file descriptors", files),
            ("threads", threads),
            ("tasks", tasks),
        ];
        for (held, [first, last]) in counts {
            told(&what(held), "± 5 %", format!("{first} / {last}"));
        }
        assert!(
            memory[1] <= memory[0] * 1.25 + 8.0,
            "{name} grew from {} to {} MB",
            memory[0],
            memory[1]
        );
        for (what, [first, last]) in counts {
            assert!(
                last <= first + first / 2 + 32,
                "{name} went from {first} to {last} {what}"
            );
        }
    }
}

pub(crate) fn hub_pid(world: &World) -> u32 {
    let pids = fs::read_to_string(world.directory.join("pids")).unwrap();
    pids.lines()
        .last()
        .unwrap()
        .split(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap()
}

//! What an adopted, healthy cluster costs: memory of the agent, requests to the API server (W23).

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::line::agent_pid;
use crate::support::world::{self, World};
use crate::support::{figure, seconds, until};

/// W23: ≤ 24 MB resident and ≤ 1 request a second, healthy and idle.
#[test]
#[ignore = "needs a real cluster: make test"]
fn an_idle_agent_is_small_and_quiet() {
    let world = world::adopted();
    until("the cluster is healthy", seconds(180), || {
        world.phase() == "Healthy"
    });
    // A window of the API server's own audit log; not a wait for anything.
    let window = Duration::from_mins(1);
    let (before, began) = (requests(&world), Instant::now());
    thread::sleep(window);
    let (after, took) = (requests(&world), began.elapsed());
    let count = |list: &[(String, String)], user: &str| {
        list.iter().filter(|(u, _)| u.ends_with(user)).count()
    };
    for user in ["linesman:linesman-agent", "linesman:linesman-line"] {
        let n = count(&after, user) - count(&before, user);
        figure(
            "W23",
            &format!("requests a second of {user}, idle"),
            "≤ 1 /s",
            format!("{:.2} /s", rate(n, took)),
        );
    }
    let writes: Vec<_> = after[before.len()..]
        .iter()
        .filter(|(user, verb)| {
            user.ends_with("linesman:linesman-agent")
                && !["get", "list", "watch"].contains(&verb.as_str())
        })
        .collect();
    figure(
        "W23",
        "writes of the agent, idle (Lease and probes)",
        "",
        format!("{:.2} /s", rate(writes.len(), took)),
    );
    figure(
        "W23",
        "agent's resident memory, idle",
        "≤ 24 MB",
        resident(agent_pid(&world)),
    );
    figure(
        "",
        "hub's resident memory, one cluster",
        "",
        resident(hub_pid(&world)),
    );
}

#[allow(clippy::cast_precision_loss, reason = "a few hundred requests")]
fn rate(n: usize, took: Duration) -> f64 {
    n as f64 / took.as_secs_f64()
}

/// User and verb of each request so far; watches count when they end.
fn requests(world: &World) -> Vec<(String, String)> {
    let log = fs::read_to_string(&world.audit).expect("the lab's API server writes an audit log");
    log.lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|e| e["stage"] == "ResponseComplete")
        .map(|e| {
            (
                e["user"]["username"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned(),
                e["verb"].as_str().unwrap_or_default().to_owned(),
            )
        })
        .collect()
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
